"""The note format: docs/abi.md is its prose specification.

Section `.note.pipelink` holds ELF notes of the name `PipeLink`. A contract is one note, its places
are another; each description is a JSON text in UTF-8. The type's low byte says which of the two,
the next byte is the version of the format.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

NOTE_SECTION = ".note.pipelink"
NOTE_NAME = "PipeLink"
NOTE_VERSION = 1
NOTE_CONTRACT = 0x01
NOTE_PLACES = 0x02

BIND = "pipelink_bind"
UNBOUND = "pipelink_unbound"
MISMATCH_PREFIX = "pipelink_contract_differs__"

MAX_NOTE_BYTES = 1 << 20
MAX_EXPRESSION = 1024
# Letters and digits, single underscores between them: "__" joins names to link names.
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*\Z")

SWIZZLES = (0, 32, 64, 128)
ELEMENT_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4}
ELEMENT_TYPES = {"bf16": "__nv_bfloat16", "f16": "__half", "f32": "float", "i32": "int"}


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of the format; unknown fields are refused."""


class Fact(Record, frozen=True):
    """A named value. `values` of an import or a choice is the set that the code supports."""

    name: str
    kind: Literal["provides", "chooses", "imports", "derives", "extent"]
    values: tuple[int, ...] = ()
    value: str = ""


class Requirement(Record, frozen=True):
    """A condition over facts, and why it must hold."""

    condition: str
    why: str


class Claim(Record, frozen=True):
    """A need for a shared resource; `amount` is bytes, threads, barriers, warps or registers."""

    name: str
    kind: Literal["shared", "barrier", "mbarrier", "warps", "registers", "stack"]
    amount: str
    align: int = 16
    fixed: int | None = None
    arrivals: str = ""


class Part(Record, frozen=True):
    """One tile of every stage of a ring."""

    name: str
    element: str
    shape: tuple[str, ...]
    swizzle: int = 0


class Port(Record, frozen=True):
    """A typed tensor endpoint; which fields are used depends on `space`."""

    name: str
    space: Literal["global", "shared", "register"]
    direction: Literal["in", "out"]
    element: str = ""
    shape: tuple[str, ...] = ()
    box: tuple[str, ...] = ()
    swizzle: int = 0
    count: str = ""
    layout: str = ""
    stages: str = ""
    arrivals: str = ""
    parts: tuple[Part, ...] = ()
    bytes: str = ""


class Entry(Record, frozen=True):
    """A function that the glue calls, and its arguments in order."""

    name: str
    kind: Literal["step", "schedule"]
    arguments: tuple[str, ...]


class Contract(Record, frozen=True):
    """What a component requires and promises."""

    component: str
    owner: str
    version: str
    target: str
    floating_point: str
    toolchain: tuple[int, int]
    facts: tuple[Fact, ...]
    requires: tuple[Requirement, ...]
    claims: tuple[Claim, ...]
    ports: tuple[Port, ...]
    entries: tuple[Entry, ...]


class Build(Record, frozen=True):
    """How the object was made: what the control needs to compile the same source."""

    source: str
    include: tuple[str, ...] = ()
    define: tuple[str, ...] = ()


class Places(Record, frozen=True):
    """`file:line` of each item, in the order of the contract's lists."""

    component: str
    build: Build
    facts: tuple[str, ...]
    requires: tuple[str, ...]
    claims: tuple[str, ...]
    ports: tuple[str, ...]
    entries: tuple[str, ...]


def fnv1a(data: bytes) -> int:
    """FNV-1a, 64 bits: the hash of slots and fingerprints, as in text.cuh."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def entry_symbol(component: str, entry: str) -> str:
    """The link name of an entry."""
    return f"pipelink__{component}__{entry}"

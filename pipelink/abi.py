"""The note format: docs/abi.md is its prose specification.

Section `.note.pipelink` holds ELF notes of the name `PipeLink`. A contract is one note, its places
are another; each description is a JSON text in UTF-8. The type's low byte says which of the two,
the next byte is the version of the format.
"""

from __future__ import annotations

import re
import struct
from typing import Literal

import msgspec

NOTE_SECTION = ".note.pipelink"
NOTE_NAME = "PipeLink"
NOTE_VERSION = 2
NOTE_CONTRACT = 0x01
NOTE_PLACES = 0x02
NOTE_SYMBOLS = 0x03

BIND = "pipelink_bind"
UNBOUND = "pipelink_unbound"
MISMATCH_PREFIX = "pipelink_contract_differs__"

# Far more than a component needs, and little enough that no object takes a pass a second.
MAX_OBJECT_BYTES = 128 << 20
MAX_SECTIONS = 1 << 16
MAX_NOTE_BYTES = 1 << 20
MAX_EXPRESSION = 1024
MAX_EXPRESSIONS = 1 << 14  # characters of all of a contract
MAX_TEXT = 1024
MAX_FACTS = 1 << 14
MAX_ITEMS = 1024  # of any other list
MAX_RECORDS = 4096  # of all lists together, facts aside
MAX_SIDES = 5  # of a tensor, as cuTensorMapEncodeTiled takes
MAX_OPERATIONS = 256  # that all entries play
MAX_NESTING = 8
# Letters and digits, single underscores between them: "__" joins names to link names.
IDENTIFIER = re.compile(r"(?=.{1,128}\Z)[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*\Z")

# The threads of the role, in expressions; no fact has this name.
ROLE_THREADS = "role_threads"

SWIZZLES = (0, 32, 64, 128)
ELEMENT_BYTES = {
    "bf16": 2,
    "f16": 2,
    "f32": 4,
    "i32": 4,
    "e4m3": 1,
    "e5m2": 1,
    "i8": 1,
    "u8": 1,
    "i64": 8,
}
ELEMENT_TYPES = {
    "bf16": "__nv_bfloat16",
    "f16": "__half",
    "f32": "float",
    "i32": "int",
    "e4m3": "__nv_fp8_e4m3",
    "e5m2": "__nv_fp8_e5m2",
    "i8": "signed char",
    "u8": "unsigned char",
    "i64": "long long",
}
INTEGERS = ("i32", "i8", "u8", "i64")

# A value of a fact: an integer, a truth, or a text (a name, an element type, a layout).
Value = bool | int | str
FactType = Literal["int", "bool", "text", "element", "layout"]
# Who arrives at a barrier: one thread of the role, one of each warp or warpgroup, or each; `copies`
# is one thread that announces bytes, which bulk copies deliver; `step` is the glue, around the step.
# `each_thread_async` is each thread, when its own asynchronous copies (cp.async) have come.
Arriver = Literal[
    "",
    "copies",
    "step",
    "one_thread",
    "each_warp",
    "each_warpgroup",
    "each_thread",
    "each_thread_async",
]


# Kinds of claims that the link gives a position, by their name as a slot.
PLACED = ("shared", "barrier", "mbarrier", "tensor_columns")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of the format; unknown fields are refused."""


class Fact(Record, frozen=True):
    """A named value. `values` of an import or a choice is the set that the code supports; `default`
    is what an import is where nobody provides it."""

    name: str
    kind: Literal["provides", "chooses", "imports", "derives", "extent", "agrees"]
    values: tuple[Value, ...] = ()
    value: str = ""
    type: FactType = "int"
    default: Value | None = None


class Requirement(Record, frozen=True):
    """A condition over facts, and why it must hold."""

    condition: str
    why: str


class Promise(Record, frozen=True):
    """What a producer promises of a port's data beyond its type, or a consumer needs of it."""

    name: str
    port: str
    side: Literal["promises", "needs"]
    why: str


class Field(Record, frozen=True):
    """A member of a shared type; offset and size in bytes."""

    name: str
    offset: int
    size: int


class SharedType(Record, frozen=True):
    """A type that several owners compile from one header; size and align in bytes."""

    name: str
    size: int
    align: int
    fields: tuple[Field, ...]


class Claim(Record, frozen=True):
    """A need for a shared resource; `amount` is bytes, threads, mbarriers, columns, warps
    or registers.

    `count` is how many barriers of consecutive ids. `scope` says for whom one is: with "warp" each
    warp of the role has its own. `during` names the entries in which it is used; empty is always.
    """

    name: str
    kind: Literal["shared", "barrier", "mbarrier", "tensor_columns", "warps", "registers", "stack"]
    amount: str
    align: int = 16
    fixed: int | None = None
    arrivals: str = ""
    by: Arriver = ""
    count: str = "1"
    scope: Literal["role", "warpgroup", "warp"] = "role"
    during: tuple[str, ...] = ()


class Copy(Record, frozen=True):
    """Bulk copies that fill a part of a stage: `count` boxes of a global port."""

    port: str
    count: str


class Part(Record, frozen=True):
    """One tile of every stage of a ring. `layout` is CuTe's, of elements; row-major if empty. `edge`
    is what a producer leaves, and a consumer needs, where the tile passes the tensor's end."""

    name: str
    element: str
    shape: tuple[str, ...]
    swizzle: int = 0
    layout: str = ""
    edge: Literal["", "zero", "undefined"] = ""
    copies: tuple[Copy, ...] = ()


class Cover(Record, frozen=True):
    """How much of one side of a tensor a kernel reaches: `step` elements from each row or column of
    the tile schedule on, or `step` elements in all. `group`: those from the tile's `first` to its
    `end`, `step` at most. `clipped`: nothing past the end is touched."""

    along: Literal["row", "group", "column", "whole"]
    step: str
    clipped: bool = False


class Holds(Record, frozen=True):
    """What holds of the values of an integer array when the kernel starts: each is at least 0 and
    `below` the product of the sizes; they are `distinct`; they are `ascending` from 0 to the product;
    their `count` is the product, which every launch checks."""

    what: Literal["below", "distinct", "ascending", "count"]
    sizes: tuple[str, ...] = ()


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
    by: Arriver = ""
    proxy: Literal["", "generic", "async"] = ""
    covers: tuple[Cover, ...] = ()
    holds: tuple[Holds, ...] = ()
    # The code that waits for a stage fences its proxy where the link says so.
    fences: bool = False
    # A tensor that is written by atomic additions to what is there.
    adds: bool = False


class Operation(Record, frozen=True):
    """What an entry does with rings, in order; `repeat` and `maybe` have a body.

    A repeat has a `count` over facts, or, where only the run knows it, a `name`: operations of the
    same name have the same count, or all happen or none, in one tile.
    """

    do: Literal["acquire", "commit", "wait", "release", "repeat", "maybe"]
    on: str = ""
    count: str = ""
    name: str = ""
    body: tuple[Operation, ...] = ()


class Tiling(Record, frozen=True):
    """A side of the tile schedule: as many tiles as it takes to cover `of` by steps of `step`. `groups`:
    the side is cut into groups, whose sizes only the run knows, and each group into tiles."""

    of: str
    step: str
    groups: bool = False


class Entry(Record, frozen=True):
    """A function that the glue calls, its arguments in order, and what it does with rings. A schedule
    has `tiles`: its rows, then its columns. `threads`: all of the role run it, or one. `groups`: a step
    goes by the `group`, `first` and `end` of its tile."""

    name: str
    kind: Literal["step", "schedule"]
    arguments: tuple[str, ...]
    plays: tuple[Operation, ...] = ()
    tiles: tuple[Tiling, ...] = ()
    threads: Literal["role", "one"] = "role"
    groups: bool = False


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
    promises: tuple[Promise, ...] = ()
    types: tuple[SharedType, ...] = ()


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
    promises: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class Symbol(Record, frozen=True):
    """A definition that others could have too. `name` is mangled, `shown` as people write it; `text`
    is a type's members or the hash of a body."""

    name: str
    text: str = ""
    place: str = ""
    shown: str = ""


class Symbols(Record, frozen=True):
    """What the object defines beside its contract: functions of its own (`strong`), inline functions
    and templates (`weak`), and types."""

    component: str
    strong: tuple[Symbol, ...] = ()
    weak: tuple[Symbol, ...] = ()
    types: tuple[Symbol, ...] = ()


def encode_note(kind: int, text: bytes) -> bytes:
    """One ELF note of today's format."""
    head = struct.pack("<III", len(NOTE_NAME) + 1, len(text), kind | NOTE_VERSION << 8)
    name = NOTE_NAME.encode().ljust(12, b"\0")
    return head + name + text + bytes(-len(text) % 4)


def fnv1a(data: bytes) -> int:
    """FNV-1a, 64 bits: the hash of slots and fingerprints, as in text.cuh."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def bound(value: Value) -> int:
    """What `pipelink_bind` returns for a fact: an integer itself, a text by its hash, as a signed
    64-bit integer."""
    if isinstance(value, str):
        hashed = fnv1a(value.encode())
        return hashed - (1 << 64) if hashed >> 63 else hashed
    return int(value)


def entry_symbol(component: str, entry: str) -> str:
    """The link name of an entry."""
    return f"pipelink__{component}__{entry}"

"""A kernel of three components as values: small, and right until a test changes something."""

from typing import Any

import msgspec
from msgspec.structs import replace

from pipelink.abi import (
    Build,
    Claim,
    Contract,
    Copy,
    Cover,
    Entry,
    Fact,
    Operation,
    Part,
    Places,
    Port,
    Record,
    Requirement,
    Tiling,
)

MANIFEST = """\
kernel = "toy"
target = "sm_90a"
schedule = "mma.schedule"

[facts]
hidden = 4096

[instances.load]
object = "loader.o"

[instances.mma]
object = "mainloop.o"

[instances.act]
object = "epilogue.o"

[[roles]]
name = "producer"
steps = ["load.run"]

[[roles]]
name = "math"
steps = ["mma.run", "act.run"]

[[channels]]
from = "load.out"
to = "mma.in"

[[channels]]
from = "mma.acc"
to = "act.acc"

[parameters]
x = "load.x"
w = "load.w"
out = "act.out"
"""

_X = Part("x", "bf16", ("tile_m", "tile_k"), 128)
_W = Part("w", "bf16", ("tile_n", "tile_k"), 128)
_LAYOUT = "(256,tile_n/2):(1,256)"
_DEPTH = Cover("whole", "k_steps * tile_k")


def play(do: str, on: str) -> Operation:
    return Operation(do, on)


def repeat(count: str, *body: Operation) -> Operation:
    return Operation("repeat", count=count, body=body)


def contract(component: str, owner: str, **lists: Any) -> Contract:
    """A contract of today's format; lists that are left out are empty."""
    empty = dict.fromkeys(("facts", "requires", "claims", "ports", "entries"), ())
    fields = {"target": "sm_90a", "floating_point": "ftz=0 div=1 sqrt=1 fma=1"}
    return Contract(component, owner, "1.0", toolchain=(13, 5), **fields | empty | lists)


LOADER = contract(
    "loader",
    "data",
    facts=(
        Fact("stages", "chooses", (4, 2, 3, 5)),
        Fact("tile_k", "provides", (64,)),
        Fact("hidden", "imports"),
        Fact("tile_m", "imports"),
        Fact("tile_n", "imports"),
        Fact("k_steps", "derives", value="hidden // tile_k"),
        Fact("column_tiles", "derives", value="hidden // tile_n"),
        Fact("m", "extent"),
    ),
    requires=(Requirement("hidden % tile_k == 0", "the loop has no partial step"),),
    claims=(Claim("warps", "warps", "4"), Claim("registers", "registers", "40")),
    ports=(
        Port(
            "x",
            "global",
            "in",
            "bf16",
            ("m", "hidden"),
            ("tile_m", "tile_k"),
            128,
            covers=(Cover("row", "tile_m"), _DEPTH),
        ),
        Port(
            "w",
            "global",
            "in",
            "bf16",
            ("hidden", "hidden"),
            ("tile_n", "tile_k"),
            128,
            covers=(Cover("column", "tile_n"), _DEPTH),
        ),
        Port(
            "out",
            "shared",
            "out",
            stages="stages",
            by="copies",
            proxy="async",
            parts=(
                replace(_X, copies=(Copy("x", "1"),)),
                replace(_W, copies=(Copy("w", "1"),)),
            ),
        ),
    ),
    entries=(
        Entry(
            "run",
            "step",
            ("tile", "x", "w", "out"),
            (repeat("k_steps", play("acquire", "out"), play("commit", "out")),),
        ),
    ),
)

MAINLOOP = contract(
    "mainloop",
    "matrix",
    facts=(
        Fact("tile_m", "provides", (128,)),
        Fact("tile_n", "chooses", (256, 128)),
        Fact("tile_k", "imports", (64,)),
        Fact("stages", "imports"),
        Fact("k_steps", "imports"),
        Fact("column_tiles", "imports"),
        Fact("m", "extent"),
    ),
    claims=(Claim("warps", "warps", "8"), Claim("registers", "registers", "232")),
    ports=(
        Port(
            "in",
            "shared",
            "in",
            stages="stages",
            by="each_warpgroup",
            proxy="async",
            parts=(_X, _W),
        ),
        Port("acc", "register", "out", "f32", ("tile_m", "tile_n"), layout=_LAYOUT),
    ),
    entries=(
        Entry(
            "run",
            "step",
            ("in", "acc"),
            (repeat("k_steps", play("wait", "in"), play("release", "in")),),
        ),
        Entry(
            "schedule",
            "schedule",
            ("m",),
            tiles=(Tiling("m", "tile_m"), Tiling("column_tiles", "1")),
        ),
    ),
)

EPILOGUE = contract(
    "epilogue",
    "activation",
    facts=(
        Fact("tile_m", "imports"),
        Fact("tile_n", "imports", (256, 128)),
        Fact("hidden", "imports"),
        Fact("m", "extent"),
    ),
    claims=(
        Claim("warps", "warps", "8"),
        Claim("registers", "registers", "168"),
        Claim("staging", "shared", "1000", align=128),
        Claim("store", "barrier", "256"),
    ),
    ports=(
        Port("acc", "register", "in", "f32", ("tile_m", "tile_n"), layout=_LAYOUT),
        Port(
            "out",
            "global",
            "out",
            "bf16",
            ("m", "hidden"),
            covers=(Cover("row", "tile_m", True), Cover("column", "tile_n")),
        ),
    ),
    entries=(Entry("run", "step", ("tile", "acc", "out", "m")),),
)

ALL = {"loader": LOADER, "mainloop": MAINLOOP, "epilogue": EPILOGUE}


def change(whole: Contract, section: str, name: str, /, **fields: Any) -> Contract:
    """The contract with other fields in one of its records."""
    rows = getattr(whole, section)
    assert name in [row.name for row in rows]
    rows = tuple(replace(row, **fields) if row.name == name else row for row in rows)
    return replace(whole, **{section: rows})


def drop(whole: Contract, section: str, name: str) -> Contract:
    """The contract without one of its records."""
    rows = tuple(row for row in getattr(whole, section) if row.name != name)
    assert len(rows) == len(getattr(whole, section)) - 1
    return replace(whole, **{section: rows})


def add(whole: Contract, section: str, *records: Record) -> Contract:
    """The contract with more records."""
    return replace(whole, **{section: (*getattr(whole, section), *records)})


def encode(value: Record) -> bytes:
    # As the header writes it: a port that says nothing of values has no such field.
    text = msgspec.json.encode(value)
    for nothing in (b',"holds":[]', b',"fences":false', b',"adds":false', b',"groups":false'):
        text = text.replace(nothing, b"")
    return text


def places(whole: Contract) -> Places:
    """Made-up lines: facts from 10 on, requirements from 20, claims 30, ports 40, entries 50."""
    sections = ("facts", "requires", "claims", "ports", "entries")
    lines = {
        name: tuple(f"{whole.component}.cu:{10 * n + i}" for i in range(len(getattr(whole, name))))
        for n, name in enumerate(sections, 1)
    }
    return Places(whole.component, Build(f"{whole.component}.cu"), **lines)

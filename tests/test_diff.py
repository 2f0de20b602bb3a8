"""`pipelink diff`: which class a change of a contract has, and what is said of it."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from contracts import LOADER, add, change, contract, drop, encode
from minimal_elf import CONTRACT, note, object_
from msgspec.structs import replace

from pipelink import abi, diff
from pipelink.abi import (
    Claim,
    Contract,
    Copy,
    Cover,
    Entry,
    Fact,
    Field,
    Operation,
    Part,
    Port,
    Promise,
    Record,
    Requirement,
    SharedType,
    Tiling,
)
from pipelink.model import Component
from pipelink.report import difference

FILL = (Operation("acquire", "out"), Operation("commit", "out"))
# One of everything that a contract can have.
WHOLE = contract(
    "whole",
    "team",
    facts=(
        Fact("stages", "chooses", (4, 2, 3)),
        Fact("raster", "provides", (16,)),
        Fact("tile_k", "provides", (64,)),
        Fact("half", "chooses", (1, 2)),
        Fact("tile_m", "derives", value="half * 64"),
        Fact("steps", "derives", value="hidden // tile_k"),
        Fact("kind", "provides", ("fast",), type="text"),
        Fact("hidden", "imports"),
        Fact("tile_n", "imports", (256, 128)),
        Fact("depth", "imports", default=8),
        Fact("line", "agrees", (128,)),
        Fact("m", "extent"),
    ),
    requires=(Requirement("steps > 0", "a loop"),),
    claims=(
        Claim("staging", "shared", "1024", during=("run",)),
        Claim("store", "barrier", "128"),
        Claim("pinned", "barrier", "128", fixed=3),
        Claim("ready", "mbarrier", "2", arrivals="128"),
        Claim("warps", "warps", "4"),
        Claim("registers", "registers", "40"),
        Claim("stack", "stack", "16"),
    ),
    ports=(
        Port("x", "global", "in", "bf16", ("m", "hidden"), ("tile_m", "tile_k"), 128),
        Port("y", "global", "out", "f32", ("m",), covers=(Cover("row", "tile_m"),)),
        Port(
            "out",
            "shared",
            "out",
            stages="stages",
            by="copies",
            proxy="async",
            parts=(
                Part("x", "bf16", ("tile_m", "tile_k"), 128, copies=(Copy("x", "1"),)),
                Part("w", "bf16", ("64",), edge="undefined"),
            ),
        ),
        Port("in", "shared", "in", stages="2", parts=(Part("t", "f32", ("64",), edge="zero"),)),
        Port("acc", "register", "out", "f32", ("64", "64"), layout="(128,32):(32,1)"),
    ),
    entries=(
        Entry("run", "step", ("tile", "x", "out"), plays=(Operation("repeat", "", "4", "", FILL),)),
        Entry("schedule", "schedule", ("m",), tiles=(Tiling("m", "tile_m"), Tiling("n", "1"))),
    ),
    promises=(
        Promise("finite", "out", "promises", "no infinities"),
        Promise("sorted", "in", "needs", "a binary search"),
    ),
    types=(SharedType("Route", 8, 4, (Field("expert", 0, 4), Field("weight", 4, 4))),),
)


def component(whole: Contract) -> Component:
    return Component("a.o", whole, abi.fnv1a(encode(whole)), None)


def said(old: Contract, new: Contract) -> list[str]:
    """All lines but the verdict."""
    changes = diff.compare(component(old), component(new))
    return difference.as_text(changes).splitlines()[:-1]


def part(port: str, name: str, **fields: Any) -> Contract:
    """The contract with other fields in one part of a ring."""
    parts = next(p for p in WHOLE.ports if p.name == port).parts
    parts = tuple(replace(p, **fields) if p.name == name else p for p in parts)
    return change(WHOLE, "ports", port, parts=parts)


def plays(*operations: Operation) -> Contract:
    return change(WHOLE, "entries", "run", plays=operations)


def whole_type(**fields: Any) -> Contract:
    return change(WHOLE, "types", "Route", **fields)


# --- The table is whole -----------------------------------------------------------------------


def reachable(record: type[Record]) -> set[type[Record]]:
    """The record and all that its fields hold, at any depth."""
    found, todo = set(), [record]
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, Record):
            if kind not in found:
                found.add(kind)
                todo += get_type_hints(kind).values()
        else:
            todo += get_args(kind)
    return found


def literals(record: type[Record], field: str) -> set[str]:
    return set(get_args(get_type_hints(record)[field]))


def test_every_record_of_a_contract_is_classified():
    assert set(diff.RULES) == reachable(Contract)


@pytest.mark.parametrize("record", sorted(reachable(Contract), key=lambda r: r.__name__))
def test_every_field_is_classified(record):
    assert set(diff.RULES[record]) == set(record.__struct_fields__)


@pytest.mark.parametrize(
    ("table", "record", "field"),
    [
        (diff.FACTS, Fact, "kind"),
        (diff.CLAIMS, Claim, "kind"),
        (diff.PROMISES, Promise, "side"),
        (diff.EDGES, Part, "edge"),
    ],
)
def test_every_kind_is_classified(table, record, field):
    assert set(table) == literals(record, field)


def test_every_item_of_a_list_has_words():
    assert set(difference.ITEMS) == reachable(Contract) - {Contract}


# --- Compatible -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (replace(WHOLE, version="2.0"), "version: 1.0 -> 2.0; only reports show it"),
        (replace(WHOLE, owner="us"), "owner: team -> us; only reports show it"),
        (
            replace(WHOLE, toolchain=(13, 6)),
            "toolchain: 13, 5 -> 13, 6; components of a kernel may differ in the minor version",
        ),
        (
            change(WHOLE, "facts", "stages", values=(4, 2, 3, 6)),
            "fact stages: 4, 2, 3 -> 4, 2, 3, 6; manifests have more to choose from",
        ),
        (
            change(WHOLE, "facts", "tile_n", values=(256, 128, 64)),
            "fact tile_n: 256, 128 -> 256, 128, 64; it takes more values than before",
        ),
        (
            change(WHOLE, "facts", "tile_n", values=()),
            "fact tile_n: 256, 128 -> nothing; it takes more values than before",
        ),
        (
            change(WHOLE, "facts", "hidden", default=4096),
            "fact hidden.default: nothing -> 4096; nobody has to provide it now",
        ),
        (
            add(WHOLE, "facts", Fact("new", "provides", (1,))),
            "fact new: nothing -> provides 1; others may import it",
        ),
        (
            drop(WHOLE, "facts", "line"),
            "fact line: agrees 128 -> nothing; the others agree without it",
        ),
        (
            replace(WHOLE, requires=()),
            "requirement steps > 0: a loop -> nothing; kernels need not meet it any more",
        ),
        (
            replace(WHOLE, requires=(Requirement("steps > 0", "whole"),)),
            "requirement steps > 0.why: a loop -> whole; only reports show it",
        ),
        (
            change(WHOLE, "claims", "stack", amount="8"),
            "claim stack.amount: 16 -> 8; only the audit reads it",
        ),
        (
            drop(WHOLE, "claims", "stack"),
            "claim stack: stack 16 -> nothing; only the audit reads it",
        ),
        (
            add(WHOLE, "promises", Promise("sorted", "out", "promises", "by key")),
            "promise out sorted: nothing -> promises; consumers may need it",
        ),
        (
            drop(WHOLE, "promises", "sorted"),
            "promise in sorted: needs -> nothing; the producer is free of it",
        ),
        (
            add(WHOLE, "entries", Entry("more", "step", ("tile",))),
            "entry more: nothing -> step (tile); manifests may run it",
        ),
        (
            drop(WHOLE, "types", "Route"),
            "type Route: 8 bytes -> nothing; the others agree without it",
        ),
        (
            part("out", "w", edge="zero"),
            "port out.part w.edge: undefined -> zero; it leaves more",
        ),
        (
            part("in", "t", edge="undefined"),
            "port in.part t.edge: zero -> undefined; it needs less",
        ),
        (
            change(WHOLE, "ports", "y", covers=(Cover("row", "tile_m", True),)),
            "port y.cover row.clipped: false -> true; "
            "nothing past the tensor's end is touched any more",
        ),
    ],
)
def test_compatible(new, line):
    assert said(WHOLE, new) == ["compatible", f"  {line}"]


def test_a_provided_fact_that_manifests_may_set_is_compatible():
    new = change(WHOLE, "facts", "raster", kind="chooses", values=(16, 8))
    assert said(WHOLE, new) == [
        "compatible",
        "  fact raster.kind: provides -> chooses; manifests may set it now",
        "  fact raster: 16 -> 16, 8; manifests have more to choose from",
    ]


# --- Needs relink -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (
            change(WHOLE, "facts", "stages", values=(3, 4, 2)),
            "fact stages: 4, 2, 3 -> 3, 4, 2; "
            "kernels that do not set it get the new default, importers follow",
        ),
        (
            change(WHOLE, "facts", "half", values=(2, 1)),
            "fact half: 1, 2 -> 2, 1; "
            "kernels that do not set it get the new default, importers follow",
        ),
        (
            change(WHOLE, "facts", "raster", values=(8,)),
            "fact raster: 16 -> 8; importers follow",
        ),
        (
            change(WHOLE, "facts", "steps", value="hidden // 32"),
            "fact steps: hidden // tile_k -> hidden // 32; importers follow",
        ),
        (
            change(WHOLE, "facts", "depth", default=9),
            "fact depth.default: 8 -> 9; kernels where nobody provides it get the new value",
        ),
        (
            add(WHOLE, "facts", Fact("new", "chooses", (1, 2))),
            "fact new: nothing -> chooses 1, 2; "
            "it is bound at its default unless a kernel gives another value",
        ),
        (
            add(WHOLE, "facts", Fact("new", "imports", default=1)),
            "fact new: nothing -> imports; "
            "it is bound at its default unless a kernel gives another value",
        ),
        (
            add(WHOLE, "facts", Fact("k", "extent")),
            "fact k: nothing -> extent; kernels read one more size from the shapes of tensors",
        ),
        (
            change(WHOLE, "claims", "staging", amount="512"),
            "claim shared staging.amount: 1024 -> 512; "
            "shared memory is placed anew, and must still fit",
        ),
        (
            change(WHOLE, "claims", "staging", align=256),
            "claim shared staging.align: 16 -> 256; "
            "shared memory is placed anew, and must still fit",
        ),
        (
            change(WHOLE, "claims", "staging", during=()),
            "claim shared staging.during: run -> nothing; "
            "shared memory is placed anew, and must still fit",
        ),
        (
            change(WHOLE, "claims", "store", count="2"),
            "claim barrier store.count: 1 -> 2; barrier ids are given anew, and must suffice",
        ),
        (
            change(WHOLE, "claims", "store", scope="warpgroup"),
            "claim barrier store.scope: role -> warpgroup; "
            "barrier ids are given anew, and must suffice",
        ),
        (
            change(WHOLE, "claims", "pinned", fixed=None),
            "claim barrier pinned.fixed: 3 -> nothing; "
            "barrier ids are given anew, and must suffice",
        ),
        (
            change(WHOLE, "claims", "ready", arrivals="64"),
            "claim mbarrier ready.arrivals: 128 -> 64; mbarriers are initialised anew",
        ),
        (
            change(WHOLE, "claims", "ready", by="each_warp"),
            "claim mbarrier ready.by: nothing -> each_warp; mbarriers are initialised anew",
        ),
        (
            change(WHOLE, "claims", "registers", amount="48"),
            "claim registers.amount: 40 -> 48; "
            "its role gets the most that a step claims, and all must still fit",
        ),
        (
            drop(WHOLE, "claims", "ready"),
            "claim mbarrier ready: mbarrier 2 -> nothing; "
            "shared memory is placed anew, and must still fit",
        ),
        (
            change(WHOLE, "ports", "x", box=("32", "tile_k")),
            "port x.box: tile_m, tile_k -> 32, tile_k; bulk copies and tensor maps are made anew",
        ),
        (
            change(WHOLE, "ports", "x", swizzle=64),
            "port x.swizzle: 128 -> 64; bulk copies and tensor maps are made anew",
        ),
        (
            change(WHOLE, "ports", "out", bytes="512"),
            "port out.bytes: nothing -> 512; bulk copies and tensor maps are made anew",
        ),
        (
            change(WHOLE, "ports", "out", arrivals="1"),
            "port out.arrivals: nothing -> 1; mbarriers are initialised anew",
        ),
        (
            change(WHOLE, "ports", "out", by="one_thread"),
            "port out.by: copies -> one_thread; mbarriers are initialised anew",
        ),
        (
            change(WHOLE, "ports", "out", proxy="generic"),
            "port out.proxy: async -> generic; whether the producer needs a fence is decided anew",
        ),
        (
            part("out", "x", copies=(Copy("x", "2"),)),
            "port out.part x.copy x.count: 1 -> 2; bulk copies and tensor maps are made anew",
        ),
        (
            part("out", "x", copies=()),
            "port out.part x.copy x: 1 of x -> nothing; bulk copies and tensor maps are made anew",
        ),
    ],
)
def test_needs_relink(new, line):
    assert said(WHOLE, new) == ["needs relink", f"  {line}"]


def test_code_for_a_whole_family_links_into_the_same_kernels():
    assert said(WHOLE, replace(WHOLE, target="sm_90")) == [
        "needs relink",
        "  target: sm_90a -> sm_90; it links into the same kernels",
    ]


# --- Needs consumers to agree -----------------------------------------------------------------

OTHER_END = "the other end of its channel must declare the same (PL021)"
TENSOR = "who is at the other end of its channel, or passes the tensor, must have the same"
TILED = "the tile schedule and those who cover tensors by it must fit"
PLAYED = "the other ends of its rings must play along"
SIZES = "it sizes a channel's tiles: who imports it must support it (PL013)"
STOP = "manifests that set, wire or bound it for this component alone must stop (PL016)"
ONE_LAYOUT = "all who compile this type must have one layout of it"


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (
            replace(WHOLE, toolchain=(14, 0)),
            "toolchain: 13, 5 -> 14, 0; "
            "all components of a kernel must have one CUDA major version (PL026)",
        ),
        (
            replace(WHOLE, floating_point="ftz=1 div=1 sqrt=1 fma=1"),
            "floating_point: ftz=0 div=1 sqrt=1 fma=1 -> ftz=1 div=1 sqrt=1 fma=1; "
            "all components of a kernel must have one mode (PL025)",
        ),
        (
            change(WHOLE, "facts", "tile_k", values=(32,)),
            f"fact tile_k: 64 -> 32; {SIZES}",
        ),
        (
            change(WHOLE, "facts", "half", values=(4, 1, 2)),
            f"fact half: 1, 2 -> 4, 1, 2; {SIZES}",
        ),
        (
            change(WHOLE, "facts", "tile_m", value="half * 32"),
            f"fact tile_m: half * 64 -> half * 32; {SIZES}",
        ),
        (
            change(WHOLE, "facts", "kind", values=("slow",)),
            "fact kind: fast -> slow; who imports it must know this text (PL013)",
        ),
        (
            change(WHOLE, "facts", "hidden", values=(4096,)),
            "fact hidden: nothing -> 4096; its provider must give 4096 (PL013)",
        ),
        (
            change(WHOLE, "facts", "tile_n", values=(128, 64)),
            "fact tile_n: 256, 128 -> 128, 64; its provider must give 128 or 64 (PL013)",
        ),
        (
            change(WHOLE, "facts", "depth", default=None),
            "fact depth.default: 8 -> nothing; "
            "another owner or the manifest must provide it (PL011)",
        ),
        (
            change(WHOLE, "facts", "hidden", type="bool"),
            "fact hidden.type: int -> bool; who provides or states it must have it as bool",
        ),
        (
            change(WHOLE, "facts", "line", values=(64,)),
            "fact line: 128 -> 64; all who state it must state the same",
        ),
        (
            add(WHOLE, "facts", Fact("new", "imports")),
            "fact new: nothing -> imports; another owner or the manifest must provide it (PL011)",
        ),
        (
            add(WHOLE, "facts", Fact("new", "agrees", (1,))),
            "fact new: nothing -> agrees 1; all who state it must state the same",
        ),
        (drop(WHOLE, "facts", "hidden"), f"fact hidden: imports -> nothing; {STOP}"),
        (drop(WHOLE, "facts", "m"), f"fact m: extent -> nothing; {STOP}"),
        (
            add(WHOLE, "requires", Requirement("m > 0", "a row")),
            "requirement m > 0: nothing -> a row; the facts of every kernel must meet it (PL020)",
        ),
        (
            change(WHOLE, "claims", "warps", amount="8"),
            "claim warps.amount: 4 -> 8; the other steps of its role must claim as many (PL023)",
        ),
        (
            change(WHOLE, "claims", "pinned", fixed=4),
            "claim barrier pinned.fixed: 3 -> 4; "
            "nobody else in a kernel may fix the same id (PL032)",
        ),
        (
            add(WHOLE, "claims", Claim("more", "barrier", "128", fixed=5)),
            "claim barrier more: nothing -> barrier 128; "
            "nobody else in a kernel may fix the same id (PL032)",
        ),
        (change(WHOLE, "ports", "y", element="bf16"), f"port y.element: f32 -> bf16; {TENSOR}"),
        (change(WHOLE, "ports", "y", shape=("m", "2")), f"port y.shape: m -> m, 2; {TENSOR}"),
        (
            change(WHOLE, "ports", "out", stages="4"),
            f"port out.stages: stages -> 4; {OTHER_END}",
        ),
        (
            change(WHOLE, "ports", "acc", layout="(32,128):(1,32)"),
            f"port acc.layout: (128,32):(32,1) -> (32,128):(1,32); {OTHER_END}",
        ),
        (
            change(WHOLE, "ports", "acc", count="32"),
            f"port acc.count: nothing -> 32; {OTHER_END}",
        ),
        (
            add(WHOLE, "ports", Port("z", "global", "in", "i32", ("m",))),
            "port z: nothing -> global in i32; manifests must connect it (PL022)",
        ),
        (part("out", "x", swizzle=64), f"port out.part x.swizzle: 128 -> 64; {OTHER_END}"),
        (part("out", "x", element="f16"), f"port out.part x.element: bf16 -> f16; {OTHER_END}"),
        (part("out", "w", shape=("32",)), f"port out.part w.shape: 64 -> 32; {OTHER_END}"),
        (
            part("out", "w", layout="(64):(2)"),
            f"port out.part w.layout: nothing -> (64):(2); {OTHER_END}",
        ),
        (
            part("out", "w", edge=""),
            "port out.part w.edge: undefined -> nothing; it leaves more",
        ),
        (
            change(WHOLE, "ports", "out", parts=WHOLE.ports[2].parts[::-1]),
            f"port out.parts: x, w -> w, x; {OTHER_END}",
        ),
        (
            change(WHOLE, "ports", "out", parts=WHOLE.ports[2].parts[:1]),
            f"port out.part w: bf16 [64] -> nothing; {OTHER_END}",
        ),
        (
            change(WHOLE, "ports", "y", covers=(Cover("row", "64"),)),
            f"port y.cover row.step: tile_m -> 64; {TILED}",
        ),
        (
            change(WHOLE, "ports", "y", covers=()),
            f"port y.cover row: row tile_m -> nothing; {TILED}",
        ),
        (
            change(WHOLE, "entries", "schedule", tiles=WHOLE.entries[1].tiles[::-1]),
            f"entry schedule.tilings: m, n -> n, m; {TILED}",
        ),
        (
            change(WHOLE, "entries", "schedule", tiles=(Tiling("m", "64"), Tiling("n", "1"))),
            f"entry schedule.tiling m.step: tile_m -> 64; {TILED}",
        ),
        (
            plays(Operation("repeat", "", "8", "", FILL)),
            f"entry run.operation repeat.count: 4 -> 8; {PLAYED}",
        ),
        (
            plays(Operation("repeat", "", "4", "", FILL[::-1])),
            f"entry run.operation repeat.operations: acquire out, commit out -> "
            f"commit out, acquire out; {PLAYED}",
        ),
        (
            plays(Operation("repeat", "", "4", "", (*FILL, *FILL[:1]))),
            f"entry run.operation repeat.operation acquire out 2: nothing -> acquire out; {PLAYED}",
        ),
        (
            drop(WHOLE, "promises", "finite"),
            "promise out finite: promises -> nothing; no consumer may need it",
        ),
        (
            add(WHOLE, "promises", Promise("finite", "in", "needs", "a sum")),
            "promise in finite: nothing -> needs; the producer must promise it",
        ),
        (whole_type(size=16), f"type Route.size: 8 -> 16; {ONE_LAYOUT}"),
        (
            whole_type(fields=(Field("expert", 0, 4), Field("weight", 6, 2))),
            f"type Route.field weight.offset: 4 -> 6; {ONE_LAYOUT}",
        ),
        (
            add(WHOLE, "types", SharedType("Other", 4, 4, ())),
            f"type Other: nothing -> 4 bytes; {ONE_LAYOUT}",
        ),
    ],
)
def test_needs_consumers_to_agree(new, line):
    assert f"  {line}" in said(WHOLE, new)
    assert said(WHOLE, new)[0] == "needs consumers to agree"


# --- Breaking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (
            replace(WHOLE, component="other"),
            "component: whole -> other; kernels call entries by the old name",
        ),
        (
            replace(WHOLE, target="sm_100a"),
            "target: sm_90a -> sm_100a; kernels for sm_90a can't link it (PL024)",
        ),
        (
            drop(WHOLE, "facts", "raster"),
            "fact raster: provides 16 -> nothing; who imports it has no provider (PL011)",
        ),
    ],
)
def test_breaking(new, line):
    assert said(WHOLE, new) == ["breaking", f"  {line}"]

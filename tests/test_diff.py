"""`pipelink diff`: which class a change of a contract has, and what is said of it."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from contracts import add, change, contract, drop, encode
from minimal_elf import CONTRACT, note, object_
from msgspec.structs import replace

from pipelink import abi, diff
from pipelink.abi import Claim, Contract, Cover, Entry, Fact, Field, Holds, Part, Port, Promise
from pipelink.model import Component
from pipelink.report import difference

FILL = (abi.Operation("acquire", "out"), abi.Operation("commit", "out"))
TILES = (abi.Tiling("m", "tile_m"), abi.Tiling("n", "1"))
PARTS = (
    Part("x", "bf16", ("tile_m", "tile_k"), 128, copies=(abi.Copy("x", "1"),)),
    Part("w", "bf16", ("64",), edge="undefined"),
)
LOOP, ROW = abi.Requirement("steps > 0", "a loop"), abi.Requirement("hidden > 0", "a row")
MORE = abi.Requirement("m > 0", "a column")
CLIPPED = Cover("row", "tile_m", clipped=True)
BELOW = Holds("below", ("m", "tile_m"))
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
        Fact("mode", "provides", ("fast",), type="text"),
        Fact("hidden", "imports"),
        Fact("tile_n", "imports", (256, 128)),
        Fact("depth", "imports", default=8),
        Fact("line", "agrees", (128,)),
        Fact("m", "extent"),
    ),
    requires=(LOOP, ROW),
    claims=(
        Claim("staging", "shared", "1024", during=("run",)),
        Claim("store", "barrier", "128"),
        Claim("pinned", "barrier", "128", fixed=3),
        Claim("warps", "warps", "4"),
        Claim("registers", "registers", "40"),
        Claim("stack", "stack", "16"),
    ),
    ports=(
        Port("x", "global", "in", "bf16", ("m", "hidden"), ("tile_m", "tile_k"), 128),
        Port("y", "global", "out", "f32", ("m",), covers=(Cover("row", "tile_m"),)),
        Port("out", "shared", "out", stages="stages", by="copies", proxy="async", parts=PARTS),
        Port("in", "shared", "in", stages="2", parts=(Part("t", "f32", ("64",), edge="zero"),)),
        Port("order", "global", "in", "i32", ("m",), holds=(BELOW, Holds("distinct"))),
    ),
    entries=(
        Entry("run", "step", ("tile", "x"), (abi.Operation("repeat", "", "4", "", FILL),)),
        Entry("schedule", "schedule", ("m",), tiles=TILES),
    ),
    promises=(
        Promise("finite", "out", "promises", "no infinities"),
        Promise("sorted", "in", "needs", "a binary search"),
    ),
    types=(abi.SharedType("Route", 8, 4, (Field("expert", 0, 4), Field("weight", 4, 4))),),
)


def said(old: Contract, new: Contract) -> list[str]:
    """All lines but the verdict."""
    pair = [Component("a.o", c, abi.fnv1a(encode(c)), None) for c in (old, new)]
    return difference.as_text(diff.compare(*pair)).splitlines()[:-1]


def fact(name: str, /, **fields: Any) -> Contract:
    return change(WHOLE, "facts", name, **fields)


def new(kind: Any, values: Any = (), default: Any = None) -> Contract:
    return add(WHOLE, "facts", Fact("new", kind, values, default=default))


def claim(name: str, /, **fields: Any) -> Contract:
    return change(WHOLE, "claims", name, **fields)


def port(name: str, /, **fields: Any) -> Contract:
    return change(WHOLE, "ports", name, **fields)


def part(of: str, name: str, /, **fields: Any) -> Contract:
    parts = next(p for p in WHOLE.ports if p.name == of).parts
    return port(of, parts=tuple(replace(p, **fields) if p.name == name else p for p in parts))


def requires(*requirements: abi.Requirement) -> Contract:
    return replace(WHOLE, requires=requirements)


def entry(name: str, /, **fields: Any) -> Contract:
    return change(WHOLE, "entries", name, **fields)


def promise(*fields: Any) -> Contract:
    return add(WHOLE, "promises", Promise(*fields))


def plays(count: str, *body: abi.Operation) -> Contract:
    return entry("run", plays=(abi.Operation("repeat", "", count, "", body),))


# --- The table is whole -----------------------------------------------------------------------


def reachable(record: type[abi.Record]) -> set[type[abi.Record]]:
    """The record and all that its fields hold, at any depth."""
    found, todo = set(), [record]
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, abi.Record):
            if kind not in found:
                found.add(kind)
                todo += get_type_hints(kind).values()
        else:
            todo += get_args(kind)
    return found


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
    assert set(table) == set(get_args(get_type_hints(record)[field]))


def test_every_item_of_a_list_has_words():
    assert set(difference.ITEMS) == reachable(Contract) - {Contract}


# --- Each class: what it is, and the gist of what has to happen -------------------------------

CASES: dict[str, list[tuple[Contract, str, str]]] = {}
CASES["compatible"] = [
    (replace(WHOLE, version="2"), "version: 1.0 -> 2", "only reports show it"),
    (replace(WHOLE, toolchain=(13, 6)), "toolchain: 13, 5 -> 13, 6", "the minor version"),
    (fact("stages", values=(4, 2, 3, 6)), "fact stages: 4, 2, 3 -> 4, 2, 3, 6", "more to choose"),
    (fact("tile_n", values=(256, 128, 64)), "fact tile_n: 256, 128 -> 256, 128, 64", "more values"),
    (fact("tile_n", values=()), "fact tile_n: 256, 128 -> nothing", "more values"),
    (fact("hidden", default=8), "fact hidden.default: nothing -> 8", "nobody has to provide it"),
    (requires(LOOP), "requirement hidden > 0: a row -> nothing", "need not meet it"),
    (claim("stack", amount="8"), "claim stack.amount: 16 -> 8", "only the audit"),
    (promise("a", "out", "promises", ""), "promise out a: nothing -> promises", "may need it"),
    (drop(WHOLE, "promises", "sorted"), "promise in sorted: needs -> nothing", "free of it"),
    (
        add(WHOLE, "entries", Entry("more", "step", ("tile",))),
        "entry more: nothing -> step (tile)",
        "manifests may run it",
    ),
    (part("out", "w", edge="zero"), "port out.part w.edge: undefined -> zero", "leaves more"),
    (part("in", "t", edge=""), "port in.part t.edge: zero -> nothing", "needs less"),
    (port("y", covers=(CLIPPED,)), "port y.cover row.clipped: false -> true", "tensor's end"),
    (
        port("order", holds=(BELOW,)),
        "port order.condition distinct: distinct -> nothing",
        "need not keep to it",
    ),
]
CASES["needs relink"] = [
    (entry("run", arguments=("x",)), "entry run.arguments: tile, x -> x", "glue that calls it"),
    (replace(WHOLE, target="sm_90"), "target: sm_90a -> sm_90", "links into the same"),
    (fact("half", values=(2, 1)), "fact half: 1, 2 -> 2, 1", "the new default"),
    (fact("raster", values=(8,)), "fact raster: 16 -> 8", "importers follow"),
    (fact("steps", value="2"), "fact steps: hidden // tile_k -> 2", "importers follow"),
    (fact("depth", default=9), "fact depth.default: 8 -> 9", "where nobody provides it"),
    (new("provides", (1,)), "fact new: nothing -> provides 1", "the nearest provider"),
    (new("imports", default=1), "fact new: nothing -> imports", "bound at its default"),
    (new("extent"), "fact new: nothing -> extent", "from the shapes of tensors"),
    (claim("staging", amount="8"), "claim shared staging.amount: 1024 -> 8", "placed anew"),
    (claim("pinned", fixed=None), "claim barrier pinned.fixed: 3 -> nothing", "ids are given"),
    (claim("registers", amount="48"), "claim registers.amount: 40 -> 48", "the most"),
    (port("x", box=("32", "64")), "port x.box: tile_m, tile_k -> 32, 64", "copies"),
    (port("in", proxy="generic"), "port in.proxy: nothing -> generic", "a fence"),
    (part("out", "x", copies=()), "port out.part x.copy x: 1 of x -> nothing", "copies"),
]
CASES["needs consumers to agree"] = [
    (replace(WHOLE, toolchain=(14, 0)), "toolchain: 13, 5 -> 14, 0", "PL026"),
    (fact("tile_k", values=(32,)), "fact tile_k: 64 -> 32", "it sizes a channel's tiles"),
    (fact("half", values=(4, 1, 2)), "fact half: 1, 2 -> 4, 1, 2", "it sizes a channel's tiles"),
    (fact("tile_m", value="8"), "fact tile_m: half * 64 -> 8", "it sizes a channel's tiles"),
    (fact("mode", values=("slow",)), "fact mode: fast -> slow", "must know this text"),
    (fact("hidden", values=(8, 4)), "fact hidden: nothing -> 8, 4", "must give 8 or 4"),
    (fact("tile_n", values=(128,)), "fact tile_n: 256, 128 -> 128", "must give 128"),
    (fact("depth", default=None), "fact depth.default: 8 -> nothing", "must provide it"),
    (fact("hidden", type="bool"), "fact hidden.type: int -> bool", "must have it as bool"),
    (fact("line", values=(64,)), "fact line: 128 -> 64", "must state the same"),
    (new("imports"), "fact new: nothing -> imports", "must provide it"),
    (drop(WHOLE, "facts", "hidden"), "fact hidden: imports -> nothing", "must stop"),
    (requires(LOOP, ROW, MORE), "requirement m > 0: nothing -> a column", "must meet it"),
    (claim("warps", amount="8"), "claim warps.amount: 4 -> 8", "steps of its role"),
    (claim("pinned", fixed=4), "claim barrier pinned.fixed: 3 -> 4", "the same id"),
    (
        add(WHOLE, "claims", Claim("more", "barrier", "128", fixed=5)),
        "claim barrier more: nothing -> barrier 128",
        "the same id",
    ),
    (port("y", element="i32"), "port y.element: f32 -> i32", "passes the tensor"),
    (port("out", stages="4"), "port out.stages: stages -> 4", "the other end"),
    (
        add(WHOLE, "ports", Port("z", "global", "in", "i32", ("m",))),
        "port z: nothing -> global in i32",
        "must connect it",
    ),
    (part("out", "x", swizzle=64), "port out.part x.swizzle: 128 -> 64", "the other end"),
    (part("out", "x", edge="undefined"), "port out.part x.edge: nothing -> undefined", "consumer"),
    (port("out", parts=PARTS[::-1]), "port out.parts: x, w -> w, x", "the other end"),
    (port("out", parts=PARTS[:1]), "port out.part w: bf16 [64] -> nothing", "the other end"),
    (port("y", covers=()), "port y.cover row: row tile_m -> nothing", "the tile schedule"),
    (
        port("order", holds=(BELOW, Holds("distinct"), Holds("ascending", ("m",)))),
        "port order.condition ascending: nothing -> ascending m",
        "refuses other values",
    ),
    (
        port("order", holds=(Holds("below", ("m",)), Holds("distinct"))),
        "port order.condition below.sizes: m, tile_m -> m",
        "refuses other values",
    ),
    (entry("schedule", tiles=TILES[::-1]), "entry schedule.tilings: m, n -> n, m", "schedule"),
    (plays("8", *FILL), "entry run.operation repeat.count: 4 -> 8", "play along"),
    (
        plays("4", *FILL, *FILL[:1]),
        "entry run.operation repeat.operation acquire out 2: nothing -> acquire out",
        "play along",
    ),
    (drop(WHOLE, "promises", "finite"), "promise out finite: promises -> nothing", "may need it"),
    (promise("a", "in", "needs", ""), "promise in a: nothing -> needs", "must promise it"),
    (
        change(WHOLE, "types", "Route", fields=(Field("expert", 0, 4), Field("weight", 6, 4))),
        "type Route.field weight.offset: 4 -> 6",
        "one layout",
    ),
]
CASES["breaking"] = [
    (replace(WHOLE, component="other"), "component: whole -> other", "by the old name"),
    (replace(WHOLE, target="sm_100a"), "target: sm_90a -> sm_100a", "kernels for sm_90a can't"),
    (fact("stages", values=(4, 3)), "fact stages: 4, 2, 3 -> 4, 3", "manifests that set 2"),
    (fact("stages", kind="derives"), "fact stages.kind: chooses -> derives", "that set it"),
    (fact("raster", kind="imports"), "fact raster.kind: provides -> imports", "no provider"),
    (fact("m", kind="imports"), "fact m.kind: extent -> imports", "for what it was"),
    (fact("raster", type="bool"), "fact raster.type: int -> bool", "as int is refused"),
    (drop(WHOLE, "facts", "raster"), "fact raster: provides 16 -> nothing", "no provider"),
    (drop(WHOLE, "ports", "y"), "port y: global out f32 -> nothing", "that connect it"),
    (drop(WHOLE, "entries", "schedule"), "entry schedule: schedule (m) -> nothing", "run it"),
]


@pytest.mark.parametrize(
    ("level", "changed", "what", "gist"),
    [pytest.param(level, *case, id=case[1]) for level, cases in CASES.items() for case in cases],
)
def test_a_change_has_a_class_and_a_clause(level, changed, what, gist):
    title, line = said(WHOLE, changed)
    shown, why = line.split("; ", 1)
    assert (title, shown) == (level, f"  {what}")
    assert gist in why


OPEN = "kernels are refused: tiles pass the end of a size that a launch has (PL038)"


@pytest.mark.parametrize(
    ("size", "box", "level", "why"),
    [
        ("m", (), "breaking", OPEN),
        ("64", (), "needs consumers to agree", "tensors must be of whole tiles"),
        ("m", ("8",), "compatible", "bulk copies touch nothing past the end by themselves"),
    ],
)
def test_a_side_that_is_clipped_no_more(size, box, level, why):
    old = Port("z", "global", "in", "f32", (size,), box, covers=(CLIPPED,))
    new = replace(old, covers=(replace(CLIPPED, clipped=False),))
    line = f"  port z.cover row.clipped: true -> false; {why}"
    assert said(add(WHOLE, "ports", old), add(WHOLE, "ports", new)) == [level, line]


# --- What belongs together --------------------------------------------------------------------


def test_a_provided_fact_that_manifests_may_set_is_compatible():
    assert said(WHOLE, fact("raster", kind="chooses", values=(16, 8))) == [
        "compatible",
        "  fact raster.kind: provides -> chooses; manifests may set it now",
        "  fact raster: 16 -> 16, 8; manifests have more to choose from",
    ]


def test_a_new_name_of_the_same_is_asked_about():
    _, gone, _, come = said(WHOLE, fact("raster", name="rows"))
    assert gone == (
        "  fact raster: provides 16 -> nothing; who imports it has no provider (PL011) "
        "(renamed? see fact rows)"
    )
    assert come == (
        "  fact rows: nothing -> provides 16; who imports that name takes the nearest provider, "
        "two as near clash (PL012) (renamed? see fact raster)"
    )


def test_a_new_name_of_another_value_is_not_asked_about():
    assert "renamed?" not in "".join(said(WHOLE, fact("raster", name="rows", values=(8,))))


def test_the_same_claim_of_another_kind_is_another_claim():
    lines = said(WHOLE, claim("store", kind="mbarrier"))
    assert [line.split(";")[0] for line in lines] == [
        "needs relink",
        "  claim barrier store: barrier 128 -> nothing",
        "  claim mbarrier store: nothing -> mbarrier 128",
    ]


@pytest.mark.parametrize("section", ["facts", "requires", "claims", "ports", "promises"])
def test_another_order_of_items_is_a_fingerprint_alone(section):
    changed = replace(WHOLE, **{section: getattr(WHOLE, section)[::-1]})
    prints = [f"{abi.fnv1a(encode(c)):#018x}" for c in (WHOLE, changed)]
    assert said(WHOLE, changed) == [
        "compatible",
        f"  fingerprint: {' -> '.join(prints)}; the items are the same, a relink makes a new plan",
    ]


def test_another_order_after_a_default_is_a_fingerprint_alone():
    assert "  fingerprint: " in said(WHOLE, fact("stages", values=(4, 3, 2)))[1]


# --- The command line -------------------------------------------------------------------------

OLD = contract(
    "small",
    "team",
    facts=(Fact("depth", "chooses", (4, 2)),),
    ports=tuple(Port(name, "global", "in", "f32", ("8",)) for name in ("x", "y")),
    entries=(Entry("run", "step", ("x",)),),
)
SLOWER = change(OLD, "facts", "depth", values=(2, 4))
DEPTH = "kernels that do not set it get the new default, importers follow"


@pytest.fixture
def differ(call, tmp_path, monkeypatch):
    """Calls `pipelink diff` on an object and a contract."""
    monkeypatch.chdir(tmp_path)
    Path("old.o").write_bytes(object_(note(CONTRACT, encode(OLD))))

    def differ(changed: Contract, *options: str):
        Path("new.contract.json").write_bytes(encode(changed))
        return call("diff", "old.o", "new.contract.json", *options)

    return differ


def test_the_worst_stands_first(differ):
    lines = [
        "breaking",
        "  port y: global in f32 -> nothing; manifests that connect it are refused (PL016)",
        "needs relink",
        f"  fact depth: 4, 2 -> 2, 4; {DEPTH}",
        "compatible",
        "  version: 1.0 -> 1.1; only reports show it",
        "verdict: breaking (3 changes)",
    ]
    done = differ(replace(drop(SLOWER, "ports", "y"), version="1.1"))
    assert done == (13, "".join(f"{line}\n" for line in lines), "")


@pytest.mark.parametrize(
    ("changed", "code", "verdict"),
    [
        (OLD, 0, "no change of the contract (the code may differ)"),
        (replace(OLD, version="2"), 10, "compatible (1 change)"),
        (SLOWER, 11, "needs relink (1 change)"),
        (replace(OLD, toolchain=(12, 9)), 12, "needs consumers to agree (1 change)"),
        (drop(OLD, "ports", "y"), 13, "breaking (1 change)"),
    ],
)
def test_each_class_has_an_exit_code(differ, changed, code, verdict):
    done = differ(changed)
    assert (done.code, done.out.splitlines()[-1]) == (code, f"verdict: {verdict}")


def test_json_has_whole_values(differ):
    done = differ(SLOWER, "--format", "json")
    row = {"class": "needs relink", "path": "fact depth", "old": [4, 2], "new": [2, 4]}
    assert json.loads(done.out) == {"verdict": "needs relink", "changes": [row | {"why": DEPTH}]}


def test_json_of_no_change(differ):
    assert differ(OLD, "--format", "json").out == '{"verdict":"no change","changes":[]}\n'


def test_an_input_that_is_no_component_is_refused(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.o").write_bytes(b"text")
    done = call("diff", "a.o", "a.o")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error[PL001]: a.o is no component: it is not an ELF file\n")


def test_one_input_is_wrong_usage(call):
    assert call("diff", "a.o").code == 2


def test_help_has_the_exit_codes(call):
    shown = " ".join(call("diff", "--help").out.split())
    assert "0 no change, 10 compatible, 11 needs relink, 12 needs consumers to agree" in shown

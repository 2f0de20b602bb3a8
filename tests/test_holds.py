"""What a contract says of the values of an integer array: from the header to launch metadata."""

import json
import re
from pathlib import Path

import pytest
from contracts import EPILOGUE, LOADER, add, encode
from minimal_elf import CONTRACT, note, object_
from msgspec.structs import replace

from pipelink import contract, driver, launch, model
from pipelink.abi import Contract, Holds, Port
from pipelink.audit import Audited
from pipelink.diagnostics import InputError
from pipelink.written import read_written

BELOW, DISTINCT = Holds("below", ("m", "tile_m // 16")), Holds("distinct")
ASCENDING = Holds("ascending", ("m",))

# --- The header -------------------------------------------------------------------------------

PICKS = """\
#include <pipelink/component.cuh>

namespace picks {
namespace pl = pipelink;
using namespace pl::literals;

constexpr auto top_k = pl::provides<"top_k", 8>();
constexpr auto tokens = pl::extent<"tokens">();
constexpr auto routes = pl::extent<"routes">();
constexpr auto order = pl::array_in<"order", int>(pl::shape(routes))
    .below(pl::shape(tokens, top_k)).covers(pl::by_row(top_k).clipped()).distinct();
constexpr auto offsets = pl::array_in<"offsets", long long>(pl::shape(129_n))
    .ascending(pl::shape(routes));
constexpr auto kinds = pl::array_in<"kinds", unsigned char>(pl::shape(tokens))
    .covers(pl::whole(tokens)).below(pl::shape(top_k * 2_n));
constexpr auto out = pl::array_out<"out", float>(pl::shape(tokens));
constexpr auto run = pl::entry<"run">()(pl::tile, order, offsets, kinds, out);
constexpr auto schedule = pl::schedule<"schedule">()(routes)
    .tiles(pl::steps_over(routes, top_k), pl::steps_over(1_n, 1_n));

constexpr auto contract = pl::contract<"picks", "team", "1">(
    top_k, tokens, routes, order, offsets, kinds, out, run, schedule);
PIPELINK_COMPONENT(picks, contract)

PIPELINK_ENTRY(picks, run)
(pl::Self, const pl::Tile& tile, decltype(order)::Argument from, decltype(offsets)::Argument starts,
 decltype(kinds)::Argument kind, decltype(out)::Argument to) {
    to[tile.row] = static_cast<float>(from[tile.row] + starts[tile.row] + kind[tile.row]);
}

PIPELINK_ENTRY(picks, schedule)(pl::Self self, int index, pl::Tile& tile, int size) {
    tile = {static_cast<int>(blockIdx.x + index * gridDim.x), 0};
    return tile.row * top_k.at(self) < size;
}

}  // namespace picks
"""
MANIFEST = """\
kernel = "picks"
target = "sm_90a"
schedule = "p.schedule"
instances.p.object = "picks.o"
roles = [{ name = "all", steps = ["p.run"] }]
parameters = { order = "p.order", offsets = "p.offsets", kinds = "p.kinds", out = "p.out" }
"""
COMPILE = ("compile", "picks.cu", "-o", "picks.o", "--arch", "sm_90a")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_component_says_what_holds_and_its_launch_metadata_too(call):
    Path("picks.cu").write_text(PICKS)
    Path("picks.kernel.toml").write_text(MANIFEST)
    assert call(*COMPILE) == (0, "", "")
    text = contract.contract_text(Path("picks.o")).decode()
    assert re.findall(r'"holds":(\[.*?\}\])', text) == [
        '[{"what":"below","sizes":["tokens","top_k"]},{"what":"distinct"}]',
        '[{"what":"ascending","sizes":["routes"]}]',
        '[{"what":"below","sizes":["(top_k * 2)"]}]',
    ]
    shown = " ".join(call("inspect", "picks.o").out.split())
    assert (
        "a tile reaches top_k by row, clipped; values are below tokens x top_k, distinct" in shown
    )
    assert "i64 [129]; values are ascending to routes" in shown
    assert call("link", "picks.kernel.toml", "-o", "picks.cubin").code == 0
    arguments = json.loads(Path("picks.json").read_text())["arguments"]
    assert [a.get("holds") for a in arguments] == [
        [{"what": "below", "sizes": ["tokens", 8]}, {"what": "distinct"}],
        [{"what": "ascending", "sizes": ["routes"]}],
        [{"what": "below", "sizes": [16]}],
        None,
    ]


def test_a_contract_that_says_nothing_has_the_text_of_before(objects):
    for path in sorted(objects.rglob("*.o")):
        assert b'"holds"' not in contract.contract_text(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"offsets", long long>',
            '"offsets", float>',
            "below, distinct, ascending and count are for arrays of integers",
        ),
        (
            "pl::shape(tokens));\nconstexpr auto run",
            "pl::shape(tokens)).distinct();\nconstexpr auto run",
            "below, distinct, ascending and count are for arrays of integers",
        ),
        (
            '"out", float>(pl::shape(tokens))',
            '"out", int>(pl::shape(tokens)).distinct()',
            "below, distinct, ascending and count are for arrays that are read",
        ),
        (
            "pl::shape(tokens, top_k)",
            "pl::shape()",
            "below takes a shape of at least one size",
        ),
        (
            ".ascending(pl::shape(routes))",
            ".ascending(pl::shape())",
            "ascending takes a shape of at least one size",
        ),
    ],
)
def test_the_header_refuses_it_in_a_sentence(call, old, new, said):
    assert PICKS.count(old) == 1
    Path("picks.cu").write_text(PICKS.replace(old, new))
    done = call(*COMPILE)
    assert done.code == 1
    assert said in set(re.findall(r"^error\[PL009\]: (.*)$", done.err, re.MULTILINE))


# --- The contract -----------------------------------------------------------------------------


def order(*holds: Holds, **fields: object) -> Contract:
    port = Port("order", "global", "in", "i32", ("m",), holds=holds)
    return add(LOADER, "ports", replace(port, **fields))


def refusal(changed: Contract | bytes) -> str:
    text = changed if isinstance(changed, bytes) else encode(changed)
    Path("a.o").write_bytes(object_(note(CONTRACT, text)))
    with pytest.raises(InputError) as caught:
        contract.read_object(Path("a.o"))
    (found,) = caught.value.diagnostics
    assert found.code == "PL003"
    return found.message


def test_a_contract_keeps_what_holds():
    whole = order(BELOW, DISTINCT, ASCENDING)
    Path("a.o").write_bytes(object_(note(CONTRACT, encode(whole))))
    assert contract.read_object(Path("a.o")).contract == whole


BOX = {"box": ("64",), "element": "i32"}
SHARED = {"space": "shared", "stages": "2", "by": "copies", "parts": LOADER.ports[2].parts}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (order(Holds("below")), "'below' of port 'order' has no sizes"),
        (order(Holds("ascending")), "'ascending' of port 'order' has no sizes"),
        (
            order(Holds("distinct", ("m",))),
            "'distinct' of port 'order' has sizes, it takes none",
        ),
        (
            order(BELOW, DISTINCT, element="f32"),
            "port 'order' holds 'below', 'distinct', and has elements of type 'f32'",
        ),
        (order(DISTINCT, direction="out"), "port 'order' holds 'distinct', and is not read"),
        (
            order(DISTINCT, **BOX),
            "port 'order' holds 'distinct', and is no array in global memory",
        ),
        (
            order(DISTINCT, **SHARED),
            "port 'order' holds 'distinct', and is no array in global memory",
        ),
    ],
)
def test_what_can_not_hold_is_refused(changed, fault):
    assert refusal(changed) == f"a.o: {fault}"


def test_an_unknown_condition_is_refused():
    text = encode(order(DISTINCT)).replace(b'"distinct"', b'"sorted"')
    assert refusal(text) == (
        "a.o: the contract's note is damaged: Invalid enum value 'sorted' - at "
        "`$.ports[3].holds[0].what`"
    )


WRITTEN = """\
component = "router"
owner = "moe"
[[facts]]
name = "m"
kind = "extent"
[[ports]]
name = "order"
space = "global"
direction = "in"
element = "i32"
shape = ["m"]
holds = [{ what = "below", sizes = ["m", 8] }, { what = "distinct" }]
"""


def test_a_written_contract_says_what_holds():
    (port,) = read_written(Path("router.contract.toml"), WRITTEN)[0].ports
    assert port.holds == (Holds("below", ("m", "8")), DISTINCT)


def test_a_written_contract_with_faults_in_it():
    text = WRITTEN.replace('"distinct"', '"distinkt", size = 1')
    with pytest.raises(InputError) as caught:
        read_written(Path("router.contract.toml"), text)
    assert [(d.message, d.help) for d in caught.value.diagnostics] == [
        (
            "router.contract.toml: condition of port 'order' has an unknown field 'size'",
            "did you mean 'sizes'?",
        ),
        (
            (
                "router.contract.toml: 'what' of condition of port 'order' is 'distinkt', "
                "one of 'below', 'distinct', 'ascending', 'count' is wanted"
            ),
            "did you mean 'distinct'?",
        ),
    ]


# --- The plan ---------------------------------------------------------------------------------


def ordered(toy, *holds: Holds, parameter: str = '"load.order"') -> None:
    toy.contracts["loader"] = order(*holds)
    toy.edit('w = "load.w"', f'w = "load.w"\norder = {parameter}')


def test_the_plan_has_sizes_resolved(toy):
    ordered(toy, BELOW, DISTINCT)
    plan = toy.plan()
    held = {a.name: a.holds for a in plan.arguments}
    wanted = (model.Holds("below", ("m", 8)), model.Holds("distinct"))
    assert held == {"x": (), "w": (), "order": wanted, "out": ()}
    product = driver.Product(plan, b"", Audited(168, 1, 0, 0, 0))
    linked = launch.read_metadata(driver.metadata(product).decode(), "toy.json")
    assert linked.arguments[2].holds == (
        launch.Holds("below", ("m", 8)),
        launch.Holds("distinct", ()),
    )


def test_launch_metadata_without_any_has_no_such_field(toy):
    product = driver.Product(toy.plan(), b"", Audited(168, 1, 0, 0, 0))
    arguments = json.loads(driver.metadata(product))["arguments"]
    assert {tuple(a) for a in arguments} == {("name", "element", "shape", "access", "alignment")}


def test_what_ports_of_one_parameter_say_is_joined(toy):
    ordered(toy, BELOW, DISTINCT, parameter='["load.order", "act.order"]')
    own = (Holds("below", ("m", "8")), ASCENDING)
    toy.contracts["epilogue"] = add(
        EPILOGUE, "ports", Port("order", "global", "in", "i32", ("m",), holds=own)
    )
    assert toy.plan().arguments[2].holds == (
        model.Holds("below", ("m", 8)),
        model.Holds("distinct"),
        model.Holds("ascending", ("m",)),
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            ("m * 2",),
            (
                "PL015: a size of 'below' of port 'order' of loader of data (instance 'load'): "
                "'m * 2' reads 'm', which has no value"
            ),
        ),
        (
            ("m", "tile_m - 128"),
            (
                "PL020: a size of 'below' of port 'order' of loader of data (instance 'load'): "
                "tile_m - 128 is 0, at least 1 can be"
            ),
        ),
    ],
)
def test_sizes_that_are_none(toy, sizes, message):
    ordered(toy, Holds("below", sizes))
    assert toy.messages() == [message]

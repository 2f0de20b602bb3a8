"""What the component header refuses at compile time, and what README.md shows."""

import json
import re
from pathlib import Path

import pytest

from pipelink.cli import main

ROOT = Path(__file__).parents[1]
REVERSE = (Path(__file__).parent / "kernels" / "reverse.cu").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refusal(capsys, source):
    """What nvcc says of a component that must not compile; nothing is left of the object."""
    Path("c.cu").write_text(source)
    assert main(["compile", "c.cu", "-o", "c.o", "--arch", "sm_90a"]) == 1
    assert not Path("c.o").exists()
    return capsys.readouterr().err


def test_an_entry_of_another_signature_than_its_contract(capsys):
    said = refusal(capsys, REVERSE.replace("float* target, int size)", "double* target, int size)"))
    assert said.startswith(
        "error[PL009]: entry 'run' of reverse is defined with other arguments than its contract lists\n"
        "  --> c.cu:"
    )


def test_a_component_macro_with_another_name_than_the_contract(capsys):
    said = refusal(
        capsys, REVERSE.replace("PIPELINK_COMPONENT(reverse,", "PIPELINK_COMPONENT(other,")
    )
    assert "PIPELINK_COMPONENT and the contract name the component differently" in said


def test_a_contract_that_is_too_long(capsys):
    reason = "long " * 4000
    item = f'constexpr auto why = pl::requires_that(1_n == 1_n, "{reason}");\n'
    source = REVERSE.replace("constexpr auto contract", item + "constexpr auto contract")
    said = refusal(capsys, source.replace("tile_size, n, staging", "tile_size, n, why, staging"))
    assert "contract_is_longer_than_contract_capacity" in said


def test_a_source_without_contract(capsys):
    assert refusal(capsys, "#include <pipelink/component.cuh>\n") == (
        "error[PL002]: c.cu has no contract\n"
        "  --> c.cu\n"
        "  = help: state one with PIPELINK_COMPONENT and compile it with `pipelink compile`\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_a_port_that_the_contract_does_not_list(capsys):
    said = refusal(capsys, REVERSE.replace("one_each, x, y,", "one_each, y,"))
    line = REVERSE[: REVERSE.index("constexpr auto run =")].count("\n") + 1
    assert said == (
        "error[PL003]: c.cu: entry 'run' has argument 'x', no port and no extent\n"
        f"  --> c.cu:{line}\n"
        "   |\n"
        f'{line} | constexpr auto run = pl::entry<"run">()(pl::tile, x, y, n);\n'
        "  = help: list 'x' in pl::contract\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_the_header_without_pipelink_compile():
    header = (ROOT / "pipelink/include/pipelink/component.cuh").read_text()
    assert "#ifndef PIPELINK_TARGET\n#error" in header


def test_line_information_leaves_the_code_the_same(capsys):
    from pipelink import sass, toolchain

    Path("c.cu").write_text(REVERSE)
    text = (Path(__file__).parent / "kernels" / "reverse.kernel.toml").read_text()
    Path("k.kernel.toml").write_text(text.replace("reverse.o", "c.o"))
    for name, flags in (("plain", []), ("lines", ["--lineinfo"])):
        assert main(["compile", "c.cu", "-o", "c.o", "--arch", "sm_90a", *flags]) == 0
        assert main(["link", "k.kernel.toml", "-o", f"{name}.cubin", *flags]) == 0
    listings = [toolchain.disassemble(Path(f"{name}.cubin")) for name in ("plain", "lines")]
    assert sass.compare(*listings).differences == ()
    assert b".debug_line" in Path("lines.cubin").read_bytes()
    assert b".debug_line" not in Path("plain.cubin").read_bytes()


def test_the_component_of_the_readme_links_and_is_its_control(capsys):
    readme = (ROOT / "README.md").read_text()
    for fence, path in (("cuda", "scale.cu"), ("toml", "scale.kernel.toml")):
        found = re.search(rf"```{fence}\n(.*?)```", readme, re.DOTALL)
        assert found is not None
        Path(path).write_text(found[1])
    assert main(["compile", "scale.cu", "-o", "scale.o", "--arch", "sm_90a"]) == 0
    assert main(["verify", "scale.kernel.toml"]) == 0
    assert capsys.readouterr().out.startswith("scale_kernel: 0 of ")


def test_a_header_is_in_the_depfile():
    Path("include").mkdir()
    Path("include/size.cuh").write_text("#pragma once\ninline constexpr int size = 128;\n")
    Path("c.cu").write_text(
        '#include "size.cuh"\n' + REVERSE.replace('"tile_size", 128', '"tile_size", size')
    )
    arguments = [
        "compile",
        "c.cu",
        "-o",
        "c.o",
        "--arch",
        "sm_90a",
        "-I",
        "include",
        "--depfile",
        "c.d",
    ]
    assert main(arguments) == 0
    target, _, words = Path("c.d").read_text().partition(": ")
    assert target == "c.o"
    assert "include/size.cuh" in words
    assert "pipelink-build.h" not in words


# --- What nvcc would say in many lines, or in a warning only -----------------------------------

NUMBERS = """\
pl::claims_shared<"a">(short(1))
pl::claims_barrier<"a">(1)
pl::claims_barriers<"a">(1u)
pl::claims_barriers<"a">(1_n, 1l)
pl::claims_mbarriers<"a">(1ul, pl::each_warp)
pl::claims_mbarriers<"a">(1_n, 1ll)
pl::claims_warps(1ull)
pl::claims_registers('a')
pl::claims_stack(1.0)
pl::shape(n, 1.0f)
pl::box(true)
pl::by_row(u'a')
pl::by_column(U'a')
pl::whole(L'a')
pl::ring_out<"a">()((unsigned char)1, pl::by_copies, part)
pl::ring_out<"a">()((signed char)1, pl::each_warp, part)
pl::ring_in<"a">()((unsigned short)1, pl::each_warp, pl::async_proxy, part)
part.filled_by(x, 1.0l)
pl::repeat(u8'a', pl::fill(ring))
side + 1
1 - side
side * 1u
side / 2.0
1l % side
side == 1
true && side
"""
ITEMS = """\
#include <pipelink/component.cuh>
namespace numbers {
namespace pl = pipelink;
using namespace pl::literals;
constexpr auto n = pl::extent<"n">();
constexpr auto side = pl::provides<"side", 128>();
constexpr auto part = pl::part<"part", float>(pl::shape(side), pl::no_swizzle);
constexpr auto ring = pl::ring_out<"ring">()(4_n, pl::by_copies, part);
constexpr auto x = pl::tensor_map_in<"x", float>(pl::shape(n), pl::box(side), pl::no_swizzle);
"""
SENTENCE = "write numbers of expressions with _n: 2_n is the number 2"


def errors(said):
    """Each error's first line and its place."""
    return re.findall(r"^error\[(.*)\n  --> (.*)$", said, re.MULTILINE)


def test_a_number_without_its_n_is_refused_in_a_sentence(call):
    lines = [f"constexpr auto item_{i} = {text};\n" for i, text in enumerate(NUMBERS.splitlines())]
    Path("c.cu").write_text(f"{ITEMS}{''.join(lines)}}}\n")
    done = call("compile", "c.cu", "-o", "c.o", "--arch", "sm_90a", "--format", "json")
    found = json.loads(done.out)["diagnostics"]
    first = ITEMS.count("\n") + 1
    places = [(p["file"], p["line"]) for row in found for p in row["places"]]
    assert {row["message"] for row in found} == {SENTENCE}
    assert sorted(places) == [("c.cu", line) for line in range(first, first + len(lines))]


def test_a_number_without_its_n_says_nothing_else(capsys):
    said = refusal(capsys, REVERSE.replace("steps_over(n, tile_size)", "steps_over(n, tile_size * 4)"))
    line = REVERSE[: REVERSE.index("steps_over(n, tile_size)")].count("\n") + 1
    assert said == (
        f"error[PL009]: {SENTENCE}\n"
        f"  --> c.cu:{line}\n"
        "   |\n"
        f'{line} | pl::schedule<"schedule">()(n).tiles(pl::steps_over(n, tile_size * 4), '
        "pl::steps_over(1_n, 1_n));\n"
        "\n"
        "pipelink: 1 error\n"
    )


RING = (
    ITEMS
    + """\
constexpr auto stored = pl::ring_out<"stored">()(4_n, pl::each_warp, part);
constexpr auto run = pl::entry<"run">()(pl::tile, ring, stored, n, x);
constexpr auto contract = pl::contract<"numbers", "team", "1">(n, side, x, ring, stored, run);
PIPELINK_COMPONENT(numbers, contract)
PIPELINK_ENTRY(numbers, run)
(pl::Self self, const pl::Tile&, pl::RingState& a, pl::RingState& b, int, const pl::TensorMap*) {
    ring.commit(self, a);
    stored.expect(self, b);
    stored.expect(self, b, 16);
}
}
"""
)


def test_a_call_for_the_other_kind_of_ring_names_the_right_one(capsys):
    copies = "PL009]: copies fill this ring: announce its bytes with expect, or commit_async"
    stores = "PL009]: stores fill this ring: hand a stage over with commit"
    line = RING[: RING.index("ring.commit")].count("\n") + 1
    assert errors(refusal(capsys, RING)) == [
        (copies, f"c.cu:{line}"),
        (stores, f"c.cu:{line + 1}"),
        (stores, f"c.cu:{line + 2}"),
    ]


def test_what_nvcc_tried_is_left_out_and_the_rest_is_cut(capsys):
    kinds = ("short", "long", "char", "unsigned", "float", "long long", "unsigned long", "bool")
    overloads = "".join(f"__device__ void f({kind});\n" for kind in kinds)
    source = REVERSE.replace("PIPELINK_COMPONENT(", f"{overloads}PIPELINK_COMPONENT(")
    source = source.replace("const unsigned thread =", "f(1);\n    const unsigned thread =")
    said = refusal(capsys, source.replace("(1_n, 1_n)", '(1_n, "one")'))
    first = REVERSE[: REVERSE.index("PIPELINK_COMPONENT(")].count("\n") + 1
    tried = [
        f'function "reverse::f({kind})" (declared at line {first + n})'
        for n, kind in enumerate(("short", "long", "char", "unsigned int", "float", "long long"))
    ]
    block = next(text for text in said.split("\n\n") if "reverse::f" in text)
    assert [line.strip() for line in block.splitlines()[4:]] == [
        f"= note:             {tried[0]}",
        *tried[1:],
        "and 3 more lines",
    ]
    assert "note #" not in said


@pytest.mark.parametrize("item", ["pl::claims_stack(4_n)", "\n    pipelink::claims_stack(4_n)"])
def test_an_item_that_the_contract_does_not_list(capsys, item):
    stack = f"constexpr auto stack = {item};\n"
    said = refusal(capsys, REVERSE.replace("constexpr auto n =", f"{stack}constexpr auto n ="))
    line = REVERSE[: REVERSE.index("constexpr auto n =")].count("\n") + 1
    assert said == (
        "error[PL051]: item 'stack' is not listed in the contract\n"
        f"  --> c.cu:{line}\n"
        "   |\n"
        f" {line} | {stack.splitlines()[0].rstrip()}\n"
        "  = help: list it in pl::contract, or remove it\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_what_need_not_be_listed_is_a_warning_at_most(capsys):
    used = "constexpr auto threads = tile_size * 1_n;\n"
    unused = (
        "constexpr auto words = tile_size / 2_n;\nconstexpr auto sides = pl::shape(tile_size);\n"
    )
    Path("shared.cuh").write_text('constexpr auto line = pipelink::agrees<"line", 128>();\n')
    source = REVERSE.replace("constexpr auto staging =", used + unused + "constexpr auto staging =")
    source = source.replace("<\"written\">(tile_size)", "<\"written\">(threads)")
    source = source.replace("namespace reverse {", '#include "shared.cuh"\nnamespace reverse {')
    Path("c.cu").write_text(source)
    assert main(["compile", "c.cu", "-o", "c.o", "--arch", "sm_90a"]) == 0
    warned = re.findall(r'variable "(.*)" was declared', capsys.readouterr().err)
    assert warned == ["reverse::words", "reverse::sides"]


def test_diagnostics_of_a_compile_have_forms_too(call):
    argv = ("compile", "c.cu", "-o", "c.o", "--arch", "sm_90a", "--format")
    Path("c.cu").write_text(REVERSE)
    assert call(*argv, "json") == (0, '{"diagnostics":[]}\n', "")
    Path("c.cu").write_text(REVERSE.replace(" x, y, run, schedule)", " y, run, schedule)"))
    line = REVERSE[: REVERSE.index("constexpr auto run =")].count("\n") + 1
    assert call(*argv, "github") == (
        1,
        (
            f"::error file=c.cu,line={line},title=PL003::c.cu: entry 'run' has argument 'x', no port "
            "and no extent%0Ahelp: list 'x' in pl::contract\n"
        ),
        "",
    )


def test_a_compile_that_fails_leaves_no_older_object(call):
    Path("c.o").write_bytes(b"older")
    Path("c.cu").write_text("no code\n")
    assert call("compile", "c.cu", "-o", "c.o", "--arch", "sm_90a").code == 1
    assert not Path("c.o").exists()
    assert call("compile", "c.cu", "-o", "c.cu", "--arch", "sm_90a").code == 1
    assert Path("c.cu").read_text() == "no code\n"

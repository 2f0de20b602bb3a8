"""What the component header refuses at compile time, and what README.md shows."""

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
    said = refusal(capsys, REVERSE.replace("PIPELINK_COMPONENT(reverse,", "PIPELINK_COMPONENT(other,"))
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
    said = refusal(capsys, REVERSE.replace("pl::claims_warps(4_n), x, y,", "pl::claims_warps(4_n), y,"))
    assert said == (
        "error[PL003]: c.cu: entry 'run' has argument 'x', no port and no extent\n  --> c.cu\n"
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
    Path("c.cu").write_text('#include "size.cuh"\n' + REVERSE.replace('"tile_size", 128', '"tile_size", size'))
    arguments = ["compile", "c.cu", "-o", "c.o", "--arch", "sm_90a", "-I", "include", "--depfile", "c.d"]
    assert main(arguments) == 0
    target, _, words = Path("c.d").read_text().partition(": ")
    assert target == "c.o"
    assert "include/size.cuh" in words
    assert "pipelink-build.h" not in words

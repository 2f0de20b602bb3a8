"""`verify`: the linked kernel and its control are the same machine code, and a difference is seen."""

import shutil
from pathlib import Path

import pytest

from pipelink import sass, toolchain
from pipelink.cli import main

ROOT = Path(__file__).parents[1]
FFN = ROOT / "components" / "ffn"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The sources of the ffn kernel, copied and compiled: a tree of its own to change."""
    folder = tmp_path_factory.mktemp("ffn")
    for source in [*FFN.glob("*.cu"), *FFN.glob("*.cuh"), *FFN.glob("*.toml")]:
        text = source.read_text().replace("components/ffn/", "")
        (folder / source.name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("loader", "mainloop", "epilogue"):
        if not Path(f"{name}.o").exists():
            compile_(name)


def compile_(name):
    assert main(["compile", f"{name}.cu", "-o", f"{name}.o", "--arch", "sm_90a"]) == 0


def variant(load="", mma=""):
    """The ffn kernel with facts of its owners changed."""
    Path("v.kernel.toml").write_text(
        'extends = "ffn.kernel.toml"\nkernel = "v"\n'
        f"[instances.load]\nfacts = {{ {load} }}\n[instances.mma]\nfacts = {{ {mma} }}\n"
    )


def verdict(capsys, manifest):
    capsys.readouterr()
    code = main(["verify", manifest])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    "facts",
    [
        {"mma": "tile_n = 256, rows = 64"},
        {"mma": "tile_n = 128"},
        {"mma": "tile_n = 64"},
        {"mma": "rows = 64"},
        {"mma": "warpgroups = 1"},
        {"load": "stages = 2"},
        {"load": "stages = 3"},
        {"load": "x_pieces = 16"},
    ],
)
def test_one_owner_changed_is_its_control(capsys, facts):
    variant(**facts)
    code, said = verdict(capsys, "v.kernel.toml")
    assert (code, said.split()[:3]) == (0, ["v:", "0", "of"])
    assert int(said.split()[3]) > 500


@pytest.mark.parametrize("name", ["ffn", "ffn_m64", "ffn_m192", "ffn_m512"])
def test_each_variant_of_the_bench_is_its_control(capsys, name):
    code, said = verdict(capsys, f"{name}.kernel.toml")
    assert (code, said.split()[:3]) == (0, [f"{name}:", "0", "of"])


@pytest.mark.parametrize("name", ["ffn", "ffn_m64", "ffn_m192", "ffn_m512"])
def test_source_lines_change_no_instruction(capsys, folder, tmp_path, name):
    """Built with -lineinfo, a kernel is its control, and the kernel without."""
    if not Path("lines/loader.o").exists():
        for part in ("loader", "mainloop", "epilogue"):
            there = ["-o", f"lines/{part}.o", "--arch", "sm_90a", "--lineinfo"]
            assert main(["compile", f"{part}.cu", *there]) == 0
    call = ["verify", f"{name}.kernel.toml", "--objects", "lines", "--lineinfo"]
    capsys.readouterr()
    assert main(call) == 0
    assert capsys.readouterr().out.split()[:3] == [f"{name}:", "0", "of"]
    listings = []
    for objects, more in (("lines", ["--lineinfo"]), (".", [])):
        cubin = tmp_path / objects.strip(".") / "k.cubin"
        link = ["link", f"{name}.kernel.toml", "--objects", objects, "-o", str(cubin), *more]
        assert main(link) == 0
        listings.append((cubin.read_bytes(), toolchain.disassemble(cubin)))
    assert b".debug_line" in listings[0][0]
    assert b".debug_line" not in listings[1][0]
    assert not sass.compare(listings[0][1], listings[1][1]).differences


def test_two_instances_of_each_component_are_their_control(capsys):
    code, said = verdict(capsys, "ffn_dual.kernel.toml")
    assert (code, said.split()[:3]) == (0, ["ffn_dual:", "0", "of"])


def test_a_repacked_owner_reaches_every_consumer(capsys, folder):
    """One constant changed in the loader's source, the loader alone recompiled."""
    loader = folder / "loader.cu"
    before = loader.read_text()
    others = {name: (folder / name).read_bytes() for name in ("mainloop.o", "epilogue.o")}
    loader.write_text(before.replace('"stages", 4,', '"stages", 3, 4,').replace(" 2, 3, 5", " 2, 5"))
    try:
        compile_("loader")
        code, said = verdict(capsys, "ffn.kernel.toml")
        assert (code, said.split()[:3]) == (0, ["ffn:", "0", "of"])
        assert main(["map", "ffn.kernel.toml"]) == 0
        assert "3 stages of 53248 bytes" in capsys.readouterr().out
        assert others == {name: (folder / name).read_bytes() for name in others}
    finally:
        loader.write_text(before)
        compile_("loader")


def test_a_control_of_other_source_differs(capsys, folder):
    """The source is changed after the object was made: the control is no longer the linked code."""
    epilogue = folder / "epilogue.cu"
    before = epilogue.read_text()
    epilogue.write_text(before.replace("1.0f + __expf(-z)", "2.0f + __expf(-z)"))
    try:
        code, said = verdict(capsys, "ffn.kernel.toml")
    finally:
        epilogue.write_text(before)
    assert code == 1
    assert int(said.split()[1]) > 0
    assert "  ffn+0x" in said


def test_an_owner_without_source_is_not_compared(capsys, folder):
    shutil.move(folder / "epilogue.cu", folder / "away.cu")
    capsys.readouterr()
    try:
        assert main(["verify", "ffn.kernel.toml"]) == 1
    finally:
        shutil.move(folder / "away.cu", folder / "epilogue.cu")
    assert capsys.readouterr().err == (
        "error[PL050]: not compared: swiglu of activation has no source at epilogue.cu\n"
        "  --> epilogue.o\n"
        "  = help: run verify where the sources are, with --root\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_sources_that_clash_are_refused_by_name(capsys, folder):
    manifest = Path("ffn.kernel.toml").read_text().replace('"ffn"', '"swiglu"', 1)
    Path("clash.kernel.toml").write_text(manifest)
    capsys.readouterr()
    assert main(["verify", "clash.kernel.toml"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error[PL050]: not compared: the sources of 'swiglu' do not compile as one unit\n")
    assert '"swiglu" has already been declared' in said

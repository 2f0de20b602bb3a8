"""The whole language of contracts, from C++ to the linked kernel: tests/kernels/{writer,reader}.cu."""

import re
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT

from pipelink import contract, driver, toolchain
from pipelink.abi import Contract, Fact
from pipelink.cli import main

KERNEL = ROOT / "tests/kernels/hand_over.kernel.toml"
KERNELS = Path("tests/kernels")
# A store, then a fence, then an arrival, with no other store between.
FENCED = re.compile(
    r"STS (?:(?!STS |SYNCS\.ARRIVE).)*FENCE\.VIEW\.ASYNC(?:(?!STS ).)*SYNCS\.ARRIVE", re.DOTALL
)


def compiled(folder, name, *flags, to=""):
    made = folder / KERNELS / f"{to or name}.o"
    source = str(KERNELS / f"{name}.cu")
    assert main(["compile", source, "-o", str(made), "--arch", "sm_90a", *flags]) == 0
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Both objects, and the reader in three other builds."""
    folder = tmp_path_factory.mktemp("language")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in ("writer", "reader"):
            compiled(folder, name)
        for other in ("READS_ASYNC", "MOST_ROUTES=16", "WIDE_WEIGHTS"):
            compiled(folder, "reader", "-D", other, to=other)
    return folder


@pytest.fixture
def objects(built, tmp_path, monkeypatch):
    """A folder with the objects, in which a test may take another reader."""
    monkeypatch.chdir(ROOT)
    folder = tmp_path / KERNELS
    folder.mkdir(parents=True)
    for path in (built / KERNELS).glob("*.o"):
        (folder / path.name).write_bytes(path.read_bytes())
    return tmp_path


def take_reader(objects, name):
    folder = objects / KERNELS
    (folder / "reader.o").write_bytes((folder / f"{name}.o").read_bytes())


def found(objects, name) -> Contract:
    return contract.read_object(objects / KERNELS / f"{name}.o").contract


def test_facts_of_every_type_are_in_the_note(objects):
    facts = {f.name: f for f in found(objects, "writer").facts}
    assert facts["scale"] == Fact("scale", "chooses", ("half", "whole"), type="text")
    assert facts["negative"] == Fact("negative", "chooses", (False, True), type="bool")
    assert facts["kind"] == Fact("kind", "provides", ("f32",), type="element")
    assert facts["order"] == Fact("order", "provides", ("(4,32):(32,1)",), type="layout")
    assert facts["most_routes"] == Fact("most_routes", "agrees", (8,))


def test_imports_say_their_type_set_and_default(objects):
    facts = {f.name: f for f in found(objects, "reader").facts}
    assert facts["scale"] == Fact("scale", "imports", type="text")
    assert facts["negative"] == Fact("negative", "imports", type="bool")
    assert facts["kind"] == Fact("kind", "imports", ("bf16", "f32"), type="element")
    assert facts["offset"] == Fact("offset", "imports", default=0)
    assert facts["factor"].value == (
        "((2 if (scale == 'half') else 1) * "
        "((0 - 1) if (negative and (not (tile_size == 0))) else 1))"
    )


def test_the_places_of_every_section_are_lines_of_the_source(objects):
    component = contract.read_object(objects / KERNELS / "reader.o")
    lines = (ROOT / KERNELS / "reader.cu").read_text().splitlines()
    for section in ("facts", "claims", "ports", "entries", "promises", "types"):
        items = getattr(component.contract, section)
        places = getattr(component.places, section)
        for item, place in zip(items, places, strict=True):
            at = int(place.rpartition(":")[2])
            assert f"auto {item.name.lower()} =" in lines[at - 1], (section, item.name)


def test_the_linked_kernel_is_its_control(objects, call):
    said = call("verify", KERNEL, "--objects", objects)
    assert said.out.startswith("hand_over: 0 of ")
    assert said.code == 0


def plan(objects):
    return driver.plan(driver.read(KERNEL, driver.Sources(objects)))


def test_every_claim_is_placed(objects):
    made = plan(objects)
    reader = next(i for i in made.instances if i.name == "read")
    assert {b.name: (b.count, b.threads) for b in made.barriers} == {
        "meet": (1, 128),
        "turns": (2, 128),
    }
    assert {m.name: m.arrivals for m in made.mbarriers} == {
        "write.out.full": 4,
        "write.out.empty": 128,
        "read.done": 4,
    }
    assert next(r.bytes for r in made.regions if r.name == "read.own") == 4 * 128
    assert reader.bindings["negative"] == 1
    assert reader.bindings["offset"] == 0


def test_facts_say_how_they_came(objects):
    facts = {(f.instance, f.name): f for f in plan(objects).facts}
    assert facts["read", "scale"].path == ("write", "read")
    assert facts["write", "scale"].consumers == ("read",)
    assert facts["read", "factor"].value == -2


def code(objects, tmp_path):
    kernel = driver.read(KERNEL, driver.Sources(objects))
    product, _ = driver.build(kernel, driver.Sources(objects), tmp_path / "hand_over.cubin")
    (tmp_path / "hand_over.cubin").write_bytes(product.cubin)
    return toolchain.disassemble(tmp_path / "hand_over.cubin")


def test_the_writer_fences_its_stores_for_a_reader_through_the_async_proxy(objects, tmp_path):
    """The writer's object stays as it is."""
    assert not FENCED.search(code(objects, tmp_path))
    take_reader(objects, "READS_ASYNC")
    assert FENCED.search(code(objects, tmp_path))


def test_owners_of_two_builds_of_a_header_are_told_the_constant(objects, call):
    take_reader(objects, "MOST_ROUTES=16")
    said = call("check", KERNEL, "--objects", objects)
    assert said.code == 1
    assert said.err.startswith(
        "error[PL017]: 'most_routes' is 8 in writer of test-team (instance 'write'), "
        "16 in reader of other-team (instance 'read')\n"
    )


def test_owners_of_two_builds_of_a_header_are_told_the_field(objects, call):
    take_reader(objects, "WIDE_WEIGHTS")
    said = call("check", KERNEL, "--objects", objects)
    assert said.code == 1
    assert said.err.startswith(
        "error[PL018]: type 'Route' is not the same in writer of test-team (instance 'write') and "
        "reader of other-team (instance 'read'): field 'weight' has 4 bytes at 4 in the first, "
        "8 bytes at 8 in the second\n"
    )


# Objects of format 1, as they were compiled before there was another.


@pytest.fixture
def format1(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "components/ffn"
    folder.mkdir(parents=True)
    for path in (ROOT / "tests/format1").glob("*.o"):
        (folder / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_objects_of_format_1_are_read(format1, call):
    said = call("inspect", format1 / "components/ffn/loader.o", "--format", "json")
    assert said.code == 0
    assert msgspec.json.decode(said.out)["component"] == "tma_loader"
    assert contract.read_object(format1 / "components/ffn/loader.o").version == 1


def test_objects_of_format_1_are_linked(format1, call):
    manifest = ROOT / "components/ffn/ffn.kernel.toml"
    said = call("link", manifest, "--objects", format1, "-o", format1 / "ffn.cubin")
    assert (said.code, said.err) == (0, "")


def test_an_object_of_format_1_fits_beside_one_of_today(format1, objects, call):
    """Its ring is not played, as it does not say how."""
    folder = format1 / "components/ffn"
    source = "components/ffn/epilogue.cu"
    assert main(["compile", source, "-o", str(folder / "epilogue.o"), "--arch", "sm_90a"]) == 0
    manifest = ROOT / "components/ffn/ffn.kernel.toml"
    assert call("link", manifest, "--objects", format1, "-o", format1 / "ffn.cubin").code == 0

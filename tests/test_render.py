"""Plan to glue. PIPELINK_REGENERATE=1 writes the golden file anew."""

import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pipelink import driver
from pipelink.abi import fnv1a
from pipelink.render import render

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
FFN = Path("components/ffn/ffn.kernel.toml")


@pytest.fixture
def plan(objects, monkeypatch):
    monkeypatch.chdir(ROOT)
    return driver.plan(driver.read(FFN, driver.Sources(objects)))


def test_the_glue_of_the_ffn_kernel(plan):
    golden = GOLDEN / "ffn.glue.cu"
    if os.environ.get("PIPELINK_REGENERATE"):
        golden.write_text(render(plan))
    assert render(plan) == golden.read_text()


def test_a_plan_survives_its_file(plan):
    assert msgspec.json.decode(driver.encode_plan(plan), type=type(plan)) == plan


def test_neither_plan_nor_glue_knows_lines_or_folders(plan):
    text = driver.encode_plan(plan).decode() + render(plan)
    assert ".cu:" not in text
    assert str(ROOT) not in text


def test_each_binding_of_each_instance_is_a_case(toy):
    plan = toy.plan()
    glue = render(plan)
    for instance in plan.instances:
        block = glue.split(f"case {instance.number}:  // {instance.name}:")[1].split("break;")[0]
        for name, value in instance.bindings.items():
            slot = f"{fnv1a(name.encode()):#018x}ull"
            assert f"case {slot}: return {value};  // {name}\n" in block


def test_every_component_is_held_against_its_fingerprint(toy):
    plan = toy.plan()
    for instance in plan.instances:
        name = instance.component
        assert (
            f"if (pipelink_fingerprint__{name}() != {instance.fingerprint}ull) "
            f"pipelink_contract_differs__{name}();"
        ) in render(plan)


def test_registers_go_down_for_the_producer_and_up_for_the_consumers(toy):
    glue = render(toy.plan())
    assert 'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");' in glue
    assert 'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");' in glue


def test_no_registers_move_without_claims(toy):
    plan = toy.plan()
    (phase,) = plan.phases
    roles = tuple(replace(role, registers=None, moves=()) for role in phase.roles)
    assert "setmaxnreg" not in render(replace(plan, phases=(replace(phase, roles=roles),)))


def test_each_mbarrier_is_initialised_once(toy):
    plan = toy.plan()
    glue = render(plan)
    for barrier in plan.mbarriers:
        for n in range(barrier.count):
            assert (
                glue.count(f"pipelink_mbarrier_init({barrier.offset + 8 * n}, {barrier.arrivals});")
                == 1
            )

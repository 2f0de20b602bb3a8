"""Programs: phases, roles that share warps, rings from phase to phase, tensor memory, blocks of an SM.
PIPELINK_REGENERATE=1 writes the golden glue anew."""

import os
import shutil
from pathlib import Path

import pytest
from contracts import ALL, add, change, contract, play, repeat
from msgspec.structs import replace

from pipelink import driver, verify
from pipelink.abi import Claim, Entry, Port
from pipelink.cli import main
from pipelink.render import render

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels"
GOLDEN = ROOT / "tests" / "golden"


def build(folder, manifest, arch, *sources):
    """The kernel of a manifest of tests/kernels, from a copy of its sources in `folder`."""
    for source in sources:
        copied = folder / source
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(KERNELS / source, copied)
        object_ = copied.with_suffix(".o")
        made = main(["compile", source, "-o", str(object_.relative_to(folder)), "--arch", arch])
        assert made == 0
    text = (KERNELS / manifest).read_text().replace("tests/kernels/", "")
    (folder / manifest).write_text(text)
    kernel = driver.read(Path(manifest), driver.Sources(Path()))
    product, _ = driver.build(kernel, driver.Sources(Path()), folder / "made.cubin")
    return kernel, product


@pytest.fixture(scope="module")
def phases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phases")
    names = ("loader", "scaler", "store", "sums")
    before = Path.cwd()
    os.chdir(folder)
    try:
        made = build(folder, "phases.kernel.toml", "sm_90a", *(f"phases/{n}.cu" for n in names))
        return *made, verify.verify(*made, folder / "x.cubin", folder)
    finally:
        os.chdir(before)


def test_a_program_is_the_machine_code_of_its_control(phases):
    _, _, compared = phases
    assert compared.differences == ()


def test_the_glue_of_a_program(phases):
    _, product, _ = phases
    golden = GOLDEN / "phases.glue.cu"
    if os.environ.get("PIPELINK_REGENERATE"):
        golden.write_text(product.glue)
    assert product.glue == golden.read_text()


def test_bytes_of_phases_that_follow_one_another_are_shared(phases):
    plan = phases[1].plan
    rows = {r.name: (r.offset, r.offset + r.bytes, r.phases) for r in plan.regions}
    assert rows == {
        "load.out.tile": (0, 16384, ("prepare", "rows")),
        "sum.parts": (0, 16384, ("finish",)),
        "store.in.tile": (16384, 24576, ("rows",)),
        "scale.scratch": (16384, 49152, ("prepare",)),
        "scale.table": (49152, 49408, ("prepare", "rows")),
    }
    assert plan.shared_bytes == plan.shared_bound == 49440


def test_whole_warpgroups_come_first_and_a_later_role_is_on_all_warps(phases):
    rows = [(r.name, r.first_warp, r.warps, r.reason) for r in phases[1].plan.roles]
    assert rows == [
        ("loader", 4, 1, "on warps of 'everyone', which runs in another phase"),
        ("math", 0, 4, "on warps of 'everyone', which runs in another phase"),
        ("everyone", 0, 5, "on warps of 'loader', 'math', which runs in another phase"),
    ]


def test_the_stage_of_a_ring_is_kept_from_phase_to_phase(phases):
    plan, glue = phases[1].plan, phases[1].glue
    assert plan.states == ("load__out",)
    before, _, after = glue.partition("pipelink::RingState load__out;")
    assert "prefetch(pipelink::Self{0}, &load__x, load__out, m)" in after
    assert "role loader" not in before


def test_what_was_not_played_is_remarked(phases):
    assert phases[1].plan.remarks == (
        "the phases that 'load.out' spans were not played together: a deadlock would pass",
    )


def test_columns_of_tensor_memory_are_constants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel, product = build(tmp_path, "columns.kernel.toml", "sm_100a", "columns.cu")
    assert [(c.name, c.first, c.count) for c in product.plan.columns] == [
        ("first", 0, 96),
        ("second", 96, 32),
    ]
    assert product.plan.allocated_columns == 128
    assert "pipelink::allocate_columns(pipelink_address(0), 128);" in product.glue
    assert verify.verify(kernel, product, tmp_path / "x.cubin", Path()).differences == ()


# --- Plans without code


PHASES = """
[[phases]]
name = "first"
schedule = "mma.schedule"
roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }

[[phases]]
name = "second"
roles = { math = ["act.flush"] }
"""


def in_phases(toy, text=PHASES):
    before, _, rest = toy.text.partition("[[roles]]")
    _, _, after = rest.partition("[[channels]]")
    before = before.replace('schedule = "mma.schedule"\n', "")
    toy.text = f"{before}{text}[[channels]]{after}"
    toy.contracts["epilogue"] = add(ALL["epilogue"], "entries", Entry("flush", "step", ()))


def test_registers_stay_as_the_phase_before_left_them(toy):
    in_phases(toy)
    plan = toy.plan()
    rows = [(p.name, r.role, r.registers, r.reason) for p in plan.phases for r in p.roles]
    assert rows == [
        ("first", "producer", 40, "setmaxnreg 40: the most of load 40"),
        ("first", "math", 232, "setmaxnreg 232: the most of mma 232, act 168"),
        ("second", "math", None, "no setmaxnreg: it has 232 from the phase before"),
    ]
    assert render(plan).count("setmaxnreg") == 2


SHARED_WARPS = """
[[phases]]
name = "first"
schedule = "mma.schedule"
roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }

[[phases]]
name = "second"
roles = { everyone = ["all.run"] }
"""


def everyone(toy, registers):
    """A role of a second phase on all warps of the first one's."""
    in_phases(toy, SHARED_WARPS)
    toy.edit("[instances.act]", '[instances.all]\nobject = "everyone.o"\n\n[instances.act]')
    claims = (Claim("warps", "warps", "12"), Claim("registers", "registers", str(registers)))
    entries = (Entry("run", "step", ()),)
    toy.contracts["everyone"] = contract("everyone", "team", claims=claims, entries=entries)


def test_warps_that_had_other_registers_go_up_or_down_each(toy):
    everyone(toy, 168)
    glue = render(toy.plan())
    assert [line.strip() for line in glue.splitlines() if "setmaxnreg" in line] == [
        'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");',
        'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");',
        'if (threadIdx.x < 128) asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");',
        'if (threadIdx.x >= 128 && threadIdx.x < 384) asm volatile("setmaxnreg.dec.sync.aligned.u32 168;");',
    ]


def test_warps_that_have_theirs_do_nothing(toy):
    everyone(toy, 40)
    glue = render(toy.plan())
    assert [line.strip() for line in glue.splitlines() if "setmaxnreg" in line][2:] == [
        'if (threadIdx.x >= 128 && threadIdx.x < 384) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");',
    ]


def test_a_claim_without_entries_is_kept_for_its_instances_phases(toy):
    in_phases(toy)
    assert {r.name: r.phases for r in toy.plan().regions} == {
        "load.out.x": ("first",),
        "load.out.w": ("first",),
        "act.staging": ("first", "second"),
    }


def test_a_claim_that_names_its_entries_is_not(toy):
    in_phases(toy)
    toy.contracts["epilogue"] = change(
        toy.contracts["epilogue"], "claims", "staging", during=("flush",)
    )
    plan = toy.plan()
    (staging,) = (r for r in plan.regions if r.name == "act.staging")
    assert (staging.offset, staging.phases) == (0, ("second",))
    assert plan.phases[1].fence


def test_two_blocks_of_an_sm_halve_registers_and_bytes(toy):
    toy.edit('target = "sm_90a"', 'target = "sm_90a"\nblocks_per_sm = 2')
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 2 }')
    toy.contracts["loader"] = change(ALL["loader"], "claims", "registers", amount="24")
    for name, amount in (("mainloop", "104"), ("epilogue", "96")):
        toy.contracts[name] = change(ALL[name], "claims", "registers", amount=amount)
    toy.contracts["epilogue"] = change(toy.contracts["epilogue"], "claims", "staging", amount="9000")
    plan = toy.plan()
    assert (plan.blocks_per_sm, plan.launch_registers, plan.shared_limit) == (2, 80, 115_712)
    assert "__launch_bounds__(384, 2)" in render(plan)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'roles = { math = ["act.flush"] }',
            'roles = { other = ["act.flush"] }',
            "PL023: epilogue of activation (instance 'act') runs in role 'math' and in role 'other'",
        ),
        (
            'roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }',
            'roles = { producer = ["load.run"], math = ["mma.run"] }',
            (
                "PL016: a channel names 'act.acc' of epilogue of activation (instance 'act'), which no step of "
                "the kernel takes"
            ),
        ),
    ],
)
def test_phases_that_do_not_go(toy, old, new, message):
    in_phases(toy, PHASES.replace(old, new))
    assert message in toy.messages()


# --- Facts that are left to the link


def free(toy, text):
    toy.edit("[parameters]", f"[free]\n{text}\n\n[parameters]")


def test_the_most_that_fits_is_chosen(toy):
    free(toy, 'facts = ["load.stages"]')
    plan = toy.plan()
    assert [(c.fact, c.value, c.reason) for c in plan.choices] == [
        (
            "load.stages",
            4,
            "the most of load.stages: the best of 4 that is possible; 1 better ones are not (PL030 1)",
        )
    ]
    assert next(f.value for f in plan.facts if f.name == "stages") == 4


def test_objectives_go_one_before_the_other(toy):
    free(toy, 'facts = ["load.stages", "mma.tile_n"]\nmost = ["mma.tile_n", "0 - load.stages"]')
    toy.contracts["mainloop"] = change(
        ALL["mainloop"], "facts", "tile_n", kind="chooses", values=(128, 256)
    )
    assert [(c.fact, c.value) for c in toy.plan().choices] == [
        ("load.stages", 2),
        ("mma.tile_n", 256),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'facts = ["load.tile_k"]',
            "PL054: [free] names 'load.tile_k', and loader of data offers no choice of it",
        ),
        ('most = ["load.stages"]', "PL054: [free] has an objective and no facts"),
        (
            'facts = ["load.stages"]\nmost = ["load.zzz"]',
            "PL054: 'most' of [free]: 'load.zzz' reads 'load.zzz', which has no value",
        ),
        ('facts = ["zzz.stages"]', "PL005: [free] names instance 'zzz', which does not exist"),
        ('fact = ["load.stages"]', "PL006: unknown key 'fact' in [free]"),
    ],
)
def test_what_can_not_be_left_to_the_link(toy, text, message):
    free(toy, text)
    assert message in toy.messages()


def test_a_free_fact_is_not_fixed_beside(toy):
    free(toy, 'facts = ["load.stages"]')
    toy.edit('object = "loader.o"', 'object = "loader.o"\nfacts = { stages = 3 }')
    assert toy.messages() == [
        "PL054: 'load.stages' is free, and fixed to 3 in [instances.load]"
    ]


def test_a_barrier_of_a_later_phase_has_the_id_of_an_earlier_one(toy):
    in_phases(toy)
    barriers = [Claim(f"b{n:02}", "barrier", "256", during=("flush",)) for n in range(15)]
    toy.contracts["epilogue"] = add(toy.contracts["epilogue"], "claims", *barriers)
    (store,) = (c for c in toy.contracts["epilogue"].claims if c.name == "store")
    claims = tuple(
        replace(c, during=("run",)) if c is store else c
        for c in toy.contracts["epilogue"].claims
    )
    toy.contracts["epilogue"] = replace(toy.contracts["epilogue"], claims=claims)
    ids = {b.name: b.id for b in toy.plan().barriers}
    assert sorted(ids[f"b{n:02}"] for n in range(15)) == list(range(1, 16))
    assert ids["store"] == 1


# --- What passes from phase to phase, and what can't


AHEAD = """
[[phases]]
name = "first"
roles = { producer = ["load.ahead"] }

[[phases]]
name = "second"
schedule = "mma.schedule"
roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }
"""


def ahead(toy, *plays, arguments=("out",)):
    """The loader fills stages in a phase before that of the tiles."""
    toy.text = ""
    toy.__init__()
    in_phases(toy, AHEAD)
    toy.contracts["loader"] = add(
        ALL["loader"], "entries", Entry("ahead", "step", arguments, plays)
    )


def test_a_step_that_takes_a_ring_plays_it(toy):
    ahead(toy)
    assert toy.messages() == [
        (
            "PL039: step 'ahead' takes ring 'load.out' of loader of data (instance 'load') and plays "
            "nothing of it"
        )
    ]


def test_a_tile_of_a_later_phase_fills_what_it_reads(toy):
    ahead(toy, play("acquire", "out"), play("commit", "out"))
    run = next(e for e in toy.contracts["loader"].entries if e.name == "run")
    entries = tuple(
        replace(e, plays=(repeat("k_steps - 1", *run.plays[0].body),)) if e is run else e
        for e in toy.contracts["loader"].entries
    )
    toy.contracts["loader"] = replace(toy.contracts["loader"], entries=entries)
    assert toy.messages() == [
        "PL039: in phase 'second' at most 63 stages of 'load.out' are filled a tile, and 'mma.in' releases 64"
    ]


def test_a_ring_is_there_from_the_first_phase_that_takes_it(toy):
    ahead(toy, play("acquire", "out"), play("commit", "out"))
    rows = {r.name: r.phases for r in toy.plan().regions}
    assert rows["load.out.x"] == ("first", "second")
    ahead(toy, arguments=())
    rows = {r.name: r.phases for r in toy.plan().regions}
    assert rows["load.out.x"] == ("second",)


def test_a_tensor_is_not_handed_from_phase_to_phase(toy):
    in_phases(toy)
    port = Port("again", "global", "in", "bf16", ("m", "hidden"))
    toy.contracts["epilogue"] = add(toy.contracts["epilogue"], "ports", port)
    entries = tuple(
        replace(e, arguments=("again",)) if e.name == "flush" else e
        for e in toy.contracts["epilogue"].entries
    )
    toy.contracts["epilogue"] = replace(toy.contracts["epilogue"], entries=entries)
    toy.edit('out = "act.out"', 'out = ["act.out", "act.again"]')
    act = "epilogue of activation (instance 'act')"
    assert (
        f"PL028: parameter 'out' is written by 'act.out' of {act} and read by 'act.again' of {act} in "
        "another phase"
    ) in toy.messages()


def test_a_phase_without_a_schedule_has_no_rows_of_tiles(toy):
    toy.edit('schedule = "mma.schedule"\n', "")
    before, _, rest = toy.text.partition("[[roles]]")
    roles = 'roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }'
    phase = f'[[phases]]\nname = "only"\n{roles}\n\n[[channels]]'
    toy.text = before + phase + rest.partition("[[channels]]")[2]
    assert (
        "PL038: side 0 of 'act.out' of epilogue of activation (instance 'act'): it goes by the rows of "
        "tiles, and phase 'only' has no schedule"
    ) in toy.messages()


def test_bulk_copies_are_refused_where_there_are_none(toy):
    toy.edit('target = "sm_90a"', 'target = "sm_80"')
    for name in ("loader", "mainloop", "epilogue"):
        toy.contracts[name] = replace(ALL[name], target="sm_80")
    assert [m for m in toy.messages() if m.startswith("PL027")] == [
        f"PL027: port 'load.{name}' of loader of data (instance 'load') is {how} by bulk copies, which sm_80 "
        "does not have"
        for name, how in (("x", "read"), ("w", "read"), ("out", "filled"))
    ] + [
        (
            "PL027: port 'mma.in' of mainloop of matrix (instance 'mma') goes through the async proxy, "
            "which sm_80 does not have"
        )
    ]


def test_stages_that_do_nothing_are_told(toy):
    toy.edit('to = "mma.in"', 'to = "mma.in"\nstages = 3')
    assert toy.messages() == [
        (
            "PL053: the channel from 'load.out' to 'mma.in' says 3 stages, and 'load.out' is a ring, whose "
            "owners say its stages"
        )
    ]


def test_a_layout_that_reaches_an_element_twice_is_refused(toy):
    changed = change(ALL["epilogue"], "ports", "acc", layout="(256,tile_n/2):(1,0)")
    toy.contracts["epilogue"] = changed
    assert toy.messages() == [
        (
            "PL021: the layout (256,128):(1,0) of 'act.acc' of epilogue of activation (instance 'act') "
            "does not reach 32768 elements, one with each of its registers"
        )
    ]


@pytest.mark.parametrize("name", ["main", "float", "pipelink_bind"])
def test_a_kernel_has_a_name_of_its_own(toy, name):
    toy.edit('kernel = "toy"', f'kernel = "{name}"')
    assert toy.messages() == [f"PL005: '{name}' can't be the name of a function of the glue"]


def test_an_output_that_can_not_be_written_is_named(toy, call):
    toy.objects()
    Path("taken").write_text("")
    done = call("plan", "toy.kernel.toml", "-o", "taken/toy.plan.json")
    assert done.code == 1
    assert done.err.startswith("error[PL001]: taken")

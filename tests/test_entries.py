"""An object whose entries serve several roles: what is in use, what its claims come to, warpgroups that
roles share, copies that threads start, rows in groups, outputs that are added to."""

import re
from dataclasses import replace as struct_replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Toy
from contracts import ALL, add, change, contract, drop, encode, play
from msgspec.structs import replace

from pipelink import abi, diff
from pipelink.abi import Claim, Contract, Cover, Entry, Fact, Part, Port, Tiling
from pipelink.check import Rule, coverage, parameters, rings, roles
from pipelink.cli import main
from pipelink.contract import read_object
from pipelink.diagnostics import InputError
from pipelink.form import faults
from pipelink.manifest import read_manifest
from pipelink.model import Component, Plan, RegisterMove
from pipelink.render import render
from pipelink.report import difference

LOADER, MAINLOOP, EPILOGUE = ALL["loader"], ALL["mainloop"], ALL["epilogue"]
ACT = "epilogue of activation (instance 'act')"
LOAD = "loader of data (instance 'load')"
MMA = "mainloop of matrix (instance 'mma')"


def said(toy: Toy, rule: Rule) -> list[str]:
    return [f"{d.code}: {d.message}" for d in rule(toy.view())]


def bindings(plan: Plan, instance: str) -> dict[str, int]:
    return next(i.bindings for i in plan.instances if i.name == instance)


def setmaxnreg(plan: Plan) -> list[str]:
    """The lines of the glue that set registers, and those at which roles part."""
    lines = render(plan).splitlines()
    return [line.strip() for line in lines if "setmaxnreg" in line or "  // role " in line]


# --- One object in two roles ------------------------------------------------------------------

_OWN = ("tile_m", "tile_n", "tile_k", "stages", "k_steps", "column_tiles", "m")
_FACTS = {f.name: f for c in (MAINLOOP, LOADER) for f in c.facts if f.kind != "imports"}
# The loader and the main loop of the toy as one component: a step for each role.
BOTH = contract(
    "mainloop",
    "matrix",
    facts=(*(_FACTS[name] for name in _OWN), Fact("hidden", "imports")),
    claims=(
        Claim("warps_load", "warps", "4", during=("load",)),
        Claim("warps_run", "warps", "8", during=("run",)),
        Claim("registers_load", "registers", "40", during=("load",)),
        Claim("registers_run", "registers", "232", during=("run",)),
    ),
    ports=(*LOADER.ports, *MAINLOOP.ports),
    entries=(replace(LOADER.entries[0], name="load"), *MAINLOOP.entries),
)


@pytest.fixture
def both(toy: Toy) -> Toy:
    toy.edit('object = "loader.o"', 'like = "mma"')
    toy.edit("load.run", "load.load")
    toy.contracts = {"mainloop": BOTH, "epilogue": EPILOGUE}
    return toy


def test_a_like_instance_has_the_object_and_the_facts_of_the_other(both):
    old = 'object = "mainloop.o"'
    both.edit(old, f'{old}\nfacts = {{ stages = 3 }}\nimports = {{ k_steps = "load" }}')
    load, mma, _ = both.kernel().manifest.instances
    assert (load.object, load.facts, load.imports) == ("mainloop.o", {"stages": 3}, {})
    assert (mma.object, mma.facts, mma.imports) == (
        "mainloop.o",
        {"stages": 3},
        {"k_steps": "load"},
    )


def test_facts_of_both_reach_the_plan(both):
    old = 'object = "mainloop.o"'
    both.edit(old, f"{old}\nfacts = {{ stages = 3 }}")
    plan = both.plan()
    assert {bindings(plan, name)["stages"] for name in ("load", "mma")} == {3}


def test_a_like_instance_has_imports_of_its_own(both):
    both.edit('like = "mma"', 'like = "mma"\nimports = { hidden = "kernel" }')
    load, mma, _ = both.kernel().manifest.instances
    assert (load.imports, mma.imports) == ({"hidden": "kernel"}, {})


def test_each_role_has_what_its_step_claims(both):
    plan = both.plan()
    assert [(r.name, r.warps) for r in plan.roles] == [("producer", 4), ("math", 8)]
    assert [(r.role, r.registers, r.reason) for r in plan.phases[0].roles] == [
        ("producer", 40, "setmaxnreg 40: the most of load 40"),
        ("math", 232, "setmaxnreg 232: the most of mma 232, act 168"),
    ]


def test_two_roles_of_one_object_come_to_the_plan_of_two_objects(both):
    plan, apart = both.plan(), Toy().plan()
    for field in ("regions", "mbarriers", "barriers", "parameters", "arguments", "channels"):
        assert getattr(plan, field) == getattr(apart, field), field


def like_faults(text: str) -> list[tuple[str, str]]:
    path = Path("k.kernel.toml")
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    return [(d.message, d.help) for d in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("body", "message", "help_"),
    [
        (
            'like = "mma"\nobject = "a.o"',
            "[instances.load] has 'object', and is like 'mma'",
            "say it in [instances.mma], or leave out 'like'",
        ),
        (
            'like = "mma"\nfacts = { stages = 2 }',
            "[instances.load] has 'facts', and is like 'mma'",
            "say it in [instances.mma], or leave out 'like'",
        ),
        (
            'like = "nma"',
            "[instances.load] is like 'nma', which is no instance with an object",
            "did you mean 'mma'?",
        ),
        (
            'like = "load"',
            "[instances.load] is like 'load', which is no instance with an object",
            "instances: mma, act",
        ),
        (
            'like = "second"\n\n[instances.second]\nlike = "mma"',
            "[instances.load] is like 'second', which is no instance with an object",
            "instances: mma, act",
        ),
        (
            'like = "mma"\nimports = { a = 1 }',
            "'a' in imports of [instances.load] is no name of an instance",
            "",
        ),
    ],
)
def test_faults_of_like(toy, body, message, help_):
    toy.edit('object = "loader.o"', body)
    assert like_faults(toy.text) == [(message, help_)]


def test_like_is_a_text(toy):
    toy.edit('object = "loader.o"', "like = 3")
    assert like_faults(toy.text)[0] == ("'like' of [instances.load] is no text", "")


def test_a_variant_changes_the_facts_of_both(both):
    both.kernel()
    changed = "[instances.mma]\nfacts = { stages = 2 }\n"
    Path("v.kernel.toml").write_text(f'extends = "toy.kernel.toml"\nkernel = "v"\n{changed}')
    load, mma, _ = read_manifest(Path("v.kernel.toml")).instances
    assert (load.object, load.facts, mma.facts) == ("mainloop.o", {"stages": 2}, {"stages": 2})


def test_a_variant_gives_a_like_instance_no_facts(both):
    both.kernel()
    changed = "[instances.load]\nfacts = { stages = 2 }\n"
    Path("v.kernel.toml").write_text(f'extends = "toy.kernel.toml"\nkernel = "v"\n{changed}')
    with pytest.raises(InputError) as caught:
        read_manifest(Path("v.kernel.toml"))
    (fault,) = caught.value.diagnostics
    assert fault.message == "[instances.load] has 'facts', and is like 'mma'"
    assert fault.primary.file == "v.kernel.toml"


# --- Steps that no role runs ------------------------------------------------------------------

_MORE = Port(
    "more",
    "shared",
    "in",
    stages="2",
    by="each_warp",
    proxy="generic",
    parts=(Part("p", "bf16", ("64",)),),
)
_FLUSH = ("flush",)


def _idle() -> Contract:
    """The epilogue with a second step, which has ports, claims and an extent of its own."""
    whole = add(EPILOGUE, "facts", Fact("rows", "extent"))
    layout = EPILOGUE.ports[0].layout
    left = Port("left", "register", "out", "f32", ("tile_m", "tile_n"), layout=layout)
    whole = add(whole, "ports", _MORE, Port("table", "global", "in", "i32", ("rows",)), left)
    for kind in ("warps", "registers"):
        whole = change(whole, "claims", kind, during=("run",))
    claims = (
        Claim("flush_warps", "warps", "12", during=_FLUSH),
        Claim("flush_registers", "registers", "248", during=_FLUSH),
        Claim("flush_stack", "stack", "64", during=_FLUSH),
        Claim("flush_bytes", "shared", "300000", during=_FLUSH),
        Claim("flush_sync", "barrier", "9999", during=_FLUSH),
        Claim("unknown", "shared", "depth * 4", during=_FLUSH),
    )
    entry = Entry("flush", "step", ("tile", "more", "table", "left", "rows"))
    return add(add(whole, "claims", *claims), "entries", entry)


@pytest.fixture
def idle(toy: Toy) -> Toy:
    toy.contracts["epilogue"] = _idle()
    return toy


def test_what_only_such_a_step_needs_is_in_no_plan(idle):
    plan, without = idle.plan(), Toy().plan()
    changed = [f for f in plan.__struct_fields__ if getattr(plan, f) != getattr(without, f)]
    assert changed in ([], ["instances"])
    assert bindings(plan, "act") == bindings(without, "act")
    assert idle.view().launch_extents() == ["m"]
    assert [p.name for p in plan.parameters] == ["load__x", "load__w", "act__out", "m"]


def test_an_extent_that_a_step_in_use_takes_is_a_parameter(idle):
    run = replace(EPILOGUE.entries[0], arguments=("tile", "acc", "out", "rows"))
    entries = (run, idle.contracts["epilogue"].entries[1])
    idle.contracts["epilogue"] = replace(idle.contracts["epilogue"], entries=entries)
    assert idle.view().launch_extents() == ["m", "rows"]


@pytest.mark.parametrize(
    ("old", "new", "what", "port"),
    [
        ('out = "act.out"', 'out = "act.out"\ntable = "act.table"', "parameter 'table'", "table"),
        ('to = "act.acc"', 'to = ["act.acc", "act.more"]', "a channel", "more"),
        ('from = "mma.acc"', 'from = "act.left"', "a channel", "left"),
    ],
)
def test_a_port_of_such_a_step_is_not_connected(idle, old, new, what, port):
    idle.edit(old, new)
    fault, *_ = idle.faults()
    assert (fault.code, fault.message) == (
        "PL016",
        f"{what} names 'act.{port}' of {ACT}, which no step of the kernel takes",
    )
    assert fault.help == "run act.flush in a role, or leave the port out"


def test_several_steps_that_would_take_it_are_named(idle):
    idle.contracts["epilogue"] = add(
        idle.contracts["epilogue"], "entries", Entry("again", "step", ("table",))
    )
    idle.edit('out = "act.out"', 'out = "act.out"\ntable = "act.table"')
    (fault,) = idle.faults()
    assert fault.help == "run act.flush or act.again in a role, or leave the port out"


def test_bounds_of_an_extent_that_only_such_a_step_takes(idle):
    idle.edit("[parameters]", "[extents]\nrows = { most = 5 }\n\n[parameters]")
    assert "rows" not in [p.name for p in idle.plan().parameters]


def test_ports_of_the_other_role_are_no_ports_of_an_instance(both):
    both.edit('from = "load.out"', 'from = "mma.out"')
    both.edit('x = "load.x"', 'x = "mma.x"')
    assert both.messages() == [
        f"PL016: a channel names 'mma.out' of {MMA}, which no step of the kernel takes",
        "PL022: port 'load.out' of mainloop of matrix (instance 'load') has no channel",
        f"PL016: parameter 'x' names 'mma.x' of {MMA}, which no step of the kernel takes",
        "PL022: port 'load.x' of mainloop of matrix (instance 'load') has no parameter",
    ]


def test_a_step_that_runs_has_its_ports_connected(both):
    both.edit('steps = ["load.load"]', 'steps = ["load.load", "load.run"]')
    load = "mainloop of matrix (instance 'load')"
    messages = both.messages()
    for port in ("in", "acc"):
        assert f"PL022: port 'load.{port}' of {load} has no channel" in messages


def test_a_port_that_no_entry_takes_is_in_use(toy):
    toy.contracts["epilogue"] = add(EPILOGUE, "ports", _MORE)
    assert f"PL022: port 'act.more' of {ACT} has no channel" in toy.messages()


def test_an_instance_in_no_role_keeps_its_message(toy):
    toy.edit('["mma.run", "act.run"]', '["mma.run"]')
    messages = toy.messages()
    assert messages[0] == f"PL016: {ACT} stands in no role"
    assert not [m for m in messages if "no step of the kernel takes" in m]


# --- Role claims during entries ---------------------------------------------------------------

KINDS = ("warps", "registers", "stack")


def twice(kind: str, *durings: tuple[str, ...]) -> Contract:
    """The epilogue with two claims of a kind, and a second step."""
    whole = drop(EPILOGUE, "claims", kind) if kind != "stack" else EPILOGUE
    whole = add(whole, "entries", Entry("flush", "step", ("tile",)))
    claims = [Claim(f"claim_{n}", kind, str(8 * n), during=d) for n, d in enumerate(durings, 1)]
    return add(whole, "claims", *claims)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("durings", "allowed"),
    [
        ((("run",), ("flush",)), True),
        ((("run",), ("run", "flush")), False),
        ((("run",), ("run",)), False),
        ((("run",), ()), False),
        (((), ("flush",)), False),
        (((), ()), False),
    ],
)
def test_claims_of_a_role_do_not_overlap(kind, durings, allowed):
    found = [(f.message, f.section, f.index) for f in faults(twice(kind, *durings))]
    last = len(twice(kind, *durings).claims) - 1
    assert found == ([] if allowed else [(f"it claims {kind} twice", "claims", last)])


@pytest.mark.parametrize(
    ("steps", "amount"), [('"act.run"', 8), ('"act.flush"', 16), ('"act.run", "act.flush"', 16)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_in_use_counts(toy, steps, amount, kind):
    toy.contracts["epilogue"] = twice(kind, ("run",), ("flush",))
    toy.edit('"act.run"', steps)
    view = toy.view()
    found = view.claim(view.kernel.instance("act"), kind)
    assert found is not None
    assert found[1] == amount
    if kind == "warps":
        assert view.warps("math") == max(8, amount)


# --- Warpgroups that roles share --------------------------------------------------------------

HELPER = contract(
    "helper",
    "team",
    claims=(Claim("warps", "warps", "1"), Claim("registers", "registers", "24")),
    entries=(Entry("run", "step", ("tile",)),),
)


def loader(warps: int, registers: int) -> Contract:
    changed = change(LOADER, "claims", "warps", amount=str(warps))
    return change(changed, "claims", "registers", amount=str(registers))


def math(toy: Toy, registers: int) -> None:
    """What the third role claims."""
    for name in ("mainloop", "epilogue"):
        toy.contracts[name] = change(
            toy.contracts[name], "claims", "registers", amount=str(registers)
        )


@pytest.fixture
def shared(toy: Toy) -> Toy:
    """A role of 3 warps and one of 1 warp in a warpgroup, beside a role of 8 warps."""
    old = 'object = "loader.o"'
    toy.edit(old, f'{old}\n\n[instances.help]\nobject = "helper.o"')
    role = '[[roles]]\nname = "math"'
    toy.edit(role, f'[[roles]]\nname = "helper"\nsteps = ["help.run"]\n\n{role}')
    toy.contracts |= {"loader": loader(3, 40), "helper": HELPER}
    return toy


def test_a_shared_warpgroup_moves_before_the_roles_part(shared):
    plan = shared.plan()
    (phase,) = plan.phases
    assert phase.moves == (RegisterMove(0, 4, 168, 40),)
    assert [r.moves for r in phase.roles] == [(), (), (RegisterMove(4, 8, 168, 232),)]
    assert setmaxnreg(plan) == [
        'if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");',
        "if (threadIdx.x < 96) {  // role producer: threads 0 to 95",
        "else if (threadIdx.x < 128) {  // role helper: threads 96 to 127",
        "else {  // role math: threads 128 to 383",
        'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");',
    ]


@pytest.mark.parametrize(("mine", "helpers"), [(40, 24), (24, 40), (40, 40)])
def test_roles_that_share_a_warpgroup_have_the_most(shared, mine, helpers):
    shared.contracts["loader"] = loader(3, mine)
    shared.contracts["helper"] = change(HELPER, "claims", "registers", amount=str(helpers))
    (phase,) = shared.plan().phases
    why = f"setmaxnreg 40: the most of load {mine}, help {helpers}"
    assert [(r.role, r.registers, r.reason) for r in phase.roles] == [
        ("producer", 40, why),
        ("helper", 40, why),
        ("math", 232, "setmaxnreg 232: the most of mma 232, act 168"),
    ]


@pytest.mark.parametrize(
    ("mine", "helpers", "who"), [(168, 24, "producer"), (24, 168, "helper"), (168, 168, "producer")]
)
def test_the_pool_counts_a_shared_warpgroup_once(shared, mine, helpers, who):
    shared.contracts["loader"] = loader(3, mine)
    shared.contracts["helper"] = change(HELPER, "claims", "registers", amount=str(helpers))
    (fault,) = shared.faults()
    assert (fault.code, fault.message) == (
        "PL031",
        f"the roles claim 80896 registers, the pool has 64512: 128 x 168 ({who}) + 256 x 232 (math)",
    )
    assert fault.help == (f"what fits: 40 ({who}) and 232 (math), or 168 ({who}) and 168 (math)")


def test_a_warpgroup_above_the_first_is_set_by_both_of_its_bounds(shared):
    """The role of eight warps first: the shared one is the last."""
    role = '[[roles]]\nname = "math"\nsteps = ["mma.run", "act.run"]\n\n'
    shared.edit(role, "")
    shared.edit('[[roles]]\nname = "producer"', f'{role}[[roles]]\nname = "producer"')
    plan = shared.plan()
    assert plan.phases[0].moves == (RegisterMove(8, 4, 168, 40),)
    assert setmaxnreg(plan)[0] == (
        "if (threadIdx.x >= 256 && threadIdx.x < 384) "
        'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");'
    )


def test_a_block_of_no_whole_warpgroups_keeps_its_registers(shared):
    shared.contracts["loader"] = loader(2, 40)
    math(shared, 160)
    remark = "registers do not move between roles, as a block of 11 warps has no whole warpgroups"
    (found,) = roles.registers_move(shared.view())
    assert (found.code, found.message, found.remark) == ("PL031", remark, True)
    plan = shared.plan()
    assert (plan.remarks, plan.threads, plan.launch_registers) == ((remark,), 352, 184)
    assert plan.phases[0].moves == ()
    why = "no setmaxnreg: what the code needs, of 184 at most"
    assert [(r.moves, r.registers, r.reason) for r in plan.phases[0].roles] == [((), None, why)] * 3


def test_a_claim_above_the_registers_of_such_a_launch_is_refused(shared):
    shared.contracts["loader"] = loader(2, 40)
    (fault,) = shared.faults()
    assert fault.message == (
        f"role 'math' needs 232 registers a thread by {MMA}, a launch of 352 threads has 184"
    )
    assert fault.help == (
        "registers move between roles only if each claims registers and the block is of whole warpgroups"
    )


# --- Asynchronous copies of threads -----------------------------------------------------------


def uncopied() -> tuple[Part, ...]:
    return tuple(replace(p, copies=()) for p in LOADER.ports[2].parts)


FENCES = {"fences": True}


def filled(toy: Toy, by: str, consumer: dict[str, Any] | None = None) -> Toy:
    """The loader's ring filled by threads; `consumer` are fields of the main loop's end."""
    toy.contracts["loader"] = change(
        LOADER, "ports", "out", by=by, proxy="generic", parts=uncopied()
    )
    toy.contracts["mainloop"] = change(MAINLOOP, "ports", "in", **consumer or {})
    return toy


def fence_bindings(plan: Plan) -> dict[str, int]:
    rows = ((i.name, slot, value) for i in plan.instances for slot, value in i.bindings.items())
    return {f"{name}.{slot}": value for name, slot, value in rows if slot.endswith(".fence")}


def test_each_thread_arrives_when_its_copies_have_come(toy):
    plan = filled(toy, "each_thread_async", FENCES).plan()
    assert {m.name: m.arrivals for m in plan.mbarriers} == {
        "load.out.full": 128,
        "load.out.empty": 2,
    }
    assert fence_bindings(plan)["mma.in.fence"] == 1
    assert plan.channels[0].detail == (
        "4 stages of 49152 bytes, filled by asynchronous copies, each thread arrives when its own have come"
    )


def test_a_consumer_of_bulk_copies_has_no_fence(toy):
    toy.contracts["mainloop"] = change(MAINLOOP, "ports", "in", fences=True)
    assert fence_bindings(toy.plan()) == {"mma.in.fence": 0}


@pytest.mark.parametrize("by", ["each_warp", "each_thread"])
def test_the_producer_of_stores_has_the_fence(toy, by):
    plan = filled(toy, by, FENCES).plan()
    assert fence_bindings(plan) == {"load.out.fence": 1, "mma.in.fence": 0}
    assert plan.channels[0].detail == (
        f"4 stages of 49152 bytes, filled by stores, {by.replace('_', ' ')} arrives, a fence to the async proxy"
    )


@pytest.mark.parametrize("by", ["each_warp", "each_thread_async"])
def test_a_reader_through_the_generic_proxy_needs_no_fence(toy, by):
    plan = filled(toy, by, {"proxy": "generic", "by": "each_warp"}).plan()
    assert fence_bindings(plan) == {"load.out.fence": 0}


def test_a_consumer_without_a_fence_is_refused(toy):
    (fault,) = filled(toy, "each_thread_async").faults()
    assert (fault.code, fault.message) == (
        "PL037",
        (
            f"'load.out' of {LOAD} is filled by asynchronous copies of threads, and 'mma.in' of {MMA}, which "
            "reads it through the async proxy, has no fence after its wait"
        ),
    )
    assert fault.help == "compile it again: this header has the fence"


def test_nobody_frees_a_stage_by_asynchronous_copies(toy):
    toy.contracts["mainloop"] = change(MAINLOOP, "ports", "in", by="each_thread_async")
    (fault,) = rings.arrivers(toy.view())
    assert (fault.code, fault.message) == (
        "PL037",
        f"'each_thread_async' arrives at 'mma.in' of {MMA}, which is an 'in' port",
    )
    assert fault.help == "who can arrive there: one_thread, each_warp, each_warpgroup, each_thread"


@pytest.mark.parametrize(
    ("by", "proxy", "fenced"),
    [
        ("each_thread_async", "async", True),
        ("each_thread_async", "generic", False),
        ("each_warp", "async", False),
    ],
)
def test_the_glue_fences_a_tile_after_it_waited(toy, by, proxy, fenced):
    filled(toy, by, {"by": "step", "stages": "", "proxy": proxy})
    stage = (play("acquire", "out"), play("commit", "out"))
    toy.contracts["loader"] = change(toy.contracts["loader"], "entries", "run", plays=stage)
    toy.contracts["mainloop"] = change(toy.contracts["mainloop"], "entries", "run", plays=())
    lines = [line.strip() for line in render(toy.plan()).splitlines()]
    (wait,) = (
        n for n, line in enumerate(lines) if line.startswith("pipelink::wait(pipelink::Self{1}")
    )
    assert (lines[wait + 1] == "pipelink::fence_async_proxy();") is fenced
    call = "pipelink__mainloop__run(pipelink::Self{1}, mma__in, mma__acc);"
    assert lines[wait + 1 + fenced] == call
    assert lines[wait - 1] != "pipelink::fence_async_proxy();"


# --- Rows in groups ---------------------------------------------------------------------------


def rows(toy: Toy, along: str, groups: bool, clipped: bool = True, step: str = "tile_m") -> Toy:
    """The output's rows go by `along`, and the schedule has them in groups or not."""
    sides = (Cover(along, step, clipped), Cover("column", "tile_n"))
    x = (Cover(along, "tile_m", clipped), LOADER.ports[0].covers[1])
    tiles = (Tiling("m", "tile_m", groups), Tiling("column_tiles", "1"))
    toy.contracts["loader"] = change(LOADER, "ports", "x", covers=x)
    toy.contracts["epilogue"] = change(EPILOGUE, "ports", "out", covers=sides)
    toy.contracts["mainloop"] = change(MAINLOOP, "entries", "schedule", tiles=tiles)
    return toy


SIDES = (f"side 0 of 'load.x' of {LOAD}", f"side 0 of 'act.out' of {ACT}")


@pytest.mark.parametrize(("along", "groups"), [("row", False), ("group", True)])
def test_rows_go_by_a_schedule_that_has_them_so(toy, along, groups):
    assert said(rows(toy, along, groups), coverage.covered) == []
    assert toy.plan().threads == 384


@pytest.mark.parametrize(
    ("along", "groups", "what"),
    [
        ("row", True, "it goes by rows counted from 0, and 'mma.schedule' has its rows in groups"),
        ("group", False, "it goes by groups of rows, and 'mma.schedule' has no groups of rows"),
    ],
)
def test_rows_do_not_go_by_a_schedule_of_the_other_kind(toy, along, groups, what):
    found = said(rows(toy, along, groups), coverage.covered)
    assert found == [f"PL038: {side}: {what}" for side in SIDES]


def test_rows_in_groups_need_tiles(toy):
    rows(toy, "group", True)
    toy.contracts["mainloop"] = change(MAINLOOP, "entries", "schedule", tiles=())
    what = "it goes by the groups of rows of 'mma.schedule', which declares no tiles"
    found = said(toy, coverage.covered)
    assert [m for m in found if "side 0" in m and "load.w" not in m] == [
        f"PL038: {side}: {what}" for side in SIDES
    ]


def test_rows_in_groups_need_a_schedule(toy):
    rows(toy, "group", True).edit('schedule = "mma.schedule"\n', "")
    before, _, rest = toy.text.partition("[[roles]]")
    steps = 'roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }'
    after = rest.partition("[[channels]]")[2]
    toy.text = f'{before}[[phases]]\nname = "only"\n{steps}\n\n[[channels]]{after}'
    what = "it goes by the groups of rows of tiles, and phase 'only' has no schedule"
    assert f"PL038: {SIDES[1]}: {what}" in said(toy, coverage.covered)


def test_a_group_is_left_by_what_is_not_clipped(toy):
    assert said(rows(toy, "group", True, clipped=False), coverage.covered) == [
        (
            f"PL038: {SIDES[1]}: the last tile passes its end, as m is known at launch only: "
            "say .clipped()"
        )
    ]


def test_rows_and_groups_are_one_side_of_the_tiles(toy):
    rows(toy, "group", True)
    sides = (Cover("group", "tile_m", True), Cover("whole", "hidden"))
    toy.contracts["epilogue"] = change(EPILOGUE, "ports", "out", covers=sides)
    assert said(toy, coverage.covered) == [
        f"PL038: 'act.out' of {ACT}: each element is written by every column of tiles"
    ]


TILED = "the tile schedule and those who cover tensors by it must fit"
TENSOR = "who is at the other end of its channel, or passes the tensor, must have the same"
FENCE = "whether who waits needs a fence is decided anew"


@pytest.mark.parametrize(
    ("old", "new", "verdict", "line"),
    [
        (
            MAINLOOP,
            change(
                MAINLOOP,
                "entries",
                "schedule",
                tiles=(Tiling("m", "tile_m", True), Tiling("column_tiles", "1")),
            ),
            "needs consumers to agree",
            f"entry schedule.tiling m.groups: false -> true; {TILED}",
        ),
        (
            MAINLOOP,
            change(MAINLOOP, "ports", "in", fences=True),
            "needs relink",
            f"port in.fences: false -> true; {FENCE}",
        ),
        (
            EPILOGUE,
            change(EPILOGUE, "ports", "out", adds=True),
            "needs consumers to agree",
            f"port out.adds: false -> true; {TENSOR}",
        ),
    ],
)
def test_classes_of_what_changes(old, new, verdict, line):
    for pair in ((old, new), (new, old)):
        parts = [Component("a.o", c, abi.fnv1a(encode(c)), None) for c in pair]
        lines = difference.as_text(diff.compare(*parts)).splitlines()
        shown = line if pair[0] is old else line.replace("false -> true", "true -> false")
        assert lines == [verdict, f"  {shown}", f"verdict: {verdict} (1 change)"]


# --- Outputs that are added to ----------------------------------------------------------------


@pytest.mark.parametrize(("adds", "access"), [(False, "write"), (True, "update")])
def test_a_port_that_adds_updates_its_tensor(toy, adds, access):
    toy.contracts["epilogue"] = change(EPILOGUE, "ports", "out", adds=adds)
    plan = toy.plan()
    assert {a.name: a.access for a in plan.arguments} == {"x": "read", "w": "read", "out": access}


# --- The header, compiled ---------------------------------------------------------------------

ITEMS = """\
#include <pipelink/component.cuh>
namespace groups {
namespace pl = pipelink;
using namespace pl::literals;
constexpr auto m = pl::extent<"m">();
constexpr auto side = pl::provides<"side", 128>();
constexpr auto warps = pl::claims_warps(1_n).during<"load">();
constexpr auto more = pl::claims_warps(4_n).during<"run", "store">();
constexpr auto registers = pl::claims_registers(40_n).during<"load">();
constexpr auto stack = pl::claims_stack(16_n);
constexpr auto part = pl::part<"part", float>(pl::shape(side), pl::no_swizzle);
constexpr auto copied = pl::ring_out<"copied">()(4_n, pl::each_thread_async, part);
constexpr auto stored = pl::ring_out<"stored">()(4_n, pl::each_thread, part);
constexpr auto in = pl::ring_in<"in">()(4_n, pl::each_warp, pl::async_proxy, part);
constexpr auto plain = pl::ring_in<"plain">()(4_n, pl::each_warp, pl::generic_proxy, part);
constexpr auto y = pl::array_out<"y", float>(pl::shape(m)).covers(pl::by_group(side)).adds();
constexpr auto load = pl::entry<"load">()(copied, stored);
constexpr auto run = pl::entry<"run">()(in, plain);
constexpr auto store = pl::entry<"store">()(pl::tile, y);
constexpr auto schedule = pl::schedule<"schedule">()(m).tiles(
    pl::steps_over(m, side).in_groups(), pl::steps_over(1_n, 1_n));
constexpr auto contract = pl::contract<"groups", "team", "1">(
    m, side, warps, more, registers, stack, copied, stored, in, plain, y, load, run, store, schedule);
PIPELINK_COMPONENT(groups, contract)
PIPELINK_ENTRY(groups, load)(pl::Self self, pl::RingState& a, pl::RingState& b) {
    copied.commit_async(self, a);
    stored.commit(self, b);
}
PIPELINK_ENTRY(groups, run)(pl::Self self, pl::RingState& a, pl::RingState& b) {
    in.wait(self, a);
    plain.wait(self, b);
}
PIPELINK_ENTRY(groups, store)(pl::Self, const pl::Tile& tile, float* to) {
    if (tile.first < tile.end) atomicAdd(to + tile.first, 1.0f);
}
PIPELINK_ENTRY(groups, schedule)(pl::Self, int index, pl::Tile& tile, int size) {
    tile.group = index;
    tile.first = 0;
    tile.end = size;
    return index < 1;
}
}
"""


def compiled(source: str) -> int:
    Path("c.cu").write_text(source)
    return main(["compile", "c.cu", "-o", "c.o", "--arch", "sm_90a"])


def test_the_contract_of_the_header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compiled(ITEMS) == 0
    whole = read_object(Path("c.o")).contract
    assert [(c.name, c.kind, c.amount, c.during) for c in whole.claims] == [
        ("warps_load", "warps", "1", ("load",)),
        ("warps_run_store", "warps", "4", ("run", "store")),
        ("registers_load", "registers", "40", ("load",)),
        ("stack", "stack", "16", ()),
    ]
    ports = {p.name: p for p in whole.ports}
    assert [(n, p.by, p.proxy, p.fences) for n, p in ports.items() if p.space == "shared"] == [
        ("copied", "each_thread_async", "generic", False),
        ("stored", "each_thread", "generic", False),
        ("in", "each_warp", "async", True),
        ("plain", "each_warp", "generic", False),
    ]
    assert (ports["y"].adds, ports["y"].covers) == (True, (Cover("group", "side", True),))
    tiles = whole.entries[-1].tiles
    assert tiles == (Tiling("m", "side", groups=True), Tiling("1", "1"))


ADDS = 'constexpr auto read = pl::array_in<"read", float>(pl::shape(m)).adds();'
COPIES = "copies fill this ring: announce its bytes with expect, or commit_async"


@pytest.mark.parametrize(
    ("edits", "faults_"),
    [
        (
            {"constexpr auto load =": f"{ADDS}\nconstexpr auto load ="},
            {ADDS: "what is added to is written: array_out"},
        ),
        (
            {
                "copied.commit_async(self": "copied.commit(self",
                "stored.commit(self": "stored.commit_async(self",
            },
            {
                "copied.commit(self": COPIES,
                "stored.commit_async(self": "this ring is not filled by each_thread_async",
            },
        ),
    ],
)
def test_what_the_header_refuses(tmp_path, monkeypatch, capsys, edits, faults_):
    monkeypatch.chdir(tmp_path)
    source = ITEMS
    for old, new in edits.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    assert compiled(source) == 1
    found = re.findall(r"^error\[(.*)\n  --> (.*)$", capsys.readouterr().err, re.MULTILINE)
    lines = {text: source[: source.index(text)].count("\n") + 1 for text in faults_}
    assert found == [(f"PL009]: {why}", f"c.cu:{lines[text]}") for text, why in faults_.items()]


# --- What was once wrong ----------------------------------------------------------------------


def test_a_warpgroup_with_an_idle_warp_is_set_by_all_of_its_warps(toy):
    """Warp 3 runs no role in the first phase, and must execute setmaxnreg all the same."""
    before, _, rest = toy.text.replace('schedule = "mma.schedule"\n', "").partition("[[roles]]")
    phases = (
        '[[phases]]\nname = "first"\nschedule = "mma.schedule"\n'
        'roles = { producer = ["load.run"], math = ["mma.run", "act.run"] }\n\n'
        '[[phases]]\nname = "second"\nroles = { everyone = ["all.run"] }\n\n[[channels]]'
    )
    toy.text = before + phases + rest.partition("[[channels]]")[2]
    toy.edit("[instances.act]", '[instances.all]\nobject = "everyone.o"\n\n[instances.act]')
    claims = (Claim("warps", "warps", "12"), Claim("registers", "registers", "168"))
    entries = (Entry("run", "step", ()),)
    toy.contracts["everyone"] = contract("everyone", "team", claims=claims, entries=entries)
    toy.contracts["loader"] = change(LOADER, "claims", "warps", amount="3")
    assert setmaxnreg(toy.plan())[:2] == [
        'if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");',
        "if (threadIdx.x < 96) {  // role producer: threads 0 to 95",
    ]


def test_a_free_fact_is_chosen_for_both_of_two_that_are_alike(both):
    both.contracts["mainloop"] = change(BOTH, "facts", "stages", values=(2, 3, 4))
    both.edit("[parameters]", '[free]\nfacts = ["mma.stages"]\n\n[parameters]')
    plan = both.plan()
    assert [(c.fact, c.value) for c in plan.choices] == [("mma.stages", 4)]
    chosen = [f.value for f in plan.facts if f.name == "stages" and f.instance in ("mma", "load")]
    assert chosen == [4, 4]


def test_more_warps_than_could_ever_be_placed_are_refused_at_once(toy):
    toy.contracts["loader"] = change(LOADER, "claims", "warps", amount="2000000000")
    assert toy.messages()[0] == (
        f"PL020: warps of claim 'warps' of {LOAD}: 2000000000 is 2000000000, at most 1024 can be"
    )


def test_an_extent_that_only_a_condition_of_values_has(toy):
    epilogue = add(EPILOGUE, "facts", Fact("k", "extent"))
    holds = (abi.Holds("below", ("k",)),)
    epilogue = add(epilogue, "ports", Port("order", "global", "in", "i32", ("m",), holds=holds))
    arguments = ("tile", "acc", "out", "m", "order")
    toy.contracts["epilogue"] = change(epilogue, "entries", "run", arguments=arguments)
    toy.edit('out = "act.out"', 'out = "act.out"\norder = "act.order"')
    assert toy.messages() == [
        f"PL015: extent 'k' of {ACT} is a side of no tensor of the kernel, so that a launch has no value for it"
    ]


def test_columns_are_in_no_groups():
    tiles = (Tiling("m", "tile_m"), Tiling("column_tiles", "1", True))
    wrong = change(MAINLOOP, "entries", "schedule", tiles=tiles)
    assert [f.message for f in faults(wrong)] == [
        "entry 'schedule' has columns of tiles in groups, which only rows can be"
    ]


def test_what_is_added_to_is_written():
    wrong = change(LOADER, "ports", "x", adds=True)
    assert [f.message for f in faults(wrong)] == [
        "port 'x' is added to, and is no array that is written"
    ]


@pytest.mark.parametrize(("adds", "count"), [(False, 1), (True, 0)])
def test_several_tiles_may_add_to_an_element(toy, adds, count):
    side = EPILOGUE.ports[-1].shape[1]
    covers = (Cover("row", "tile_m", True), Cover("whole", side, True))
    name = EPILOGUE.ports[-1].name
    toy.contracts["epilogue"] = change(EPILOGUE, "ports", name, adds=adds, covers=covers)
    found = [d for d in coverage.covered(toy.view()) if "written by every column" in d.message]
    assert len(found) == count


def test_a_reader_that_does_not_say_its_proxy_has_the_fence(toy):
    plan = filled(toy, "each_thread_async", {**FENCES, "proxy": ""}).plan()
    assert fence_bindings(plan)["mma.in.fence"] == 1


def lone(toy: Toy, step: bool, schedule: bool) -> Toy:
    """A step with no port that says how it counts rows: by groups, or from 0."""
    tiles = (Tiling("m", "tile_m", schedule), Tiling("column_tiles", "1"))
    toy.contracts["mainloop"] = change(MAINLOOP, "entries", "schedule", tiles=tiles)
    toy.contracts["epilogue"] = change(
        change(EPILOGUE, "ports", "out", covers=()), "entries", "run", groups=step
    )
    return toy


@pytest.mark.parametrize(
    ("step", "schedule", "what"),
    [
        (True, False, "goes by groups of rows, and 'mma.schedule' has none"),
        (
            False,
            True,
            "takes the tile as rows counted from 0, and 'mma.schedule' has its rows in groups",
        ),
        (True, True, None),
        (False, False, None),
    ],
)
def test_a_step_without_such_a_port_says_how_it_counts_rows(toy, step, schedule, what):
    found = said(lone(toy, step, schedule), coverage.groups)
    assert found == ([f"PL038: step 'run' of {ACT} {what}"] if what else [])


def test_only_a_step_that_takes_the_tile_goes_by_groups():
    text = "entry 'schedule' goes by groups of rows, and is no step that takes the tile"
    wrong = change(MAINLOOP, "entries", "schedule", groups=True)
    assert [f.message for f in faults(wrong)] == [text]


def test_a_schedule_of_format_1_has_no_groups(toy):
    view = rows(toy, "group", False).view()
    mma = view.kernel.instance("mma")
    old = struct_replace(mma, component=struct_replace(mma.component, version=1))
    instances = tuple(old if i is mma else i for i in view.kernel.instances)
    view = struct_replace(view, kernel=struct_replace(view.kernel, instances=instances))
    what = "it goes by groups of rows, and 'mma.schedule' has no groups of rows"
    assert f"PL038: {SIDES[1]}: {what}" in [
        f"{d.code}: {d.message}" for d in coverage.covered(view)
    ]


@pytest.mark.parametrize(("of", "have"), [("1024", "1000"), ("1000", "1024")])
def test_groups_of_a_known_number_of_rows_are_the_rows_of_the_tensor(toy, of, have):
    rows(toy, "group", True)
    tiles = (Tiling(of, "tile_m", True), Tiling("column_tiles", "1"))
    toy.contracts["mainloop"] = change(MAINLOOP, "entries", "schedule", tiles=tiles)
    sides = (have, EPILOGUE.ports[-1].shape[1])
    toy.contracts["epilogue"] = change(toy.contracts["epilogue"], "ports", "out", shape=sides)
    what = f"it has {have} elements, and the groups of rows have {of}"
    assert f"PL038: {SIDES[1]}: {what}" in said(toy, coverage.covered)


def test_two_steps_of_one_instance_in_one_role_have_the_same_warps(toy):
    claims = [c for c in EPILOGUE.claims if c.kind != "warps"]
    claims += [
        Claim("warps_run", "warps", "8", during=("run",)),
        Claim("warps_after", "warps", "4", during=("after",)),
    ]
    entries = (*EPILOGUE.entries, Entry("after", "step", ()))
    toy.contracts["epilogue"] = replace(EPILOGUE, claims=tuple(claims), entries=entries)
    toy.edit('"act.run"', '"act.run", "act.after"')
    text = f"PL023: role 'math' has 8 warps by {MMA}, and 4 by {ACT}"
    assert said(toy, roles.warps) == [text]


def test_what_is_added_to_has_no_reader(toy):
    out = EPILOGUE.ports[-1]
    reader = replace(out, name="bias", direction="in")
    contract_ = add(change(EPILOGUE, "ports", "out", adds=True), "ports", reader)
    arguments = (*EPILOGUE.entries[0].arguments, "bias")
    toy.contracts["epilogue"] = change(contract_, "entries", "run", arguments=arguments)
    toy.edit('out = "act.out"', 'out = ["act.out", "act.bias"]')
    text = (
        f"PL028: parameter 'out' is read by 'act.bias' of {ACT} and added to by 'act.out' of {ACT}"
    )
    assert said(toy, parameters.writers) == [text]


def test_an_empty_like_is_like_nothing(both):
    both.edit('like = "mma"', 'like = ""')
    assert like_faults(both.text)[0][0] == (
        "[instances.load] is like '', which is no instance with an object"
    )


def test_an_extent_that_only_the_tiles_have(toy):
    loop = add(MAINLOOP, "facts", Fact("q", "extent"))
    tiles = (Tiling("q", "tile_m"), Tiling("column_tiles", "1"))
    toy.contracts["mainloop"] = change(loop, "entries", "schedule", tiles=tiles)
    text = f"PL015: extent 'q' of {MMA} is a side of no tensor of the kernel, so that a launch has no value for it"
    assert said(toy, parameters.extents) == [text]


def test_a_ring_of_a_step_that_no_role_runs_may_be_of_one_thread(toy):
    alone = replace(LOADER.entries[0], name="alone", threads="one")
    toy.contracts["loader"] = replace(LOADER, entries=(*LOADER.entries, alone))
    assert said(toy, roles.one_thread) == []


def test_a_barrier_of_a_step_that_one_thread_runs(toy):
    barrier = Claim("bar", "barrier", "", during=("run",))
    entry = replace(LOADER.entries[0], threads="one")
    toy.contracts["loader"] = replace(LOADER, claims=(*LOADER.claims, barrier), entries=(entry,))
    assert said(toy, roles.one_thread) == [
        f"PL037: barrier 'bar' of {LOAD} is for 128 threads, and step 'run', which meets there, is run by one"
    ]

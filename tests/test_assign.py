"""Whole plans of random kernels hold what placement promises, and bytes are reused where they may be."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from contracts import add, contract, places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal_elf import CONTRACT, PLACES, note, object_

from pipelink import driver
from pipelink.abi import Claim, Entry, Operation, Part, Port
from pipelink.arch import ARCHES
from pipelink.diagnostics import InputError
from pipelink.model import Call, Hand, Sync
from pipelink.place.registers import pool
from pipelink.render import render

LAYOUT = "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"
SWIZZLE_ALIGN = {0: 128, 32: 256, 64: 512, 128: 1024}


@dataclass(frozen=True)
class Program:
    """Phases of roles of instances, and channels between ports; the contracts by instance."""

    phases: tuple[tuple[str, dict[str, list[str]]], ...]
    channels: tuple[tuple[str, str, int], ...]
    contracts: dict[str, object]
    blocks: int = 1


def write(program, folder):
    """Objects and manifest of a program."""
    lines = ['kernel = "random"', 'target = "sm_90a"', f"blocks_per_sm = {program.blocks}"]
    for name, made in program.contracts.items():
        notes = [(CONTRACT, made), (PLACES, places(made))]
        data = object_(*(note(kind, msgspec.json.encode(record)) for kind, record in notes))
        (folder / f"{name}.o").write_bytes(data)
        lines += [f'instances.{name}.object = "{name}.o"']
    for name, roles in program.phases:
        lines += ["[[phases]]", f'name = "{name}"', "[phases.roles]"]
        lines += [f"{role} = {[f'{step}' for step in steps]}" for role, steps in roles.items()]
    for source, target, stages in program.channels:
        lines += ["[[channels]]", f'from = "{source}"', f'to = "{target}"']
        if handed(program, source, target):
            lines.append(f"stages = {stages}")
    lines += ["[parameters]"]
    (folder / "random.kernel.toml").write_text("\n".join(lines) + "\n")


def handed(program, source, target):
    """Whether the glue hands a tile from role to role."""
    roles = {}
    for phase, own in program.phases:
        for role, steps in own.items():
            roles |= {step.partition(".")[0]: (phase, role) for step in steps}
    ends = [text.partition(".") for text in (source, target)]
    ports = [p for name, _, port in ends for p in program.contracts[name].ports if p.name == port]
    return roles[ends[0][0]] != roles[ends[1][0]] and not any(p.stages for p in ports)


def planned(program, folder):
    write(program, folder)
    path = Path(folder) / "random.kernel.toml"
    return driver.plan(driver.read(path, driver.Sources(Path(folder))))


def tile(direction, swizzle, element="bf16", proxy="generic"):
    name = "made" if direction == "out" else "taken"
    part = Part("t", element, ("64", "64"), swizzle)
    return Port(name, "shared", direction, parts=(part,), by="step", proxy=proxy)


def registers(direction):
    name = "made" if direction == "out" else "taken"
    return Port(name, "register", direction, "bf16", ("64", "64"), layout=LAYOUT)


def ring(direction, swizzle, stages):
    name = "made" if direction == "out" else "taken"
    part = Part("t", "bf16", ("64", "64"), swizzle)
    return Port(
        name,
        "shared",
        direction,
        stages=str(stages),
        parts=(part,),
        by="each_warp",
        proxy="generic",
    )


@st.composite
def programs(draw):
    """One to three phases of one to three roles of one to three components, with claims of their own;
    neighbours in a role, or of two roles, are connected."""
    numbers = itertools.count()
    contracts, phases, channels = {}, [], []
    for phase in range(draw(st.integers(1, 3))):
        roles, ends = {}, []
        for role in range(draw(st.integers(1, 3))):
            steps = []
            for _ in range(draw(st.integers(1, 3))):
                name = f"c{next(numbers)}"
                steps.append(f"{name}.run")
                contracts[name] = _component(draw, name, phase)
            roles[f"r{phase}{role}"] = steps
            ends.append([s.partition(".")[0] for s in steps])
        pairs = [pair for own in ends for pair in itertools.pairwise(own)]
        pairs += [(a[-1], b[0]) for a, b in itertools.pairwise(ends)]
        for a, b in pairs:
            channels += _connection(draw, contracts, a, b)
        phases.append((f"p{phase}", roles))
    return Program(tuple(phases), tuple(channels), contracts, draw(st.sampled_from([1, 1, 1, 2])))


def _component(draw, name, phase):
    claims = [Claim("warps", "warps", "4")]
    for number in range(draw(st.integers(0, 3))):
        size, align = draw(st.integers(1, 60_000)), draw(st.sampled_from([16, 128, 1024]))
        during = ("run",) if draw(st.booleans()) else ()
        claims.append(Claim(f"s{number}", "shared", str(size), align, during=during))
    for number in range(draw(st.integers(0, 2))):
        fixed = draw(st.sampled_from([None, None, None, 3, 9]))
        count = draw(st.sampled_from(["1", "1", "2"]))
        claims.append(Claim(f"b{number}", "barrier", "", fixed=fixed, count=count))
    if draw(st.booleans()):
        claims.append(
            Claim("m", "mbarrier", "2", by=draw(st.sampled_from(["each_warp", "one_thread"])))
        )
    claims.append(Claim("registers", "registers", str(draw(st.sampled_from([40, 96, 168, 232])))))
    return contract(name, "team", claims=tuple(claims), entries=(Entry("run", "step", ()),))


def _connection(draw, contracts, a, b):
    """A channel from `a` to `b`, unless one of them has one on that side."""
    taken = [{p.name for p in contracts[n].ports} for n in (a, b)]
    if "made" in taken[0] or "taken" in taken[1] or not draw(st.booleans()):
        return []
    swizzle, other = (draw(st.sampled_from([0, 32, 64, 128])) for _ in range(2))
    stages = draw(st.integers(1, 4))
    ends = draw(
        st.sampled_from(
            [
                (tile("out", swizzle), tile("in", other)),
                (tile("out", swizzle), tile("in", swizzle, proxy="async")),
                (registers("out"), tile("in", other)),
                (tile("out", swizzle), registers("in")),
                (registers("out"), registers("in")),
                (ring("out", swizzle, stages), ring("in", swizzle, stages)),
                (ring("out", swizzle, stages), registers("in")),
                (tile("out", swizzle), ring("in", other, stages)),
            ]
        )
    )
    for name, port in zip((a, b), ends, strict=True):
        contracts[name] = _with_port(contracts[name], port)
    return [(f"{a}.made", f"{b}.taken", stages)]


def _with_port(whole, port):
    (entry,) = whole.entries
    acts = {"out": ("acquire", "commit"), "in": ("wait", "release")}[port.direction]
    plays = tuple(Operation(act, port.name) for act in acts) if port.stages else ()
    entry = msgspec.structs.replace(
        entry, arguments=(*entry.arguments, port.name), plays=(*entry.plays, *plays)
    )
    return msgspec.structs.replace(whole, ports=(*whole.ports, port), entries=(entry,))


def overlap(a, b, c, d):
    return a < d and c < b


@given(programs())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_plan_holds_what_placement_promises(tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("random")
    try:
        plan = planned(program, folder)
    except InputError as error:
        refused_for_space({d.code for d in error.diagnostics})
        return
    memory_is_apart(plan)
    barriers_are_apart(plan)
    roles_are_apart(plan)
    registers_fit(plan)
    arrivals_are_those_that_come(program, plan)
    bytes_are_waited_for(plan)
    render(plan)
    assert placements(planned(shuffled(program), folder)) == placements(plan)


def refused_for_space(codes):
    """Nothing else is wrong with these programs."""
    assert codes <= {"PL030", "PL031", "PL032", "PL033", "PL039"}


def shuffled(program):
    """The same program with its instances listed the other way round."""
    return Program(
        program.phases,
        program.channels,
        dict(reversed(program.contracts.items())),
        program.blocks,
    )


def memory_is_apart(plan):
    """No two regions in use at once overlap, but those of one role's acts, which are waited for."""
    arch = ARCHES[plan.target]
    rows = [(r.offset, r.bytes, r.align, set(r.phases), r.owners) for r in plan.regions]
    everywhere = {p.name for p in plan.phases}
    rows += [(m.offset, 8 * m.count, 8, everywhere, None) for m in plan.mbarriers]
    roles = {i.name: i.role for i in plan.instances}
    for (o, n, _, live, a), (p, m, _, other, b) in itertools.combinations(rows, 2):
        if live & other and overlap(o, o + n, p, p + m):
            assert a is not None
            assert b is not None
            assert len({roles[name] for name in (*a, *b)}) == 1
    assert all(o % align == 0 for o, _, align, _, _ in rows)
    assert plan.shared_bytes == max((o + n for o, n, *_ in rows), default=0)
    assert plan.shared_bound <= plan.shared_bytes <= arch.shared_limit(plan.blocks_per_sm)
    for region in plan.regions:
        for swizzle, align in SWIZZLE_ALIGN.items():
            if swizzle and f"{swizzle}-byte swizzle" in region.reason:
                assert region.offset % align == 0


def barriers_are_apart(plan):
    where = phases_of(plan)
    for a, b in itertools.combinations(plan.barriers, 2):
        if where(a) & where(b):
            assert not overlap(a.id, a.id + a.count, b.id, b.id + b.count)
    assert all(b.id >= 1 and b.id + b.count <= 16 for b in plan.barriers)


def phases_of(plan):
    calls = {
        (s.instance, p.name)
        for p in plan.phases
        for r in p.roles
        for s in r.steps
        if isinstance(s, Call)
    }

    def of(barrier):
        if not barrier.instance:
            return {barrier.name.partition(".")[0]}
        return {phase for instance, phase in calls if instance == barrier.instance}

    return of


def roles_are_apart(plan):
    placed = {r.name: r for r in plan.roles}
    for phase in plan.phases:
        for a, b in itertools.combinations([placed[r.role] for r in phase.roles], 2):
            assert not overlap(
                a.first_warp, a.first_warp + a.warps, b.first_warp, b.first_warp + b.warps
            )
    assert all(r.first_warp % 4 == 0 for r in plan.roles if r.warps % 4 == 0)
    assert plan.threads == 32 * max(r.first_warp + r.warps for r in plan.roles)


def registers_fit(plan):
    """In every phase what the warps hold fits the pool; without setmaxnreg it is the launch's."""
    arch, placed = ARCHES[plan.target], {r.name: r for r in plan.roles}
    held = dict.fromkeys(range(plan.threads // 32), plan.launch_registers)
    for phase in plan.phases:
        for role in phase.roles:
            if role.registers:
                first = placed[role.role].first_warp
                held |= dict.fromkeys(range(first, first + placed[role.role].warps), role.registers)
        assert 32 * sum(held.values()) <= pool(arch, plan.threads, plan.blocks_per_sm)


def arrivals_are_those_that_come(program, plan):
    """Each warp of a role that hands a stage over arrives once, the component's or the glue's."""
    coming = {}
    for phase in plan.phases:
        for role in phase.roles:
            warps = next(r.warps for r in plan.roles if r.name == role.role)
            for step in role.steps:
                if isinstance(step, Hand) and step.act in ("commit", "release"):
                    coming[step.mbarrier] = coming.get(step.mbarrier, 0) + warps
    for source, target, _ in program.channels:
        for text, side in ((source, "full"), (target, "empty")):
            instance, _, port = text.partition(".")
            (found,) = (p for p in program.contracts[instance].ports if p.name == port)
            if found.stages:
                bindings = next(i.bindings for i in plan.instances if i.name == instance)
                at = bindings[f"{port}.{side}"]
                coming[at] = coming.get(at, 0) + 4
    for mbarrier in plan.mbarriers:
        if mbarrier.offset in coming:
            assert mbarrier.arrivals == coming[mbarrier.offset]
        else:
            assert mbarrier.name.endswith(".m")


def bytes_are_waited_for(plan):
    """A role's barrier is one that no other role of the phase takes."""
    for phase in plan.phases:
        taken = {}
        for role in phase.roles:
            for step in role.steps:
                if isinstance(step, Sync) and step.scope == "role":
                    assert taken.setdefault(step.barrier, role.role) == role.role


def placements(plan):
    """All that is placed, whatever the order in which instances are listed."""
    return (
        plan.regions,
        plan.mbarriers,
        plan.barriers,
        plan.roles,
        plan.shared_bytes,
        plan.shared_bound,
    )


# --- Bytes that go from one act of a role to another


def two_steps(first, second, more=()):
    """A role of two components, each with scratch memory that it needs while it runs."""
    claims = [
        (Claim("warps", "warps", "4"), Claim("scratch", "shared", str(size), 128, during=("run",)))
        for size in (first, second)
    ]
    contracts = {
        name: contract(name, "team", claims=(*own, *more), entries=(Entry("run", "step", ()),))
        for name, own in zip(("one", "two"), claims, strict=True)
    }
    return Program((("only", {"all": ["one.run", "two.run"]}),), (), contracts)


def test_scratch_of_two_steps_has_bytes_of_its_own_where_there_is_room(tmp_path):
    plan = planned(two_steps(100_000, 100_096), tmp_path)
    assert plan.shared_bytes == 200_096 + 0
    assert not [s for s in plan.phases[0].roles[0].steps if isinstance(s, Sync)]


def test_scratch_of_two_steps_shares_bytes_where_there_is_none(tmp_path):
    plan = planned(two_steps(200_000, 150_000), tmp_path)
    assert plan.shared_bytes == 200_000
    steps = plan.phases[0].roles[0].steps
    assert [type(s).__name__ for s in steps] == ["Call", "Sync", "Call"]
    assert steps[1].reason == "'one.scratch' was written, then 'two.scratch' is written"
    assert [r.reason for r in plan.regions] == [
        "claimed as 200000, during run; on bytes of two.scratch",
        "claimed as 150000, during run; on bytes of one.scratch",
    ]


def test_what_is_kept_shares_nothing(tmp_path):
    program = two_steps(200_000, 20_000)
    kept = Claim("table", "shared", "30000")
    program.contracts["one"] = msgspec.structs.replace(
        program.contracts["one"], claims=(*program.contracts["one"].claims, kept)
    )
    plan = planned(program, tmp_path)
    (table,) = (r for r in plan.regions if r.name == "one.table")
    others = [r for r in plan.regions if r is not table]
    assert not [
        r
        for r in others
        if overlap(table.offset, table.offset + table.bytes, r.offset, r.offset + r.bytes)
    ]


@pytest.mark.parametrize("stages", [1, 3])
def test_a_handed_tile_has_its_stages_and_two_mbarriers_each(tmp_path, stages):
    contracts = {
        name: _with_port(
            contract(
                name,
                "team",
                claims=(Claim("warps", "warps", "4"),),
                entries=(Entry("run", "step", ()),),
            ),
            tile(direction, 128),
        )
        for name, direction in (("one", "out"), ("two", "in"))
    }
    phases = (("only", {"a": ["one.run"], "b": ["two.run"]}),)
    plan = planned(Program(phases, (("one.made", "two.taken", stages),), contracts), tmp_path)
    assert [(r.name, r.bytes) for r in plan.regions] == [("one.made.t", 8192 * stages)]
    assert [(m.name, m.count, m.arrivals) for m in plan.mbarriers] == [
        ("one.made.empty", stages, 4),
        ("one.made.full", stages, 4),
    ]
    acts = [
        [s.act if isinstance(s, Hand) else "call" for s in role.steps]
        for role in plan.phases[0].roles
    ]
    assert acts == [["acquire", "call", "commit"], ["wait", "call", "release"]]


# --- What would be wrong code


def one(name, *ports, entries=None, claims=()):
    """A component of four warps."""
    made = contract(
        name,
        "team",
        claims=(Claim("warps", "warps", "4"), *claims),
        entries=entries or (Entry("run", "step", ()),),
    )
    for port in ports:
        made = _with_port(made, port) if entries is None else add(made, "ports", port)
    return made


def messages(program, folder):
    with pytest.raises(InputError) as caught:
        planned(program, folder)
    return [f"{d.code}: {d.message}" for d in caught.value.diagnostics]


def steps_of(plan, role=0, phase=0):
    return [
        s.act if isinstance(s, Hand) else type(s).__name__.lower()
        for s in plan.phases[phase].roles[role].steps
    ]


def named(port, name):
    return msgspec.structs.replace(port, name=name)


def test_a_tile_is_read_after_the_last_step_that_makes_it(tmp_path):
    entries = (Entry("early", "step", ()), Entry("late", "step", ("made",)))
    contracts = {
        "a": one("a", tile("out", 0), entries=entries),
        "b": one("b", tile("in", 0)),
    }
    phases = (("only", {"r": ["a.early", "b.run", "a.late"]}),)
    assert messages(Program(phases, (("a.made", "b.taken", 1),), contracts), tmp_path) == [
        "PL021: 'b.taken' reads a tile before 'a.made' has written it"
    ]


def test_a_copy_to_a_ring_comes_before_the_tile_is_handed_on(tmp_path):
    contracts = {
        "a": one("a", tile("out", 128)),
        "b": one("b", ring("in", 0, 2)),
        "c": one("c", tile("in", 128)),
    }
    phases = (("only", {"p": ["a.run"], "q": ["b.run"], "r": ["c.run"]}),)
    channels = (("a.made", "b.taken", 1), ("a.made", "c.taken", 2))
    plan = planned(Program(phases, channels, contracts), tmp_path)
    assert steps_of(plan) == [
        *("acquire", "call", "acquire", "sync", "copy", "commit", "commit"),
    ]


def test_rings_of_one_tile_have_as_many_stages(tmp_path):
    contracts = {
        "a": one("a", tile("out", 0)),
        "b": one("b", ring("in", 0, 2)),
        "c": one("c", ring("in", 0, 3)),
    }
    phases = (("only", {"p": ["a.run"], "q": ["b.run"], "r": ["c.run"]}),)
    channels = (("a.made", "b.taken", 1), ("a.made", "c.taken", 1))
    assert messages(Program(phases, channels, contracts), tmp_path)[0] == (
        "PL021: stage counts differ: 2 at 'b.taken' of b of team (instance 'b'), 3 at 'c.taken' of c of team "
        "(instance 'c'), which both take 'a.made'"
    )


def test_a_layout_with_gaps_is_refused(tmp_path):
    part = Part("t", "bf16", ("64", "64"), layout="(64,64):(72,1)")
    ports = [msgspec.structs.replace(tile(way, 0), parts=(part,)) for way in ("out", "in")]
    contracts = {"a": one("a", ports[0]), "b": one("b", ports[1])}
    phases = (("only", {"p": ["a.run", "b.run"]}),)
    assert messages(Program(phases, (("a.made", "b.taken", 1),), contracts), tmp_path)[0] == (
        "PL021: the layout (64,64):(72,1) of part 't' of 'a.made' of a of team (instance 'a') does not put "
        "the 4096 elements of 64x64 side by side"
    )


def test_bytes_that_change_hands_within_a_role_are_fenced(tmp_path):
    plan = planned(two_steps(200_000, 150_000), tmp_path)
    assert [s.fence for s in plan.phases[0].roles[0].steps if isinstance(s, Sync)] == [True]


def test_bytes_that_come_back_in_a_later_phase_are_fenced(tmp_path):
    entries = (Entry("first", "step", ()), Entry("last", "step", ()))
    scratch = Claim("s", "shared", "200000", 128, during=("first", "last"))
    other = Claim("s", "shared", "150000", 128, during=("run",))
    contracts = {
        "a": one("a", entries=entries, claims=(scratch,)),
        "b": one("b", claims=(other,)),
    }
    phases = (
        ("p", {"r": ["a.first"]}),
        ("q", {"r": ["b.run"]}),
        ("z", {"r": ["a.last"]}),
    )
    plan = planned(Program(phases, (), contracts), tmp_path)
    assert [p.fence for p in plan.phases] == [False, True, True]
    assert "#include <pipelink/glue.cuh>" in render(plan)


def test_one_thread_and_all_threads_take_no_ring_together(tmp_path):
    plays = tuple(Operation(act, "made") for act in ("acquire", "commit"))
    entries = (
        Entry("ahead", "step", ("made",), plays, threads="one"),
        Entry("run", "step", ("made",), plays),
    )
    contracts = {
        "a": one("a", ring("out", 0, 2), entries=entries),
        "b": one("b", ring("in", 0, 2)),
    }
    phases = (("only", {"p": ["a.ahead", "a.run"], "q": ["b.run"]}),)
    said = messages(Program(phases, (("a.made", "b.taken", 1),), contracts), tmp_path)
    assert (
        "PL037: step 'ahead' of a of team (instance 'a') is run by one thread and 'run' by all, and both "
        "take ring 'a.made', whose stage each thread keeps for itself"
    ) in said


def test_roundings_of_two_channels_are_two_conversions(tmp_path):
    source = msgspec.structs.replace(registers("out"), element="f32")
    contracts = {
        "a": one("a", source),
        "b": one("b", tile("in", 0)),
        "c": one("c", tile("in", 0)),
    }
    phases = (("only", {"p": ["a.run", "b.run", "c.run"]}),)
    program = Program(phases, (("a.made", "b.taken", 1), ("a.made", "c.taken", 1)), contracts)
    write(program, tmp_path)
    path = tmp_path / "random.kernel.toml"
    text = path.read_text()
    for name, rounding in (("b", "nearest"), ("c", "toward_zero")):
        text = text.replace(f'to = "{name}.taken"', f'to = "{name}.taken"\nrounding = "{rounding}"')
    path.write_text(text)
    plan = driver.plan(driver.read(path, driver.Sources(tmp_path)))
    converted = [
        s.conversion.instructions for s in plan.phases[0].roles[0].steps if hasattr(s, "conversion")
    ]
    assert converted == [("cvt.rn.bf16x2.f32",), ("cvt.rz.bf16x2.f32",)]
    assert len([r for r in plan.regions if r.name.endswith(".taken.t")]) == 2


def test_single_parts_are_named_by_their_owners(tmp_path):
    other = msgspec.structs.replace(tile("in", 0), parts=(Part("x", "bf16", ("64", "64")),))
    contracts = {"a": one("a", tile("out", 0)), "b": one("b", other)}
    phases = (("only", {"p": ["a.run", "b.run"]}),)
    plan = planned(Program(phases, (("a.made", "b.taken", 1),), contracts), tmp_path)
    assert [i.bindings.get("taken.x") for i in plan.instances] == [None, 0]

"""The plan: placements turned into bindings, calls, parameters and reasons."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pipelink import abi
from pipelink.launch import LARGEST_EXTENT
from pipelink.model import (
    Argument,
    ChannelPlan,
    Copy,
    FactValue,
    Holds,
    Instance,
    InstancePlan,
    Move,
    Parameter,
    PhasePlan,
    PhaseSpec,
    Plan,
    Rearrange,
    Region,
    RolePlan,
)
from pipelink.place.assign import Assignment, assign
from pipelink.place.lower import call, in_place, role_steps, variable
from pipelink.place.program import async_readers, fenced_by_reader
from pipelink.place.routes import Buffer, Route
from pipelink.transfer.records import Shuffle
from pipelink.view import End, View

ANY_EXTENT = (1, LARGEST_EXTENT)


def place(view: View, facts: tuple[FactValue, ...], remarks: tuple[str, ...] = ()) -> Plan:
    """The complete plan of a checked kernel; `remarks` are what the check could not tell."""
    a = assign(view)
    manifest, arena = view.kernel.manifest, a.arena
    kept = _kept_states(view, a)
    phases = tuple(_phase(view, a, phase, kept) for phase in manifest.phases)
    return Plan(
        kernel=manifest.kernel,
        manifest=manifest.path,
        target=manifest.target,
        floating_point=view.kernel.instances[0].contract.floating_point,
        threads=a.block.threads,
        launch_registers=a.block.launch_registers,
        shared_bytes=arena.bytes,
        shared_limit=arena.limit,
        shared_bound=arena.bound,
        shared_how=arena.how,
        stack_bytes=sum(view.value(i, c.amount) for i, _, c in view.claims("stack")),
        blocks_per_sm=manifest.blocks_per_sm,
        facts=facts,
        instances=tuple(_instance(view, a, i) for i in view.kernel.instances),
        regions=tuple(sorted(arena.regions, key=lambda r: (r.offset, r.name))),
        mbarriers=tuple(sorted(arena.mbarriers, key=lambda m: (m.offset, m.name))),
        barriers=tuple(sorted(a.barriers, key=lambda b: (b.id, b.instance, b.name))),
        columns=tuple(sorted(a.columns, key=lambda c: (c.first, c.instance, c.name))),
        allocated_columns=a.allocated_columns,
        roles=tuple(RolePlan(r.name, r.first_warp, r.warps, r.reason) for r in a.block.roles),
        phases=phases,
        states=kept,
        channels=tuple(_channel(route, phases) for route in a.routes),
        parameters=tuple(_parameters(view)),
        arguments=tuple(_arguments(view)),
        remarks=remarks,
    )


def _phase(view: View, a: Assignment, phase: PhaseSpec, kept: tuple[str, ...]) -> PhasePlan:
    roles = []
    for acts in a.program:
        if acts.phase == phase.name:
            made = role_steps(view, a, acts)
            own = tuple(s for s in made.states if s not in kept)
            roles.append(replace(made, states=own))
    schedule = None
    if phase.schedule is not None:
        owner = view.kernel.instance(phase.schedule[0])
        schedule = call(view, a.routes, owner, phase.schedule[1])
    moves = a.block.registers.get((phase.name, ""), ())
    return PhasePlan(phase.name, schedule, tuple(roles), _fenced(view, a, phase), moves)


def _fenced(view: View, a: Assignment, phase: PhaseSpec) -> bool:
    """Whether bytes that an earlier phase stored to may now be used through the async proxy."""
    order = [p.name for p in view.kernel.manifest.phases]
    before = set(order[: order.index(phase.name)])

    def shares(one: Region, other: Region) -> bool:
        return one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes

    return view.arch.bulk_tensor_copy and any(
        one is not other and shares(one, other)
        for one in a.arena.regions
        for other in a.arena.regions
        if phase.name in one.phases and before & set(other.phases)
    )


def _kept_states(view: View, a: Assignment) -> tuple[str, ...]:
    """The stage of a ring end that stands in several phases is kept between them."""
    ends = {e.name: e for r in a.routes for e in (r.producer, r.consumer) if e.kind == "ring"}
    return tuple(variable(end) for end in ends.values() if len(view.phases_of(end)) > 1)


def _instance(view: View, a: Assignment, instance: Instance) -> InstancePlan:
    spec = next(s for s in view.kernel.manifest.instances if s.name == instance.name)
    contract = instance.contract
    return InstancePlan(
        name=instance.name,
        number=instance.number,
        component=contract.component,
        owner=contract.owner,
        version=contract.version,
        object=spec.object,
        role=view.role_of(instance),
        fingerprint=f"{instance.component.fingerprint:#018x}",
        bindings=dict(sorted(_bindings(view, a, instance))),
    )


def _bindings(view: View, a: Assignment, instance: Instance) -> Iterator[tuple[str, int]]:
    """(slot name, value) of everything that the instance's code may ask for."""
    for fact in instance.contract.facts:
        if fact.kind in ("imports", "chooses"):
            yield fact.name, abi.bound(view.facts[instance.name][fact.name])
    seen: set[str] = set()
    for route in a.routes:
        for end, buffer in ((route.producer, route.source), (route.consumer, route.target)):
            if end.instance.name == instance.name and buffer and end.name not in seen:
                seen.add(end.name)
                yield from _port_bindings(a, end, buffer)
    offsets = a.arena.offsets
    for _, claim in view.claims_of(instance):
        if claim.kind in ("shared", "mbarrier"):
            yield claim.name, offsets[f"{instance.name}.{claim.name}"]
    for columns in a.columns:
        if columns.instance == instance.name:
            yield columns.name, columns.first
    for barrier in a.barriers:
        if barrier.instance == instance.name:
            yield barrier.name, barrier.id
            yield f"{barrier.name}.threads", barrier.threads
    role = view.role_of(instance)
    yield "role.threads", 32 * view.own_warps(instance)
    yield "role.first_thread", next((32 * r.first_warp for r in a.block.roles if r.name == role), 0)


def _port_bindings(a: Assignment, end: End, buffer: Buffer) -> Iterator[tuple[str, int]]:
    """The parts of a tile or ring, and a ring's mbarriers."""
    for mine, placed in zip(end.port.parts, buffer.parts, strict=True):
        yield f"{end.port.name}.{mine.name}", a.arena.offsets[f"{buffer.name}.{placed.name}"]
    if end.kind != "ring":
        return
    for what in ("full", "empty"):
        yield f"{end.port.name}.{what}", a.arena.offsets[f"{buffer.name}.{what}"]
    if end.out and end.port.by not in ("", "copies"):
        yield f"{end.port.name}.fence", int(async_readers(buffer))
    if end.port.fences:
        yield f"{end.port.name}.fence", int(fenced_by_reader(buffer, end))


def _channel(route: Route, phases: tuple[PhasePlan, ...]) -> ChannelPlan:
    """What a channel comes to, in words."""
    producer, consumer = route.producer, route.consumer
    if in_place(route):
        count = f"{producer.port.element} a thread, in place"
        values = next(
            (
                f"{v.count} "
                for p in phases
                for r in p.roles
                for v in r.variables
                if v.name == variable(producer)
            ),
            "",
        )
        return ChannelPlan(producer.name, consumer.name, "registers", f"{values}{count}")
    conflicts, said = [], []
    for step in _steps_of(route, phases):
        if isinstance(step, Move):
            conflicts.append(step.moves.conflict)
            said.append(f"{len(step.moves.accesses)} {step.moves.instruction}")
        elif isinstance(step, Copy):
            conflicts += [step.load.conflict, step.store.conflict]
            said += [f"{len(m.accesses)} {m.instruction}" for m in (step.load, step.store)]
        elif isinstance(step, Rearrange):
            way = step.way
            said.append(
                f"{way.shuffles} shuffles" if isinstance(way, Shuffle) else "within each thread"
            )
    buffer = route.buffers[0] if route.buffers else None
    if buffer is not None and producer.kind == consumer.kind == "ring":
        detail = f"{buffer.stages} stages of {buffer.stage_bytes} bytes, {_filling(buffer)}"
        return ChannelPlan(producer.name, consumer.name, "ring", detail)
    elements = [end.port.element or end.port.parts[0].element for end in (producer, consumer)]
    if elements[0] != elements[1]:
        how = f", rounded {route.spec.rounding.replace('_', ' ')}" if route.spec.rounding else ""
        said.append(f"{elements[0]} to {elements[1]}{how}")
    if buffer is not None:
        stages = f"{buffer.stages} stages of " if buffer.handed else ""
        said.append(f"{stages}{buffer.stage_bytes} bytes")
    kind = f"{producer.kind} to {consumer.kind}"
    return ChannelPlan(
        producer.name, consumer.name, kind, ", ".join(said), max(conflicts, default=0)
    )


def _steps_of(route: Route, phases: tuple[PhasePlan, ...]) -> Iterator[object]:
    """The glue's steps of a channel: they are titled by what they move."""
    titles = {f"{route.producer.name} to {route.consumer.name}"}
    for buffer in route.buffers:
        titles |= {
            f"{route.producer.name} to {buffer.name}",
            f"{buffer.name} to {route.consumer.name}",
        }
    if len(route.buffers) > 1:
        a, b = route.buffers
        titles |= {
            f"{a.name}.{p.name} to {b.name}.{q.name}" for p, q in zip(a.parts, b.parts, strict=True)
        }
    for phase in phases:
        for role in phase.roles:
            yield from (s for s in role.steps if getattr(s, "what", "") in titles)


def _filling(buffer: Buffer) -> str:
    by = buffer.producer.port.by
    if by in ("", "copies"):
        return "filled by bulk copies"
    if by == "each_thread_async":
        return "filled by asynchronous copies, each thread arrives when its own have come"
    fence = "a fence to the async proxy" if async_readers(buffer) else "no fence"
    return f"filled by stores, {by.replace('_', ' ')} arrives, {fence}"


def _parameters(view: View) -> Iterator[Parameter]:
    """Kernel parameters: one for each global port, then each extent once."""
    for argument, ports in view.kernel.manifest.parameters.items():
        for end in filter(None, map(view.end, ports)):
            port = end.port
            yield Parameter(
                kind="tensor_map" if port.box else "pointer",
                name=variable(end),
                argument=argument,
                element=port.element,
                shape=view.shape(end.instance, port.shape),
                box=tuple(view.value(end.instance, s) for s in port.box),
                swizzle=port.swizzle,
                access="read" if port.direction == "in" else "write",
            )
    for name in view.launch_extents():
        yield Parameter(
            kind="extent", name=name, bounds=view.kernel.manifest.extents.get(name, ANY_EXTENT)
        )


_ACCESS = {"in": "read", "out": "write", "inout": "update"}


def _access(ends: list[End]) -> str:
    if any(end.port.adds for end in ends):
        return "update"
    return _ACCESS["".join(sorted({e.port.direction for e in ends}))]


def _arguments(view: View) -> Iterator[Argument]:
    for name, ports in view.kernel.manifest.parameters.items():
        ends = [e for e in map(view.end, ports) if e is not None]
        first = ends[0]
        yield Argument(
            name=name,
            element=first.port.element,
            shape=view.shape(first.instance, first.port.shape),
            access=_access(ends),
            alignment=16,
            holds=tuple(dict.fromkeys(_holds(view, ends))),
        )


def _holds(view: View, ends: list[End]) -> Iterator[Holds]:
    """What the ports of one tensor say of its values."""
    for end in ends:
        for held in end.port.holds:
            yield Holds(held.what, view.shape(end.instance, held.sizes))

"""The plan: placements turned into bindings, calls, parameters and reasons."""

from __future__ import annotations

from collections.abc import Iterator

from pipelink import abi
from pipelink.abi import Entry
from pipelink.launch import LARGEST_EXTENT
from pipelink.model import (
    Argument,
    Call,
    ChannelPlan,
    FactValue,
    Instance,
    InstancePlan,
    Parameter,
    Plan,
    RolePlan,
)
from pipelink.place.assign import Assignment, Ring, RolePlace, assign
from pipelink.view import End, View

ANY_EXTENT = (1, LARGEST_EXTENT)


def place(view: View, facts: tuple[FactValue, ...], remarks: tuple[str, ...] = ()) -> Plan:
    """The complete plan of a checked kernel; `remarks` are what the check could not tell."""
    a = assign(view)
    manifest = view.kernel.manifest
    schedule_instance = view.kernel.instance(manifest.schedule[0])
    return Plan(
        kernel=manifest.kernel,
        manifest=manifest.path,
        target=manifest.target,
        floating_point=view.kernel.instances[0].contract.floating_point,
        threads=a.threads,
        launch_registers=a.launch_registers,
        shared_bytes=a.shared_bytes,
        shared_limit=view.arch.shared_per_block,
        stack_bytes=sum(view.value(i, c.amount) for i, _, c in view.claims("stack")),
        schedule=_call(view, schedule_instance, manifest.schedule[1]),
        facts=facts,
        instances=tuple(_instance(view, a, i) for i in view.kernel.instances),
        regions=tuple(sorted(a.regions, key=lambda r: r.offset)),
        mbarriers=tuple(sorted(a.mbarriers, key=lambda m: m.offset)),
        barriers=tuple(sorted(a.barriers, key=lambda b: b.id)),
        roles=tuple(_role(view, a, r) for r in a.roles),
        channels=tuple(_channels(view, a)),
        parameters=tuple(_parameters(view)),
        arguments=tuple(_arguments(view)),
        remarks=remarks,
    )


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
    offsets = {r.name: r.offset for r in a.regions} | {m.name: m.offset for m in a.mbarriers}
    for ring in a.rings:
        for end in (ring.producer, ring.consumer):
            if end.instance.name != instance.name:
                continue
            for mine, placed in zip(end.port.parts, ring.producer.port.parts, strict=True):
                yield f"{end.port.name}.{mine.name}", offsets[f"{ring.name}.{placed.name}"]
            for what in ("full", "empty"):
                yield f"{end.port.name}.{what}", offsets[f"{ring.name}.{what}"]
            if end.port.direction == "out" and end.port.by not in ("", "copies"):
                yield f"{end.port.name}.fence", int(needs_fence(ring))
    for claim in instance.contract.claims:
        if claim.kind in ("shared", "mbarrier"):
            yield claim.name, offsets[f"{instance.name}.{claim.name}"]
    for barrier in a.barriers:
        if barrier.instance == instance.name:
            yield barrier.name, barrier.id
            yield f"{barrier.name}.threads", barrier.threads
    role = view.role_of(instance)
    yield "role.threads", 32 * view.own_warps(instance)
    yield "role.first_thread", next((32 * r.first_warp for r in a.roles if r.name == role), 0)


def _call(view: View, instance: Instance, name: str) -> Call:
    found = view.entry(instance, name)
    assert found is not None, "check has seen that the entry exists"
    entry = found[1]
    symbol = abi.entry_symbol(instance.contract.component, name)
    return Call(
        instance.name, symbol, instance.number, tuple(_call_arguments(view, instance, entry))
    )


def _call_arguments(view: View, instance: Instance, entry: Entry) -> Iterator[tuple[str, str]]:
    extents = {f.name for f in instance.contract.facts if f.kind == "extent"}
    for name in entry.arguments:
        end = view.end(f"{instance.name}.{name}")
        if name in extents:
            yield "extent", name
        elif end is None:
            yield "tile", name
        elif end.port.space == "global":
            yield ("tensor_map" if end.port.box else "pointer"), _variable(end)
        elif end.port.space == "shared":
            yield "ring", _variable(end)
        else:
            yield "fragment", _variable(_producer(view, end))


def _producer(view: View, end: End) -> End:
    """The producing end of a register port's channel: the variable is named after it."""
    return next(a for a, b in view.channels() if end.name in (a.name, b.name))


def _variable(end: End) -> str:
    return f"{end.instance.name}__{end.port.name}"


def _role(view: View, a: Assignment, placed: RolePlace) -> RolePlan:
    spec = next(r for r in view.kernel.manifest.roles if r.name == placed.name)
    calls = tuple(_call(view, view.kernel.instance(i), e) for i, e in spec.steps)
    rings, fragments = [], []
    for instance in view.role_instances(placed.name):
        for index, port in enumerate(instance.contract.ports):
            end = End(instance, index)
            if port.space == "shared":
                rings.append(_variable(end))
            elif port.space == "register" and port.direction == "out":
                count = view.fragment_count(end)
                fragments.append((_variable(end), abi.ELEMENT_TYPES[port.element], count))
    claims = [(i, c) for i in view.role_instances(placed.name) if (c := view.claim(i, "registers"))]
    if placed.registers:
        most = ", ".join(f"{i.name} {c[1]}" for i, c in claims)
        reason = f"setmaxnreg {placed.registers}: the most of {most}"
    else:
        reason = f"no setmaxnreg: what the code needs, of {a.launch_registers} at most"
    return RolePlan(
        placed.name,
        placed.first_warp,
        placed.warps,
        placed.registers,
        calls,
        tuple(rings),
        tuple(fragments),
        reason,
    )


def needs_fence(ring: Ring) -> bool:
    """Ordinary stores become visible to bulk copies and wgmma by a fence of the writer, before it
    arrives; a consumer that does not say how it reads gets one too."""
    return ring.consumer.port.proxy != "generic"


def _channels(view: View, a: Assignment) -> Iterator[ChannelPlan]:
    for producer, consumer in view.channels():
        if producer.port.space == "register":
            count = view.fragment_count(producer)
            yield ChannelPlan(
                producer.name,
                consumer.name,
                "registers",
                f"{count} {producer.port.element} a thread, in place",
            )
        else:
            ring = next(r for r in a.rings if r.producer.name == producer.name)
            stage = sum(view.part_bytes(producer.instance, p) for p in producer.port.parts)
            yield ChannelPlan(
                producer.name,
                consumer.name,
                "ring",
                f"{ring.stages} stages of {stage} bytes, {_filling(ring)}",
            )


def _filling(ring: Ring) -> str:
    by = ring.producer.port.by
    if by in ("", "copies"):
        return "filled by bulk copies"
    fence = "a fence to the async proxy" if needs_fence(ring) else "no fence"
    return f"filled by stores, {by.replace('_', ' ')} arrives, {fence}"


def _parameters(view: View) -> Iterator[Parameter]:
    """Kernel parameters: one for each global port, then each extent once."""
    for argument, ports in view.kernel.manifest.parameters.items():
        for end in filter(None, map(view.end, ports)):
            port = end.port
            yield Parameter(
                kind="tensor_map" if port.box else "pointer",
                name=_variable(end),
                argument=argument,
                element=port.element,
                shape=view.shape(end.instance, port.shape),
                box=tuple(view.value(end.instance, s) for s in port.box),
                swizzle=port.swizzle,
                access="read" if port.direction == "in" else "write",
            )
    extents = [
        f.name for i in view.kernel.instances for f in i.contract.facts if f.kind == "extent"
    ]
    for name in dict.fromkeys(extents):
        yield Parameter(
            kind="extent", name=name, bounds=view.kernel.manifest.extents.get(name, ANY_EXTENT)
        )


_ACCESS = {"in": "read", "out": "write", "inout": "update"}


def _arguments(view: View) -> Iterator[Argument]:
    for name, ports in view.kernel.manifest.parameters.items():
        ends = [e for e in map(view.end, ports) if e is not None]
        first = ends[0]
        yield Argument(
            name=name,
            element=first.port.element,
            shape=view.shape(first.instance, first.port.shape),
            access=_ACCESS["".join(sorted({e.port.direction for e in ends}))],
            alignment=16,
        )

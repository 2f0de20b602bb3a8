"""Channels to routes: through which buffers in shared memory a channel goes.

An end of a channel is registers (a fragment), a tile that stands still while its step runs, or a ring
whose stages the component acquires and releases itself. What lies between two ends follows from
their kinds, their layouts and their roles:

    from       to         in one role               from role to role
    fragment   fragment   moved between registers   stored, handed over, loaded
    fragment   tile, ring stored                    stored, handed over
    tile       fragment   loaded                    handed over, loaded
    tile       tile       in place, or copied       handed over; copied by the consumer's role
    tile       ring       -                         handed over; copied by the producer's role
    ring       ring       handed over by the components themselves
    ring       tile       -                         in place, or copied by the consumer's role
    ring       fragment   -                         loaded

A buffer that is handed over has stages, and a full and an empty mbarrier for each. All who read a
buffer share it: a broadcast is a buffer with several consumers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from pipelink.abi import ELEMENT_BYTES
from pipelink.diagnostics import Diagnostic, InputError
from pipelink.model import ChannelSpec
from pipelink.transfer import exchanging as registers
from pipelink.transfer.converting import Rounding
from pipelink.transfer.places import Refused
from pipelink.transfer.records import Exchange, Fragment, InPlace, Staged, Tile
from pipelink.view import End, View, who


@dataclass(frozen=True)
class Slab:
    """A part of each stage of a buffer; `bytes` are from one stage to the next."""

    name: str
    tile: Tile
    bytes: int

    def lies_as(self, other: Slab) -> bool:
        """Whether the same bytes mean the same in both."""
        a, b = self.tile, other.tile
        return (a.element, a.shape, a.swizzle) == (b.element, b.shape, b.swizzle) and a.map == b.map


def _lie_alike(one: tuple[Slab, ...], other: tuple[Slab, ...]) -> bool:
    return len(one) == len(other) and all(a.lies_as(b) for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class Buffer:
    """Shared memory of a channel, named after the port that lays it out. `consumers` are the ends for
    which it is read: by their component, or by the glue."""

    name: str
    parts: tuple[Slab, ...]
    stages: int
    producer: End
    consumers: tuple[End, ...]
    handed: bool

    @property
    def stage_bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Route:
    """One channel with the buffers that it goes through, in order; none if it stays in registers.
    `exchange` is how registers get from one layout to another within a role."""

    producer: End
    consumer: End
    spec: ChannelSpec
    buffers: tuple[Buffer, ...] = ()
    exchange: Exchange | None = None

    @property
    def source(self) -> Buffer | None:
        """The buffer that the producer's component writes."""
        return self.buffers[0] if self.producer.kind != "fragment" else None

    @property
    def target(self) -> Buffer | None:
        """The buffer that the consumer's component reads."""
        return self.buffers[-1] if self.consumer.kind != "fragment" else None


def fragment_of(view: View, end: End) -> Fragment:
    """The registers of a fragment's role as a tile."""
    sides = tuple(view.sides(end.instance, end.port.shape))
    return Fragment(end.port.element, sides, view.fragment(end).text)


def rounding(spec: ChannelSpec) -> Rounding:
    """How a channel rounds; a conversion that is exact rounds nothing."""
    return "toward_zero" if spec.rounding == "toward_zero" else "nearest"


def slabs(view: View, end: End) -> tuple[Slab, ...]:
    """The parts of a tile or a ring as its owner lays them out."""
    found = []
    for part in end.port.parts:
        sides = tuple(view.sides(end.instance, part.shape))
        text = view.part_layout(end.instance, part).text if part.layout else ""
        tile = Tile(part.element, sides, part.swizzle, text)
        found.append(Slab(part.name, tile, view.part_bytes(end.instance, part)))
    return tuple(found)


def routes(view: View) -> tuple[Route, ...]:
    """The route of each channel, in the manifest's order."""
    by_producer: dict[str, list[tuple[End, End, ChannelSpec]]] = {}
    for producer, consumer, spec in view.connections():
        by_producer.setdefault(producer.name, []).append((producer, consumer, spec))
    found = {}
    for group in by_producer.values():
        make = _from_registers if group[0][0].kind == "fragment" else _from_memory
        try:
            for route in make(view, group):
                found[route.producer.name, route.consumer.name] = route
        except Refused as error:
            raise impossible(group[0][0], group[0][1], error) from error
    return tuple(found[a.name, b.name] for a, b, _ in view.connections())


def impossible(producer: End, consumer: End, why: Refused) -> InputError:
    """A channel that no transfer serves."""
    return InputError(
        Diagnostic(
            "PL053",
            f"nothing moves '{producer.name}' of {who(producer.instance)} to '{consumer.name}' of "
            f"{who(consumer.instance)}: {why}",
            producer.place,
            (consumer.place,),
        )
    )


Group = list[tuple[End, End, ChannelSpec]]


def _other_role(view: View, a: End, b: End) -> bool:
    return view.role_of(a.instance) != view.role_of(b.instance)


def _from_memory(view: View, group: Group) -> Iterator[Route]:
    """A producer's own tile or ring, which all consumers share; one that lays it out in another way
    gets a copy of its own."""
    producer = group[0][0]
    parts = slabs(view, producer)
    ring = producer.kind == "ring"
    same = [b for _, b, _ in group if b.kind == "fragment" or _lie_alike(slabs(view, b), parts)]
    others = [b for _, b, _ in group if b not in same]
    copied_here = [b for b in others if b.kind == "ring" and not ring]
    read = tuple(b for _, b, _ in group if b not in copied_here)
    handed = ring or any(b.kind == "ring" or _other_role(view, producer, b) for b in read)
    stages = view.value(producer.instance, producer.port.stages) if ring else 1
    if handed and not ring:
        counts = [_stages(view, b, spec) for _, b, spec in group if b.kind == "ring" and b in read]
        stages = max(counts or [spec.stages for _, b, spec in group if b in read])
    for part in parts:
        if not ring and stages > 1 and part.tile.swizzle and part.bytes % part.tile.align:
            raise Refused(
                f"a stage of {part.bytes} bytes is no multiple of {part.tile.align}, the period of its swizzle"
            )
    own = Buffer(producer.name, parts, stages, producer, read, handed)
    for _, consumer, spec in group:
        if consumer not in others:
            yield Route(producer, consumer, spec, (own,))
            continue
        here = consumer in copied_here
        count = _stages(view, consumer, spec) if here else 1
        copy = Buffer(consumer.name, slabs(view, consumer), count, producer, (consumer,), here)
        yield Route(producer, consumer, spec, (own, copy))


def _stages(view: View, end: End, spec: ChannelSpec) -> int:
    return view.value(end.instance, end.port.stages) if end.kind == "ring" else spec.stages


def _from_registers(view: View, group: Group) -> Iterator[Route]:
    """Registers are stored once for all consumers that read the same buffer."""
    producer = group[0][0]
    landings: list[tuple[tuple[Slab, ...], int, list[End], Rounding]] = []
    wanted: dict[str, tuple[tuple[Slab, ...], int, list[End], Rounding]] = {}
    for _, consumer, spec in group:
        other = _other_role(view, producer, consumer)
        if consumer.kind == "fragment" and not other:
            yield _within(view, producer, consumer, spec)
            continue
        parts = _landing(view, producer, consumer)
        stages = _stages(view, consumer, spec) if other or consumer.kind == "ring" else 1
        key = stages, rounding(spec)
        row = next((r for r in landings if (r[1], r[3]) == key and _lie_alike(r[0], parts)), None)
        if row is None:
            row = (parts, stages, [], rounding(spec))
            landings.append(row)
        row[2].append(consumer)
        wanted[consumer.name] = row
    for _, consumer, spec in group:
        if consumer.name in wanted:
            parts, stages, readers, _ = wanted[consumer.name]
            handed = any(b.kind == "ring" or _other_role(view, producer, b) for b in readers)
            name = readers[0].name
            buffer = Buffer(name, parts, stages, producer, tuple(readers), handed)
            yield Route(producer, consumer, spec, (buffer,))


def _landing(view: View, producer: End, consumer: End) -> tuple[Slab, ...]:
    """Where registers are stored for a consumer: as it lays its tile out, or as the link finds best
    where registers read it too."""
    if consumer.kind != "fragment":
        return slabs(view, consumer)
    source, target = _alike(view, producer, consumer)
    threads = 32 * view.own_warps(producer.instance), 32 * view.own_warps(consumer.instance)
    return (_own_slab(registers.staging_tile(source, target, threads, view.arch)),)


def _own_slab(tile: Tile) -> Slab:
    return Slab("tile", tile, -(-tile.bytes // tile.align) * tile.align)


def _alike(view: View, producer: End, consumer: End) -> tuple[Fragment, Fragment]:
    """Both ends' registers, of the narrower of their elements: that is what moves."""
    source, target = fragment_of(view, producer), fragment_of(view, consumer)
    narrow = min(source.element, target.element, key=ELEMENT_BYTES.__getitem__)
    return replace(source, element=narrow), replace(target, element=narrow)


def _within(view: View, producer: End, consumer: End, spec: ChannelSpec) -> Route:
    """From registers to registers of one role."""
    if not (producer.port.shape and consumer.port.shape and producer.port.layout):
        return Route(producer, consumer, spec, (), InPlace())  # format 1 says no tile
    source, target = _alike(view, producer, consumer)
    threads = 32 * view.own_warps(producer.instance)
    way = registers.exchange(source, target, threads, view.arch)
    if not isinstance(way, Staged):
        return Route(producer, consumer, spec, (), way)
    parts = (_own_slab(way.tile),)
    buffer = Buffer(consumer.name, parts, 1, producer, (consumer,), handed=False)
    return Route(producer, consumer, spec, (buffer,), way)

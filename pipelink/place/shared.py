"""Shared memory: what wants bytes of the arena, when, and where it gets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipelink.abi import Claim
from pipelink.diagnostics import Diagnostic, Place, Where
from pipelink.model import Instance, MbarrierPlan, Region
from pipelink.place.conflict import conflict
from pipelink.place.moments import Moments
from pipelink.place.pack import Item, Packing, pack
from pipelink.place.program import RoleActs
from pipelink.place.routes import Buffer, Route
from pipelink.view import End, View

COLUMNS_WORD = "tensor memory"  # no name of a claim has a space


@dataclass(frozen=True)
class Wanted:
    """A region with what the map and a diagnostic say of it. `arrivals` is of mbarriers; `buffer` is
    the one that it is a part of."""

    name: str
    bytes: int
    align: int
    live: int
    owners: tuple[str, ...]
    reason: str
    place: Where
    arrivals: int = 0
    buffer: Buffer | None = None

    @property
    def item(self) -> Item:
        return Item(self.name, self.bytes, self.align, self.live)


@dataclass(frozen=True)
class Arena:
    """All of a block's shared memory. `reused`: bytes go from one act of a role to another, and the
    glue has to wait in between."""

    bytes: int
    limit: int
    bound: int
    how: str
    regions: tuple[Region, ...]
    mbarriers: tuple[MbarrierPlan, ...]
    offsets: dict[str, int]
    reused: bool


def place_shared(
    view: View,
    routes: tuple[Route, ...],
    program: tuple[RoleActs, ...],
    faults: list[Diagnostic],
) -> Arena:
    """Offsets for everything; a fault with the smallest set of claims that do not fit."""
    limit = view.arch.shared_limit(view.kernel.manifest.blocks_per_sm)
    for fine in (False, True):
        moments = Moments(view.kernel.manifest, program, fine)
        wanted = list(_wanted(view, routes, program, moments))
        packing = _packed(wanted, limit)
        if packing.end <= limit:
            break
    else:
        faults.append(_too_much(view, wanted, limit, packing))
    live_at = {w.name: _phases(moments, view, w.live) for w in wanted}
    return Arena(
        packing.end,
        limit,
        packing.bound,
        packing.how,
        tuple(
            Region(
                w.name,
                w.owners,
                packing.offsets[w.name],
                w.bytes,
                w.align,
                live_at[w.name],
                _reason(w, wanted, packing),
            )
            for w in wanted
            if not w.arrivals
        ),
        tuple(
            MbarrierPlan(
                w.name, w.owners, packing.offsets[w.name], w.bytes // 8, w.arrivals, w.reason
            )
            for w in wanted
            if w.arrivals
        ),
        packing.offsets,
        fine,
    )


def _packed(wanted: list[Wanted], limit: int) -> Packing:
    """Claims of nothing stand at the start."""
    packing = pack([w.item for w in wanted if w.bytes], limit)
    nothing = {w.name: 0 for w in wanted if not w.bytes}
    return replace(packing, offsets=packing.offsets | nothing)


def _phases(moments: Moments, view: View, live: int) -> tuple[str, ...]:
    return tuple(p.name for p in view.kernel.manifest.phases if moments.phase(p.name) & live)


def _reason(region: Wanted, wanted: list[Wanted], packing: Packing) -> str:
    """Why a region is what it is and where it is."""
    start = packing.offsets[region.name]
    shared = sorted(
        other.name
        for other in wanted
        if other is not region
        and not other.live & region.live
        and packing.offsets[other.name] < start + region.bytes
        and start < packing.offsets[other.name] + other.bytes
    )
    return f"{region.reason}; on bytes of {', '.join(shared)}" if shared else region.reason


def _wanted(
    view: View, routes: tuple[Route, ...], program: tuple[RoleActs, ...], moments: Moments
) -> Iterator[Wanted]:
    buffers = {b.name: b for r in routes for b in r.buffers}
    for buffer in buffers.values():
        yield from _buffer_regions(view, buffer, _buffer_life(view, buffer, program, moments))
    yield from _claimed(view, moments, program)
    everywhere = moments.phase(*(p.name for p in view.kernel.manifest.phases))
    yield from _mbarriers(view, buffers, everywhere)
    for instance, index, _ in list(view.claims("tensor_columns"))[:1]:
        place = Place(instance.name, "claims", index)
        why = "the glue is told here which columns of tensor memory it got"
        yield Wanted(COLUMNS_WORD, 8, 8, everywhere, (), why, place)


def _touches(buffer: Buffer, roles: RoleActs) -> list[int]:
    """The acts of a role in which a buffer that it has for itself is used."""
    return [n for n, a in enumerate(roles.acts) if buffer.name in a.reads | a.writes]


def _buffer_life(
    view: View, buffer: Buffer, program: tuple[RoleActs, ...], moments: Moments
) -> int:
    """What is handed over lives from the first phase with a step that takes an end to the last."""
    if buffer.handed:
        ends = (buffer.producer, *buffer.consumers)
        return moments.between(name for end in ends for name in view.phases_of(end))
    live = 0
    for roles in program:
        touched = _touches(buffer, roles)
        if touched:
            live |= moments.acts(roles.phase, roles.role, touched[0], touched[-1])
    return live or moments.phase(*(r.phase for r in program))


def _buffer_regions(view: View, buffer: Buffer, live: int) -> Iterator[Wanted]:
    end = next(e for e in (buffer.producer, *buffer.consumers) if e.name == buffer.name)
    owners = dict.fromkeys(e.instance.name for e in (buffer.producer, *buffer.consumers))
    for part in buffer.parts:
        sizes, swizzle = "x".join(map(str, part.tile.shape)), part.tile.swizzle
        size = part.bytes * buffer.stages
        stages = f"{buffer.stages} stages of " if buffer.stages > 1 or end.kind == "ring" else ""
        yield Wanted(
            f"{buffer.name}.{part.name}",
            size,
            part.tile.align,
            live,
            tuple(owners),
            f"{stages}{sizes} {part.tile.element}, "
            + (f"{swizzle}-byte swizzle" if swizzle else "not swizzled"),
            Place(end.instance.name, "ports", end.index, f"part '{part.name}': {size} bytes"),
            buffer=buffer,
        )


def claim_life(
    view: View, instance: Instance, claim: Claim, moments: Moments, program: tuple[RoleActs, ...]
) -> int:
    """A claim that names entries is in use while they run, and keeps nothing in between; any other
    is kept from the first phase that its instance runs in to the last."""
    if not claim.during:
        return moments.between(phases_of(view, instance))
    live = 0
    for roles in program:
        acts = [n for n, a in enumerate(roles.acts) if _during(a.step, instance, claim)]
        if acts:
            live |= moments.acts(roles.phase, roles.role, acts[0], acts[-1])
    return live or moments.between(phases_of(view, instance))


def _during(step: tuple[str, str], instance: Instance, claim: Claim) -> bool:
    return step[0] == instance.name and step[1] in claim.during


def phases_of(view: View, instance: Instance) -> list[str]:
    """The phases in which an instance runs, by a step or as their schedule."""
    return [
        phase.name
        for phase in view.kernel.manifest.phases
        if (phase.schedule and phase.schedule[0] == instance.name)
        or any(name == instance.name for role in phase.roles for name, _ in role.steps)
    ]


def _claimed(view: View, moments: Moments, program: tuple[RoleActs, ...]) -> Iterator[Wanted]:
    for instance, index, claim in view.claims("shared"):
        each, copies = view.value(instance, claim.amount), view.scopes(instance, claim)
        size = each if copies == 1 else -(-each // claim.align) * claim.align * copies
        share = f", {copies} times: one a {claim.scope}" if claim.scope != "role" else ""
        when = f", during {' and '.join(claim.during)}" if claim.during else ""
        yield Wanted(
            f"{instance.name}.{claim.name}",
            size,
            claim.align,
            claim_life(view, instance, claim, moments, program),
            (instance.name,),
            f"claimed as {claim.amount}{share}{when}",
            Place(instance.name, "claims", index, f"{size} bytes"),
        )


def _mbarriers(view: View, buffers: dict[str, Buffer], live: int) -> Iterator[Wanted]:
    for buffer in buffers.values():
        if not buffer.handed:
            continue
        owners = tuple(dict.fromkeys(e.instance.name for e in (buffer.producer, *buffer.consumers)))
        for what, ends in (("full", (buffer.producer,)), ("empty", buffer.consumers)):
            arrivals = [_arrivals(view, end) for end in ends]
            said = " and ".join(
                f"{n} arrivals by {e.instance.name}{_by(e)}"
                for n, e in zip(arrivals, ends, strict=True)
            )
            yield Wanted(
                f"{buffer.name}.{what}",
                8 * buffer.stages,
                8,
                live,
                owners,
                f"{buffer.stages} stages, {said}",
                ends[0].place,
                sum(arrivals),
            )
    for instance, index, claim in view.claims("mbarrier"):
        arrivals_ = view.arrivals(instance, claim.by, claim.arrivals)
        yield Wanted(
            f"{instance.name}.{claim.name}",
            8 * view.value(instance, claim.amount),
            8,
            live,
            (instance.name,),
            f"{arrivals_} arrivals{_words(claim.by) or ', as claimed'}",
            Place(instance.name, "claims", index),
            arrivals_,
        )


def by_component(end: End) -> bool:
    """Whether the component itself arrives at a buffer's mbarriers; else the glue does, a thread of
    each warp."""
    return end.kind == "ring"


def _arrivals(view: View, end: End) -> int:
    if by_component(end):
        return view.arrivals(end.instance, end.port.by, end.port.arrivals)
    return view.own_warps(end.instance)


def _by(end: End) -> str:
    return _words(end.port.by) if by_component(end) else ": each warp"


def _words(arriver: str) -> str:
    return f": {arriver.replace('_', ' ')}" if arriver else ""


def _too_much(view: View, wanted: list[Wanted], limit: int, packing: Packing) -> Diagnostic:
    """The smallest set of regions that do not fit, and the nearest change with which all do."""
    names = {i.name for i in conflict([w.item for w in wanted if w.bytes], limit)}
    clash = sorted((w for w in wanted if w.name in names), key=lambda w: (-w.bytes, w.name))
    together = pack([w.item for w in clash]).end
    notes = [f"{w.name}: {w.bytes} bytes, {w.reason}" for w in clash]
    if len(clash) < len(wanted):
        notes.insert(0, f"{_these(clash)} alone need {together}")
    blocks = view.kernel.manifest.blocks_per_sm
    share = f" when {blocks} share an SM" if blocks > 1 else ""
    return Diagnostic(
        "PL030",
        f"the kernel needs {packing.end} bytes of shared memory, a block of {view.arch.name} has "
        f"{limit}{share}",
        clash[0].place,
        tuple(dict.fromkeys((*(w.place for w in clash[1:]), *_ends(clash), *_causes(view, clash)))),
        notes=tuple(notes),
        help=_way_out(view, wanted, limit, packing.end),
    )


def _these(clash: list[Wanted]) -> str:
    return f"these {len(clash)}" if len(clash) > 1 else "this one"


def _ends(clash: list[Wanted]) -> Iterator[Where]:
    """The other ends of buffers."""
    for wanted in clash:
        if wanted.buffer:
            ends = (wanted.buffer.producer, *wanted.buffer.consumers)
            yield from (e.place for e in ends if e.name != wanted.buffer.name)


def _causes(view: View, clash: list[Wanted]) -> Iterator[Where]:
    """Where the sizes of buffers are fixed."""
    for buffer in dict.fromkeys(w.buffer for w in clash if w.buffer):
        end = buffer.producer
        sides = [side for part in end.port.parts for side in part.shape]
        yield from view.causes(end.instance, end.port.stages, *sides)


def _way_out(view: View, wanted: list[Wanted], limit: int, end: int) -> str:
    """Fewer stages of the ring that has the most bytes, where that helps; else how many too many."""
    rings = list(dict.fromkeys(w.buffer for w in wanted if w.buffer and w.buffer.stages > 1))
    for ring in sorted(rings, key=lambda r: (-r.stage_bytes * r.stages, r.name)):
        fits = [n for n in _fewer(view, ring) if _end_with(wanted, ring, n) <= limit]
        if fits:
            return f"at most {max(fits)} stages of '{ring.name}' fit beside the rest"
    largest = max(wanted, key=lambda w: (w.bytes, w.name))
    if largest.buffer is not None and largest.buffer.handed:
        return f"no stage of '{largest.buffer.name}' fits beside the rest; choose smaller tiles"
    return f"claim {end - limit} bytes less: {largest.name} has the most"


def _fewer(view: View, ring: Buffer) -> list[int]:
    """The smaller stage counts that an owner offers, where the count is a fact of that kind."""
    name = ring.producer.port.stages
    for end in (ring.producer, *ring.consumers):
        for fact in end.instance.contract.facts:
            if fact.name == name and fact.kind == "chooses":
                offered = [int(v) for v in fact.values if not isinstance(v, str)]
                return [n for n in offered if n < ring.stages]
    return list(range(1, ring.stages))


def _end_with(wanted: list[Wanted], ring: Buffer, stages: int) -> int:
    """The end of the arena with so many stages of a ring."""
    items = [
        Item(w.name, w.bytes // ring.stages * stages, w.align, w.live)
        if w.buffer == ring or w.name in (f"{ring.name}.full", f"{ring.name}.empty")
        else w.item
        for w in wanted
        if w.bytes
    ]
    return pack(items).end

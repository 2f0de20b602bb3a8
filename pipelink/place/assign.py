"""From a checked view to placements: warps, registers, shared memory, barriers; every misfit at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelink.abi import Claim
from pipelink.diagnostics import MOST_FINDINGS, Diagnostic, FilePlace, Place, Where, checkpoint
from pipelink.model import BarrierPlan, Instance, MbarrierPlan, Region
from pipelink.place.barriers import BarrierNeed, place_barriers
from pipelink.place.memory import SWIZZLE_ALIGN, Need, place_memory
from pipelink.place.registers import (
    RoleNeed,
    excess,
    largest_fitting,
    launch_registers,
    pool,
)
from pipelink.view import End, View, who


@dataclass(frozen=True)
class Ring:
    """A shared-memory channel: its regions and barriers are named after the producer's port."""

    producer: End
    consumer: End
    stages: int

    @property
    def name(self) -> str:
        return self.producer.name


@dataclass(frozen=True)
class RolePlace:
    """A role's warps; registers where setmaxnreg is used."""

    name: str
    first_warp: int
    warps: int
    registers: int | None


@dataclass(frozen=True)
class Assignment:
    """All placements of a kernel."""

    threads: int
    launch_registers: int
    shared_bytes: int
    roles: tuple[RolePlace, ...]
    rings: tuple[Ring, ...]
    regions: tuple[Region, ...]
    mbarriers: tuple[MbarrierPlan, ...]
    barriers: tuple[BarrierPlan, ...]


@dataclass(frozen=True)
class _Wanted:
    """A region with what the map and a diagnostic say of it."""

    need: Need
    owners: tuple[str, ...]
    reason: str
    place: Where
    arrivals: int = 0


def assign(view: View) -> Assignment:
    """Places everything; raises with every resource that does not fit."""
    faults: list[Diagnostic] = []
    roles, launch = _roles(view, faults)
    rings = tuple(_rings(view))
    wanted = [*_ring_regions(view, rings), *_claimed_regions(view), *_mbarrier_regions(view, rings)]
    offsets, end = place_memory([w.need for w in wanted])
    if end > view.arch.shared_per_block:
        faults.append(_too_much_memory(view, wanted, end, rings))
    barriers = _barriers(view, faults)
    checkpoint(faults)
    return Assignment(
        threads=32 * sum(r.warps for r in roles),
        launch_registers=launch,
        shared_bytes=end,
        roles=roles,
        rings=rings,
        regions=tuple(
            Region(
                w.need.name, w.owners, offsets[w.need.name], w.need.bytes, w.need.align, w.reason
            )
            for w in wanted
            if not w.arrivals
        ),
        mbarriers=tuple(
            MbarrierPlan(
                w.need.name, w.owners, offsets[w.need.name], w.need.bytes // 8, w.arrivals, w.reason
            )
            for w in wanted
            if w.arrivals
        ),
        barriers=barriers,
    )


def _roles(view: View, faults: list[Diagnostic]) -> tuple[tuple[RolePlace, ...], int]:
    arch = view.arch
    names = [r.name for r in view.kernel.manifest.roles]
    warps = {name: view.warps(name) for name in names}
    threads = 32 * sum(warps.values())
    if not 0 < threads <= arch.threads_per_block:
        listing = ", ".join(f"{n} {32 * w}" for n, w in warps.items())
        faults.append(
            Diagnostic(
                "PL033",
                f"the roles have {threads} threads ({listing}), a block of {arch.name} has "
                f"1 to {arch.threads_per_block}",
                FilePlace(view.kernel.manifest.path, "roles"),
                tuple(dict.fromkeys(_warp_places(view))),
            )
        )
        return (), 0
    launch = launch_registers(arch, threads)
    claims = {name: _register_claim(view, name) for name in names}
    moves = arch.setmaxnreg and len(names) > 1 and all(w % 4 == 0 for w in warps.values())
    if moves and all(claims.values()):
        needs = [RoleNeed(n, 32 * warps[n], c[2]) for n, c in claims.items() if c]
        if excess(arch, needs) > 0:
            faults.append(_too_many_registers(view, needs))
    else:
        faults += [
            _above_launch(view, n, c, launch, threads)
            for n, c in claims.items()
            if c and c[2] > launch
        ]
    first, placed = 0, []
    for name in names:
        claim = claims[name]
        registers = claim[2] if moves and claim and all(claims.values()) else None
        placed.append(RolePlace(name, first, warps[name], registers))
        first += warps[name]
    return tuple(placed), launch


def _register_claim(view: View, role: str) -> tuple[Instance, int, int] | None:
    """The largest register claim of a role's steps: (instance, index, registers)."""
    found = [(i, *c) for i in view.role_instances(role) if (c := view.claim(i, "registers"))]
    return max(found, key=lambda f: f[2], default=None)


def _claim_places(view: View, needs: list[RoleNeed]) -> list[Where]:
    claims = [_register_claim(view, n.name) for n in needs]
    return [Place(c[0].name, "claims", c[1], f"{c[2]} registers a thread") for c in claims if c]


def _register_causes(view: View, needs: list[RoleNeed]) -> Iterator[Where]:
    for need in needs:
        claim = _register_claim(view, need.name)
        if claim:
            yield from view.causes(claim[0], claim[0].contract.claims[claim[1]].amount)


def _too_many_registers(view: View, needs: list[RoleNeed]) -> Diagnostic:
    arch = view.arch
    threads = sum(n.threads for n in needs)
    total = sum(n.threads * n.registers for n in needs)
    listing = " + ".join(f"{n.threads} x {n.registers} ({n.name})" for n in needs)
    fits = [(n, largest_fitting(arch, needs, n.name)) for n in needs]
    offers = [_offer(needs, n.name, f) for n, f in fits if f]
    places = _claim_places(view, needs)
    return Diagnostic(
        "PL031",
        f"the roles claim {total} registers, the pool has {pool(arch, threads)}: {listing}",
        places[0],
        (*places[1:], *dict.fromkeys(_warp_places(view)), *_register_causes(view, needs)),
        notes=(f"a launch of {threads} threads has {launch_registers(arch, threads)} each",),
        help=f"what fits: {', or '.join(offers)}" if offers else "use fewer roles or smaller tiles",
    )


def _offer(needs: list[RoleNeed], name: str, fitting: int) -> str:
    """The registers of every role, with those of role `name` lowered to what fits."""
    return " and ".join(f"{fitting if n.name == name else n.registers} ({n.name})" for n in needs)


def _warp_places(view: View) -> Iterator[Where]:
    """The claims that make the block as large as it is."""
    for instance, index, claim in view.claims("warps"):
        threads = 32 * view.value(instance, claim.amount)
        yield Place(instance.name, "claims", index, f"{threads} threads of '{instance.name}'")
        yield from view.causes(instance, claim.amount)


def _above_launch(
    view: View, role: str, claim: tuple[Instance, int, int], launch: int, threads: int
) -> Diagnostic:
    instance, index, registers = claim
    return Diagnostic(
        "PL031",
        f"role '{role}' needs {registers} registers a thread by {who(instance)}, a launch of {threads} "
        f"threads has {launch}",
        Place(instance.name, "claims", index),
        (
            *view.causes(instance, instance.contract.claims[index].amount),
            *dict.fromkeys(_warp_places(view)),
        ),
        notes=(f"{registers} x {threads} = {registers * threads}, of {launch * threads}",),
        help="registers move between roles only if each role is of whole warpgroups and claims registers",
    )


def _rings(view: View) -> Iterator[Ring]:
    for producer, consumer in view.channels():
        if producer.port.space == "shared":
            yield Ring(producer, consumer, view.value(producer.instance, producer.port.stages))


def _ring_regions(view: View, rings: tuple[Ring, ...]) -> Iterator[_Wanted]:
    for ring in rings:
        end = ring.producer
        for part in end.port.parts:
            sizes = view.sides(end.instance, part.shape)
            size = view.part_bytes(end.instance, part)
            align = SWIZZLE_ALIGN[part.swizzle]
            yield _Wanted(
                Need(f"{ring.name}.{part.name}", size * ring.stages, align),
                (end.instance.name, ring.consumer.instance.name),
                f"{ring.stages} stages of {'x'.join(map(str, sizes))} {part.element}, "
                + (f"{part.swizzle}-byte swizzle" if part.swizzle else "not swizzled"),
                Place(
                    end.instance.name,
                    "ports",
                    end.index,
                    f"part '{part.name}': {size * ring.stages} bytes",
                ),
            )


def _claimed_regions(view: View) -> Iterator[_Wanted]:
    for instance, index, claim in view.claims("shared"):
        each, copies = view.value(instance, claim.amount), view.scopes(instance, claim)
        size = each if copies == 1 else -(-each // claim.align) * claim.align * copies
        share = f", {copies} times: one a {claim.scope}" if claim.scope != "role" else ""
        yield _Wanted(
            Need(f"{instance.name}.{claim.name}", size, claim.align),
            (instance.name,),
            f"claimed as {claim.amount}{share}",
            Place(instance.name, "claims", index, f"{size} bytes"),
        )


def _mbarrier_regions(view: View, rings: tuple[Ring, ...]) -> Iterator[_Wanted]:
    for ring in rings:
        owners = (ring.producer.instance.name, ring.consumer.instance.name)
        for what, end in (("full", ring.producer), ("empty", ring.consumer)):
            arrivals = view.arrivals(end.instance, end.port.by, end.port.arrivals)
            yield _Wanted(
                Need(f"{ring.name}.{what}", 8 * ring.stages, 8),
                owners,
                f"{ring.stages} stages, {arrivals} arrivals by {end.instance.name}{_by(end.port.by)}",
                Place(end.instance.name, "ports", end.index),
                arrivals,
            )
    for instance, index, claim in view.claims("mbarrier"):
        arrivals = view.arrivals(instance, claim.by, claim.arrivals)
        yield _Wanted(
            Need(f"{instance.name}.{claim.name}", 8 * view.value(instance, claim.amount), 8),
            (instance.name,),
            f"{arrivals} arrivals{_by(claim.by) or ', as claimed'}",
            Place(instance.name, "claims", index),
            arrivals,
        )


def _by(arriver: str) -> str:
    return f": {arriver.replace('_', ' ')}" if arriver else ""


def _too_much_memory(
    view: View, wanted: list[_Wanted], end: int, rings: tuple[Ring, ...]
) -> Diagnostic:
    limit = view.arch.shared_per_block
    largest = sorted(wanted, key=lambda w: (-w.need.bytes, w.need.name))[:4]
    notes = tuple(f"{w.need.name}: {w.need.bytes} bytes, {w.reason}" for w in largest)
    help_ = f"claim less: {largest[0].need.name} has the most"
    if rings and 2 * sum(b for r in rings for b in _bytes_of(wanted, r)) > end:
        ring = max(rings, key=lambda r: sum(_bytes_of(wanted, r)))
        stage = sum(_bytes_of(wanted, ring)) // ring.stages + 16
        fits = (limit - (end - stage * ring.stages)) // stage
        offered = _stage_choices(view, ring)
        if offered:
            fits = max((n for n in offered if n <= fits), default=0)
        if fits >= 1:
            help_ = f"at most {fits} stages of '{ring.name}' fit beside the rest"
        else:
            help_ = f"no stage of '{ring.name}' fits beside the rest; choose smaller tiles"
    return Diagnostic(
        "PL030",
        f"the kernel needs {end} bytes of shared memory, a block of {view.arch.name} has {limit}",
        largest[0].place,
        (*dict.fromkeys(w.place for w in largest[1:]), *_ring_causes(view, rings)),
        notes=notes,
        help=help_,
    )


def _ring_causes(view: View, rings: tuple[Ring, ...]) -> Iterator[Where]:
    """Where the sizes of rings are fixed."""
    for ring in rings:
        sides = [side for part in ring.producer.port.parts for side in part.shape]
        yield from view.causes(ring.producer.instance, ring.producer.port.stages, *sides)


def _stage_choices(view: View, ring: Ring) -> list[int]:
    """The stage counts that an owner offers, where the count of a ring is a fact of that kind."""
    name = ring.producer.port.stages
    for instance in (ring.producer.instance, ring.consumer.instance):
        for fact in instance.contract.facts:
            if fact.name == name and fact.kind == "chooses":
                return [int(v) for v in fact.values if not isinstance(v, str)]
    return []


def _bytes_of(wanted: list[_Wanted], ring: Ring) -> list[int]:
    return [
        w.need.bytes for w in wanted if w.need.name.startswith(f"{ring.name}.") and not w.arrivals
    ]


def _barriers(view: View, faults: list[Diagnostic]) -> tuple[BarrierPlan, ...]:
    claims = {f"{i.name}.{c.name}": (i, n, c) for i, n, c in view.claims("barrier")}
    needs = [
        BarrierNeed(name, c.fixed, view.value(i, c.count) * view.scopes(i, c))
        for name, (i, _, c) in claims.items()
    ]
    ids, failed = place_barriers(needs, view.arch.named_barriers)
    for need in [n for n in needs if n.name in failed][:MOST_FINDINGS]:
        faults.append(_no_barrier(view, claims, need, failed[need.name]))
    return tuple(
        BarrierPlan(
            ids[need.name],
            need.count,
            claims[need.name][0].name,
            claims[need.name][2].name,
            view.barrier_threads(claims[need.name][0], claims[need.name][2]),
            "fixed by its owner" if need.fixed is not None else "first free id",
        )
        for need in needs
        if need.name in ids
    )


def _no_barrier(
    view: View, claims: dict[str, tuple[Instance, int, Claim]], need: BarrierNeed, other: str
) -> Diagnostic:
    instance, index, claim = claims[need.name]
    place, last = Place(instance.name, "claims", index), view.arch.named_barriers - 1
    if claim.fixed is None:
        what = f"no {need.count} named barriers are" if need.count > 1 else "no named barrier is"
        message = f"{what} left for '{claim.name}' of {who(instance)}"
        others = [claim for name, claim in claims.items() if name != need.name][:6]
        taken = tuple(
            Place(i.name, "claims", n, f"{view.value(i, c.count) * view.scopes(i, c)} of them")
            for i, n, c in others
        )
        note = f"a block has {last + 1}, id 0 is __syncthreads()"
        return Diagnostic("PL032", message, place, taken, notes=(note,))
    if other:
        owner, other_index, _ = claims[other]
        ids = (
            f"barrier {claim.fixed} is"
            if need.count == 1
            else f"barriers from {claim.fixed} on are"
        )
        return Diagnostic(
            "PL032",
            f"{ids} fixed by {who(owner)} and by {who(instance)}",
            place,
            (Place(owner.name, "claims", other_index),),
            help="leave one of the ids to the link",
        )
    top = claim.fixed + need.count - 1
    reach = f"{claim.fixed}" if need.count == 1 else f"{claim.fixed} + {need.count - 1} = {top}"
    over = f": {top} > {last}" if top > last else ": 0 is __syncthreads()"
    return Diagnostic(
        "PL032",
        f"barrier '{claim.name}' of {who(instance)} is fixed to {reach}{over}",
        place,
        notes=(f"ids are 1 to {last}; a larger one would silently become another",),
        help="leave the id to the link",
    )

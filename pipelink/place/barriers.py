"""Named barriers: ids of a block. Id 0 is __syncthreads(). Barriers of different phases may have the
same ids, as all threads meet in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelink.abi import Claim
from pipelink.diagnostics import Diagnostic, Place
from pipelink.model import BarrierPlan, Instance, Manifest
from pipelink.place.conflict import conflict
from pipelink.place.pack import Item, pack
from pipelink.place.shared import phases_of
from pipelink.view import View, who

RESERVED = "__syncthreads()"


@dataclass(frozen=True)
class RoleBarrier:
    """A barrier of the glue, where the warps of a role wait for one another."""

    phase: str
    role: str
    threads: int
    reason: str

    @property
    def name(self) -> str:
        return f"{self.phase}.{self.role}"

    @property
    def key(self) -> str:
        """A name that no claim has."""
        return f"glue {self.name}"


@dataclass(frozen=True)
class _Claimed:
    instance: Instance
    index: int
    claim: Claim
    item: Item

    @property
    def place(self) -> Place:
        count = self.item.size
        label = f"{count} of them" if count > 1 else ""
        return Place(self.instance.name, "claims", self.index, label)


def place_barriers(
    view: View, own: Sequence[RoleBarrier], faults: list[Diagnostic]
) -> tuple[BarrierPlan, ...]:
    """An id for every barrier that is claimed, and for those of the glue."""
    last = view.arch.named_barriers - 1
    claimed = [_claimed(view, *row) for row in view.claims("barrier")]
    found = [*_fixed_faults(claimed, last)]
    if found:
        faults += found
        return ()
    manifest = view.kernel.manifest
    always = _bits(manifest, [p.name for p in manifest.phases])
    items = [Item("", 1, 1, always, 0), *(c.item for c in claimed)]
    items += [Item(b.key, 1, 1, _bits(manifest, [b.phase])) for b in own]
    items, crowded = _fewest(items, last + 1)
    packing = pack(items, last + 1)
    if crowded or packing.end > last + 1:
        faults.append(_too_many(view, claimed, own, items))
        return ()
    ids = packing.offsets
    return (
        *(_plan(view, c, ids[c.item.name]) for c in claimed),
        *(BarrierPlan(ids[b.key], 1, "", b.name, b.threads, b.reason) for b in own),
    )


def _fewest(items: list[Item], most: int) -> tuple[list[Item], bool]:
    """Where more barriers are wanted at a moment than there are ids, enough of them to show it."""
    for bit in range(max(i.live for i in items).bit_length()):
        live = [i for i in items if i.live >> bit & 1]
        if len(live) > most:
            order = sorted(live, key=lambda i: (i.fixed is None, -i.size, i.name))
            return order[: most + 1], True
    return items, False


def _plan(view: View, claimed: _Claimed, first: int) -> BarrierPlan:
    instance, claim = claimed.instance, claimed.claim
    threads = view.barrier_threads(instance, claim)
    why = "fixed by its owner" if claim.fixed is not None else "first free id"
    return BarrierPlan(first, claimed.item.size, instance.name, claim.name, threads, why)


def _bits(manifest: Manifest, phases: Sequence[str]) -> int:
    return sum(1 << n for n, p in enumerate(manifest.phases) if p.name in phases)


def _claimed(view: View, instance: Instance, index: int, claim: Claim) -> _Claimed:
    count = view.value(instance, claim.count) * view.scopes(instance, claim)
    phases = phases_of(view, instance)
    if claim.during:
        steps = {(instance.name, entry) for entry in claim.during}
        phases = [
            p.name
            for p in view.kernel.manifest.phases
            if any(step in steps for role in p.roles for step in role.steps)
        ] or phases
    live = _bits(view.kernel.manifest, phases)
    item = Item(f"{instance.name}.{claim.name}", count, 1, live, claim.fixed)
    return _Claimed(instance, index, claim, item)


def _fixed_faults(claimed: list[_Claimed], last: int) -> Iterator[Diagnostic]:
    """Fixed ids that there are not, and ids that two owners fix."""
    fixed = sorted((c for c in claimed if c.claim.fixed is not None), key=lambda c: c.item.name)
    for number, one in enumerate(fixed):
        first, count = one.claim.fixed or 0, one.item.size
        top = first + count - 1
        if first < 1 or top > last:
            yield _no_such_id(one, first, top, last)
            continue
        for other in fixed[:number]:
            low = other.claim.fixed or 0
            together = other.item.live & one.item.live
            if together and low < first + count and first < low + other.item.size:
                ids = f"barrier {first} is" if count == 1 else f"barriers from {first} on are"
                yield Diagnostic(
                    "PL032",
                    f"{ids} fixed by {who(other.instance)} and by {who(one.instance)}",
                    one.place,
                    (other.place,),
                    help="leave one of the ids to the link",
                )


def _no_such_id(one: _Claimed, first: int, top: int, last: int) -> Diagnostic:
    reach = f"{first}" if top == first else f"{first} + {top - first} = {top}"
    over = f": {top} > {last}" if top > last else ": 0 is __syncthreads()"
    return Diagnostic(
        "PL032",
        f"barrier '{one.claim.name}' of {who(one.instance)} is fixed to {reach}{over}",
        one.place,
        notes=(f"ids are 1 to {last}; a larger one would silently become another",),
        help="leave the id to the link",
    )


def _too_many(
    view: View, claimed: list[_Claimed], own: Sequence[RoleBarrier], items: list[Item]
) -> Diagnostic:
    """The smallest set of claims that have no ids together."""
    most = view.arch.named_barriers
    names = {i.name for i in conflict(items, most)}
    clash = [c for c in claimed if c.item.name in names]
    glue = [b for b in own if b.key in names]
    count = sum(c.item.size for c in clash) + len(glue)
    fixed = [c for c in clash if c.claim.fixed is not None]
    notes = [f"{c.item.name}: {c.item.size} for {_threads(view, c)} threads" for c in clash]
    notes += [f"{b.name}: 1 of the glue, {b.reason}" for b in glue]
    first = clash[0] if clash else None
    apart = ", and the fixed ids leave no room for the others" if fixed and count < most else ""
    return Diagnostic(
        "PL032",
        f"{count} named barriers are needed at once{apart}, a block of {view.arch.name} has {most - 1} "
        f"beside {RESERVED}",
        first.place if first else Place("", "claims", 0),
        tuple(c.place for c in clash[1:]),
        notes=tuple(notes),
        help="leave the ids to the link" if apart else f"claim {count - most + 1} fewer",
    )


def _threads(view: View, claimed: _Claimed) -> int:
    return view.barrier_threads(claimed.instance, claimed.claim)

"""Columns of tensor memory, on targets that have it. The glue allocates all that is needed at once, a
power of two from 32 on (PTX ISA, "tcgen05.alloc"); with one block on an SM the allocation starts at
column 0, so a claim's first column is a constant."""

from __future__ import annotations

from pipelink.abi import Claim
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.model import ColumnsPlan, Instance
from pipelink.place.conflict import conflict
from pipelink.place.moments import Moments
from pipelink.place.pack import Item, pack
from pipelink.place.program import RoleActs
from pipelink.place.shared import phases_of
from pipelink.view import View, who

Claimed = tuple[Instance, int, Claim]

LEAST = 32  # columns of an allocation; claims start at multiples of it


def place_columns(
    view: View, program: tuple[RoleActs, ...], faults: list[Diagnostic]
) -> tuple[tuple[ColumnsPlan, ...], int]:
    """The first column of each claim, and the columns to allocate; 0 where none is claimed."""
    claims = list(view.claims("tensor_columns"))
    if not claims:
        return (), 0
    impossible = _impossible(view, claims[0][0], claims[0][1])
    if impossible is not None:
        faults.append(impossible)
        return (), 0
    moments = Moments(view.kernel.manifest, program, fine=False)
    items = {f"{i.name}.{c.name}": _item(view, i, c, moments) for i, _, c in claims}
    packing = pack(list(items.values()), view.arch.tensor_columns)
    if packing.end > view.arch.tensor_columns:
        faults.append(_too_many(view, claims, list(items.values()), packing.end))
        return (), 0
    why = "first columns that are free in its phases"
    plans = tuple(
        ColumnsPlan(
            packing.offsets[f"{i.name}.{c.name}"], view.value(i, c.amount), i.name, c.name, why
        )
        for i, _, c in claims
    )
    return plans, max(LEAST, 1 << (packing.end - 1).bit_length())


def _item(view: View, instance: Instance, claim: Claim, moments: Moments) -> Item:
    live = moments.between(phases_of(view, instance))
    return Item(f"{instance.name}.{claim.name}", view.value(instance, claim.amount), LEAST, live)


def _impossible(view: View, instance: Instance, index: int) -> Diagnostic | None:
    """A target without tensor memory, or blocks that would have to share it."""
    place, blocks = Place(instance.name, "claims", index), view.kernel.manifest.blocks_per_sm
    if not view.arch.tensor_columns:
        return Diagnostic(
            "PL052",
            f"{who(instance)} claims tensor memory, which {view.arch.name} does not have",
            place,
            help="link for a target that has it: sm_100a or sm_103a",
        )
    if blocks > 1:
        return Diagnostic(
            "PL052",
            f"{who(instance)} claims tensor memory in a kernel of {blocks} blocks an SM",
            place,
            (FilePlace(view.kernel.manifest.path, "blocks_per_sm"),),
            notes=("columns are constants where one block of an SM has them all",),
            help="leave blocks_per_sm at 1",
        )
    return None


def _too_many(view: View, claims: list[Claimed], items: list[Item], end: int) -> Diagnostic:
    """The smallest set of claims that have no columns together."""
    most = view.arch.tensor_columns
    clash = {i.name for i in conflict(items, most)}
    rows = [(i, n, c) for i, n, c in claims if f"{i.name}.{c.name}" in clash]
    sizes = ", ".join(f"{i.name}.{c.name} {view.value(i, c.amount)}" for i, _, c in rows)
    return Diagnostic(
        "PL052",
        f"the kernel needs {end} columns of tensor memory, a block of {view.arch.name} has {most}",
        Place(rows[0][0].name, "claims", rows[0][1]),
        tuple(Place(i.name, "claims", n) for i, n, _ in rows[1:]),
        notes=(f"these alone do not fit: {sizes}",),
        help=f"claim {end - most} columns less, or let them live in different phases",
    )

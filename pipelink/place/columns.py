"""Columns of tensor memory, on targets that have it. The glue allocates all that is needed at once, a
power of two from 32 on (PTX ISA, "tcgen05.alloc"); with one block on an SM the allocation starts at
column 0, so a claim's first column is a constant."""

from __future__ import annotations

from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.model import ColumnsPlan
from pipelink.place.conflict import conflict
from pipelink.place.moments import Moments
from pipelink.place.pack import Item, pack
from pipelink.place.program import RoleActs
from pipelink.place.shared import phases_of
from pipelink.view import View, who

LEAST = 32  # columns of an allocation; claims start at multiples of it


def place_columns(
    view: View, program: tuple[RoleActs, ...], faults: list[Diagnostic]
) -> tuple[tuple[ColumnsPlan, ...], int]:
    """The first column of each claim, and the columns to allocate; 0 where none is claimed."""
    claims = list(view.claims("tensor_columns"))
    if not claims:
        return (), 0
    instance, index, _ = claims[0]
    if not view.arch.tensor_columns:
        faults.append(
            Diagnostic(
                "PL052",
                f"{who(instance)} claims tensor memory, which {view.arch.name} does not have",
                Place(instance.name, "claims", index),
            )
        )
        return (), 0
    if view.kernel.manifest.blocks_per_sm > 1:
        faults.append(
            Diagnostic(
                "PL052",
                f"{who(instance)} claims tensor memory in a kernel of {view.kernel.manifest.blocks_per_sm} "
                "blocks an SM",
                Place(instance.name, "claims", index),
                (FilePlace(view.kernel.manifest.path, "blocks_per_sm"),),
                notes=("columns are constants where one block of an SM has them all",),
                help="leave blocks_per_sm at 1",
            )
        )
        return (), 0
    moments = Moments(view.kernel.manifest, program, fine=False)
    items = {
        f"{i.name}.{c.name}": Item(
            f"{i.name}.{c.name}",
            view.value(i, c.amount),
            LEAST,
            moments.between(phases_of(view, i)),
        )
        for i, _, c in claims
    }
    most = view.arch.tensor_columns
    packing = pack(list(items.values()), most)
    if packing.end > most:
        clash = {i.name for i in conflict(list(items.values()), most)}
        rows = [(i, n, c) for i, n, c in claims if f"{i.name}.{c.name}" in clash]
        sizes = ", ".join(f"{i.name}.{c.name} {view.value(i, c.amount)}" for i, _, c in rows)
        faults.append(
            Diagnostic(
                "PL052",
                f"the kernel needs {packing.end} columns of tensor memory, a block of {view.arch.name} has "
                f"{most}",
                Place(rows[0][0].name, "claims", rows[0][1]),
                tuple(Place(i.name, "claims", n) for i, n, _ in rows[1:]),
                notes=(f"these alone do not fit: {sizes}",),
                help=f"claim {packing.end - most} columns less, or let them live in different phases",
            )
        )
        return (), 0
    return (
        tuple(
            ColumnsPlan(
                packing.offsets[name],
                item.size,
                name.split(".")[0],
                name.split(".")[1],
                "first columns that are free in its phases",
            )
            for name, item in items.items()
        ),
        max(LEAST, 1 << (packing.end - 1).bit_length()),
    )

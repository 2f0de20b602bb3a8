"""From a checked view to placements: every resource of the block, and every misfit at once."""

from __future__ import annotations

from dataclasses import dataclass

from pipelink.diagnostics import Diagnostic, checkpoint
from pipelink.model import BarrierPlan, ColumnsPlan
from pipelink.place.barriers import RoleBarrier, place_barriers
from pipelink.place.columns import place_columns
from pipelink.place.program import RoleActs, program
from pipelink.place.routes import Route, routes
from pipelink.place.shared import Arena, place_shared
from pipelink.place.sync import Spans, Wait, waits
from pipelink.place.warps import Block, place_block
from pipelink.view import View


@dataclass(frozen=True)
class Assignment:
    """All placements of a kernel. `waits` are the barriers of the glue within a role of a phase."""

    block: Block
    routes: tuple[Route, ...]
    program: tuple[RoleActs, ...]
    arena: Arena
    barriers: tuple[BarrierPlan, ...]
    columns: tuple[ColumnsPlan, ...]
    allocated_columns: int
    waits: dict[tuple[str, str], tuple[Wait, ...]]


def assign(view: View) -> Assignment:
    """Places everything; raises with every resource that does not fit."""
    faults: list[Diagnostic] = []
    block = place_block(view, faults)
    ways = routes(view)
    acts = program(view, ways)
    arena = place_shared(view, ways, acts, faults)
    between = _waits(view, acts, arena)
    barriers = place_barriers(view, _role_barriers(view, block, between), faults)
    columns, allocated = place_columns(view, acts, faults)
    checkpoint(faults)
    return Assignment(block, ways, acts, arena, barriers, columns, allocated, between)


def _waits(
    view: View, acts: tuple[RoleActs, ...], arena: Arena
) -> dict[tuple[str, str], tuple[Wait, ...]]:
    spans = _spans(arena)
    again = {p.name: p.schedule is not None for p in view.kernel.manifest.phases}
    return {(r.phase, r.role): waits(r.acts, spans, again[r.phase]) for r in acts}


def _spans(arena: Arena) -> Spans:
    """The bytes of each claim, and of each buffer: those of its parts."""
    spans: dict[str, tuple[tuple[int, int], ...]] = {}
    for region in arena.regions:
        for name in (region.name, region.name.rsplit(".", 1)[0]):
            end = region.offset + region.bytes
            spans[name] = (*spans.get(name, ()), (region.offset, end))
    return spans


def _role_barriers(
    view: View, block: Block, between: dict[tuple[str, str], tuple[Wait, ...]]
) -> list[RoleBarrier]:
    """A named barrier for each role that waits, unless it is one warp or the whole block."""
    found = []
    for (phase, role), needed in between.items():
        warps = view.warps(role)
        if any(not w.warp for w in needed) and warps > 1 and 32 * warps < block.threads:
            found.append(RoleBarrier(phase, role, 32 * warps, needed[0].reason))
    return found

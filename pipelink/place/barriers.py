"""Named barriers: ids of a block. Id 0 is __syncthreads()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RESERVED = frozenset({0})


@dataclass(frozen=True)
class BarrierNeed:
    """Barriers of consecutive ids, with the first one's id if the owner fixed it."""

    name: str
    fixed: int | None
    count: int = 1


def place_barriers(
    needs: Sequence[BarrierNeed], count: int
) -> tuple[dict[str, int], dict[str, str]]:
    """The first id of each need; and the needs that have none, each with the need that has its ids
    (empty if none is left, or there is no such id)."""
    ids: dict[str, int] = {}
    failed: dict[str, str] = {}
    taken = dict.fromkeys(RESERVED, "")
    for need in sorted(needs, key=lambda n: (n.fixed is None, -n.count, n.name)):
        starts = range(count) if need.fixed is None else (need.fixed,)
        spans = [range(start, start + need.count) for start in starts]
        first = next((s for s in spans if _free(s, taken, count)), None)
        if first is None:
            wanted = spans[0] if need.fixed is not None else ()
            failed[need.name] = next((name for i, name in sorted(taken.items()) if i in wanted), "")
            continue
        ids[need.name] = first.start
        taken |= dict.fromkeys(first, need.name)
    return ids, failed


def _free(span: range, taken: dict[int, str], count: int) -> bool:
    return span.start >= 0 and span.stop <= count and not any(i in taken for i in span)

"""Named barriers: ids of a block. Id 0 is __syncthreads()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RESERVED = {0}


@dataclass(frozen=True)
class BarrierNeed:
    """A barrier, with an id if its owner fixed one."""

    name: str
    fixed: int | None


def place_barriers(needs: Sequence[BarrierNeed], count: int) -> tuple[dict[str, int], list[str]]:
    """The id of each need, and the needs for which none was left or whose id is taken."""
    ids: dict[str, int] = {}
    failed: list[str] = []
    taken = dict.fromkeys(RESERVED, "")
    for need in sorted(needs, key=lambda n: (n.fixed is None, n.name)):
        free = [i for i in range(count) if i not in taken]
        wanted = need.fixed if need.fixed is not None else (free[0] if free else count)
        if wanted in taken or not 0 <= wanted < count:
            failed.append(need.name)
            continue
        taken[wanted] = need.name
        ids[need.name] = wanted
    return ids, failed

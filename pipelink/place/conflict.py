"""The smallest set of claims that do not fit together: those to blame, and no others."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pipelink.place.pack import (
    Item,
    cliques_of,
    end_of,
    groups_of,
    in_best_order,
    pack,
    peeled,
    proven_end,
    rounded_up,
)

MOST_WORK = 100_000  # sets that it looks at closely, each counted as the square of its items
MOST_SETS = 50_000  # sets of one count, of one moment, that `conflict` adds up
FEW = 8  # items of a set that it packs for that


def conflict(items: Sequence[Item], capacity: int) -> tuple[Item, ...]:
    """The fewest items that can't be packed in the capacity, the largest of these; () if all can be.

    Without any one of them the rest fits. That no other set has fewer is certain where the sizes of a
    moment decide, or alignment among few items; not where only the lifetimes of many do.
    """
    items = sorted(items, key=lambda i: i.name)
    if pack(items, capacity).end <= capacity:
        return ()
    core = peeled(items, capacity)[0]  # what fits whatever the others do is in no smallest set
    groups, cliques = groups_of(core), cliques_of(core)
    best = min((s for c in cliques if (s := _by_sum(c, capacity))), key=_rank, default=())
    left = MOST_WORK
    for count in range(1, (len(best) or len(core) - 1) + 1):
        pools = groups if math.comb(len(core), count) <= MOST_SETS else cliques
        sets = (_tight(p, count, capacity) for p in pools if math.comb(len(p), count) <= MOST_SETS)
        some = list(itertools.islice(itertools.chain.from_iterable(sets), left // count**2))
        left -= len(some) * count**2
        failing = (s for s in some if not _fits(s, capacity, exact=count <= FEW))
        if found := min(failing, key=_rank, default=()):
            best = min(found, best or found, key=_rank)
            break
    return _thinned(best or items, capacity)


def _rank(chosen: Sequence[Item]) -> tuple[int, int, list[str]]:
    return len(chosen), -sum(i.size for i in chosen), sorted(i.name for i in chosen)


def _by_sum(clique: Sequence[Item], capacity: int) -> tuple[Item, ...]:
    """The largest items of a moment, as many as are too large together; () if all fit by size."""
    order = sorted(clique, key=lambda i: (-i.size, i.name))
    count = bisect_right(list(itertools.accumulate(i.size for i in order)), capacity)
    return tuple(order[: count + 1]) if count < len(order) else ()


def _tight(pool: Sequence[Item], count: int, capacity: int) -> Iterator[tuple[Item, ...]]:
    """The sets of `count` items that may not fit. Others surely do: one after the other, widest
    alignment first, each with its size rounded up to its alignment; a fixed one costs, besides, the
    rest of the gap below it and the rounding above it."""
    free = [i for i in pool if i.fixed is None]
    lost = max((i.size for i in free), default=1) + max((i.align for i in free), default=1) - 2
    weight = {}
    for item in pool:
        weight[item.name] = rounded_up(item.size, item.align)
        if item.fixed is not None:
            inside = item.fixed + item.size <= capacity
            weight[item.name] = item.size + lost if inside else capacity + 1
    for chosen in itertools.combinations(pool, count):
        if sum(weight[i.name] for i in chosen) > capacity:
            yield chosen


def _fits(items: Sequence[Item], capacity: int, exact: bool = True) -> bool:
    """Whether they can be packed; if it need not be exact, yes unless the bound says no."""
    if proven_end(items) > capacity:
        return False
    if not exact or end_of(items, in_best_order(items)) <= capacity:
        return True
    return pack(items, capacity).end <= capacity


def _thinned(items: Sequence[Item], capacity: int) -> tuple[Item, ...]:
    """What is left when each item goes, smallest first, without which the rest still fails."""
    kept = sorted(items, key=lambda i: i.name)
    for item in sorted(items, key=lambda i: (i.size, i.name)):
        rest = [i for i in kept if i is not item]
        if not _fits(rest, capacity):
            kept = rest
    return tuple(kept)

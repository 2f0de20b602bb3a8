"""A tile to another one that lies otherwise: which thread takes which elements, and how.

We choose the fragment in between. Each side of the tile falls into a block of values that one thread
has, threads beside one another, and repeats; a side that doesn't divide is rounded up, as long as
those past its end are the last threads. Where both tiles lie alike, they are taken as one row of
elements. Where they have different major sides, matrices turn pairs of 16-bit values, or a thread
has blocks that are wide along both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from pipelink.abi import ELEMENT_BYTES
from pipelink.arch import Arch
from pipelink.transfer.moves import load, store
from pipelink.transfer.places import Refused
from pipelink.transfer.records import WAVEFRONT, Fragment, Moves, Tile

_WIDEST = 16
_MOST = 40  # splits that are looked at
_ENOUGH = 1.5  # times the wavefronts that no copy can do without: no better one is looked for
Run = tuple[int, int]  # a side, and how many threads stand along it


@dataclass(frozen=True)
class _Split:
    """How a tile is shared out: values along each side, and runs of threads, the fastest first."""

    values: tuple[int, ...]
    runs: tuple[Run, ...]
    first: int  # the side whose values come first


def copy(source: Tile, target: Tile, threads: int, arch: Arch) -> tuple[Fragment, Moves, Moves]:
    """What each thread loads of the source and stores to the target, and the fragment of it."""
    if (source.element, source.shape) != (target.element, target.shape):
        raise Refused(
            f"a tile of {source.element} {source.shape}, one of {target.element} {target.shape}"
        )
    if source.map == target.map and _dense(source):
        size = math.prod(source.shape)
        source, target = (replace(t, shape=(size,), layout="") for t in (source, target))
    least = 2 * WAVEFRONT * math.prod(source.shape) * ELEMENT_BYTES[source.element] // (4 * threads)
    best: tuple[int, Fragment, Moves, Moves] | None = None
    for split in islice(_splits(source, target, threads), _MOST):
        fragment = _fragment(source, split)
        try:
            up = load(source, fragment, threads, arch)
            if best and up.cost >= best[0]:
                continue
            down = store(fragment, target, threads, arch)
        except Refused:
            continue
        if best is None or up.cost + down.cost < best[0]:
            best = up.cost + down.cost, fragment, up, down
        if best[0] <= least * _ENOUGH:
            break
    if best is None:
        raise Refused(f"{threads} threads can't share out a tile of {source.shape}")
    return best[1:]


def _dense(tile: Tile) -> bool:
    return tile.bytes == math.prod(tile.shape) * ELEMENT_BYTES[tile.element]


def _fragment(tile: Tile, split: _Split) -> Fragment:
    """The layout of a split; its shape is the tile's, rounded up."""
    beside = [math.prod(n for side, n in split.runs if side == s) for s in range(len(tile.shape))]
    steps = [v * n for v, n in zip(split.values, beside, strict=True)]
    repeats = [-(-size // step) for size, step in zip(tile.shape, steps, strict=True)]
    shape = tuple(n * step for n, step in zip(repeats, steps, strict=True))
    unit = [math.prod(shape[:side]) for side in range(len(shape))]
    at = [v * u for v, u in zip(split.values, unit, strict=True)]
    thread = []
    for side, count in split.runs:
        thread.append((count, at[side]))
        at[side] *= count
    order = sorted(range(len(shape)), key=lambda side: side != split.first)
    value = [(split.values[s], unit[s]) for s in order] + [(repeats[s], at[s]) for s in order]
    halves = [[",".join(str(pair[n]) for pair in mode) for mode in (thread, value)] for n in (0, 1)]
    text = ":".join(f"(({half[0]},),({half[1]},))" for half in halves)
    return Fragment(tile.element, shape, text)


def _fast(tile: Tile) -> int:
    """The side along which neighbours lie beside one another."""
    modes = tile.map.modes
    return next((n for n, mode in enumerate(modes) if mode and mode[0][1] == 1), len(modes) - 1)


def _splits(source: Tile, target: Tile, threads: int) -> Iterator[_Split]:
    """Splits to try, the most likely ones first."""
    sides, shape, size = len(source.shape), source.shape, ELEMENT_BYTES[source.element]
    fast = list(dict.fromkeys([_fast(target), _fast(source)]))
    if len(fast) > 1 and size == 2 and threads % 32 == 0:
        for a, b in (fast, fast[::-1]):
            values = tuple(2 if s == a else 1 for s in range(sides))
            for n in _divisors(threads // 32):
                yield _Split(values, ((a, 4), (b, 8), (a, n), (b, threads // 32 // n)), a)
                yield _Split(values, ((a, 4), (b, 8), (b, n), (a, threads // 32 // n)), a)
    widths = [w for w in (_WIDEST // size, 8 // size, 4 // size, 2 // size, 1) if w]
    for values in _blocks(shape, fast, widths):
        for first in fast:
            for runs in _runs(shape, values, first, threads):
                yield _Split(values, runs, first)


def _blocks(
    shape: Sequence[int], fast: Sequence[int], widths: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Values of one thread: as wide as it goes along both major sides, then along one, then less."""
    seen = set()
    for width in widths:
        for wide in (fast, fast[:1], fast[1:]):
            block = tuple(width if s in wide else 1 for s in range(len(shape)))
            divides = all(size % v == 0 for size, v in zip(shape, block, strict=True))
            if wide and divides and block not in seen:
                seen.add(block)
                yield block


def _runs(
    shape: Sequence[int], values: Sequence[int], first: int, threads: int
) -> Iterator[tuple[Run, ...]]:
    """Threads along the first side, as many as divide it, then along another one."""
    others = [s for s in range(len(shape)) if s != first]
    along = shape[first] // values[first]
    for count in reversed(_divisors(threads)):
        if others and along % count == 0:
            for side in others:
                yield (first, count), (side, threads // count)
    if not others:
        yield ((first, threads),)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]

"""How the values of one fragment get to where another layout has them.

The cheapest way that does it: nothing, another order within each thread, shuffles within each warp,
or a tile in shared memory that we lay out ourselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipelink.abi import ELEMENT_BYTES
from pipelink.arch import Arch
from pipelink.transfer import words
from pipelink.transfer.moves import load, store
from pipelink.transfer.places import Refused, coordinates, piece_bytes
from pipelink.transfer.records import (
    WAVEFRONT,
    WORD,
    Exchange,
    Fragment,
    InPlace,
    Permute,
    Shuffle,
    Staged,
    Tile,
)
from pipelink.transfer.shuffling import LANES, Table, shuffle

# What waiting takes, as costs are counted: of a warp for itself, and of a role at a barrier.
_WARP_WAITS, _ROLE_WAITS = 40, 120
Places = list[list[int]]  # of each value and thread: an element


def exchange(source: Fragment, target: Fragment, threads: int, arch: Arch) -> Exchange:
    """How values get from the source's layout to the target's, in the same threads."""
    if (source.element, source.shape) != (target.element, target.shape):
        raise Refused(
            f"a tile of {source.element} {source.shape}, one of {target.element} {target.shape}"
        )
    have, want = coordinates(source, threads), coordinates(target, threads)
    if have == want:
        return InPlace()
    _all_there(have, want)
    size = ELEMENT_BYTES[source.element]
    order = _order(have, want)
    if order is not None:
        return Permute(words.pack(_pieces(order, size), piece_bytes(source.element)))
    shuffled = _shuffled(have, want, threads, size)
    least = 2 * WAVEFRONT * source.words + _WARP_WAITS
    if shuffled and shuffled.cost <= least:
        return shuffled
    staged = _staged(source, target, threads, arch, have, want)
    if shuffled and shuffled.cost <= _cost(staged):
        return shuffled
    return staged


def _all_there(have: Places, want: Places) -> None:
    held = {element for column in have for element in column}
    missing = [element for column in want for element in column if element not in held]
    if missing:
        raise Refused(f"nobody has element {min(missing)} of the tile, which some thread is to get")


def _order(have: Places, want: Places) -> list[int] | None:
    """For each value of the target the source's that each thread has of it."""
    found = {tuple(column): n for n, column in enumerate(have)}
    order = [found.get(tuple(column)) for column in want]
    return None if None in order else [n for n in order if n is not None]


def _pieces(order: Sequence[int], size: int) -> list[words.At | None]:
    halves = range(0, size, WORD)
    return [
        words.at(n * len(halves) + half // WORD, min(size, WORD)) for n in order for half in halves
    ]


def _shuffled(have: Places, want: Places, threads: int, size: int) -> Shuffle | None:
    """The cheaper of two ways to take a value that several lanes have: from the lane itself, if it is
    one of them, or always from the first."""
    pieces = len(have) * -(-size // WORD)
    tables = [_in_warp(have, want, threads, own) for own in (True, False)]
    made = [shuffle(_split(t, size), min(size, WORD), pieces) for t in tables if t]
    return min((m for m in made if m), key=lambda m: m.cost, default=None)


def _in_warp(have: Places, want: Places, threads: int, own: bool) -> Table | None:
    """Where each lane finds each value in its warp, if that is the same in all warps."""
    found: Table | None = None
    for warp in range(0, threads if threads % LANES == 0 else 0, LANES):
        holders: dict[int, list[tuple[int, int]]] = {}
        for lane in range(LANES):
            for value, column in enumerate(have):
                holders.setdefault(column[warp + lane], []).append((lane, value))
        table: Table = []
        for column in want:
            row = [holders.get(column[warp + lane], []) for lane in range(LANES)]
            if not all(row):
                return None
            table.append([_holder(of, lane, own) for lane, of in enumerate(row)])
        if found is not None and table != found:
            return None
        found = table
    return found


def _holder(holders: list[tuple[int, int]], lane: int, own: bool) -> tuple[int, int]:
    return next((h for h in holders if own and h[0] == lane), holders[0])


def _split(table: Table, size: int) -> Table:
    """Values of eight bytes as their two halves."""
    halves = -(-size // WORD)
    return [
        [(lane, value * halves + n) for lane, value in row] for row in table for n in range(halves)
    ]


# Through shared memory


def _cost(staged: Staged) -> int:
    waits = _WARP_WAITS if staged.warp else _ROLE_WAITS
    return staged.store.cost + staged.load.cost + waits


def _staged(
    source: Fragment, target: Fragment, threads: int, arch: Arch, have: Places, want: Places
) -> Staged:
    """A tile through which values pass, of those that we know to lay out the one of least cost."""
    best: Staged | None = None
    warp = _stays_in_warp(have, want, threads)
    for tile in _tiles(source.element, source.shape):
        try:
            down, up = store(source, tile, threads, arch), load(tile, target, threads, arch)
        except Refused:
            continue
        made = Staged(tile, down, up, tile.bytes, tile.align, warp)
        if best is None or (_cost(made), made.bytes) < (_cost(best), best.bytes):
            best = made
        if down.conflict == up.conflict == 1 and down.wide and up.wide:
            break
    if best is None:
        raise Refused(f"no tile takes {source.map} and gives {target.map}")
    return best


def staging_tile(source: Fragment, target: Fragment, threads: tuple[int, int], arch: Arch) -> Tile:
    """The tile of least cost that one role stores and another one, of other threads, loads."""
    found: list[tuple[int, int, Tile]] = []
    for tile in _tiles(source.element, source.shape):
        try:
            down, up = store(source, tile, threads[0], arch), load(tile, target, threads[1], arch)
        except Refused:
            continue
        if down.conflict == up.conflict == 1 and down.wide and up.wide:
            return tile
        found.append((down.cost + up.cost, len(found), tile))
    if not found:
        raise Refused(f"no tile takes {source.map} and gives {target.map}")
    return min(found)[2]


def _stays_in_warp(have: Places, want: Places, threads: int) -> bool:
    for first in range(0, threads, LANES):
        warp = slice(first, first + LANES)
        written = {element for column in have for element in column[warp]}
        if any(element not in written for column in want for element in column[warp]):
            return False
    return True


def _tiles(element: str, shape: tuple[int, ...]) -> Iterator[Tile]:
    """Staging tiles: rows or columns in one piece, in blocks as wide as a swizzle, or padded."""
    size, sides = ELEMENT_BYTES[element], range(len(shape))
    orders = [tuple(reversed(sides)), tuple(sides)] if len(shape) > 1 else [(0,)]
    for swizzle in (128, 64, 32):
        for order in orders:
            block = swizzle // size
            if shape[order[0]] % block == 0 and len(shape) > 1:
                yield Tile(element, shape, swizzle, _blocked(shape, order, block))
    for order in orders:
        for padding in (0, 16 // size, max(WORD // size, 1)):
            yield Tile(element, shape, 0, _padded(shape, order, padding))
    for swizzle in (128, 64, 32):
        if math.prod(shape) * size % (8 * swizzle) == 0:
            yield Tile(element, shape, swizzle)


def _blocked(shape: tuple[int, ...], order: tuple[int, ...], block: int) -> str:
    """Blocks of `block` elements of the fastest side, below one another."""
    strides, stride = {}, block
    for side in order[1:]:
        strides[side] = stride
        stride *= shape[side]
    fast = order[0]
    modes = [str(s) if n != fast else f"({block},{s // block})" for n, s in enumerate(shape)]
    steps = [str(strides[n]) if n != fast else f"(1,{stride})" for n in range(len(shape))]
    return f"({','.join(modes)}):({','.join(steps)})"


def _padded(shape: tuple[int, ...], order: tuple[int, ...], padding: int) -> str:
    strides, stride = {}, 1
    for n, side in enumerate(order):
        strides[side] = stride
        stride = stride * shape[side] + (padding if n == 0 else 0)
    steps = ",".join(str(strides[n]) for n in range(len(shape)))
    return f"({','.join(map(str, shape))}):({steps})"

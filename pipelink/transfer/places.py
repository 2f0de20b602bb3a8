"""Where each piece of each thread lies in a tile, and the terms of a thread's number that say so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

from pipelink.abi import ELEMENT_BYTES
from pipelink.transfer.records import WORD, Fragment, Term, Tile

Places = list[list[int]]  # of each piece, of each thread: a byte of the tile
_FIELD = {0: 0, 32: 1 << 7, 64: 3 << 7, 128: 7 << 7}  # the bits of a row that move chunks


class Refused(ValueError):
    """There are no such moves; the text says why."""


def swizzled(address: int, swizzle: int) -> int:
    """CuTe's Swizzle<B,4,3>: chunks of 16 bytes exchanged by the row's bits."""
    return address ^ (address & _FIELD[swizzle]) >> 3


def chunk_bits(swizzle: int) -> int:
    """The bits of an address that a swizzle changes."""
    return _FIELD[swizzle] >> 3


def piece_bytes(element: str) -> int:
    return min(ELEMENT_BYTES[element], WORD)


@lru_cache(16)
def coordinates(fragment: Fragment, threads: int) -> list[list[int]]:
    """The element of the fragment's tile that each thread has as each value, [value][thread], as its
    colexicographic number: row + rows * column. Not to be changed, as it is kept."""
    found = fragment.map
    copies, left = divmod(threads, found.thread_count)
    if left or not copies or fragment.shape[0] % copies:
        raise Refused(f"{threads} threads are no whole copies of {found}")
    rows = fragment.shape[0] // copies
    size = rows * math.prod(fragment.shape[1:])
    of_threads, of_values = found.steps(0), found.steps(1)
    if max(of_threads) + max(of_values) >= size:
        raise Refused(f"{found} passes the end of its tile of {size} elements")
    if copies == 1:
        return [[thread + value for thread in of_threads] for value in of_values]
    whole = [(copy * rows, thread) for copy in range(copies) for thread in of_threads]
    return [
        [
            below + (thread + value) % rows + (thread + value) // rows * fragment.shape[0]
            for below, thread in whole
        ]
        for value in of_values
    ]


@lru_cache(16)
def elements(tile: Tile, shape: tuple[int, ...]) -> list[int]:
    """The byte of each element of a tile before its swizzle, in colexicographic order of `shape`. Past
    a side's end the outermost mode goes on."""
    found = tile.map
    if found.sizes != tile.shape:
        raise Refused(f"{found} is no layout of a tile of {' x '.join(map(str, tile.shape))}")
    size = ELEMENT_BYTES[tile.element]
    steps = [_going_on(found.steps(n), length) for n, length in enumerate(shape)]
    return [sum(coordinate) * size for coordinate in itertools.product(*reversed(steps))]


def _going_on(steps: list[int], length: int) -> list[int]:
    if length == len(steps):
        return steps
    period = steps[-1] + (steps[1] if len(steps) > 1 else 1)
    return [steps[n % len(steps)] + n // len(steps) * period for n in range(length)]


def places(fragment: Fragment, tile: Tile, threads: int) -> tuple[Places, list[int]]:
    """[piece][thread]: the byte in the tile before its swizzle; and for each piece, how many threads
    have an element there, the first ones."""
    if fragment.element != tile.element:
        raise Refused(f"a fragment of {fragment.element} and a tile of {tile.element}")
    if len(fragment.shape) != len(tile.shape) or any(
        f < t for f, t in zip(fragment.shape, tile.shape, strict=True)
    ):
        raise Refused(f"a fragment of {fragment.shape} and a tile of {tile.shape}")
    table, of_values = elements(tile, fragment.shape), coordinates(fragment, threads)
    bytes_ = [[table[element] for element in value] for value in of_values]
    counts = _counts(of_values, fragment.shape, tile.shape)
    halves = range(0, ELEMENT_BYTES[tile.element], WORD)
    return (
        [[byte + half for byte in value] for value in bytes_ for half in halves],
        [count for count in counts for _ in halves],
    )


def _counts(of_values: list[list[int]], shape: Sequence[int], tile: Sequence[int]) -> list[int]:
    if tuple(shape) == tuple(tile):
        return [len(value) for value in of_values]
    sides = [[n < size for n in range(length)] for length, size in zip(shape, tile, strict=True)]
    inside = [all(c) for c in itertools.product(*reversed(sides))]
    counts = []
    for value in of_values:
        present = [inside[element] for element in value]
        counts.append(sum(present))
        if not all(present[: counts[-1]]):
            raise Refused("those who have no element are not the last threads")
    return counts


def terms(table: Sequence[int]) -> tuple[Term, ...] | None:
    """A function of the thread's number, which is 0 at 0, as a sum of terms; None if it is none.

    A term is the longest run of equal steps that repeats, with what is left, over the whole table.
    """
    found: list[Term] = []
    divide, rest = 1, list(table)
    while len(rest) > 1:
        step = rest[1]
        size = _run(rest, step)
        if size is None:
            return None
        if step:
            found.append(Term(divide, size if size < len(rest) else 0, step))
        divide, rest = divide * size, rest[::size]
    return tuple(found)


def _run(table: Sequence[int], step: int) -> int | None:
    """The most entries that go up by `step`, wherever they repeat."""
    longest = next((n for n, place in enumerate(table) if place != n * step), len(table))
    for size in range(longest, 1, -1):
        if all(place == table[n - n % size] + n % size * step for n, place in enumerate(table)):
            return size
    return None


def value_of(found: Sequence[Term], thread: int) -> int:
    """What the terms come to."""
    return sum(
        (thread // t.divide % t.modulo if t.modulo else thread // t.divide) * t.bytes for t in found
    )

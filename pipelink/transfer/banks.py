"""Bank conflicts, counted as shared memory serves a warp.

32 banks take turns at words of four bytes. An access of up to four bytes a thread is served at once;
one of eight by half warps, one of sixteen by quarters, a matrix by its eight rows of sixteen bytes.
What is served together takes a wavefront for each different word of the bank that has most of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

_BANKS = 32
_ROUND = 128


@cache
def _ways(bytes_: int, places: tuple[int, ...]) -> int:
    words = {place // 4 + n for place in places for n in range(max(bytes_ // 4, 1))}
    banks = [0] * _BANKS
    for word in words:
        banks[word % _BANKS] += 1
    return max(banks)


def ways(bytes_: int, places: Sequence[int]) -> int:
    """The wavefronts of accesses that are served together."""
    least = min(places) // _ROUND * _ROUND
    return _ways(bytes_, tuple(place - least for place in places))


def of_warp(bytes_: int, places: Sequence[int], *, rows: int = 0) -> list[int]:
    """The wavefronts of each part of a warp's access; `places` are of lanes that take part. Of a matrix
    instruction `places` are rows, `rows` of them."""
    if rows:
        return [ways(16, places[n : n + 8]) for n in range(0, rows, 8)]
    at_once = _BANKS * 4 // max(bytes_, 4)
    return [ways(bytes_, places[n : n + at_once]) for n in range(0, len(places), at_once)]


def total(parts: Iterable[Iterable[int]]) -> tuple[int, int]:
    """The worst of the parts, and their sum."""
    found = [ways for part in parts for ways in part]
    return max(found, default=1), sum(found)

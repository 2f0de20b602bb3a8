"""Shared memory: offsets of regions in one arena.

Regions sorted by alignment, then size, leave no gap when sizes are multiples of their alignment, as
those of swizzled tiles are: first-fit is then optimal. The order is total, so the same claims give
the same offsets in any input order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SWIZZLE_ALIGN = {128: 1024, 64: 512, 32: 256, 0: 128}


@dataclass(frozen=True)
class Need:
    """A region to place: bytes and alignment in bytes."""

    name: str
    bytes: int
    align: int


def place_memory(needs: Sequence[Need]) -> tuple[dict[str, int], int]:
    """The offset of each need, and the bytes of the arena."""
    offsets: dict[str, int] = {}
    end = 0
    for need in sorted(needs, key=lambda n: (-n.align, -n.bytes, n.name)):
        offsets[need.name] = -(-end // need.align) * need.align
        end = offsets[need.name] + need.bytes
    return offsets, end

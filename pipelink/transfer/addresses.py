"""The addresses that a thread computes, and how each access is reached from one of them."""

from __future__ import annotations

from collections.abc import Sequence

from pipelink.transfer.places import chunk_bits, swizzled, terms
from pipelink.transfer.records import Base


class Bases:
    """The addresses that a thread computes, each once."""

    def __init__(self, swizzle: int) -> None:
        self.swizzle = swizzle
        self.made: list[Base] = []
        self._tables: list[tuple[int, ...]] = []
        self._thread: list[list[int]] = []

    def reach(self, places: Sequence[int]) -> tuple[int, int, int] | None:
        """(base, xor, offset) of an access; None if no terms give it."""
        value = places[0]
        thread = tuple(place - value for place in places)
        for number, table in enumerate(self._tables):
            if table == thread and (found := self._from(number, places)):
                return found
        found_terms = terms(thread)
        if found_terms is None:
            return None
        for offset in (0, value % (8 * max(self.swizzle, 1))):
            self.made.append(Base(found_terms, offset, self.swizzle))
            self._tables.append(thread)
            self._thread.append([swizzled(place + offset, self.swizzle) for place in thread])
            if found := self._from(len(self.made) - 1, places):
                return found
            for whole in (self.made, self._tables, self._thread):
                whole.pop()
        return None

    def _from(self, number: int, places: Sequence[int]) -> tuple[int, int, int] | None:
        value = places[0] - self.made[number].offset
        xor = swizzled(value, self.swizzle) & chunk_bits(self.swizzle)
        offset = value & ~chunk_bits(self.swizzle)
        if value >= 0 and all(
            swizzled(place, self.swizzle) == (base ^ xor) + offset
            for place, base in zip(places, self._thread[number], strict=True)
        ):
            return number, xor, offset
        return None

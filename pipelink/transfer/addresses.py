"""The addresses that a thread computes, and how each access is reached from one of them.

What an access names is a thread part, the same table for many accesses and 0 for thread 0, and a value
part, one number. All that depends on threads is found once for each thread part. The swizzle of a sum
depends on the value part up to the swizzle's period alone: what is above is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pipelink.transfer.places import chunk_bits, swizzled, terms
from pipelink.transfer.records import Base, Term

At = tuple[int, int]  # a thread part, by number, and a value part


class Parts:
    """Thread parts, each once; `tables` has each thread's bytes."""

    def __init__(self, swizzle: int) -> None:
        self.swizzle = swizzle
        self.period = 8 * swizzle or 1
        self.tables: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._terms: dict[int, tuple[Term, ...] | None] = {}
        self._bits: dict[int, int] = {}
        self._apart: dict[tuple[int, int, int], bool] = {}

    def split(self, places: Sequence[int]) -> At:
        """A table as its thread part and its value part."""
        value = places[0]
        table = tuple(place - value for place in places)
        number = self._numbers.setdefault(table, len(self.tables))
        if number == len(self.tables):
            self.tables.append(table)
        return number, value

    def terms(self, part: int) -> tuple[Term, ...] | None:
        """The sum of terms that a thread part is, if it is one."""
        if part not in self._terms:
            self._terms[part] = terms(self.tables[part])
        return self._terms[part]

    def bits(self, part: int) -> int:
        """The bits that some thread has in its part."""
        if part not in self._bits:
            self._bits[part] = reduce(or_, self.tables[part])
        return self._bits[part]

    def aligned(self, at: At, width: int) -> bool:
        """Whether all threads are at multiples of a power of two."""
        return (self.bits(at[0]) | at[1]) & width - 1 == 0

    def apart(self, part: int, start: int, more: int) -> bool:
        """Whether, for all threads, the swizzle of the thread part with `start` and `more` is that of
        the thread part with `start`, with the chunk bits of `more` exclusive-ored and the rest added."""
        if not self.swizzle or not more:
            return True
        key = (part, start, more)
        if key not in self._apart:
            chunk = chunk_bits(self.swizzle)
            xor, offset = swizzled(more, self.swizzle) & chunk, more & ~chunk
            self._apart[key] = (not start and not self.bits(part) & more) or all(
                swizzled(place + start + more, self.swizzle)
                == (swizzled(place + start, self.swizzle) ^ xor) + offset
                for place in self.tables[part]
            )
        return self._apart[key]

    def places(self, at: At) -> list[int]:
        """The byte that each thread names."""
        return [place + at[1] for place in self.tables[at[0]]]

    def swizzled(self, at: At) -> list[int]:
        """The byte that each thread reaches."""
        return [swizzled(place + at[1], self.swizzle) for place in self.tables[at[0]]]


class Bases:
    """The addresses that a thread computes, each once."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.made: list[Base] = []
        self._parts: list[int] = []

    def reach(self, at: At) -> tuple[int, int, int] | None:
        """(base, xor, offset) of an access; None if no terms give it."""
        part, value = at
        for number, of in enumerate(self._parts):
            if of == part and (found := self._from(number, value)):
                return found
        found_terms = self.parts.terms(part)
        if found_terms is None:
            return None
        for offset in (0, value % self.parts.period):
            self.made.append(Base(found_terms, offset, self.parts.swizzle))
            self._parts.append(part)
            if found := self._from(len(self.made) - 1, value):
                return found
            self.made.pop()
            self._parts.pop()
        return None

    def _from(self, number: int, value: int) -> tuple[int, int, int] | None:
        """The access from a base of the same thread part, if that holds for all threads."""
        start, chunk = self.made[number].offset, chunk_bits(self.parts.swizzle)
        more = value - start
        xor = swizzled(more, self.parts.swizzle) & chunk
        if more < 0 or not self.parts.apart(self._parts[number], start, more % self.parts.period):
            return None
        return number, xor, more & ~chunk

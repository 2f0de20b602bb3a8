"""Words made of pieces that lie in other words."""

from __future__ import annotations

from collections.abc import Sequence

from pipelink.transfer.records import WORD, Word

At = tuple[int, int]  # a word of an array, and a byte of it


def at(piece: int, size: int) -> At:
    """Where a piece stands in an array of packed words."""
    return piece * size // WORD, piece * size % WORD


def word(pieces: Sequence[At | None], size: int) -> Word:
    """The word whose pieces, of `size` bytes, come from these places; None may be anything."""
    known = [p for p in pieces if p]
    want = [(p[0], p[1] + n) if p else None for p in pieces for n in range(size)]
    sources = list(dict.fromkeys(p[0] for p in known))
    off = want[0][1] if want[0] else 0
    if all(w is None or w == (sources[0], off + n) for n, w in enumerate(want)):
        return Word((sources[0],), shift=8 * off)
    sources = sources * 2 if len(sources) == 1 else sources
    selectors = []
    for number, source in enumerate(sources[1:]):
        keep = sources[0] if number == 0 else None
        selectors.append(sum(_byte(w, n, source, keep) << 4 * n for n, w in enumerate(want)))
    return Word(tuple(sources), tuple(selectors))


def _byte(want: At | None, position: int, source: int, first: int | None) -> int:
    """Which byte `prmt` takes: 0 to 3 of what there is, 4 to 7 of the source that comes to it."""
    if want is None:
        return position
    if want[0] == source and source != first:
        return 4 + want[1]
    return want[1] if want[0] == first else position


def pack(pieces: Sequence[At | None], size: int) -> tuple[Word, ...]:
    """An array of words out of its pieces, in order."""
    each = WORD // size
    padded = [*pieces, *[None] * (-len(pieces) % each)]
    return tuple(word(padded[n : n + each], size) for n in range(0, len(padded), each))

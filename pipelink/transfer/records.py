"""What a transfer is made of: tiles, fragments, and the instructions that move the one to the other.

A *piece* is the smallest part of a value that moves by itself: the value, or four bytes of it where it
has eight. Pieces are numbered as they stand in a thread's registers, an array of 32-bit words.
"""

from __future__ import annotations

from typing import Literal

from pipelink import layout
from pipelink.abi import ELEMENT_BYTES, Record
from pipelink.layout import Layout

WORD = 4
# Costs are quarters of a cycle of a multiprocessor, which issues four instructions in one. Shared
# memory and shuffles take one warp at a time, selecting bytes or words two.
ISSUE, SELECT, WAVEFRONT = 1, 2, 4
SWIZZLE_ALIGN = {128: 1024, 64: 512, 32: 256, 0: 128}


class Fragment(Record, frozen=True):
    """Values in the registers of each thread, together a tile of `shape`; `layout` is CuTe's, of one
    copy: the role's threads are whole copies, which stand one below the other along the first side.

    Where `shape` is larger than the tile's, what lies past the tile's end does not exist.
    """

    element: str
    shape: tuple[int, ...]
    layout: str

    @property
    def map(self) -> Layout:
        return layout.fragment(self.layout, {})

    @property
    def count(self) -> int:
        """Values a thread."""
        return self.map.value_count

    @property
    def words(self) -> int:
        """The array that holds them, in 32-bit words."""
        return -(-self.count * ELEMENT_BYTES[self.element] // WORD)


class Tile(Record, frozen=True):
    """A tile in shared memory; row-major without a layout. `swizzle` is 0, 32, 64 or 128 bytes."""

    element: str
    shape: tuple[int, ...]
    swizzle: int = 0
    layout: str = ""

    @property
    def map(self) -> Layout:
        return layout.parse(self.layout, {}) if self.layout else layout.row_major(self.shape)

    @property
    def bytes(self) -> int:
        """From the first byte to the end of the last element."""
        last = sum((size - 1) * stride for mode in self.map.modes for size, stride in mode)
        return (last + 1) * ELEMENT_BYTES[self.element]

    @property
    def align(self) -> int:
        return SWIZZLE_ALIGN[self.swizzle]


class Term(Record, frozen=True):
    """`thread / divide % modulo * bytes`; a modulo of 0 is none."""

    divide: int
    modulo: int
    bytes: int


class Base(Record, frozen=True):
    """An address of each thread: the tile's start and the swizzle of the terms' sum with `offset`."""

    terms: tuple[Term, ...]
    offset: int = 0
    swizzle: int = 0


class Word(Record, frozen=True):
    """32 bits out of words of an array: the word `sources[0]`; after each further one, four bytes of
    what there is and of that one, chosen by a selector of PTX's `prmt`; `shift` bits off at last."""

    sources: tuple[int, ...]
    selectors: tuple[int, ...] = ()
    shift: int = 0

    @property
    def whole(self) -> bool:
        return not self.selectors and not self.shift

    @property
    def picks(self) -> tuple[tuple[int, str], ...]:
        """Each further source with its selector, as code has it."""
        pairs = zip(self.sources[1:], self.selectors, strict=True)
        return tuple((source, f"{selector:#06x}") for source, selector in pairs)


class Access(Record, frozen=True):
    """One instruction at `(base ^ xor) + offset`. A store takes `words`; a load fills words of this
    number on, of the fragment or of what was loaded. Threads past `threads` leave it out, if not 0."""

    base: int
    xor: int
    offset: int
    bytes: int
    words: tuple[Word, ...]
    threads: int = 0


class Moves(Record, frozen=True):
    """What each thread executes between a fragment and a tile. `conflict` is how many ways the worst
    access meets in a bank, 1 being none; `wavefronts` what a warp takes of shared memory.

    A load whose words come in another order than the fragment's has `loaded` words beside, of which
    `assembled` makes the fragment.
    """

    direction: Literal["store", "load"]
    instruction: str
    bases: tuple[Base, ...]
    accesses: tuple[Access, ...]
    conflict: int
    wavefronts: int
    words: int
    loaded: int = 0
    assembled: tuple[Word, ...] = ()

    @property
    def matrix(self) -> bool:
        return "matrix" in self.instruction

    @property
    def transposed(self) -> bool:
        return self.instruction.endswith(".trans")

    @property
    def wide(self) -> bool:
        """Whether each access moves as much as an access can."""
        return all(access.bytes == 16 for access in self.accesses)

    def function(self, access: Access) -> str:
        """The access's function in transfer.cuh."""
        name = self.instruction.partition(" ")[0]
        if self.matrix:
            trans = "_trans" if self.transposed else ""
            return f"{name.partition('.')[0]}_x{access.bytes // WORD}{trans}"
        types = {16: "v4_b32", 8: "v2_b32", 4: "b32", 2: "b16", 1: "b8"}
        return f"{name[:2]}_shared_{types[access.bytes]}"

    @property
    def cost(self) -> int:
        """What a warp takes, with what makes words and addresses."""
        made = [w for a in self.accesses for w in a.words] if self.direction == "store" else []
        made += self.assembled
        picks = sum(len(w.selectors) + bool(w.shift) for w in made)
        xors = len({(a.base, a.xor) for a in self.accesses if a.xor})
        addresses = sum(2 * len(b.terms) + 2 * bool(b.swizzle) for b in self.bases)
        issued = len(self.accesses) + xors + addresses
        return WAVEFRONT * self.wavefronts + ISSUE * issued + SELECT * picks


class InPlace(Record, frozen=True, tag="in_place"):
    """Each value is where it should be."""


class Permute(Record, frozen=True, tag="permute"):
    """Each value is in its thread: the target's words, made of the source's."""

    words: tuple[Word, ...]


class Swap(Record, frozen=True):
    """In the lanes whose bit of `lanes` is set, the words of each pair change places."""

    lanes: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def mask(self) -> str:
        return f"{self.lanes:#010x}u"


class Round(Record, frozen=True):
    """Word `word` of lane `base ^ xor`, for each lane; `base` is one of the shuffle's lanes, and with
    -1 the lane itself. No instruction where both are 0: `base` -1, `xor` 0."""

    word: int
    base: int
    xor: int


class Choice(Record, frozen=True):
    """A word that comes from another register in some lanes: the rounds' results, each for the lanes
    of its set; the first needs none."""

    rounds: tuple[int, ...]
    lanes: tuple[int, ...]

    @property
    def others(self) -> tuple[tuple[int, str], ...]:
        pairs = zip(self.rounds[1:], self.lanes[1:], strict=True)
        return tuple((number, f"{lanes:#010x}u") for number, lanes in pairs)


class Shuffle(Record, frozen=True, tag="shuffle"):
    """Values that stay in their warp: words are made (`packed`), swapped, sent lane to lane, chosen,
    swapped again, and taken apart (`words`, of the target). Without choices each round is a word."""

    packed: tuple[Word, ...]
    before: tuple[Swap, ...]
    lanes: tuple[tuple[Term, ...], ...]
    rounds: tuple[Round, ...]
    choices: tuple[Choice, ...]
    after: tuple[Swap, ...]
    words: tuple[Word, ...]

    @property
    def shuffles(self) -> int:
        """Instructions that cross lanes."""
        return sum(not (r.base == -1 and r.xor == 0) for r in self.rounds)

    @property
    def cost(self) -> int:
        """What a warp takes."""
        selects = sum(2 * len(s.pairs) for s in (*self.before, *self.after))
        selects += sum(len(w.selectors) for w in (*self.packed, *self.words))
        selects += sum(len(c.others) for c in self.choices)
        sets = len({*self.before, *self.after}) + sum(len(c.others) for c in self.choices)
        return (WAVEFRONT + ISSUE) * self.shuffles + SELECT * selects + ISSUE * sets


class Staged(Record, frozen=True, tag="staged"):
    """Values that pass through a tile in shared memory. `warp`: each warp reads what it wrote, so
    that warps need not wait for one another."""

    tile: Tile
    store: Moves
    load: Moves
    bytes: int
    align: int
    warp: bool


Exchange = InPlace | Permute | Shuffle | Staged


class Conversion(Record, frozen=True):
    """Packed words of one element type from those of another: `calls` are (function of transfer.cuh,
    target word, source words), `instructions` the PTX of each step; `rounds`: values may change."""

    source: str
    target: str
    count: int
    instructions: tuple[str, ...]
    rounds: bool
    calls: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]

    @property
    def unused(self) -> bool:
        """Whether some call makes more than there is a place for."""
        return any(-1 in to for _, to, _ in self.calls)

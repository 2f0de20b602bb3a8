"""Which instructions move a fragment to a tile in shared memory, or a tile to a fragment.

The problem. A fragment's layout says which thread has which element in which register, a tile's
layout where the element lies. Together they are a table: for each piece of a thread's registers, and
each thread, a byte of the tile. Any instruction that moves a piece computes that byte from the
thread's number, so the table has to fall apart into what is the same for all threads and what is the
same for all pieces.

*Vectors.* Pieces move together where, in every thread, they are neighbours of one aligned run of 16,
8, 4 or 2 bytes. In which registers they are doesn't matter: words are put together on the way.

*Matrices.* stmatrix and ldmatrix move up to four matrices of 8 rows of 16 bytes. Lane 4 * row + n has
the n-th word of a row; transposed, lane 4 * n + m has rows 2 * m and 2 * m + 1 of column n, halves of
one word. Lanes 8 * j to 8 * j + 7 have the addresses of the rows of matrix j. So the rows of a matrix
may lie anywhere, and only where a lane's word lies in its row is fixed.

*Addresses.* The table of an access is thread part plus value part. The thread part is a sum of terms,
computed once. A swizzle is an exclusive or of some bits into others: if the sum carries nowhere that
the swizzle looks, the swizzle of the sum is the swizzle of the thread part, with the value part's
chunk bits exclusive-ored and the rest of it added. Each access is held against that for all threads,
and only where it doesn't hold has an address of its own.

*Choice.* All ways that fit are made, and the one of fewest issue slots and wavefronts is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pipelink.abi import SWIZZLES
from pipelink.arch import Arch
from pipelink.transfer import banks, words
from pipelink.transfer.addresses import Bases
from pipelink.transfer.places import Places, Refused, piece_bytes, places, swizzled, terms
from pipelink.transfer.records import WORD, Access, Fragment, Moves, Tile, Word

_LANES = 32
_ROWS = 8
Direction = Literal["store", "load"]
Form = Literal["vector", "matrix", "matrix.trans"]


@dataclass(frozen=True)
class _Site:
    """An access: the place that each thread names, the pieces that move, and for how many threads.
    `table` is of matrix rows where it is an access to matrices."""

    table: tuple[int, ...]
    pieces: tuple[int, ...]
    threads: int


@dataclass(frozen=True)
class _Job:
    """What is to move."""

    direction: Direction
    table: Places
    counts: list[int]
    piece: int
    swizzle: int
    pieces: list[int]  # those that move: of pieces at one place, the first

    @property
    def threads(self) -> int:
        return len(self.table[0])


def store(fragment: Fragment, tile: Tile, threads: int, arch: Arch) -> Moves:
    """The instructions by which a role's threads write a fragment to a tile."""
    return _moves("store", fragment, tile, threads, arch.stmatrix)


def load(tile: Tile, fragment: Fragment, threads: int, arch: Arch) -> Moves:
    """The instructions by which a role's threads read a fragment from a tile."""
    return _moves("load", fragment, tile, threads, arch.ldmatrix)


def _moves(
    direction: Direction, fragment: Fragment, tile: Tile, threads: int, matrices: bool
) -> Moves:
    if tile.swizzle not in SWIZZLES:
        raise Refused(f"a swizzle of {tile.swizzle} bytes")
    table, counts = places(fragment, tile, threads)
    first: dict[tuple[int, ...], int] = {}
    pieces = [n for n, column in enumerate(table) if first.setdefault(tuple(column), n) == n]
    pieces = [n for n in pieces if counts[n]]
    job = _Job(direction, table, counts, piece_bytes(tile.element), tile.swizzle, pieces)
    same = [first[tuple(column)] for column in table]
    ways: list[tuple[Form, list[_Site]]] = [("vector", _vectors(job, n)) for n in (16, 8, 4)]
    if matrices and threads % _LANES == 0 and not any(n % _LANES for n in counts):
        ways += [(form, sites) for form, sites in _matrices(job) if sites]
    made = [m for form, sites in ways for m in _made(job, form, sites, same)]
    if not made:
        raise Refused(f"no terms of the thread's number give the places of {fragment.map}")
    return min(made, key=lambda m: m.cost)


# Vectors


def _vectors(job: _Job, widest: int) -> list[_Site]:
    """Each piece in the widest access that it is part of in every thread."""
    left, found = list(job.pieces), []
    for width in (16, 8, 4, 2, 1):
        if job.piece <= width <= widest:
            sites = list(_of_width(job, left, width))
            gone = {piece for site in sites for piece in site.pieces}
            left = [piece for piece in left if piece not in gone]
            found += sites
    return sorted(found, key=lambda site: min(site.pieces))


def _of_width(job: _Job, pieces: Sequence[int], width: int) -> Iterator[_Site]:
    groups: dict[tuple[int, int], list[int]] = {}
    for piece in pieces:
        groups.setdefault((job.table[piece][0] // width, job.counts[piece]), []).append(piece)
    for (_, threads), group in groups.items():
        group.sort(key=lambda piece: job.table[piece][0])
        first = job.table[group[0]]
        if len(group) * job.piece == width and all(
            place % width == 0 and job.table[piece][thread] == place + n * job.piece
            for thread, place in enumerate(first[:threads])
            for n, piece in enumerate(group)
        ):
            yield _Site(tuple(first), tuple(group), threads)


# Matrices


def _matrices(job: _Job) -> Iterator[tuple[Form, list[_Site]]]:
    """The accesses to matrices, if all pieces are of some, as they lie and transposed; the matrices
    in the registers' order and in the tile's."""
    forms: tuple[Form, Form] = ("matrix", "matrix.trans")
    for form, single in zip(forms, (_straight(job), _transposed(job)), strict=True):
        yield form, _joined(job, single)
        in_tile = sorted(single, key=lambda site: site.table[0])
        if in_tile != single:
            yield form, _joined(job, in_tile)


def _straight(job: _Job) -> list[_Site]:
    """Matrices of one word a lane."""
    found = []
    for site in _vectors(job, WORD):
        rows = [site.table[thread - thread % 4] for thread in range(job.threads)]
        if len(site.pieces) * job.piece != WORD or any(
            row % 16 or place != row + thread % 4 * WORD
            for thread, (row, place) in enumerate(zip(rows, site.table, strict=True))
        ):
            return []
        found.append(_with_rows(site.pieces, rows[::4], site.threads))
    return found


def _transposed(job: _Job) -> list[_Site]:
    """Matrices whose lanes have two halves from two rows; neighbours in the registers, so that a word
    is a word."""
    found: list[_Site] = []
    if job.piece != 2 or len(job.pieces) % 2:
        return found
    for pair in zip(job.pieces[::2], job.pieces[1::2], strict=True):
        for piece in pair:
            column = job.table[piece]
            if any(
                column[t - t % _LANES + t % 4] % 16
                or place != column[t - t % _LANES + t % 4] + t % _LANES // 4 * 2
                for t, place in enumerate(column)
            ):
                return []
        rows = [
            job.table[pair[row % 2]][warp + row // 2]
            for warp in range(0, job.threads, _LANES)
            for row in range(_ROWS)
        ]
        found.append(_with_rows(pair, rows, min(job.counts[piece] for piece in pair)))
    return found


def _with_rows(pieces: tuple[int, ...], rows: Sequence[int], threads: int) -> _Site:
    """A site whose table is the row that each lane names, eight lanes after eight lanes the same."""
    return _Site(
        tuple(
            rows[warp + lane % _ROWS]
            for warp in range(0, len(rows), _ROWS)
            for lane in range(_LANES)
        ),
        pieces,
        threads,
    )


def _joined(job: _Job, single: Sequence[_Site]) -> list[_Site]:
    """Matrices by fours, twos and ones: as many as have rows that terms can name."""
    found, left = [], list(single)
    while left:
        for size in (4, 2, 1):
            group = left[:size]
            if len(group) == size and len({site.threads for site in group}) == 1:
                table = tuple(
                    group[thread // _ROWS % size].table[thread] for thread in range(job.threads)
                )
                if size == 1 or terms([place - table[0] for place in table]) is not None:
                    pieces = tuple(piece for site in group for piece in site.pieces)
                    found.append(_Site(table, pieces, group[0].threads))
                    left = left[size:]
                    break
    return found


# Instructions


def _made(job: _Job, form: Form, sites: Sequence[_Site], same: Sequence[int]) -> Iterator[Moves]:
    """The instructions for these accesses, if their addresses can be computed."""
    bases, reached = Bases(job.swizzle), []
    for site in sites:
        found = bases.reach(site.table)
        if found is None:
            return
        reached.append(found)
    conflict, wavefronts = _served(job, form, sites)
    taken, loaded, assembled = _taken(job, sites, same)
    accesses = tuple(
        Access(*address, len(site.pieces) * job.piece, made, site.threads % job.threads)
        for address, site, made in zip(reached, sites, taken, strict=True)
    )
    yield Moves(
        job.direction,
        _instruction(job.direction, form, {a.bytes for a in accesses}),
        tuple(bases.made),
        accesses,
        conflict,
        wavefronts,
        -(-len(job.table) * job.piece // WORD),
        loaded,
        assembled,
    )


def _served(job: _Job, form: Form, sites: Sequence[_Site]) -> tuple[int, int]:
    """The worst conflict of all warps' accesses, and the wavefronts of the warp that has most."""
    worst, most = 1, 0
    for warp in range(0, job.threads, _LANES):
        parts = []
        for site in sites:
            lanes = [swizzled(p, job.swizzle) for p in site.table[warp : warp + _LANES]]
            lanes = lanes[: max(site.threads - warp, 0)]
            bytes_ = len(site.pieces) * job.piece
            rows = bytes_ // WORD * _ROWS if form != "vector" and lanes else 0
            parts.append(banks.of_warp(bytes_, lanes, rows=rows))
        ways, wavefronts = banks.total(parts)
        worst, most = max(worst, ways), max(most, wavefronts)
    return worst, most


def _taken(
    job: _Job, sites: Sequence[_Site], same: Sequence[int]
) -> tuple[list[tuple[Word, ...]], int, tuple[Word, ...]]:
    """The words of each access; of a load also how many are loaded beside, and what is made of them."""
    made = [
        words.pack([words.at(piece, job.piece) for piece in site.pieces], job.piece)
        for site in sites
    ]
    if job.direction == "store":
        return made, 0, ()
    flat = [word for access in made for word in access]
    whole = all(word.whole for word in flat) and len(job.pieces) == len(same)
    if whole and all(len(site.pieces) * job.piece >= WORD for site in sites):
        return made, 0, ()
    place: dict[int, words.At] = {}
    total, numbers = 0, []
    for site in sites:
        for position, piece in enumerate(site.pieces):
            word, byte = words.at(position, job.piece)
            place[piece] = (total + word, byte)
        size = -(-len(site.pieces) * job.piece // WORD)
        numbers.append(tuple(Word((total + n,)) for n in range(size)))
        total += size
    assembled = words.pack([place.get(piece) for piece in same], job.piece)
    return numbers, total, assembled


def _instruction(direction: Direction, form: Form, sizes: set[int]) -> str:
    """PTX's name, without what all of them have; of several the widest first."""
    if form != "vector":
        name, trans = ("stmatrix", "ldmatrix")[direction == "load"], form.removeprefix("matrix")
        each = [f"{name}.x{size // WORD}{trans}" for size in sorted(sizes, reverse=True)]
    else:
        name = ("st", "ld")[direction == "load"] + ".shared"
        types = {16: "v4.b32", 8: "v2.b32", 4: "b32", 2: "b16", 1: "b8"}
        each = [f"{name}.{types[size]}" for size in sorted(sizes, reverse=True)]
    return " + ".join(each)

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
from functools import cache
from typing import Literal

from pipelink.abi import SWIZZLES
from pipelink.arch import Arch
from pipelink.transfer import banks, words
from pipelink.transfer.addresses import At, Bases, Parts
from pipelink.transfer.places import Refused, piece_bytes, places
from pipelink.transfer.records import WORD, Access, Fragment, Moves, Tile, Word

_LANES = 32
_BANKS = 128  # bytes
_ROWS = 8
Direction = Literal["store", "load"]
Form = Literal["vector", "matrix", "matrix.trans"]


@dataclass(frozen=True)
class _Site:
    """An access: what each thread names, the pieces that move, and for how many threads. What a
    thread names is a row where it is an access to matrices."""

    at: At
    pieces: tuple[int, ...]
    threads: int


@dataclass(frozen=True)
class _Job:
    """What is to move: where each piece is, in how many threads, and of how many bytes."""

    direction: Direction
    threads: int
    parts: Parts
    at: list[At]
    counts: list[int]
    piece: int
    pieces: list[int]  # those that move: of pieces at one place, the first


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
    parts = Parts(tile.swizzle)
    at = [parts.split(column) for column in table]
    first: dict[At, int] = {}
    same = [first.setdefault(place, n) for n, place in enumerate(at)]
    pieces = [n for n, of in enumerate(same) if n == of and counts[n]]
    job = _Job(direction, threads, parts, at, counts, piece_bytes(tile.element), pieces)
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
    groups: dict[tuple[int, int, int], list[int]] = {}
    for piece in pieces:
        part, value = job.at[piece]
        groups.setdefault((part, value // width, job.counts[piece]), []).append(piece)
    for (_, _, threads), group in groups.items():
        at = min(job.at[piece] for piece in group)
        if len(group) * job.piece == width and job.parts.aligned(at, width):
            yield _Site(at, tuple(sorted(group, key=lambda piece: job.at[piece])), threads)


# Matrices


def _matrices(job: _Job) -> Iterator[tuple[Form, list[_Site]]]:
    """The accesses to matrices, if all pieces are of some, as they lie and transposed; the matrices
    in the registers' order and in the tile's."""
    forms: tuple[Form, Form] = ("matrix", "matrix.trans")
    for form, single in zip(forms, (_straight(job), _transposed(job)), strict=True):
        yield form, _joined(job, single)
        in_tile = sorted(single, key=lambda site: site.at[1])
        if in_tile != single:
            yield form, _joined(job, in_tile)


def _straight(job: _Job) -> list[_Site]:
    """Matrices of one word a lane: lane 4 * row + n is n words into the row."""
    found, rows = [], {}
    for site in _vectors(job, WORD):
        if site.at[0] not in rows:
            rows[site.at[0]] = _rows_of(job, site.at[0])
        part = rows[site.at[0]]
        if len(site.pieces) * job.piece != WORD or part is None or site.at[1] % 16:
            return []
        found.append(_Site((part, site.at[1]), site.pieces, site.threads))
    return found


def _rows_of(job: _Job, part: int) -> int | None:
    """The thread part of the rows in which lanes have their words."""
    table = job.parts.tables[part]
    rows = [table[thread - thread % 4] for thread in range(job.threads)]
    if any(
        row % 16 or place != row + thread % 4 * WORD
        for thread, (row, place) in enumerate(zip(rows, table, strict=True))
    ):
        return None
    return job.parts.split(_eight_lanes(rows[::4]))[0]


def _transposed(job: _Job) -> list[_Site]:
    """Matrices whose lanes have two halves from two rows; neighbours in the registers, so that a word
    is a word."""
    found: list[_Site] = []
    if (
        job.piece != 2
        or len(job.pieces) % 2
        or not all(_columns(job, *job.at[p]) for p in job.pieces)
    ):
        return found
    made: dict[tuple[int, int, int], int] = {}
    for pair in zip(job.pieces[::2], job.pieces[1::2], strict=True):
        (even, value), (odd, other) = (job.at[piece] for piece in pair)
        key = (even, odd, other - value)
        if key not in made:
            halves = [job.parts.tables[even], [place + key[2] for place in job.parts.tables[odd]]]
            rows = [
                halves[row % 2][warp + row // 2]
                for warp in range(0, job.threads, _LANES)
                for row in range(_ROWS)
            ]
            made[key] = job.parts.split(_eight_lanes(rows))[0]
        found.append(_Site((made[key], value), pair, min(job.counts[piece] for piece in pair)))
    return found


@cache
def _turned(table: tuple[int, ...]) -> bool:
    """Whether lane 4 * n + m is n halves into the row of lane m, in each warp."""
    rows = [table[t - t % _LANES + t % 4] for t in range(len(table))]
    return all(
        row % 16 == 0 and place == row + t % _LANES // 4 * 2
        for t, (row, place) in enumerate(zip(rows, table, strict=True))
    )


def _columns(job: _Job, part: int, value: int) -> bool:
    return value % 16 == 0 and _turned(job.parts.tables[part])


def _eight_lanes(rows: Sequence[int]) -> list[int]:
    """The row that each lane names, the same in each eight lanes of a warp."""
    return [
        rows[warp + lane % _ROWS] for warp in range(0, len(rows), _ROWS) for lane in range(_LANES)
    ]


def _joined(job: _Job, single: Sequence[_Site]) -> list[_Site]:
    """Matrices by fours, twos and ones: as many as have rows that terms can name."""
    found, left = [], list(single)
    made: dict[tuple[At, ...], int] = {}
    while left:
        for size in (4, 2, 1):
            group = left[:size]
            if len(group) == size and len({site.threads for site in group}) == 1:
                value = group[0].at[1]
                key = tuple((site.at[0], site.at[1] - value) for site in group)
                if key not in made:
                    tables = [job.parts.places(at) for at in key]
                    each = [tables[t // _ROWS % size][t] for t in range(job.threads)]
                    made[key] = job.parts.split(each)[0]
                if size == 1 or job.parts.terms(made[key]) is not None:
                    pieces = tuple(piece for site in group for piece in site.pieces)
                    found.append(_Site((made[key], value), pieces, group[0].threads))
                    left = left[size:]
                    break
    return found


# Instructions


def _made(job: _Job, form: Form, sites: Sequence[_Site], same: Sequence[int]) -> Iterator[Moves]:
    """The instructions for these accesses, if their addresses can be computed."""
    bases, reached = Bases(job.parts), []
    for site in sites:
        found = bases.reach(site.at)
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
        -(-len(same) * job.piece // WORD),
        loaded,
        assembled,
    )


def _served(job: _Job, form: Form, sites: Sequence[_Site]) -> tuple[int, int]:
    """The worst conflict of all warps' accesses, and the wavefronts of the warp that has most."""
    ways: dict[tuple[int, int, int, int], list[list[int]]] = {}
    warps: list[list[list[int]]] = []
    for site in sites:
        part, value = site.at
        # Adding to an address, or exclusive-oring chunk bits, changes the names of banks alone.
        value %= max(job.parts.period, _BANKS)
        value = value % WORD if job.parts.apart(part, 0, value) else value
        key = (part, value, len(site.pieces), site.threads)
        if key not in ways:
            ways[key] = _of_warps(job, form, _Site(key[:2], site.pieces, site.threads))
        warps.append(ways[key])
    totals = [banks.total(parts) for parts in zip(*warps, strict=True)]
    return max(worst for worst, _ in totals), max(taken for _, taken in totals)


def _of_warps(job: _Job, form: Form, site: _Site) -> list[list[int]]:
    places, bytes_ = job.parts.swizzled(site.at), len(site.pieces) * job.piece
    found = []
    for warp in range(0, job.threads, _LANES):
        lanes = places[warp : min(warp + _LANES, max(site.threads, warp))]
        rows = bytes_ // WORD * _ROWS if form != "vector" and lanes else 0
        found.append(banks.of_warp(bytes_, lanes, rows=rows))
    return found


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

"""Values that change lanes within each warp.

The problem. In one shuffle each lane offers one word and takes one from some lane. A target says for
each lane and word where the word is: a lane and one of its words. To do with as many shuffles as a
thread has words, each round has to take, from every lane, one word that the round's other end wants,
another word in each round.

If the map from (lane, word) to (lane, word) is linear over bits, lane' = A lane + B word and word' =
C lane + D word, rounds are found by algebra. In round k lane l takes its word G l + k. It is then sent
by lane (A + B G) l + B k, and that lane must offer what depends on itself and on k alone: it does
where A + B G can be inverted, and such a G exists whenever the map can be. Lanes put their words in
the order that the rounds want before (an exclusive or of the number with E lane) and after (with
G lane): conditional swaps, one layer for each bit.

What isn't linear takes, for each word, a shuffle from each of the words that it is in some lane.
Words are independent of one another where no lane has them in common: each such component is for
itself. Elements narrower than a word are packed first, where they travel together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations

from pipelink.transfer import linear, words
from pipelink.transfer.linear import Matrix
from pipelink.transfer.places import terms
from pipelink.transfer.records import WORD, Choice, Round, Shuffle, Swap, Term

LANES = 32
_LANE_BITS = 5
Table = list[
    list[tuple[int, int]]
]  # of each target piece and lane: the lane and the piece it is in
_IDENTITY = list(range(LANES))


@dataclass
class _Unit:
    """Pieces that travel together: those of the target, and of the source, in one order."""

    pieces: tuple[int, ...]
    lanes: tuple[int, ...]
    sources: tuple[int, ...]  # in each lane, by number of a source unit


@dataclass
class _Program:
    """A shuffle that is being made."""

    before: list[Swap] = field(default_factory=list)
    lanes: list[tuple[Term, ...]] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    after: list[Swap] = field(default_factory=list)
    result: dict[int, int] = field(default_factory=dict)  # of a unit, its number among the rounds

    def base(self, table: Sequence[int]) -> int | None:
        """The number of the lanes that this table gives, -1 for a lane itself; None if terms don't."""
        if list(table) == _IDENTITY:
            return -1
        found = terms(table)
        if found is None:
            return None
        if found not in self.lanes:
            self.lanes.append(found)
        return self.lanes.index(found)


def shuffle(table: Table, size: int, pieces: int) -> Shuffle | None:
    """The exchange that gives each lane its pieces, of `size` bytes, of `pieces` a source thread."""
    units, sources = _packed(table, size, pieces)
    program = _Program()
    for targets, taken in _components(units):
        if not (_linear(program, units, targets, taken) or _chosen(program, units, targets)):
            return None
    place: dict[int, words.At] = {}
    for number, unit in enumerate(units):
        for n, piece in enumerate(unit.pieces):
            place[piece] = (program.result[number], n * size)
    each = WORD // size
    return Shuffle(
        tuple(
            words.word([*(words.at(p, size) for p in s), *[None] * (each - len(s))], size)
            for s in sources
        ),
        _merged(program.before),
        tuple(program.lanes),
        tuple(program.rounds),
        tuple(program.choices),
        _merged(program.after),
        words.pack([place[piece] for piece in range(len(table))], size),
    )


# Packing


def _packed(table: Table, size: int, pieces: int) -> tuple[list[_Unit], list[tuple[int, ...]]]:
    """Units as wide as travel together, and what each source unit is made of."""
    units = [
        _Unit((n,), tuple(lane for lane, _ in row), tuple(piece for _, piece in row))
        for n, row in enumerate(table)
    ]
    sources: list[tuple[int, ...]] = [(n,) for n in range(pieces)]
    while size < WORD:
        found = min(_paired(units, sources), key=lambda pair: pair[0], default=None)
        if found is None:
            break
        _, units, sources = found
        size *= 2
    return units, sources


def _paired(
    units: list[_Unit], sources: list[tuple[int, ...]]
) -> Iterator[tuple[int, list[_Unit], list[tuple[int, ...]]]]:
    """The ways to join units two by two, each with how many pairs are no neighbours."""
    distance = 1
    while len(units) % (2 * distance) == 0:
        firsts = [n for n in range(len(units)) if n // distance % 2 == 0]
        partner: dict[int, int] = {}
        for n in firsts:
            a, b = units[n], units[n + distance]
            if a.lanes != b.lanes or any(
                partner.setdefault(s, t) != t for s, t in zip(a.sources, b.sources, strict=True)
            ):
                break
        else:
            seconds = set(partner.values())
            if len(seconds) == len(partner) and not seconds & partner.keys():
                number = {s: n for n, s in enumerate(sorted(partner))}
                joined = [sources[s] + sources[partner[s]] for s in sorted(partner)]
                together = [_join(units[n], units[n + distance], number) for n in firsts]
                apart = sum(b != a + 1 for pair in joined for a, b in [pair[:: len(pair) // 2]])
                yield apart + len(firsts) * (distance > 1), together, joined
        distance *= 2


def _join(a: _Unit, b: _Unit, number: dict[int, int]) -> _Unit:
    return _Unit(a.pieces + b.pieces, a.lanes, tuple(number[s] for s in a.sources))


def _components(units: Sequence[_Unit]) -> list[tuple[list[int], list[int]]]:
    """Units that have source units in common: (units, source units), each in order."""
    found: list[tuple[list[int], set[int]]] = []
    for n, unit in enumerate(units):
        targets, taken = [n], set(unit.sources)
        apart = []
        for component in found:
            if component[1] & taken:
                targets, taken = component[0] + targets, component[1] | taken
            else:
                apart.append(component)
        found = [*apart, (targets, taken)]
    return [(sorted(targets), sorted(taken)) for targets, taken in found]


# Rounds by algebra


def _linear(
    program: _Program, units: Sequence[_Unit], targets: list[int], taken: list[int]
) -> bool:
    """Adds a component whose map is linear and can be inverted; False if it isn't."""
    bits = len(targets).bit_length() - 1
    if len(targets) != len(taken) or len(targets) != 1 << bits:
        return False
    rank = {source: n for n, source in enumerate(taken)}

    def source_of(coordinate: int) -> int:
        unit, lane = units[targets[coordinate >> _LANE_BITS]], coordinate % LANES
        return unit.lanes[lane] | rank[unit.sources[lane]] << _LANE_BITS

    found = linear.affine(source_of, _LANE_BITS + bits)
    if found is None or linear.rank(found[0]) < _LANE_BITS + bits:
        return False
    matrix, constant = found
    plans = [_plan(matrix, g) for g in _orders(matrix)]
    best = min(plans, key=lambda p: (p.turn != linear.unit(_LANE_BITS), linear.rank(p.before)))
    table = [linear.times(best.turn, lane) for lane in range(LANES)]
    base = program.base(table)
    if base is None:
        return False
    program.before += _swaps(best.before, taken)
    start = len(program.rounds)
    got = list(range(start, start + len(targets)))
    for k, target in enumerate(targets):
        offered = linear.times(best.offered, k) ^ linear.times(best.before, constant % LANES)
        offered ^= constant >> _LANE_BITS
        distance = linear.times(best.distance, k) ^ constant % LANES
        program.rounds.append(Round(taken[offered], base, distance))
        program.result[target] = got[k]
    program.after += _swaps(best.after, got)
    return True


@dataclass(frozen=True)
class _Plan:
    """The matrices of the essay: `turn` is A + B G, `distance` B, `before` E, `after` G."""

    turn: Matrix
    distance: Matrix
    before: Matrix
    offered: Matrix
    after: Matrix


def _plan(matrix: Matrix, g: Matrix) -> _Plan:
    lane, word = matrix[:_LANE_BITS], matrix[_LANE_BITS:]
    a, c = (tuple(v % LANES for v in lane), tuple(v >> _LANE_BITS for v in lane))
    b, d = (tuple(v % LANES for v in word), tuple(v >> _LANE_BITS for v in word))
    turn = linear.plus(a, linear.product(b, g))
    back = linear.inverse(turn)
    assert back is not None, "G is chosen so that lanes can be turned back"
    e = linear.product(linear.plus(c, linear.product(d, g)), back)
    return _Plan(turn, b, e, linear.plus(linear.product(e, b), d), g)


def _orders(matrix: Matrix) -> Iterator[Matrix]:
    """Each G that takes what A loses to words whose B makes up for it; nothing else is moved."""
    a = tuple(column % LANES for column in matrix[:_LANE_BITS])
    b = tuple(column % LANES for column in matrix[_LANE_BITS:])
    lost = linear.kernel(a)
    chosen = [1 << n for n in linear.extend(a, b)]
    units = linear.unit(_LANE_BITS)
    basis = [*lost, *(units[n] for n in linear.extend(lost, units))]
    for order in islice(permutations(chosen), 24):
        yield linear.from_basis(basis, [*order, *[0] * (_LANE_BITS - len(lost))])


def _swaps(matrix: Matrix, numbers: Sequence[int]) -> Iterator[Swap]:
    """Word p goes where p exclusive-or (matrix lane) was."""
    for bit in range(len(numbers).bit_length() - 1):
        row = linear.row(matrix, bit)
        lanes = sum(((lane & row).bit_count() & 1) << lane for lane in range(LANES))
        pairs = [(p, p | 1 << bit) for p in range(len(numbers)) if not p >> bit & 1]
        if lanes:
            yield Swap(lanes, tuple((numbers[p], numbers[q]) for p, q in pairs))


def _merged(swaps: Sequence[Swap]) -> tuple[Swap, ...]:
    """Swaps of the same lanes as one. Their order doesn't matter: each adds a bit to numbers."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for swap in swaps:
        found[swap.lanes] = found.get(swap.lanes, ()) + swap.pairs
    return tuple(Swap(lanes, pairs) for lanes, pairs in found.items())


# Rounds by choice


def _chosen(program: _Program, units: Sequence[_Unit], targets: list[int]) -> bool:
    """Adds a component word by word; False if no terms give the lanes that have one."""
    for target in targets:
        unit = units[target]
        first = unit.lanes[0]
        base = program.base([lane ^ first for lane in unit.lanes])
        if base is None:
            return False
        start, lanes = len(program.rounds), []
        for source in sorted(set(unit.sources)):
            program.rounds.append(Round(source, base, first))
            lanes.append(sum(1 << n for n, s in enumerate(unit.sources) if s == source))
        if len(lanes) > 1:
            numbers = tuple(range(start, start + len(lanes)))
            program.choices.append(Choice(numbers, tuple(lanes)))
        program.result[target] = start
    return True

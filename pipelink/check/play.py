"""The pipelines of a kernel, played together as the contracts declare them.

A ring hands stages from one producer to its consumers through two mbarriers a stage, full and empty.
A producer acquires (waits until its stage is empty), fills, and commits (arrives on full, goes on to
the next stage); a consumer waits (until its stage is full, goes on to the next) and releases the
oldest stage that it holds (arrives on empty). Each side may be right alone and the kernel hang: a
producer that fills 5 stages of A before the first of B, where A has 4, and a consumer that takes one
of each in turn. On a GPU that is a launch that never returns and names nobody; here it is two lines.

What an mbarrier holds follows from how often each side arrived. Stage s of S has had
(n - s + S - 1) // S of a side's first n arrivals; with C arrivals a phase, a // C phases of a
arrivals are complete. A wait on a parity passes if the phase completed last has that parity, the
right phase or not, as in PTX. So a play counts how often each act was done, and keeps nothing else.

Which schedules? Roles have no data to branch on, and a wait that may pass stays so until somebody
breaks the protocol: a deadlock comes in every order of the roles or in none. A race does not: a
commit without an acquire overwrites a stage only if the consumer is late. One play for each role
finds every race: that role does an act only when all others wait, so whatever is not made to come
after this act has come before it. A wait never passes before its stage is filled, as the same end's
wait one round earlier saw every phase before: what is used unfilled is released without a wait.

How long? Only differences matter: with all counts of a ring moved on by d, its stages are rotated by
d and the same waits pass. So if a play comes back to a state, and each role has only gone round one
of its loops meanwhile, it does the same again until a loop ends: all such rounds are taken in one
leap. This is exact, where loops shortened one by one could set 80 fills against 1 + 79 waits. Tiles
are a loop too: of 80 or 8000 steps a tile in 4 stages, about 100 acts are played.

Which cases? A name stands for a number that only the run knows, in one tile the same for all roles.
Counts are 0, 1, and for the S of each ring in the loop S-1, S, S+1 and 2S+1; decisions go both ways.
Each combination is played in all tiles, then in turn with another: the one before it, the first and
the last. Tiles are twice the stages of the largest ring, and 2: the phases wrap in any case. Counts
in a trace are from the start of the run: the 5th acquire of 4 stages needs the 1st release. A case
with an unbalanced ring hangs in the end, so no deadlock is told of it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MOST_COMBINATIONS = 64  # of named counts and decisions; of more, so many are drawn, always the same
MOST_ACTS = 300_000  # in all plays together: about a second
ACTS_AFTER_TROUBLE = 500  # a broken ring may run away; what else is wrong shows soon or never
MOST_TROUBLES = 4
MOST_VISITS = 8  # kept of one state: in nested loops it comes with several numbers of rounds

Values = Mapping[str, int]
# What, on which ring, by which consumer: the producer's acts have "" there.
Act = tuple[str, str, str]


@dataclass(frozen=True)
class Ring:
    """Stages that one producer hands to consumers, which are named by their ends."""

    name: str
    stages: int
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class Op:
    """What an end does with a ring; or a `repeat` or `maybe` of a body. A maybe, and a repeat without
    `count`, has the `name` of what the run decides. `place` is handed back in a trouble."""

    do: Literal["acquire", "commit", "wait", "release", "repeat", "maybe"]
    ring: str = ""
    end: str = ""
    count: int | None = None
    name: str = ""
    body: tuple[Op, ...] = ()
    place: object = None

    @property
    def act(self) -> Act:
        return self.do, self.ring, self.end if self.do in ("wait", "release") else ""

    def times(self, values: Values) -> int:
        """How often it is done each time that the role comes to it."""
        if self.do == "maybe":
            return values[self.name]
        if self.do == "repeat":
            return max(0, values[self.name] if self.count is None else self.count)
        return 1


@dataclass(frozen=True)
class Role:
    """Warps that go through `ops` once a tile. An end stands in one role."""

    name: str
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, how it comes to that, and the places of the operations concerned. `unplayed`
    is no fault of the kernel: a bound was reached, and what lies beyond is not known."""

    kind: Literal["deadlock", "overwritten", "unfilled", "unbalanced", "unplayed"]
    message: str
    trace: tuple[str, ...] = ()
    places: tuple[object, ...] = ()


def play(rings: Iterable[Ring], roles: Sequence[Role]) -> list[Trouble]:
    """The first trouble of each kind and ring. Operations on rings that are not in `rings` are passed
    over, and so are rings of which an end plays nothing: other rules name these."""
    kernel = _Kernel(rings, roles)
    chosen, total = _combinations(kernel)
    found: dict[tuple[str, str], Trouble] = {}
    for ring, trouble in _troubles(kernel, chosen):
        found.setdefault((trouble.kind, ring), trouble)
        if len(found) == MOST_TROUBLES:
            break
    if len(chosen) < total:
        message = f"{len(chosen)} of {total} combinations of named counts and decisions were played"
        found["unplayed", "combinations"] = Trouble("unplayed", message)
    return list(found.values())


def _troubles(kernel: _Kernel, chosen: Sequence[Values]) -> Iterator[tuple[str, Trouble]]:
    """Every trouble, with its ring: first those that the numbers of a tile tell, without a play."""
    uneven = [list(_imbalances(kernel, values)) for values in chosen]
    yield from itertools.chain.from_iterable(uneven)
    left = MOST_ACTS
    for case in _cases(len(chosen)):
        for lazy in range(len(kernel.roles)):
            game = _Game(kernel, [chosen[n] for n in case], left)
            hangs = game.run(lazy)
            yield from game.found.items()
            if hangs and not game.found and not any(uneven[n] for n in case):
                yield _deadlock(game)
            left -= game.done
            if left <= 0:
                yield "", Trouble("unplayed", f"the play was broken off after {MOST_ACTS} acts")
                return


class _Kernel:
    """The roles, the rings of which every end plays, and who and where an end is."""

    def __init__(self, rings: Iterable[Ring], roles: Sequence[Role]) -> None:
        self.roles = roles
        self.places: dict[Act, object] = {}
        self.owners: dict[tuple[str, str], str] = {}
        for role in roles:
            for op in _walk(role.ops):
                self.places.setdefault(op.act, op.place)
                self.owners[op.act[1:]] = role.name
        wholes = (r for r in rings if all((r.name, e) in self.owners for e in ("", *r.consumers)))
        self.rings = {ring.name: ring for ring in wholes}

    def who(self, ring: Ring, end: str) -> str:
        role = f"role '{self.owners[ring.name, end]}'"
        return f"'{end}' of {role}" if end else role


def _walk(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        yield from _walk(op.body)


def _acts(ring: Ring, end: str) -> tuple[Act, Act, Act]:
    """In the order in which a stage sees them."""
    return ("commit", ring.name, ""), ("wait", ring.name, end), ("release", ring.name, end)


# What is played, and what its numbers tell


def _combinations(kernel: _Kernel) -> tuple[list[Values], int]:
    """Values of all names together, the lowest first, and how many there are."""
    numbers: dict[str, set[int]] = {}
    for op in (op for role in kernel.roles for op in _walk(role.ops) if op.body):
        if op.do == "maybe":
            numbers.setdefault(op.name, set()).update((False, True))
        elif op.count is None:
            rings = {kernel.rings[o.ring] for o in _walk(op.body) if o.ring in kernel.rings}
            counts = {n for s in (r.stages for r in rings) for n in (s - 1, s, s + 1, 2 * s + 1)}
            numbers.setdefault(op.name, set()).update({0, 1} | counts)
    choices = [sorted(own) for own in numbers.values()]
    total = math.prod(map(len, choices))
    rows: Iterable[Sequence[int]] = itertools.product(*choices)
    if total > MOST_COMBINATIONS:
        draw = random.Random(0)
        drawn = ([draw.choice(own) for own in choices] for _ in range(MOST_COMBINATIONS - 1))
        rows = [[own[0] for own in choices], *drawn]
    return [dict(zip(numbers, row, strict=True)) for row in rows], total


def _cases(count: int) -> list[tuple[int, ...]]:
    """Which combinations the tiles have in turn: each alone, then two."""
    pairs = [p for n in range(1, count) for p in ((n - 1, n), (0, n), (n - 1, count - 1))]
    return [*((n,) for n in range(count)), *dict.fromkeys(pairs)]


def _imbalances(kernel: _Kernel, values: Values) -> Iterator[tuple[str, Trouble]]:
    done: Counter[Act] = Counter()
    for role in kernel.roles:
        _count(role.ops, values, 1, done)
    for ring, end in ((ring, end) for ring in kernel.rings.values() for end in ring.consumers):
        acts = _acts(ring, end)
        filled, waited, released = (done[act] for act in acts)
        if filled > waited:
            why = f"leaves {filled - waited} to the next, which takes them for its own"
        elif filled < waited:
            why = f"waits for {waited - filled} that only the next one fills"
        elif waited > released:
            why = f"keeps {waited - released}, until all {ring.stages} are held and none is filled"
        else:
            continue
        message = (
            f"{kernel.who(ring, '')} fills {filled} stages of '{ring.name}' a tile, "
            f"{kernel.who(ring, end)} waits for {waited} and releases {released}"
        )
        places = tuple(kernel.places[act] for act in acts if act in kernel.places)
        yield ring.name, Trouble("unbalanced", message, (*_with([values]), f"each tile {why}"), places)


def _count(ops: Iterable[Op], values: Values, times: int, done: Counter[Act]) -> None:
    for op in ops:
        own = times * op.times(values)
        done[op.act] += own
        _count(op.body, values, own, done)


# The play


class _Step(NamedTuple):
    """An act in a tile that has combination `turn` of the case. `ends` are the loops of which it is
    the last step, from the inside out: (number of the loop, its first step)."""

    op: Op
    act: Act
    turn: int
    ends: list[tuple[int, int]]


class _Player:
    """A role that stands before step `at`. `rounds` says of each of its loops how many rounds are
    done, 0 outside of the loop, and `times` how many there are; the last loop is that over tiles."""

    def __init__(self, role: Role, game: _Game, tiles: int) -> None:
        self.role, self.at = role, 0
        self.steps: list[_Step] = []
        self.times: list[int] = []
        for turn, values in enumerate(game.case):
            self.add(role.ops, values, turn, game.kernel)
        self.loop(0, tiles)
        self.rounds = [0] * len(self.times)

    def add(self, ops: Iterable[Op], values: Values, turn: int, kernel: _Kernel) -> None:
        for op in ops:
            first, times = len(self.steps), op.times(values)
            if op.ring in kernel.rings:
                self.steps.append(_Step(op, op.act, turn, []))
            elif times:
                self.add(op.body, values, turn, kernel)
                self.loop(first, times)

    def loop(self, first: int, times: int) -> None:
        if times > 1 and len(self.steps) > first:
            self.steps[-1].ends.append((len(self.times), first))
            self.times.append(times)

    def go_on(self) -> None:
        for loop, first in self.steps[self.at].ends:
            self.rounds[loop] += 1
            if self.rounds[loop] < self.times[loop]:
                self.at = first
                return
            self.rounds[loop] = 0
        self.at += 1


class _Game:
    """All roles in one case: how often each act was done, and what first went wrong with a ring."""

    def __init__(self, kernel: _Kernel, case: Sequence[Values], most: int) -> None:
        self.kernel, self.case, self.most = kernel, case, most
        tiles = 2 + 2 * max((ring.stages for ring in kernel.rings.values()), default=0)
        self.players = [_Player(role, self, tiles) for role in kernel.roles]
        self.done = 0
        self.counts: Counter[Act] = Counter()
        ends = [_acts(r, end) for r in kernel.rings.values() for end in r.consumers]
        self.compared = [(acts[0], act) for acts in ends for act in acts[1:]]
        self.visits: dict[object, list[tuple[list[list[int]], Counter[Act]]]] = {}
        self.found: dict[str, Trouble] = {}

    def waiting(self) -> list[tuple[_Player, _Step]]:
        return [(p, p.steps[p.at]) for p in self.players if p.at < len(p.steps)]

    def run(self, lazy: int) -> bool:
        """Whether it hangs. Role `lazy` does an act only where no other role can."""
        others = [player for n, player in enumerate(self.players) if n != lazy]
        while self.done < self.most:
            if not any([self.go(p) for p in others]) and not self.go(self.players[lazy]):
                return bool(self.waiting())
            self.leap()
        return False

    def go(self, player: _Player) -> bool:
        """Does a role's next act, if it can."""
        if player.at == len(player.steps) or not self.passes(player.steps[player.at].act):
            return False
        step = player.steps[player.at]
        if step.act[1] not in self.found and (trouble := _wrong(self, player, step)):
            self.found[step.act[1]] = trouble
            self.most = min(self.most, self.done + ACTS_AFTER_TROUBLE)
        self.counts[step.act] += 1
        self.done += 1
        player.go_on()
        return True

    def passes(self, act: Act) -> bool:
        """Whether the mbarrier that the act waits on, if it does, has completed a phase of the parity
        that it waits for; a producer waits for the phase before the stage's present one."""
        do, name, _ = act
        ring, filled = self.kernel.rings[name], self.counts["commit", name, ""]
        if do == "wait":
            turn, stage = divmod(self.counts[act], ring.stages)
            return _arrived(filled, stage, ring) % 2 != turn % 2
        if do == "acquire":
            turn, stage = divmod(filled, ring.stages)
            ends = [self.counts["release", name, end] for end in ring.consumers]
            arrived = sum(_arrived(released, stage, ring) for released in ends)
            return arrived // len(ends) % 2 == turn % 2
        return True

    def late(self, ring: Ring) -> list[str]:
        """The consumers that have not released what was in the stage that is filled next."""
        last = self.counts["commit", ring.name, ""] - ring.stages
        return [c for c in ring.consumers if self.counts["release", ring.name, c] <= last]

    def leap(self) -> None:
        """Does at once all rounds that repeat the way here from an earlier visit of this state."""
        counts, rounds = self.counts, [player.rounds[:] for player in self.players]
        state = (*(p.at for p in self.players), *(counts[a] - counts[b] for a, b in self.compared))
        visits = self.visits.setdefault(state, [])
        for then, counted in visits:
            if times := self.repeats(then):
                for player, old in zip(self.players, then, strict=True):
                    pairs = zip(player.rounds, old, strict=True)
                    player.rounds = [n + times * (n - o) for n, o in pairs]
                self.counts = Counter({a: n + times * (n - counted[a]) for a, n in counts.items()})
                return
        if len(visits) < MOST_VISITS:
            visits.append((rounds, counts.copy()))

    def repeats(self, then: Sequence[Sequence[int]]) -> int:
        """How often the way from `then` fits into the rounds left, if it was whole rounds of at most
        one loop of each role; a loop within that one has then come round to where it was."""
        fits = []
        for player, old in zip(self.players, then, strict=True):
            loops = zip(player.rounds, old, player.times, strict=True)
            gone = [(new - old, times - 1 - new) for new, old, times in loops if new != old]
            if len(gone) > 1 or any(rounds < 0 for rounds, _ in gone):
                return 0
            fits += [left // rounds for rounds, left in gone]
        return min(fits, default=0)


def _arrived(count: int, stage: int, ring: Ring) -> int:
    """How many of a side's arrivals were at this stage."""
    return (count - stage + ring.stages - 1) // ring.stages


# Troubles in words


def _wrong(game: _Game, player: _Player, step: _Step) -> Trouble | None:
    """What is wrong with an act that is about to be done."""
    (do, name, end), ring = step.act, game.kernel.rings[step.act[1]]
    if do == "commit" and (late := game.late(ring)):
        end = late[0]
    elif do != "release" or game.counts[step.act] < game.counts["wait", name, end]:
        return None
    filled, waited, released = (game.counts[act] for act in _acts(ring, end))
    who = game.kernel.who(ring, end)
    if do == "release":
        stage = released % ring.stages
        message = f"{who} releases stage {stage} of '{name}', which it has not waited for"
    else:
        message = f"role '{player.role.name}' fills stage {filled % ring.stages} of '{name}' " + (
            f"before {who} has waited for it"
            if waited <= filled - ring.stages
            else f"while {who} holds it"
        )
    trace = (
        *_with(game.case),
        f"role '{player.role.name}' is at {_nth(game, player, step)}",
        f"by then {game.counts['acquire', name, '']} acquires, {filled} commits",
        f"{waited} waits and {released} releases of {who}",
    )
    ...

"""The pipelines of a kernel, played together as the contracts declare them.

A producer acquires (waits until its stage is empty), fills, and commits (arrives on full, goes on to
the next stage); a consumer waits (until its stage is full, goes on to the next) and releases the
oldest stage that it holds (arrives on empty). Each side may be right alone and the kernel hang: a
producer that fills 5 stages of A before the first of B, where A has 4, and a consumer that takes one
of each in turn. On a GPU that launch never returns and names nobody; here it is two lines.

What an mbarrier holds follows from how often each side arrived: stage s of S has had
(n - s + S - 1) // S of a side's first n arrivals, and with C arrivals a phase, a arrivals complete
a // C phases. A wait on a parity passes if the phase completed last has it, the right phase or not,
as in PTX. So a play counts how often each act was done, and keeps nothing else of a ring.

A wait that may pass stays so until the protocol is broken: a deadlock comes in every order of the
roles or in none. A race does not: a commit without an acquire overwrites a stage only if the consumer
is late. If every role acquires before each commit and waits before each release, there is no race in
any order; if not, one play for each role finds every race: this role does an act only when all others
wait, so what is not made to come after the act comes before it. No wait passes before its stage is
filled, as the one a round earlier saw all phases before: a stage is used unfilled if released without
a wait.

Only differences matter: with all counts of a ring moved on by d, its stages are rotated by d and the
same waits pass. So if a play comes back to a state, and each role has only gone round one of its
loops meanwhile, it does the same again until a loop ends: all such rounds are one leap. It is exact,
where each loop shortened alone could set 80 fills against 79 waits: of 320,000 acts it leaves 44.
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
MOST_ACTS = 60_000  # in all plays together: about half a second
ACTS_AFTER_TROUBLE = 500  # a broken ring may run away; what else is wrong shows soon or never
MOST_TROUBLES = 4
MOST_VISITS = 8  # compared of one state: in nested loops it comes with several numbers of rounds

Values = Mapping[str, int]
# What, on which ring, by which consumer: the producer's acts have "" there.
Act = tuple[str, str, str]


@dataclass(frozen=True)
class Ring:
    """Stages that one producer hands to consumers, which are named by their ends."""

    name: str
    stages: int
    consumers: tuple[str, ...]

    def acts(self, end: str) -> list[Act]:
        """In the order in which a stage sees them."""
        whose = (("acquire", ""), ("commit", ""), ("wait", end), ("release", end))
        return [(do, self.name, who) for do, who in whose]

    def arrived(self, count: int, stage: int) -> int:
        """How many of a side's arrivals were at this stage."""
        return (count - stage + self.stages - 1) // self.stages


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
        count = values.get(self.name) if self.count is None else self.count
        return 1 if count is None else max(0, count)


@dataclass(frozen=True)
class Role:
    """Warps that go through `ops` once a tile. An end stands in one role."""

    name: str
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, how it comes to that, counted from the start of the run, and the places of the
    operations concerned. `unplayed` is a bound that was reached: what lies beyond is not known."""

    kind: Literal["deadlock", "overwritten", "unfilled", "unbalanced", "unplayed"]
    message: str
    trace: tuple[str, ...] = ()
    places: tuple[object, ...] = ()


def play(rings: Iterable[Ring], roles: Sequence[Role]) -> list[Trouble]:
    """The first trouble of each kind and ring. Operations on rings that are not in `rings` are passed
    over, and so are rings of which an end plays nothing: other rules name these."""
    found: dict[tuple[str, str], Trouble] = {}
    for about, trouble in _troubles(_Kernel(rings, roles)):
        found.setdefault((trouble.kind, about), trouble)
        if len(found) == MOST_TROUBLES:
            break
    return list(found.values())


def _troubles(kernel: _Kernel) -> Iterator[tuple[str, Trouble]]:
    """Every trouble, with its ring. An unbalanced case hangs for that: no deadlock is told of it."""
    chosen, total = kernel.combinations()
    uneven = [list(kernel.imbalances(values)) for values in chosen]
    yield from itertools.chain.from_iterable(uneven)
    # Tiles of one combination, then of two in turn.
    cases: list[tuple[int, ...]] = [(n,) for n in range(len(chosen))]
    cases += [(m, n) for n in range(1, len(chosen)) for m in sorted({0, n - 1})]
    left = MOST_ACTS
    for case in cases:
        for lazy in range(len(kernel.roles)):
            game = _Game(kernel, [chosen[n] for n in case], left)
            hangs = game.run(lazy)
            yield from game.found.items()
            if hangs and not game.found and not any(uneven[n] for n in case):
                yield game.deadlock()
            left -= game.done + sum(len(player.steps) for player in game.players)
            if game.orderly or left <= 0:
                break
        if left <= 0:
            yield "acts", Trouble("unplayed", f"the play was broken off after {MOST_ACTS} acts")
            break
    if len(chosen) < total:
        many = total if total < 1 << 63 else "very many"
        message = f"{len(chosen)} of {many} combinations of named counts and decisions were played"
        yield "combinations", Trouble("unplayed", message)


def acts_of(ops: Iterable[Op], values: Values) -> Counter[Act]:
    """How often each act is done in all."""
    done: Counter[Act] = Counter()
    for op in ops:
        for act, times in ((op.act, 1), *acts_of(op.body, values).items()):
            done[act] += times * op.times(values)
    return done


def _walk(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        yield from _walk(op.body)


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
        ends = {r: {(r.name, end) for end in ("", *r.consumers)} for r in rings if r.consumers}
        self.rings = {ring.name: ring for ring, own in ends.items() if own <= self.owners.keys()}
        self.ends = [(ring, end) for ring in self.rings.values() for end in ring.consumers]

    def who(self, ring: Ring, end: str) -> str:
        role = f"role '{self.owners[ring.name, end]}'"
        return f"'{end}' of {role}" if end else role

    def combinations(self) -> tuple[list[Values], int]:
        """Values of all names in one tile, and how many there are: counts about those of stages."""
        numbers: dict[str, set[int]] = {}
        for op in (op for role in self.roles for op in _walk(role.ops) if op.body and op.name):
            if op.do == "maybe":
                numbers.setdefault(op.name, set()).update((False, True))
            elif op.count is None:
                stages = {self.rings[o.ring].stages for o in _walk(op.body) if o.ring in self.rings}
                counts = (n for s in stages for n in (s - 1, s, s + 1, 2 * s + 1))
                numbers.setdefault(op.name, set()).update((0, 1), counts)
        choices = [sorted(own) for own in numbers.values()]
        total = math.prod(map(len, choices))
        rows: Iterable[Sequence[int]] = itertools.product(*choices)
        if total > MOST_COMBINATIONS:
            draw = random.Random(0)
            rows = [[draw.choice(own) for own in choices] for _ in range(MOST_COMBINATIONS)]
        return [dict(zip(numbers, row, strict=True)) for row in rows], total

    def imbalances(self, values: Values) -> Iterator[tuple[str, Trouble]]:
        done = acts_of((op for role in self.roles for op in role.ops), values)
        for ring, end in self.ends:
            _, filled, waited, released = (done[act] for act in ring.acts(end))
            if filled == waited <= released:
                continue
            message = (
                f"{self.who(ring, '')} fills {filled} stages of '{ring.name}' a tile, "
                f"{self.who(ring, end)} waits for {waited} and releases {released}"
            )
            why = "stages of one tile are taken for those of another"
            if filled == waited:
                why = f"all {ring.stages} stages are held in the end, and none can be filled"
            places = tuple(self.places[act] for act in ring.acts(end) if act in self.places)
            yield ring.name, Trouble("unbalanced", message, (*_with([values]), why), places)


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

    def go_on(self) -> bool:
        """To the next step; whether that is back in a loop."""
        for loop, first in self.steps[self.at].ends:
            self.rounds[loop] += 1
            if self.rounds[loop] < self.times[loop]:
                self.at = first
                return True
            self.rounds[loop] = 0
        self.at += 1
        return False

    def repeats(self, then: Sequence[int]) -> int | None:
        """How often the rounds since `then` fit in again: None if none, 0 if of several loops."""
        loops = zip(self.rounds, then, self.times, strict=True)
        gone = [(now - old, times - 1 - now) for now, old, times in loops if now != old]
        if len(gone) > 1:
            return 0
        return max(0, gone[0][1] // gone[0][0]) if gone else None


class _Game:
    """All roles in one case: how often each act was done, and what first went wrong with a ring. It
    has so many tiles that phases wrap even if a tile takes one stage."""

    def __init__(self, kernel: _Kernel, case: Sequence[Values], most: int) -> None:
        self.kernel, self.case, self.most, self.done = kernel, case, most, 0
        tiles = 2 + 2 * max((ring.stages for ring in kernel.rings.values()), default=0)
        self.players = [_Player(role, self, tiles) for role in kernel.roles]
        acts = [ring.acts(end) for ring, end in kernel.ends]
        self.counts = dict.fromkeys([*itertools.chain.from_iterable(acts), *kernel.places], 0)
        self.compared = [(own[1], act) for own in acts for act in own[2:]]
        self.visits: dict[object, list[tuple[list[list[int]], dict[Act, int]]]] = {}
        self.found: dict[str, Trouble] = {}
        # Every commit so far was after an acquire of its own, and every release after a wait. What a
        # role does is the same in every order of the roles: then there is no race in any.
        self.orderly, self.acquired = True, dict.fromkeys(kernel.rings, False)

    def waiting(self) -> list[tuple[_Player, _Step]]:
        return [(p, p.steps[p.at]) for p in self.players if p.at < len(p.steps)]

    def run(self, lazy: int) -> bool:
        """Whether it hangs. Role `lazy` does an act only where no other role can."""
        order = self.players[:lazy] + self.players[lazy + 1 :] + [self.players[lazy]]
        while self.done < self.most:
            if not any(self.go(player) for player in order):
                return bool(self.waiting())
        return False

    def go(self, player: _Player) -> bool:
        """Does a role's next act, if it can."""
        if player.at == len(player.steps) or not self.passes(player.steps[player.at].act):
            return False
        step = player.steps[player.at]
        if step.act[1] not in self.found and (trouble := self.wrong(player, step)):
            self.found[step.act[1]] = trouble
            self.most = min(self.most, self.done + ACTS_AFTER_TROUBLE)
        self.keep_order(step.act)
        self.counts[step.act] += 1
        self.done += 1
        if player.go_on():
            self.leap()
        return True

    def keep_order(self, act: Act) -> None:
        do, name, end = act
        if do == "acquire":
            self.acquired[name] = True
        elif do == "commit":
            self.orderly &= self.acquired[name]
            self.acquired[name] = False
        elif do == "release":
            self.orderly &= self.counts[act] < self.counts["wait", name, end]

    def passes(self, act: Act) -> bool:
        """Whether its mbarrier, if it waits on one, completed a phase of the parity waited for."""
        do, name, _ = act
        ring, filled = self.kernel.rings[name], self.counts["commit", name, ""]
        turn, stage = divmod(self.counts[act] if do == "wait" else filled, ring.stages)
        if do == "wait":
            return ring.arrived(filled, stage) % 2 != turn % 2
        if do != "acquire":
            return True
        ends = ring.consumers
        arrived = sum(ring.arrived(self.counts["release", name, end], stage) for end in ends)
        return arrived // len(ends) % 2 == turn % 2

    def late(self, ring: Ring) -> list[str]:
        """The consumers that have not released what was in the stage that is filled next."""
        last = self.counts["commit", ring.name, ""] - ring.stages
        return [c for c in ring.consumers if self.counts["release", ring.name, c] <= last]

    def leap(self) -> None:
        """Does at once all rounds that repeat the way here from an earlier visit of this state."""
        counts, players = self.counts, self.players
        state = (*(p.at for p in players), *(counts[a] - counts[b] for a, b in self.compared))
        visits = self.visits.setdefault(state, [])
        for then, counted in reversed(visits[-MOST_VISITS:]):
            fits = [p.repeats(old) for p, old in zip(players, then, strict=True)]
            if times := min((n for n in fits if n is not None), default=0):
                for player, old in zip(players, then, strict=True):
                    pairs = zip(player.rounds, old, strict=True)
                    player.rounds = [now + times * (now - was) for now, was in pairs]
                self.counts = {a: n + times * (n - counted[a]) for a, n in counts.items()}
                return
        # What is compared and kept costs time and memory as acts do.
        self.done += len(visits[-MOST_VISITS:]) + sum(len(p.rounds) for p in players) // 4
        visits.append(([player.rounds[:] for player in players], counts.copy()))

    def wrong(self, player: _Player, step: _Step) -> Trouble | None:
        """What is wrong with an act that is about to be done."""
        (do, name, end), ring = step.act, self.kernel.rings[step.act[1]]
        if do == "commit" and (late := self.late(ring)):
            end = late[0]
        elif do != "release" or self.counts[step.act] < self.counts["wait", name, end]:
            return None
        acquired, filled, waited, released = (self.counts[act] for act in ring.acts(end))
        stage = f"stage {(released if do == 'release' else filled) % ring.stages} of '{name}'"
        who, role = self.kernel.who(ring, end), f"role '{player.role.name}'"
        done = f"{who} has done {waited} waits and {released} releases"
        if do == "release":
            trace = (*_with(self.case), f"at {self.nth(player, step)}, {done}")
            message = f"{who} releases {stage} without a wait for it"
            return Trouble("unfilled", message, trace, (step.op.place,))
        message = f"{role} fills {stage}, which {who} has not released"
        own = f"{role} is at {self.nth(player, step)}, after {acquired} acquires"
        places = (step.op.place, self.kernel.places.get(("release", name, end)))
        return Trouble("overwritten", message, (*_with(self.case), own, done), places)

    def deadlock(self) -> tuple[str, Trouble]:
        """Each role that waits, and who would open what it waits on: as the case is balanced, that
        role isn't at its end. So it waits too, and the way from one to the next runs in a circle."""
        lines, rings, opens = [], {}, {}
        for player, step in self.waiting():
            (do, name, _), role = step.act, player.role.name
            ring, number, ends = self.kernel.rings[name], self.counts[step.act], [""]
            what, how = "for {}", f"fills it by its {_ordinal(number + 1)} commit"
            if do == "acquire":
                number, ends = self.counts["commit", name, ""], self.late(ring)
                how = f"frees it by its {_ordinal(number - ring.stages + 1)} release"
                what = "to fill {} again"
            what = what.format(f"stage {number % ring.stages} of '{name}'")
            openers = " and ".join(f"{self.kernel.who(ring, end)} {how}" for end in ends)
            lines.append(f"role '{role}' waits {what} ({self.nth(player, step)}); {openers}")
            rings[role], opens[role] = name, self.kernel.owners[name, ends[0]]
        circle = [next(iter(opens))]
        while (opener := opens.get(circle[-1], circle[0])) not in circle:
            circle.append(opener)
        names = [f"'{role}'" for role in circle[circle.index(opener) :]]
        several = f"roles {', '.join(names[:-1])} and {names[-1]} wait for each other"
        message = several if names[1:] else f"role {names[0]} waits for itself"
        places = tuple(step.op.place for _, step in self.waiting())
        return rings[opener], Trouble("deadlock", message, (*_with(self.case), *lines), places)

    def nth(self, player: _Player, step: _Step) -> str:
        count, tile = self.counts[step.act], player.rounds[-1] * len(self.case) + step.turn
        return f"its {_ordinal(count + 1)} {step.act[0]}, in the {_ordinal(tile + 1)} tile"


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"} if number % 100 not in (11, 12, 13) else {}
    return f"{number}{ends.get(number % 10, 'th')}"


def _with(case: Sequence[Values]) -> tuple[str, ...]:
    """The named numbers of the tiles in turn."""
    texts = {name: dict.fromkeys(str(values[name]).lower() for values in case) for name in case[0]}
    told = " and ".join(f"'{name}' = {', '.join(own)}" for name, own in texts.items())
    return (f"with {told}",) if told else ()

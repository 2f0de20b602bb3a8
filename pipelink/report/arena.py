"""Shared memory as a drawing: bytes down, the program's phases across.

Heights are in proportion to bytes, but for short stretches: one that holds something is at least
LEAST pixels high, so that mbarriers can be seen and pointed at. Each place where something begins or
ends has one height all across, so what overlaps in the drawing overlaps in memory, and nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipelink.arch import ARCHES
from pipelink.model import Call, Copy, MbarrierPlan, Move, PhasePlan, Plan, Region, Step

HEIGHT = 400  # pixels of the bytes in use, or of all that a block may have
LEAST = 19  # pixels of a short stretch that something is in, if they are few
SMALL = 240  # pixels that short stretches may take together
GAP = 5  # pixels of a short stretch of nothing
BREAK = 46  # pixels of all that is not used, where the axis is broken
CUT = 15  # pixels of them below the break
BROKEN = 0.6  # the axis is broken if less of the limit is used
TICK = 13  # pixels between two labels of the axis
LINE = 17  # pixels of a line of text
SAME = 0.01  # percents

Span = tuple[float, float]
Owners = Callable[[Sequence[str]], tuple[str, ...]]


@dataclass(frozen=True)
class Scale:
    """Pixels of bytes, by stretches between `edges`; those that are `short` are not in proportion."""

    edges: tuple[int, ...]
    tops: tuple[float, ...]
    short: tuple[bool, ...]

    def y(self, byte: int) -> float:
        n = max(0, min(bisect_right(self.edges, byte), len(self.edges) - 1) - 1)
        low, high = self.edges[n : n + 2]
        top, bottom = self.tops[n : n + 2]
        return round(top + (bottom - top) * (byte - low) / (high - low), 2)


@dataclass(frozen=True)
class Drawn:
    """A region or mbarriers in phases that follow one another; `x` and `width` are percents, `y` and
    `height` pixels. `own` are the classes of its owners' colours."""

    kind: str
    name: str
    offset: int
    bytes: int
    x: float
    y: float
    width: float
    height: float
    own: tuple[str, ...]
    detail: str
    swizzled: bool
    stages: tuple[tuple[int, float], ...]
    hint: str

    @property
    def middle(self) -> float:
        """Where a line of text stands if the box has one."""
        return round(min(self.height, LINE + 2) / 2, 2)

    @property
    def text(self) -> int:
        """Where text begins: after the bar, and the mark of a swizzle."""
        return 24 if self.swizzled else 12

    @property
    def room(self) -> float:
        """Pixels down to the first line of a stage."""
        return self.stages[0][1] if self.stages else self.height


@dataclass(frozen=True)
class Tick:
    """A label of the axis."""

    y: float
    byte: int


@dataclass(frozen=True)
class Arena:
    """The drawing. `end` is where the bytes in use end, `limit` where those that there are do."""

    height: float
    end: float
    limit: float
    broken: bool
    drawn: tuple[Drawn, ...]
    ticks: tuple[Tick, ...]
    stretches: tuple[tuple[float, float, bool], ...]
    smallest: int
    shared: bool

    @property
    def cut(self) -> float:
        """Where the axis is broken."""
        return round(self.limit - CUT, 2)

    @property
    def unused(self) -> float:
        """Where what is not used is said."""
        return round((self.end + (self.cut if self.broken else self.limit)) / 2, 2)

    @property
    def swizzled(self) -> bool:
        return any(d.swizzled for d in self.drawn)

    @property
    def staged(self) -> bool:
        return any(d.stages for d in self.drawn)


def arena(plan: Plan, phases: Sequence[Span], owners: Owners) -> Arena | None:
    """The drawing of a plan whose phases stand at these percents; none where nothing is placed."""
    if not plan.shared_bytes:
        return None
    broken = plan.shared_bytes < BROKEN * plan.shared_limit
    made = _scale(plan, plan.shared_bytes if broken else plan.shared_limit)
    end = made.y(plan.shared_bytes)
    limit = round(end + BREAK, 2) if broken else made.tops[-1]
    drawn = [d for r in plan.regions if r.bytes for d in _region(plan, r, phases, made, owners)]
    drawn += [_mbarriers(m, made, owners) for m in plan.mbarriers if m.count]
    stretches = tuple(
        (*ys, short) for ys, short in zip(pairwise(made.tops), made.short, strict=True)
    )
    return Arena(
        round(limit, 2),
        end,
        limit,
        broken,
        tuple(sorted(drawn, key=lambda d: (d.offset, d.x, d.name))),
        _ticks(made, plan, limit),
        stretches,
        int(LEAST * made.edges[-1] / HEIGHT) if any(made.short) else 0,
        any(count > 1 for phase in plan.phases for _, count in lanes(plan, phase).values()),
    )


def _spans(plan: Plan) -> list[tuple[int, int]]:
    found = [(r.offset, r.offset + r.bytes) for r in plan.regions if r.bytes]
    return found + [(m.offset, m.offset + 8 * m.count) for m in plan.mbarriers if m.count]


def _scale(plan: Plan, end: int) -> Scale:
    spans = _spans(plan)
    edges = sorted({0, plan.shared_bytes, end, *(edge for span in spans for edge in span)})
    held = [any(s <= low and high <= e for s, e in spans) for low, high in pairwise(edges)]
    exact = [HEIGHT * (high - low) / end for low, high in pairwise(edges)]
    count = sum(h and e < LEAST for h, e in zip(held, exact, strict=True))
    least = min(LEAST, SMALL / max(1, count))
    tops, short = [0.0], []
    for inside, pixels in zip(held, exact, strict=True):
        high = max(pixels, least if inside else GAP)
        tops.append(round(tops[-1] + high, 2))
        short.append(high > pixels)
    return Scale(tuple(edges), tuple(tops), tuple(short))


def _ticks(made: Scale, plan: Plan, limit: float) -> tuple[Tick, ...]:
    """Labels where something begins or ends, as many as there is room for: the ends come first."""
    wanted = [Tick(0, 0), Tick(limit, plan.shared_limit)]
    wanted.append(Tick(made.y(plan.shared_bytes), plan.shared_bytes))
    wanted += [Tick(top, edge) for top, edge in zip(made.tops, made.edges, strict=True)]
    kept: list[Tick] = []
    for tick in wanted:
        if all(abs(tick.y - other.y) >= TICK for other in kept):
            kept.append(tick)
    return tuple(sorted(kept, key=lambda t: t.y))


def _region(
    plan: Plan, region: Region, phases: Sequence[Span], made: Scale, owners: Owners
) -> list[Drawn]:
    """A box for each run of phases."""
    y = made.y(region.offset)
    height = round(made.y(region.offset + region.bytes) - y, 2)
    swizzle = re.search(r"(\d+)-byte swizzle", region.reason)
    hint = (
        f"{region.name}\nof {_owned(region.owners)}\n{region.bytes:,} bytes from {region.offset:,} to "
        f"{region.offset + region.bytes:,}, aligned to {region.align:,}\n"
        f"in {', '.join(region.phases)}\n{region.reason}"
    )
    stages = _stages(plan, region, made)
    first = Drawn(
        kind="region",
        name=region.name,
        offset=region.offset,
        bytes=region.bytes,
        x=0,
        y=y,
        width=100,
        height=height,
        own=owners(region.owners),
        detail=region.reason,
        swizzled=swizzle is not None,
        stages=stages,
        hint=hint,
    )
    return [replace(first, x=x, width=width) for x, width in _runs(plan, region, phases)]


def _owned(owners: tuple[str, ...]) -> str:
    return " and ".join(owners) or "the glue"


def _stages(plan: Plan, region: Region, made: Scale) -> tuple[tuple[int, float], ...]:
    """Where each stage of a buffer begins, but for the first: its mbarriers say how many there are."""
    buffer = region.name.rsplit(".", 1)[0]
    count = next((m.count for m in plan.mbarriers if m.name == f"{buffer}.full"), 1)
    each = region.bytes // count
    top = made.y(region.offset)
    return tuple((n, round(made.y(region.offset + n * each) - top, 2)) for n in range(1, count))


def _mbarriers(m: MbarrierPlan, made: Scale, owners: Owners) -> Drawn:
    """Mbarriers are in use from the first phase to the last."""
    y, size = made.y(m.offset), 8 * m.count
    height = round(made.y(m.offset + size) - y, 2)
    hint = (
        f"{m.name}\nmbarriers of {_owned(m.owners)}\n{size:,} bytes from {m.offset:,} to "
        f"{m.offset + size:,}: {m.count} of 8 bytes\n{m.reason}"
    )
    return Drawn(
        kind="mbarrier",
        name=m.name,
        offset=m.offset,
        bytes=size,
        x=0,
        y=y,
        width=100,
        height=height,
        own=owners(m.owners),
        detail=f"mbarriers: {m.reason}",
        swizzled=False,
        stages=(),
        hint=hint,
    )


def _runs(plan: Plan, region: Region, phases: Sequence[Span]) -> list[tuple[float, float]]:
    """(x, width) of a region: whole phases, or the lane that it has in one where its bytes go from
    step to step."""
    spans: list[Span] = []
    for phase, (left, right) in zip(plan.phases, phases, strict=True):
        if phase.name not in region.phases:
            continue
        lane, count = lanes(plan, phase).get(region.name, (0, 1))
        each = (right - left) / count
        start, end = left + lane * each, left + (lane + 1) * each
        if spans and abs(spans[-1][1] - start) < SAME:
            start = spans.pop()[0]
        spans.append((start, end))
    return [(round(a, 3), round(b - a, 3)) for a, b in spans]


def lanes(plan: Plan, phase: PhasePlan) -> dict[str, tuple[int, int]]:
    """(lane, lanes) of each region that shares bytes within a phase, in the order of first use."""
    live = sorted(
        (r for r in plan.regions if phase.name in r.phases and r.bytes),
        key=lambda r: (_first_use(r, phase), r.offset, r.name),
    )
    found: dict[str, tuple[int, int]] = {}
    for cluster in _clusters(live):
        lane: dict[str, int] = {}
        for r in cluster:
            before = [lane[o.name] for o in cluster if o.name in lane and _overlap(o, r)]
            lane[r.name] = max(before, default=-1) + 1
        count = max(lane.values()) + 1
        found |= {name: (n, count) for name, n in lane.items()}
    return found


def _clusters(live: list[Region]) -> list[list[Region]]:
    """Regions that have to do with one another, by one or several steps of overlap."""
    clusters: list[list[Region]] = []
    for region in live:
        joined = [c for c in clusters if any(_overlap(region, other) for other in c)]
        clusters = [c for c in clusters if c not in joined]
        clusters.append([*(r for c in joined for r in c), region])
    return [sorted(c, key=live.index) for c in clusters]


def _overlap(a: Region, b: Region) -> bool:
    return a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes


def _first_use(region: Region, phase: PhasePlan) -> int:
    """The first step of any role that has to do with a region."""
    uses = [n for role in phase.roles for n, step in enumerate(role.steps) if _uses(step, region)]
    return min(uses, default=0)


def _uses(step: Step, region: Region) -> bool:
    if isinstance(step, Move):
        return step.place.offset == region.offset
    if isinstance(step, Copy):
        return region.offset in (step.source.offset, step.target.offset)
    return isinstance(step, Call) and step.instance in region.owners


@dataclass(frozen=True)
class TensorMemory:
    """Columns of tensor memory, in percents of all that there are; `lanes` for those that claims of
    different phases share."""

    total: int
    allocated: int
    width: float
    lanes: int
    drawn: tuple[tuple[int, float, float, str, str, str], ...]


def columns_drawn(plan: Plan, colour: Callable[[str], str]) -> TensorMemory | None:
    """(lane, x, width, colour, name, hint) of each claim of columns."""
    if not plan.columns:
        return None
    total = max(ARCHES[plan.target].tensor_columns, plan.allocated_columns)
    ends: list[int] = []
    rows = []
    for c in sorted(plan.columns, key=lambda c: (c.first, c.instance, c.name)):
        free = [n for n, end in enumerate(ends) if end <= c.first]
        lane = free[0] if free else len(ends)
        ends[lane : lane + 1] = [c.first + c.count]
        name = f"{c.instance}.{c.name}"
        hint = f"{name}\n{c.count} columns from {c.first} to {c.first + c.count}\n{c.reason}"
        x, width = round(100 * c.first / total, 3), round(100 * c.count / total, 3)
        rows.append((lane, x, width, colour(c.instance), name, hint))
    width = round(100 * plan.allocated_columns / total, 3)
    return TensorMemory(total, plan.allocated_columns, width, len(ends), tuple(rows))

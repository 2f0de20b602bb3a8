"""Rules on coverage: the tiles of the schedule reach every element of a tensor, and none twice.

A schedule has rows and columns of tiles, each as many as it takes to cover a size by steps. A port
that declares its coverage says for each side of its tensor how far a tile reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipelink.abi import Cover, Entry, Tiling
from pipelink.check.protocol import FIRST_FORMAT
from pipelink.diagnostics import Diagnostic, Place, Where
from pipelink.model import Instance, PhaseSpec
from pipelink.view import End, View, who


def covered(view: View) -> Iterator[Diagnostic]:
    """Nothing is left unwritten, written twice, or touched past the tensor's end."""
    for end in view.ports("global"):
        sides = zip(end.port.shape, end.port.covers, strict=True) if end.port.covers else ()
        for side, (size, cover) in enumerate(sides):
            yield from _whole(view, end, side, size, cover)
            for schedule in _schedules(view, end):
                yield from _tiled(view, end, side, size, cover, schedule)
            yield from _without_schedule(view, end, side, cover)
        if end.port.covers and end.port.direction == "out" and not end.port.adds:
            for schedule in _schedules(view, end):
                yield from _once(view, end, schedule)


def _without_schedule(view: View, end: End, side: int, cover: Cover) -> Iterator[Diagnostic]:
    """Where a phase has no schedule each block runs its steps once, and its tile is 0, 0."""
    phases = view.phases_of(end)
    if cover.along == "whole" or _schedules(view, end) or not phases:
        return
    what = f"it goes by the {_along(cover)} of tiles, and phase '{phases[0]}' has no schedule"
    yield _fault(view, end, side, what, ())


Schedule = tuple[str, str]


def _schedules(view: View, end: End) -> list[Schedule]:
    """The schedules of the phases in which the port's instance runs."""
    taking = view.phases_of(end)
    return [p.schedule for p in view.kernel.manifest.phases if p.schedule and p.name in taking]


def _once(view: View, end: End, schedule: Schedule) -> Iterator[Diagnostic]:
    """Each element is written by one tile: a side goes by the rows of tiles and another one by the
    columns, unless there is one row or one column."""
    name, entry_name = schedule
    owner = view.kernel.instance(name)
    found = view.entry(owner, entry_name)
    if found is None or len(found[1].tiles) != 2:
        return
    along: list[str] = [
        "row" if cover.along == "group" else cover.along for cover in end.port.covers
    ]
    for what, tiling in zip(("row", "column"), found[1].tiles, strict=True):
        count = along.count(what)
        if count == 1 or (count == 0 and _single(view, owner, tiling)):
            continue
        problem = (
            f"each element is written by every {what} of tiles"
            if count == 0
            else f"{count} sides go by the {what}s of tiles, which reaches a diagonal only"
        )
        yield Diagnostic(
            "PL038",
            f"'{end.name}' of {who(end.instance)}: {problem}",
            end.place,
            (Place(name, "entries", found[0], f"{what}s: {tiling.of} by {tiling.step}"),),
            help=f"let one side go by_{what}, or the schedule have one {what} of tiles",
        )


def _single(view: View, owner: Instance, tiling: Tiling) -> bool:
    if tiling.of in view.extents(owner):
        return False
    return view.value(owner, tiling.of) <= view.value(owner, tiling.step)


def _fault(
    view: View, end: End, side: int, what: str, texts: tuple[str, ...], *others: Where
) -> Diagnostic:
    return Diagnostic(
        "PL038",
        f"side {side} of '{end.name}' of {who(end.instance)}: {what}",
        end.place,
        (*others, *view.causes(end.instance, *texts)),
        help="let the tiles of the port and of the schedule be computed from the same facts",
    )


def _clips(end: End, cover: Cover) -> bool:
    """A bulk copy touches nothing past the tensor's end."""
    return cover.clipped or bool(end.port.box)


def _in_groups(schedule: Entry) -> bool:
    return bool(schedule.tiles) and schedule.tiles[0].groups


def _other_rows(
    view: View, end: End, side: int, cover: Cover, schedule: Schedule, index: int
) -> Diagnostic:
    """A port that counts rows in another way than the schedule."""
    of, place = ".".join(schedule), Place(schedule[0], "entries", index)
    if cover.along == "group":
        what = f"it goes by groups of rows, and '{of}' has no groups of rows"
        help_ = "say by_row in the port, or let the schedule's rows be .in_groups()"
    else:
        what = f"it goes by rows counted from 0, and '{of}' has its rows in groups"
        help_ = "say by_group in the port, or let the schedule's rows be in no groups"
    return replace(_fault(view, end, side, what, (), place), help=help_)


def groups(view: View) -> Iterator[Diagnostic]:
    """A step that goes by the group of its tile runs in a schedule that sets it, and in such a schedule no
    step that takes the tile's row for one of all rows."""
    for phase in view.kernel.manifest.phases:
        name, entry = phase.schedule or ("", "")
        found = view.entry(view.kernel.instance(name), entry) if name else None
        grouped = found is not None and _in_groups(found[1])
        for step in (s for role in phase.roles for s in role.steps):
            taken = view.entry(view.kernel.instance(step[0]), step[1])
            if taken is None or "tile" not in taken[1].arguments or _says(view, step[0], taken[1]):
                continue
            if taken[1].groups != grouped:
                yield _other_step(view, phase, step, taken)


def _says(view: View, name: str, step: Entry) -> bool:
    """Whether a port of the step says how it counts rows: that is held against the schedule already."""
    ends = filter(None, (view.end(f"{name}.{argument}") for argument in step.arguments))
    return any(cover.along in ("row", "group") for end in ends for cover in end.port.covers)


def _other_step(
    view: View, phase: PhaseSpec, step: tuple[str, str], taken: tuple[int, Entry]
) -> Diagnostic:
    instance = view.kernel.instance(step[0])
    of = f"'{'.'.join(phase.schedule)}'" if phase.schedule else f"phase '{phase.name}'"
    if taken[1].groups:
        what = f"goes by groups of rows, and {of} has none"
        help_ = "run it in a phase whose schedule has its rows .in_groups()"
    else:
        what = f"takes the tile as rows counted from 0, and {of} has its rows in groups"
        help_ = "let its code go by tile.first and tile.end, and say .by_groups()"
    return Diagnostic(
        "PL038",
        f"step '{step[1]}' of {who(instance)} {what}",
        Place(step[0], "entries", taken[0]),
        help=help_,
    )


def _along(cover: Cover) -> str:
    return "groups of rows" if cover.along == "group" else f"{cover.along}s"


def _whole(view: View, end: End, side: int, size: str, cover: Cover) -> Iterator[Diagnostic]:
    extents = view.extents(end.instance)
    if cover.along != "whole" or size == cover.step:
        return
    if size in extents or cover.step in extents:
        yield _fault(view, end, side, f"a tile reaches {cover.step} of {size}", (cover.step, size))
        return
    reach, have = view.value(end.instance, cover.step), view.value(end.instance, size)
    # A box of fewer sides than its tensor is another rule's.
    box = end.port.box[side : side + 1]
    slack = view.value(end.instance, box[0]) if box else 1
    if not have <= reach < have + (slack if _clips(end, cover) else 1):
        what = f"a tile reaches {reach} ({cover.step}) of {have} ({size}) elements"
        yield _fault(view, end, side, what, (cover.step, size))


def _tiled(
    view: View, end: End, side: int, size: str, cover: Cover, schedule: Schedule
) -> Iterator[Diagnostic]:
    if cover.along == "whole":
        return
    name, entry_name = schedule
    owner = view.kernel.instance(name)
    found = view.entry(owner, entry_name)
    if found is None:
        return
    old = owner.component.version < FIRST_FORMAT  # such a schedule declares no tiles
    grouped = cover.along == "group"
    if cover.along != "column" and grouped != _in_groups(found[1]) and (old or found[1].tiles):
        yield _other_rows(view, end, side, cover, schedule, found[0])
        return
    if old:
        return
    index, entry = found
    place = Place(name, "entries", index)
    if not entry.tiles:
        what = f"it goes by the {_along(cover)} of '{name}.{entry_name}', which declares no tiles"
        yield _fault(view, end, side, what, (), place)
        return
    tiling = entry.tiles[1 if cover.along == "column" else 0]
    problem = _problem(view, end, size, cover, owner, tiling)
    if problem:
        others = view.causes(owner, tiling.step, tiling.of)
        yield _fault(view, end, side, problem, (cover.step, size), place, *others)


def _problem(view: View, end: End, size: str, cover: Cover, owner: Instance, tiling: Tiling) -> str:
    """What is wrong in words; empty if the tiles cover the side."""
    step, stride = view.value(end.instance, cover.step), view.value(owner, tiling.step)
    open_size, open_tiles = size in view.extents(end.instance), tiling.of in view.extents(owner)
    if open_size or open_tiles:
        if not (open_size and open_tiles and size == tiling.of):
            return (
                f"it has '{size}' elements, and the {_along(cover)} of tiles follow '{tiling.of}'"
            )
        if step < stride or (step > stride and end.port.direction == "out"):
            return f"a tile reaches {step} elements, and the {_along(cover)} of tiles are {stride} apart"
        if step > 1 and not _clips(end, cover):
            return (
                f"the last tile passes its end, as {size} is known at launch only: say .clipped()"
            )
        return ""
    have, tiles = view.value(end.instance, size), -(-view.value(owner, tiling.of) // stride)
    if cover.along == "group":
        rows = view.value(owner, tiling.of)
        if rows != have:
            return f"it has {have} elements, and the groups of rows have {rows}"
        if step < stride or (step > stride and end.port.direction == "out"):
            return f"a tile reaches {step} elements, and the groups of rows are cut every {stride}"
        return ""
    reach = f"{tiles} {cover.along}s of tiles, {step} elements each, reach {tiles * step} of {have}"
    if tiles * step < have:
        return reach
    same_side = view.value(owner, tiling.of) == have
    reads_more = end.port.direction == "in" and same_side and step > stride
    if reads_more and _clips(end, cover):
        return ""
    if (tiles - 1) * step >= have or (tiles * step > have and not _clips(end, cover)):
        return f"{reach}: past its end"
    return ""

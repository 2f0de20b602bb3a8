"""The pipelines of a kernel, as its contracts declare them, played together: check/play.py plays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelink.abi import Operation
from pipelink.check import play
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.model import ChannelSpec
from pipelink.view import End, View, who

# Contracts of format 1 say nothing of what entries do with rings, and of tiles.
FIRST_FORMAT = 2


@dataclass(frozen=True)
class _Ring:
    """A channel whose stages are handed over, with the steps that each end stands in."""

    name: str
    stages: int
    producer: End
    consumers: tuple[End, ...]

    @property
    def ends(self) -> tuple[End, ...]:
        return (self.producer, *self.consumers)


def _rings(view: View) -> list[_Ring]:
    """Every channel that goes from role to role, or through a ring."""
    groups: dict[str, list[tuple[End, End, ChannelSpec]]] = {}
    for producer, consumer, spec in view.connections():
        groups.setdefault(producer.name, []).append((producer, consumer, spec))
    found = []
    for name, group in groups.items():
        ends = (group[0][0], *(consumer for _, consumer, _ in group))
        roles = {view.role_of(end.instance) for end in ends}
        if len(roles) == 1 and not any(end.kind == "ring" for end in ends):
            continue
        if all(end.instance.component.version >= FIRST_FORMAT for end in ends):
            found.append(_Ring(name, _stages(view, ends, group[0][2]), ends[0], ends[1:]))
    return found


def _stages(view: View, ends: tuple[End, ...], spec: ChannelSpec) -> int:
    own = [view.value(e.instance, e.port.stages) for e in ends if e.kind == "ring"]
    return own[0] if own else spec.stages


def _played(operations: tuple[Operation, ...]) -> Iterator[str]:
    for operation in operations:
        if operation.on:
            yield operation.on
        yield from _played(operation.body)


def plays(view: View) -> Iterator[Diagnostic]:
    """Every step that takes a ring plays it; an end that nobody plays blocks the other for ever."""
    steps = list(dict.fromkeys(s for role in view.kernel.manifest.roles for s in role.steps))
    for end in (end for ring in _rings(view) for end in ring.ends):
        if end.kind != "ring":
            continue
        taking = [
            found[1]
            for name, step in steps
            if name == end.instance.name
            and (found := view.entry(end.instance, step))
            and end.port.name in found[1].arguments
        ]
        silent = [e.name for e in taking if end.port.name not in _played(e.plays)]
        if taking and not silent:
            continue
        by = f"step '{silent[0]}' takes" if taking[1:] else "no step plays"
        yield Diagnostic(
            "PL039",
            f"{by} ring '{end.name}' of {who(end.instance)}{' and plays nothing of it' * bool(taking[1:])}",
            end.place,
            help="declare what its entry does: .plays(pl::repeat(steps, "
            f"pl::{'fill' if end.out else 'drain'}({end.port.name})))",
        )


def pipelines(view: View) -> Iterator[Diagnostic]:
    """A deadlock, or a stage that is overwritten, in any of the runs that are played."""
    for trouble in _troubles(view):
        places = [p for p in trouble.places if isinstance(p, Place)]
        yield Diagnostic(
            "PL039",
            trouble.message,
            places[0] if places else FilePlace(view.kernel.manifest.path, "roles"),
            tuple(dict.fromkeys(places[1:])),
            notes=trouble.trace,
            remark=trouble.kind == "unplayed",
        )


def _troubles(view: View) -> Iterator[play.Trouble]:
    if any(True for _ in plays(view)):
        return
    rings = _rings(view)
    for ring in rings:
        if len({phase for end in ring.ends for phase in view.phases_of(end)}) > 1:
            yield from _uneven(view, ring)
            message = f"the phases that '{ring.name}' spans were not played together: a deadlock would pass"
            yield play.Trouble("unplayed", message)
    for phase in view.kernel.manifest.phases:
        steps = {name for role in phase.roles for name, _ in role.steps}
        here = [r for r in rings if any(e.instance.name in steps for e in r.ends)]
        whole = [r for r in here if all(view.phases_of(e) == [phase.name] for e in r.ends)]
        roles = [play.Role(r.name, tuple(_role(view, r.steps, whole))) for r in phase.roles]
        yield from play.play(
            [play.Ring(r.name, r.stages, tuple(e.name for e in r.consumers)) for r in whole], roles
        )


def _uneven(view: View, ring: _Ring) -> Iterator[play.Trouble]:
    """A ring from phase to phase: with every decision taken, what a tile of a phase fills is what it
    reads. The rest, what goes over from one phase to the next, is not played."""
    for phase in view.kernel.manifest.phases:
        if phase.schedule is None:
            continue
        roles = [play.Role(r.name, tuple(_role(view, r.steps, [ring]))) for r in phase.roles]
        done = play.acts_of((op for role in roles for op in role.ops), {})
        filled = done["commit", ring.name, ""]
        for consumer in ring.consumers:
            read = done["release", ring.name, consumer.name]
            if filled != read:
                places = tuple(op.place for role in roles for op in role.ops)
                message = (
                    f"in phase '{phase.name}' at most {filled} stages of '{ring.name}' are filled a tile, and "
                    f"'{consumer.name}' releases {read}"
                )
                yield play.Trouble("unbalanced", message, places=places)


def _role(view: View, steps: tuple[tuple[str, str], ...], rings: list[_Ring]) -> Iterator[play.Op]:
    """What a role does, with what the glue does around its steps."""
    played = {e.name: r.name for r in rings for e in r.ends if e.kind == "ring"}
    handed = [(r, e) for r in rings for e in r.ends if e.kind != "ring"]
    first, last = view.spans(steps)
    for number, (name, step) in enumerate(steps):
        instance = view.kernel.instance(name)
        found = view.entry(instance, step)
        if found is None:
            continue
        place = Place(name, "entries", found[0])
        around = [(r, e) for r, e in handed if e.instance.name == name]
        for ring, end in around:
            if first.get(end.name) == number:
                yield from _before(ring, end, place)
        for operation in found[1].plays:
            yield from _operation(view, name, operation, played, place)
        for ring, end in around:
            if last.get(end.name) == number:
                yield from _after(ring, end, place)


def _before(ring: _Ring, end: End, place: Place) -> Iterator[play.Op]:
    if end.out:
        if end.kind == "tile":
            yield play.Op("acquire", ring.name, place=place)
        return
    yield play.Op("wait", ring.name, end.name, place=place)
    if end.kind == "fragment":
        yield play.Op("release", ring.name, end.name, place=place)


def _after(ring: _Ring, end: End, place: Place) -> Iterator[play.Op]:
    if end.out:
        if end.kind == "fragment":
            yield play.Op("acquire", ring.name, place=place)
        yield play.Op("commit", ring.name, place=place)
    elif end.kind == "tile":
        yield play.Op("release", ring.name, end.name, place=place)


def _operation(
    view: View, name: str, operation: Operation, played: Mapping[str, str], place: Place
) -> Iterator[play.Op]:
    body = tuple(
        op for inner in operation.body for op in _operation(view, name, inner, played, place)
    )
    end = f"{name}.{operation.on}"
    if operation.on and end in played:
        yield play.Op(operation.do, played[end], end, place=place)
    elif not operation.on:
        instance = view.kernel.instance(name)
        count = max(0, view.value(instance, operation.count)) if operation.count else None
        yield play.Op(operation.do, count=count, name=operation.name, body=body, place=place)

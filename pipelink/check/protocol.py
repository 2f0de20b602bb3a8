"""The pipelines of a kernel, as its contracts declare them, played together: check/play.py plays."""

from __future__ import annotations

from collections.abc import Iterator

from pipelink.abi import Operation
from pipelink.check import play
from pipelink.diagnostics import Diagnostic, FilePlace, Place
from pipelink.view import End, View, who

# Contracts of format 1 say nothing of what entries do with rings, and of tiles.
FIRST_FORMAT = 2


def _rings(view: View) -> dict[str, tuple[str, End, End]]:
    """Each end of a ring that is played: the ring's name, and both ends."""
    found = {}
    for producer, consumer in view.channels():
        ends = (producer, consumer)
        shared = all(e.port.space == "shared" for e in ends)
        if shared and all(e.instance.component.version >= FIRST_FORMAT for e in ends):
            for end in ends:
                found[end.name] = (producer.name, producer, consumer)
    return found


def _played(operations: tuple[Operation, ...]) -> Iterator[str]:
    for operation in operations:
        if operation.on:
            yield operation.on
        yield from _played(operation.body)


def plays(view: View) -> Iterator[Diagnostic]:
    """Every end of a ring is played by a step; one that is not blocks the other for ever."""
    named = {
        f"{name}.{port}"
        for role in view.kernel.manifest.roles
        for name, step in role.steps
        if (found := view.entry(view.kernel.instance(name), step))
        for port in _played(found[1].plays)
    }
    for name in _rings(view):
        end = view.end(name)
        if end and name not in named:
            yield Diagnostic(
                "PL039",
                f"no step plays ring '{name}' of {who(end.instance)}",
                end.place,
                help="declare what its entry does: .plays(pl::repeat(steps, "
                f"pl::{'fill' if end.port.direction == 'out' else 'drain'}({end.port.name})))",
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


def _troubles(view: View) -> list[play.Trouble]:
    rings = _rings(view)
    if any(True for _ in plays(view)):
        return []
    listed = [
        play.Ring(name, view.value(producer.instance, producer.port.stages), (consumer.name,))
        for name, producer, consumer in dict.fromkeys(rings.values())
    ]
    roles = [
        play.Role(role.name, tuple(_role(view, role.steps, rings)))
        for role in view.kernel.manifest.roles
    ]
    return play.play(listed, roles)


def _role(
    view: View, steps: tuple[tuple[str, str], ...], rings: dict[str, tuple[str, End, End]]
) -> Iterator[play.Op]:
    for name, step in steps:
        instance = view.kernel.instance(name)
        found = view.entry(instance, step)
        if found:
            place = Place(name, "entries", found[0])
            for operation in found[1].plays:
                yield from _operation(view, name, operation, rings, place)


def _operation(
    view: View,
    name: str,
    operation: Operation,
    rings: dict[str, tuple[str, End, End]],
    place: Place,
) -> Iterator[play.Op]:
    body = tuple(
        op for inner in operation.body for op in _operation(view, name, inner, rings, place)
    )
    end = f"{name}.{operation.on}"
    if operation.on and end in rings:
        yield play.Op(operation.do, rings[end][0], end, place=place)
    elif not operation.on:
        instance = view.kernel.instance(name)
        count = max(0, view.value(instance, operation.count)) if operation.count else None
        yield play.Op(operation.do, count=count, name=operation.name, body=body, place=place)

"""Rules on channels: two ports that fit, each connected once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pipelink.diagnostics import Diagnostic, FilePlace, Place, Where, nearest
from pipelink.resolve import shown
from pipelink.view import End, View, fact_names, who


def exist(view: View) -> Iterator[Diagnostic]:
    """Each end names a port; the first is written, the second read."""
    for channel in view.kernel.manifest.channels:
        for text, direction in zip(channel, ("out", "in"), strict=True):
            end = view.end(text)
            instance = view.kernel.instance(text.split(".")[0])
            fitting = [
                f"{instance.name}.{p.name}"
                for p in instance.contract.ports
                if p.direction == direction and p.space != "global"
            ]
            if end is None or end.port.direction != direction or end.port.space == "global":
                if end and direction == "out" and _reversed(view, channel):
                    yield Diagnostic(
                        "PL016",
                        f"the channel from '{channel[0]}' to '{channel[1]}' goes the wrong way",
                        FilePlace(view.kernel.manifest.path, text),
                        help=f'swap them: from = "{channel[1]}", to = "{channel[0]}"',
                    )
                    break
                yield Diagnostic(
                    "PL016",
                    f"a channel needs an '{direction}' port at '{text}', and {who(instance)} has none",
                    FilePlace(view.kernel.manifest.path, text),
                    help=f"its ports that fit: {', '.join(fitting) or 'none'}",
                )


def _reversed(view: View, channel: tuple[str, str]) -> bool:
    ends = [view.end(text) for text in channel]
    return [e.port.direction for e in ends if e and e.port.space != "global"] == ["in", "out"]


def once(view: View) -> Iterator[Diagnostic]:
    """Every shared-memory and register port has exactly one channel."""
    uses = [end for channel in view.kernel.manifest.channels for end in channel]
    for end in view.ports("shared", "register"):
        count = uses.count(end.name)
        if count == 1:
            continue
        wanted = "to" if end.port.direction == "out" else "from"
        yield Diagnostic(
            "PL022",
            f"port '{end.name}' of {who(end.instance)} has {'no channel' if not count else f'{count} channels'}",
            end.place,
            help=f"add [[channels]] {wanted} it in {view.kernel.manifest.path}"
            if not count
            else "a port has one channel",
        )


def fit(view: View) -> Iterator[Diagnostic]:
    """What the producer hands over is what the consumer takes."""
    for producer, consumer in view.channels():
        causes: tuple[Where, ...] | None = None
        for what, left, right in _differences(view, producer, consumer):
            if causes is None:
                causes = (
                    *view.causes(producer.instance, *_texts(producer)),
                    *view.causes(consumer.instance, *_texts(consumer)),
                )
            yield Diagnostic(
                "PL021",
                f"{what}: {left} at '{producer.name}' of {who(producer.instance)}, "
                f"{right} at '{consumer.name}' of {who(consumer.instance)}",
                producer.place,
                (consumer.place, *causes),
                help="make one side declare what the other has",
            )


def _differences(view: View, a: End, b: End) -> Iterator[tuple[str, object, object]]:
    def both(of: Callable[[End], object]) -> tuple[object, object]:
        return of(a), of(b)

    pairs = [("memory spaces differ", both(lambda e: e.port.space))]
    if a.port.space == b.port.space == "register":
        pairs += [
            ("element types differ", both(lambda e: e.port.element)),
            ("elements a thread differ", both(view.fragment_count)),
            ("layouts differ", both(view.fragment)),
        ]
        if a.port.shape and b.port.shape:
            pairs.append(("shapes differ", both(lambda e: _shape(view, e, e.port.shape))))
    elif a.port.space == b.port.space == "shared":
        pairs += [
            ("stage counts differ", both(lambda e: view.value(e.instance, e.port.stages))),
            ("parts of a stage differ in number", both(lambda e: len(e.port.parts))),
        ]
        for p, q in zip(a.port.parts, b.port.parts, strict=False):
            title = f"part '{p.name}' differs in"
            pairs += [
                ("parts stand in another order or have other names", (p.name, q.name)),
                (f"{title} element type", (p.element, q.element)),
                (f"{title} shape", (_shape(view, a, p.shape), _shape(view, b, q.shape))),
                (f"{title} swizzle", (p.swizzle, q.swizzle)),
            ]
            layouts = (view.part_layout(a.instance, p), view.part_layout(b.instance, q))
            if pairs[-2][1][0] == pairs[-2][1][1]:
                pairs.append((f"{title} layout", layouts))
    yield from ((what, *sides) for what, sides in pairs if sides[0] != sides[1])


def _shape(view: View, end: End, sizes: tuple[str, ...]) -> str:
    return "x".join(str(view.value(end.instance, s)) for s in sizes)


def _texts(end: End) -> tuple[str, ...]:
    """All expressions of a port: what a difference may come from."""
    port = end.port
    parts = [text for p in port.parts for text in (*p.shape, p.layout)]
    return tuple(filter(None, (port.stages, port.count, port.layout, *port.shape, *parts)))


def edges(view: View) -> Iterator[Diagnostic]:
    """A consumer that needs zeros where a tile passes the tensor's end has a producer of them."""
    for producer, consumer in view.channels():
        for p, q in zip(producer.port.parts, consumer.port.parts, strict=False):
            if q.edge == "zero" and p.edge != "zero":
                left = "undefined" if p.edge else "not said"
                yield Diagnostic(
                    "PL035",
                    f"part '{q.name}' of '{consumer.name}' needs zeros past the tensor's end, and at "
                    f"'{producer.name}' of {who(producer.instance)} they are {left}",
                    consumer.place,
                    (producer.place,),
                    help="let the producer fill them and say edge_zero(), or the consumer do without",
                )


def promises(view: View) -> Iterator[Diagnostic]:
    """What one end of a channel needs, the other end promises."""
    for pair in view.channels():
        for end, other in (pair, pair[::-1]):
            given = {
                p.name: Place(other.instance.name, "promises", n)
                for n, p in enumerate(other.instance.contract.promises)
                if p.port == other.port.name and p.side == "promises"
            }
            for index, need in enumerate(end.instance.contract.promises):
                if need.port == end.port.name and need.side == "needs" and need.name not in given:
                    close = nearest(need.name, sorted(given))
                    yield Diagnostic(
                        "PL035",
                        f"'{end.name}' of {who(end.instance)} needs '{need.name}', which "
                        f"'{other.name}' of {who(other.instance)} does not promise",
                        Place(end.instance.name, "promises", index),
                        (given[close[0]] if close else other.place,),
                        notes=(need.why,),
                        help=f"did you mean '{close[0]}'?"
                        if close
                        else f"promised there: {', '.join(sorted(given)) or 'nothing'}",
                    )


def layouts(view: View) -> Iterator[Diagnostic]:
    """A fragment's layout has the port's values and tile, and whole copies of it the role's threads."""
    for end in view.ports("register"):
        role = view.role_of(end.instance)
        if not role:
            continue
        layout = view.fragment(end)
        count, threads = view.fragment_count(end), 32 * view.warps(role)
        of = f"the layout {layout} of '{end.name}' of {who(end.instance)}"
        causes = view.causes(end.instance, end.port.layout, *end.port.shape)
        if layout.value_count != count:
            message = f"{of} has {layout.value_count} values a thread, the port {count}"
            yield Diagnostic("PL021", message, end.place, causes)
        if threads % layout.thread_count:
            message = f"{of} is for {layout.thread_count} threads, role '{role}' has {threads}"
            yield Diagnostic("PL021", message, end.place, causes)
        elif end.port.shape:
            sides = view.sides(end.instance, end.port.shape)
            have = threads * layout.value_count
            if math.prod(sides) != have:
                message = (
                    f"{of} has {have} elements in the {threads} threads of role '{role}', the tile "
                    f"{'x'.join(map(str, sides))} has {math.prod(sides)}"
                )
                yield Diagnostic("PL021", message, end.place, causes)


def one_owner(view: View) -> Iterator[Diagnostic]:
    """The two ends of a channel do not fix one fact of it each in its own way."""
    fixing = ("provides", "chooses", "derives")
    for producer, consumer in view.channels():
        facts = [
            {f.name: n for n, f in enumerate(e.instance.contract.facts) if f.kind in fixing}
            for e in (producer, consumer)
        ]
        read = [fact_names(*_texts(end)) for end in (producer, consumer)]
        for name in sorted(facts[0].keys() & facts[1].keys() & read[0] & read[1]):
            values = [view.facts[e.instance.name][name] for e in (producer, consumer)]
            if values[0] == values[1]:
                continue
            yield Diagnostic(
                "PL012",
                f"fact '{name}' is fixed at both ends of a channel: {shown(values[0])} by "
                f"{who(producer.instance)}, {shown(values[1])} by {who(consumer.instance)}",
                Place(producer.instance.name, "facts", facts[0][name]),
                (Place(consumer.instance.name, "facts", facts[1][name]),),
                help="let one of them import it",
            )


def order(view: View) -> Iterator[Diagnostic]:
    """Registers are handed on within one role, to a later step."""
    for producer, consumer in view.channels():
        if producer.port.space != "register":
            continue
        left, right = view.role_of(producer.instance), view.role_of(consumer.instance)
        if not left or not right:
            continue
        if left != right:
            yield Diagnostic(
                "PL021",
                f"'{producer.name}' hands registers to '{consumer.name}', and they run in roles "
                f"'{left}' and '{right}'",
                producer.place,
                (consumer.place,),
                help="run both as steps of one role",
            )
            continue
        names = [i.name for i in view.role_instances(left)]
        if names.index(producer.instance.name) > names.index(consumer.instance.name):
            yield Diagnostic(
                "PL021",
                f"'{consumer.name}' reads registers before '{producer.name}' has written them",
                consumer.place,
                (producer.place,),
                help=f"put '{producer.instance.name}' before '{consumer.instance.name}' in role '{left}'",
            )

"""Rules on channels: two ports that fit, each connected once."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipelink.diagnostics import Diagnostic, FilePlace, Place, Where, nearest
from pipelink.place.routes import rounding
from pipelink.resolve import shown
from pipelink.transfer.converting import convert
from pipelink.transfer.places import Refused
from pipelink.view import End, View, fact_names, who


def exist(view: View) -> Iterator[Diagnostic]:
    """Each end names a port; the first is written, the second read."""
    for channel in view.kernel.manifest.channels:
        for text, direction in zip(channel.ends, ("out", "in"), strict=True):
            end = view.end(text)
            instance = view.kernel.instance(text.split(".")[0])
            fitting = [
                f"{instance.name}.{p.name}"
                for p in instance.contract.ports
                if p.direction == direction and p.space != "global"
            ]
            if end and view.idle(end):
                yield not_taken(end, FilePlace(view.kernel.manifest.path, text), "a channel")
                continue
            if end is None or end.port.direction != direction or end.port.space == "global":
                if end and direction == "out" and _reversed(view, channel.ends):
                    yield Diagnostic(
                        "PL016",
                        f"the channel from '{channel.source}' to '{channel.target}' goes the wrong way",
                        FilePlace(view.kernel.manifest.path, text),
                        help=f'swap them: from = "{channel.target}", to = "{channel.source}"',
                    )
                    break
                yield Diagnostic(
                    "PL016",
                    f"a channel needs an '{direction}' port at '{text}', and {who(instance)} has none",
                    FilePlace(view.kernel.manifest.path, text),
                    help=f"its ports that fit: {', '.join(fitting) or 'none'}",
                )


def not_taken(end: End, place: Where, who_names: str) -> Diagnostic:
    """A port that the manifest connects, of a step that no role runs."""
    taking = [
        f"{end.instance.name}.{e.name}"
        for e in end.instance.contract.entries
        if end.port.name in e.arguments
    ]
    return Diagnostic(
        "PL016",
        f"{who_names} names '{end.name}' of {who(end.instance)}, which no step of the kernel takes",
        place,
        (end.place,),
        help=f"run {' or '.join(taking)} in a role, or leave the port out",
    )


def _reversed(view: View, channel: tuple[str, str]) -> bool:
    ends = [view.end(text) for text in channel]
    return [e.port.direction for e in ends if e and e.port.space != "global"] == ["in", "out"]


def once(view: View) -> Iterator[Diagnostic]:
    """Every port that is read has one channel, every one that is written at least one."""
    uses = [end for channel in view.kernel.manifest.channels for end in channel.ends]
    for end in view.ports("shared", "register"):
        count = uses.count(end.name)
        if count == 1 or (count > 1 and end.out and not _twice(view, end)):
            continue
        wanted = "to" if end.port.direction == "out" else "from"
        yield Diagnostic(
            "PL022",
            f"port '{end.name}' of {who(end.instance)} has {'no channel' if not count else f'{count} channels'}",
            end.place,
            help=f"add [[channels]] {wanted} it in {view.kernel.manifest.path}"
            if not count
            else "a port has one channel"
            if not end.out
            else "channels of one port go to different ports",
        )


def _twice(view: View, end: End) -> bool:
    """Whether two channels of a port are the same."""
    targets = [c.target for c in view.kernel.manifest.channels if c.source == end.name]
    return len(set(targets)) < len(targets)


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


Difference = tuple[str, object, object]


def _differences(view: View, a: End, b: End) -> Iterator[Difference]:
    """What no transfer bridges. Layouts are bridged wherever the glue moves the elements; a ring that
    goes straight to a ring is laid out in one way."""
    if a.kind == b.kind == "fragment":
        yield from _differ(_between_registers(view, a, b))
    elif a.kind == "fragment" or b.kind == "fragment":
        yield from _differ(_to_registers(view, a, b))
    else:
        yield from _differ(_between_tiles(view, a, b))


def _differ(pairs: Iterator[Difference]) -> Iterator[Difference]:
    return (pair for pair in pairs if pair[1] != pair[2])


def _between_registers(view: View, a: End, b: End) -> Iterator[Difference]:
    if a.port.shape and b.port.shape:
        yield "shapes differ", _shape(view, a, a.port.shape), _shape(view, b, b.port.shape)
        return
    # An object of format 1 says nothing of the tile: its registers are handed on as they are.
    yield "element types differ", a.port.element, b.port.element
    yield "elements a thread differ", view.fragment_count(a), view.fragment_count(b)
    yield "layouts differ", view.fragment(a), view.fragment(b)


def _to_registers(view: View, a: End, b: End) -> Iterator[Difference]:
    """Registers and one tile: of shared memory, in as many parts as registers have."""
    counts = [len(e.port.parts) or 1 for e in (a, b)]
    yield "parts differ in number", counts[0], counts[1]
    if counts[0] != counts[1]:
        return
    sides = [_shape(view, e, (e.port.parts or (e.port,))[0].shape) for e in (a, b)]
    yield "shapes differ", sides[0], sides[1]


def _between_tiles(view: View, a: End, b: End) -> Iterator[Difference]:
    straight = a.kind == b.kind == "ring"
    if straight:
        counts = [view.value(e.instance, e.port.stages) for e in (a, b)]
        yield "stage counts differ", counts[0], counts[1]
    yield "parts of a stage differ in number", len(a.port.parts), len(b.port.parts)
    for p, q in zip(a.port.parts, b.port.parts, strict=False):
        title = f"part '{p.name}' differs in"
        if straight or len(a.port.parts) > 1:  # of a single part each owner has its own name
            yield "parts stand in another order or have other names", p.name, q.name
        if straight:
            yield f"{title} element type", p.element, q.element
        shapes = _shape(view, a, p.shape), _shape(view, b, q.shape)
        yield f"{title} shape", *shapes
        if straight:
            yield f"{title} swizzle", p.swizzle, q.swizzle
        if straight and shapes[0] == shapes[1]:
            layouts = view.part_layout(a.instance, p), view.part_layout(b.instance, q)
            yield f"{title} layout", *layouts


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
        elif not layout.compact:
            message = (
                f"{of} does not reach {layout.thread_count * layout.value_count} elements, one with each "
                "of its registers"
            )
            yield Diagnostic("PL021", message, end.place, causes, help="let each have its own")
        elif end.port.shape:
            sides = view.sides(end.instance, end.port.shape)
            have = threads * layout.value_count
            if math.prod(sides) != have:
                message = (
                    f"{of} has {have} elements in the {threads} threads of role '{role}', the tile "
                    f"{'x'.join(map(str, sides))} has {math.prod(sides)}"
                )
                yield Diagnostic("PL021", message, end.place, causes)


def compact(view: View) -> Iterator[Diagnostic]:
    """A part's layout has the part's sides, and puts its elements side by side: a stage has room for
    these and no more."""
    for end in view.ports("shared"):
        for part in end.port.parts:
            layout = view.part_layout(end.instance, part)
            sides = tuple(view.sides(end.instance, part.shape))
            if layout.sizes != sides or not layout.compact:
                yield Diagnostic(
                    "PL021",
                    f"the layout {layout} of part '{part.name}' of '{end.name}' of {who(end.instance)} does not "
                    f"put the {math.prod(sides)} elements of {'x'.join(map(str, sides))} side by side",
                    end.place,
                    view.causes(end.instance, part.layout, *part.shape),
                    help="leave no gap: what pads a row is an element of the part",
                )


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
    """What the glue moves goes to a later step, in the same phase; a component that takes the stages of
    a ring itself may do so where it will."""
    for producer, consumer in view.channels():
        left, right = view.role_of(producer.instance), view.role_of(consumer.instance)
        if not left or not right or producer.kind == consumer.kind == "ring":
            continue
        ends = (producer, consumer)
        phases = [view.phases_of(end) for end in ends]
        # Stages that a component takes itself may be filled in one phase and read in another.
        bound = [p for p, end in zip(phases, ends, strict=True) if end.kind != "ring"]
        if any(len(own) != 1 or own != bound[0] for own in bound):
            shown_ = [" and ".join(f"'{p}'" for p in own) or "none" for own in phases]
            yield Diagnostic(
                "PL021",
                f"'{producer.name}' is handed to '{consumer.name}' in one phase, and their steps are in "
                f"{shown_[0]} and in {shown_[1]}",
                producer.place,
                (consumer.place,),
                help="run both in one phase; from phase to phase go rings, and what a claim keeps",
            )
            continue
        if left != right:
            continue
        (phase,) = (p for p in view.kernel.manifest.phases if p.name == bound[0][0])
        (role,) = (r for r in phase.roles if r.name == left)
        first, last = view.spans(role.steps)
        made, read = last.get(producer.name), first.get(consumer.name)
        if made is not None and read is not None and made >= read:
            yield Diagnostic(
                "PL021",
                f"'{consumer.name}' reads {_what(producer)} before '{producer.name}' has written "
                f"{'them' if producer.kind == 'fragment' else 'it'}",
                consumer.place,
                (producer.place,),
                help=f"put '{producer.instance.name}' before '{consumer.instance.name}' in role '{left}'",
            )


def _what(end: End) -> str:
    return {"fragment": "registers", "tile": "a tile"}.get(end.kind, "a stage")


def conversions(view: View) -> Iterator[Diagnostic]:
    """Elements of another type: the conversion exists on the target, and one that rounds says how."""
    for producer, consumer, spec in view.connections():
        if producer.kind == consumer.kind == "ring":
            pairs = []  # the stages themselves are handed over: another rule wants them alike
        else:
            rows = zip(_elements(producer), _elements(consumer), strict=False)
            pairs = [pair for pair in dict.fromkeys(rows) if pair[0] != pair[1]]
        rounds, wrong = False, False
        for source, target in pairs:
            try:
                done = convert(source, target, 4, rounding(spec), view.arch)
            except Refused as error:
                wrong = True
                yield _no_conversion(producer, consumer, source, target, f": {error}")
                continue
            rounds |= done.rounds
            if done.rounds and not spec.rounding:
                why = ", and the channel does not say how to round"
                help_ = 'say it in [[channels]]: rounding = "nearest", or "toward_zero"'
                yield _no_conversion(producer, consumer, source, target, why, help_)
        # What one of several consumers needs, the channel says for all.
        alone = sum(a == producer for a, _ in view.channels()) == 1
        if spec.rounding and not rounds and not wrong and alone:
            yield _no_rounding(view, producer, consumer)


def ring_stages(view: View) -> Iterator[Diagnostic]:
    """Rings that one tile is handed to have its stages, so all of them as many."""
    rings: dict[str, End] = {}
    for producer, consumer in view.channels():
        if producer.kind != "tile" or consumer.kind != "ring":
            continue
        first = rings.setdefault(producer.name, consumer)
        counts = [view.value(e.instance, e.port.stages) for e in (first, consumer)]
        if counts[0] != counts[1]:
            yield Diagnostic(
                "PL021",
                f"stage counts differ: {counts[0]} at '{first.name}' of {who(first.instance)}, {counts[1]} at "
                f"'{consumer.name}' of {who(consumer.instance)}, which both take '{producer.name}'",
                first.place,
                (consumer.place, producer.place),
                help="make one of them declare what the other has",
            )


def stages(view: View) -> Iterator[Diagnostic]:
    """Stages of a channel are those of a tile that the glue hands to another role."""
    for producer, consumer, spec in view.connections():
        if spec.stages == 1:
            continue
        rings = [end for end in (producer, consumer) if end.kind == "ring"]
        if not rings:
            rings = [b for a, b in view.channels() if a == producer and b.kind == "ring"]
        if rings:
            why = f"'{rings[0].name}' is a ring, whose owners say its stages"
        elif view.role_of(producer.instance) == view.role_of(consumer.instance):
            why = "both ends are in one role"
        else:
            continue
        if sum(a == producer for a, _ in view.channels()) > 1:
            continue  # one of several consumers may need them
        yield Diagnostic(
            "PL053",
            f"the channel from '{producer.name}' to '{consumer.name}' says {spec.stages} stages, and {why}",
            FilePlace(view.kernel.manifest.path, "stages"),
            (producer.place, consumer.place),
            help="leave them out",
        )


def _elements(end: End) -> tuple[str, ...]:
    return tuple(part.element for part in end.port.parts) or (end.port.element,)


def _no_conversion(
    producer: End, consumer: End, source: str, target: str, why: str, help_: str = ""
) -> Diagnostic:
    return Diagnostic(
        "PL053",
        f"'{producer.name}' of {who(producer.instance)} hands {source} to '{consumer.name}' of "
        f"{who(consumer.instance)}, which takes {target}{why}",
        producer.place,
        (consumer.place,),
        help=help_,
    )


def _no_rounding(view: View, producer: End, consumer: End) -> Diagnostic:
    return Diagnostic(
        "PL053",
        f"the channel from '{producer.name}' to '{consumer.name}' says how to round, and nothing is rounded",
        FilePlace(view.kernel.manifest.path, "rounding"),
        (producer.place, consumer.place),
        help="leave it out",
    )

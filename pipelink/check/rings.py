"""Rules on rings: who arrives, through which proxy, and that copies bring the bytes of a stage."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipelink.abi import ELEMENT_BYTES, Part
from pipelink.diagnostics import Diagnostic
from pipelink.view import End, View, who

# Who can fill a stage, and who can free it.
PRODUCERS = ("copies", "one_thread", "each_warp", "each_thread", "each_thread_async")
COPY_ALIGN = 128  # of a tensor copy's address in shared memory
CONSUMERS = ("one_thread", "each_warp", "each_warpgroup", "each_thread")


def arrivers(view: View) -> Iterator[Diagnostic]:
    """Stores are made by threads that arrive for themselves; copies arrive for nobody else."""
    for end in view.ports("shared"):
        port = end.port
        if not port.by or end.kind == "tile":
            continue
        known = PRODUCERS if port.direction == "out" else CONSUMERS
        if port.by not in known:
            yield Diagnostic(
                "PL037",
                f"'{port.by}' arrives at '{end.name}' of {who(end.instance)}, which is an "
                f"'{port.direction}' port",
                end.place,
                help=f"who can arrive there: {', '.join(known)}",
            )
        elif port.by == "copies" and port.proxy == "generic":
            yield Diagnostic(
                "PL037",
                f"bulk copies fill '{end.name}' of {who(end.instance)} through the generic proxy",
                end.place,
                notes=("a bulk copy writes through the async proxy",),
            )


def fences(view: View) -> Iterator[Diagnostic]:
    """Asynchronous copies of threads are ordered before the async proxy by who waits for them."""
    for producer, consumer in view.channels():
        waits = producer.port.by == "each_thread_async" and consumer.kind == "ring"
        if waits and consumer.port.proxy != "generic" and not consumer.port.fences:
            yield Diagnostic(
                "PL037",
                f"'{producer.name}' of {who(producer.instance)} is filled by asynchronous copies of threads, and "
                f"'{consumer.name}' of {who(consumer.instance)}, which reads it through the async proxy, has no "
                "fence after its wait",
                consumer.place,
                (producer.place,),
                help="compile it again: this header has the fence",
            )


def ordered(view: View) -> Iterator[Diagnostic]:
    """One thread that arrives for others, and nothing orders their loads or stores before it."""
    for end in view.ports("shared"):
        port, many = end.port, _not_ordered(view, end)
        if not many:
            continue
        what = "stores" if port.direction == "out" else "reads"
        yield Diagnostic(
            "PL037",
            f"{port.by.replace('_', ' ')} arrives at '{end.name}' of {who(end.instance)} for {many}, and "
            f"nothing orders their {what} before it",
            end.place,
            help="let each of them arrive",
        )


def _not_ordered(view: View, end: End) -> str:
    """For whom a thread arrives beside those that it waits for by itself: a warp's threads come
    together in the header, a warpgroup's in wgmma's own wait."""
    warps = view.own_warps(end.instance)
    if end.port.proxy == "generic":
        many = {"one_thread": warps, "each_warpgroup": 4}.get(end.port.by, 1)
        return f"{many} warps" if many > 1 else ""
    if end.port.proxy == "async" and end.port.by == "one_thread" and warps > 4:
        return f"{warps // 4} warpgroups"
    return ""


def filled(view: View) -> Iterator[Diagnostic]:
    """The bytes that a producer announces are those that its copies deliver: with fewer the consumer
    waits for ever, with more it reads a stage that is still being written."""
    for end in view.ports("shared"):
        if end.port.by != "copies":
            continue
        for part in end.port.parts:
            yield from _part_filled(view, end, part)


def _part_filled(view: View, end: End, part: Part) -> Iterator[Diagnostic]:
    instance, of = end.instance, f"part '{part.name}' of '{end.name}' of {who(end.instance)}"
    if not part.copies:
        yield Diagnostic("PL036", f"{of} is filled by no copy", end.place)
        return
    delivered, boxes, places = 0, [], []
    for copy in part.copies:
        source = view.end(f"{instance.name}.{copy.port}")
        assert source is not None, "the contract's form has been checked"
        sides = view.sides(instance, source.port.box)
        count = view.value(instance, copy.count)
        delivered += count * math.prod(sides) * ELEMENT_BYTES[source.port.element]
        listed = "x".join(map(str, sides))
        boxes.append(f"{count} of {listed} {source.port.element} by '{copy.port}'")
        places.append(source.place)
        yield from _copy_fits(view, end, part, source, sides)
    wanted = view.part_bytes(instance, part)
    if view.value(instance, end.port.stages) > 1 and wanted % COPY_ALIGN:
        yield Diagnostic(
            "PL036",
            f"{of} has {wanted} bytes, and a bulk copy begins at a multiple of {COPY_ALIGN}: the second stage "
            "does not",
            end.place,
            view.causes(instance, *part.shape),
            help="choose a tile of whole 128 bytes, or one stage",
        )
    if delivered != wanted:
        texts = [text for c in part.copies for text in (c.count, *_box(view, end, c.port))]
        yield Diagnostic(
            "PL036",
            f"{of} has {wanted} bytes, its copies deliver {delivered}: {' and '.join(boxes)}",
            end.place,
            (*places, *view.causes(instance, *part.shape, *texts)),
            notes=(
                "a stage is announced with the bytes of its parts, and opens when they have come",
            ),
        )


def _box(view: View, end: End, port: str) -> tuple[str, ...]:
    source = view.end(f"{end.instance.name}.{port}")
    return source.port.box if source else ()


def _copy_fits(
    view: View, end: End, part: Part, source: End, box: list[int]
) -> Iterator[Diagnostic]:
    """A copy writes rows as its box has them, swizzled as its tensor map says."""
    row = view.sides(end.instance, part.shape)[-1]
    for what, theirs, ours in (
        ("elements", source.port.element, part.element),
        ("a swizzle", source.port.swizzle, part.swizzle),
        ("rows", box[-1], row),
    ):
        if theirs != ours:
            yield Diagnostic(
                "PL036",
                f"copies by '{source.name}' of {who(end.instance)} have {what} of {theirs}, part "
                f"'{part.name}' of '{end.name}' has {ours}",
                end.place,
                (source.place, *view.causes(end.instance, part.shape[-1], source.port.box[-1])),
            )

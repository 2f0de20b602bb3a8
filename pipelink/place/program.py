"""What each role does in each phase, in order: the steps of its instances, and between them what the
glue does for the channels.

A step's inputs are brought right before it and its outputs handed on right after it; an instance with
several steps in a role has its channels open from the first that takes the port to the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pipelink.model import PhaseSpec, RoleSpec
from pipelink.place.routes import Buffer, Route
from pipelink.transfer.records import Staged
from pipelink.view import End, View

Do = Literal["call", "acquire", "commit", "wait", "release", "store", "load", "copy", "exchange"]


@dataclass(frozen=True)
class Act:
    """One thing that all threads of a role do. `end` is the port that it is done for; `reads` and
    `writes` name what of shared memory that the role alone uses it touches. `fence`: what it wrote is
    read through the async proxy."""

    do: Do
    step: tuple[str, str] = ("", "")
    end: End | None = None
    route: Route | None = None
    buffer: Buffer | None = None
    to: Buffer | None = None
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    fence: bool = False
    warp: bool = False  # each warp reads what it wrote itself


@dataclass(frozen=True)
class RoleActs:
    """A role in a phase."""

    phase: str
    role: str
    acts: tuple[Act, ...]


def program(view: View, routes: tuple[Route, ...]) -> tuple[RoleActs, ...]:
    """All phases in order, the roles of each in the manifest's order."""
    return tuple(
        RoleActs(phase.name, role.name, tuple(_acts(view, phase, role, routes)))
        for phase in view.kernel.manifest.phases
        for role in phase.roles
    )


def _acts(view: View, phase: PhaseSpec, role: RoleSpec, routes: tuple[Route, ...]) -> Iterator[Act]:
    first, last = view.spans(role.steps)
    for number, step in enumerate(role.steps):
        here = [r for r in routes if first.get(r.consumer.name) == number]
        for route in here:
            yield from _bring(route)
        opens = [e for e in _outputs(routes) if first.get(e.name) == number]
        for buffer in _handed(opens, routes):
            yield Act("acquire", end=buffer.producer, buffer=buffer)
        yield _call(view, step, routes)
        for route in routes:
            if last.get(route.consumer.name) == number:
                yield from _let_go(route)
        for end in _outputs(routes):
            if last.get(end.name) == number:
                yield from _hand_on(end, routes)


def _outputs(routes: tuple[Route, ...]) -> list[End]:
    return list({r.producer.name: r.producer for r in routes}.values())


def _handed(ends: list[End], routes: tuple[Route, ...]) -> Iterator[Buffer]:
    """Buffers whose stages the glue acquires before a step that writes them."""
    for end in ends:
        source = next((r.source for r in routes if r.producer == end), None)
        if source is not None and source.handed and end.kind == "tile":
            yield source


def async_readers(buffer: Buffer) -> bool:
    """Whether a component reads the buffer through the async proxy, or does not say how."""
    ends = [e for e in buffer.consumers if e.kind != "fragment"]
    return any(e.port.proxy != "generic" for e in ends)


def fenced_by_reader(buffer: Buffer, end: End) -> bool:
    """Whether who waits for a stage has to fence it: its filler's threads are told by the hardware that
    their copies have come, and run nothing then."""
    return buffer.producer.port.by == "each_thread_async" and end.port.proxy != "generic"


def _local(*buffers: Buffer | None) -> frozenset[str]:
    return frozenset(b.name for b in buffers if b is not None and not b.handed)


def _call(view: View, step: tuple[str, str], routes: tuple[Route, ...]) -> Act:
    """A step with the tiles that its component reads and writes in place."""
    instance = view.kernel.instance(step[0])
    found = view.entry(instance, step[1])
    taken = {f"{step[0]}.{a}" for a in found[1].arguments} if found else set()
    reads = [r.target for r in routes if r.consumer.name in taken]
    writers = [r for r in routes if r.producer.name in taken]
    fence = any(
        b is not None and not b.handed and r.producer.port.proxy != "async" and async_readers(b)
        for r in writers
        if r.producer.kind == "tile" and (b := r.source)
    )
    claims = {
        f"{step[0]}.{c.name}"
        for c in instance.contract.claims
        if c.kind == "shared" and c.during and step[1] in c.during
    }
    copied = {r.buffers[0].name for r in writers if _copied_here(r)}
    return Act(
        "call",
        step,
        reads=_local(*reads) | claims,
        writes=_local(*(r.source for r in writers)) | copied | claims,
        fence=fence,
    )


def _bring(route: Route) -> Iterator[Act]:
    """What a consumer's step needs before it runs."""
    if route.consumer.kind == "ring" or not route.buffers:
        return
    first, end = route.buffers[0], route.consumer
    fence = len(route.buffers) == 1 and fenced_by_reader(first, end)
    act = Act("wait", end=end, route=route, buffer=first, fence=fence)
    copied = len(route.buffers) > 1
    if first.handed:
        yield act
    if copied:
        to = route.buffers[1]
        yield replace(
            act,
            do="copy",
            to=to,
            reads=_local(first),
            writes=_local(to),
            fence=async_readers(to),
        )
    if end.kind == "fragment" and not _staged(route):
        yield replace(act, do="load", reads=_local(first))
    if first.handed and (copied or end.kind == "fragment"):
        yield replace(act, do="release")


def _staged(route: Route) -> bool:
    """Registers of one role that go through shared memory: stored and loaded at once."""
    return route.exchange is not None


def _let_go(route: Route) -> Iterator[Act]:
    """What is done when a consumer's last step has ended."""
    in_place = len(route.buffers) == 1 and route.consumer.kind == "tile"
    if in_place and route.buffers[0].handed:
        yield Act("release", end=route.consumer, route=route, buffer=route.buffers[0])


def _hand_on(end: End, routes: tuple[Route, ...]) -> Iterator[Act]:
    """What is done with what a producer's last step has made."""
    own = [r for r in routes if r.producer == end]
    source = own[0].source
    stored: set[str] = set()
    for route in own:
        if end.kind == "fragment" and (route.exchange is not None or not route.buffers):
            yield from _exchange(route)
        elif end.kind == "fragment" and route.buffers[0].name not in stored:
            stored.add(route.buffers[0].name)
            yield from _filled(route, route.buffers[0], "store")
        elif _copied_here(route):
            yield from _filled(route, route.buffers[1], "copy")
    if source is not None and source.handed and end.kind == "tile":
        fence = end.port.proxy != "async" and async_readers(source)
        yield Act("commit", end=end, buffer=source, fence=fence)


def _copied_here(route: Route) -> bool:
    """Whether the producer's role itself reads its tile, to copy it to a ring: its warps then wait for
    one another, whoever else the tile is handed to."""
    rings = route.producer.kind == "tile" and route.consumer.kind == "ring"
    return rings and len(route.buffers) > 1


def _filled(route: Route, buffer: Buffer, do: Literal["store", "copy"]) -> Iterator[Act]:
    """A buffer that the glue fills in the producer's role."""
    end = route.producer
    fence = async_readers(buffer)
    act = Act(do, end=end, route=route, buffer=buffer, writes=_local(buffer), fence=fence)
    if do == "copy":
        source = route.buffers[0]
        act = replace(act, buffer=source, to=buffer, reads=frozenset({source.name}))
    if buffer.handed:
        yield Act("acquire", end=end, route=route, buffer=buffer)
        yield replace(act, fence=False)
        yield Act("commit", end=end, route=route, buffer=buffer, fence=fence)
    else:
        yield act


def _exchange(route: Route) -> Iterator[Act]:
    act = Act("exchange", end=route.producer, route=route)
    if not route.buffers:
        yield act
        return
    buffer, way = route.buffers[0], route.exchange
    act = replace(act, warp=isinstance(way, Staged) and way.warp)
    yield replace(act, do="store", buffer=buffer, writes=_local(buffer))
    yield replace(act, do="load", buffer=buffer, reads=_local(buffer))

"""Acts lowered to steps of the plan: with addresses, numbers of threads and the moves of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from pipelink import abi
from pipelink.abi import Entry
from pipelink.model import (
    Call,
    Convert,
    Copy,
    Hand,
    Instance,
    Move,
    Rearrange,
    RoleSteps,
    Step,
    Sync,
    TilePlace,
    Variable,
)
from pipelink.place.assign import Assignment
from pipelink.place.program import Act, RoleActs
from pipelink.place.routes import Buffer, Route, fragment_of, impossible, rounding
from pipelink.place.sync import Wait
from pipelink.place.warps import warpgroups
from pipelink.transfer.converting import convert
from pipelink.transfer.copy import copy
from pipelink.transfer.moves import load, store
from pipelink.transfer.places import Refused
from pipelink.transfer.records import (
    Conversion,
    Fragment,
    InPlace,
    Moves,
    Permute,
    Shuffle,
    Tile,
)
from pipelink.view import End, View


def variable(end: End) -> str:
    return f"{end.instance.name}__{end.port.name}"


def in_place(route: Route) -> bool:
    """Whether the consumer is handed the producer's own registers."""
    same = route.producer.port.element == route.consumer.port.element
    return isinstance(route.exchange, InPlace) and same


def call(
    view: View, routes: tuple[Route, ...], instance: Instance, name: str, fence: bool = False
) -> Call:
    """A call of an entry with what its contract says that it takes."""
    found = view.entry(instance, name)
    assert found is not None, "check has seen that the entry exists"
    symbol = abi.entry_symbol(instance.contract.component, name)
    arguments = tuple(_arguments(view, routes, instance, found[1]))
    alone = found[1].threads == "one"
    return Call(instance.name, symbol, instance.number, arguments, fence, alone)


def _arguments(
    view: View, routes: tuple[Route, ...], instance: Instance, entry: Entry
) -> Iterator[tuple[str, str]]:
    extents = view.extents(instance)
    for name in entry.arguments:
        end = view.end(f"{instance.name}.{name}")
        if name in extents:
            yield "extent", name
        elif end is None:
            yield "tile", name
        elif end.kind == "tensor":
            yield ("tensor_map" if end.port.box else "pointer"), variable(end)
        elif end.kind == "fragment":
            route = next((r for r in routes if r.consumer == end), None)
            shown = route.producer if route is not None and in_place(route) else end
            kind = "fragment" if end.out else "fragment_in"
            yield f"{kind} {end.port.element}", variable(shown)
        else:
            yield end.kind, variable(end)


def role_steps(view: View, assignment: Assignment, acts: RoleActs) -> RoleSteps:
    """All that a role does in a phase."""
    return _Role(view, assignment, acts).made()


@dataclass
class _Role:
    """What is gathered while the steps of a role are made."""

    view: View
    assignment: Assignment
    acts: RoleActs
    steps: list[Step] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    states: dict[str, None] = field(default_factory=dict)
    converted: set[str] = field(default_factory=set)

    @property
    def threads(self) -> int:
        return 32 * self.view.warps(self.acts.role)

    def made(self) -> RoleSteps:
        needed = {w.before: w for w in self._waits()}
        for number, act in enumerate(self.acts.acts):
            if number in needed:
                self.steps.append(self.sync(needed[number]))
            try:
                getattr(self, f"do_{act.do}")(act)
            except Refused as error:
                assert act.route is not None, "what is refused is a channel's transfer"
                raise impossible(act.route.producer, act.route.consumer, error) from error
        moves = self.assignment.block.registers.get((self.acts.phase, self.acts.role), ())
        shared = self.assignment.block.registers.get((self.acts.phase, ""), ())
        place = next(r for r in self.assignment.block.roles if r.name == self.acts.role)
        set_ = [
            *moves,
            *(m for m in shared if m.first_warp <= place.first_warp < m.first_warp + m.warps),
        ]
        registers = set_[0].registers if set_ else None
        return RoleSteps(
            self.acts.role,
            registers,
            tuple(self.states),
            tuple(self.variables.values()),
            tuple(self.steps),
            self._why(registers),
            moves,
        )

    def _waits(self) -> tuple[Wait, ...]:
        return self.assignment.waits[self.acts.phase, self.acts.role]

    def _why(self, registers: int | None) -> str:
        if registers is None:
            most = self.assignment.block.launch_registers
            held = self.assignment.block.held.get((self.acts.phase, self.acts.role))
            if held is not None:
                return f"no setmaxnreg: it has {held} from the phase before"
            return f"no setmaxnreg: what the code needs, of {most} at most"
        claims = [
            f"{i.name} {c[1]}"
            for role in self._beside()
            for i in self.view.role_instances(role)
            if (c := self.view.claim(i, "registers"))
        ]
        return f"setmaxnreg {registers}: the most of {', '.join(claims)}"

    def _beside(self) -> list[str]:
        """The role, and those of the phase with warps in its warpgroups."""
        (phase,) = (p for p in self.view.kernel.manifest.phases if p.name == self.acts.phase)
        running = [r.name for r in phase.roles]
        groups = {
            r.name: set(warpgroups(r)) for r in self.assignment.block.roles if r.name in running
        }
        return [name for name, own in groups.items() if own & groups[self.acts.role]]

    def sync(self, wait: Wait) -> Sync:
        why = wait.reason
        fence = wait.fence and self.view.arch.bulk_tensor_copy
        if wait.warp or self.threads == 32:
            return Sync("warp", 0, 32, why, fence)
        if self.threads == self.assignment.block.threads:
            return Sync("block", 0, self.threads, why, fence)
        name = f"{self.acts.phase}.{self.acts.role}"
        barrier = next(b for b in self.assignment.barriers if not b.instance and b.name == name)
        return Sync("role", barrier.id, self.threads, why, fence)

    def do_call(self, act: Act) -> None:
        instance = self.view.kernel.instance(act.step[0])
        made = call(self.view, self.assignment.routes, instance, act.step[1], act.fence)
        for (kind, name), end in zip(made.arguments, self._ends(act.step), strict=True):
            if kind in ("ring", "tile") and end is not None:
                self.states[name] = None
            elif kind.startswith("fragment") and end is not None:
                self.fragment(name, fragment_of(self.view, end), end)
        self.steps.append(made)

    def _ends(self, step: tuple[str, str]) -> list[End | None]:
        found = self.view.entry(self.view.kernel.instance(step[0]), step[1])
        assert found is not None, "check has seen that the entry exists"
        return [self.view.end(f"{step[0]}.{a}") for a in found[1].arguments]

    def fragment(self, name: str, what: Fragment, end: End | None = None) -> str:
        """The variable of a fragment, which is there from now on."""
        count = self.view.fragment_count(end) if end is not None else what.count
        words = -(-count * abi.ELEMENT_BYTES[what.element] // 4)
        self.variables.setdefault(name, Variable(name, what.element, count, words))
        return name

    def hand(self, act: Act) -> None:
        buffer, end = act.buffer, act.end
        assert buffer is not None, "what is handed over is a buffer"
        assert end is not None, "a buffer is handed over for an end"
        variable_ = state(buffer, end, act.route)
        self.states[variable_] = None
        side = "full" if act.do in ("commit", "wait") else "empty"
        self.steps.append(
            Hand(
                act.do,  # type: ignore[arg-type]
                end.port.name,
                end.instance.number,
                variable_,
                self.assignment.arena.offsets[f"{buffer.name}.{side}"],
                buffer.stages,
                act.fence,
            )
        )

    do_acquire = do_commit = do_wait = do_release = hand

    def place(self, act: Act, buffer: Buffer, part: int = 0) -> TilePlace:
        """Where a part of a buffer is now."""
        assert act.end is not None, "a buffer is filled or read for an end"
        slab = buffer.parts[part]
        offset = self.assignment.arena.offsets[f"{buffer.name}.{slab.name}"]
        if not buffer.handed:
            return TilePlace(offset)
        if buffer.stages > 1 and slab.tile.swizzle and slab.bytes % slab.tile.align:
            raise Refused(
                f"a stage of {slab.bytes} bytes is no multiple of {slab.tile.align}, the period of "
                f"its swizzle"
            )
        return TilePlace(offset, slab.bytes, state(buffer, act.end, act.route))

    def do_store(self, act: Act) -> None:
        route, buffer = act.route, act.buffer
        assert route is not None, "registers are stored for a channel"
        assert buffer is not None, "registers are stored to a buffer"
        tile = buffer.parts[0].tile
        source = self.converted_to(route, route.producer, tile.element)
        what = fragment_of(self.view, route.producer)
        moves = store(replace(what, element=tile.element), tile, self.threads, self.view.arch)
        title = f"{route.producer.name} to {buffer.name}"
        self.steps.append(Move(title, source, self.place(act, buffer), moves, act.fence))

    def converted_to(self, route: Route, end: End, element: str) -> str:
        """The variable that has the producer's registers as another type; converted once."""
        name = variable(end)
        if end.port.element == element:
            return name
        other = f"{name}__{element}{'__toward_zero' * (rounding(route.spec) == 'toward_zero')}"
        what = replace(fragment_of(self.view, end), element=element)
        if other not in self.converted:
            self.converted.add(other)
            self.convert(route, name, end.port.element, self.fragment(other, what), what)
        return other

    def convert(self, route: Route, source: str, element: str, target: str, what: Fragment) -> None:
        how = rounding(route.spec)
        done = convert(element, what.element, what.count, how, self.view.arch)
        title = f"{element} to {what.element}"
        if done.rounds:
            title += f", rounded {route.spec.rounding.replace('_', ' ')}"
        self.steps.append(Convert(title, source, target, done))

    def landing(self, route: Route, element: str) -> tuple[str, Fragment]:
        """The variable that a consumer's registers come to as `element`: its own, or one that is
        converted to it (`arrived`)."""
        what = replace(fragment_of(self.view, route.consumer), element=element)
        own = variable(route.consumer)
        name = own if element == route.consumer.port.element else f"{own}__{element}"
        return self.fragment(name, what), what

    def arrived(self, route: Route, element: str) -> None:
        if element != route.consumer.port.element:
            whole = fragment_of(self.view, route.consumer)
            own = self.fragment(variable(route.consumer), whole)
            self.convert(route, f"{own}__{element}", element, own, whole)

    def do_load(self, act: Act) -> None:
        route, buffer = act.route, act.buffer
        assert route is not None, "registers are loaded for a channel"
        assert buffer is not None, "registers are loaded from a buffer"
        tile = buffer.parts[0].tile
        target, what = self.landing(route, tile.element)
        moves = load(tile, what, self.threads, self.view.arch)
        title = f"{buffer.name} to {route.consumer.name}"
        place = self.place(act, buffer)
        self.steps.append(Move(title, target, place, moves))
        self.arrived(route, tile.element)

    def do_exchange(self, act: Act) -> None:
        route = act.route
        assert route is not None, "registers change their layout for a channel"
        if in_place(route):
            return
        source, target = route.producer.port.element, route.consumer.port.element
        narrow = min(source, target, key=abi.ELEMENT_BYTES.__getitem__)
        title = f"{route.producer.name} to {route.consumer.name}"
        if isinstance(route.exchange, InPlace):
            own = self.fragment(variable(route.consumer), fragment_of(self.view, route.consumer))
            self.convert(
                route,
                variable(route.producer),
                source,
                own,
                fragment_of(self.view, route.consumer),
            )
            return
        assert isinstance(route.exchange, Permute | Shuffle), "what is staged is stored and loaded"
        moved = self.converted_to(route, route.producer, narrow)
        landed, _ = self.landing(route, narrow)
        self.steps.append(Rearrange(title, moved, landed, route.exchange))
        self.arrived(route, narrow)

    def do_copy(self, act: Act) -> None:
        route, source, target = act.route, act.buffer, act.to
        assert route is not None, "tiles are copied for a channel"
        assert source is not None, "a tile is copied from a buffer"
        assert target is not None, "a tile is copied to a buffer"
        for part, (a, b) in enumerate(zip(source.parts, target.parts, strict=True)):
            loads, stores, conversion = self.copied(a.tile, b.tile, route)
            last = part == len(source.parts) - 1
            title = f"{source.name}.{a.name} to {target.name}.{b.name}"
            self.steps.append(
                Copy(
                    title,
                    self.place(act, source, part),
                    self.place(act, target, part),
                    loads,
                    stores,
                    conversion,
                    act.fence and last,
                )
            )

    def copied(
        self, source: Tile, target: Tile, route: Route
    ) -> tuple[Moves, Moves, Conversion | None]:
        """How a tile gets to another one; elements of another type are converted on the way."""
        alike = replace(target, element=source.element)
        what, loads, stores = copy(source, alike, self.threads, self.view.arch)
        if source.element == target.element:
            return loads, stores, None
        arch = self.view.arch
        how = rounding(route.spec)
        conversion = convert(source.element, target.element, what.count, how, arch)
        converted = replace(what, element=target.element)
        if len(what.shape) != len(target.shape):  # both lie alike, and were taken as one row
            target = replace(target, shape=(math.prod(target.shape),), layout="")
        return loads, store(converted, target, self.threads, arch), conversion


def state(buffer: Buffer, end: End, route: Route | None) -> str:
    """The variable that keeps the stage of a buffer for an end: the one that its component is handed,
    where it is handed this buffer."""
    own: Buffer | None = buffer
    if route is not None:
        own = route.source if end == route.producer else route.target
    if end.kind != "fragment" and own == buffer:
        return variable(end)
    return f"{buffer.name.replace('.', '__')}__{variable(end)}"

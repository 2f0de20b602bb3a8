"""A kernel with its resolved facts, and the questions that rules and placement ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from pipelink import expression, layout
from pipelink.abi import ELEMENT_BYTES, ROLE_THREADS, Claim, Entry, Part, Port, Value
from pipelink.arch import ARCHES, Arch
from pipelink.diagnostics import Place, Where
from pipelink.layout import Layout
from pipelink.model import ChannelSpec, FactValue, Instance, Kernel
from pipelink.resolve import Facts, place_of, shown

Kind = Literal["tensor", "fragment", "tile", "ring"]

# A diagnostic names at most so many places at which the values that it speaks of are fixed.
MOST_CAUSES = 6


@dataclass(frozen=True)
class End:
    """One end of a channel: a port of an instance."""

    instance: Instance
    index: int

    @property
    def port(self) -> Port:
        return self.instance.contract.ports[self.index]

    @property
    def name(self) -> str:
        return f"{self.instance.name}.{self.port.name}"

    @property
    def place(self) -> Place:
        return Place(self.instance.name, "ports", self.index)

    @property
    def kind(self) -> Kind:
        """What the component's code is handed: registers, a tile that stands still while its step
        runs, or a ring whose stages it acquires and releases itself."""
        if self.port.space == "global":
            return "tensor"
        if self.port.space == "register":
            return "fragment"
        return "tile" if self.port.by == "step" else "ring"

    @property
    def out(self) -> bool:
        return self.port.direction == "out"


@dataclass(frozen=True)
class View:
    """What comes out of resolve; everything in it is a plain value."""

    kernel: Kernel
    facts: Facts
    listing: tuple[FactValue, ...]

    @property
    def arch(self) -> Arch:
        return ARCHES[self.kernel.manifest.target]

    @cached_property
    def _values(self) -> dict[tuple[str, str], int]:
        """What is computed once: rules ask for the same again and again."""
        return {}

    def value(self, instance: Instance, text: str) -> int:
        """An expression's value with the instance's facts."""
        key = instance.name, text
        if key not in self._values:
            self._values[key] = expression.evaluate_number(text, self.known(instance))
        return self._values[key]

    def known(self, instance: Instance) -> Mapping[str, Value]:
        """What expressions of an instance read: its facts, and the threads of its role."""
        return self._known[instance.name]

    @cached_property
    def _known(self) -> dict[str, dict[str, Value]]:
        found = {i.name: dict(self.facts[i.name]) for i in self.kernel.instances}
        for instance in self.kernel.instances:
            try:
                found[instance.name][ROLE_THREADS] = 32 * self.own_warps(instance)
            except expression.ExpressionError:
                continue
        return found

    def fragment(self, end: End) -> Layout:
        return layout.fragment(end.port.layout, self.known(end.instance))

    def fragment_count(self, end: End) -> int:
        """Elements a thread of a register port: its layout's values; objects of format 1 say it."""
        return (
            self.value(end.instance, end.port.count)
            if end.port.count
            else self.fragment(end).value_count
        )

    def sides(self, instance: Instance, sizes: tuple[str, ...]) -> list[int]:
        return [self.value(instance, s) for s in sizes]

    def part_layout(self, instance: Instance, part: Part) -> Layout:
        if part.layout:
            return layout.parse(part.layout, self.known(instance))
        return layout.row_major(self.sides(instance, part.shape))

    def part_bytes(self, instance: Instance, part: Part) -> int:
        size = ELEMENT_BYTES[part.element]
        for side in self.sides(instance, part.shape):
            size *= side
        return size

    def shape(self, instance: Instance, sizes: tuple[str, ...]) -> tuple[int | str, ...]:
        """Sizes as integers; an extent keeps its name."""
        extents = self.extents(instance)
        return tuple(s if s in extents else self.value(instance, s) for s in sizes)

    @cached_property
    def _extents(self) -> dict[str, frozenset[str]]:
        return {
            i.name: frozenset(f.name for f in i.contract.facts if f.kind == "extent")
            for i in self.kernel.instances
        }

    def extents(self, instance: Instance) -> frozenset[str]:
        return self._extents[instance.name]

    def end(self, text: str) -> End | None:
        """The port that `instance.port` names, if there is one."""
        name, port = text.split(".")
        instance = self.kernel.instance(name)
        for index, candidate in enumerate(instance.contract.ports):
            if candidate.name == port:
                return End(instance, index)
        return None

    def channels(self) -> Iterator[tuple[End, End]]:
        """Connected ports, producer first."""
        for a, b, _ in self.connections():
            yield a, b

    def connections(self) -> Iterator[tuple[End, End, ChannelSpec]]:
        """Connected ports, producer first, with what the manifest says of the channel."""
        for channel in self.kernel.manifest.channels:
            a, b = self.end(channel.source), self.end(channel.target)
            if a and b:
                yield a, b, channel

    def ports(self, *spaces: str) -> Iterator[End]:
        """The ports in use: all but those that only steps take which no role runs."""
        for instance in self.kernel.instances:
            for index, port in enumerate(instance.contract.ports):
                end = End(instance, index)
                if port.space in spaces and not self.idle(end):
                    yield end

    def claims(self, *kinds: str) -> Iterator[tuple[Instance, int, Claim]]:
        """The claims in use: all but those during steps which no role runs."""
        for instance in self.kernel.instances:
            for index, claim in self.claims_of(instance):
                if claim.kind in kinds:
                    yield instance, index, claim

    def claims_of(self, instance: Instance) -> Iterator[tuple[int, Claim]]:
        """An instance's claims in use, each with its number in the contract."""
        run = self._run[instance.name]
        for index, claim in enumerate(instance.contract.claims):
            if not claim.during or run.intersection(claim.during):
                yield index, claim

    def claim(self, instance: Instance, kind: str) -> tuple[int, int] | None:
        """(index, amount) of the largest claim of a kind."""
        found = [
            (index, self.value(instance, claim.amount))
            for index, claim in self.claims_of(instance)
            if claim.kind == kind
        ]
        return max(found, key=lambda row: row[1], default=None)

    def idle(self, end: End) -> bool:
        """Whether entries take a port, and the kernel runs none of them."""
        taking = {e.name for e in end.instance.contract.entries if end.port.name in e.arguments}
        run = self._run[end.instance.name]
        return bool(taking and run) and not taking & run

    def launch_extents(self) -> list[str]:
        """What a launch fixes: the extents that entries in use take, or that ports in use have as sides."""
        found: dict[str, None] = {}
        for instance in self.kernel.instances:
            entries = [e for _, e in self.run_entries(instance)]
            read = {a for e in entries for a in e.arguments} | {
                t.of for e in entries for t in e.tiles
            }
            for index, port in enumerate(instance.contract.ports):
                if port.space == "global" and not self.idle(End(instance, index)):
                    read |= set(port.shape)
            extents = (f.name for f in instance.contract.facts if f.kind == "extent")
            found |= dict.fromkeys(name for name in extents if name in read)
        return list(found)

    def run_entries(self, instance: Instance) -> Iterator[tuple[int, Entry]]:
        """The entries of an instance that the kernel runs, each with its number in the contract."""
        for index, entry in enumerate(instance.contract.entries):
            if entry.name in self._run[instance.name]:
                yield index, entry

    @cached_property
    def _run(self) -> dict[str, frozenset[str]]:
        """The entries of each instance that the kernel runs."""
        manifest = self.kernel.manifest
        steps = [*manifest.schedules, *(s for role in manifest.roles for s in role.steps)]
        return {
            i.name: frozenset(entry for name, entry in steps if name == i.name)
            for i in self.kernel.instances
        }

    def entry(self, instance: Instance, name: str) -> tuple[int, Entry] | None:
        for index, entry in enumerate(instance.contract.entries):
            if entry.name == name:
                return index, entry
        return None

    def role_instances(self, role: str) -> list[Instance]:
        spec = next(r for r in self.kernel.manifest.roles if r.name == role)
        return [self.kernel.instance(n) for n in dict.fromkeys(name for name, _ in spec.steps)]

    def role_of(self, instance: Instance) -> str:
        """The role whose steps the instance takes part in; every instance has one after check."""
        for role in self.kernel.manifest.roles:
            if any(name == instance.name for name, _ in role.steps):
                return role.name
        return ""

    def spans(self, steps: tuple[tuple[str, str], ...]) -> tuple[dict[str, int], dict[str, int]]:
        """The first and the last of a role's steps that takes each port."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for number, (name, step) in enumerate(steps):
            found = self.entry(self.kernel.instance(name), step)
            for argument in found[1].arguments if found else ():
                first.setdefault(f"{name}.{argument}", number)
                last[f"{name}.{argument}"] = number
        return first, last

    def phases_of(self, end: End) -> list[str]:
        """The phases with a step that takes a port, in order; all of its instance's, if none does."""
        by_instance, by_port = self._taken
        found = by_port.get((end.instance.name, end.port.name))
        return found or by_instance.get(end.instance.name, [])

    @cached_property
    def _taken(self) -> tuple[dict[str, list[str]], dict[tuple[str, str], list[str]]]:
        """The phases of each instance, and of each port that a step takes."""
        instances: dict[str, dict[str, None]] = {}
        ports: dict[tuple[str, str], dict[str, None]] = {}
        for phase in self.kernel.manifest.phases:
            for name, step in (s for role in phase.roles for s in role.steps):
                instances.setdefault(name, {})[phase.name] = None
                found = self.entry(self.kernel.instance(name), step)
                for argument in found[1].arguments if found else ():
                    ports.setdefault((name, argument), {})[phase.name] = None
        return {k: list(v) for k, v in instances.items()}, {k: list(v) for k, v in ports.items()}

    @cached_property
    def _warps(self) -> dict[str, int]:
        return {}

    def warps(self, role: str) -> int:
        """The warps of a role: what its steps claim; one warp if none does."""
        if role not in self._warps:
            amounts = (
                expression.evaluate_number(claim.amount, self.facts[instance.name])
                for instance in self.role_instances(role)
                for _, claim in self.claims_of(instance)
                if claim.kind == "warps"
            )
            self._warps[role] = max(amounts, default=1)
        return self._warps[role]

    def own_warps(self, instance: Instance) -> int:
        """The warps of the instance's role; one where it has none."""
        role = self.role_of(instance)
        return self.warps(role) if role else 1

    def scopes(self, instance: Instance, claim: Claim) -> int:
        """How many of a claim there are: one for the role, or for each of its parts."""
        warps = self.own_warps(instance)
        return {"role": 1, "warpgroup": max(1, warps // 4), "warp": warps}[claim.scope]

    def arrivals(self, instance: Instance, by: str, written: str) -> int:
        """Arrivals of one phase of an mbarrier: what the arrivers are in this role, or a number."""
        warps = self.own_warps(instance)
        known = {
            "copies": 1,
            "one_thread": 1,
            "each_warp": warps,
            "each_warpgroup": max(1, warps // 4),
            "each_thread": 32 * warps,
            "each_thread_async": 32 * warps,
        }
        return known[by] if by else self.value(instance, written)

    def barrier_threads(self, instance: Instance, claim: Claim) -> int:
        """The threads that meet at a barrier: as claimed, or all of the role or warpgroup."""
        if claim.amount:
            return self.value(instance, claim.amount)
        return 128 if claim.scope == "warpgroup" else 32 * self.own_warps(instance)

    def _warp_claims(self, instance: Instance) -> Iterator[tuple[Place, Instance, str]]:
        for other in self.role_instances(self.role_of(instance)):
            for index, claim in self.claims_of(other):
                if claim.kind == "warps":
                    place = Place(other.name, "claims", index, f"{claim.amount} warps")
                    yield place, other, claim.amount

    @cached_property
    def _origins(self) -> dict[tuple[str, str], str]:
        return {(f.instance, f.name): f.provider for f in self.listing}

    def causes(self, instance: Instance, *texts: str) -> tuple[Where, ...]:
        """Where the facts are fixed that expressions read, each with its value; facts that these
        follow from come after them."""
        found: dict[tuple[str, str], Where] = {}
        queue = [(instance, name) for text in texts for name in sorted(_names(text))]
        while queue and len(found) < MOST_CAUSES:
            reader, name = queue.pop(0)
            if name == ROLE_THREADS:
                for place, owner, amount in self._warp_claims(reader):
                    found["", str(place)] = place
                    queue += [(owner, n) for n in sorted(_names(amount))]
                continue
            provider = self._origins.get((reader.name, name))
            if provider is None and name in self.extents(reader):
                where = place_of(self.kernel, reader.name, name)
                found[reader.name, name] = replace(where, label=f"{name} is known at launch")
            if provider is None or (provider, name) in found:
                continue
            label = f"{name} = {shown(self.facts[reader.name][name])}"
            where = place_of(self.kernel, provider, name)
            found[provider, name] = replace(where, label=label)
            if isinstance(where, Place):
                owner = self.kernel.instance(provider)
                fact = owner.contract.facts[where.index]
                if fact.kind == "derives":
                    queue += [(owner, n) for n in sorted(_names(fact.value))]
        return tuple(found.values())


def fact_names(*texts: str) -> frozenset[str]:
    """The facts that expressions and layouts read."""
    return frozenset().union(*map(_names, texts))


def _names(text: str) -> frozenset[str]:
    """The facts of an expression or a layout."""
    try:
        return expression.names(text) if text else frozenset()
    except expression.ExpressionError:
        return layout.names(text)


def who(instance: Instance) -> str:
    """An instance as diagnostics name it."""
    contract = instance.contract
    return f"{contract.component} of {contract.owner} (instance '{instance.name}')"

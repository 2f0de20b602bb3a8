"""A kernel with its resolved facts, and the questions that rules and placement ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelink import expression
from pipelink.abi import Claim, Entry, Port
from pipelink.arch import ARCHES, Arch
from pipelink.layout import Layout, parse
from pipelink.model import Instance, Kernel
from pipelink.resolve import Facts


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


@dataclass(frozen=True)
class View:
    """What comes out of resolve; everything in it is a plain value."""

    kernel: Kernel
    facts: Facts

    @property
    def arch(self) -> Arch:
        return ARCHES[self.kernel.manifest.target]

    def value(self, instance: Instance, text: str) -> int:
        """An expression's value with the instance's facts."""
        return expression.evaluate(text, self.facts[instance.name])

    def layout(self, instance: Instance, text: str) -> Layout:
        return parse(text, self.facts[instance.name])

    def shape(self, instance: Instance, sizes: tuple[str, ...]) -> tuple[int | str, ...]:
        """Sizes as integers; an extent keeps its name."""
        extents = {f.name for f in instance.contract.facts if f.kind == "extent"}
        return tuple(s if s in extents else self.value(instance, s) for s in sizes)

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
        for left, right in self.kernel.manifest.channels:
            a, b = self.end(left), self.end(right)
            if a and b:
                yield a, b

    def ports(self, *spaces: str) -> Iterator[End]:
        for instance in self.kernel.instances:
            for index, port in enumerate(instance.contract.ports):
                if port.space in spaces:
                    yield End(instance, index)

    def claims(self, *kinds: str) -> Iterator[tuple[Instance, int, Claim]]:
        for instance in self.kernel.instances:
            for index, claim in enumerate(instance.contract.claims):
                if claim.kind in kinds:
                    yield instance, index, claim

    def claim(self, instance: Instance, kind: str) -> tuple[int, int] | None:
        """(index, amount) of a claim of which there is one."""
        for index, claim in enumerate(instance.contract.claims):
            if claim.kind == kind:
                return index, self.value(instance, claim.amount)
        return None

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

    def warps(self, role: str) -> int:
        """The warps of a role: what its steps claim; one warp if none does."""
        found = [self.claim(i, "warps") for i in self.role_instances(role)]
        return max((amount for claim in found if claim for amount in claim[1:]), default=1)


def who(instance: Instance) -> str:
    """An instance as diagnostics name it."""
    contract = instance.contract
    return f"{contract.component} of {contract.owner} (instance '{instance.name}')"

"""The records that travel between passes: manifest, instances, resolved facts, plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pipelink.abi import NOTE_VERSION, Contract, Places, Record, Symbols, Value


@dataclass(frozen=True)
class InstanceSpec:
    """An instance as the manifest names it."""

    name: str
    object: str
    facts: dict[str, Value] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoleSpec:
    """A role and its steps, each (instance, entry), in order."""

    name: str
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Manifest:
    """A kernel as its author wrote it. `files` are its own and those that it extends."""

    path: str
    files: tuple[str, ...]
    kernel: str
    target: str
    facts: dict[str, Value]
    extents: dict[str, tuple[int, int]]
    instances: tuple[InstanceSpec, ...]
    roles: tuple[RoleSpec, ...]
    channels: tuple[tuple[str, str], ...]
    schedule: tuple[str, str]
    parameters: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Component:
    """An object as read: contract, hash of the contract's text, where its lines stand, the version of
    its note's format, and what it defines beside the contract."""

    path: str
    contract: Contract
    fingerprint: int
    places: Places | None
    version: int = NOTE_VERSION
    symbols: Symbols | None = None


@dataclass(frozen=True)
class Instance:
    """A component in one kernel; `number` is what the link calls it."""

    name: str
    number: int
    component: Component

    @property
    def contract(self) -> Contract:
        return self.component.contract

    @cached_property
    def fact_index(self) -> dict[str, int]:
        """Where each fact stands in the contract."""
        return {fact.name: index for index, fact in enumerate(self.contract.facts)}


@dataclass(frozen=True)
class Kernel:
    """What `read` makes: the manifest with its instances."""

    manifest: Manifest
    instances: tuple[Instance, ...]

    def instance(self, name: str) -> Instance:
        return next(i for i in self.instances if i.name == name)


class FactValue(Record, frozen=True):
    """A resolved fact: who fixed it, by which instances it came, and who takes it from here."""

    instance: str
    name: str
    kind: str
    value: Value
    provider: str
    path: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()


class InstancePlan(Record, frozen=True):
    """An instance with all its bindings, by slot name."""

    name: str
    number: int
    component: str
    owner: str
    version: str
    object: str
    role: str
    fingerprint: str
    bindings: dict[str, int]


class Region(Record, frozen=True):
    """Bytes of the shared-memory arena."""

    name: str
    owners: tuple[str, ...]
    offset: int
    bytes: int
    align: int
    reason: str


class BarrierPlan(Record, frozen=True):
    """Named barriers of the block: `count` ids from `id` on."""

    id: int
    count: int
    instance: str
    name: str
    threads: int
    reason: str


class MbarrierPlan(Record, frozen=True):
    """An array of mbarriers in the arena and what each phase expects."""

    name: str
    owners: tuple[str, ...]
    offset: int
    count: int
    arrivals: int
    reason: str


class Call(Record, frozen=True):
    """A call of an entry; `arguments` are (kind, value) as the glue passes them."""

    instance: str
    symbol: str
    number: int
    arguments: tuple[tuple[str, str], ...]


class RolePlan(Record, frozen=True):
    """Warps, registers and steps of a role. `registers` is None where setmaxnreg is not used."""

    name: str
    first_warp: int
    warps: int
    registers: int | None
    steps: tuple[Call, ...]
    rings: tuple[str, ...]
    fragments: tuple[tuple[str, str, int], ...]
    reason: str


class ChannelPlan(Record, frozen=True):
    """Two connected ports and how the glue realises them."""

    producer: str
    consumer: str
    transfer: str
    detail: str


class Parameter(Record, frozen=True):
    """A kernel parameter, in order. Shapes are sizes or names of extents, outermost first; `bounds`
    are an extent's least and most."""

    kind: str
    name: str
    argument: str = ""
    element: str = ""
    shape: tuple[int | str, ...] = ()
    box: tuple[int, ...] = ()
    swizzle: int = 0
    access: str = ""
    bounds: tuple[int, int] | None = None


class Argument(Record, frozen=True):
    """A tensor that the caller passes, in order."""

    name: str
    element: str
    shape: tuple[int | str, ...]
    access: str
    alignment: int


class Plan(Record, frozen=True):
    """All that the linker decided."""

    kernel: str
    manifest: str
    target: str
    floating_point: str
    threads: int
    launch_registers: int
    shared_bytes: int
    shared_limit: int
    stack_bytes: int
    schedule: Call
    facts: tuple[FactValue, ...]
    instances: tuple[InstancePlan, ...]
    regions: tuple[Region, ...]
    mbarriers: tuple[MbarrierPlan, ...]
    barriers: tuple[BarrierPlan, ...]
    roles: tuple[RolePlan, ...]
    channels: tuple[ChannelPlan, ...]
    parameters: tuple[Parameter, ...]
    arguments: tuple[Argument, ...]
    # What no rule could tell, in words.
    remarks: tuple[str, ...] = ()

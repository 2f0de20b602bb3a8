"""The records that travel between passes: manifest, instances, resolved facts, plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pipelink.abi import NOTE_VERSION, Contract, Places, Record, Symbols, Value
from pipelink.transfer.records import Conversion, Moves, Permute, Shuffle


@dataclass(frozen=True)
class InstanceSpec:
    """An instance as the manifest names it; one that is `like` another has its object and facts."""

    name: str
    object: str
    facts: dict[str, Value] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    like: str = ""


@dataclass(frozen=True)
class RoleSpec:
    """A role and its steps, each (instance, entry), in order."""

    name: str
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PhaseSpec:
    """Roles that run side by side: their steps once, or once for every tile of a schedule. A phase
    begins when all threads of the block have ended the one before."""

    name: str
    roles: tuple[RoleSpec, ...]
    schedule: tuple[str, str] | None = None


@dataclass(frozen=True)
class ChannelSpec:
    """A connection of two ports. `stages` are those of a tile that the glue hands to another role;
    `rounding` is how elements are converted where the ports' types differ."""

    source: str
    target: str
    stages: int = 1
    rounding: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


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
    phases: tuple[PhaseSpec, ...]
    channels: tuple[ChannelSpec, ...]
    parameters: dict[str, tuple[str, ...]]
    blocks_per_sm: int = 1
    free: tuple[str, ...] = ()
    most: tuple[str, ...] = ()

    @cached_property
    def roles(self) -> tuple[RoleSpec, ...]:
        """Each role once, with its steps of all phases."""
        found: dict[str, tuple[tuple[str, str], ...]] = {}
        for phase in self.phases:
            for role in phase.roles:
                found[role.name] = (*found.get(role.name, ()), *role.steps)
        return tuple(RoleSpec(name, steps) for name, steps in found.items())

    @property
    def schedules(self) -> tuple[tuple[str, str], ...]:
        """Each tile schedule once."""
        return tuple(dict.fromkeys(p.schedule for p in self.phases if p.schedule))


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
    """Bytes of the shared-memory arena, in use in these phases."""

    name: str
    owners: tuple[str, ...]
    offset: int
    bytes: int
    align: int
    phases: tuple[str, ...]
    reason: str


class BarrierPlan(Record, frozen=True):
    """Named barriers of the block: `count` ids from `id` on. Those of the glue have no instance."""

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


class ColumnsPlan(Record, frozen=True):
    """Columns of tensor memory."""

    first: int
    count: int
    instance: str
    name: str
    reason: str


class Call(Record, frozen=True, tag_field="do", tag="call", omit_defaults=True):
    """A call of an entry; `arguments` are (kind, value) as the glue passes them. `fence`: what it
    stores is read through the async proxy. `one`: a single thread of the role makes it."""

    instance: str
    symbol: str
    number: int
    arguments: tuple[tuple[str, str], ...]
    fence: bool = False
    one: bool = False


class Sync(Record, frozen=True, tag_field="do", tag="sync", omit_defaults=True):
    """Threads that wait for one another: of a warp, of the role at a named barrier, or of the block."""

    scope: Literal["warp", "role", "block"]
    barrier: int
    threads: int
    reason: str
    fence: bool = False


class Hand(Record, frozen=True, tag_field="do", tag="hand", omit_defaults=True):
    """A stage of a buffer is waited for, or handed over by a thread of each warp: `mbarrier` is that
    of stage 0. `state` is the variable that keeps the stage; `port` and `number` say for whom."""

    act: Literal["acquire", "commit", "wait", "release"]
    port: str
    number: int
    state: str
    mbarrier: int
    stages: int
    fence: bool = False


class TilePlace(Record, frozen=True, omit_defaults=True):
    """A tile in the arena: its offset, and for a buffer of stages the variable that keeps the stage."""

    offset: int
    stage_bytes: int = 0
    state: str = ""


class Move(Record, frozen=True, tag_field="do", tag="move", omit_defaults=True):
    """Registers to or from a tile in shared memory."""

    what: str
    registers: str
    place: TilePlace
    moves: Moves
    fence: bool = False


class Copy(Record, frozen=True, tag_field="do", tag="copy", omit_defaults=True):
    """A tile to a tile, through registers, round by round."""

    what: str
    source: TilePlace
    target: TilePlace
    load: Moves
    store: Moves
    conversion: Conversion | None = None
    fence: bool = False


class Convert(Record, frozen=True, tag_field="do", tag="convert", omit_defaults=True):
    """Elements of another type, from registers to registers."""

    what: str
    source: str
    target: str
    conversion: Conversion


class Rearrange(Record, frozen=True, tag_field="do", tag="rearrange", omit_defaults=True):
    """Registers to the layout of another component, within a thread or a warp."""

    what: str
    source: str
    target: str
    way: Permute | Shuffle


Step = Call | Sync | Hand | Move | Copy | Convert | Rearrange


class Variable(Record, frozen=True):
    """Registers of a fragment, as 32-bit words."""

    name: str
    element: str
    count: int
    words: int


class RolePlan(Record, frozen=True):
    """The warps of a role."""

    name: str
    first_warp: int
    warps: int
    reason: str


class RegisterMove(Record, frozen=True):
    """Warps that setmaxnreg brings from one number of registers a thread to another."""

    first_warp: int
    warps: int
    held: int
    registers: int


class RoleSteps(Record, frozen=True):
    """What a role does in a phase. `registers` is None where setmaxnreg does not run, `moves` are
    those of its warps; `states` are the variables of its ends of buffers."""

    role: str
    registers: int | None
    states: tuple[str, ...]
    variables: tuple[Variable, ...]
    steps: tuple[Step, ...]
    reason: str
    moves: tuple[RegisterMove, ...] = ()


class PhasePlan(Record, frozen=True, omit_defaults=True):
    """A phase: its roles' steps once, or for each tile of the schedule. `fence`: bytes that ordinary
    stores wrote before are now written or read through the async proxy."""

    name: str
    schedule: Call | None
    roles: tuple[RoleSteps, ...]
    fence: bool = False
    # Of warpgroups that several roles share, before the roles part.
    moves: tuple[RegisterMove, ...] = ()


class ChannelPlan(Record, frozen=True):
    """Two connected ports and how the glue realises them. `conflict` is how many ways the worst access
    of the glue meets in a bank: 1 is none, 0 that the glue touches no shared memory."""

    producer: str
    consumer: str
    transfer: str
    detail: str
    conflict: int = 0


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


class Holds(Record, frozen=True, omit_defaults=True):
    """What holds of an argument's values, as in abi.py; sizes are integers or names of extents."""

    what: str
    sizes: tuple[int | str, ...] = ()


class Argument(Record, frozen=True, omit_defaults=True):
    """A tensor that the caller passes, in order."""

    name: str
    element: str
    shape: tuple[int | str, ...]
    access: str
    alignment: int
    holds: tuple[Holds, ...] = ()


class Choice(Record, frozen=True):
    """A free fact (`instance.fact`), the value that the link chose, and why."""

    fact: str
    value: Value
    reason: str


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
    # No placement of these claims ends lower, and how that is known.
    shared_bound: int
    shared_how: str
    stack_bytes: int
    blocks_per_sm: int
    facts: tuple[FactValue, ...]
    instances: tuple[InstancePlan, ...]
    regions: tuple[Region, ...]
    mbarriers: tuple[MbarrierPlan, ...]
    barriers: tuple[BarrierPlan, ...]
    columns: tuple[ColumnsPlan, ...]
    allocated_columns: int
    roles: tuple[RolePlan, ...]
    phases: tuple[PhasePlan, ...]
    # Variables of ends of buffers that more than one phase uses.
    states: tuple[str, ...]
    channels: tuple[ChannelPlan, ...]
    parameters: tuple[Parameter, ...]
    arguments: tuple[Argument, ...]
    choices: tuple[Choice, ...] = ()
    # What no rule could tell, in words.
    remarks: tuple[str, ...] = ()

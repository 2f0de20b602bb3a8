"""Registers a thread, by role.

setmaxnreg moves registers between the roles of a block out of one pool: the registers at launch times
the threads. The launch has 65,536 / threads, rounded down to a multiple of 8, so the pool is less than
the register file: at 384 threads it is 168 x 384 = 64,512.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelink.arch import Arch


@dataclass(frozen=True)
class RoleNeed:
    """A role's threads and the registers a thread that its steps claim."""

    name: str
    threads: int
    registers: int


def launch_registers(arch: Arch, threads: int, blocks: int = 1) -> int:
    """Registers a thread at launch, with so many blocks an SM, as the hardware allocates them."""
    step = arch.register_granularity
    most = -(-arch.registers_per_thread // step) * step
    return min(arch.registers_per_sm // (threads * blocks) // step * step, most)


def pool(arch: Arch, threads: int, blocks: int = 1) -> int:
    """Registers that the roles of a block share."""
    return launch_registers(arch, threads, blocks) * threads


def excess(arch: Arch, roles: Sequence[RoleNeed], blocks: int = 1) -> int:
    """Registers by which the roles' claims pass the pool; 0 or less if they fit."""
    threads = sum(r.threads for r in roles)
    return sum(r.threads * r.registers for r in roles) - pool(arch, threads, blocks)


def largest_fitting(arch: Arch, roles: Sequence[RoleNeed], name: str, blocks: int = 1) -> int:
    """The most registers that role `name` can have beside the others; 0 if none fits."""
    own = next(r for r in roles if r.name == name)
    left = own.registers * own.threads - excess(arch, roles, blocks)
    step = arch.register_granularity
    fitting = left // own.threads // step * step
    return fitting if fitting >= 24 else 0

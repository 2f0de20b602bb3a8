"""Limits by target.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (registers, threads, barriers, shared
memory a block and an SM); PTX ISA, "setmaxnreg" (range and step); CUDA Driver API,
cuTensorMapEncodeTiled (box sizes). Only sm_90a has been run on a chip.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """What a block may use; bytes, registers and threads."""

    name: str
    capability: tuple[int, int]
    shared_per_block: int
    setmaxnreg: bool
    bulk_tensor_copy: bool
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_granularity: int = 8
    threads_per_block: int = 1024
    named_barriers: int = 16
    box_size: int = 256
    # What the system keeps of a block's shared memory; a cubin counts it as static.
    reserved_shared: int = 1024


ARCHES = {
    a.name: a
    for a in (
        Arch("sm_80", (8, 0), 166_912, setmaxnreg=False, bulk_tensor_copy=False, reserved_shared=0),
        Arch("sm_90a", (9, 0), 232_448, setmaxnreg=True, bulk_tensor_copy=True),
        Arch("sm_100a", (10, 0), 232_448, setmaxnreg=True, bulk_tensor_copy=True),
        Arch("sm_103a", (10, 3), 232_448, setmaxnreg=True, bulk_tensor_copy=True),
        Arch("sm_120a", (12, 0), 101_376, setmaxnreg=True, bulk_tensor_copy=True),
    )
}


def links_into(built_for: str, target: str) -> bool:
    """Whether code for `built_for` may enter a kernel for `target`: the same chip, and code with an
    `a` (instructions of that chip alone) only into its own target."""
    return built_for == target or (not built_for.endswith("a") and built_for == target.rstrip("a"))

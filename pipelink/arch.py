"""Limits by target.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (registers, warps, blocks, barriers, shared
memory a block and an SM, 1 KiB of it kept by the system for each block); PTX ISA, "setmaxnreg"
(range and step), "ldmatrix", "stmatrix", "cvt" (which targets have them), "tcgen05.alloc" (columns);
CUDA Driver API, cuTensorMapEncodeTiled (box sizes). Only sm_90a has been run on a chip.
"""

from __future__ import annotations

from dataclasses import dataclass

# What the system keeps of an SM's shared memory for each block that runs there.
SYSTEM_SHARED = 1024


@dataclass(frozen=True)
class Arch:
    """What a block may use; bytes, registers, threads and columns."""

    name: str
    capability: tuple[int, int]
    shared_per_block: int
    shared_per_sm: int
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    # Registers that move between roles; bulk tensor copies, mbarriers that count bytes, the fence
    # between proxies: these came together.
    setmaxnreg: bool = True
    bulk_tensor_copy: bool = True
    ldmatrix: bool = True
    stmatrix: bool = True
    fp8_convert: bool = True
    tensor_columns: int = 0
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_granularity: int = 8
    threads_per_block: int = 1024
    named_barriers: int = 16
    box_size: int = 256
    # What of a block's shared memory a cubin counts as static without a word in the source.
    reserved_shared: int = SYSTEM_SHARED

    def shared_limit(self, blocks: int) -> int:
        """Bytes of shared memory that each of so many blocks of one SM can have."""
        share = (self.shared_per_sm // blocks - SYSTEM_SHARED) // 128 * 128
        return min(self.shared_per_block, share)


ARCHES = {
    a.name: a
    for a in (
        Arch(
            "sm_80",
            (8, 0),
            166_912,
            167_936,
            setmaxnreg=False,
            bulk_tensor_copy=False,
            stmatrix=False,
            fp8_convert=False,
            reserved_shared=0,
        ),
        Arch("sm_90a", (9, 0), 232_448, 233_472),
        Arch("sm_100a", (10, 0), 232_448, 233_472, tensor_columns=512),
        Arch("sm_103a", (10, 3), 232_448, 233_472, tensor_columns=512),
        Arch("sm_120a", (12, 0), 101_376, 102_400, warps_per_sm=48, blocks_per_sm=24),
    )
}


def links_into(built_for: str, target: str) -> bool:
    """Whether code for `built_for` may enter a kernel for `target`: the same chip, and code with an
    `a` (instructions of that chip alone) only into its own target."""
    return built_for == target or (not built_for.endswith("a") and built_for == target.rstrip("a"))

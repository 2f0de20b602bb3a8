"""What machine code does with resources that a block shares: named barriers and setmaxnreg.

Instructions have 16 bytes, the opcode in the low 12 bits. The encodings were read off the vendor's
disassembler for sm_90a; for a target that is not in the table nothing is claimed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

BARRIER = 0xB1D  # id in bits 54 to 57, threads in bits 42 to 53, 0 for the whole block
SETMAXREG = 0x9C8  # registers in bits 32 to 63
DECODED = ("sm_90a",)


@dataclass(frozen=True)
class Uses:
    """Register counts set; (id, threads) of each barrier instruction with a constant id."""

    registers: tuple[int, ...]
    barriers: tuple[tuple[int, int], ...]


def uses(target: str, text: bytes) -> Uses | None:
    """The uses of a kernel's code, or None where the target's encoding is not known here."""
    if target not in DECODED:
        return None
    words = list(_words(text))
    return Uses(
        registers=tuple(sorted(w >> 32 for w in words if w & 0xFFF == SETMAXREG)),
        barriers=tuple((w >> 54 & 0xF, w >> 42 & 0xFFF) for w in words if w & 0xFFF == BARRIER),
    )


def _words(text: bytes) -> Iterator[int]:
    """The low half of each instruction."""
    for low, _ in struct.iter_unpack("<QQ", text[: len(text) // 16 * 16]):
        yield low

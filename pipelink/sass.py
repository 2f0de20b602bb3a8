"""Machine code compared: a linked kernel and its control, instruction by instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

_FUNCTION = re.compile(r"^\s*\.section\s+\.text\.([\w$.]+)")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x([0-9a-f]+) \*/")
_SECOND_WORD = re.compile(r"^\s+/\* 0x([0-9a-f]+) \*/")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its text, and its encoding as hexadecimal words."""

    address: int
    text: str
    encoding: str


@dataclass(frozen=True)
class Difference:
    """An address at which the two codes are not the same; None where one has ended."""

    function: str
    address: int
    linked: str | None
    control: str | None


@dataclass(frozen=True)
class Comparison:
    """How many instructions were compared, and each that differs."""

    instructions: int
    differences: tuple[Difference, ...]
    same_encoding: bool


def parse(listing: str) -> dict[str, list[Instruction]]:
    """The instructions of each function in nvdisasm's listing with encodings."""
    functions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in listing.splitlines():
        if match := _FUNCTION.match(line):
            current = functions.setdefault(match[1], [])
        elif match := _INSTRUCTION.match(line):
            current.append(Instruction(int(match[1], 16), match[2].rstrip(" ;"), match[3]))
        elif current and (match := _SECOND_WORD.match(line)):
            last = current[-1]
            current[-1] = Instruction(last.address, last.text, last.encoding + match[1])
    return functions


def compare(linked: str, control: str) -> Comparison:
    """Every instruction of both listings, in order; none is left out."""
    left, right = parse(linked), parse(control)
    if not any(left.values()):
        raise ValueError("the listing has no instructions")
    count, same, differences = 0, True, []
    for function in sorted(left.keys() | right.keys()):
        for a, b in zip_longest(left.get(function, []), right.get(function, [])):
            count += 1
            same = same and a is not None and b is not None and a.encoding == b.encoding
            if a is None or b is None or a.text != b.text or a.encoding != b.encoding:
                address = a.address if a else b.address if b else 0
                differences.append(
                    Difference(function, address, a.text if a else None, b.text if b else None)
                )
    return Comparison(count, tuple(differences), same)

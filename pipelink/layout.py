"""Layouts as CuTe writes them, `shape:stride`, with sizes that are expressions over facts.

A fragment's layout has two modes, (thread, value), and maps each pair to row + rows * column. Two
layouts are the same if they are the same map: modes are compared coalesced, in whatever nesting they
are written.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pipelink import expression
from pipelink.expression import ExpressionError

_TOKEN = re.compile(r"[(),:]|[^(),:]+")

Mode = tuple[tuple[int, int], ...]  # (size, stride), innermost first


@dataclass(frozen=True)
class Layout:
    """A (thread, value) layout; equal if the maps are."""

    threads: Mode
    values: Mode
    thread_count: int
    value_count: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


def concrete(layout: str, facts: Mapping[str, int]) -> str:
    """The layout with every size computed; `/` divides integers, as in the owner's C++."""
    return "".join(
        token
        if token in "(),:"
        else str(expression.evaluate(re.sub("/+", "//", token.strip()), facts))
        for token in _TOKEN.findall(layout)
        if token.strip()
    )


def parse(layout: str, facts: Mapping[str, int]) -> Layout:
    """The layout of a fragment; ExpressionError says what is wrong with it."""
    text = concrete(layout, facts)
    halves = text.split(":")
    if len(halves) != 2:
        raise ExpressionError(f"'{text}' is not of the form shape:stride")
    shape, stride = (_tuple(half, text) for half in halves)
    if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(shape) != 2:
        raise ExpressionError(f"'{text}' has not two modes, thread and value")
    if len(stride) != 2:
        raise ExpressionError(f"shape and stride of '{text}' are nested differently")
    modes = [list(_flat(*pair, text)) for pair in zip(shape, stride, strict=True)]
    counts = [math.prod(size for size, _ in mode) for mode in modes]
    return Layout(_coalesced(modes[0]), _coalesced(modes[1]), counts[0], counts[1], text)


def _tuple(half: str, text: str) -> object:
    try:
        return ast.literal_eval(half)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"'{text}' is no layout") from error


def _flat(shape: object, stride: object, text: str) -> Iterator[tuple[int, int]]:
    if isinstance(shape, int) and isinstance(stride, int):
        if shape < 1:
            raise ExpressionError(f"'{text}' has a mode of size {shape}")
        yield shape, stride
    elif isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride):
        for pair in zip(shape, stride, strict=True):
            yield from _flat(*pair, text)
    else:
        raise ExpressionError(f"shape and stride of '{text}' are nested differently")


def _coalesced(mode: list[tuple[int, int]]) -> Mode:
    """The fewest (size, stride) of the same map."""
    result: list[tuple[int, int]] = []
    for size, stride in mode:
        if size == 1:
            continue
        if result and result[-1][0] * result[-1][1] == stride:
            result[-1] = (result[-1][0] * size, result[-1][1])
        else:
            result.append((size, stride))
    return tuple(result)

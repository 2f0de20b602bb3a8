"""Layouts as CuTe writes them, `shape:stride`, with sizes that are expressions over facts.

A fragment's layout has two modes, (thread, value), and maps each pair to row + rows * column. A part
of a stage has a mode for each side, and maps an element to its place in the stage. Two layouts are
the same if they are the same map: modes are compared coalesced, in whatever nesting they are written.
The algebra on layouts is that of the package tensor_layouts.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensor_layouts as algebra  # type: ignore[import-untyped]

from pipelink import expression
from pipelink.abi import Value
from pipelink.expression import ExpressionError

_MOST = 1 << 63
_TOKEN = re.compile(r"[(),:]|[^(),:]+")

Mode = tuple[tuple[int, int], ...]  # (size, stride), innermost first


@dataclass(frozen=True)
class Layout:
    """A map from a coordinate for each mode to an integer; equal if the maps are."""

    modes: tuple[Mode, ...]
    sizes: tuple[int, ...]
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def compact(self) -> bool:
        """Whether it maps to each number from 0 to its size once."""
        reach = 1
        for stride, size in sorted((stride, size) for mode in self.modes for size, stride in mode):
            if stride != reach:
                return False
            reach *= size
        return True

    @property
    def thread_count(self) -> int:
        return self.sizes[0]

    @property
    def value_count(self) -> int:
        return self.sizes[1]

    @property
    def map(self) -> Any:
        """The layout as tensor_layouts has it, a mode for each mode."""
        shape = tuple(tuple(size for size, _ in mode) or 1 for mode in self.modes)
        stride = tuple(tuple(stride for _, stride in mode) or 0 for mode in self.modes)
        return algebra.Layout(shape, stride)

    def steps(self, mode: int) -> list[int]:
        """What each coordinate of a mode adds to the place."""
        found = [0]
        for size, stride in self.modes[mode]:
            found = [start + n * stride for n in range(size) for start in found]
        return found


def compose(outer: Layout, inner: Layout) -> Layout | None:
    """inner, then outer. None where the algebra has no layout for it: where strides of the one don't
    divide sizes of the other, or modes of the one together pass the end of a mode of the other."""
    try:
        made = algebra.compose(outer.map, inner.map)
    except algebra.LayoutError:
        return None
    text = f"{made.shape}:{made.stride}".replace(" ", "")
    modes = [list(_flat(*pair, text)) for pair in zip(made.shape, made.stride, strict=True)]
    return Layout(tuple(map(_coalesced, modes)), inner.sizes, text)


def concrete(layout: str, facts: Mapping[str, Value]) -> str:
    """The layout with every size computed; `/` divides integers, as in the owner's C++."""
    return "".join(
        token
        if token in "(),:"
        else str(expression.evaluate_number(re.sub("/+", "//", token.strip()), facts))
        for token in _TOKEN.findall(layout)
        if token.strip()
    )


def names(layout: str) -> frozenset[str]:
    """The facts that a layout reads."""
    found: frozenset[str] = frozenset()
    for token in _TOKEN.findall(layout):
        if token.strip() and token not in "(),:":
            try:
                found |= expression.names(re.sub("/+", "//", token.strip()))
            except ExpressionError:
                continue
    return found


def parse(layout: str, facts: Mapping[str, Value]) -> Layout:
    """The map that a layout describes; ExpressionError says what is wrong with it."""
    text = concrete(layout, facts)
    halves = text.split(":")
    if len(halves) != 2:
        raise ExpressionError(f"'{text}' is not of the form shape:stride")
    shape, stride = (_tuple(half, text) for half in halves)
    shape, stride = (side if isinstance(side, tuple) else (side,) for side in (shape, stride))
    if len(shape) != len(stride):
        raise ExpressionError(f"shape and stride of '{text}' are nested differently")
    modes = [list(_flat(*pair, text)) for pair in zip(shape, stride, strict=True)]
    sizes = tuple(math.prod(size for size, _ in mode) for mode in modes)
    if max(sizes, default=1) >= _MOST:
        raise ExpressionError(f"'{text}' has a mode of more than 64 bits")
    return Layout(tuple(map(_coalesced, modes)), sizes, text)


def fragment(layout: str, facts: Mapping[str, Value]) -> Layout:
    """The layout of a fragment, (thread, value)."""
    found = parse(layout, facts)
    if len(found.modes) != 2:
        raise ExpressionError(f"'{found.text}' has not two modes, thread and value")
    return found


def row_major(shape: Sequence[int]) -> Layout:
    """The layout of a tensor whose last side runs fastest."""
    strides = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
    text = f"({','.join(map(str, shape))}):({','.join(map(str, strides))})"
    modes = tuple(_coalesced([pair]) for pair in zip(shape, strides, strict=True))
    return Layout(modes, tuple(shape), text)


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
    shape, stride = (tuple(pair[side] for pair in mode) for side in (0, 1))
    flat = algebra.coalesce(algebra.Layout(shape, stride))
    if flat.shape == 1:
        return ()
    sizes, strides = algebra.as_tuple(flat.shape), algebra.as_tuple(flat.stride)
    return tuple(zip(sizes, strides, strict=True))

"""What the `reference.py` of a component folder gives the device check.

A folder's `reference.py` has `cases()`, one case for each set of arguments that its kernels take.
The check finds the folder by the manifest that the launch metadata names, and the case by the
names of the kernel's arguments: variants of a kernel share one case.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]
Extents = Mapping[str, int]
Facts = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    arguments: tuple[str, ...]
    # Values of the extents that the launch leaves free, one check each, from the kernel's facts. What is
    # no extent of the launch says more of the inputs.
    extents: Callable[[Facts], tuple[Extents, ...]]
    # The extent whose entries are computed alone: the reference is taken in pieces along it, which
    # must be the first dimension of each argument that has it. Empty: all at once.
    pieces: str
    # Random inputs of these names and shapes, as the kernel takes them or in float32.
    inputs: Callable[[Shapes, Extents, torch.Generator], dict[str, torch.Tensor]]
    # The outputs in float32, from all inputs as the kernel has them.
    outputs: Callable[[Tensors], dict[str, torch.Tensor]]
    # Floating-point operations of one launch.
    operations: Callable[[Tensors], int]
    # The same products by torch, as a function to be timed, and how figures name it.
    baseline: Callable[[Tensors], Callable[[], None]]
    baseline_name: str

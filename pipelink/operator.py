"""A loaded kernel as an operator of torch, which torch.compile keeps whole in its graphs.

    op = pipelink.torch_operator(pipelink.load("ffn.cubin"), "mine::ffn")
    out = op(x, w_gate, w_up)        # also torch.ops.mine.ffn

Arguments of access "read" and "update" are passed, in the contract's order; those of access "write"
are allocated and returned, with the shapes that the contract gives them. Without any of these it
returns None.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from pipelink.arrays import BY_TORCH
from pipelink.launch import LoadError, Metadata, output_shapes
from pipelink.runtime import Kernel

_ELEMENTS = {getattr(torch, name.removeprefix("torch.")): e for name, e in BY_TORCH.items()}
_DTYPES = {element: dtype for dtype, element in _ELEMENTS.items()}


def torch_operator(kernel: Kernel, name: str) -> Callable[..., Any]:
    """Registers `kernel` as operator `name`, of the form "namespace::name", once in a process.

    The operator has a fake kernel, and no derivative; `torch.library.register_autograd` adds one.
    """
    metadata = kernel.metadata
    names = [a.name for a in metadata.arguments]
    passed = [a.name for a in metadata.arguments if a.access != "write"]
    written = [(a.name, _DTYPES[a.element]) for a in metadata.arguments if a.access == "write"]
    _allocatable(metadata, passed)

    def shapes(came: tuple[Any, ...], dtypes: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
        elements = (_ELEMENTS.get(dtype, str(dtype)) for dtype in dtypes)
        named = dict(zip(passed, came, strict=True))
        return output_shapes(metadata, dict(zip(passed, elements, strict=True)), named)

    seen = lru_cache(maxsize=1024)(shapes)

    def allocate(tensors: tuple[Any, ...], known: Callable[..., Any]) -> dict[str, Any]:
        sizes = known(tuple([t.shape for t in tensors]), tuple([t.dtype for t in tensors]))
        return {n: tensors[0].new_empty(sizes[n], dtype=dtype) for n, dtype in written}

    def result(made: dict[str, Any]) -> Any:
        values = tuple(made.values())
        return values if len(values) > 1 else next(iter(values), None)

    def run(*tensors: Any) -> Any:
        made = allocate(tensors, seen)
        values = dict(zip(passed, tensors, strict=True)) | made
        kernel(*[values[name] for name in names])
        return result(made)

    def fake(*tensors: Any) -> Any:
        # Sizes may be symbols here, which no cache can compare.
        return result(allocate(tensors, shapes))

    torch.library.define(name, _schema(metadata, len(written)))
    torch.library.impl(name, "CUDA", run)
    torch.library.register_fake(name, fake)
    namespace, _, own = name.partition("::")
    operator: Callable[..., Any] = getattr(getattr(torch.ops, namespace), own).default
    return operator


def _schema(metadata: Metadata, outputs: int) -> str:
    marks = {"read": "Tensor", "update": "Tensor({}!)"}
    takes = [
        f"{marks[a.access].format(chr(ord('a') + i))} {a.name}"
        for i, a in enumerate(a for a in metadata.arguments if a.access != "write")
    ]
    gives = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"  # () is None
    return f"({', '.join(takes)}) -> {gives}"


def _allocatable(metadata: Metadata, passed: list[str]) -> None:
    """Refuses a kernel of whose outputs no input fixes the device, or a shape."""
    if not passed:
        names = ", ".join(a.name for a in metadata.arguments)
        raise LoadError(
            f"kernel {metadata.kernel}: it only writes ({names}), an operator needs an input that says "
            "on which device"
        )
    extents = {n for a in metadata.arguments if a.name in passed for n in a.shape}
    for argument in metadata.arguments:
        for n in argument.shape:
            if isinstance(n, str) and n not in extents:
                raise LoadError(
                    f"kernel {metadata.kernel}: {argument.name} can't be allocated by an operator, no "
                    f"input's shape has its extent {n}"
                )

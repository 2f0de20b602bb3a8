"""The feed-forward gate/up projection with SwiGLU, plainly, in float32."""

import math
from collections.abc import Callable

import torch

from components.case import Case, Extents, Shapes, Tensors

# One row, ragged and full tiles of each height, a ragged edge behind full tiles, whole waves of tiles.
ROWS = (1, 7, 16, 64, 128, 129, 192, 256, 1000, 1024, 4096, 8192)


def mainloop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One half of the accumulator. The loader only moves what this multiplies."""
    return x.float() @ w.float().T


def epilogue(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def reference(x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor) -> torch.Tensor:
    return epilogue(mainloop(x, w_gate), mainloop(x, w_up))


def random(shapes: Shapes, _: Extents, generator: torch.Generator) -> dict[str, torch.Tensor]:
    # Weights are scaled so that a product has about the variance of x, as in a trained layer:
    # SwiGLU is then neither linear nor zero almost everywhere.
    def of(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        scale = 1.0 if name == "x" else 1.0 / math.sqrt(shape[1])
        return torch.randn(shape, generator=generator, device=generator.device) * scale

    return {name: of(name, shape) for name, shape in shapes.items()}


def case(suffixes: tuple[str, ...]) -> Case:
    """A kernel of one instance of the three components for each suffix, all on the same x."""
    weights = tuple(f"w_{half}{suffix}" for suffix in suffixes for half in ("gate", "up"))

    def outputs(inputs: Tensors) -> dict[str, torch.Tensor]:
        x = inputs["x"]
        return {f"out{s}": reference(x, inputs[f"w_gate{s}"], inputs[f"w_up{s}"]) for s in suffixes}

    def operations(inputs: Tensors) -> int:
        return sum(2 * inputs["x"].numel() * inputs[w].shape[0] for w in weights)

    def baseline(inputs: Tensors) -> Callable[[], None]:
        x = inputs["x"]
        results = [torch.empty_like(x @ inputs[w].T) for w in weights]

        def run() -> None:
            for w, result in zip(weights, results, strict=True):
                torch.matmul(x, inputs[w].T, out=result)

        return run

    groups = ((f"w_gate{s}", f"w_up{s}", f"out{s}") for s in suffixes)
    return Case(
        arguments=("x", *(name for group in groups for name in group)),
        extents=lambda facts: tuple({"m": m} for m in ROWS),
        pieces="m",
        inputs=random,
        outputs=outputs,
        operations=operations,
        baseline=baseline,
        baseline_name="torch.matmul of the same products, without SwiGLU",
    )


def cases() -> tuple[Case, ...]:
    return case(("",)), case(("_a", "_b"))

"""A mixture-of-experts layer plainly, in float32, a function a component."""

import itertools
from collections.abc import Iterator

import torch


def gather(x: torch.Tensor, order: torch.Tensor, top_k: int) -> torch.Tensor:
    """The token's row of each route, in the order of the list. x [tokens, k], order [routes]."""
    return x[order.long() // top_k].float()


def groups(offsets: torch.Tensor) -> Iterator[tuple[int, slice]]:
    """Experts with a route, each with its rows in the list."""
    ends = offsets.tolist()
    for expert, (first, end) in enumerate(itertools.pairwise(ends)):
        if first < end:
            yield expert, slice(first, end)


def expert_gemm(rows: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Each expert's rows by its weights. rows [routes, k], w [experts, n, k] to [routes, n]."""
    result = torch.empty(rows.shape[0], w.shape[1], device=rows.device)
    for expert, part in groups(offsets):
        result[part] = rows[part].float() @ w[expert].float().T
    return result


def swiglu(product: torch.Tensor) -> torch.Tensor:
    """The left half of the columns is the gate, the right half is up."""
    gate, up = product.chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def combine(y: torch.Tensor, order: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Routes back to tokens, weighted. y [routes, n] in the order of the list, probs [tokens, top_k]."""
    slots = torch.empty_like(y, dtype=torch.float32)
    slots[order.long()] = y.float()
    return (slots.view(*probs.shape, -1) * probs[:, :, None]).sum(dim=1)


def up(
    x: torch.Tensor, order: torch.Tensor, offsets: torch.Tensor, w: torch.Tensor, top_k: int
) -> torch.Tensor:
    return swiglu(expert_gemm(gather(x, order, top_k), w, offsets))


def layer(
    x: torch.Tensor,
    order: torch.Tensor,
    offsets: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    h = up(x, order, offsets, w_up, probs.shape[1])
    return combine(expert_gemm(h, w_down, offsets), order, probs)

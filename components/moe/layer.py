"""The layer from its kernels, for callers that have torch: routing lists, and the launches in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import pipelink


@dataclass(frozen=True)
class Routing:
    """What a router decided: `order` [routes] are the routes token * top_k + choice sorted by expert,
    `offsets` [experts + 1] where each expert's begin, both int32; `probs` [tokens, top_k] float32."""

    order: torch.Tensor
    offsets: torch.Tensor
    probs: torch.Tensor


def sort_routes(ids: torch.Tensor, probs: torch.Tensor, experts: int) -> Routing:
    """The lists for the experts `ids` [tokens, top_k] of each token."""
    by_expert, order = torch.sort(ids.reshape(-1), stable=True)
    edges = torch.arange(experts + 1, device=ids.device)
    offsets = torch.searchsorted(by_expert, edges)
    return Routing(order.int(), offsets.int(), probs.float().contiguous())


class Layer:
    """The kernels of one layer; each of `up`, `down`, `total` are cubins of variants. Deterministic with
    `total`, the kernel that sums; without it, `down` adds in memory, in the order in which tiles end."""

    def __init__(self, up: Sequence[Path], down: Sequence[Path], total: Sequence[Path] = ()) -> None:
        self.up, self.down = pipelink.load(*up), pipelink.load(*down)
        self.total = pipelink.load(*total) if total else None

    def __call__(
        self, x: torch.Tensor, routing: Routing, w_up: torch.Tensor, w_down: torch.Tensor
    ) -> torch.Tensor:
        """[tokens, hidden], bf16 where it is deterministic and float32 where it is not."""
        tokens, top_k = routing.probs.shape
        hidden, intermediate = w_down.shape[1:]
        h = torch.empty(tokens * top_k, intermediate, dtype=x.dtype, device=x.device)
        self.up(x, routing.order, routing.offsets, w_up, h)
        if self.total is None:
            total = torch.zeros(tokens, hidden, dtype=torch.float32, device=x.device)
            self.down(h, routing.order, routing.offsets, routing.probs, w_down, total)
            return total
        y = torch.empty(tokens, top_k, hidden, dtype=x.dtype, device=x.device)
        self.down(h, routing.order, routing.offsets, w_down, y)
        out = torch.empty(tokens, hidden, dtype=x.dtype, device=x.device)
        self.total(y, routing.probs, out)
        return out

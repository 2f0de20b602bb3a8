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
    edges = torch.arange(experts + 1, device=ids.device, dtype=ids.dtype)
    offsets = torch.searchsorted(by_expert, edges)
    return Routing(order.int(), offsets.int(), probs.float().contiguous())


def check_sorted(ids: torch.Tensor, routing: Routing) -> None:
    """Refuses lists that are not those of the experts `ids` [tokens, top_k], with the first wrong index."""
    by_expert = ids.reshape(-1)[routing.order.long()]
    places = torch.arange(by_expert.numel(), device=ids.device)
    wanted = torch.searchsorted(routing.offsets[1:].long(), places, right=True)
    wrong = (by_expert != wanted).nonzero()
    if wrong.numel():
        at = int(wrong[0])
        raise ValueError(
            f"order[{at}] is route {int(routing.order[at])} of expert {int(by_expert[at])}, and offsets put it "
            f"with expert {int(wanted[at])}"
        )


# What the kernels here are built for: (hidden, intermediate, experts, top_k), and how they are named.
SIZES = {(2048, 768, 128, 8): "", (4096, 14336, 8, 2): "_mixtral"}


class Layer:
    """The kernels of one layer; each of `up`, `down`, `total`, `sort` are cubins of variants. Deterministic
    with `total`, the kernel that sums; without it, `down` adds in memory, in the order in which tiles end.
    With `sort`, `up` takes rows that it has put in order; `debug` is the loader's."""

    def __init__(
        self,
        up: Sequence[Path],
        down: Sequence[Path],
        total: Sequence[Path] = (),
        sort: Sequence[Path] = (),
        *,
        debug: bool = False,
    ) -> None:
        self.up, self.down, self.total, self.sort = (
            pipelink.load(*paths, debug=debug) if paths else None
            for paths in (up, down, total, sort)
        )

    @classmethod
    def of(
        cls, build: Path, size: tuple[int, int, int, int], mode: str, *, debug: bool = False
    ) -> Layer:
        """The kernels for (hidden, intermediate, experts, top_k) in the folder of builds, "deterministic" or
        "fast"."""
        if size not in SIZES:
            known = ", ".join(map(str, SIZES))
            raise ValueError(
                f"no kernels are built for (hidden, intermediate, experts, top_k) = {size}: {known}"
            )
        suffix = SIZES[size]

        def cubins(name: str) -> list[Path]:
            variants = [f"moe_{name}{few}{suffix}" for few in ("_few", "")]
            found = [build / v / f"{v}.cubin" for v in variants]
            return [path for path in found if path.is_file()]

        sort = cubins("sort")
        up = cubins("up_sorted") if sort else cubins("up")
        if mode == "fast":
            return cls(up, cubins("down_fast"), (), sort, debug=debug)
        return cls(up, cubins("down"), cubins("sum"), sort, debug=debug)

    def __call__(
        self, x: torch.Tensor, routing: Routing, w_up: torch.Tensor, w_down: torch.Tensor
    ) -> torch.Tensor:
        """[tokens, hidden], bf16 where it is deterministic and float32 where it is not."""
        tokens, top_k = routing.probs.shape
        hidden, intermediate = w_down.shape[1:]
        h = torch.empty(tokens * top_k, intermediate, dtype=x.dtype, device=x.device)
        if self.sort is None:
            self.up(x, routing.order, routing.offsets, w_up, h)
        else:
            rows = torch.empty(tokens * top_k, hidden, dtype=x.dtype, device=x.device)
            self.sort(x, routing.order, rows)
            self.up(rows, routing.offsets, w_up, h)
        if self.total is None:
            total = torch.zeros(tokens, hidden, dtype=torch.float32, device=x.device)
            self.down(h, routing.order, routing.offsets, routing.probs, w_down, total)
            return total
        y = torch.empty(tokens, top_k, hidden, dtype=x.dtype, device=x.device)
        self.down(h, routing.order, routing.offsets, w_down, y)
        out = torch.empty(tokens, hidden, dtype=x.dtype, device=x.device)
        self.total(y, routing.probs, out)
        return out

"""What a fused mixture-of-experts layer is timed beside: torch's grouped products, and Triton.

    python3 bench/moe_baselines.py [--output FILE] [--only TEXT]     on the device: torch and triton

Both layers take x [tokens, hidden] in bf16, the router's `ids` (int64) and `probs` (float32), both
[tokens, top_k], w_up [experts, 2 * intermediate, hidden] with the gate's rows first, and w_down
[experts, hidden, intermediate]; they give [tokens, hidden] in bf16. Either sorts the routes itself, or
takes the `Lists` of a sort that was done before. Times are of CUDA graphs, where nothing waits for the
host, and of plain calls (`stream`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ROUNDS, WANTED_MS, LIMIT = 21, 1.0, 1e-2
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Lists:
    """Routes token * top_k + choice sorted by expert, `order` [routes], and where each expert's begin,
    `offsets` [experts + 1]; both int32."""

    order: torch.Tensor
    offsets: torch.Tensor


@dataclass(frozen=True)
class Layer:
    """The arguments of a layer."""

    x: torch.Tensor
    ids: torch.Tensor
    probs: torch.Tensor
    w_up: torch.Tensor
    w_down: torch.Tensor


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    tokens: int

    @property
    def operations(self) -> int:
        return 2 * self.tokens * self.top_k * 3 * self.hidden * self.intermediate


SHAPES = (
    *(Shape("Qwen3-30B-A3B", 2048, 768, 128, 8, tokens) for tokens in (256, 4096, 16384)),
    *(Shape("Mixtral-8x7B", 4096, 14336, 8, 2, tokens) for tokens in (256, 4096)),
)


# --- The sort of the routes, which both layers share


def _sorted(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`order` and `offsets`. Keys are as narrow as can be: the time of a radix sort is their width."""
    narrow = torch.int8 if experts <= 127 else torch.uint8 if experts <= 255 else torch.int32
    keys, order = torch.sort(ids.reshape(-1).to(narrow))
    edges = torch.arange(experts + 1, device=ids.device).to(narrow)
    return order.int(), torch.searchsorted(keys, edges, out_int32=True)


@functools.cache
def _sort() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return torch.compile(_sorted, dynamic=False)


def sort_routes(ids: torch.Tensor, experts: int) -> Lists:
    """The lists for the experts that a router chose."""
    return Lists(*_sort()(ids, experts))


# --- torch


def _grouped_mm(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Each group's rows of a [routes, k] by its b [experts, n, k], transposed."""
    found = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    return found(a, b.transpose(-2, -1), offs=ends)


def _torch_given(
    x: torch.Tensor,
    order: torch.Tensor,
    offsets: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    unsort: bool,
) -> torch.Tensor:
    (tokens, top_k), hidden = probs.shape, x.shape[1]
    token, ends = order // top_k, offsets[1:]
    gate, up = _grouped_mm(x[token], w_up, ends).chunk(2, dim=-1)
    h = (torch.nn.functional.silu(gate.float()) * up.float()).to(x.dtype)
    y = _grouped_mm(h, w_down, ends)
    if unsort:
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), dtype=order.dtype, device=order.device)
        slots = y[place].view(tokens, top_k, hidden)
        return (slots.float() * probs[:, :, None]).sum(dim=1).to(x.dtype)
    weighted = y.float() * probs.reshape(-1)[order][:, None]
    total = torch.zeros(tokens, hidden, dtype=torch.float32, device=x.device)
    return total.index_add(0, token, weighted).to(x.dtype)


def _torch_whole(
    x: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    unsort: bool,
) -> torch.Tensor:
    order, offsets = _sorted(ids, w_up.shape[0])
    return _torch_given(x, order, offsets, probs, w_up, w_down, unsort)


# What torch.compile may time. With "all", grouped products may be of its Triton templates too; on an
# H200, torch 2.11 was seen to end with an illegal access as it timed them for 131072 routes.
_TUNE: dict[str, dict[str, bool]] = {
    "nothing": {},
    "pointwise": {"max_autotune_pointwise": True, "coordinate_descent_tuning": True},
    "all": {"max_autotune": True, "coordinate_descent_tuning": True},
}


@functools.cache
def _compiled(given: bool, tune: str) -> Callable[..., torch.Tensor]:
    torch._dynamo.config.recompile_limit = 64  # each shape, each way to sum
    return torch.compile(
        _torch_given if given else _torch_whole, dynamic=False, options=dict(_TUNE[tune])
    )


def torch_layer(
    x: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    lists: Lists | None = None,
    *,
    unsort: bool = True,
    tune: str = "pointwise",
) -> torch.Tensor:
    """The layer from grouped products under torch.compile. Routes are summed either where they lie in
    the token's order (`unsort`), or by index_add in float32. `tune` is a key of `_TUNE`."""
    if lists is None:
        return _compiled(False, tune)(x, ids, probs, w_up, w_down, unsort)
    return _compiled(True, tune)(x, lists.order, lists.offsets, probs, w_up, w_down, unsort)


# --- Triton


@dataclass(frozen=True)
class Tile:
    """How a kernel is cut. `tma` loads weights (and the rows of h) by descriptor; `wide` makes one
    product of gate and up; `ahead` has x gathered by a kernel of its own, so that its rows are loaded
    by descriptor too; `waves` is the blocks an SM of a persistent grid, 0 for a block a tile; `flatten`
    pipelines loads over the end of a tile; `group` is the row blocks that go through all columns
    together."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    tma: bool = True
    wide: bool = False
    ahead: bool = False
    waves: int = 0
    flatten: bool = False
    group: int = 8


@dataclass(frozen=True)
class Plan:
    up: Tile
    down: Tile


@triton.jit
def _table_kernel(
    offsets, table, experts, most, M: tl.constexpr, EXPERTS: tl.constexpr, CHUNK: tl.constexpr
):
    """Expert and first row of each block of M rows; at the end of the table how many blocks there are."""
    e = tl.arange(0, EXPERTS)
    begin = tl.load(offsets + e, mask=e < experts, other=0)
    end = tl.load(offsets + e + 1, mask=e < experts, other=0)
    blocks = tl.where(e < experts, tl.cdiv(end - begin, M), 0)
    last = tl.cumsum(blocks, 0)
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    mine = (at[:, None] >= (last - blocks)[None, :]) & (at[:, None] < last[None, :])
    row = begin[None, :] + (at[:, None] - (last - blocks)[None, :]) * M
    tl.store(table + 2 * at, tl.sum(tl.where(mine, e[None, :], 0), 1), mask=at < most)
    tl.store(table + 2 * at + 1, tl.sum(tl.where(mine, row, 0), 1), mask=at < most)
    if tl.program_id(0) == 0:
        tl.store(table + 2 * most, tl.sum(blocks, 0))


@triton.jit
def _place(tile, blocks, columns, GROUP: tl.constexpr):
    """Row block and column block of a tile: GROUP row blocks go through all columns together."""
    first = tile // (GROUP * columns) * GROUP
    size = tl.minimum(blocks - first, GROUP)
    inside = tile % (GROUP * columns)
    return first + inside % size, inside // size


@triton.jit
def _gather_kernel(x, order, gathered, hidden, top_k, BLOCK: tl.constexpr):
    """The token's row of each route."""
    route = tl.program_id(0).to(tl.int64)
    token = (tl.load(order + route) // top_k).to(tl.int64)
    for first in range(0, hidden, BLOCK):
        column = first + tl.arange(0, BLOCK)
        row = tl.load(x + token * hidden + column, mask=column < hidden)
        tl.store(gathered + route * hidden + column, row, mask=column < hidden)


@triton.jit
def _up_kernel(
    x, x_tiles, order, offsets, table, w, w_tiles, h, hidden, intermediate, top_k, most,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TMA: tl.constexpr, WIDE: tl.constexpr,
    AHEAD: tl.constexpr, FLATTEN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """h [routes, intermediate] in the order of the list: silu(gate) * up of gathered rows."""
    blocks = tl.load(table + 2 * most)
    columns = intermediate // N
    for tile in tl.range(tl.program_id(0), blocks * columns, tl.num_programs(0), flatten=FLATTEN):
        block, column = _place(tile, blocks, columns, GROUP)
        expert = tl.load(table + 2 * block)
        row = tl.load(table + 2 * block + 1)
        rows = row + tl.arange(0, M)
        valid = rows < tl.load(offsets + expert + 1)
        token = tl.load(order + rows, mask=valid, other=0) // top_k
        ks = tl.arange(0, K)
        a_at = x + token.to(tl.int64)[:, None] * hidden + ks[None, :]
        if WIDE:
            both = tl.zeros((M, 2 * N), tl.float32)
            for k in range(0, hidden, K):
                a = x_tiles.load([row, k]) if AHEAD else tl.load(a_at + k)
                b = w_tiles.load([2 * expert, column * N, k]).reshape(2 * N, K)
                both = tl.dot(a, b.T, both)
            gate, up = both.reshape(M, 2, N).permute(0, 2, 1).split()
        else:
            gate = tl.zeros((M, N), tl.float32)
            up = tl.zeros((M, N), tl.float32)
            if TMA:
                for k in range(0, hidden, K):
                    a = x_tiles.load([row, k]) if AHEAD else tl.load(a_at + k)
                    b = w_tiles.load([2 * expert, column * N, k]).reshape(N, K)
                    c = w_tiles.load([2 * expert + 1, column * N, k]).reshape(N, K)
                    gate = tl.dot(a, b.T, gate)
                    up = tl.dot(a, c.T, up)
            else:
                n = 2 * expert.to(tl.int64) * intermediate + column * N + tl.arange(0, N)
                b_at = w + n[None, :] * hidden + ks[:, None]
                c_at = b_at + intermediate.to(tl.int64) * hidden
                for k in range(0, hidden, K):
                    a = tl.load(a_at + k)
                    gate = tl.dot(a, tl.load(b_at + k), gate)
                    up = tl.dot(a, tl.load(c_at + k), up)
        product = gate / (1 + tl.exp(-gate)) * up
        at = rows.to(tl.int64)[:, None] * intermediate + (column * N + tl.arange(0, N))[None, :]
        tl.store(h + at, product.to(h.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _down_kernel(
    h, h_tiles, order, offsets, table, probs, w, w_tiles, y, hidden, intermediate, most,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TMA: tl.constexpr, FLATTEN: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """y [tokens * top_k, hidden] in the order of the tokens, weighted."""
    blocks = tl.load(table + 2 * most)
    columns = hidden // N
    for tile in tl.range(tl.program_id(0), blocks * columns, tl.num_programs(0), flatten=FLATTEN):
        block, column = _place(tile, blocks, columns, GROUP)
        expert = tl.load(table + 2 * block)
        row = tl.load(table + 2 * block + 1)
        total = tl.zeros((M, N), tl.float32)
        if TMA:
            for k in range(0, intermediate, K):
                a = h_tiles.load([row, k])
                b = w_tiles.load([expert, column * N, k]).reshape(N, K)
                total = tl.dot(a, b.T, total)
        else:
            ks = tl.arange(0, K)
            end = tl.load(offsets + expert + 1)
            inside = tl.minimum(row + tl.arange(0, M), end - 1).to(tl.int64)
            a_at = h + inside[:, None] * intermediate + ks[None, :]
            n = expert.to(tl.int64) * hidden + column * N + tl.arange(0, N)
            b_at = w + n[None, :] * intermediate + ks[:, None]
            for k in range(0, intermediate, K):
                total = tl.dot(tl.load(a_at + k), tl.load(b_at + k), total)
        rows = row + tl.arange(0, M)
        valid = rows < tl.load(offsets + expert + 1)
        route = tl.load(order + rows, mask=valid, other=0)
        weight = tl.load(probs + route, mask=valid, other=0.0)
        at = route.to(tl.int64)[:, None] * hidden + (column * N + tl.arange(0, N))[None, :]
        tl.store(y + at, (total * weight[:, None]).to(y.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _sum_kernel(y, out, hidden, top_k: tl.constexpr, BLOCK: tl.constexpr):
    """out [tokens, hidden]: the sum of a token's routes."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < hidden
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(top_k):
        at = (token * top_k + i) * hidden + column
        total += tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * hidden + column, total.to(out.dtype.element_ty), mask=inside)


@functools.cache
def _sms() -> int:
    return torch.cuda.get_device_properties(0).multi_processor_count


def _blocks_at_most(routes: int, experts: int, m: int) -> int:
    """Blocks of m rows when each expert's last one may be part empty."""
    full = min(experts, routes)
    return full + (routes - full) // m


def _table(lists: Lists, m: int) -> torch.Tensor:
    """Expert and first row of each block of m rows, and the blocks' count at the end."""
    experts = lists.offsets.numel() - 1
    most = _blocks_at_most(lists.order.numel(), experts, m)
    table = torch.empty(2 * most + 1, dtype=torch.int32, device=lists.order.device)
    padded = triton.next_power_of_2(experts)
    _table_kernel[(triton.cdiv(most, 64),)](
        lists.offsets, table, experts, most, M=m, EXPERTS=padded, CHUNK=64
    )
    return table


def _grid(tile: Tile, table: torch.Tensor, columns: int) -> tuple[int]:
    tiles = table.numel() // 2 * columns
    return (min(tiles, tile.waves * _sms()) if tile.waves else tiles,)


def _up(
    x: torch.Tensor, lists: Lists, table: torch.Tensor, w: torch.Tensor, top_k: int, t: Tile
) -> torch.Tensor:
    experts, both, hidden = w.shape
    intermediate = both // 2
    routes = lists.order.numel()
    h = torch.empty(routes, intermediate, dtype=x.dtype, device=x.device)
    x_tiles: Any = x
    if t.ahead:
        gathered = torch.empty(routes, hidden, dtype=x.dtype, device=x.device)
        _gather_kernel[(routes,)](x, lists.order, gathered, hidden, top_k, BLOCK=1024, num_warps=4)
        x_tiles = TensorDescriptor.from_tensor(gathered, [t.m, t.k])
    halves = w.view(2 * experts, intermediate, hidden)
    w_tiles = TensorDescriptor.from_tensor(halves, [2 if t.wide else 1, t.n, t.k]) if t.tma else w
    _up_kernel[_grid(t, table, intermediate // t.n)](
        x, x_tiles, lists.order, lists.offsets, table, w, w_tiles, h, hidden, intermediate, top_k,
        table.numel() // 2, M=t.m, N=t.n, K=t.k, TMA=t.tma, WIDE=t.wide, AHEAD=t.ahead, FLATTEN=t.flatten,
        GROUP=t.group, num_warps=t.warps, num_stages=t.stages,
    )  # fmt: skip
    return h


def _down(
    h: torch.Tensor,
    lists: Lists,
    table: torch.Tensor,
    probs: torch.Tensor,
    w: torch.Tensor,
    t: Tile,
) -> torch.Tensor:
    _, hidden, intermediate = w.shape
    y = torch.empty(h.shape[0], hidden, dtype=h.dtype, device=h.device)
    h_tiles = TensorDescriptor.from_tensor(h, [t.m, t.k]) if t.tma else h
    w_tiles = TensorDescriptor.from_tensor(w, [1, t.n, t.k]) if t.tma else w
    _down_kernel[_grid(t, table, hidden // t.n)](
        h, h_tiles, lists.order, lists.offsets, table, probs, w, w_tiles, y, hidden, intermediate,
        table.numel() // 2, M=t.m, N=t.n, K=t.k, TMA=t.tma, FLATTEN=t.flatten, GROUP=t.group,
        num_warps=t.warps, num_stages=t.stages,
    )  # fmt: skip
    return y


def triton_layer(
    x: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    lists: Lists | None = None,
    *,
    plan: Plan | None = None,
) -> torch.Tensor:
    """The layer from two Triton kernels and a sum. Without a plan it takes the fastest tiles for the
    shape, which the first call finds by timing."""
    (tokens, top_k), hidden = probs.shape, x.shape[1]
    if lists is None:
        lists = sort_routes(ids, w_up.shape[0])
    if plan is None:
        plan = tuned(Layer(x, ids, probs, w_up, w_down), lists)
    table = _table(lists, plan.up.m)
    h = _up(x, lists, table, w_up, top_k, plan.up)
    if plan.down.m != plan.up.m:
        table = _table(lists, plan.down.m)
    y = _down(h, lists, table, probs, w_down, plan.down)
    out = torch.empty_like(x)
    block = min(1024, triton.next_power_of_2(hidden))
    _sum_kernel[(tokens, triton.cdiv(hidden, block))](y, out, hidden, top_k, block, num_warps=4)
    return out


# --- The search for tiles

_CUT_UP = (
    # m, n, k, warps, stages: the accumulators are m by 2n
    *((128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 128, 8, 2)),
    *((128, 64, 64, 4, 3), (128, 64, 64, 8, 4), (128, 64, 128, 8, 3), (256, 64, 64, 8, 4)),
    *((64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (64, 128, 64, 8, 4)),
    *((64, 64, 64, 4, 3), (64, 64, 64, 4, 5), (64, 64, 128, 4, 3)),
    *((32, 64, 128, 4, 4), (16, 64, 128, 4, 4), (16, 128, 128, 4, 3)),
)
_UP = (
    *(Tile(*cut, wide=True) for cut in _CUT_UP),
    *(Tile(*cut) for cut in ((128, 128, 64, 8, 4), (128, 64, 64, 4, 3), (64, 64, 64, 4, 5))),
    *(Tile(*cut, wide=True, ahead=True) for cut in ((128, 128, 64, 8, 4), (128, 64, 64, 4, 3))),
    *(
        Tile(128, 128, 64, 8, 3, wide=True, ahead=ahead, waves=1, flatten=True)
        for ahead in (False, True)
    ),
    Tile(128, 128, 64, 8, 4, wide=True, waves=1),
    Tile(64, 64, 64, 4, 3, wide=True, waves=2, flatten=True),
    *(Tile(*cut, tma=False) for cut in ((128, 128, 64, 8, 4), (64, 64, 64, 4, 4))),
)
_CUT_DOWN = (
    *((128, 256, 64, 8, 3), (128, 256, 64, 8, 4)),
    *((128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 128, 8, 3)),
    *((256, 128, 64, 8, 3), (256, 128, 64, 8, 4)),
    *((64, 256, 64, 4, 3), (64, 256, 64, 4, 4), (64, 256, 64, 8, 4)),
    *((64, 128, 64, 4, 3), (64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 64, 128, 4, 4)),
    *((32, 128, 128, 4, 4), (16, 128, 128, 4, 4)),
)
_DOWN = (
    *(Tile(*cut) for cut in _CUT_DOWN),
    *(Tile(*cut, waves=1, flatten=True) for cut in ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4))),
    *(Tile(*cut, waves=1, flatten=True) for cut in ((256, 128, 64, 8, 3), (128, 128, 64, 8, 5))),
    *(Tile(*cut, waves=2, flatten=True) for cut in ((128, 128, 64, 4, 3), (64, 128, 64, 4, 4))),
    *(Tile(*cut, tma=False) for cut in ((128, 256, 64, 8, 4), (64, 128, 64, 4, 4))),
)
_GROUPS = (1, 4, 16, 32)


def _tiles(candidates: Iterable[Tile], n: int, k: int, mean: float) -> list[Tile]:
    """Those that divide the weights, and whose rows are not far from an expert's mean."""
    fits = [t for t in candidates if n % t.n == 0 and k % t.k == 0]
    return [t for t in fits if t.m <= max(64, 2 * mean) and (t.m >= 64 or mean <= 48)]


def _span(call: Callable[[], object], times: int) -> float:
    """Milliseconds of a call, mean of several."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def _fastest(candidates: list[Tile], run: Callable[[Tile], object]) -> Tile:
    """The fastest tile by two looks at each; then the same with other groups."""
    found: dict[Tile, float] = {}
    waiting = list(candidates)
    for look in range(2):
        for tile in waiting:
            call = functools.partial(run, tile)
            try:
                call()
                took = min(_span(call, 3) for _ in range(3))
            except Exception as error:  # a tile that this compiler or device cannot have
                print(f"  not {tile}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)
                continue
            found[tile] = min(took, found.get(tile, took))
        best = min(found, key=found.__getitem__)
        if look == 0:
            others = [Tile(**asdict(best) | {"group": group}) for group in _GROUPS]
            waiting = [*sorted(found, key=found.__getitem__)[:4], *others]
    print(f"  {found[best]:.4f} ms {best}", file=sys.stderr, flush=True)
    return best


_plans: dict[tuple[int, ...], Plan] = {}


def tuned(layer: Layer, lists: Lists) -> Plan:
    """The fastest tiles for the shape of a layer, sought once."""
    (tokens, top_k), (experts, hidden, intermediate) = layer.probs.shape, layer.w_down.shape
    key = (tokens, top_k, experts, hidden, intermediate)
    if key not in _plans:
        mean = tokens * top_k / experts
        tables = {m: _table(lists, m) for m in (16, 32, 64, 128, 256)}
        x, w_up, w_down = layer.x, layer.w_up, layer.w_down
        up = _fastest(
            _tiles(_UP, intermediate, hidden, mean),
            lambda tile: _up(x, lists, tables[tile.m], w_up, top_k, tile),
        )
        h = _up(x, lists, tables[up.m], w_up, top_k, up)
        down = _fastest(
            _tiles(_DOWN, hidden, intermediate, mean),
            lambda tile: _down(h, lists, tables[tile.m], layer.probs, w_down, tile),
        )
        _plans[key] = Plan(up, down)
    return _plans[key]


# --- What is right


def reference(layer: Layer) -> torch.Tensor:
    """The layer in float32, an expert at a time."""
    torch.set_float32_matmul_precision("highest")
    x, ids, probs = layer.x, layer.ids, layer.probs
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in range(layer.w_up.shape[0]):
        tokens, choices = torch.where(ids == expert)
        gate, up = layer.w_up[expert].float().chunk(2)
        down = layer.w_down[expert].float()
        for token, choice in zip(tokens.split(4096), choices.split(4096), strict=True):
            rows = x[token].float()
            h = torch.nn.functional.silu(rows @ gate.T) * (rows @ up.T)
            out.index_add_(0, token, (h @ down.T) * probs[token, choice][:, None])
    return out


def error(out: torch.Tensor, wanted: torch.Tensor) -> float:
    """||out - wanted|| / ||wanted||."""
    return ((out.float() - wanted).norm() / wanted.norm()).item()


# --- The measurement


def weights(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Random w_up and w_down of standard deviation 1 / sqrt(k)."""

    def of(n: int, k: int) -> torch.Tensor:
        made = torch.empty(shape.experts, n, k, dtype=BF16, device="cuda")
        return made.normal_(std=k**-0.5)

    return of(2 * shape.intermediate, shape.hidden), of(shape.hidden, shape.intermediate)


def route(shape: Shape, skewed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts by the largest of random logits, softmax over the chosen; skewed, expert 0 is among those
    of every second token whatever its logit."""
    logits = torch.randn(shape.tokens, shape.experts, device="cuda")
    seen = logits.clone()
    if skewed:
        seen[:, 0] = float("-inf")
        seen[::2, 0] = float("inf")
    ids = seen.topk(shape.top_k, dim=1).indices
    return ids, logits.gather(1, ids).softmax(dim=1)


def _graph(call: Callable[[], torch.Tensor]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def calls(
    layer: Layer, lists: Lists, tune: str = "pointwise"
) -> dict[str, Callable[[], torch.Tensor]]:
    """What is timed: each baseline with the sort of the routes, and with the lists given."""
    args = (layer.x, layer.ids, layer.probs, layer.w_up, layer.w_down)
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for given, unsort in itertools.product((None, lists), (True, False)):
        name = f"torch {'unsort' if unsort else 'index_add'}, {'lists given' if given else 'with sort'}"
        found[name] = functools.partial(torch_layer, *args, given, unsort=unsort, tune=tune)
    found["triton, with sort"] = functools.partial(triton_layer, *args)
    found["triton, lists given"] = functools.partial(triton_layer, *args, lists)
    return found


def _rounds(timed: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Median, least and most milliseconds of each, interleaved; each round begins with another."""
    times: dict[str, int] = {}
    for name, call in timed.items():
        call()
        times[name] = max(1, min(20, round(WANTED_MS / _span(call, 3))))
    found: dict[str, list[float]] = {name: [] for name in timed}
    names = list(timed)
    for index in range(rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            timed[name]()
            found[name].append(_span(timed[name], times[name]))
    return {
        name: {"ms": statistics.median(took), "least_ms": min(took), "most_ms": max(took)}
        for name, took in found.items()
    }


def measure(
    shape: Shape, layer: Layer, routing: str, tune: str, rounds: int
) -> list[dict[str, Any]]:
    """A row a baseline; one that fails or is wrong has no time."""
    lists = sort_routes(layer.ids, shape.experts)
    wanted = reference(layer)
    errors: dict[str, float] = {}
    timed: dict[str, Callable[[], object]] = {}
    rows: list[dict[str, Any]] = []
    about = {"shape": shape.name, "tokens": shape.tokens, "routing": routing}
    for name, call in calls(layer, lists, tune).items():
        try:
            off = error(call(), wanted)
            if not off < LIMIT:
                raise ValueError(f"relative error {off}")
            timed |= {f"graph/{name}": _graph(call), f"stream/{name}": call}
            errors[name] = off
        except Exception as failure:
            rows.append(
                {**about, "name": name, "failed": f"{type(failure).__name__}: {failure}"[:2000]}
            )
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if not timed:
        raise SystemExit(f"{about}: nothing works")
    took = _rounds(timed, rounds)
    plan = tuned(layer, lists)
    for name, off in errors.items():
        graph, stream = took[f"graph/{name}"], took[f"stream/{name}"]
        rows.append(
            {
                **about,
                "name": name,
                **graph,
                "tflops": shape.operations / graph["ms"] / 1e9,
                "stream_ms": stream["ms"],
                "error": off,
                "plan": asdict(plan) if name.startswith("triton") else None,
            }
        )
        print(
            f"{shape.name:14} {shape.tokens:6} {routing:8} {name:30} {graph['ms']:9.4f} "
            f"{rows[-1]['tflops']:7.1f} {stream['ms']:9.4f} {off:8.1e}",
            flush=True,
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Times the baselines of a mixture-of-experts layer."
    )
    parser.add_argument("--output", type=Path, help="where the result goes, as JSON")
    parser.add_argument(
        "--only", default="", help="the shapes in whose name and tokens this text is"
    )
    parser.add_argument(
        "--tune",
        choices=list(_TUNE),
        default="pointwise",
        help="what torch.compile times; give all one shape a process, as it may end with a device error",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parent))
    from circumstances import circumstances

    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    made: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}
    print(
        f"{'shape':14} {'tokens':>6} {'routing':8} {'name':30} "
        f"{'ms':>9} {'TFLOP/s':>7} {'stream ms':>9} {'error':>8}"
    )
    for shape in SHAPES:
        if args.only not in f"{shape.name} {shape.tokens}":
            continue
        size = (shape.experts, shape.hidden, shape.intermediate)
        if size not in made:
            made.clear()
            made[size] = weights(shape)
        x = torch.randn(shape.tokens, shape.hidden, device="cuda").to(BF16)
        for routing in ("even", "skewed"):
            begin = time.monotonic()
            ids, probs = route(shape, routing == "skewed")
            rows += measure(
                shape, Layer(x, ids, probs, *made[size]), routing, args.tune, args.rounds
            )
            torch.cuda.empty_cache()
            print(f"  {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        if args.output:
            result = {
                **circumstances(),
                "triton": triton.__version__,
                "rounds": args.rounds,
                "tune": args.tune,
            }
            args.output.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())

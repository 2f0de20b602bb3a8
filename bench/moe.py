"""The mixture-of-experts layer beside torch's grouped products and Triton, over shapes and routings.

    python3 bench/moe.py [--output FILE] [--only TEXT] [--rounds N]

Whole layers forward, interleaved in one process and timed with events, as CUDA graphs and as plain calls;
each is checked against float32 first, on fresh inputs and poisoned memory. The floor is the larger of
two times: the operations at the rate of a large torch.matmul here, and the fewest bytes (inputs and
outputs once, weights of the experts in use) at the rate of a large copy here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pipelink  # noqa: E402
from bench import moe_baselines as base  # noqa: E402
from bench.circumstances import circumstances  # noqa: E402
from components.moe.layer import Layer, Routing, check_sorted, sort_routes  # noqa: E402

PLAIN = "torch plain, with sort"
RESULTS = ROOT / "bench/results/moe.json"
BUILD = ROOT / "build/sm_90a"


def loaded(shape: base.Shape) -> dict[str, Layer]:
    """The layers of a shape, by mode."""
    return {
        mode: Layer.of(BUILD, (shape.hidden, shape.intermediate, shape.experts, shape.top_k), mode)
        for mode in ("deterministic", "fast")
    }


def ours(
    shape: base.Shape, layer: base.Layer, lists: base.Lists
) -> dict[str, Callable[[], torch.Tensor]]:
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for mode, run in loaded(shape).items():
        given = Routing(lists.order, lists.offsets, layer.probs)

        def call(run: Layer = run, given: Routing = given) -> torch.Tensor:
            return run(layer.x, given, layer.w_up, layer.w_down)

        def sorting(run: Layer = run) -> torch.Tensor:
            made = base.sort_routes(layer.ids, shape.experts)
            return run(
                layer.x, Routing(made.order, made.offsets, layer.probs), layer.w_up, layer.w_down
            )

        found[f"pipelink {mode}, lists given"] = call
        found[f"pipelink {mode}, with sort"] = sorting
    return found


def plain(
    x: torch.Tensor,
    ids: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    """torch's grouped products as one writes them at first: routes sorted, gathered, multiplied, and added
    up in bf16. moe_baselines.py has what that can be tuned to."""
    top_k = ids.shape[1]
    by_expert, order = ids.reshape(-1).sort()
    token = order // top_k
    counts = torch.bincount(by_expert, minlength=w_up.shape[0])
    ends = counts.cumsum(0).int()
    gate, up = base._grouped_mm(x[token], w_up, ends).chunk(2, dim=-1)
    y = base._grouped_mm(torch.nn.functional.silu(gate) * up, w_down, ends)
    weighted = y * probs.reshape(-1)[order].to(y.dtype)[:, None]
    return torch.zeros_like(x).index_add(0, token, weighted)


def theirs(layer: base.Layer, lists: base.Lists) -> dict[str, Callable[[], torch.Tensor]]:
    arguments = (layer.x, layer.ids, layer.probs, layer.w_up, layer.w_down)
    compiled = torch.compile(plain, dynamic=False)
    return {PLAIN: lambda: compiled(*arguments), **base.calls(layer, lists)}


def poison(shape: base.Shape) -> None:
    """Fills the memory that the allocator gives out next with NaN."""
    routes = shape.tokens * shape.top_k
    for columns in (shape.intermediate, shape.hidden, 2 * shape.hidden):
        torch.full((routes, columns), float("nan"), dtype=torch.bfloat16, device="cuda")


def floor(shape: base.Shape, ids: torch.Tensor, ceilings: dict[str, float]) -> dict[str, float]:
    used = int(ids.unique().numel())
    moved = 2 * (2 * shape.tokens * shape.hidden + 3 * used * shape.hidden * shape.intermediate)
    compute, memory = shape.operations / ceilings["tflops"] / 1e9, moved / ceilings["tbs"] / 1e9
    return {
        "operations": shape.operations,
        "bytes": moved,
        "compute_ms": compute,
        "memory_ms": memory,
    }


def ceilings() -> dict[str, float]:
    """What a large product and a large copy reach here."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    took = base._rounds({"mm": lambda: a @ b, "copy": lambda: target.copy_(source)}, 9)
    return {
        "tflops": 2 * 8192**3 / took["mm"]["ms"] / 1e9,
        "tbs": 4 * (1 << 30) / took["copy"]["ms"] / 1e9,
    }


def refusals() -> dict[str, str]:
    """What a debug launch, or any, says of bad input."""
    shape = next(s for s in base.SHAPES if s.experts == 8)
    tokens, routes = 16, 16 * shape.top_k
    kernel = pipelink.load(BUILD / "moe_up_mixtral/moe_up_mixtral.cubin", debug=True)
    w, _ = base.weights(shape)
    good = {
        "x": torch.randn(tokens, shape.hidden, device="cuda").to(base.BF16),
        "order": torch.randperm(routes, device="cuda").int(),
        "offsets": torch.arange(0, routes + 1, routes // shape.experts, device="cuda").int(),
        "w": w,
        "h": torch.empty(routes, shape.intermediate, device="cuda", dtype=base.BF16),
    }

    def changed(name: str, index: int, value: int) -> dict[str, torch.Tensor]:
        other = good[name].clone()
        other[index] = value
        return {**good, name: other}

    bad = {
        "a route out of range": changed("order", 5, 40000),
        "a negative route": changed("order", 5, -1),
        "a route twice": changed("order", 5, int(good["order"][4])),
        "offsets that fall": changed("offsets", 3, 0),
        "offsets that end early": changed("offsets", shape.experts, routes - 1),
        "too many experts": {**good, "offsets": torch.cat([good["offsets"], good["offsets"][-1:]])},
        "too few experts": {**good, "w": w[1:].contiguous()},
        "no tokens": {**good, "x": good["x"][:0]},
    }
    kernel(**good)
    said = {name: refused(kernel, arguments) for name, arguments in bad.items()}
    return {**said, "a list that is not sorted": unsorted(shape)}


def unsorted(shape: base.Shape) -> str:
    """What is said of a list in which the first and the last route have changed places."""
    ids, probs = base.route(shape, False)
    routing = sort_routes(ids, probs, shape.experts)
    check_sorted(ids, routing)
    order = routing.order.clone()
    order[0], order[-1] = routing.order[-1], routing.order[0]
    try:
        check_sorted(ids, replace(routing, order=order))
    except ValueError as error:
        return str(error)
    return "NOT REFUSED"


def refused(kernel: pipelink.Kernel, arguments: dict[str, torch.Tensor]) -> str:
    try:
        kernel(**arguments)
    except pipelink.LaunchError as error:
        return str(error)
    return "NOT REFUSED"


def measure(
    shape: base.Shape, layer: base.Layer, routing: str, rounds: int
) -> list[dict[str, Any]]:
    lists = base.sort_routes(layer.ids, shape.experts)
    wanted = base.reference(layer)
    timed: dict[str, Callable[[], object]] = {}
    errors = {}
    for name, call in {**theirs(layer, lists), **ours(shape, layer, lists)}.items():
        poison(shape)
        errors[name] = base.error(call(), wanted)
        assert errors[name] < base.LIMIT, f"{name}: relative error {errors[name]}"
        timed[f"stream/{name}"] = call
        if name != PLAIN:  # it waits for the device, which no graph does
            timed[f"graph/{name}"] = base._graph(call)
    took = base._rounds(timed, rounds)
    rows = []
    for name, off in errors.items():
        graph = took.get(f"graph/{name}", took[f"stream/{name}"])
        about = {"shape": shape.name, "tokens": shape.tokens, "routing": routing, "name": name}
        rate = shape.operations / graph["ms"] / 1e9
        rows.append(
            {
                **about,
                **graph,
                "tflops": rate,
                "stream_ms": took[f"stream/{name}"]["ms"],
                "error": off,
            }
        )
        print(f"{shape.name:14} {shape.tokens:6} {routing:7} {name:36} {graph['ms']:9.4f} {rate:6.0f} "
              f"{took[f'stream/{name}']['ms']:9.4f} {off:.1e}", flush=True)  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="the layer beside torch and Triton")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument(
        "--only", default="", help="the shapes in whose name and tokens this text is"
    )
    parser.add_argument("--rounds", type=int, default=base.ROUNDS)
    args = parser.parse_args()
    top = ceilings()
    print(f"ceilings: {top['tflops']:.0f} TFLOP/s, {top['tbs']:.2f} TB/s")
    result: dict[str, Any] = {
        **circumstances(),
        "ceilings": top,
        "rounds": args.rounds,
        "rows": [],
        "floors": [],
    }
    result["refused"] = refusals()
    weights: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for shape in (s for s in base.SHAPES if args.only in f"{s.name} {s.tokens}"):
        if shape.name not in weights:
            weights.clear()
            weights[shape.name] = base.weights(shape)
        x = torch.randn(shape.tokens, shape.hidden, device="cuda").to(base.BF16)
        for routing in ("even", "skewed"):
            ids, probs = base.route(shape, routing == "skewed")
            layer = base.Layer(x, ids, probs, *weights[shape.name])
            result["rows"] += measure(shape, layer, routing, args.rounds)
            about = {"shape": shape.name, "tokens": shape.tokens, "routing": routing}
            result["floors"].append({**about, **floor(shape, ids, top)})
            args.output.write_text(json.dumps(result, indent=1) + "\n")
            torch.cuda.empty_cache()
    return int("NOT REFUSED" in result["refused"].values())


if __name__ == "__main__":
    sys.exit(main())

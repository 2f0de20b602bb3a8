"""The ffn kernel beside cuBLAS, over the number of rows.

    python3 bench/ffn.py [--rows M,M,...] [--output FILE] [CUBIN ...]

`ffn` is the kernel as people load it, all its variants together; cubins that are named run alone too.
Interleaved in one process, timed with events; medians over rounds, and the spread (the 10th to the
90th percentile). Beside each kernel: cuBLAS alone, one product with the weights side by side, and the
same with a torch.compile'd activation after it, which is what a kernel replaces. Needs torch and
cuda-core. The weights are 524 MB, so no round finds them in the cache.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pipelink  # noqa: E402
from bench.circumstances import circumstances  # noqa: E402

HIDDEN, INTERMEDIATE = 5120, 25600
ROWS = (1, 16, 64, 256, 1024, 4096, 8192)
VARIANTS = ("ffn_m64", "ffn_m192", "ffn_m512", "ffn")  # the first that takes m rows runs
ROUNDS = 25


def variants() -> list[Path]:
    """The built cubins of `VARIANTS`."""
    return [ROOT / "build/sm_90a" / name / f"{name}.cubin" for name in VARIANTS]


def timed(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Milliseconds a call, by round; each round runs every call, so that drift meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(ROUNDS + 3):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(repeat):
                call()
            end.record()
            end.synchronize()
            if round_ >= 3:
                times[name].append(start.elapsed_time(end) / repeat)
    return times


def summary(values: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(values, n=10)
    return {"ms": statistics.median(values), "p10": tenths[0], "p90": tenths[-1]}


def measure(m: int, loaded: dict[str, pipelink.Kernel], weights: torch.Tensor) -> dict[str, object]:
    w_gate, w_up = weights[:INTERMEDIATE], weights[INTERMEDIATE:]
    x = torch.randn(m, HIDDEN, device="cuda", dtype=torch.bfloat16)
    product = torch.empty(m, 2 * INTERMEDIATE, device="cuda", dtype=torch.bfloat16)
    takes = {
        name: kernel
        for name, kernel in loaded.items()
        if any(v.bounds("m")[0] <= m <= v.bounds("m")[1] for v in kernel.variants)
    }
    outs = {name: torch.full((m, INTERMEDIATE), float("nan"), device="cuda", dtype=x.dtype) for name in takes}

    def gemm() -> None:
        torch.mm(x, weights.T, out=product)

    @torch.compile(dynamic=False)
    def activation(y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(y[:, :INTERMEDIATE]) * y[:, INTERMEDIATE:]

    def unfused() -> torch.Tensor:
        gemm()
        return activation(product)

    calls: dict[str, Callable[[], object]] = {"cublas": gemm, "cublas + activation": unfused}
    for name, kernel in takes.items():
        calls[name] = lambda kernel=kernel, out=outs[name]: kernel(x, w_gate, w_up, out)
    for call in calls.values():
        call()
    reference = unfused().float()
    errors = {n: ((o.float() - reference).norm() / reference.norm()).item() for n, o in outs.items()}
    times = timed(calls, repeat=max(1, min(20, 4096 // m)))
    operations = 2 * m * HIDDEN * 2 * INTERMEDIATE
    rows = {name: summary(values) for name, values in times.items()}
    for name, row in rows.items():
        row["tflops"] = operations / row["ms"] / 1e9
        row["speedup"] = rows["cublas + activation"]["ms"] / row["ms"]
        if name in errors:
            row["difference"] = errors[name]
    return {"m": m, "calls": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description="ffn kernels beside cuBLAS")
    parser.add_argument("cubins", nargs="*", type=Path)
    parser.add_argument("--rows", type=lambda text: tuple(map(int, text.split(","))), default=ROWS)
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/ffn.json")
    args = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    paths = [*variants(), *args.cubins]
    loaded = {"ffn": pipelink.load(*variants())}
    loaded |= {path.stem: pipelink.load(path) for path in args.cubins}
    weights = torch.randn(2 * INTERMEDIATE, HIDDEN, device="cuda", dtype=torch.bfloat16) / HIDDEN**0.5
    digests = {p.stem: json.loads(p.with_suffix(".json").read_text())["cubin_sha256"] for p in paths}
    result: dict[str, Any] = {**circumstances(), "rounds": ROUNDS, "kernels": digests, "rows": []}
    for m in args.rows:
        row = measure(m, loaded, weights)
        result["rows"].append(row)
        for name, v in row["calls"].items():
            print(f"{m:6} {name:24} {v['ms']:8.4f} ms {v['tflops']:6.0f} TFLOP/s {v['speedup']:6.3f} "
                  f"{v.get('difference', 0):.1e}", flush=True)  # fmt: skip
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

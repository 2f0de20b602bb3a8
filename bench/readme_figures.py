"""Writes the figures of README.md, between its two markers, from the result files.

python3 bench/readme_figures.py [--check]     --check: exit 1 if the README has other figures
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


def row(kernel: str, run: dict[str, Any]) -> str:
    extents = ", ".join(f"{name} = {n}" for name, n in run["extents"].items())
    cells = [f"`{kernel}`", extents, f"{max(run['errors'].values()):.1e}"]
    if "ms" in run:
        rates = (run["tflops"], run["baseline_tflops"])
        cells += [f"{run['ms']:.3f}", *(f"{rate:.0f}" for rate in rates)]
    else:
        cells += ["-", "-", "-"]
    return f"| {' | '.join(cells)} |"


def link_times(link: dict[str, Any]) -> str:
    """How long links from existing objects take, in a sentence."""
    kernels = ", ".join(
        f"`{k['kernel']}` {k['wall_s']['median']:.2f} s ({k['own_s']['median']:.2f} s without nvcc and nvJitLink)"
        for k in link["kernels"]
    )
    return f"`pipelink link` from existing objects, on {link['machine']}: {kernels}; `{link['command']}`."


def where(result: dict[str, Any]) -> str:
    """On what a result was measured, and how."""
    return (
        f"{result['device']}, driver {result['driver']}, torch {result['torch']}, "
        f"{result['date'][:10]}, commit {result['commit'][:12]}; `{result['command']}`."
    )


def speeds(ffn: dict[str, Any]) -> list[str]:
    """The kernel beside cuBLAS, a line for each number of rows: medians, and the 10th to 90th percentile."""
    names = ("ffn", "cublas + activation", "cublas")
    lines = [
        (
            "| m | `ffn` ms | cuBLAS + activation ms | cuBLAS alone ms | `ffn` TFLOP/s "
            "| against cuBLAS + activation |"
        ),
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for entry in ffn["rows"]:
        own, unfused, gemm = (entry["calls"][name] for name in names)
        times = " | ".join(
            f"{c['ms']:.4f} ({c['p10']:.4f} to {c['p90']:.4f})" for c in (own, unfused, gemm)
        )
        lines.append(f"| {entry['m']} | {times} | {own['tflops']:.0f} | {own['speedup']:.2f}x |")
    return lines


def loader_text(loader: dict[str, Any]) -> str:
    """What a launch takes on the host, and what was checked there, in sentences."""
    times = ", ".join(f"{name} {row['us']:.1f} µs" for name, row in loader["host_us"].items())
    held = ", ".join(n.replace("_", " ") for n, said in loader["checks"].items() if said == "right")
    return f"Host time of a call, median: {times}. Right there: {held}. {where(loader)}"


def figures(
    result: dict[str, Any], ffn: dict[str, Any], loader: dict[str, Any], link: dict[str, Any]
) -> str:
    """The block, markers and all."""
    baselines = sorted({kernel["baseline"] for kernel in result["kernels"]})
    origin = (
        f"Every built kernel against float32. {where(result)} "
        f"The error is ‖out - ref‖ / ‖ref‖ against float32; torch is {'; '.join(baselines)}."
    )
    lines = [
        BEGIN,
        f"`ffn` (its four variants, loaded as one kernel) beside what it replaces. {where(ffn)}",
        "",
        *speeds(ffn),
        "",
        loader_text(loader),
        "",
        origin,
        "",
        "| kernel | extents | error | ms | TFLOP/s | torch TFLOP/s |",
        "|---|---|---:|---:|---:|---:|",
        *(row(kernel["kernel"], run) for kernel in result["kernels"] for run in kernel["runs"]),
        "",
        link_times(link),
        END,
    ]
    return "\n".join(lines)


def replaced(readme: str, block: str) -> str:
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md: there is no block from {BEGIN} to {END}")
    return before + block + after


def main() -> int:
    parser = argparse.ArgumentParser(description="the README's figures")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results/gpu_check.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    chosen = parser.parse_args()
    result = json.loads(chosen.results.read_text(encoding="utf-8"))
    ffn, loader, link = (
        json.loads((ROOT / f"bench/results/{name}.json").read_text(encoding="utf-8"))
        for name in ("ffn", "loader", "link")
    )
    if not result["passed"]:
        raise SystemExit(f"{chosen.results.name}: a kernel is wrong there, no figures from it")
    if any(said.startswith("wrong") for said in loader["checks"].values()):
        raise SystemExit("loader.json: a check failed there, no figures from it")
    old = chosen.readme.read_text(encoding="utf-8")
    new = replaced(old, figures(result, ffn, loader, link))
    if new == old:
        return 0
    if chosen.check:
        print("README.md: its figures are not those of the result file", file=sys.stderr)
        return 1
    chosen.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

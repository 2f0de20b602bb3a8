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


def figures(result: dict[str, Any], link: dict[str, Any]) -> str:
    """The block, markers and all."""
    baselines = sorted({kernel["baseline"] for kernel in result["kernels"]})
    origin = (
        f"{result['device']}, driver {result['driver']}, torch {result['torch']}, "
        f"{result['date'][:10]}, commit {result['commit'][:12]}; `{result['command']}`. "
        f"The error is ‖out - ref‖ / ‖ref‖ against float32; torch is {'; '.join(baselines)}."
    )
    lines = [
        BEGIN,
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
    link = json.loads((ROOT / "bench/results/link.json").read_text(encoding="utf-8"))
    if not result["passed"]:
        raise SystemExit(f"{chosen.results.name}: a kernel is wrong there, no figures from it")
    old = chosen.readme.read_text(encoding="utf-8")
    new = replaced(old, figures(result, link))
    if new == old:
        return 0
    if chosen.check:
        print("README.md: its figures are not those of the result file", file=sys.stderr)
        return 1
    chosen.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

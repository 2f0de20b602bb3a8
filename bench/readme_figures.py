"""Writes the figures of README.md, between its two markers, from the result files.

python3 bench/readme_figures.py [--check]     --check: exit 1 if the README has other figures
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


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


def two_devices(loader: dict[str, Any]) -> str:
    """What a machine with a second GPU was needed for."""
    said = loader["checks"]["second_device"]
    return f"On a machine with {loader['devices']} GPUs, the second one: {said}. {where(loader)}"


def checked(result: dict[str, Any]) -> str:
    """Every kernel against its reference, in a sentence."""
    kernels = result["kernels"]
    runs = [run for kernel in kernels for run in kernel["runs"]]
    worst = max(error for run in runs for error in run["errors"].values())
    names = ", ".join(f"`{kernel['kernel']}`" for kernel in kernels)
    sizes = sorted({n for run in runs for n in run["extents"].values()})
    return (
        f"{names} at m = {', '.join(map(str, sizes))} (each within its bounds) against float32: {len(runs)} "
        f"runs, {sum(not run['passed'] for run in runs)} wrong, ‖out - ref‖ / ‖ref‖ at most {worst:.1e}, "
        f"outputs poisoned. {where(result)}"
    )


def checks(check: dict[str, Any]) -> str:
    wall, reading = check["check"]["wall_s"], check["reading"]
    return (
        f"`pipelink check` of {check['check']['components']} components: {wall['median']:.2f} s, start-up "
        f"included. Reading and checking {reading['objects']} objects: {reading['ratio']:.2f} times what "
        f"pyelftools alone takes to find their notes, {reading['peak_mib']:.0f} MiB. On {check['machine']}; "
        f"`{check['command']}`."
    )


def campaigns(fuzz: dict[str, Any], mutations: dict[str, Any]) -> str:
    """What hostile objects and changed contracts came to."""
    inputs = sum(kind["inputs"] for kind in fuzz["kinds"].values())
    mutants = mutations["mutants"]
    refused = sum(m["outcome"].startswith("refused") for m in mutants)
    same = sum(m["outcome"] == "same kernel" for m in mutants)
    return (
        f"Hostile objects: {inputs:,} mutated and random inputs through the reader and, where it takes "
        f"them, all passes: {len(fuzz['wrong'])} wrong, {fuzz['peak']['peak_mib']:.0f} MiB at most; "
        f"`{fuzz['command']}`. Changed contracts: of {len(mutants)} mutants {refused} are refused by name, "
        f"{same} give the same kernel, {len(mutants) - refused - same} are relinked and right on the H200 "
        "([docs/mutations.md](docs/mutations.md))."
    )


def transfers(of: Mapping[str, dict[str, Any]]) -> str:
    """The matrix of transfers, the sanitizers, and speed beside hand-written code."""
    cases, found, speed = of["transfers"], of["sanitizer"]["found"], of["bandwidth"]
    right = sum(c["outcome"] == "right" for c in cases["cases"])
    seen = sum(outcome != "right" for outcome in cases["planted"].values())
    clean = [
        name
        for name, said in found.items()
        if any("0 errors" in row for row in said["summary"]) and not said["kernels"]
    ]
    races = ", ".join(n.removeprefix("racecheck ") for n in clean if n.startswith("racecheck"))
    least = min(speed["rows"], key=lambda r: r["ratio"])
    return (
        f"Generated transfers: {right} of {len(cases['cases'])} kernels (kinds, layouts, element types, roles) "
        f"are right bit by bit, outputs poisoned; {seen} of {len(cases['planted'])} planted faults are seen. "
        f"compute-sanitizer: {' and '.join(n for n in clean if ' ' not in n)} clean on all; racecheck clean on "
        f"{races}. (It follows no thread that arrives for its warp: it names "
        f"{sum(len(s['kernels']) for n, s in found.items() if n not in clean)} such kernels, and none when each "
        f"thread of the same glue arrives for itself, `everyone`.) {where(cases)}"
        f"\n\nBeside hand-written CUDA, {len(speed['rows'])} rows (kinds with 1 and 4 blocks an SM): none slower "
        f"than {least['ratio']:.3f} of its speed (`{least['kind']}`); up to "
        f"{max(r['share_of_limit'] for r in speed['rows']):.0%} of the 128 bytes a clock of shared memory. "
        f"{where(speed)}"
    )


def placement(place: dict[str, Any], plan: dict[str, Any]) -> str:
    packed, single = place["packed"], place["single_orders"][place["best_single_order"]]
    return (
        f"Shared memory of {place['programs']:,} random programs: {packed['optimal']} proven optimal, all within "
        f"{packed['worst_percent']:.2f} % of a proven bound; the best single order of first-fit: "
        f"{single['optimal']} optimal, {single['within_2_percent']} within 2 %, {single['worst_percent']:.0f} % "
        f"at worst; `{place['command']}`. A plan of {plan['components']} components and {plan['claims']} claims: "
        f"{plan['median_s']:.2f} s, start-up included, on {plan['machine']}; `{plan['command']}`."
    )


def figures(of: Mapping[str, dict[str, Any]]) -> str:
    """The block, markers and all; `of` are the result files."""
    ffn = of["ffn"]
    lines = [
        f"`ffn` (its four variants, loaded as one kernel) beside what it replaces. {where(ffn)}",
        "\n".join(speeds(ffn)),
        loader_text(of["loader"]),
        two_devices(of["loader_two_devices"]),
        checked(of["gpu_check"]),
        transfers(of),
        placement(of["place"], of["plan"]),
        link_times(of["link"]),
        checks(of["check"]),
        campaigns(of["fuzz"], of["mutations"]),
    ]
    return "\n\n".join([BEGIN, *lines, END])


def replaced(readme: str, block: str) -> str:
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"README.md: there is no block from {BEGIN} to {END}")
    return before + block + after


def main() -> int:
    parser = argparse.ArgumentParser(description="the README's figures")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    chosen = parser.parse_args()
    of = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "bench/results").glob("*.json")
    }
    if not of["gpu_check"]["passed"]:
        raise SystemExit("gpu_check.json: a kernel is wrong there, no figures from it")
    if any(said.startswith("wrong") for said in of["loader"]["checks"].values()):
        raise SystemExit("loader.json: a check failed there, no figures from it")
    old = chosen.readme.read_text(encoding="utf-8")
    new = replaced(old, figures(of))
    if new == old:
        return 0
    if chosen.check:
        print("README.md: its figures are not those of the result file", file=sys.stderr)
        return 1
    chosen.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

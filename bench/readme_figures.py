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
sys.path.insert(0, str(ROOT))

from bench.changed_facts import failing, table  # noqa: E402

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
    said = []
    for extent in ("m", "tokens"):
        having = [k for k in kernels if any(extent in run["extents"] for run in k["runs"])]
        sizes = sorted({run["extents"][extent] for k in having for run in k["runs"]})
        names = ", ".join(f"`{kernel['kernel']}`" for kernel in having)
        said.append(f"{names} at {extent} = {', '.join(map(str, sizes))}")
    return (
        f"{'; '.join(said)} (each within its bounds; tokens routed evenly, and half of them to one expert) "
        f"against float32: {len(runs)} runs, {sum(not run['passed'] for run in runs)} wrong, "
        f"‖out - ref‖ / ‖ref‖ at most {worst:.1e}, outputs poisoned. {where(result)}"
    )


MOE_NAMES = {
    "pipelink deterministic, with sort": "deterministic",
    "pipelink fast, with sort": "fast",
    "torch plain, with sort": "torch, plain",
    "triton, with sort": "Triton",
}


def layers(moe: dict[str, Any]) -> str:
    """The mixture-of-experts layer beside torch and Triton: a row for each shape and routing."""
    lines = [
        (
            "| shape | tokens | routing | deterministic ms | fast ms | torch, plain ms | torch, tuned ms "
            "| Triton ms | TFLOP/s | of the floor | against torch, plain | tuned | Triton |"
        ),
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for floor in moe["floors"]:
        key = ("shape", "tokens", "routing")
        rows = {r["name"]: r for r in moe["rows"] if all(r[k] == floor[k] for k in key)}
        own, fast, plain, triton = (rows[name]["ms"] for name in MOE_NAMES)
        tuned = min(r["ms"] for n, r in rows.items() if n.startswith("torch") and n.endswith("with sort"))
        best, least = min(own, fast), max(floor["compute_ms"], floor["memory_ms"])
        lines.append(
            f"| {floor['shape']} | {floor['tokens']} | {floor['routing']} | {own:.3f} | {fast:.3f} | {plain:.3f} "
            f"| {tuned:.3f} | {triton:.3f} | {floor['operations'] / best / 1e9:.0f} | {least / best:.0%} "
            f"| {plain / best:.2f}x | {tuned / best:.2f}x | {triton / best:.2f}x |"
        )
    return "\n".join(lines)


def layers_text(moe: dict[str, Any]) -> str:
    top = moe["ceilings"]
    return (
        "A mixture-of-experts layer forward from four owners' objects "
        "([components/moe](components/moe/README.md)), the sort of the routes included, as CUDA graphs. Beside "
        "it: torch's grouped products under torch.compile, as one writes them at first (that one waits for the "
        "device, so no graph), and tuned (the best of four ways); and a Triton layer tuned for each shape "
        "(bench/moe_baselines.py). The floor is the time of the operations at "
        f"{top['tflops']:.0f} TFLOP/s or of the fewest bytes at {top['tbs']:.2f} TB/s, what a large "
        f"torch.matmul and a large copy reach there. {where(moe)}"
    )


def changed(result: dict[str, Any], campaign: dict[str, Any]) -> str:
    """What one owner's changed constant does, and the campaign."""
    cases = result["cases"]
    counts = campaign["counts"]
    return (
        f"One owner of four changes one constant and compiles anew, the others do not: {failing(cases)} of "
        f"{len(cases) - 1} changes break the symbol-linked kernel, whether its own unit is old or new, and "
        "PipeLink is right and bit by bit equal to a fresh control in all "
        "([docs/changed-facts.md](docs/changed-facts.md) says how it was tried).\n\n"
        + "\n".join(table(cases))
        + f"\n\n{where(result)}\n\nEvery fact of every owner at every value of its set and outside it: of "
        f"{len(campaign['mutants'])} mutants {counts['right']} are relinked, right and equal to a control on the "
        f"H200, {counts['refused']} are refused by name; third outcomes: "
        f"{len(campaign['mutants']) - counts['right'] - counts['refused'] or 'none'}. {where(campaign)}"
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
        layers_text(of["moe"]),
        layers(of["moe"]),
        changed(of["changed_facts"], of["campaign"]),
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

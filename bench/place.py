"""How near to the least end the packer places shared memory, and how long it takes.

    python bench/place.py [--programs N]

Random programs with a fixed seed: 5 to 60 regions with the sizes and alignments of real ones, live
at some of 2 to 12 moments. Each result is held against the bound that was proven for it, and so is
first fit under each single order. One whole process is timed too, with the solver's import.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from bench.circumstances import host  # noqa: E402
from pipelink.place import pack as packer  # noqa: E402
from pipelink.place.pack import Item, Packing, pack  # noqa: E402

SEED, KIB = 1, 1024
BLOCK = 227 * KIB  # shared memory of a block of sm_90a

ONE_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from random import Random
from bench.place import program
from pipelink.place.pack import pack
packing = pack(program(Random(int(sys.argv[2])), 120))
print(packing.how, packing.end, packing.bound)
"""


def region(random: Random) -> tuple[int, int]:
    """(bytes, alignment): a tile in stages, a tile with padded rows, scratch, a table, mbarriers."""
    kinds = ("tile", "padded", "scratch", "table", "mbarriers")
    kind = random.choices(kinds, (40, 15, 20, 15, 10))[0]
    if kind == "tile":
        size = random.choice((1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)) * KIB
        return size * random.choice((1, 1, 1, 2, 3, 4)), random.choice(
            (1024, 1024, 1024, 512, 256, 128)
        )
    if kind == "padded":
        row = 2 * (random.choice((32, 64, 128)) + random.choice((4, 8)))
        rows = random.choice((16, 32, 64, 128)) * random.choice((1, 1, 2, 3))
        return row * rows, random.choice((128, 256))
    if kind == "scratch":
        return random.randint(1, 1500) * random.choice((1, 2, 4)), random.choice((8, 8, 128))
    if kind == "table":
        entries = random.choice((32, 64, 96, 128, 256, 384, 512, 1000))
        return entries * random.choice((4, 8, 16)), random.choice((8, 128, 256))
    return 8 * random.randint(1, 8), 8


def lifetime(random: Random, moments: int, holes: float) -> int:
    first = random.randrange(moments)
    last = min(moments - 1, first + random.choice((0, 0, 1, 1, 2, 3, moments)))
    live = (2 << last) - (1 << first)
    if random.random() < holes:
        live = live & random.getrandbits(moments) | 1 << random.randrange(moments)
    return live


def program(random: Random, regions: int = 0) -> list[Item]:
    moments, count = random.randint(2, 12), regions or random.randint(5, 60)
    holes = random.choice((0, 0, 0.2, 0.6))
    return [Item(f"r{n}", *region(random), lifetime(random, moments, holes)) for n in range(count)]


def nearness(pairs: list[tuple[int, int]]) -> dict[str, Any]:
    """Of (end, bound): how many are optimal or near, and how far the worst is."""
    over = [end / bound - 1 for end, bound in pairs]
    return {
        "optimal": sum(o == 0 for o in over),
        "within_1_percent": sum(o <= 0.01 for o in over),
        "within_2_percent": sum(o <= 0.02 for o in over),
        "worst_percent": round(100 * max(over), 4),
        "mean_percent": round(100 * statistics.mean(over), 4),
    }


def times(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median_ms": round(1000 * statistics.median(ordered), 2),
        "p90_ms": round(1000 * ordered[int(0.9 * len(ordered))], 2),
        "most_ms": round(1000 * ordered[-1], 2),
    }


def packed(
    programs: list[list[Item]], capacity: int | None
) -> tuple[list[Packing], dict[str, Any]]:
    results, spent = [], []
    for items in programs:
        begin = time.perf_counter()
        results.append(pack(items, capacity))
        spent.append(time.perf_counter() - begin)
    alone = [s for r, s in zip(results, spent, strict=True) if r.how == "first fit"]
    return results, {
        **nearness([(r.end, r.bound) for r in results]),
        "solver": sum(r.how == "solver" for r in results),
        "times": times(spent),
        "times_without_solver": times(alone),
    }


def one_process(seed: int) -> dict[str, Any]:
    begin = time.perf_counter()
    command = [sys.executable, "-c", ONE_PROCESS, str(ROOT), str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begin
    *how, end, bound = run.stdout.split()
    return {"wall_s": round(wall, 3), "how": " ".join(how), "end": int(end), "bound": int(bound)}


def whole_processes(count: int) -> dict[str, Any]:
    """120 regions each; those that needed the solver are what a plan can cost at most."""
    runs = [one_process(seed) for seed in range(count)]
    return {
        how: {
            "processes": len(walls),
            "median_s": round(statistics.median(walls), 3),
            "most_s": max(walls),
        }
        for how in ("first fit", "solver")
        if (walls := [r["wall_s"] for r in runs if r["how"] == how])
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/place.json")
    args = parser.parse_args()
    import ortools.sat.python.cp_model  # noqa: F401  its import is timed with whole processes

    random = Random(SEED)
    programs = [sorted(program(random), key=lambda i: i.name) for _ in range(args.programs)]
    results, least = packed(programs, None)
    orders = {
        name: nearness(
            [
                (packer.end_of(items, packer._around(sorted(items, key=order))), result.bound)
                for items, result in zip(programs, results, strict=True)
            ]
        )
        for name, order in packer.ORDERS.items()
    }
    best = max(orders, key=lambda name: (orders[name]["within_2_percent"], orders[name]["optimal"]))
    result = {
        **host(),
        "seed": SEED,
        "programs": args.programs,
        "packed": least,
        "packed_in_a_block": packed(programs, BLOCK)[1],
        "best_single_order": best,
        "single_orders": orders,
        "whole_processes_of_120_regions": whole_processes(args.processes),
    }
    table(result)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def table(result: dict[str, Any]) -> None:
    print(f"{result['programs']} programs        optimal  <= 1 %  <= 2 %   worst %  solver")
    rows = [("packed", result["packed"]), (f"capacity {BLOCK}", result["packed_in_a_block"])]
    rows += [(f"by {name}", values) for name, values in result["single_orders"].items()]
    for name, values in rows:
        near = [values[key] for key in ("optimal", "within_1_percent", "within_2_percent")]
        counts = "".join(f"{n:8}" for n in near)
        print(f"{name:20}{counts}{values['worst_percent']:10.4f}{values.get('solver', ''):>8}")
    for key in ("packed", "packed_in_a_block"):
        print(key, result[key]["times"], "without solver", result[key]["times_without_solver"])
    print("whole processes", result["whole_processes_of_120_regions"])


if __name__ == "__main__":
    sys.exit(main())

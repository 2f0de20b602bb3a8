"""How long `pipelink link` takes from existing objects, and which part of it is PipeLink's own.

    python bench/link.py [--rounds N]      in the build environment, after `scons`

Wall time of whole processes, start-up included, over every built kernel's manifest. What is not nvcc
and nvJitLink is the wall time less the time inside those two, measured in the same process.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.circumstances import host  # noqa: E402

INNER = """
import os, sys, time
from pipelink import cli, toolchain
spent = 0.0
def timed(function):
    def call(*arguments, **options):
        global spent
        begin = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent += time.perf_counter() - begin
    return call
toolchain._nvcc = timed(toolchain._nvcc)
toolchain.link = timed(toolchain.link)
code = cli.main(sys.argv[1:])
print(spent, flush=True)
os._exit(code)
"""


def one(manifest: Path, objects: Path, folder: Path) -> tuple[float, float]:
    """(wall seconds, seconds in nvcc and nvJitLink) of one link in a new process."""
    command = [sys.executable, "-c", INNER, "link", str(manifest), "--objects", str(objects)]
    begin = time.perf_counter()
    run = subprocess.run(
        [*command, "-o", str(folder / "k.cubin")], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return time.perf_counter() - begin, float(run.stdout.split()[-1])


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "least": round(min(values), 4),
        "most": round(max(values), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--objects", type=Path, default=ROOT / "build" / "sm_90a")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/link.json")
    args = parser.parse_args()
    rows = []
    for manifest in sorted((ROOT / "components").glob("*/*.kernel.toml")):
        with tempfile.TemporaryDirectory() as folder:
            times = [one(manifest, args.objects, Path(folder)) for _ in range(args.rounds + 1)][1:]
        rows.append(
            {
                "kernel": manifest.name.removesuffix(".kernel.toml"),
                "wall_s": summary([wall for wall, _ in times]),
                "own_s": summary([wall - tools for wall, tools in times]),
            }
        )
        print(rows[-1])
    result = {**host(), "rounds": args.rounds, "kernels": rows}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

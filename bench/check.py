"""How long `pipelink check` takes, and the reading of many contracts.

    python bench/check.py [--rounds N]      in the build environment, after `scons`

One: wall time of whole processes, start-up included, on a kernel of ten components in a line, each of
which hands stages to the next. Two: 1,000 objects read and their contracts checked in one process,
beside what pyelftools alone takes to find and return their notes, interleaved; objects are those of
build/, read from memory, so that both do the same work on the same bytes.
"""

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import msgspec  # noqa: E402
from elftools.elf.elffile import ELFFile  # noqa: E402
from elftools.elf.sections import NoteSection  # noqa: E402
from minimal_elf import CONTRACT, note, object_  # noqa: E402

from bench.circumstances import host  # noqa: E402
from pipelink import contract  # noqa: E402
from pipelink.abi import (  # noqa: E402
    Claim,
    Contract,
    Entry,
    Fact,
    Operation,
    Part,
    Port,
    Requirement,
)

COMPONENTS, OBJECTS = 10, 1000


def ring(name: str, direction: str) -> Port:
    part = Part("tile", "bf16", ("rows", "64"), 128)
    return Port(
        name, "shared", direction, stages="stages", by="each_warp", proxy="generic", parts=(part,)
    )


def stage(number: int) -> Contract:
    """The component at a place of the line."""
    first, last = number == 0, number == COMPONENTS - 1
    plays = [] if first else [Operation("wait", "in")]
    plays += [] if last else [Operation("acquire", "out"), Operation("commit", "out")]
    plays += [] if first else [Operation("release", "in")]
    ports = ([] if first else [ring("in", "in")]) + ([] if last else [ring("out", "out")])
    shared = "chooses" if first else "imports"
    entries = [Entry("run", "step", tuple(p.name for p in ports), (repeat(tuple(plays)),))]
    entries += [Entry("schedule", "schedule", ())] if first else []
    return Contract(
        f"stage{number}",
        f"team{number}",
        "1.0",
        "sm_90a",
        "ftz=0 div=1 sqrt=1 fma=1",
        (13, 5),
        facts=(
            Fact("stages", shared, (2, 3) if first else ()),
            Fact("rows", shared, (64, 128) if first else ()),
            Fact(f"bytes{number}", "derives", value="rows * 128 * stages"),
            Fact("steps", "imports"),
        ),
        requires=(Requirement("rows % 64 == 0", "rows come in whole swizzle groups"),),
        claims=(Claim("warps", "warps", "2"), Claim("own", "shared", "rows * 4")),
        ports=tuple(ports),
        entries=tuple(entries),
    )


def repeat(body: tuple[Operation, ...]) -> Operation:
    return Operation("repeat", count="steps", body=body)


def write_kernel(folder: Path) -> Path:
    lines = [
        'kernel = "line"',
        'target = "sm_90a"',
        'schedule = "s0.schedule"',
        "[facts]",
        "steps = 32",
    ]
    for number in range(COMPONENTS):
        data = object_(note(CONTRACT, msgspec.json.encode(stage(number))))
        (folder / f"stage{number}.o").write_bytes(data)
        lines += [f"[instances.s{number}]", f'object = "stage{number}.o"']
    for number in range(COMPONENTS):
        lines += ["[[roles]]", f'name = "r{number}"', f'steps = ["s{number}.run"]']
    for number in range(COMPONENTS - 1):
        lines += ["[[channels]]", f'from = "s{number}.out"', f'to = "s{number + 1}.in"']
    manifest = folder / "line.kernel.toml"
    manifest.write_text("\n".join([*lines, "[parameters]", ""]))
    return manifest


def checked(manifest: Path) -> float:
    begin = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "pipelink", "check", str(manifest)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return time.perf_counter() - begin


def notes_alone(data: bytes) -> list[bytes]:
    """The notes by pyelftools, and nothing else."""
    return [
        found["n_desc"]
        for section in ELFFile(io.BytesIO(data)).iter_sections()
        if isinstance(section, NoteSection) and section.name.startswith(".note.pipelink")
        for found in section.iter_notes()
    ]


def reading(rounds: int) -> dict[str, Any]:
    paths = sorted((ROOT / "build/sm_90a/components").glob("*/*.o"))
    objects = [(path, path.read_bytes()) for path in paths]
    work = [objects[n % len(objects)] for n in range(OBJECTS)]
    times: dict[str, list[float]] = {"pyelftools": [], "read_and_check": []}
    for _ in range(rounds + 1):
        for name, one in (
            ("pyelftools", lambda path, data: notes_alone(data)),
            ("read_and_check", lambda path, data: contract.component_of(data, path)),
        ):
            begin = time.perf_counter()
            for path, data in work:
                one(path, data)
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    return {
        "objects": OBJECTS,
        "pyelftools_s": round(medians["pyelftools"], 4),
        "read_and_check_s": round(medians["read_and_check"], 4),
        "ratio": round(medians["read_and_check"] / medians["pyelftools"], 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/check.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_kernel(Path(folder))
        walls = [checked(manifest) for _ in range(args.rounds + 1)][1:]
    result = {
        **host(),
        "rounds": args.rounds,
        "check": {
            "components": COMPONENTS,
            "wall_s": {
                "median": round(statistics.median(walls), 4),
                "least": round(min(walls), 4),
                "most": round(max(walls), 4),
            },
        },
        "reading": reading(args.rounds),
    }
    print(json.dumps({key: result[key] for key in ("check", "reading")}, indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

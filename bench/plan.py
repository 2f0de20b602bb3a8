"""Time of a plan: a kernel of 24 components and 120 claims, the whole process with its start.

    python bench/plan.py [FILE]

Six phases of two roles of two components each, five claims a component: shared memory of many sizes
and alignments, half of it during one entry, barriers, mbarriers, registers; rings, tiles and
registers handed from role to role.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests")]

from circumstances import host  # noqa: E402

ROUNDS = 15
PHASES, ROLES, STEPS = 6, 2, 2
LAYOUT = "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"
PORTS = [
    'element = "bf16", shape = [64, 64], space = "register", layout = "' + LAYOUT + '"',
    (
        'space = "shared", by = "step", proxy = "generic", parts = [{ name = "t", element = "bf16", '
        "shape = [64, 64], swizzle = 128 }]"
    ),
]


def contract(name: str, draw: random.Random, port: tuple[str, int] | None) -> str:
    """Five claims and at most one port."""
    lines = [f'component = "{name}"', f'owner = "team_{name}"', "claims = ["]
    for number in range(2):
        size = draw.choice([1, 2, 4, 8, 16]) * 1024 + draw.choice([0, 0, 40, 136])
        align = draw.choice([16, 128, 1024])
        during = ', during = ["run"]' if number else ""
        lines.append(
            f'  {{ name = "s{number}", kind = "shared", amount = {size}, align = {align}{during} }},'
        )
    lines += [
        '  { name = "b", kind = "barrier", amount = 128 },',
        '  { name = "warps", kind = "warps", amount = 4 },',
        f'  {{ name = "registers", kind = "registers", amount = {draw.choice([40, 96, 168])} }},',
        "]",
    ]
    if port:
        direction, kind = port
        lines.append(f'ports = [{{ name = "p", direction = "{direction}", {PORTS[kind]} }}]')
    arguments = ', arguments = ["p"]' if port else ""
    lines += [f'entries = [{{ name = "run", kind = "step"{arguments} }}]']
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    from literate import write as written

    draw = random.Random(1)
    manifest = ['kernel = "large"', 'target = "sm_90a"']
    phases, channels = [], []
    for phase in range(PHASES):
        names = [[f"c{phase}{role}{step}" for step in range(STEPS)] for role in range(ROLES)]
        kinds = (draw.randrange(2), draw.randrange(2))
        ports = {names[0][1]: ("out", kinds[0]), names[1][0]: ("in", kinds[1])}
        channels += [
            "[[channels]]",
            f'from = "{names[0][1]}.p"',
            f'to = "{names[1][0]}.p"',
            "stages = 2",
        ]
        for name in (n for own in names for n in own):
            written(f"{name}.contract.toml", contract(name, draw, ports.get(name)))
            manifest.append(f'instances.{name}.object = "{name}.o"')
        phases += ["[[phases]]", f'name = "p{phase}"', "[phases.roles]"]
        phases += [f"r{n} = {[f'{i}.run' for i in own]}" for n, own in enumerate(names)]
    text = "\n".join([*manifest, *phases, *channels, "[parameters]"])
    (folder / "large.kernel.toml").write_text(text + "\n")


def main(output: Path) -> None:
    import contextlib

    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        write(Path())
        command = [
            sys.executable,
            "-m",
            "pipelink",
            "plan",
            "large.kernel.toml",
            "-o",
            "large.json",
        ]
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            subprocess.run(command, check=True)
            times.append(time.perf_counter() - started)
        plan = json.loads(Path("large.json").read_text())
    claims = 5 * PHASES * ROLES * STEPS
    result = {
        **host(),
        "components": PHASES * ROLES * STEPS,
        "claims": claims,
        "regions": len(plan["regions"]),
        "shared_bytes": plan["shared_bytes"],
        "shared_bound": plan["shared_bound"],
        "median_s": round(statistics.median(times), 3),
        "most_s": round(max(times), 3),
    }
    print(json.dumps(result, indent=1))
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/results/plan.json")

"""The matrix of transfers: made here, run on the device.

    python bench/transfers.py make            compile and link every case into build/transfers
    python3 bench/transfers.py run [FILE]     on the device: every case against its reference, bit by bit
    ... run FILE --only TEXT                  the cases with this in their names
    python3 bench/transfers.py sanitize [FILE]   compute-sanitizer's tools over the matrix

The device needs torch and cuda-core, and nothing of the build.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import transfer_cases as t  # noqa: E402
import transfer_ends as ends  # noqa: E402

FOLDER = ROOT / "build" / "transfers"
TILES = 300  # more than two for a block of an H200
ROUNDS = 2


def _compiled(job: tuple[str, str]) -> str:
    """Compiles a component; what it says if it can't be."""
    from pipelink.cli import main

    name, text = job
    source, made = FOLDER / f"{name}.cu", FOLDER / f"{name}.o"
    if made.exists() and source.exists() and source.read_text() == text:
        return ""
    source.write_text(text)
    with contextlib.chdir(FOLDER):
        code = main(["compile", source.name, "-o", made.name, "--arch", "sm_90a"])
    return "" if code == 0 else f"{name} does not compile"


def _linked(case: t.Case) -> str:
    """Links a case and holds it against its control."""
    from pipelink import driver, verify

    with contextlib.chdir(FOLDER):
        path = Path(f"{ends.kernel_name(case)}.kernel.toml")
        path.write_text(ends.manifest(case))
        sources = driver.Sources(Path())
        try:
            kernel = driver.read(path, sources)
            output = Path(f"{ends.kernel_name(case)}.cubin")
            product, _ = driver.build(kernel, sources, output)
            driver.write_product(product, output, {".glue.cu": product.glue.encode()})
            if group(case) == "handed":
                _everyone(driver, product, sources)
            if case.name == t.kinds()["stored"].name:
                _planted(driver, product, sources)
            if "--verify" in sys.argv:
                comparison = verify.verify(kernel, product, output, Path(), lineinfo=False)
                if comparison.differences:
                    return f"{case.name} differs from its control"
        except Exception as error:
            return f"{case.name}: {error}"
    return ""


def group(case: t.Case) -> str:
    """How the threads of a case meet: what racecheck can follow of it."""
    if case.roles == 1:
        return "one role"
    every = (case.source, *case.sinks)
    if any(isinstance(e, t.Shared) and e.by == "each_warp" for e in every):
        return "a warp arrives by one thread"
    if any(isinstance(e, t.Shared) and e.by == "each_thread" for e in every):
        return "each thread arrives"
    return "handed"


def everyone(case: t.Case) -> Path:
    return FOLDER / f"{ends.kernel_name(case)}.everyone.cubin"


def _everyone(driver, product, sources) -> None:
    """The same kernel, but for one thing: each thread arrives where one of its warp did."""
    from pipelink.model import Hand

    plan, glue = product.plan, product.glue
    steps = [s for p in plan.phases for r in p.roles for s in r.steps if isinstance(s, Hand)]
    for step in steps:
        for m in plan.mbarriers:
            if m.offset != step.mbarrier or step.act not in ("commit", "release"):
                continue
            for n in range(m.count):
                old = f"pipelink_mbarrier_init({m.offset + 8 * n}, {m.arrivals});"
                glue = glue.replace(
                    old, f"pipelink_mbarrier_init({m.offset + 8 * n}, {32 * m.arrivals});"
                )
    glue = glue.replace("pipelink::hand_over(", "each_hands_over(")
    glue = glue.replace('extern "C" __global__', EACH + 'extern "C" __global__')
    output = Path(f"{plan.kernel}.everyone.cubin")
    linked = driver.link(plan, sources, driver.compile_glue(plan, glue, output))
    driver.write_product(linked, output, {})


# Faults planted in the glue of one case: the matrix must see each.
PLANTED = {
    "another address": ("base0 ^ 64", "base0 ^ 32"),
    "a store left out": (
        "pipelink::stmatrix_x4(base0 + 1024,",
        "if (index < 0) pipelink::stmatrix_x4(base0 + 1024,",
    ),
    "a value twice": (
        "source__out__bf16[8], source__out[16]",
        "source__out__bf16[8], source__out[15]",
    ),
}


def planted(name: str) -> Path:
    return FOLDER / f"planted_{name.replace(' ', '_')}.cubin"


def _planted(driver, product, sources) -> None:
    for name, (old, new) in PLANTED.items():
        glue = product.glue.replace(old, new)
        assert glue != product.glue, f"nothing to plant '{name}' in"
        output = Path(planted(name).name)
        linked = driver.link(product.plan, sources, driver.compile_glue(product.plan, glue, output))
        driver.write_product(linked, output, {})


EACH = """\
__device__ __forceinline__ void each_hands_over(pipelink::Self self, std::uint64_t slot,
                                                std::uint32_t mbarrier, pipelink::RingState& state,
                                                unsigned stages) {
    pipelink_arrive(self, slot, state.stage, pipelink::stage_barrier(mbarrier, state));
    pipelink::next_stage(state, stages);
}

"""


def _program() -> str:
    """The program of three phases of the tests."""
    from pipelink.cli import main

    with contextlib.chdir(ROOT):
        for name in ("loader", "scaler", "store", "sums"):
            source = f"tests/kernels/phases/{name}.cu"
            made = FOLDER / f"tests/kernels/phases/{name}.o"
            made.parent.mkdir(parents=True, exist_ok=True)
            if main(["compile", source, "-o", str(made), "--arch", "sm_90a"]):
                return f"{source} does not compile"
        arguments = ["link", "tests/kernels/phases.kernel.toml", "--objects", str(FOLDER)]
        code = main([*arguments, "-o", str(FOLDER / "phases.cubin")])
    return "" if code == 0 else "phases does not link"


def make() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = t.cases()
    sources: dict[str, str] = {}
    for case in cases:
        sources |= ends.components(case)
    started = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        faults = [f for f in pool.map(_compiled, sources.items(), chunksize=4) if f]
        print(f"{len(sources)} components in {time.monotonic() - started:.0f} s")
        faults += [f for f in pool.map(_linked, cases, chunksize=4) if f]
    faults += filter(None, [_program()])
    print(f"{len(cases)} cases, {len(faults)} faults, {time.monotonic() - started:.0f} s")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


# --- On the device


def run(output: Path) -> int:
    import torch
    from circumstances import circumstances

    import pipelink

    torch.manual_seed(time.time_ns() % (1 << 31))
    seed = torch.initial_seed()
    rows = []
    for case, path in chosen():
        rows.append({"case": case.name, "outcome": _outcome(torch, pipelink, case, path)})
        if rows[-1]["outcome"] != "right":
            print(rows[-1], flush=True)
    seen = {}
    if "--group" not in sys.argv:
        for name in PLANTED:
            seen[name] = _outcome(torch, pipelink, t.kinds()["stored"], planted(name))
            print(f"planted {name}: {seen[name]}")
        rows.append({"case": "phases", "outcome": _phases_outcome(torch, pipelink)})
        print(rows[-1])
    right = sum(row["outcome"] == "right" for row in rows)
    print(f"{right} of {len(rows)} cases are right, bit by bit, in {ROUNDS} rounds of fresh inputs")
    result = {
        **circumstances(),
        "seed": seed,
        "tiles": TILES,
        "rounds": ROUNDS,
        "planted": seen,
        "cases": rows,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if right == len(rows) and "right" not in seen.values() else 1


def chosen() -> list[tuple[t.Case, Path]]:
    """The cases that the arguments name, with their cubins."""
    cases = t.cases()
    if "--only" in sys.argv:
        cases = [c for c in cases if sys.argv[sys.argv.index("--only") + 1] in c.name]
    if "--group" in sys.argv:
        name = sys.argv[sys.argv.index("--group") + 1]
        if name == "everyone":
            return [(c, everyone(c)) for c in cases if group(c) == "handed"]
        cases = [c for c in cases if group(c) == name]
    return [(c, FOLDER / f"{ends.kernel_name(c)}.cubin") for c in cases]


def _phases_outcome(torch, pipelink) -> str:
    """The program of three phases against float64; its products are rounded once."""
    kernel = pipelink.load(str(FOLDER / "phases.cubin"))
    for rows in (64, 1000, 64 * 300 + 17):
        x = torch.randn(rows, 64, device="cuda").bfloat16()
        weights = torch.randn(64, device="cuda")
        y = torch.full((rows, 64), float("nan"), device="cuda", dtype=torch.bfloat16)
        total = torch.full((16,), float("nan"), device="cuda")
        kernel(x, weights, y, total)
        wanted = (x.float() * (weights * weights)).bfloat16()
        error = (total.double() - weights.double().sum()).abs().max().item()
        if not torch.equal(y, wanted) or not error < 1e-4:
            return f"{int((y != wanted).sum())} of {y.numel()} wrong with {rows} rows, sum off by {error}"
    return "right"


RACES = ("one role", "each thread arrives", "everyone", "handed", "a warp arrives by one thread")


def sanitize(output: Path) -> int:
    """memcheck and synccheck over all, racecheck by how threads meet."""
    from circumstances import circumstances

    found = {}
    for tool, name in [("memcheck", ""), ("synccheck", ""), *(("racecheck", g) for g in RACES)]:
        selected = ["--group", name] if name else []
        command = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", sys.executable]
        command += [__file__, "run", os.devnull, *selected]
        said = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        lines = [row.removeprefix("========= ") for row in said.stdout.splitlines()]
        summary = [row for row in lines if "SUMMARY" in row or "are right" in row]
        kernels = {m[1] for row in lines if (m := re.search(r"access at (\w+)\+", row))}
        found[f"{tool} {name}".strip()] = {"summary": summary, "kernels": sorted(kernels)}
        print(f"{tool:10} {name:30} {'; '.join(summary)}; {len(kernels)} kernels named", flush=True)
    output.write_text(
        json.dumps({"circumstances": circumstances(), "found": found}, indent=1) + "\n"
    )
    return 0


def _outcome(torch, pipelink, case: t.Case, path: Path) -> str:
    kernel = pipelink.load(str(path))
    for _ in range(ROUNDS):
        x = _input(torch, case)
        outputs = [
            torch.full(
                (TILES * case.rows, case.columns),
                0xA5,
                dtype=_raw(torch, case.out_element),
                device="cuda",
            )
            for _ in case.sinks
        ]
        passed = [y.view(_type(torch, case.out_element)) for y in outputs]
        kernel(x, *passed)
        torch.cuda.synchronize()
        wanted = _reference(torch, x, case)
        for number, (sink, y) in enumerate(zip(case.sinks, outputs, strict=True)):
            want = _lying(torch, wanted, sink, case)
            if not torch.equal(y, want):
                wrong = int((y != want).sum())
                poison = int((y == torch.full_like(y, 0xA5)).sum())
                return f"output {number}: {wrong} of {y.numel()} wrong, {poison} as poisoned"
    return "right"


_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i32": "int32",
    "i8": "int8",
    "u8": "uint8",
    "i64": "int64",
}


def _type(torch, element: str):
    return getattr(torch, _TYPES[element])


def _raw(torch, element: str):
    """Integers of the same bits: values are compared as they are, whatever they mean."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.BYTES[element]]


def _input(torch, case: t.Case):
    """Any bits where they are moved; numbers of many sizes where they are converted."""
    shape = (TILES * case.rows, case.columns)
    if not case.target:
        bits = torch.randint(
            0, 256, (*shape, t.BYTES[case.element]), dtype=torch.uint8, device="cuda"
        )
        return bits.view(_type(torch, case.element)).reshape(shape)
    values = torch.randn(shape, device="cuda") * torch.exp2(
        torch.randint(-14, 10, shape, device="cuda").float()
    )
    values[::7] = torch.round(values[::7])
    values.view(-1)[::101] = 0.0
    values.view(-1)[1::101] = -0.0
    return _narrowed(torch, values, case.element)


def _narrowed(torch, values, element: str):
    """To nearest even; to fp8 what is too large becomes the largest finite value."""
    most = {"e4m3": 448.0, "e5m2": 57344.0}.get(element)
    if most is not None:
        values = values.clamp(-most, most)
    return values.to(_type(torch, element))


def _reference(torch, x, case: t.Case):
    if not case.target:
        return x.view(_raw(torch, case.element))
    values = x.float()
    if case.rounding == "toward_zero":
        return _toward_zero(torch, values, case.target)
    return _narrowed(torch, values, case.target).view(_raw(torch, case.target))


def _toward_zero(torch, values, element: str):
    """The nearest, or its neighbour towards zero where that is farther out than the value."""
    near = values.to(_type(torch, element))
    bits = near.view(torch.int16)
    out = near.float().abs() > values.abs()
    return torch.where(out, bits - 1, bits)


def _lying(torch, wanted, sink, case: t.Case):
    """What a bulk copy writes is the tile's image; all else is row-major."""
    if not isinstance(sink, t.Shared) or sink.proxy != "async":
        return wanted
    order = torch.tensor(ends.image(sink, case), device="cuda")
    return wanted.reshape(TILES, -1)[:, order].reshape(wanted.shape)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    if sys.argv[1:2] == ["make"]:
        sys.exit(make())
    what, given = sys.argv[1], sys.argv[2:3]
    results = {"run": "transfers.json", "sanitize": "sanitizer.json"}
    target = Path(given[0]) if given else ROOT / "bench/results" / results[what]
    sys.exit(run(target) if what == "run" else sanitize(target))

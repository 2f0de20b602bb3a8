"""The matrix of transfers: made here, run on the device.

    python bench/transfers.py make            compile and link every case into build/transfers
    python3 bench/transfers.py run [FILE]     on the device: every case against its reference, bit by bit
    ... run FILE --only TEXT                  the cases with this in their names

The device needs torch and cuda-core, and nothing of the build.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import transfer_cases as t  # noqa: E402

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
        path = Path(f"{t.kernel_name(case)}.kernel.toml")
        path.write_text(t.manifest(case))
        sources = driver.Sources(Path())
        try:
            kernel = driver.read(path, sources)
            output = Path(f"{t.kernel_name(case)}.cubin")
            product, _ = driver.build(kernel, sources, output)
            driver.write_product(product, output, {".glue.cu": product.glue.encode()})
            if "--verify" in sys.argv:
                comparison = verify.verify(kernel, product, output, Path(), lineinfo=False)
                if comparison.differences:
                    return f"{case.name} differs from its control"
        except Exception as error:
            return f"{case.name}: {error}"
    return ""


def make() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = t.cases()
    sources: dict[str, str] = {}
    for case in cases:
        sources |= t.components(case)
    started = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        faults = [f for f in pool.map(_compiled, sources.items(), chunksize=4) if f]
        print(f"{len(sources)} components in {time.monotonic() - started:.0f} s")
        faults += [f for f in pool.map(_linked, cases, chunksize=4) if f]
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
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    for case in (c for c in t.cases() if only in c.name):
        path = FOLDER / f"{t.kernel_name(case)}.cubin"
        rows.append({"case": case.name, "outcome": _outcome(torch, pipelink, case, path)})
        if rows[-1]["outcome"] != "right":
            print(rows[-1], flush=True)
    right = sum(row["outcome"] == "right" for row in rows)
    print(f"{right} of {len(rows)} cases are right, bit by bit, in {ROUNDS} rounds of fresh inputs")
    result = {
        "circumstances": circumstances(),
        "seed": seed,
        "tiles": TILES,
        "rounds": ROUNDS,
        "cases": rows,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if right == len(rows) else 1


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
    order = torch.tensor(t.image(sink, case), device="cuda")
    return wanted.reshape(TILES, -1)[:, order].reshape(wanted.shape)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    if sys.argv[1:2] == ["make"]:
        sys.exit(make())
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "bench/results/transfers.json"
    sys.exit(run(target))

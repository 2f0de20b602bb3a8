"""The device check: every built kernel against its reference, on the GPU of this machine.

    python3 bench/gpu_check.py [--time] [CUBIN ...]       all of build/*/*/*.cubin if none is named

It needs Python 3.11, torch and cuda-core, no git and nothing of the build. Each kernel runs in a
process of its own with a time limit, so that one that hangs or faults takes no other with it.
Outputs are filled with NaN first and lie between guards of NaN: an element that the kernel leaves
out, or writes outside, is counted, not averaged away.

Exit code: 0 all right, 1 a kernel is wrong or there is none, 2 usage, 3 no GPU or no torch here.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

try:
    import torch
except ImportError:
    print("gpu_check: torch is not installed here", file=sys.stderr)
    raise SystemExit(3) from None

import pipelink  # noqa: E402
from bench.circumstances import circumstances  # noqa: E402
from components.case import Case  # noqa: E402
from pipelink.launch import LoadError, Metadata, check_device, read_metadata  # noqa: E402

RESULTS = "bench/results/gpu_check.json"
LIMIT = 1e-2  # relative error in the Frobenius norm
SEED = 20
GUARD_ROWS = 256  # more than a tile: a kernel that ignores a ragged edge writes a tile too far
PIECE = 512  # rows of the reference at a time, for memory
ROUNDS, BATCH = 21, 5
TORCH = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "i32": torch.int32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


# --- One kernel, in a process of its own ------------------------------------------------------


def find_case(cubin: Path, metadata: Metadata) -> Case:
    manifest = json.loads(cubin.with_suffix(".json").read_text()).get("manifest")
    if not manifest:
        raise SystemExit(f"{cubin.stem}: its launch metadata names no manifest")
    source = (ROOT / manifest).parent / "reference.py"
    if not source.is_file():
        raise SystemExit(f"{cubin.stem}: there is no reference.py beside {manifest}")
    spec = importlib.util.spec_from_file_location("reference", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = {a.name for a in metadata.arguments}
    cases: tuple[Case, ...] = module.cases()
    for case in cases:
        if set(case.arguments) == names:
            return case
    where = source.relative_to(ROOT)
    raise SystemExit(f"{cubin.stem}: {where} has no case for ({', '.join(sorted(names))})")


class Arguments:
    """The inputs of one launch, and its outputs between their guards."""

    def __init__(self, metadata: Metadata, case: Case, extents: Mapping[str, int]) -> None:
        generator = torch.Generator("cuda").manual_seed(SEED)
        self.inputs: dict[str, torch.Tensor] = {}
        self.outputs: dict[str, torch.Tensor] = {}
        self.guarded: dict[str, torch.Tensor] = {}
        self.sliced: set[str] = set()
        self.added: set[str] = set()
        shapes = {
            a.name: tuple(n if isinstance(n, int) else extents[n] for n in a.shape)
            for a in metadata.arguments
        }
        read = {a.name: TORCH[a.element] for a in metadata.arguments if a.access == "read"}
        made = case.inputs({name: shapes[name] for name in read}, extents, generator)
        self.inputs = {name: value.to(read[name]) for name, value in made.items()}
        for argument in metadata.arguments:
            shape, element = shapes[argument.name], TORCH[argument.element]
            if argument.shape[0] == case.pieces:
                self.sliced.add(argument.name)
            if argument.access != "read":
                guarded = torch.empty(
                    (shape[0] + 2 * GUARD_ROWS, *shape[1:]), dtype=element, device="cuda"
                )
                self.guarded[argument.name] = guarded
                self.outputs[argument.name] = guarded[GUARD_ROWS : GUARD_ROWS + shape[0]]
            if argument.access == "update":
                self.added.add(argument.name)

    def poison(self) -> None:
        """NaN everywhere; zeros where the kernel adds to what is there."""
        for name, guarded in self.guarded.items():
            guarded.fill_(float("nan"))
            if name in self.added:
                self.outputs[name].zero_()

    def all(self) -> dict[str, torch.Tensor]:
        return self.inputs | self.outputs

    def piece(self, start: int) -> dict[str, torch.Tensor]:
        return {
            name: value[start : start + PIECE] if name in self.sliced else value
            for name, value in self.inputs.items()
        }


def outside(guarded: torch.Tensor) -> int:
    """Elements of the guards that the kernel wrote."""
    return sum(
        int((~guard.isnan()).sum()) for guard in (guarded[:GUARD_ROWS], guarded[-GUARD_ROWS:])
    )


def errors(case: Case, arguments: Arguments, rows: int) -> dict[str, float]:
    """Each output's relative error ||out - ref|| / ||ref||, the sums in float64."""
    sums = {name: [0.0, 0.0] for name in arguments.outputs}
    piece = PIECE if case.pieces else rows
    for start in range(0, rows, piece):
        inputs = arguments.piece(start) if case.pieces else arguments.inputs
        for name, wanted in case.outputs(inputs).items():
            out = arguments.outputs[name]
            came = (out[start : start + piece] if case.pieces else out).float()
            sums[name][0] += float((came - wanted.reshape(came.shape)).double().square().sum())
            sums[name][1] += float(wanted.double().square().sum())
    return {name: (off / whole) ** 0.5 for name, (off, whole) in sums.items()}


def verdict(case: Case, arguments: Arguments, rows: int) -> dict[str, Any]:
    relative = errors(case, arguments, rows)
    unwritten = sum(int(out.isnan().sum()) for out in arguments.outputs.values())
    stray = sum(outside(guarded) for guarded in arguments.guarded.values())
    # A NaN fails the comparison as well.
    right = all(error < LIMIT for error in relative.values()) and not unwritten and not stray
    return {"errors": relative, "unwritten": unwritten, "outside": stray, "passed": right}


def medians(functions: list[Callable[[], None]]) -> list[float]:
    """Milliseconds a call, taken in turns, so that clocks and heat weigh on all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        for _ in range(3):
            function()
    for _ in range(ROUNDS):
        for function, taken in zip(functions, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(BATCH):
                function()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) / BATCH)
    return [statistics.median(taken) for taken in times]


def timed(kernel: Any, case: Case, arguments: Arguments) -> dict[str, float]:
    values = arguments.all()
    ms, baseline = medians([lambda: kernel(**values), case.baseline(arguments.inputs)])
    operations = case.operations(arguments.inputs)
    return {
        "ms": ms,
        "tflops": operations / ms / 1e9,
        "baseline_ms": baseline,
        "baseline_tflops": operations / baseline / 1e9,
    }


def within(metadata: Metadata, every: tuple[Mapping[str, int], ...]) -> list[Mapping[str, int]]:
    """Those extents that the kernel takes."""
    known = {n for a in metadata.arguments for n in a.shape if isinstance(n, str)}
    bounds = {name: metadata.bounds(name) for name in known}
    return [
        extents
        for extents in every
        if all(bounds[name][0] <= extents[name] <= bounds[name][1] for name in known)
    ]


def check_one(cubin: Path, timing: bool) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = False
    kernel = pipelink.load(cubin)
    case = find_case(cubin, kernel.metadata)
    facts = json.loads(cubin.with_suffix(".json").read_text())["facts"]
    runs = []
    for extents in within(kernel.metadata, case.extents(facts)):
        arguments = Arguments(kernel.metadata, case, extents)
        arguments.poison()
        kernel(**arguments.all())
        torch.cuda.synchronize()
        rows = extents[case.pieces] if case.pieces else 1
        run = {"extents": dict(extents), **verdict(case, arguments, rows)}
        if timing and run["passed"]:
            arguments.poison()
            run |= timed(kernel, case, arguments)
            # Launches back to back are where a race or a state left behind shows.
            run |= verdict(case, arguments, rows)
        runs.append(run)
    passed = all(run["passed"] for run in runs)
    return {"runs": runs, "baseline": case.baseline_name, "passed": passed}


# --- All of them ------------------------------------------------------------------------------


def supervise(cubin: Path, timing: bool, limit: float) -> dict[str, Any]:
    """The result of `check_one` in a child, or the fault that ended it."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, str(cubin), "--child", str(answer)]
        child = subprocess.Popen(
            command + ["--time"] * timing, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            _, said = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            abandon(child)
            return {"runs": [], "passed": False, "fault": f"hung: not done after {limit:g} s"}
        if child.returncode or not answer.is_file():
            last = (said.strip().splitlines() or [f"ended with {child.returncode}"])[-1]
            return {"runs": [], "passed": False, "fault": last.replace(f"{ROOT}/", "")}
        return dict(json.loads(answer.read_text()))


def abandon(child: "subprocess.Popen[str]") -> None:
    # A process that waits in the driver may not die at once, and the check must end all the same.
    child.kill()
    try:
        child.wait(timeout=30)
    except subprocess.TimeoutExpired:
        print(f"process {child.pid} does not end", file=sys.stderr)


def inspect(cubin: Path, timing: bool, limit: float) -> dict[str, Any] | None:
    """A kernel's entry in the result file; None for one that is built for another device."""
    beside = cubin.with_suffix(".json")
    try:
        metadata = read_metadata(beside.read_text(), str(beside))
    except (LoadError, OSError) as error:
        fault = {"passed": False, "fault": str(error).replace(f"{ROOT}/", ""), "runs": []}
        return {"kernel": cubin.stem, "cubin": named(cubin), **fault}
    try:
        # Only the arch: a driver too old is a fault of this machine, which the child reports.
        check_device(
            metadata,
            torch.cuda.get_device_capability(),
            metadata.minimum_driver,
            torch.cuda.get_device_properties(0).shared_memory_per_block_optin,
        )
    except LoadError as error:
        print(f"not run: {error}")
        return None
    identity = {"kernel": metadata.kernel, "arch": metadata.arch, "cubin": named(cubin)}
    return {
        **identity,
        "cubin_sha256": metadata.cubin_sha256,
        **supervise(cubin, timing, limit),
    }


def named(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def table(kernels: list[dict[str, Any]]) -> str:
    lines = [f"{'kernel':<16}{'extents':<12}{'error':>10}{'ms':>10}{'TFLOP/s':>9}{'torch':>9}"]
    for kernel in kernels:
        if kernel.get("fault"):
            lines.append(f"{kernel['kernel']:<16}{kernel['fault']}")
        for run in kernel["runs"]:
            extents = " ".join(f"{name}={n}" for name, n in run["extents"].items())
            line = f"{kernel['kernel']:<16}{extents:<12}{max(run['errors'].values()):>10.2e}"
            if "ms" in run:
                line += f"{run['ms']:>10.4f}{run['tflops']:>9.0f}{run['baseline_tflops']:>9.0f}"
            if not run["passed"]:
                line += f"  WRONG: {run['unwritten']} unwritten, {run['outside']} written outside"
            lines.append(line)
    return "\n".join(lines)


def write(path: Path, data: dict[str, Any]) -> None:
    # NaN is no JSON, and a wrong kernel's error may well be NaN.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(finite(data), indent=1, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check.py", description="the device check")
    parser.add_argument("cubin", nargs="*", type=Path, help="default: build/*/*/*.cubin")
    parser.add_argument("--time", action="store_true", help="time each kernel and torch in turns")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a kernel may take")
    parser.add_argument("--output", type=Path, default=ROOT / RESULTS, help="the result file")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    if chosen.child:
        write(chosen.child, check_one(chosen.cubin[0], chosen.time))
        return 0
    if not torch.cuda.is_available():
        print("gpu_check: torch sees no CUDA device here", file=sys.stderr)
        return 3
    # The control and other cubins beside a kernel have no launch metadata and are no kernels.
    built = [c for c in sorted(ROOT.glob("build/*/*/*.cubin")) if c.with_suffix(".json").is_file()]
    cubins = [path.resolve() for path in chosen.cubin] or built
    found = (inspect(cubin, chosen.time, chosen.timeout) for cubin in cubins)
    kernels = [kernel for kernel in found if kernel is not None]
    if not kernels:
        print("gpu_check: no kernel is built for this device; run scons first", file=sys.stderr)
        return 1
    passed = all(kernel["passed"] for kernel in kernels)
    write(
        chosen.output,
        {**circumstances(), "limit": LIMIT, "seed": SEED, "passed": passed, "kernels": kernels},
    )
    print(table(kernels))
    wrong = sum(not kernel["passed"] for kernel in kernels)
    print(f"{len(kernels)} kernels, {wrong} wrong; written to {named(chosen.output.resolve())}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

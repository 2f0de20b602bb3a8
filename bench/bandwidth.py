"""Generated transfers beside hand-written CUDA that does the same, and beside shared memory's limit.

    python bench/bandwidth.py make            compile and link all into build/bandwidth
    python3 bench/bandwidth.py run [FILE]     on the device: check, then time in interleaved pairs

The device needs torch and cuda-core, and nothing of the build. The hand-written kernels are in
bench/bandwidth_hand.cu; both sides have the steps of bench/bandwidth_ends.py, are launched with the
same grid, threads and shared bytes, and must give the same sums. A ratio is hand-written / linked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import bandwidth_ends as ends  # noqa: E402

FOLDER = ROOT / "build" / "bandwidth"
BLOCKS = (1, 4)  # blocks an SM: latency, and what several hide of it
CHECKED = 40  # tiles a block whose sums are compared
ROUNDS, LAUNCHES, WANTED_MS = 15, 2, 1.5
LEAST = 0.95
LIMIT = 128  # bytes a clock that an SM's shared memory moves


def _compile(name: str, text: str) -> None:
    from pipelink.cli import main

    source, made = Path(f"{name}.cu"), Path(f"{name}.o")
    source.write_text(text)
    if main(["compile", source.name, "-o", made.name, "--arch", "sm_90a"]):
        raise SystemExit(f"{name} does not compile")


def _link(kind: ends.Kind, blocks: int) -> dict[str, object]:
    """Links a kind; its launch metadata."""
    from pipelink import driver

    name = ends.kernel_name(kind, blocks)
    path, output = Path(f"{name}.kernel.toml"), Path(f"{name}.cubin")
    path.write_text(ends.manifest(kind, blocks))
    kernel = driver.read(path, driver.Sources(Path()))
    product, _ = driver.build(kernel, driver.Sources(Path()), output)
    driver.write_product(product, output, {".glue.cu": product.glue.encode()})
    return json.loads(output.with_suffix(".json").read_text())


def _hand(blocks: int) -> bytes:
    """The cubin of all hand-written kernels."""
    from pipelink import toolchain

    output = Path(f"hand{blocks}.cubin")
    toolchain.compile_control(
        ROOT / "bench/bandwidth_hand.cu",
        output,
        toolchain.CompileOptions("sm_90a", include=(".",), define=()),
    )
    return output.read_bytes()


def make() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    sources: dict[str, str] = {}
    for kind in ends.kinds():
        sources |= ends.components(kind)
    with contextlib.chdir(FOLDER):
        Path("steps.cuh").write_text(ends.STEPS)
        for name, text in sources.items():
            _compile(name, text)
        for blocks in BLOCKS:
            Path("blocks.cuh").write_text(f"#define BLOCKS {blocks}\n")
            cubin = _hand(blocks)
            for kind in ends.kinds():
                _pair(kind, blocks, cubin)
    return 0


def _pair(kind: ends.Kind, blocks: int, cubin: bytes) -> None:
    """Links a kind, and gives the hand-written one the same launch."""
    launch = _link(kind, blocks)
    launch |= {"entry": f"hand_{kind.name}", "cubin_sha256": hashlib.sha256(cubin).hexdigest()}
    beside = Path(f"h{ends.kernel_name(kind, blocks)}.cubin")
    beside.write_bytes(cubin)
    beside.with_suffix(".json").write_text(json.dumps(launch, indent=1) + "\n")


# --- On the device


class Pair:
    """A kind's two kernels, ready to be called."""

    def __init__(self, kind: ends.Kind, blocks: int) -> None:
        import torch

        import pipelink

        self.kind, self.blocks = kind, blocks
        name = ends.kernel_name(kind, blocks)
        self.kernels = [pipelink.load(FOLDER / f"{n}.cubin") for n in (name, f"h{name}")]
        launches = [json.loads((FOLDER / f"{n}.json").read_text()) for n in (name, f"h{name}")]
        self.digests = [launch["cubin_sha256"] for launch in launches]
        self.processors = torch.cuda.get_device_properties(0).multi_processor_count
        self.x = torch.randn(1024, 64, device="cuda").to(torch.bfloat16)

    def arguments(self, tiles: int, checked: int) -> list:
        """For `tiles` tiles a block, of which the sums of `checked` are kept."""
        import torch

        grid = self.processors * self.blocks
        t = torch.zeros(tiles * grid, dtype=torch.uint8, device="cuda")
        shape = (max(1, checked * grid), 128)
        ys = [torch.full(shape, -1, dtype=torch.int32, device="cuda") for _ in self.kind.sinks]
        return [t, *([self.x] if self.kind.name == "tma" else []), *ys]

    def fault(self) -> str:
        """What is wrong, with fresh sums of both; empty if they are the same."""
        import torch

        sums = []
        for kernel in self.kernels:
            arguments = self.arguments(CHECKED, CHECKED)
            kernel(*arguments)
            torch.cuda.synchronize()
            sums.append(arguments[-len(self.kind.sinks) :])
        for glue, hand in zip(*sums, strict=True):
            if not torch.equal(glue, hand):
                return f"{int((glue != hand).sum())} of {hand.numel()} sums differ"
            if int((hand == -1).sum()) > 2 or len(hand.unique()) < 1000:
                return "sums are missing"
        return ""

    def tiles(self) -> int:
        """Tiles a block for a launch of about `WANTED_MS`."""
        tiles = 500
        arguments = self.arguments(tiles, 0)
        timed(self.kernels[0], arguments, 1)
        took = timed(self.kernels[0], arguments, 1)
        return max(100, int(tiles * WANTED_MS / took))


def timed(kernel, arguments: list, launches: int) -> float:
    """Milliseconds a launch."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(launches):
        kernel(*arguments)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / launches


def measure(pair: Pair, megahertz: float) -> dict[str, object]:
    tiles = pair.tiles()
    arguments = pair.arguments(tiles, 0)
    times: list[list[float]] = [[], []]
    for round_ in range(ROUNDS + 2):
        for which in (0, 1) if round_ % 2 else (1, 0):
            took = timed(pair.kernels[which], arguments, LAUNCHES)
            if round_ >= 2:
                times[which].append(took * 1e3)
    glue, hand = (statistics.median(t) for t in times)
    rate = pair.kind.moved * tiles * pair.blocks / (glue * megahertz)  # bytes a clock an SM
    return {
        "kind": pair.kind.name,
        "blocks_per_sm": pair.blocks,
        "tiles_per_block": tiles,
        "glue_us": glue,
        "hand_us": hand,
        "ratio": hand / glue,
        "ratio_spread": _spread(times),
        "ns_per_tile": glue * 1e3 / tiles,
        "share_of_limit": rate / LIMIT,
        "cubins": pair.digests,
    }


def _spread(times: list[list[float]]) -> list[float]:
    """The least and the largest ratio of a round."""
    ratios = [hand / glue for glue, hand in zip(*times, strict=True)]
    return [min(ratios), max(ratios)]


def clock(pair: Pair) -> float:
    """The SM's clock in MHz, read while a kernel runs."""
    import torch

    arguments = pair.arguments(pair.tiles(), 0)
    for _ in range(1000):
        pair.kernels[0](*arguments)
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    torch.cuda.synchronize()
    return float(said.split()[0])


def run(output: Path) -> int:
    from circumstances import circumstances

    pairs = [Pair(kind, blocks) for blocks in BLOCKS for kind in ends.kinds()]
    faults = {f"{p.kind.name} {p.blocks}": said for p in pairs if (said := p.fault())}
    for name, said in faults.items():
        print(f"{name}: {said}", flush=True)
    megahertz = clock(pairs[-1])
    print(
        f"SM clock {megahertz:.0f} MHz\n{'kind':10} blocks   glue us   hand us  ratio  of 128 B/clk"
    )
    rows = []
    for pair in pairs:
        row = measure(pair, megahertz)
        rows.append(row)
        share = f"{row['share_of_limit']:8.1%}" if pair.kind.moved else "       -"
        print(
            f"{row['kind']:10} {row['blocks_per_sm']:6} {row['glue_us']:9.1f} {row['hand_us']:9.1f} "
            f"{row['ratio']:6.3f} {share}{'  slow' if row['ratio'] < LEAST else ''}",
            flush=True,
        )
    result = {
        **circumstances(),
        "rounds": ROUNDS,
        "sm_mhz": megahertz,
        "faults": faults,
        "rows": rows,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        sys.exit(make())
    sys.exit(run(Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "bench/results/bandwidth.json"))

"""The loader where it is used: the ffn variants called as people call them, on this machine's GPUs.

    python3 bench/loader.py [--output FILE]

Each check compares with float32, outputs filled with NaN first. Bad calls must be refused in the
exact words. Last, the host time of a launch beside a torch operator's. Needs torch and cuda-core.

All arguments of the ffn kernel are bf16, and it updates none: the array interface, which has no
bf16, is taken as far as the refusal of another type, and no launch has an argument to update.

Exit code: 0 all right, 1 a check failed.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import pipelink  # noqa: E402
from bench.circumstances import circumstances  # noqa: E402
from bench.ffn import HIDDEN, INTERMEDIATE, variants  # noqa: E402

LIMIT = 1e-2
DEVICES = torch.cuda.device_count()


class Data:
    """The weights on each device, and what a right result is."""

    def __init__(self) -> None:
        generator = torch.Generator("cuda:0").manual_seed(3)
        shape = (INTERMEDIATE, HIDDEN)
        both = [
            (torch.randn(shape, generator=generator, device="cuda:0") / HIDDEN**0.5).bfloat16()
            for _ in range(2)
        ]
        self.weights = {n: [w.to(f"cuda:{n}") for w in both] for n in range(DEVICES)}

    def x(self, m: int, device: int = 0) -> torch.Tensor:
        return torch.randn((m, HIDDEN), device=f"cuda:{device}").bfloat16()

    def out(self, m: int, device: int = 0) -> torch.Tensor:
        return torch.full(
            (m, INTERMEDIATE), float("nan"), device=f"cuda:{device}", dtype=torch.bfloat16
        )

    def call(self, kernel: Any, x: torch.Tensor, out: torch.Tensor, **more: Any) -> None:
        kernel(x, *self.weights[x.device.index], out, **more)

    def right(self, x: torch.Tensor, out: torch.Tensor) -> None:
        gate, up = (x.float() @ w.float().T for w in self.weights[x.device.index])
        wanted = torch.nn.functional.silu(gate) * up
        error = ((out.float() - wanted).norm() / wanted.norm()).item()
        assert error < LIMIT, f"relative error {error}"


def fresh() -> pipelink.Kernel:
    return pipelink.load(*variants())


# --- Ways to call -----------------------------------------------------------------------------


def graph(data: Data) -> None:
    """Captured at the kernel's first launch, which loads it; replayed on new contents."""
    kernel, side = fresh(), torch.cuda.Stream()
    for m in (7, 1000):
        x, out = data.x(m), data.out(m)
        foreign = Interfaced(x.half(), side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            stream = torch.cuda.current_stream()
            wanted = "x must come by a stream that is captured if the launch's is"
            which = f"{side.cuda_stream:#x} is not captured, {stream.cuda_stream:#x} is"
            given = (foreign, *data.weights[0], out)
            refused(kernel, given, {"stream": stream}, f"{wanted}: {which}")
            data.call(kernel, x, out)
        torch.cuda.synchronize()
        assert out.isnan().all(), "a capture must not run"
        for _ in range(2):
            x.copy_(data.x(m))
            out.fill_(float("nan"))
            captured.replay()
            data.right(x, out)


def compiled(data: Data) -> None:
    """As an operator: whole in torch.compile's graph, for any m, and right through inductor."""
    operator = pipelink.torch_operator(fresh(), "pipelink::ffn_checked")
    seen: list[Any] = []

    def block(x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor) -> torch.Tensor:
        return torch.ops.pipelink.ffn_checked(x * 2, w_gate, w_up) + 1

    def keep(module: Any, inputs: Any) -> Any:
        seen.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    torch.compile(block, backend=keep, fullgraph=True, dynamic=True)(data.x(5), *data.weights[0])
    assert sum(str(target).startswith("pipelink.ffn_checked") for target in seen) == 1, seen
    torch._dynamo.reset()
    run = torch.compile(block, fullgraph=True, dynamic=True)
    for m in (7, 300):
        x = data.x(m)
        data.right(x * 2, run(x, *data.weights[0]) - 1)
        data.right(x, operator(x, *data.weights[0]))
    torch.library.opcheck(operator, (data.x(3), *data.weights[0]))
    said = raised(Exception, lambda: run(data.x(7).float(), *data.weights[0]))
    assert "kernel ffn: x must hold bf16, got f32" in said, said


def threads(data: Data) -> None:
    """Four at once on one kernel, each on a stream of its own, from the first launch on."""
    kernel = fresh()
    start = threading.Barrier(4, timeout=60)
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            rows = (3 + number, 100 + number, 700 + number)
            with torch.cuda.stream(torch.cuda.Stream()):
                pairs = [(data.x(m), data.out(m)) for m in rows]
                start.wait()
                for _ in range(20):
                    for x, out in pairs:
                        x.copy_(data.x(x.shape[0]))
                        out.fill_(float("nan"))
                        data.call(kernel, x, out)
                    for x, out in pairs:
                        data.right(x, out)
        except BaseException as error:
            faults.append(error)
            start.abort()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if faults:
        raise faults[0]


def side_stream(data: Data) -> None:
    """After what is queued on torch's current stream, or on the one that is passed."""
    kernel = fresh()
    for passed in (False, True):
        x, new, out = data.x(16), data.x(16), data.out(16)
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x.copy_(new)
            if not passed:
                data.call(kernel, x, out)
        if passed:
            data.call(kernel, x, out, stream=side)
        assert not side.query(), "the launch waited for the stream"
        side.synchronize()
        data.right(new, out)


def second_device(data: Data) -> None:
    """Arguments on the second device while the first is current, and the first again."""
    kernel = fresh()
    for device in (1, 0, 1):
        x, out = data.x(16, device), data.out(16, device)
        data.call(kernel, x, out)
        data.right(x, out)
    assert torch.cuda.current_device() == 0


class Exported:
    """An array that has DLPack and is no torch tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        return self.tensor.__dlpack__(stream=stream, **asked)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class ExportedBefore(Exported):
    """The same, of before DLPack 1."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)


class Interfaced:
    """An array of float16 that has the CUDA array interface alone, and comes on a stream."""

    def __init__(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": "<f2",
            "data": (tensor.data_ptr(), True),
            "version": 3,
            "stream": stream.cuda_stream,
        }


def other_arrays(data: Data) -> None:
    kernel, stream, side = fresh(), torch.cuda.current_stream(), torch.cuda.Stream()
    for kind in (Exported, ExportedBefore):
        x, out = data.x(16), data.out(16)
        kernel(*map(kind, (x, *data.weights[0], out)), stream=stream)
        data.right(x, out)
    foreign = Interfaced(data.x(16).half(), side)
    given = (foreign, *data.weights[0], data.out(16))
    refused(kernel, given, {"stream": stream}, "x must hold bf16, got f16")


def addresses(data: Data) -> None:
    """New contents, new shapes and new addresses after cached launches."""
    kernel = fresh()
    for m in (64, 65, 16, 64, 129):
        for _ in range(2):
            x, out = data.x(m), data.out(m)
            data.call(kernel, x, out)
            data.right(x, out)


# --- Bad calls --------------------------------------------------------------------------------


def bad_calls(data: Data) -> None:
    kernel, x, out = fresh(), data.x(8), data.out(8)
    gate, up = data.weights[0]
    takes = ("it takes (x: bf16 [m, 5120], w_gate: bf16 [25600, 5120], "
             "w_up: bf16 [25600, 5120], out: bf16 [m, 25600])")  # fmt: skip
    flat = torch.zeros(8 * HIDDEN + 8, device="cuda", dtype=torch.bfloat16)
    slid = flat[1 : 1 + 8 * HIDDEN].view(8, HIDDEN)
    turned = torch.zeros((HIDDEN, 8), device="cuda", dtype=torch.bfloat16).T
    gone = data.x(8)
    gone.untyped_storage().resize_(0)
    rows: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((x.half(), gate, up, out), {}, "x must hold bf16, got f16"),
        ((turned, gate, up, out), {}, "x must be contiguous with strides [5120, 1], got [1, 8]"),
        ((slid, gate, up, out), {},
         f"x must be aligned to 16 bytes, got address {slid.data_ptr():#x}"),
        ((gone, gate, up, out), {}, "x must be in memory, got address 0 with shape [8, 5120]"),
        ((x.cpu(), gate, up, out), {}, "x must be on a CUDA device, got cpu"),
        ((x[:0], gate, up, out[:0]), {}, "m must be 1 to 2147483647, got 0 by x [m, 5120]"),
        ((x, gate, up, data.out(9)), {}, "m is 8 by x [m, 5120] and 9 by out [m, 25600]"),
        ((x, gate, up[:-1], out), {}, "w_up must have shape [25600, 5120], got [25599, 5120]"),
        ((x, gate, up), {}, f"missing out, got (x, w_gate, w_up), {takes}"),
        ((x, gate, up, out, out), {}, f"got 5 arguments, {takes}"),
        ((x, gate, up, out), {"bias": x}, f"there is no argument bias, {takes}"),
        ((x, gate, up, 3), {}, "out must be a torch tensor or a CUDA array, got int"),
        ((x, gate, up, out), {"stream": -1}, "stream must be a handle of 64 bits, got -1"),
        ((x, gate, up, out), {"stream": True}, "stream must be a CUDA stream, got True"),
    ]  # fmt: skip
    if DEVICES > 1:
        other = data.out(8, 1)
        rows.append(((x, gate, up, other), {}, "out must be on cuda:0 as x is, got cuda:1"))
        there = torch.cuda.Stream("cuda:1")
        message = "stream must be on cuda:0 as x is, got cuda:1"
        rows.append(((x, gate, up, out), {"stream": there}, message))
    for _ in range(2):  # a refusal is not remembered as a launch
        for given, named, message in rows:
            refused(kernel, given, named, message)
    data.call(kernel, x, out)
    data.right(x, out)
    kernel.close()
    for given in ((x, gate, up, out), (x,)):
        refused(kernel, given, {}, "it was closed and takes no more calls")
    data.call(fresh(), x, out)


def refused(kernel: Any, given: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    said = raised(pipelink.LaunchError, lambda: kernel(*given, **named))
    assert said == f"kernel ffn: {message}", f"{said!r} instead of {message!r}"


def raised(kind: type[Exception], call: Callable[[], object]) -> str:
    """What a call that must fail says."""
    try:
        call()
    except kind as error:
        return str(error)
    return "nothing: it was taken"


# --- Host time --------------------------------------------------------------------------------


def host_times(data: Data) -> dict[str, dict[str, float]]:
    """Microseconds that a call keeps the host, the device never far behind."""
    kernel, x, out = fresh(), data.x(1), data.out(1)
    gate, up = data.weights[0]
    operator = pipelink.torch_operator(kernel, "pipelink::ffn_timed")
    product = torch.empty((1, INTERMEDIATE), device="cuda", dtype=torch.bfloat16)
    turned = gate.T
    stream = torch.cuda.current_stream()
    calls: dict[str, Callable[[], object]] = {
        "kernel": lambda: kernel(x, gate, up, out),
        "kernel, stream passed": lambda: kernel(x, gate, up, out, stream=stream),
        "kernel as torch operator": lambda: operator(x, gate, up),
        "torch.mm": lambda: torch.mm(x, turned, out=product),
        "torch.nn.functional.silu": lambda: torch.nn.functional.silu(product),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(40):
        for name, call in calls.items():
            torch.cuda.synchronize()
            for _ in range(50):
                begin = time.perf_counter_ns()
                call()
                times[name].append((time.perf_counter_ns() - begin) / 1000)
    rows = {}
    for name, values in times.items():
        tenths = statistics.quantiles(values[len(values) // 10 :], n=10)
        rows[name] = {"us": statistics.median(values), "p10": tenths[0], "p90": tenths[-1]}
    return rows


CHECKS = (graph, compiled, threads, side_stream, second_device, other_arrays, addresses, bad_calls)


def main() -> int:
    parser = argparse.ArgumentParser(description="the loader as it is used")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/loader.json")
    args = parser.parse_args()
    data = Data()
    results: dict[str, str] = {}
    for check in CHECKS:
        if check is second_device and DEVICES < 2:
            results[check.__name__] = "not run: one device"
        else:
            try:
                check(data)
                torch.cuda.synchronize()
                results[check.__name__] = "right"
            except Exception as error:
                results[check.__name__] = f"wrong: {type(error).__name__}: {error}"
        print(f"{check.__name__:14} {results[check.__name__]}", flush=True)
    times = host_times(data)
    for name, row in times.items():
        print(f"{name:26} {row['us']:7.2f} us ({row['p10']:.2f} to {row['p90']:.2f})")
    record = {**circumstances(), "devices": DEVICES, "checks": results, "host_us": times}
    args.output.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(result.startswith("wrong") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())

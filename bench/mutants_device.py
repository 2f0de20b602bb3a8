"""Linked mutants against their references, on the GPU of this machine; bench/mutations.py runs it.

python3 bench/mutants_device.py CUBIN ...      one line for each, in order
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def device(cubins: list[str]) -> None:
    import torch

    import pipelink

    torch.backends.cuda.matmul.allow_tf32 = False
    for cubin in cubins:
        path = ROOT / cubin
        name = path.stem.rpartition("_")[0]
        try:
            kernel = pipelink.load(path)
            facts = json.loads(path.with_suffix(".json").read_text())["facts"]
            answer = REFERENCES[name](torch, kernel, facts)
        except (pipelink.launch.LoadError, pipelink.launch.LaunchError) as error:
            answer = f"refused by the loader: {error}"
        except RuntimeError as error:
            print(f"fault: {str(error).splitlines()[0]}", flush=True)
            os._exit(0)
        print(answer.replace("\n", " "), flush=True)


def close(torch: Any, out: Any, wanted: Any, limit: float) -> str:
    if not torch.isfinite(out.float()).all():
        return "unwritten"
    error = ((out.float() - wanted).norm() / wanted.norm()).item()
    return "right" if error <= limit else f"wrong: error {error:.1e}"


def check_ffn(torch: Any, kernel: Any, facts: dict[str, Any]) -> str:
    from components.ffn.reference import reference

    shapes = {a.name: a.shape for a in kernel.metadata.arguments}
    hidden, width = 5120, 25600
    if tuple(shapes["w_gate"]) != (width, hidden) or tuple(shapes["x"])[1] != hidden:
        return f"wrong: shapes {shapes}"
    for m in (1, 129, 300):
        x = torch.randn(m, hidden, device="cuda").bfloat16()
        gate, up = ((torch.randn(width, hidden, device="cuda") / 72).bfloat16() for _ in range(2))
        out = torch.full((m, width), float("nan"), device="cuda", dtype=torch.bfloat16)
        kernel(x, gate, up, out)
        torch.cuda.synchronize()
        answer = close(torch, out, reference(x, gate, up), 1e-2)
        if answer != "right":
            return f"{answer} at m = {m}"
    return "right"


def check_lines(torch: Any, kernel: Any, n: int, wanted: Any) -> str:
    x = torch.randn(n, device="cuda")
    y = torch.full((n,), float("nan"), device="cuda")
    kernel(x, y)
    torch.cuda.synchronize()
    return "right" if torch.equal(y, wanted(x)) else f"wrong at n = {n}"


def mirrored(torch: Any, x: Any, width: int) -> Any:
    padded = torch.nn.functional.pad(x, (0, -len(x) % width))
    return padded.view(-1, width).flip(1).reshape(-1)[: len(x)]


def check_hand_over(torch: Any, kernel: Any, facts: dict[str, Any]) -> str:
    """As the facts say: what the writer did to the values is undone by the reader's factor."""
    scale = {"half": 0.5, "whole": 1.0}[facts["write.scale"]]
    scale *= (-1 if facts["write.negative"] else 1) * facts["read.factor"]
    offset = float(facts["read.offset"])
    for n in (1, 128, 1000, 100_000):
        answer = check_lines(
            torch, kernel, n, lambda x: mirrored(torch, x, facts["read.lanes"]) * scale + offset
        )
        if answer != "right":
            return answer
    return "right"


def check_reverse(torch: Any, kernel: Any, facts: dict[str, Any]) -> str:
    size = next(v for k, v in facts.items() if k.endswith(".tile_size"))
    for n in (1, 128, 1000, 100_000):
        answer = check_lines(torch, kernel, n, lambda x: mirrored(torch, x, size))
        if answer != "right":
            return answer
    return "right"


REFERENCES = {"ffn": check_ffn, "hand_over": check_hand_over, "reverse": check_reverse}


if __name__ == "__main__":
    device(sys.argv[1:])

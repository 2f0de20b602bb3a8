"""Other facts for the layer's kernels, side by side: which are fastest where.

    python3 bench/moe_tune.py make              here: links every variant, needs no GPU
    python3 bench/moe_tune.py run [--only TEXT] there: times them beside the kernel as it is

A variant is a kernel with other facts, relinked from the same objects; each is held against the kernel
that it varies, then timed in turns with it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FOLDER = ROOT / "build/moe_tune"
# By kernel: the instance that fills the ring of rows, and by variant its facts and those of the mainloop.
LOADERS = {
    "moe_up": "gather",
    "moe_down": "rows",
    "moe_up_sorted_mixtral": "gather",
    "moe_down_mixtral": "rows",
}
Facts = dict[str, int]
LOW: Facts = {"warpgroups": 1, "w_stages": 5}
VARIANTS: dict[str, tuple[Facts, Facts]] = {
    "low": ({"stages": 5}, LOW),
    "low_band_4": ({"stages": 5}, {**LOW, "raster_rows": 4}),
    "low_band_8": ({"stages": 5}, {**LOW, "raster_rows": 8}),
    "low_band_32": ({"stages": 5}, {**LOW, "raster_rows": 32}),
    "low_stages_4": ({"stages": 4}, {**LOW, "w_stages": 4}),
    "band_4": ({}, {"raster_rows": 4}),
    "band_8": ({}, {"raster_rows": 8}),
    "band_32": ({}, {"raster_rows": 32}),
    "rows_5": ({"stages": 5}, {}),
    "square": ({}, {"rows": 128, "tile_n": 128}),
}
TOKENS = {"moe_up": (256, 4096, 16384), "moe_down": (256, 4096, 16384)}
ROUNDS = 11


def make() -> int:
    jobs = [(kernel, name) for kernel in LOADERS for name in VARIANTS]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda job: link(*job), jobs))
    for (kernel, name), text in zip(jobs, said, strict=True):
        print(f"{kernel:24} {name:14} {text}")
    return 0


def link(kernel: str, name: str) -> str:
    from pipelink import driver
    from pipelink.diagnostics import InputError

    loader, mainloop = VARIANTS[name]
    folder = FOLDER / kernel / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    manifest = folder / f"{kernel}.kernel.toml"
    manifest.write_text(
        f'extends = "{ROOT}/components/moe/{kernel}.kernel.toml"\nkernel = "{kernel}"\n'
        f"[instances.{LOADERS[kernel]}]\nfacts = {written(loader)}\n[instances.mma]\nfacts = {written(mainloop)}\n"
    )
    sources = driver.Sources(ROOT / "build/sm_90a")
    try:
        product, _ = driver.build(
            driver.read(manifest, sources), sources, folder / f"{kernel}.cubin"
        )
    except InputError as error:
        return f"{error.diagnostics[0].code}: {error.diagnostics[0].message[:90]}"
    (folder / f"{kernel}.cubin").write_bytes(product.cubin)
    (folder / f"{kernel}.json").write_bytes(driver.metadata(product))
    return "linked"


def written(facts: Facts) -> str:
    return f"{{ {', '.join(f'{name} = {value}' for name, value in facts.items())} }}"


def run(only: str) -> int:
    for kernel in LOADERS:
        for tokens in TOKENS.get(kernel, (256, 4096)):
            if only in f"{kernel} {tokens}":
                measure(kernel, tokens)
    return 0


def measure(kernel: str, tokens: int) -> None:
    import torch

    import pipelink
    from bench import moe_baselines as base

    shape = base.SHAPES[4 if "mixtral" in kernel else 0]
    size = base.Shape(
        shape.name, shape.hidden, shape.intermediate, shape.experts, shape.top_k, tokens
    )
    lists = base.sort_routes(base.route(size, False)[0], size.experts)
    arguments, out = inputs(kernel, size, lists)
    built = {"as it is": ROOT / "build/sm_90a" / kernel}
    built |= {
        p.name: p for p in sorted((FOLDER / kernel).iterdir()) if (p / f"{kernel}.cubin").is_file()
    }
    calls: dict[str, Callable[[], Any]] = {}
    first = None
    for name, folder in built.items():
        loaded = pipelink.load(folder / f"{kernel}.cubin")
        out.fill_(float("nan"))
        loaded(*arguments, out)
        torch.cuda.synchronize()
        first = out.clone() if first is None else first
        error = float((out.float() - first.float()).norm() / first.float().norm())
        if not error < 1e-3:
            print(f"{kernel} {name} is wrong: {error}")
            continue
        calls[name] = lambda loaded=loaded: loaded(*arguments, out)
    took = base._rounds(calls, ROUNDS)
    products = size.operations * (2 if "up" in kernel else 1) / 3
    ranked = sorted((row["ms"], name) for name, row in took.items())
    print(
        kernel,
        tokens,
        *(f"{name}: {ms:.3f} ({products / ms / 1e9:.0f})" for ms, name in ranked),
        sep="  ",
    )


def inputs(kernel: str, size: Any, lists: Any) -> tuple[tuple[Any, ...], Any]:
    import torch

    from bench import moe_baselines as base

    routes, w_up_down = size.tokens * size.top_k, base.weights(size)
    up, sorted_ = "up" in kernel, "sorted" in kernel
    columns = size.hidden if up else size.intermediate
    x = torch.randn(size.tokens if up and not sorted_ else routes, columns, device="cuda").to(
        base.BF16
    )
    given = (
        (x, lists.offsets, w_up_down[0])
        if sorted_
        else (x, lists.order, lists.offsets, w_up_down[not up])
    )
    shape = (routes, size.intermediate) if up else (size.tokens, size.top_k, size.hidden)
    return given, torch.empty(shape, device="cuda", dtype=base.BF16)


def main() -> int:
    parser = argparse.ArgumentParser(description="variants of the layer's kernels")
    parser.add_argument("do", choices=("make", "run"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    return make() if args.do == "make" else run(args.only)


if __name__ == "__main__":
    sys.exit(main())

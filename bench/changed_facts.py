"""The changed-facts experiment: one owner of the four in a kernel changes one constant.

    python3 bench/changed_facts.py make                 here: needs nvcc, no GPU
    python3 bench/changed_facts.py run [--output FILE]  there: needs a GPU, torch and cuda-core
    python3 bench/changed_facts.py page                 docs/changed-facts.md from the results

Each case is built three times. *Symbol linking*: the owner is compiled anew, with the header's constants
of the new day; the other three objects are those of the first day, compiled the ordinary way with the
constants of that day; plain nvJitLink, no contracts. The unit with the kernel's entry is that of the
first day, and, as a second try that favours symbol linking, that of the new day. *PipeLink*: the same
owner is compiled anew, the other three objects are byte for byte the old ones. *Control*: all sources
compiled afresh as one unit.

Each kernel runs in a process of its own on poisoned outputs. Every wait in it has a limit of a second.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FOLDER = ROOT / "build/changed_facts"
RESULTS = ROOT / "bench/results/changed_facts.json"
SOURCES = (
    "components/moe/gather.cu",
    "components/moe/expert_gemm.cu",
    "components/ffn/epilogue.cu",
    "components/moe/combine.cu",
)
WIDE = "components/moe/moe_up.kernel.toml"
NARROW = (
    "components/moe/moe_up_narrow.kernel.toml"  # smaller tiles, which leave room for larger ones
)
TOKENS, SEED, LIMIT, PROCESSES, TIMEOUT = 1024, 6, 1e-2, 6, 60


@dataclass(frozen=True)
class Case:
    """One constant in one owner's source."""

    name: str
    what: str
    file: str
    old: str
    new: str
    manifest: str = WIDE
    activation: str = "silu"

    @property
    def source(self) -> str:
        return f"components/{self.file}"


GATHER, GEMM, ACT, COMBINE = (
    "moe/gather.cu",
    "moe/expert_gemm.cu",
    "ffn/epilogue.cu",
    "moe/combine.cu",
)
WARPS = '"gather_warps", 3, 1, 2, 4, 8'
TILE_K, TILE_N = '"tile_k", 64, 128, 256', '"tile_n", 256, 64, 128'
SILU = '"silu"_t, "gelu"_t, "relu"_t'
FIRST, TURNS = '"gate_first"_t', '"interleaved"_t'
STAGES = '"stages", 4, 2, 3, 5, 6, 8'
W_STAGES = '"w_stages", 4, 2, 3, 5, 6, 8'
PAIRING = '"pairing", "gate_first"_t, "up_first"_t, "interleaved"_t'
CASES = (
    Case("nothing", "nothing: a check of the experiment", GATHER, STAGES, STAGES),
    Case("stages_3", "ring stages 4 to 3", GATHER, STAGES, '"stages", 3, 2, 4, 5, 6, 8'),
    Case("stages_2", "ring stages 4 to 2", GATHER, STAGES, '"stages", 2, 3, 4, 5, 6, 8'),
    Case("stages_5", "ring stages 4 to 5", GATHER, STAGES, '"stages", 5, 2, 3, 4, 6, 8'),
    Case("tile_k_128", "K of a stage 64 to 128", GATHER, TILE_K, '"tile_k", 128, 64, 256', NARROW),
    Case("warps_2", "producer threads 96 to 64", GATHER, WARPS, '"gather_warps", 2, 1, 3, 4, 8', NARROW),
    Case("warps_4", "producer threads 96 to 128", GATHER, WARPS, '"gather_warps", 4, 1, 2, 3, 8', NARROW),
    Case("height_64", "tile height 128 to 64", GEMM, '"warpgroups", 2, 1, 3', '"warpgroups", 1, 2, 3'),
    Case("height_256", "tile height 128 to 256", GEMM, '"rows", 64, 128', '"rows", 128, 64', NARROW),
    Case("width_128", "tile width 256 to 128", GEMM, TILE_N, '"tile_n", 128, 64, 256'),
    Case("width_64", "tile width 256 to 64", GEMM, TILE_N, '"tile_n", 64, 128, 256'),
    Case("w_stages_3", "stages of weights 4 to 3", GEMM, W_STAGES, '"w_stages", 3, 2, 4, 5, 6, 8'),
    Case("raster_4", "rows of a band 16 to 4", GEMM, '"raster_rows", 16, 1, 4', '"raster_rows", 4, 1, 16'),
    Case("up_first", "order of columns: up first", ACT, PAIRING, f'"pairing", "up_first"_t, {FIRST}, {TURNS}'),
    Case("in_turns", "order of columns: in turns", ACT, PAIRING, f'"pairing", {TURNS}, {FIRST}, "up_first"_t'),
    Case("handed_bf16", "type handed over: f32 to bf16", ACT, "using Handed = float;", "using Handed = pl::bf16;"),
    Case("relu", "activation: silu to relu", ACT, SILU, '"relu"_t, "gelu"_t, "silu"_t', activation="relu"),
    Case("vector_8", "bytes of a store 16 to 8", COMBINE, '"vector", 16, 8, 4', '"vector", 8, 16, 4'),
)  # fmt: skip
BUILDS = ("symbol", "symbol_new_kernel", "pipelink", "control")


# --- Here -------------------------------------------------------------------------------------------


def make() -> int:
    from bench.owners import Workshop, kernel_of, kernel_unit, linked, ordinary, write_json

    first = Workshop(FOLDER / "first")
    days: dict[str, Any] = {}
    for manifest in (WIDE, NARROW):
        folder = FOLDER / "first" / Path(manifest).name.split(".")[0]
        kernel, plan = kernel_of(first, manifest, SOURCES)
        old = {s: ordinary(first, kernel, plan, s, folder) for s in SOURCES}
        days[manifest] = (linked(first, plan, folder / "pipelink"), old, kernel_unit(plan, folder))
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda case: made(case, first, *days[case.manifest]), CASES))
    write_json(FOLDER / "cases.json", {"cases": rows})
    for row in rows:
        print(row["name"], row.get("refused", "made"))
    return 0


def made(
    case: Case, first: Any, before: Any, old: dict[str, Path], old_unit: Path
) -> dict[str, Any]:
    """All builds of a case; what `cases.json` says of it."""
    from bench.owners import (
        Edit,
        Refused,
        Workshop,
        control,
        kernel_of,
        kernel_unit,
        linked,
        ordinary,
        symbols,
    )

    shop = Workshop(FOLDER / case.name, (Edit(case.file, case.old, case.new),), first)
    row: dict[str, Any] = {**asdict(case), "source": case.source}
    try:
        kernel, plan = kernel_of(shop, case.manifest, SOURCES)
        product = linked(shop, plan, shop.folder / "pipelink")
    except Refused as refused:
        return {**row, "refused": refused.text}
    hashes, unchanged = shop.hashes(SOURCES), first.hashes(SOURCES)
    row["unchanged"] = [s for s in SOURCES if hashes[s] == unchanged[s]]
    control(shop, kernel, product, shop.folder / "control")
    new = ordinary(shop, kernel, plan, case.source, shop.folder / "ordinary")
    mixed = [new if s == case.source else old[s] for s in SOURCES]
    symbols([*mixed, old_unit], before, shop.folder / "symbol")
    unit = kernel_unit(plan, shop.folder / "ordinary")
    symbols([*mixed, unit], product, shop.folder / "symbol_new_kernel")
    row["owner"] = next(
        i.owner for i in plan.instances if i.object == case.source.replace(".cu", ".o")
    )
    row["component"] = next(i.component for i in plan.instances if i.owner == row["owner"])
    row["kernel"] = plan.kernel
    return row


# --- There ------------------------------------------------------------------------------------------


def run(output: Path) -> int:
    from bench.circumstances import circumstances

    cases = json.loads((FOLDER / "cases.json").read_text())["cases"]
    jobs = [(c, b) for c in cases if "refused" not in c for b in BUILDS]
    with ThreadPoolExecutor(PROCESSES) as pool:
        outcomes = list(pool.map(lambda job: supervised(*job), jobs))
    for (case, build), outcome in zip(jobs, outcomes, strict=True):
        case[build] = outcome
    for case in (c for c in cases if "refused" not in c):
        case["equal"] = case["pipelink"].get("digest") == case["control"].get("digest") is not None
    output.parent.mkdir(parents=True, exist_ok=True)
    result = {**circumstances(), "tokens": TOKENS, "limit": LIMIT, "cases": cases}
    output.write_text(json.dumps(result, indent=1) + "\n")
    for case in cases:
        said = [case[b]["outcome"] for b in BUILDS] if "refused" not in case else ["refused"]
        print(f"{case['name']:12} {case['what']:34} {' | '.join(said)} equal={case.get('equal')}")
    good = all(
        c["pipelink"]["outcome"] == "right" and c["equal"] for c in cases if "refused" not in c
    )
    return 0 if good else 1


def supervised(case: dict[str, Any], build: str) -> dict[str, Any]:
    """What a kernel did, in a process of its own."""
    cubin = FOLDER / case["name"] / build / f"{case['kernel']}.cubin"
    command = [sys.executable, __file__, "child", str(cubin), case["activation"]]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"outcome": "hang", "detail": f"not done after {TIMEOUT} s"}
    try:
        return dict(json.loads(run.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        last = (run.stderr.strip().splitlines() or [f"ended with {run.returncode}"])[-1]
        return {"outcome": "fault", "detail": last.replace(f"{ROOT}/", "")}


def child(cubin: Path, activation: str) -> int:
    """Runs one kernel and prints what came of it."""
    import torch

    import pipelink
    from components.moe import reference
    from components.moe.layer import sort_routes

    hidden, intermediate, experts, top_k = 2048, 768, 128, 8
    torch.backends.cuda.matmul.allow_tf32 = False
    generator = torch.Generator("cuda").manual_seed(SEED)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", generator=generator)

    x = normal(TOKENS, hidden).bfloat16()
    w = (normal(experts, 2 * intermediate, hidden) / hidden**0.5).bfloat16()
    probs, ids = normal(TOKENS, experts).softmax(1).topk(top_k, 1)
    routing = sort_routes(ids, probs, experts)
    product = reference.expert_gemm(reference.gather(x, routing.order, top_k), w, routing.offsets)
    gate, up = product.chunk(2, dim=1)
    wanted = getattr(torch.nn.functional, activation)(gate) * up
    h = torch.full(
        (TOKENS * top_k, intermediate), float("nan"), device="cuda", dtype=torch.bfloat16
    )
    torch.cuda.synchronize()
    begin = time.monotonic()
    try:
        pipelink.load(cubin)(x, routing.order, routing.offsets, w, h)
        torch.cuda.synchronize()
    except Exception as error:
        waited = time.monotonic() - begin > 1.0
        detail = str(error).splitlines()[0][:160]
        print(json.dumps({"outcome": "hang" if waited else "fault", "detail": detail}))
        return 0
    print(json.dumps(outcome(h, wanted)))
    return 0


def outcome(h: Any, wanted: Any) -> dict[str, Any]:
    """Unwritten elements, wrong values, or right."""
    import torch

    unwritten = int(h.isnan().sum())
    relative = float((h.float() - wanted).nan_to_num().norm() / wanted.norm())
    kind = "unwritten" if unwritten else "right" if relative < LIMIT else "wrong"
    digest = hashlib.sha256(h.view(torch.int16).cpu().numpy().tobytes()).hexdigest()
    return {"outcome": kind, "unwritten": unwritten, "error": relative, "digest": digest}


# --- The page ---------------------------------------------------------------------------------------

PAGE = ROOT / "docs/changed-facts.md"
WORDS = {
    "fault": "**fault**",
    "hang": "**hang**",
    "unwritten": "**unwritten**",
    "wrong": "**wrong values**",
}


def table(cases: list[dict[str, Any]]) -> list[str]:
    """A row a case: what came of it where symbols are linked, and where contracts are."""
    lines = [
        "| constant | owner | kernel | symbol linking | with a new kernel unit | PipeLink | control |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        if "refused" in case:
            said = ["", "", "refused", ""]
        else:
            said = [WORDS.get(case[b]["outcome"], case[b]["outcome"]) for b in BUILDS[:3]]
            said.append("equal" if case["equal"] else "**differs**")
        owner = "" if case["name"] == "nothing" else case.get("owner", "")
        lines.append(f"| {case['what']} | {owner} | `{case['kernel']}` | {' | '.join(said)} |")
    return lines


def failing(cases: list[dict[str, Any]]) -> int:
    """Cases in which symbol linking fails either way and PipeLink is right."""
    tried = [c for c in cases if "refused" not in c]
    return sum(
        "right" not in (c["symbol"]["outcome"], c["symbol_new_kernel"]["outcome"])
        and c["pipelink"]["outcome"] == "right"
        and c["equal"]
        for c in tried
    )


def page() -> str:
    """docs/changed-facts.md, from the results."""
    from bench.campaign import RESULTS as CAMPAIGN
    from bench.campaign import summary
    from bench.readme_figures import where

    result, campaign = json.loads(RESULTS.read_text()), json.loads(CAMPAIGN.read_text())
    cases = result["cases"]
    text = (ROOT / "bench/changed_facts_page.md").read_text()
    parts = {
        "TABLE": "\n".join(table(cases)),
        "CASES": str(len(cases) - 1),
        "FAILING": str(failing(cases)),
        "WHERE": where(result),
        "CAMPAIGN": "\n".join(summary(campaign)),
        "CAMPAIGN_WHERE": where(campaign),
    }
    for name, value in parts.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description="one owner changes one constant")
    parser.add_argument("do", choices=("make", "run", "page", "child"))
    parser.add_argument("cubin", nargs="?", type=Path)
    parser.add_argument("activation", nargs="?", default="silu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.do == "make":
        return make()
    if args.do == "page":
        PAGE.write_text(page())
        return 0
    return run(args.output) if args.do == "run" else child(args.cubin, args.activation)


if __name__ == "__main__":
    sys.exit(main())

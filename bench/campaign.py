"""Every fact of every owner in turn, changed to each other value of its set and to one outside it.

    python3 bench/campaign.py make                 here: needs nvcc, no GPU
    python3 bench/campaign.py run [--output FILE]  there: needs a GPU, torch and cuda-core

A mutant is a kernel whose owner compiled another default of a fact; the other owners' objects are the old
ones. There are two outcomes: PipeLink links it, and on the GPU it does bit by bit what a fresh control of
that value does, which is right; or PipeLink refuses it, and names the fact, its owner, and who can't
follow. Values outside the set are tried in the manifest, and, where others take the fact, by an owner who
offers them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FOLDER = ROOT / "build/campaign"
RESULTS = ROOT / "bench/results/campaign.json"
SOURCES = {
    "gather": "moe/gather.cu",
    "expert_gemm": "moe/expert_gemm.cu",
    "swiglu": "ffn/epilogue.cu",
    "combine": "moe/combine.cu",
}
# Which facts of each component a kernel's steps read, by the kernel.
ROWS, STORE = ("stages", "tile_k"), ("vector", "cache")
GEMM = ("warpgroups", "rows", "tile_n", "w_stages", "raster_rows")
ACT = ("pairing", "activation", "limit")
KERNELS: dict[str, dict[str, tuple[str, ...]]] = {
    "moe_up": {
        "gather": (*ROWS, "gather_warps"),
        "expert_gemm": GEMM,
        "swiglu": ACT,
        "combine": STORE,
    },
    "moe_up_narrow": {
        "gather": (*ROWS, "gather_warps"),
        "expert_gemm": ("warpgroups", "rows", "raster_rows"),
    },
    "moe_down": {"gather": (*ROWS, "load_pieces"), "expert_gemm": GEMM, "combine": STORE},
    "moe_down_fast": {
        "gather": ("stages",),
        "expert_gemm": ("warpgroups", "tile_n"),
        "combine": ("vector",),
    },
    "moe_sum": {"combine": ("cache", "sum_warps")},
    "moe_sort_mixtral": {"gather": ("sort_rows",)},
}
OUTSIDE: dict[str, str] = {
    "limit": "5",
    "pairing": '"alternate"',
    "activation": '"tanh"',
    "cache": '"never"',
}
OFFERED = (
    ("gather", "tile_k", "32"),
    ("swiglu", "pairing", '"alternate"_t'),
    ("expert_gemm", "rows", "32"),
)
TOKENS, SEED, LIMIT = 512, 7, 1e-2


@dataclass(frozen=True)
class Mutant:
    """A fact at another value, as the source or the manifest writes it."""

    kernel: str
    component: str
    fact: str
    value: str
    how: str  # "default", "manifest" or "offered"

    @property
    def name(self) -> str:
        value = re.sub(r"\W|_t$", "", self.value)
        return f"{self.kernel}.{self.component}.{self.fact}.{value}.{self.how}"

    @property
    def shop(self) -> str:
        """The sources that it needs: kernels share them."""
        value = "" if self.how == "manifest" else re.sub(r"\W|_t$", "", self.value)
        return f"{self.component}.{self.fact}.{value}.{self.how}"


def values(component: str, fact: str) -> list[str]:
    """The set of a fact as its source writes it, the default first."""
    text = (ROOT / "components" / SOURCES[component]).read_text()
    found = re.search(rf'pl::chooses<"{fact}",\s*([^>]*)>', text)
    assert found, f"{component} does not choose {fact}"
    return re.split(r",\s*", found[1])


def mutants() -> Iterator[Mutant]:
    for kernel, components in KERNELS.items():
        for component, facts in components.items():
            for fact in facts:
                own = values(component, fact)
                yield from (Mutant(kernel, component, fact, v, "default") for v in own[1:])
                outside = OUTSIDE.get(fact, "7")
                yield Mutant(kernel, component, fact, outside, "manifest")
    for component, fact, value in OFFERED:
        yield Mutant("moe_up", component, fact, value, "offered")


# --- Here -------------------------------------------------------------------------------------------


def make() -> int:
    from bench.owners import Workshop, write_json

    first = Workshop(FOLDER / "first")
    for source in SOURCES.values():
        first.object(f"components/{source}")
    every = list(mutants())
    shops = {m.shop: workshop(m, first) for m in every}
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda m: made(m, shops[m.shop]), every))
    write_json(FOLDER / "mutants.json", {"mutants": rows})
    for row in rows:
        print(f"{row['name']:60} {row.get('codes', 'linked')} {row.get('names', '')}")
    silent = [r["name"] for r in rows if "refused" in r and not r["names"]]
    print(
        f"{len(rows)} mutants, {sum('refused' not in r for r in rows)} linked, refused without names: {silent}"
    )
    return int(bool(silent))


def workshop(m: Mutant, first: Any) -> Any:
    """The sources with the mutant's value as the fact's default."""
    from bench.owners import Edit, Workshop

    folder = FOLDER / "shops" / m.shop
    if m.how == "manifest":
        return Workshop(folder, (), first)
    file = SOURCES[m.component]
    text = (ROOT / "components" / file).read_text()
    found = re.search(rf'pl::chooses<"{m.fact}",\s*([^>]*)>', text)
    assert found
    every = [m.value, *(v for v in values(m.component, m.fact) if v != m.value)]
    edit = Edit(file, found[0], f'pl::chooses<"{m.fact}", {", ".join(every)}>')
    return Workshop(folder, (edit,), first)


def manifest_of(m: Mutant, shop: Any) -> str:
    path = f"components/moe/{m.kernel}.kernel.toml"
    if m.how != "manifest":
        return path
    instance = instance_of(m, shop)
    extra = f"components/moe/{m.kernel}_{m.fact}.kernel.toml"
    (shop.folder / extra).write_text(
        f'extends = "{m.kernel}.kernel.toml"\nkernel = "{m.kernel}"\n[instances.{instance}]\n'
        f"facts = {{ {m.fact} = {m.value} }}\n"
    )
    return extra


def instance_of(m: Mutant, shop: Any) -> str:
    """The instance of the mutant's component in its kernel."""
    from pipelink.manifest import read_manifest

    spec = read_manifest(shop.folder / f"components/moe/{m.kernel}.kernel.toml")
    wanted = f"components/{SOURCES[m.component]}".replace(".cu", ".o")
    names = [i.name for i in spec.instances if i.object == wanted]
    return "mma" if "mma" in names else names[0]


def made(m: Mutant, shop: Any) -> dict[str, Any]:
    from bench.owners import Refused, control, kernel_of, linked

    row: dict[str, Any] = {**asdict(m), "name": m.name}
    sources = tuple(f"components/{s}" for s in SOURCES.values())
    try:
        kernel, plan = kernel_of(shop, manifest_of(m, shop), sources)
        product = linked(shop, plan, FOLDER / "kernels" / m.name / "pipelink")
    except Refused as refused:
        names = m.fact in refused.text and SOURCES[m.component] in refused.text
        return {**row, "refused": refused.text, "codes": sorted(set(refused.codes)), "names": names}
    control(shop, kernel, product, FOLDER / "kernels" / m.name / "control")
    return row


# --- There ------------------------------------------------------------------------------------------


def run(output: Path) -> int:
    from bench.circumstances import circumstances

    rows = json.loads((FOLDER / "mutants.json").read_text())["mutants"]
    waiting = [r for r in rows if "refused" not in r]
    while waiting:  # each child runs mutants until one ends it
        done = child_of([r["name"] for r in waiting])
        for row in waiting:
            row |= done.get(row["name"], {})
        left = [r for r in waiting if "outcome" not in r]
        if left and len(left) == len(waiting):
            left[0]["outcome"] = "fault"
        waiting = [r for r in left if "outcome" not in r]
    for row in rows:
        row.setdefault("outcome", "refused" if row.get("names") else "refused without names")
    bad = [r["name"] for r in rows if r["outcome"] not in ("right", "refused")]
    counts = {
        o: sum(r["outcome"] == o for r in rows) for o in dict.fromkeys(r["outcome"] for r in rows)
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    result = {**circumstances(), "tokens": TOKENS, "counts": counts, "mutants": rows}
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(counts, "third outcomes:", bad)
    return int(bool(bad))


def child_of(names: list[str]) -> dict[str, dict[str, Any]]:
    command = [sys.executable, __file__, "child", *names]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=150)
        out, err = said.stdout, said.stderr
    except subprocess.TimeoutExpired as expired:
        out, err = (expired.stdout or b"").decode(), "timeout"
    found = {}
    for line in out.splitlines():
        name, _, rest = line.partition(" ")
        found[name] = json.loads(rest)
    if len(found) < len(names):
        print(err[-500:], file=sys.stderr)
    return found


def child(names: list[str]) -> int:
    import torch

    import pipelink

    data = Data()
    for name in names:
        begin = time.monotonic()
        kernel, _, fact, value, _ = name.split(".")
        wanted, digests, error = data.wanted(kernel, fact, value), [], 0.0
        try:
            for build in ("pipelink", "control"):
                out = data.poisoned(kernel)
                data.call(
                    kernel,
                    pipelink.load(FOLDER / "kernels" / name / build / f"{kernel}.cubin"),
                    out,
                )
                torch.cuda.synchronize()
                digests.append(
                    hashlib.sha256(out.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()
                )
                error = max(error, float((out.float() - wanted).norm() / wanted.norm()))
        except Exception as failure:
            took = time.monotonic() - begin
            print(
                name,
                json.dumps(
                    {"outcome": "hang" if took > 1 else "fault", "detail": str(failure)[:200]}
                ),
            )
            return 1
        # Additions in memory come in another order each time.
        equal = digests[0] == digests[1] or kernel == "moe_down_fast"
        said = {"outcome": "right" if error < LIMIT and equal else "wrong", "error": error}
        print(name, json.dumps({**said, "equal": digests[0] == digests[1]}), flush=True)
    return 0


class Data:
    """Inputs of all kernels, and what comes of them."""

    def __init__(self) -> None:
        import torch

        from components.moe import reference
        from components.moe.layer import sort_routes

        self.torch, self.reference = torch, reference
        torch.backends.cuda.matmul.allow_tf32 = False
        generator = torch.Generator("cuda").manual_seed(SEED)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, device="cuda", generator=generator)

        self.x, self.wide = normal(TOKENS, 2048).bfloat16(), normal(TOKENS, 4096).bfloat16()
        self.w_up = (normal(128, 1536, 2048) / 2048**0.5).bfloat16()
        self.w_down = (normal(128, 2048, 768) / 768**0.5).bfloat16()
        probs, ids = normal(TOKENS, 128).softmax(1).topk(8, 1)
        self.routing = sort_routes(ids, probs, 128)
        self.pairs = sort_routes(ids[:, :2] % 8, probs[:, :2], 8)
        self.h = normal(TOKENS * 8, 768).bfloat16()
        self.y = normal(TOKENS, 8, 2048).bfloat16()
        self.product = reference.expert_gemm(
            reference.gather(self.x, self.routing.order, 8), self.w_up, self.routing.offsets
        )
        self.lower = reference.expert_gemm(self.h, self.w_down, self.routing.offsets)

    def wanted(self, kernel: str, fact: str, value: str) -> Any:
        torch, routing = self.torch, self.routing
        if kernel.startswith("moe_up"):
            return self.gated(
                value if fact == "activation" else "silu", int(value) if fact == "limit" else 0
            )
        if kernel == "moe_down":
            slots = torch.empty_like(self.lower)
            slots[routing.order.long()] = self.lower
            return slots.view(TOKENS, 8, 2048)
        if kernel == "moe_down_fast":
            return self.reference.combine(self.lower, routing.order, routing.probs)
        if kernel == "moe_sum":
            return (self.y.float() * routing.probs[:, :, None]).sum(1)
        return self.reference.gather(self.wide, self.pairs.order, 2)

    def gated(self, activation: str, limit: int) -> Any:
        gate, up = self.product.chunk(2, dim=1)
        if limit:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        functions = self.torch.nn.functional
        if activation == "gelu":
            return functions.gelu(gate, approximate="tanh") * up
        return getattr(functions, activation)(gate) * up

    def poisoned(self, kernel: str) -> Any:
        shapes = {
            "moe_down": (TOKENS, 8, 2048),
            "moe_sum": (TOKENS, 2048),
            "moe_sort_mixtral": (TOKENS * 2, 4096),
        }
        if kernel == "moe_down_fast":
            return self.torch.zeros(TOKENS, 2048, device="cuda")
        shape = shapes.get(kernel, (TOKENS * 8, 768))
        return self.torch.full(shape, float("nan"), device="cuda", dtype=self.torch.bfloat16)

    def call(self, kernel: str, run: Any, out: Any) -> None:
        r = self.routing
        if kernel.startswith("moe_up"):
            run(self.x, r.order, r.offsets, self.w_up, out)
        elif kernel == "moe_down":
            run(self.h, r.order, r.offsets, self.w_down, out)
        elif kernel == "moe_down_fast":
            run(self.h, r.order, r.offsets, r.probs, self.w_down, out)
        elif kernel == "moe_sum":
            run(self.y, r.probs, out)
        else:
            run(self.wide, self.pairs.order, out)


def summary(result: dict[str, Any]) -> list[str]:
    """A row a fact: how many of its values were linked and right, and how the others were refused."""
    lines = [
        "| owner's component | fact | values, by kernel | linked, right, equal to the control | refused |",
        "|---|---|---:|---:|---|",
    ]
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["mutants"]:
        rows.setdefault((row["component"], row["fact"]), []).append(row)
    for (component, fact), every in rows.items():
        right = sum(r["outcome"] == "right" for r in every)
        codes = [code for r in every if r["outcome"] == "refused" for code in r["codes"][:1]]
        said = ", ".join(f"{codes.count(c)} {c}" for c in dict.fromkeys(codes))
        lines.append(f"| {component} | {fact} | {len(every)} | {right} | {said} |")
    counts = result["counts"]
    ran, refused = counts.get("right", 0), counts.get("refused", 0)
    others = len(result["mutants"]) - ran - refused
    lines.append(f"| all | | {len(result['mutants'])} | {ran} | {refused} |")
    return [*lines, "", f"Third outcomes: {others or 'none'}."]


def main() -> int:
    parser = argparse.ArgumentParser(description="every fact at every value")
    parser.add_argument("do", choices=("make", "run", "child"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.do == "make":
        return make()
    return run(args.output) if args.do == "run" else child(args.names)


if __name__ == "__main__":
    sys.exit(main())

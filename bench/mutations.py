"""The mutation campaign: what happens to each number, name, type, layout and count of a contract.

    python bench/mutations.py make [--only SOURCE ...]   mutants, built and judged; needs no GPU
    python bench/mutations.py again                      those that were not right, once more
    python3 bench/mutations.py run                       those that linked, on the GPU of this machine
    python bench/mutations.py table                      docs/mutations.md from the results

A mutant is one owner's source with one token of its contract changed; that owner alone is compiled
anew and the kernel is linked with the other owners' objects as they are. It must be refused by a
diagnostic that names the mutated item, or give the right kernel: the same code as before, or other
code that is its control's and, run, gives what the reference gives. Nothing else is right.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.circumstances import circumstances, host  # noqa: E402

RESULTS = ROOT / "bench/results/mutations.json"
WORK = ROOT / "build/mutants"
KERNELS = {
    "components/ffn/ffn.kernel.toml": (
        "components/ffn/loader.cu",
        "components/ffn/mainloop.cu",
        "components/ffn/epilogue.cu",
    ),
    "tests/kernels/hand_over.kernel.toml": ("tests/kernels/writer.cu", "tests/kernels/reader.cu"),
    "tests/kernels/reverse.kernel.toml": ("tests/kernels/reverse.cu",),
}
# Where the object paths of a manifest start from.
OBJECTS = {"tests/kernels/reverse.kernel.toml": "tests/kernels"}
HEADERS = ("components/ffn/wgmma.cuh", "tests/kernels/route.cuh")


# --- Mutants of a source ------------------------------------------------------------------------

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\s+|//[^\n]*|==|!=|<=|>=|&&|\|\||.', re.DOTALL)
ITEM = re.compile(r"constexpr (?:auto|int) (\w+)")
WORDS = {
    "bf16": ("f16",),
    "float": ("int",),
    "int": ("float",),
    "swizzle_128": ("swizzle_64", "no_swizzle"),
    "no_swizzle": ("swizzle_128",),
    "each_warp": ("each_thread", "one_thread"),
    "each_thread": ("each_warp", "one_thread"),
    "each_warpgroup": ("each_warp", "one_thread"),
    "by_copies": ("each_warp", "one_thread"),
    "async_proxy": ("generic_proxy",),
    "generic_proxy": ("async_proxy",),
    "edge_zero": ("edge_undefined",),
    "edge_undefined": ("edge_zero",),
    "by_row": ("by_column", "whole"),
    "by_column": ("by_row", "whole"),
    "whole": ("by_row",),
    "provides": ("chooses", "agrees"),
    "chooses": ("imports",),
    "agrees": ("provides",),
    "extent": ("imports",),
    "promises": ("needs",),
    "needs": ("promises",),
    "fill": ("acquire", "commit"),
    "drain": ("wait", "release"),
    "wait": ("release",),
    "release": ("wait",),
    "min": ("max",),
    "fragment_out": ("fragment_in",),
    "fragment_in": ("fragment_out",),
    "array_out": ("array_in",),
    "array_in": ("array_out",),
    "true": ("false",),
    "false": ("true",),
}
SIGNS = {"*": "+", "/": "*", "-": "+", "%": "/", "==": "!=", ">=": ">", "<=": "<", "&&": "||"}
CHAINED = re.compile(r"\.(?:clipped|per_warp|per_warpgroup|edge_zero|edge_undefined)\(\)")


@dataclass
class Mutant:
    """One token changed, and what came of it."""

    manifest: str
    source: str
    item: str
    lines: tuple[int, int]
    kind: str
    before: str
    after: str
    text: str = field(repr=False, default="")
    outcome: str = ""
    codes: tuple[str, ...] = ()
    named: bool = False
    said: str = ""
    cubin: str = ""
    differences: int | None = None
    run: str = ""


def items(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of each statement of a contract, before PIPELINK_COMPONENT."""
    stop = text.index("PIPELINK_COMPONENT(")
    for match in ITEM.finditer(text, 0, stop):
        yield match[1], match.start(), text.index(";", match.end()) + 1


def changes(token: str, facts: list[str]) -> Iterator[tuple[str, str]]:
    """(kind, other token) of a token of a contract."""
    number = re.fullmatch(r"(\d+)(_n)?", token)
    if number:
        value, suffix = int(number[1]), number[2] or ""
        for other in dict.fromkeys((value + 1, value * 2, value // 2)):
            if other != value:
                yield "number", f"{other}{suffix}"
    elif token.startswith('"'):
        yield from texts(token[1:-1])
    elif token in WORDS:
        yield from (("word", other) for other in WORDS[token])
    elif token in SIGNS:
        yield "operator", SIGNS[token]
    elif token in facts:
        yield "fact", facts[(facts.index(token) + 1) % len(facts)]


def texts(text: str) -> Iterator[tuple[str, str]]:
    """Other texts: a name with a letter more; each number and name of a layout."""
    if not re.search(r"[():]", text) or " " in text:
        yield "name" if re.fullmatch(r"\w+", text) else "text", f'"{text}x"'
        return
    for match in re.finditer(r"\d+|[a-z_]+", text):
        other = str(int(match[0]) * 2) if match[0].isdigit() else "1"
        yield "layout", f'"{text[: match.start()]}{other}{text[match.end() :]}"'


def mutants(manifest: str, source: str) -> Iterator[Mutant]:
    text = (ROOT / source).read_text()
    found = list(items(text))
    facts = [
        name for name, a, b in found if re.search(r"<\"\w+\"", text[a:b]) and is_fact(text[a:b])
    ]
    seen = {text}
    for name, start, end in found:
        lines = (text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1)
        for at, kind, before, after in edits(text, name, start, end, facts):
            changed = text[:at] + after + text[at + len(before) :]
            if changed not in seen:
                seen.add(changed)
                yield Mutant(manifest, source, name, lines, kind, before, after, changed)


def is_fact(statement: str) -> bool:
    kinds = r"pl::(?:provides|chooses|imports|imports_or|derives)<"
    return re.search(kinds, statement) is not None


def edits(
    text: str, name: str, start: int, end: int, facts: list[str]
) -> Iterator[tuple[int, str, str, str]]:
    """(offset, kind, before, after) of each change of a statement."""
    head = ITEM.match(text, start)
    assert head is not None
    if name == "contract":
        yield from dropped(text, start, end)
        return
    for token in TOKEN.finditer(text, head.end(), end):
        if token[0].startswith("//") or token[0].isspace() or token[0] == name:
            continue
        for kind, other in changes(token[0], facts):
            yield token.start(), kind, token[0], other
    for chained in CHAINED.finditer(text, start, end):
        yield chained.start(), "word", chained[0], ""


def dropped(text: str, start: int, end: int) -> Iterator[tuple[int, str, str, str]]:
    """Each item left out of the contract's list, and its texts changed."""
    listed = text.index("(", start)
    for token in re.finditer(r'"(\w+)"', text[start:listed]):
        yield start + token.start(), "name", token[0], f'"{token[1]}x"'
    for token in re.finditer(r"\b(\w+),\s*", text[listed:end]):
        yield listed + token.start(), "dropped", token[0], ""


# --- Building and judging one -------------------------------------------------------------------


def call(*argv: str) -> tuple[int, str]:
    from pipelink.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(list(argv))
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, said.getvalue()


def tree(number: int, sources: Iterator[str] | tuple[str, ...], manifest: str) -> Path:
    folder = WORK / f"tree{number}"
    for name in (*sources, *HEADERS, manifest):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return folder


def judge(task: tuple[int, Mutant]) -> Mutant:
    """Compiles one owner, links, compares with the control; everything in a folder of its own."""
    number, mutant = task
    sources = KERNELS[mutant.manifest]
    folder = tree(number, sources, mutant.manifest)
    (folder / mutant.source).write_text(mutant.text)
    os.chdir(folder)
    for source in sources:
        if source != mutant.source:
            name = Path(source).with_suffix(".o")
            shutil.copy(WORK / "objects" / name, name)
    own = str(Path(mutant.source).with_suffix(".o"))
    try:
        build(mutant, own, number)
    finally:
        os.chdir(ROOT)
        shutil.rmtree(folder)
    mutant.text = ""
    return mutant


def build(mutant: Mutant, own: str, number: int) -> None:
    code, said = call("compile", mutant.source, "-o", own, "--arch", "sm_90a")
    if code:
        return refused(mutant, "compile", said)
    objects = ("--objects", OBJECTS.get(mutant.manifest, "."))
    code, said = call("check", mutant.manifest, *objects)
    if code:
        return refused(mutant, "check", said)
    code, said = call("link", mutant.manifest, *objects, "-o", "k.cubin")
    if code:
        return refused(mutant, "link", said)
    name = Path(mutant.manifest).name.partition(".")[0]
    original = WORK / "objects" / f"{name}.cubin"
    if text_of(Path("k.cubin")) == text_of(original) and launch_of("k.json") == launch_of(
        original.with_suffix(".json")
    ):
        mutant.outcome = "same kernel"
        return None
    mutant.outcome = "relinked"
    code, said = call("verify", mutant.manifest, *objects, "--root", ".", "--format", "json")
    mutant.differences = len(json.loads(said)["differences"]) if said.startswith("{") else -1
    mutant.cubin = f"build/mutants/linked/{name}_{number}.cubin"
    for suffix in ("cubin", "json"):
        shutil.copy(f"k.{suffix}", (ROOT / mutant.cubin).with_suffix(f".{suffix}"))
    return None


def text_of(cubin: Path) -> dict[str, bytes]:
    from pipelink.elf import read_cubin

    return read_cubin(cubin.read_bytes()).text


def launch_of(path: Path | str) -> dict[str, Any]:
    data = json.loads(Path(path).read_text())
    return {k: data[k] for k in ("threads", "shared_bytes", "arguments", "parameters")}


def refused(mutant: Mutant, step: str, said: str) -> None:
    mutant.outcome = f"refused by {step}"
    mutant.codes = tuple(dict.fromkeys(re.findall(r"error\[(PL\d+)\]", said)))
    mutant.named = names_item(mutant, said)
    mutant.said = said[:200]


def names_item(mutant: Mutant, said: str) -> bool:
    """Whether the diagnostic shows the item, or one that is made of it, or says its name. nvcc shows
    where the code uses it."""
    text = Path(mutant.source).read_text()
    file = re.escape(mutant.source)
    shown = [int(n) for n in re.findall(rf"{file}[:(](\d+)", said)]
    users = made_of(text, mutant.item)
    spans = [(text.count("\n", 0, a) + 1, text.count("\n", 0, b) + 1) for n, a, b in users]
    if any(first <= line <= last for line in shown for first, last in spans):
        return True
    words = set(re.findall(r"\w+", f"{mutant.item} {mutant.before} {mutant.after}"))
    words -= {w for w in words if w.isdigit()}
    if any(re.search(rf"['\".]{word}['\"]", said) for word in words):
        return True
    if "refused by compile" not in mutant.outcome:
        return False
    lines = text.splitlines()
    used = any(re.search(rf"\b{mutant.item}\b", lines[n - 1]) for n in shown if n <= len(lines))
    return used or re.search(rf"\b{re.escape(mutant.after)}\b", said) is not None


def made_of(text: str, item: str) -> list[tuple[str, int, int]]:
    """The statement of an item, and those that it has its place in: an expression or a part has none
    but in what is made of it, and an entry is made of its arguments."""
    found = list(items(text))
    names, grown = {item}, True
    while grown:
        own = text_of_items(text, found, names)
        helpers = [n for n in own if n in names and not re.search(RECORD, own[n])]
        users = {
            n
            for n, a, b in found
            if any(re.search(rf"\b{h}\b", text[a:b]) for h in helpers)
            or (re.search(ENTRY, text[a:b]) and re.search(rf"\b{item}\b", text[a:b]))
        } - {"contract"}
        grown = not users <= names
        names |= users
    return [row for row in found if row[0] in names]


ENTRY = r"pl::(?:entry|schedule)<"
# Statements whose line a contract keeps.
RECORD = (
    r"pl::(?:provides|chooses|imports|imports_or|derives|agrees|extent|requires_that|claims_\w+|"
    r"tensor_map_in|array_\w+|fragment_\w+|ring_\w+|entry|schedule|promises|needs|shared_type)\b"
)


def text_of_items(text: str, found: list[tuple[str, int, int]], names: set[str]) -> dict[str, str]:
    return {n: text[a:b] for n, a, b in found if n in names}


def originals() -> None:
    """Objects and kernels of the sources as they are."""
    shutil.rmtree(WORK / "objects", ignore_errors=True)
    (WORK / "objects").mkdir(parents=True)
    (WORK / "linked").mkdir(exist_ok=True)
    os.chdir(ROOT)
    for manifest, sources in KERNELS.items():
        for source in sources:
            target = WORK / "objects" / Path(source).with_suffix(".o")
            assert call("compile", source, "-o", str(target), "--arch", "sm_90a")[0] == 0, source
        name = Path(manifest).name.partition(".")[0]
        cubin = WORK / "objects" / f"{name}.cubin"
        objects = WORK / "objects" / OBJECTS.get(manifest, ".")
        code, said = call("link", manifest, "--objects", str(objects), "-o", str(cubin))
        assert code == 0, said


def make(only: list[str]) -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    originals()
    found = [
        mutant
        for manifest, sources in KERNELS.items()
        for source in sources
        if not only or source in only
        for mutant in mutants(manifest, source)
    ]
    done = judged(found, [])
    save(done, host=host())
    summary(done)


def again() -> None:
    """Those that were not right, or that have no result yet, once more. A token that stands twice in
    a line with the same change is redone in both places."""
    originals()
    every = [m for k, sources in KERNELS.items() for s in sources for m in mutants(k, s)]
    wanted, right = Counter(map(order, every)), Counter(order(m) for m in load() if not wrong(m))
    done_keys = {key for key, count in wanted.items() if right[key] == count}
    kept = [m for m in load() if order(m) in done_keys]
    done = judged([m for m in every if order(m) not in done_keys], kept)
    save(done, host=host())
    summary(done)


def judged(found: list[Mutant], kept: list[Mutant]) -> list[Mutant]:
    print(f"{len(found)} mutants", flush=True)
    started, done = time.time(), list(kept)
    with multiprocessing.Pool(2) as pool:
        for mutant in pool.imap_unordered(judge, enumerate(found, 10_000 if kept else 0)):
            done.append(mutant)
            if len(done) % 25 == 0:
                save(done, host=host())
                print(f"{len(done)} in {time.time() - started:.0f} s", flush=True)
    return sorted(done, key=order)


def order(mutant: Mutant) -> tuple[Any, ...]:
    return mutant.source, mutant.lines, mutant.before, mutant.after


def save(done: list[Mutant], **circumstances: Any) -> None:
    rows = []
    for mutant in done:
        row = asdict(mutant)
        row.pop("text")
        rows.append(row)
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept = {key: before[key] for key in ("host",) if key in before}
    text = json.dumps({**kept, **circumstances, "mutants": rows}, indent=1)
    RESULTS.write_text(text + "\n")


def load() -> list[Mutant]:
    rows = json.loads(RESULTS.read_text())["mutants"]
    return [
        Mutant(**row | {"lines": tuple(row["lines"]), "codes": tuple(row["codes"])}) for row in rows
    ]


def wrong(mutant: Mutant) -> str:
    """Why a mutant's outcome is not right; empty if it is."""
    if mutant.outcome.startswith("refused"):
        return "" if mutant.named else "the diagnostic does not name the item"
    if mutant.outcome == "same kernel":
        return ""
    if mutant.differences:
        return "not its control"
    return "" if mutant.run in ("right", "") else f"on the device: {mutant.run}"


def summary(done: list[Mutant]) -> None:
    for outcome, count in Counter(m.outcome for m in done).most_common():
        print(f"{count:5} {outcome}")
    for mutant in done:
        if why := wrong(mutant):
            print(
                f"{mutant.source}:{mutant.lines[0]} {mutant.item}: {mutant.before} -> {mutant.after}: {why}"
            )


# --- On the device ------------------------------------------------------------------------------


def run() -> None:
    """Each linked mutant against its reference. A process takes many; one that hangs or faults is
    named by the last line that it wrote, and another process goes on behind it."""
    done = load()
    waiting = [m for m in done if m.cubin]
    while waiting:
        names = [m.cubin for m in waiting]
        process = subprocess.Popen(
            [sys.executable, __file__, "device", *names], stdout=subprocess.PIPE, text=True
        )
        answered = read_answers(process)
        for mutant, answer in zip(waiting, answered, strict=False):
            mutant.run = answer
        left = waiting[len(answered) :]
        if left and not answered_all(process, answered, waiting):
            left[0].run = f"fault: exit code {process.returncode}"
            left = left[1:]
        waiting = left
    save(done, device=circumstances())
    print(Counter(m.run for m in done if m.cubin))
    summary(done)


def answered_all(process: Any, answered: list[str], waiting: list[Mutant]) -> bool:
    return len(answered) == len(waiting)


def read_answers(process: Any) -> list[str]:
    """One line a mutant; silence of 30 s is a hang."""
    import select

    answers = []
    while True:
        ready, _, _ = select.select([process.stdout], [], [], 30 if answers else 120)
        if not ready:
            process.kill()
            process.wait()
            return [*answers, "hang"]
        line = process.stdout.readline()
        if not line:
            process.wait()
            return answers
        answers.append(line.strip())


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


# --- The table ----------------------------------------------------------------------------------

PAGE = ROOT / "docs/mutations.md"
HEAD = """# What a changed contract does

Generated by `python bench/mutations.py table` from bench/results/mutations.json.

A *mutant* is one owner's source with one token of its contract changed: a number, a name, a type, an
operator, a fact in an expression, a part of a layout, a text, or an item left out of the list. That
owner alone is compiled anew, and the kernel is linked with the other owners' objects as they are. Two
ends are right: a refusal whose diagnostic names the mutated item (its line, or its name), or the right
kernel. *Same kernel*: to the byte the code of before. *Relinked*: other code, of which every instruction
is its control's, and which was run on the GPU against the reference.

"""


def table() -> None:
    done = load()
    data = json.loads(RESULTS.read_text())
    PAGE.write_text("\n".join([HEAD, *_counts(done), "", *_details(done, data), ""]))


def _kind_of(mutant: Mutant) -> str:
    if mutant.outcome.startswith("refused"):
        return mutant.outcome.removeprefix("refused by ")
    return "same" if mutant.outcome == "same kernel" else "relinked"


def _counts(done: list[Mutant]) -> Iterator[str]:
    columns = ("compile", "check", "link", "same", "relinked")
    titles = "refused: compile | check | link | same kernel | relinked, right | not right"
    for title, key in (("source", lambda m: f"`{m.source}`"), ("token", lambda m: m.kind)):
        yield f"| {title} | mutants | {titles} |"
        yield "|---|" + "---:|" * 7
        groups = sorted({key(m) for m in done})
        for group in [*groups, "all"]:
            own = [m for m in done if group in (key(m), "all")]
            right = Counter(_kind_of(m) for m in own if not wrong(m))
            cells = [right[column] for column in columns]
            bad = sum(bool(wrong(m)) for m in own)
            yield f"| {group} | {len(own)} | {' | '.join(map(str, cells))} | {bad} |"
        yield ""


def _details(done: list[Mutant], data: dict[str, Any]) -> Iterator[str]:
    codes = Counter(code for m in done for code in m.codes[:1])
    listed = ", ".join(f"{code} {count}" for code, count in sorted(codes.items()))
    yield f"First code of each refusal: {listed}. `pipelink explain CODE` tells what each is."
    yield ""
    where = data.get("device")
    ran = sum(bool(m.run) for m in done)
    if where:
        yield (
            f"{ran} relinked kernels ran on {where['device']}, driver {where['driver']}, "
            f"commit {where['commit'][:12]}."
        )
        yield ""
    yield "Relinked:"
    yield ""
    yield "| place | change | against the control | on the GPU |"
    yield "|---|---|---|---|"
    for m in done:
        if m.cubin:
            change = f"`{m.before}` to `{m.after}`".replace("|", "\\|")
            same = "0 differ" if m.differences == 0 else f"{m.differences} differ"
            yield f"| {m.source}:{m.lines[0]} `{m.item}` | {change} | {same} | {m.run or 'not run'} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("call", choices=("make", "again", "run", "table", "device", "list"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.call == "make":
        make(args.names)
    elif args.call == "again":
        again()
    elif args.call == "run":
        run()
    elif args.call == "table":
        table()
    elif args.call == "device":
        device(args.names)
    elif args.call == "list":
        for manifest, sources in KERNELS.items():
            for source in sources:
                found = list(mutants(manifest, source))
                print(source, len(found), dict(Counter(m.kind for m in found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

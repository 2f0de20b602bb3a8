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
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.circumstances import circumstances, host  # noqa: E402
from bench.mutants import Mutant, items, mutants  # noqa: E402

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
    RESULTS.unlink(missing_ok=True)
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
    kept = {key: before[key] for key in ("host", "device") if key in before}
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
            [sys.executable, str(ROOT / "bench/mutants_device.py"), *names],
            stdout=subprocess.PIPE,
            text=True,
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
    parser.add_argument("call", choices=("make", "again", "run", "table", "list"))
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
    elif args.call == "list":
        for manifest, sources in KERNELS.items():
            for source in sources:
                found = list(mutants(manifest, source))
                print(source, len(found), dict(Counter(m.kind for m in found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

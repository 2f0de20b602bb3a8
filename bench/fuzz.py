"""Hostile objects: damaged files and contracts through the reader, and what it takes through all passes.

    python bench/fuzz.py [--seed N] [--scale F] [--jobs N] [--only KIND] [--one KIND:NUMBER]

judge.py says what an input may do; what does more is saved under build/fuzz, shrunk, and makes the
exit code 1. An input follows from seed, kind and number alone: hostile.py and wide.py make them. They
run in worker processes, a batch in each.
"""

import argparse
import collections
import datetime
import json
import multiprocessing
import os
import platform
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "bench"))

import hostile  # noqa: E402
import wide  # noqa: E402
from hostile import CONTRACT, Case, note, object_  # noqa: E402
from judge import MOST_KIB, MOST_SECONDS, Verdict, judge, lay, ready, scratch  # noqa: E402

SILENT_S = 20.0  # a worker that says nothing for so long hangs where no signal reaches it
BATCH = 250
SHRINK_S = 30.0
COUNTS = {"contract": 58_000, "lines": 4_000, "wide": 4_200, "object": 33_800, "random": 10_000}
SAVED = ROOT / "build" / "fuzz"


def make(seed: int, kind: str, number: int) -> Case:
    """The input of a number."""
    rng = random.Random(f"{seed} {kind} {number}")
    if kind == "object":
        return hostile.object_case(rng, number, KERNELS)
    makers = {"contract": hostile.contract_case, "lines": hostile.lines_case}
    return (makers | {"wide": wide.wide_case, "random": hostile.random_case})[kind](rng, number)


KERNELS = hostile.kernels()


def work(pipe: Connection, folder: str, seed: int, kind: str, numbers: range) -> None:
    """A worker: a batch of inputs, each verdict at once. One that took too much memory ends it."""
    ready()
    lay(Path(folder), KERNELS)
    for number in numbers:
        verdict = judge(Path(folder), make(seed, kind, number), kind, number)
        pipe.send(verdict)
        if verdict.stage == "memory":
            return


class Worker:
    """A process with its batch."""

    def __init__(self, seed: int, kind: str, numbers: range) -> None:
        self.kind, self.left, self.heard = kind, numbers, time.monotonic()
        self.folder = scratch()
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        arguments = (theirs, self.folder.name, seed, kind, numbers)
        self.process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
        self.process.start()
        theirs.close()

    def hear(self) -> Verdict | None:
        """The next verdict; None if there will be none."""
        try:
            verdict: Verdict = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.left, self.heard = self.left[1:], time.monotonic()
        return verdict

    def end(self) -> Verdict | None:
        """Ends the process; the verdict if it had not finished."""
        silent = self.process.is_alive() and time.monotonic() - self.heard > SILENT_S
        if silent:
            self.process.kill()
        self.process.join()
        self.folder.cleanup()
        if not silent and self.process.exitcode == 0:
            return None
        what = "" if silent else f"exit code {self.process.exitcode}"
        stage, number = "hang" if silent else "crash", self.left[0] if self.left else -1
        self.left = self.left[1:]
        return Verdict(self.kind, self.kind, number, stage, what)


def campaign(seed: int, counts: dict[str, int], jobs: int) -> Iterator[Verdict]:
    """Every verdict, as they come."""
    batches = collections.deque(
        (kind, range(at, min(at + BATCH, n)))
        for kind, n in counts.items()
        for at in range(0, n, BATCH)
    )
    workers: dict[Connection, Worker] = {}
    while batches or workers:
        while batches and len(workers) < jobs:
            worker = Worker(seed, *batches.popleft())
            workers[worker.pipe] = worker
        heard = wait(list(workers), 1.0)
        for pipe, worker in list(workers.items()):
            verdict = worker.hear() if pipe in heard else None
            if verdict is None and (pipe in heard or time.monotonic() - worker.heard > SILENT_S):
                del workers[pipe]
                verdict = worker.end()
                if worker.left:
                    batches.appendleft((worker.kind, worker.left))
            if verdict is not None:
                yield verdict


class Tally:
    """What the table and the result file say."""

    def __init__(self) -> None:
        self.outcomes: dict[str, collections.Counter[str]] = {}
        self.read: list[Verdict] = []
        self.slowest: list[Verdict] = []
        self.peak: Verdict | None = None
        self.wrong: dict[tuple[str, str], list[Verdict]] = {}

    def add(self, verdict: Verdict) -> None:
        what = (
            verdict.stage
            if verdict.wrong or verdict.stage == "plan"
            else f"{verdict.stage} {verdict.what}"
        )
        self.outcomes.setdefault(verdict.kind, collections.Counter())[what] += 1
        self.read = sorted([*self.read, verdict], key=lambda v: -v.read_s)[:10]
        self.slowest = sorted([*self.slowest, verdict], key=lambda v: -v.all_s)[:10]
        self.peak = max(self.peak or verdict, verdict, key=lambda v: v.peak_kib)
        if verdict.wrong:
            self.wrong.setdefault((verdict.stage, verdict.what or verdict.name), []).append(verdict)

    def kinds(self) -> dict[str, dict[str, Any]]:
        """Of each kind: how many, how many the reader took, how many have a plan, refusals by code."""
        rows = {}
        for kind, found in self.outcomes.items():
            read = {w[5:]: n for w, n in sorted(found.items()) if w.startswith("read ")}
            passes = {w[7:]: n for w, n in sorted(found.items()) if w.startswith("passes ")}
            wrong = sum(v.kind == kind for own in self.wrong.values() for v in own)
            rows[kind] = {
                "inputs": sum(found.values()),
                "refused_by_reader": read,
                "refused_by_passes": passes,
                "planned": found["plan"],
                "wrong": wrong,
            }
        return rows


def smaller(data: bytes) -> Iterator[bytes]:
    """The text of a JSON value without some of its items, or bytes without some of them."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        size = len(data) // 2
        while size:
            yield from (data[:at] + data[at + size :] for at in range(0, len(data), size))
            size //= 2
        return
    boxes = [
        tree,
        *(box[key] for box, key, _ in hostile.nodes(tree) if isinstance(box[key], list | dict)),
    ]
    for box in boxes:
        size = max(1, len(box) // 2)
        while size and box:
            for at in range(0, len(box), size):
                kept = list(box.items()) if isinstance(box, dict) else list(box)
                put(box, kept[:at] + kept[at + size :])
                yield json.dumps(tree).encode()
                put(box, kept)
            size //= 2


def put(box: Any, items: list[Any]) -> None:
    box.clear()
    box.update(items) if isinstance(box, dict) else box.extend(items)


def shrink(folder: str, case: Case, verdict: Verdict, target: Path) -> None:
    """Leaves out what it can while the input does the same wrong; the best so far is in `target`."""
    ready()
    lay(Path(folder), KERNELS)
    name, whole = next(iter(case.objects.items()))
    best = case.texts[name] if case.texts else whole
    going = True
    while going:
        going = False
        for text in smaller(best):
            data = object_(note(CONTRACT, text)) if case.texts else text
            tried = judge(Path(folder), case._replace(objects={name: data}), verdict.kind, 0)
            if len(text) < len(best) and (tried.stage, tried.what) == (verdict.stage, verdict.what):
                best, going = text, True
                target.write_bytes(data)
                break


def save(seed: int, verdict: Verdict) -> str:
    """Writes the input, a shrunk one beside it, and the traceback."""
    case = make(seed, verdict.kind, verdict.number)
    stem = SAVED / f"{verdict.stage}-{verdict.name}-{verdict.number}"
    SAVED.mkdir(parents=True, exist_ok=True)
    for name, data in case.objects.items():
        Path(f"{stem}.{name}").write_bytes(data)
    Path(f"{stem}.txt").write_text(f"{verdict._replace(trace='')}\n{case.kernel}\n{verdict.trace}")
    if verdict.stage in ("exception", "slow") and len(case.objects) == 1:
        with scratch() as folder:
            arguments = (folder, case, verdict, Path(f"{stem}.small.o"))
            process = multiprocessing.get_context("fork").Process(target=shrink, args=arguments)
            process.start()
            process.join(SHRINK_S)
            process.kill()
            process.join()
    return str(stem.relative_to(ROOT))


def said(verdict: Verdict) -> dict[str, Any]:
    return {
        "input": f"{verdict.kind}:{verdict.number}",
        "name": verdict.name,
        "read_s": round(verdict.read_s, 4),
        "all_s": round(verdict.all_s, 4),
        "peak_mib": round(verdict.peak_kib / 1024, 1),
    }


def circumstances(seed: int) -> dict[str, Any]:
    def git(*arguments: str) -> str:
        run_ = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
        )
        return run_.stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return {
        "command": shlex.join(["python", "bench/fuzz.py", *sys.argv[1:]]),
        "commit": git("rev-parse", "HEAD") + (" with changes" if changes else ""),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "seed": seed,
        "limits": {"processor_s": MOST_SECONDS, "peak_mib": MOST_KIB // 1024},
    }


def table(tally: Tally) -> None:
    print(f"{'kind':10} {'inputs':>8} {'reader':>8} {'passes':>8} {'planned':>8} {'wrong':>6}")
    for kind, row in tally.kinds().items():
        refused = [sum(row[key].values()) for key in ("refused_by_reader", "refused_by_passes")]
        print(
            f"{kind:10} {row['inputs']:8} {refused[0]:8} {refused[1]:8} {row['planned']:8} {row['wrong']:6}"
        )
    for title, verdict in (
        ("reader", tally.read[0]),
        ("all", tally.slowest[0]),
        ("peak", tally.peak),
    ):
        print(f"{title}: {said(verdict)}" if verdict else "")
    for (stage, what), found in sorted(tally.wrong.items()):
        print(f"wrong: {stage} {what}: {len(found)} times, first {found[0].kind}:{found[0].number}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of inputs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=list(COUNTS))
    parser.add_argument("--one", help="KIND:NUMBER of an input to run here")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/fuzz.json")
    args = parser.parse_args()
    if args.one:
        kind, _, number = args.one.partition(":")
        ready()
        with scratch() as folder:
            lay(Path(folder), KERNELS)
            verdict = judge(Path(folder), make(args.seed, kind, int(number)), kind, int(number))
        print(verdict._replace(trace=""), verdict.trace, sep="\n")
        return int(verdict.wrong)
    begin, about, tally = time.monotonic(), circumstances(args.seed), Tally()
    counts = {k: round(n * args.scale) for k, n in COUNTS.items() if args.only in (None, k)}
    for verdict in campaign(args.seed, counts, args.jobs):
        tally.add(verdict)
    table(tally)
    result = about | {
        "wall_s": round(time.monotonic() - begin),
        "kinds": tally.kinds(),
        "slowest_in_reader": [said(v) for v in tally.read],
        "slowest": [said(v) for v in tally.slowest],
        "peak": said(tally.peak) if tally.peak else None,
        "wrong": [
            {"what": " ".join(key), "times": len(found), "saved": save(args.seed, found[0])}
            for key, found in sorted(tally.wrong.items())
        ],
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())

"""One hostile input through PipeLink: what came of it, in which time and memory.

An input is an object in the place of a good one of a kernel. It must end in a plan that holds or in
diagnostics: with no other exception, in 1 s of processor time and 256 MiB of the whole process.
"""

import ctypes
import io
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parent))

from hostile import Case, Kernel

from pipelink import contract, driver, expression
from pipelink.diagnostics import Diagnostic, InputError
from pipelink.form import sizes
from pipelink.model import Plan
from pipelink.render import render
from pipelink.report.diagnostics import as_json, as_text
from pipelink.report.locate import locator
from pipelink.report.text import print_contract

LIBC = ctypes.CDLL(None)
MOST_SECONDS = 1.0
MOST_KIB = 256 << 10
SPARE_ADDRESSES = 512 << 20  # more than is allowed, so that what is too much is seen as that
INSPECTED = ("contract", "object")  # printing takes rich a millisecond a record


class TimeUp(BaseException):
    """The processor time of an input is over; no pass catches it."""


class Unsound(Exception):
    """A plan or a text that can't be."""


class Verdict(NamedTuple):
    """What came of an input. `stage` is "read" if the reader refused it, "passes" if a later one did,
    "plan" if there is one, else what went wrong; `what` is a code, or the exception and its place."""

    kind: str
    name: str
    number: int
    stage: str
    what: str
    read_s: float = 0.0
    all_s: float = 0.0
    peak_kib: int = 0
    trace: str = ""

    @property
    def wrong(self) -> bool:
        return self.stage not in ("read", "passes", "plan")


def lay(folder: Path, kernels: dict[str, Kernel]) -> None:
    """The kernels, each in a folder of its own."""
    for name, kernel in kernels.items():
        for path, data in kernel.objects.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_bytes(data)
        (folder / name / "k.kernel.toml").write_bytes(kernel.manifest)


def peak_kib() -> int:
    """The highest resident memory of this process since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


class Clock:
    """Processor time, and the highest memory since its start."""

    def __init__(self, limited: bool) -> None:
        self.read_s, self.limited = 0.0, limited
        if limited:
            LIBC.malloc_trim(0)  # what made the input is no memory of the reader
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            # Again and again: in a finalizer the first would be lost.
            signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS, 0.05)
        self.begin = time.process_time()

    def now(self) -> float:
        return time.process_time() - self.begin

    def halt(self) -> None:
        if self.limited:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def stop(self) -> tuple[float, float, int]:
        """Seconds in the reader and in all, and the peak in KiB."""
        seconds = self.now()
        self.halt()
        if not self.limited:
            return self.read_s or seconds, seconds, 0
        return self.read_s or seconds, seconds, peak_kib()


def run(folder: Path, case: Case, clock: Clock) -> tuple[str, str]:
    """(stage, code) of an input that behaves; any exception but InputError is one that it lets out."""
    objects = folder / case.kernel
    manifest, stage = objects / "k.kernel.toml", "read"
    try:
        found = [contract.read_object(objects / name) for name in case.objects]
        clock.read_s, stage = clock.now(), "passes"
        if case.name in INSPECTED:
            print_contract(found[0].contract, io.StringIO())
            if list(sizes(found[0].contract)):
                raise Unsound("a contract out of bounds")
        plan = driver.plan(driver.read(manifest, driver.Sources(objects)))
        sound(plan, driver.encode_plan(plan), render(plan), folder)
    except InputError as error:
        told(list(error.diagnostics), manifest, objects)
        return stage, error.diagnostics[0].code
    return "plan", ""


def told(found: list[Diagnostic], manifest: Path, objects: Path) -> None:
    """Diagnostics can be shown, and steer no terminal."""
    locate = locator(manifest, objects)
    text = as_text(found, locate)
    if not text or any(not (c.isprintable() or c == "\n") for c in text):
        raise Unsound("a diagnostic that can't be shown")
    json.loads(as_json(found, locate))


def sound(plan: Plan, encoded: bytes, glue: str, folder: Path) -> None:
    """A plan is read as it was written, its regions are disjoint, and the glue has no line of an
    object's own."""
    (folder / "plan.json").write_bytes(encoded)
    try:
        if driver.read_plan(folder / "plan.json") != plan:
            raise Unsound("a plan that is read as another one")
    except InputError as error:
        raise Unsound("a plan that is not read") from error
    spans = [(r.offset, r.offset + r.bytes) for r in plan.regions if r.bytes]
    spans += [(m.offset, m.offset + 8 * m.count) for m in plan.mbarriers]
    spans = [(0, 0), *sorted(spans), (plan.shared_bytes, 0)]
    if any(spans[n][1] > spans[n + 1][0] for n in range(len(spans) - 1)):
        raise Unsound("regions that overlap")
    taken = [b.id + n for b in plan.barriers for n in range(b.count)]
    if len(set(taken)) != len(taken) or not set(taken) <= set(range(1, 16)):
        raise Unsound("barriers that overlap")
    if any(line.lstrip().startswith("#error") or line.endswith("\\") for line in glue.splitlines()):
        raise Unsound("glue with a line of an object's")


def judge(folder: Path, case: Case, kind: str, number: int, limited: bool = True) -> Verdict:
    """Runs an input, in a process that is `ready` if it is limited. The good objects are back in
    their places afterwards."""
    paths = {folder / case.kernel / name: data for name, data in case.objects.items()}
    good = {path: path.read_bytes() for path in paths}
    for path, data in paths.items():
        path.write_bytes(data)
    expression._names.cache_clear()
    expression._parse.cache_clear()
    clock, trace = Clock(limited), ""
    try:
        stage, what = run(folder, case, clock)
    except (Exception, TimeUp) as error:
        clock.halt()
        trace = "".join(traceback.format_exception(error)[-40:])
        stage = "slow" if isinstance(error, TimeUp) else "exception"
        what = place(error) if stage == "exception" else ""
    read_s, all_s, peak = clock.stop()
    if peak > MOST_KIB:
        stage, what = "memory", ""
    for path, data in good.items():
        path.write_bytes(data)
    return Verdict(kind, case.name, number, stage, what, read_s, all_s, peak, trace)


def place(error: BaseException) -> str:
    """The exception and the innermost function of PipeLink in it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/pipelink/" in f.filename]
    where = f" in {Path(frames[-1].filename).name}, {frames[-1].name}" if frames else f": {error}"
    return type(error).__name__ + where


def ready() -> None:
    """The limits of a worker. The first input pays for no import."""

    def up(*_: object) -> None:
        raise TimeUp

    signal.signal(signal.SIGPROF, up)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE_ADDRESSES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)

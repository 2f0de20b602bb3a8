"""What tests share: a kernel's folder, a call of the command line, the objects of the ffn kernel."""

import contextlib
import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from contracts import ALL, MANIFEST, encode, places
from minimal_elf import CONTRACT, PLACES, note, object_

from pipelink import driver
from pipelink.abi import Contract
from pipelink.cli import main
from pipelink.diagnostics import Diagnostic, InputError
from pipelink.model import Kernel, Plan
from pipelink.resolve import resolve
from pipelink.view import View

ROOT = Path(__file__).resolve().parent.parent
FFN = Path("components/ffn")


class Toy:
    """The kernel of contracts.py in the working folder, as contracts or as objects."""

    manifest = Path("toy.kernel.toml")

    def __init__(self) -> None:
        self.text = MANIFEST
        self.contracts: dict[str, Contract] = dict(ALL)

    def edit(self, old: str, new: str) -> None:
        """Changes the manifest."""
        assert self.text.count(old) == 1, old
        self.text = self.text.replace(old, new)

    def objects(self) -> None:
        """Writes the manifest and objects without code."""
        self.manifest.write_text(self.text)
        for name, contract in self.contracts.items():
            lines = note(PLACES, encode(places(contract)))
            Path(f"{name}.o").write_bytes(object_(note(CONTRACT, encode(contract)), lines))

    def kernel(self) -> Kernel:
        self.manifest.write_text(self.text)
        for name, contract in self.contracts.items():
            Path(f"{name}.contract.json").write_bytes(encode(contract))
        return driver.read(self.manifest, driver.Sources(Path(), contracts=True))

    def view(self) -> View:
        kernel = self.kernel()
        return View(kernel, *resolve(kernel))

    def plan(self) -> Plan:
        return driver.plan(self.kernel())

    def faults(self) -> list[Diagnostic]:
        """What planning finds; none is a failure of the test."""
        with pytest.raises(InputError) as caught:
            self.plan()
        return list(caught.value.diagnostics)

    def messages(self) -> list[str]:
        return [f"{d.code}: {d.message}" for d in self.faults()]


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The working folder is empty, so that messages have short paths."""
    monkeypatch.chdir(tmp_path)
    return Toy()


class Called(NamedTuple):
    """What a call of the command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    def call(*argv: object) -> Called:
        capsys.readouterr()
        try:
            code = main([str(a) for a in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Called(code, *capsys.readouterr())

    return call


def files() -> dict[str, bytes]:
    """Every file in the working folder, with its content."""
    return {str(p): p.read_bytes() for p in Path().rglob("*") if p.is_file()}


# All that an object depends on; a stale object would make tests pass on yesterday's code.
READ = ("components/ffn/*.cu*", "pipelink/include/**/*.cuh", "pyproject.toml")
COMPILER = ("toolchain", "prelude", "floating", "cli", "abi")


@pytest.fixture(scope="session")
def objects() -> Path:
    """The compiled ffn components, made once for each content of sources and header."""
    sources = [p for pattern in READ for p in sorted(ROOT.glob(pattern))]
    sources += [ROOT / "pipelink" / f"{name}.py" for name in COMPILER]
    key = hashlib.sha256(b"\0".join(p.read_bytes() for p in sources)).hexdigest()[:16]
    folder = ROOT / "build" / "test-objects" / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock, contextlib.chdir(ROOT):
        # One worker compiles, the others wait for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ("loader", "mainloop", "epilogue"):
            made = folder / FFN / f"{name}.o"
            if not made.exists():
                made.parent.mkdir(parents=True, exist_ok=True)
                source = str(FFN / f"{name}.cu")
                assert main(["compile", source, "-o", str(made), "--arch", "sm_90a"]) == 0
    return folder

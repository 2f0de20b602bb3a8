"""nvcc, nvJitLink and the disassembler: the only importer of subprocess and the CUDA bindings.

The toolchain is the one of the `nvidia` wheels beside PipeLink. An installed CUDA toolkit is used
only where PIPELINK_CUDA_HOME names it. The link is nvJitLink, never the driver.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelink.abi import NOTE_SECTION
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, ToolError, checkpoint
from pipelink.floating import PRECISE, FloatingPoint
from pipelink.resources import include_dir

CXX20 = "-std=c++20"
STANDARD = (CXX20, "-O3", "-DNDEBUG")


@dataclass(frozen=True)
class Linked:
    """A cubin and what the linker said."""

    cubin: bytes
    log: str


class LinkFailed(Exception):
    """nvJitLink refused; `log` is what it said."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def cuda_home() -> Path:
    """The folder with bin/nvcc."""
    asked = os.environ.get("PIPELINK_CUDA_HOME")
    if asked:
        return Path(asked)
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for home in sorted(Path(folder).glob("cu*"), reverse=True):
            if (home / "bin" / "nvcc").exists():
                return home
    raise ToolError(
        "there is no nvcc: install PipeLink with its requirements, or set PIPELINK_CUDA_HOME"
    )


def tool(name: str) -> str:
    """The path of one of the toolkit's programs."""
    path = cuda_home() / "bin" / name
    if not path.exists():
        raise ToolError(f"there is no {name} in {path.parent}")
    return str(path)


@contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """A folder next to an output; whole files are moved out of it, nothing half-written stays."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".pipelink-", dir=beside.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    with scratch(path) as folder:
        part = folder / path.name
        part.write_bytes(data)
        os.replace(part, path)


def code_target(arch: str) -> list[str]:
    """LTO-IR alone, for `arch`."""
    number = arch.removeprefix("sm_")
    return ["-gencode", f"arch=compute_{number},code=lto_{number}"]


def _relative(path: Path | str) -> str:
    """nvcc passes paths through a shell: relative ones are free of what stands above."""
    return os.path.relpath(path)


def _shelled(path: Path) -> str:
    """A source or an output. nvcc escapes the `$` of include paths, and of these it does not."""
    return _relative(path).replace("$", "\\$")


def _nvcc(
    arguments: Sequence[str], source: Path, meanwhile: Callable[[], object] | None = None
) -> str:
    """Runs nvcc, and `meanwhile` beside it; returns what nvcc said."""
    command = [tool("nvcc"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        if meanwhile:
            meanwhile()
        said, _ = run.communicate()
    if run.returncode:
        raise InputError(*_compiler_faults(said, source))
    return said


_COMPILER_ERROR = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic |fatal )?error(?: #[\w-]+)?: (.*)$")
_COMPILER_WARNING = re.compile(r"^.+?\(\d+\): (?:warning|remark) #[\w-]+: |^Remark: ")
# All but the one that names a call which is not constant: a contract that is too long says so by it.
_COMPILER_NOTE = re.compile(r"^\s*.+?\(\d+\): note #(?!2703)\d+-D: ")
_USE = re.compile(r"\bat line (\d+) of (.+)$")
_ASSERTED = re.compile(r'static assertion failed with "(.*)"')
_LINES_BELOW = 6
_ENTRY = re.compile(r"pipelink__(\w+?)__(\w+)")


def _compiler_faults(said: str, source: Path) -> list[Diagnostic]:
    """nvcc's errors, each at its line with what nvcc says below it."""
    found: list[tuple[str, str, list[str]]] = []
    below: list[str] = []
    for line in said.splitlines():
        match = _COMPILER_ERROR.match(line)
        if match or _COMPILER_WARNING.match(line):
            below = []  # of a warning it is thrown away
        if match:
            found.append((f"{match[1]}:{match[2]}", match[3], below))
        elif line.strip() and "detected in the compilation of" not in line:
            below.append(line.rstrip())
    if not found:
        notes = tuple(filter(str.strip, said.splitlines()))
        place = FilePlace(str(source))
        return [Diagnostic("PL009", f"nvcc refuses {source}", place, notes=notes)]
    return list(dict.fromkeys(_compiler_fault(*row) for row in found))


def _compiler_fault(where: str, what: str, below: list[str]) -> Diagnostic:
    entry = _ENTRY.search(what)
    if entry and '"C" linkage' in what:
        message = f"entry '{entry[2]}' of {entry[1]} is defined with other arguments than its contract lists"
        help_ = "take `self`, then what the item lists, in that order; or change the item"
        item = _entry_item(where.rpartition(":")[0], entry[2])
        notes = (f"nvcc: {what}",)
        return Diagnostic("PL009", message, FilePlace(where), item, notes=notes, help=help_)
    used, asserted = _use(where, below), _ASSERTED.fullmatch(what)
    if used and asserted:
        return Diagnostic("PL009", asserted[1], FilePlace(used))
    sides = (FilePlace(where),) if used else ()
    place = FilePlace(used or where)
    return Diagnostic("PL009", f"nvcc: {what}", place, sides, notes=_below(below))


def _entry_item(file: str, entry: str) -> tuple[FilePlace, ...]:
    """The line of a source on which an entry is made."""
    try:
        lines = Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return ()
    made = re.compile(rf'\b(?:entry|schedule)<"{entry}">')
    found = [number for number, line in enumerate(lines, 1) if made.search(line)]
    return tuple(FilePlace(f"{file}:{n}", label="what its contract lists") for n in found[:1])


def _use(where: str, below: Sequence[str]) -> str:
    """The line that uses PipeLink's header, of an error within the header; else empty."""
    if not Path(where.rpartition(":")[0]).resolve().is_relative_to(include_dir().resolve()):
        return ""
    uses = [match for line in below if (match := _USE.search(line))]
    return f"{uses[-1][2]}:{uses[-1][1]}" if uses else ""


def _below(lines: Sequence[str]) -> tuple[str, ...]:
    """What nvcc says below an error, without its own picture of lines, a line and a caret, and
    without all that was tried."""
    kept = [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if line.strip() != "^" and below.strip() != "^" and not _COMPILER_NOTE.match(line)
    ]
    more = len(kept) - _LINES_BELOW
    if more > 0:
        kept = [*kept[:_LINES_BELOW], f"and {more} more line{'s' if more > 1 else ''}"]
    return ("\n".join(kept),) if kept else ()


_UNUSED = re.compile(
    r'^(.+)\((\d+)\): warning #177-D: variable "(?:.*::)?(\w+)" was declared but never referenced$',
    re.MULTILINE,
)
_ITEM = re.compile(
    r"\bconstexpr auto\b[^;]*=\s*(?:\w+::)*(?:provides|chooses|imports|imports_or|derives|agrees|"
    r"extent|requires_that|promises|needs|claims_\w+|tensor_map_in|(?:array|fragment|ring)_(?:in|out)|"
    r"shared_type|entry|schedule)\s*[<(]"
)


def _unlisted(said: str, source: Path) -> list[Diagnostic]:
    """The items of a source that nothing uses: pl::contract does not list them, so the link would not
    know them. Those of a header may be for others."""
    found = []
    lines = source.read_text(errors="replace").splitlines()
    for file, line, name in _UNUSED.findall(said):
        statement = "\n".join(lines[int(line) - 1 :]).partition(";")[0]
        if Path(file).resolve() == source.resolve() and _ITEM.search(statement):
            message = f"item '{name}' is not listed in the contract"
            help_ = "list it in pl::contract, or remove it"
            found.append(Diagnostic("PL051", message, FilePlace(f"{file}:{line}"), help=help_))
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class CompileOptions:
    """How one component is compiled."""

    arch: str
    include: tuple[str, ...] = ()
    define: tuple[str, ...] = ()
    floating_point: FloatingPoint = PRECISE
    lineinfo: bool = False
    depfile: Path | None = None


def flags(options: CompileOptions) -> list[str]:
    """The flags that a component and the control have in common. nvcc splits -D at commas, so
    defines stand in the prelude."""
    include = [_relative(include_dir()), *(_relative(i) for i in options.include)]
    line = ["-lineinfo"] if options.lineinfo else []
    return [*STANDARD, *options.floating_point.nvcc(), *line, *(f"-I{i}" for i in include)]


def compile_component(
    source: Path,
    output: Path,
    options: CompileOptions,
    prelude: str,
    accept: Callable[[bytes, str], bytes],
) -> str:
    """Compiles one component to an object with LTO-IR; returns what nvcc said.

    `accept` takes the object and the device unit that it was made of before it is published: it
    raises if they are no component, and returns a note to add.
    """
    if not source.is_file():
        raise InputError(
            Diagnostic("PL001", f"{source} can't be read: no such file", FilePlace(str(source)))
        )
    with scratch(output) as folder:
        header = folder / "pipelink-build.h"
        header.write_text(prelude)
        part = folder / output.name
        depends = ["-MD", "-MF", _shelled(folder / "depends")] if options.depfile else []
        said = _nvcc(
            [
                "-dc",
                *code_target(options.arch),
                *flags(options),
                "-objtemp",
                "--keep",
                "-include",
                _relative(header),
                *depends,
                _shelled(source),
                "-o",
                _shelled(part),
            ],
            source,
        )
        checkpoint(_unlisted(said, source))
        unit = folder / f"{output.name}.cudafe1.gpu"
        _add_note(part, accept(part.read_bytes(), unit.read_text(errors="replace")))
        if options.depfile:
            _write_depfile(folder / "depends", options.depfile, output, header)
        os.replace(part, output)
    return said


def _add_note(path: Path, note: bytes) -> None:
    """Adds a section of notes to an object, by the assembler's companion."""
    extra = path.with_suffix(".note")
    extra.write_bytes(note)
    section = f"{NOTE_SECTION}.symbols"
    program = shutil.which("objcopy")
    if program is None:
        raise ToolError("there is no objcopy beside gcc: it comes with binutils")
    command = [program, "--add-section", f"{section}={extra}"]
    command += ["--set-section-flags", f"{section}=noload,readonly", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ToolError(f"objcopy can't add {section} to {path.name}", run.stderr)


def demangled(names: Sequence[str]) -> list[str]:
    """C++ names as people write them."""
    program = shutil.which("c++filt")
    if program is None:
        raise ToolError("there is no c++filt beside gcc: it comes with binutils")
    text = "\n".join(names)
    run = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ToolError("c++filt can't read names", run.stderr)
    return run.stdout.rstrip("\n").split("\n") if names else []


def _write_depfile(made: Path, depfile: Path, output: Path, prelude: Path) -> None:
    _, _, depends = made.read_text().partition(":")
    words = [w for w in depends.replace("\\\n", " ").split() if Path(w).name != prelude.name]
    publish(depfile, f"{output}: {' '.join(words)}\n".encode())


def compile_glue(source: Path, arch: str, floating_point: FloatingPoint) -> bytes:
    """The glue's LTO-IR as a fatbin.

    Without host code it takes a third of the time of an object. The include guard of
    cuda_runtime.h, which nvcc puts before every source, is set, because parsing it takes five times
    as long as all else; abi.cuh has what the glue needs. The linker is loaded meanwhile.
    """
    options = CompileOptions(arch, floating_point=floating_point)
    settings = ["-std=c++17" if f == CXX20 else f for f in flags(options)]
    with scratch(source) as folder:
        part = folder / "glue.fatbin"
        _nvcc(
            [
                "-fatbin",
                "-rdc=true",
                "-D__CUDA_RUNTIME_H__",
                "-DPIPELINK_GLUE_ALONE",
                *code_target(arch),
                *settings,
                _shelled(source),
                "-o",
                _shelled(part),
            ],
            source,
            linker_version,
        )
        return part.read_bytes()


def compile_control(source: Path, output: Path, options: CompileOptions) -> None:
    """One unit to a cubin, never through LTO."""
    with scratch(output) as folder:
        part = folder / output.name
        _nvcc(
            [
                "-cubin",
                f"-arch={options.arch}",
                *flags(options),
                _shelled(source),
                "-o",
                _shelled(part),
            ],
            source,
        )
        os.replace(part, output)


def _nvjitlink() -> Any:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, OSError, RuntimeError) as error:
        raise ToolError(f"nvJitLink can't be loaded: {error}") from error
    return nvjitlink


def linker_version() -> tuple[int, int]:
    """(major, minor) of nvJitLink."""
    major, minor = _nvjitlink().version()
    return int(major), int(minor)


def link(
    inputs: Sequence[tuple[str, bytes]],
    arch: str,
    floating_point: FloatingPoint,
    *,
    lineinfo: bool = False,
) -> Linked:
    """Links objects and fatbins, each (name, bytes), with link-time optimisation."""
    nvjitlink = _nvjitlink()

    options = [f"-arch={arch}", "-lto", "-O3", "-verbose", *floating_point.nvjitlink()]
    options += ["-lineinfo"] if lineinfo else []
    handle = nvjitlink.create(len(options), options)
    try:
        for name, data in inputs:
            is_object = data[:4] == b"\x7fELF"
            kind = nvjitlink.InputType.OBJECT if is_object else nvjitlink.InputType.FATBIN
            nvjitlink.add_data(handle, kind, data, len(data), name)
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return Linked(bytes(cubin), _log(nvjitlink, handle, "info"))
    except nvjitlink.nvJitLinkError as error:
        said = _log(nvjitlink, handle, "error") + _log(nvjitlink, handle, "info")
        raise LinkFailed(said or str(error)) from error
    finally:
        nvjitlink.destroy(handle)


def _log(nvjitlink: Any, handle: int, kind: str) -> str:
    size = getattr(nvjitlink, f"get_{kind}_log_size")(handle)
    text = bytearray(size)
    if size:
        getattr(nvjitlink, f"get_{kind}_log")(handle, text)
    return bytes(text).rstrip(b"\0").decode(errors="replace")


def disassemble(cubin: Path) -> str:
    """nvdisasm's listing of a cubin."""
    run = subprocess.run(
        [tool("nvdisasm"), "-c", "-hex", str(cubin)], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise ToolError(f"nvdisasm can't read {cubin}", run.stderr)
    return run.stdout

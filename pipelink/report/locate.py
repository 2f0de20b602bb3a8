"""Places to lines of files: looked up only when a diagnostic is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pipelink import contract, positions
from pipelink.abi import Places
from pipelink.diagnostics import FilePlace, InputError, Place, Where
from pipelink.manifest import read_manifest

# A source with a line longer or a file larger than this is not for reading.
_LARGEST_FILE = 4 << 20
_LONGEST_LINE = 160
_EXTENDED = 16
_EXTENDS = re.compile(r"""^extends\s*=\s*["'](.+?)["']""", re.MULTILINE)
_FILE_LINE = re.compile(r"(.+):([0-9]{1,9})\Z", re.DOTALL)


@dataclass(frozen=True)
class Spot:
    """A place as people find it. `line` is 0 where only the file is known; `key` is then what a
    manifest's reader spoke of. `file` is empty where only the instance is known."""

    file: str
    line: int = 0
    label: str = ""
    instance: str = ""
    key: str = ""

    @property
    def is_file(self) -> bool:
        """Not so for an instance alone, and for an option of the command line."""
        return bool(self.file) and not self.file.startswith("--")

    def __str__(self) -> str:
        if not self.file:
            return f"instance '{self.instance}'"
        if self.line:
            return f"{self.file}:{self.line}"
        return f"{self.file} ({self.key})" if self.key else self.file


Locate = Callable[[Where], Spot]


def locator(manifest: Path | None, objects: Path | None) -> Locate:
    """A function that finds places: the line where object or file is at hand, else the file."""

    @cache
    def component(instance: str) -> tuple[str, Places | None]:
        path = _object(manifest, objects, instance)
        return str(path or ""), _places(path)

    def locate(where: Where) -> Spot:
        if isinstance(where, FilePlace):
            return _in_file(where)
        file, places = component(where.instance)
        spot = Spot(file) if places is None else _in_source(where, places)
        return replace(spot, label=where.label, instance=where.instance)

    return locate


def _object(manifest: Path | None, objects: Path | None, instance: str) -> Path | None:
    if manifest is None or objects is None:
        return None
    try:
        specs = read_manifest(manifest).instances
    except InputError:
        return None
    path = next((objects / s.object for s in specs if s.name == instance), None)
    if path is None:
        return None
    # A plan from contracts alone: the object, which knows the lines, may not be here.
    contract_file = path.with_suffix(".contract.json")
    return contract_file if contract_file.exists() and not path.exists() else path


def _places(path: Path | None) -> Places | None:
    try:
        return contract.read_object(path).places if path else None
    except InputError:
        return None


def _in_source(place: Place, places: Places) -> Spot:
    lines = getattr(places, place.section, ())
    return _spot(lines[place.index]) if place.index < len(lines) else Spot(places.build.source)


def _spot(text: str) -> Spot:
    """`FILE:LINE`, or a file."""
    match = _FILE_LINE.match(text)
    return Spot(match[1], int(match[2])) if match else Spot(text)


def _in_file(where: FilePlace) -> Spot:
    if not where.key:
        return replace(_spot(where.file), label=where.label)
    file, line = _of_key(where.file, where.key)
    return Spot(file, line, where.label, key=where.key)


def _of_key(file: str, key: str) -> tuple[str, int]:
    """Where a key of a manifest stands: in it, or in one that it extends."""
    name = file
    for _ in range(_EXTENDED):
        text = _text(Path(name))
        line = line_of_key(text, key)
        if line:
            return name, line
        base = _EXTENDS.search(text)
        if not base:
            break
        name = (Path(name).parent / base[1]).as_posix()
    return file, 0


def line_of_key(text: str, key: str) -> int:
    """The line of a key in a manifest's text: as a path, as a key, as a text, as the instance of a
    text. 0 if there is none, or if several could be meant: a wrong line is worse than none."""
    found = positions.positions(text)
    whole = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    values = [(v, line) for v, path, line in found.texts if path[-1] != "object"]
    candidates: list[set[int]] = [
        {line for path, line in found.keys.items() if path == whole},
        {line for path, line in found.keys.items() if path[-1] == key},
        {line for value, line in values if value == key},
        {line for value, line in values if value.partition(".")[0] == key},
    ]
    lines = next(filter(None, candidates), set())
    if not lines and whole[:1] in found.keys:
        return found.nearest(whole)
    return lines.pop() if len(lines) == 1 else 0


def source_line(spot: Spot) -> str | None:
    """The text of a spot's line, without the white space around it; None if it can't be read."""
    if not spot.line:
        return None
    lines = _text(Path(spot.file)).split("\n")
    if spot.line > len(lines):
        return None
    line = lines[spot.line - 1].strip()
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."


def _text(path: Path) -> str:
    """The text of a plain file; a pipe or a device is none."""
    try:
        if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
            return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        pass
    return ""

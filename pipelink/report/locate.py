"""Places of contracts to lines of source: looked up only when a diagnostic is rendered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelink import contract
from pipelink.diagnostics import FilePlace, InputError, Place, Where
from pipelink.manifest import read_manifest

Locate = Callable[[Where], str]


def locator(manifest: Path | None, objects: Path | None) -> Locate:
    """A function that names a place: `file:line` where the object is at hand, else the object."""

    def locate(where: Where) -> str:
        if isinstance(where, FilePlace):
            return where.file + (f" ({where.key})" if where.key else "")
        return _line(_object(manifest, objects, where.instance), where)

    return locate


def _object(manifest: Path | None, objects: Path | None, instance: str) -> Path | None:
    if manifest is None or objects is None:
        return None
    specs = read_manifest(manifest).instances
    path = next((objects / s.object for s in specs if s.name == instance), None)
    if path is None:
        return None
    # A plan from contracts alone: the object, which knows the lines, may not be here.
    contract_file = path.with_suffix(".contract.json")
    return contract_file if contract_file.exists() and not path.exists() else path


def _line(path: Path | None, place: Place) -> str:
    try:
        places = contract.read_object(path).places if path else None
    except InputError:
        places = None
    if places is None:
        return str(path or f"instance '{place.instance}'")
    lines = getattr(places, place.section)
    return str(lines[place.index]) if place.index < len(lines) else places.build.source

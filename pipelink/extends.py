"""A manifest's table, laid over those of the manifests that it extends: every key knows its file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pipelink.diagnostics import Diagnostic, FilePlace, InputError


class Table(dict[str, Any]):
    """A table of a manifest, and the file that each of its keys came from."""

    def __init__(self, values: dict[str, Any], files: dict[str, Path]) -> None:
        super().__init__(values)
        self.files = files


def read_table(path: Path) -> tuple[Table, tuple[Path, ...]]:
    """A manifest's table laid over those that it extends, and all files that this reads."""
    files: list[Path] = []
    layers: list[Table] = []
    following: Path | None = path
    while following is not None:
        files.append(following)
        layers.append(_parse(following))
        following = _base(files, layers[-1].pop("extends", None))
    table, *others = reversed(layers)
    for layer in others:
        if "parameters" in layer:  # the caller's order, which is one author's alone
            table.pop("parameters", None)
        table = _over(table, layer)
    return table, tuple(files)


def _base(files: list[Path], extends: Any) -> Path | None:
    """The file that the last of `files` extends."""
    last = files[-1]
    if extends is None:
        return None
    if not isinstance(extends, str):
        raise _unreadable(last, "'extends' of the manifest is no text", "extends")
    base = last.parent / extends
    if base.is_dir():
        raise _unreadable(last, f"{last} extends {base}, which is a folder", "extends")
    if not base.is_file():
        raise _unreadable(last, f"{last} extends {base}, which does not exist", "extends")
    before = [f.resolve() for f in files]
    if base.resolve() not in before:
        return base
    chain = files[before.index(base.resolve()) :]
    circle = ", which extends ".join(map(str, [*chain[1:], chain[0]]))
    message = f"{chain[0]} extends {circle if len(chain) > 1 else 'itself'}"
    raise _unreadable(last, message, "extends")


def _parse(path: Path) -> Table:
    try:
        return _table(tomllib.loads(path.read_text(encoding="utf-8")), path)
    except OSError as error:
        message = f"{path} can't be read: {(error.strerror or 'error').lower()}"
        raise _unreadable(path, message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"{path} is no TOML: {error}") from error


def _table(values: dict[str, Any], path: Path) -> Table:
    return Table({k: _value(v, path) for k, v in values.items()}, dict.fromkeys(values, path))


def _value(value: Any, path: Path) -> Any:
    if isinstance(value, list):
        return [_value(row, path) for row in value]
    return _table(value, path) if isinstance(value, dict) else value


def _unreadable(path: Path, message: str, key: str = "") -> InputError:
    return InputError(Diagnostic("PL005", message, FilePlace(str(path), key)))


def _over(base: Table, own: Table) -> Table:
    """Tables are laid over one another key by key; any other value takes the place of the base's."""
    values = dict(base)
    for key, value in own.items():
        below = base.get(key)
        if isinstance(below, Table) and isinstance(value, Table):
            values[key] = _over(below, value)
        else:
            values[key] = value
    return Table(values, base.files | own.files)

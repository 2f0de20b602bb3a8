"""TOML to manifest; docs/manifest.md describes the keys."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelink.abi import IDENTIFIER
from pipelink.arch import ARCHES
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, checkpoint
from pipelink.launch import LARGEST_EXTENT
from pipelink.model import InstanceSpec, Manifest, RoleSpec

_TOP = (
    "extends",
    "kernel",
    "target",
    "schedule",
    "facts",
    "extents",
    "instances",
    "roles",
    "channels",
    "parameters",
)
_EXTENT = ("least", "most")
_INSTANCE = ("object", "facts", "imports")
_ROLE = ("name", "steps")
_CHANNEL = ("from", "to")


class _Reader:
    """Collects every fault of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[Diagnostic] = []

    def fault(self, message: str, key: str = "", help_: str = "", code: str = "PL005") -> None:
        place = FilePlace(str(self.path), key)
        self.faults.append(Diagnostic(code, message, place, help=help_))

    def keys(self, table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in table:
            if key in known:
                continue
            close = difflib.get_close_matches(key, known, 1)
            help_ = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(known)}"
            self.fault(f"unknown key '{key}' in {where}", key, help_, "PL006")

    def get(self, table: dict[str, Any], key: str, kind: type, where: str) -> Any:
        value = table.get(key)
        if value is None:
            self.fault(f"{where} has no '{key}'", key)
            return kind()
        if not isinstance(value, kind):
            self.fault(f"'{key}' of {where} is no {_KINDS[kind]}", key)
            return kind()
        return value

    def tables(self, rows: Any, where: str) -> list[dict[str, Any]]:
        found = rows if isinstance(rows, list) else [rows]
        for row in found:
            if not isinstance(row, dict):
                self.fault(f"{row!r} in {where} is no table")
        return [row for row in found if isinstance(row, dict)]

    def pair(self, text: Any, where: str) -> tuple[str, str]:
        parts = tuple(text.split(".")) if isinstance(text, str) else ()
        if len(parts) != 2 or not all(map(IDENTIFIER.match, parts)):
            self.fault(f"{text!r} in {where} is not of the form 'instance.name'")
            return ("", "")
        return (parts[0], parts[1])


_KINDS: dict[type, str] = {str: "text", dict: "table", list: "array"}


def read_table(path: Path) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """A manifest's table laid over those that it extends, and all files that this reads."""
    files: list[Path] = []
    layers: list[dict[str, Any]] = []
    following: Path | None = path
    while following is not None:
        if following.resolve() in {f.resolve() for f in files}:
            message = f"{files[-1]} extends {following}, which extends it in turn"
            raise _unreadable(files[-1], message, "extends")
        files.append(following)
        layers.append(_parse(following))
        base = layers[-1].pop("extends", None)
        if base is not None and not isinstance(base, str):
            raise _unreadable(following, "'extends' of the manifest is no text", "extends")
        following = None if base is None else following.parent / base
        if following is not None and not following.is_file():
            message = f"{files[-1]} extends {following}, which does not exist"
            raise _unreadable(files[-1], message, "extends")
    table: dict[str, Any] = {}
    for layer in reversed(layers):
        table = _over(table, layer)
    return table, tuple(files)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path} can't be read: {(error.strerror or 'error').lower()}"
        raise _unreadable(path, message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"{path} is no TOML: {error}") from error


def _unreadable(path: Path, message: str, key: str = "") -> InputError:
    return InputError(Diagnostic("PL005", message, FilePlace(str(path), key)))


def _over(base: Any, own: Any) -> Any:
    """Tables are laid over one another key by key; any other value takes the place of the base's."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | {key: _over(base.get(key), value) for key, value in own.items()}


def read_manifest(path: Path) -> Manifest:
    """The manifest of a file; all its faults at once. One that it extends is held to be whole too,
    so that a fault is reported in the file that has it."""
    table, files = read_table(path)
    if len(files) > 1:
        read_manifest(files[1])
    reader = _Reader(path)
    reader.keys(table, _TOP, "the manifest")
    manifest = Manifest(
        path=path.as_posix(),
        kernel=_identifier(reader, reader.get(table, "kernel", str, "the manifest"), "kernel"),
        target=_target(reader, reader.get(table, "target", str, "the manifest")),
        files=tuple(f.as_posix() for f in files),
        facts=_facts(reader, table.get("facts", {}), "[facts]"),
        extents=_extents(reader, table.get("extents", {})),
        instances=tuple(_instances(reader, reader.get(table, "instances", dict, "the manifest"))),
        roles=tuple(_roles(reader, reader.get(table, "roles", list, "the manifest"))),
        channels=tuple(_channels(reader, table.get("channels", []))),
        schedule=reader.pair(reader.get(table, "schedule", str, "the manifest"), "schedule"),
        parameters=_parameters(reader, reader.get(table, "parameters", dict, "the manifest")),
    )
    _references(reader, manifest)
    checkpoint(reader.faults)
    return manifest


def _identifier(reader: _Reader, name: str, key: str) -> str:
    if name and not IDENTIFIER.match(name):
        reader.fault(f"'{name}' is no name of a {key}: letters, digits and '_' only", key)
    return name


def _target(reader: _Reader, target: str) -> str:
    if target and target not in ARCHES:
        close = difflib.get_close_matches(target, ARCHES, 1)
        help_ = f"did you mean '{close[0]}'?" if close else f"known targets: {', '.join(ARCHES)}"
        reader.fault(f"unknown target '{target}'", "target", help_, "PL007")
    return target


def _facts(reader: _Reader, table: Any, where: str) -> dict[str, int]:
    if not isinstance(table, dict):
        reader.fault(f"{where} is no table")
        return {}
    for name, value in table.items():
        if type(value) is not int:
            reader.fault(f"'{name}' in {where} is no integer", name)
        elif abs(value) >= 1 << 63:
            reader.fault(f"'{name}' in {where} has more than 64 bits", name)
    return {name: value for name, value in table.items() if type(value) is int}


def _extents(reader: _Reader, table: Any) -> dict[str, tuple[int, int]]:
    """The bounds of each extent that has any: (least, most)."""
    if not isinstance(table, dict):
        reader.fault("[extents] is no table", "extents")
        return {}
    bounds = {}
    for name, body in table.items():
        where = f"'{name}' in [extents]"
        if not isinstance(body, dict):
            reader.fault(f"{where} is no table", name)
            continue
        reader.keys(body, _EXTENT, where)
        least, most = body.get("least", 1), body.get("most", LARGEST_EXTENT)
        if (
            type(least) is not int
            or type(most) is not int
            or not 1 <= least <= most <= LARGEST_EXTENT
        ):
            reader.fault(
                f"{where} is {least!r} to {most!r}, bounds are 1 <= least <= most <= {LARGEST_EXTENT}",
                name,
            )
            continue
        bounds[name] = (least, most)
    return bounds


def _instances(reader: _Reader, table: dict[str, Any]) -> Iterable[InstanceSpec]:
    for name, body in table.items():
        where = f"[instances.{name}]"
        _identifier(reader, name, "instance")
        if name == "kernel":
            reader.fault(
                "an instance can't be named 'kernel', which the kernel's facts go by", name
            )
        if not isinstance(body, dict):
            reader.fault(f"{where} is no table", name)
            continue
        reader.keys(body, _INSTANCE, where)
        yield InstanceSpec(
            name,
            reader.get(body, "object", str, where),
            _facts(reader, body.get("facts", {}), f"facts of {where}"),
            _imports(reader, body.get("imports", {}), where),
        )


def _imports(reader: _Reader, table: Any, where: str) -> dict[str, str]:
    if not isinstance(table, dict):
        reader.fault(f"imports of {where} is no table")
        return {}
    for name, value in table.items():
        if not isinstance(value, str):
            reader.fault(f"'{name}' in imports of {where} is no name of an instance", name)
    return {name: value for name, value in table.items() if isinstance(value, str)}


def _roles(reader: _Reader, rows: list[Any]) -> Iterable[RoleSpec]:
    seen = set()
    for row in reader.tables(rows, "[[roles]]"):
        reader.keys(row, _ROLE, "[[roles]]")
        name = _identifier(reader, reader.get(row, "name", str, "[[roles]]"), "role")
        if name in seen:
            reader.fault(f"role '{name}' stands twice", "roles")
        seen.add(name)
        steps = reader.get(row, "steps", list, f"role '{name}'")
        if row.get("steps") == []:
            reader.fault(f"role '{name}' has no step", "steps")
        yield RoleSpec(name, tuple(reader.pair(step, f"role '{name}'") for step in steps))


def _channels(reader: _Reader, rows: Any) -> Iterable[tuple[str, str]]:
    for row in reader.tables(rows, "[[channels]]"):
        reader.keys(row, _CHANNEL, "[[channels]]")
        ends = [reader.get(row, key, str, "[[channels]]") for key in _CHANNEL]
        for end in ends:
            reader.pair(end, "[[channels]]")
        yield (ends[0], ends[1])


def _parameters(reader: _Reader, table: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    result = {}
    for name, ports in table.items():
        _identifier(reader, name, "parameter")
        rows = [ports] if isinstance(ports, str) else ports
        if not isinstance(rows, list):
            reader.fault(f"parameter '{name}' is no port and no array of ports", name)
            continue
        if not rows:
            reader.fault(f"parameter '{name}' names no port", name)
        for port in rows:
            reader.pair(port, f"parameter '{name}'")
        result[name] = tuple(map(str, rows))
    return result


def _references(reader: _Reader, manifest: Manifest) -> None:
    """Every instance that the manifest speaks of is one of its instances."""
    known = {i.name for i in manifest.instances}
    uses = [(instance, f"role '{r.name}'") for r in manifest.roles for instance, _ in r.steps]
    uses += [
        (end.split(".")[0], "[[channels]]") for channel in manifest.channels for end in channel
    ]
    uses += [
        (p.split(".")[0], f"parameter '{n}'")
        for n, ports in manifest.parameters.items()
        for p in ports
    ]
    uses += [(manifest.schedule[0], "schedule")]
    for name, where in uses:
        if name and name not in known:
            close = difflib.get_close_matches(name, known, 1)
            help_ = (
                f"did you mean '{close[0]}'?" if close else f"instances: {', '.join(sorted(known))}"
            )
            reader.fault(f"{where} names instance '{name}', which does not exist", name, help_)

"""Contracts written by hand as TOML: the records of abi.py under the same names.

What has an obvious value may be left out, and a number may stand where the format has an expression.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from pipelink import abi, contract, positions
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, checkpoint

DEFAULTS: dict[str, Any] = {
    "version": "1.0",
    "target": "sm_90a",
    "floating_point": "ftz=0 div=1 sqrt=1 fma=1",
    "toolchain": (13, 5),
}
_LISTS = ("facts", "requires", "claims", "ports", "entries", "promises", "types")
_SHOWN = 60


def read_written(path: Path, text: str) -> tuple[abi.Contract, abi.Places]:
    """The contract of a TOML text, and the line of each of its items; all faults at once."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = f"{path}: no TOML: {error}"
        raise InputError(Diagnostic("PL003", message, FilePlace(str(path)))) from error
    reader = _Reader(path, positions.positions(text))
    fields = reader.record(abi.Contract, DEFAULTS | table, (), "the contract")
    checkpoint(reader.faults)
    encoded, lines = msgspec.json.encode(fields), reader.places(fields)
    return contract.decode_contract(path, encoded, lines), lines


class _Wanted(NamedTuple):
    """A field of a record: its type, and what it is if left out."""

    type: Any
    required: bool


class _Reader:
    """Collects every fault of one file."""

    def __init__(self, path: Path, lines: positions.Positions) -> None:
        self.path = path
        self.lines = lines
        self.faults: list[Diagnostic] = []

    def fault(self, message: str, at: positions.Path, help_: str = "") -> None:
        line = self.lines.nearest(at)
        place = FilePlace(f"{self.path}:{line}" if line else str(self.path))
        self.faults.append(Diagnostic("PL003", f"{self.path}: {message}", place, help=help_))

    def record(self, kind: Any, table: Any, at: positions.Path, title: str) -> dict[str, Any]:
        """A table as the fields of a record; missing lists are empty."""
        if not isinstance(table, dict):
            self.fault(f"{title} is {_shown(table)}, a table is wanted", at)
            return {}
        fields, name = _fields(kind), table.get("name")
        title = f"{title} '{name}'" if isinstance(name, str) else title
        unknown = {key: _meant(key, fields) for key in table if key not in fields}
        for key, meant in unknown.items():
            help_ = f"did you mean '{meant}'?" if meant else f"known are {', '.join(fields)}"
            self.fault(f"{title} has an unknown field '{key}'", (*at, key), help_)
        result = {}
        for key, wanted in fields.items():
            if key in table:
                result[key] = self.value(wanted.type, table[key], (*at, key), title)
            elif get_origin(wanted.type) is tuple:
                result[key] = ()
            elif wanted.required and key not in unknown.values():
                self.fault(f"{title} has no '{key}'", at)
        return result

    def value(self, kind: Any, value: Any, at: positions.Path, title: str) -> Any:
        if type(value) is int and abs(value) >> 63:
            self.fault(f"{_field(at)} of {title} has more than 64 bits", at)
            return value
        if kind is str and type(value) is int:
            return str(value)
        items = get_args(kind)
        if get_origin(kind) is tuple and items[-1] is ...:
            return self.items(items[0], value, at, title)
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            meant = _meant(str(value), filter(None, items)) if get_origin(kind) is Literal else ""
            help_ = f"did you mean '{meant}'?" if meant else ""
            self.fault(f"{_field(at)} of {title} is {_shown(value)}, {_want(kind)}", at, help_)
        return value

    def items(self, kind: Any, value: Any, at: positions.Path, title: str) -> list[Any]:
        if not isinstance(value, list):
            self.fault(f"{_field(at)} of {title} is {_shown(value)}, an array is wanted", at)
            return []
        if not _is_record(kind):
            return [self.value(kind, v, (*at, n), title) for n, v in enumerate(value)]
        of = f"{_SINGLE.get(str(at[-1]), at[-1])}" + (f" of {title}" if len(at) > 1 else "")
        return [self.record(kind, v, (*at, n), of) for n, v in enumerate(value)]

    def places(self, fields: dict[str, Any]) -> abi.Places:
        """`FILE:LINE` of each item."""
        file = self.path.as_posix()
        lists = {
            name: tuple(f"{file}:{self.lines.nearest((name, n))}" for n in range(len(fields[name])))
            for name in _LISTS
        }
        return abi.Places(fields["component"], abi.Build(file), **lists)


_SINGLE = {
    "facts": "fact",
    "requires": "requirement",
    "claims": "claim",
    "ports": "port",
    "entries": "entry",
    "promises": "promise",
    "types": "type",
    "parts": "part",
    "copies": "copy",
    "covers": "cover",
    "holds": "condition",
    "plays": "operation",
    "body": "operation",
    "fields": "field",
    "tiles": "tiling",
}
_WORDS: dict[Any, str] = {str: "text", int: "an integer", bool: "true or false"}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, abi.Record)


def _fields(record: type[abi.Record]) -> dict[str, _Wanted]:
    hints = get_type_hints(record)
    found = msgspec.structs.fields(record)
    return {f.encode_name: _Wanted(hints[f.name], f.required) for f in found}


def _field(at: positions.Path) -> str:
    """The field that a path ends in, without the numbers of array items."""
    return f"'{next(p for p in reversed(at) if isinstance(p, str))}'"


def _want(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(repr(v) for v in get_args(kind) if v)} is wanted"
    if get_origin(kind) is tuple:
        return f"an array of {len(get_args(kind))} integers is wanted"
    if kind is str:
        return "text or an integer is wanted"
    words = [_WORDS[k] for k in (int, str, bool) if k in (get_args(kind) or (kind,))]
    return f"{' or '.join(words)} is wanted"


def _shown(value: Any) -> str:
    """What came, as TOML writes it and not too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "an array"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _meant(word: str, known: Iterable[str]) -> str:
    """The known word that is closest; empty if none is close."""
    return next(iter(difflib.get_close_matches(word, list(known), 1)), "")

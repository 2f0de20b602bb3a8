"""Notes to contracts: the reader of objects."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from pipelink import abi, elf
from pipelink.diagnostics import Diagnostic, FilePlace, InputError
from pipelink.form import faults, plainly_small, plainly_small_contract, sizes
from pipelink.model import Component

_T = TypeVar("_T")
_R = TypeVar("_R", bound=abi.Record)


def read_object(path: Path) -> Component:
    """The component of an object, or one sentence why there is none."""
    return component_of(_read(path), path)


def component_of(data: bytes, path: Path) -> Component:
    """The component in an object's bytes; diagnostics name `path`."""
    try:
        notes = elf.read_notes(data)
    except elf.ElfError as error:
        raise _refuse("PL001", path, f"{path} is no component: {error}") from error
    contracts = [
        (version, text)
        for kind, version, text in notes.records
        if _kind(path, kind, version) == abi.NOTE_CONTRACT
    ]
    places = [text for kind, _, text in notes.records if kind == abi.NOTE_PLACES]
    symbols = [text for kind, _, text in notes.records if kind == abi.NOTE_SYMBOLS]
    if not contracts:
        raise _refuse(
            "PL002",
            path,
            f"{path} has no contract",
            "state one with PIPELINK_COMPONENT and compile it with `pipelink compile`",
        )
    if len(contracts) > 1 or len(places) > 1 or len(symbols) > 1:
        raise _refuse(
            "PL003", path, f"{path} has {len(contracts)} contracts, one object holds one component"
        )
    if not notes.has_device_code:
        raise _refuse("PL001", path, f"{path} has a contract and no device code")
    version, text = contracts[0]
    lines = _sized(path, places[0], abi.Places) if places else None
    contract = decode_contract(path, text, lines)
    return Component(
        str(path),
        contract,
        abi.fnv1a(text),
        lines,
        version,
        _sized(path, symbols[0], abi.Symbols) if symbols else None,
    )


def read_contract_file(path: Path) -> Component:
    """The component of a .contract.json; its lines are not known."""
    text = _read(path, abi.MAX_NOTE_BYTES)
    return Component(str(path), decode_contract(path, text), abi.fnv1a(text), None)


def contract_text(path: Path) -> bytes:
    """The contract's own bytes, as in the note: the fingerprint is their hash."""
    read_object(path)
    records = elf.read_notes(path.read_bytes()).records
    return next(text for kind, _, text in records if kind == abi.NOTE_CONTRACT)


def decode_contract(path: Path, text: bytes, lines: abi.Places | None = None) -> abi.Contract:
    """A contract whose parts are what the passes take for granted; `lines` are those of its items."""
    contract = _decode(path, text, abi.Contract)
    for fault in faults(contract, small=plainly_small_contract(text)):
        of = getattr(lines, fault.section, ()) if fault.section else ()
        place = FilePlace(of[fault.index] if fault.index < len(of) else str(path))
        message = f"{path}: {fault.message}"
        raise InputError(Diagnostic("PL003", message, place, help=fault.help))
    return contract


def _decode(path: Path, text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refuse("PL003", path, f"{path}: the contract's note is damaged: {error}") from error


def _sized(path: Path, text: bytes, kind: type[_R]) -> _R:
    """A note beside the contract: nothing in it is too long to be told."""
    record = _decode(path, text, kind)
    # All lists of symbols are of those that tools write.
    if plainly_small(text, abi.MAX_FACTS if kind is abi.Symbols else abi.MAX_ITEMS):
        return record
    for fault in sizes(record):
        raise _refuse("PL003", path, f"{path}: {fault}")
    return record


def _kind(path: Path, kind: int, version: int) -> int:
    if version > abi.NOTE_VERSION:
        raise _refuse(
            "PL004",
            path,
            f"{path} has a contract of format {version}, this PipeLink reads up to {abi.NOTE_VERSION}",
            "link it with a newer PipeLink",
        )
    return kind


def _read(path: Path, most: int = abi.MAX_OBJECT_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or "error"
        raise _refuse("PL001", path, f"{path} can't be read: {why.lower()}") from error
    if len(data) > most:
        raise _refuse("PL001", path, f"{path} has more than {most} bytes")
    return data


def _refuse(code: str, path: Path, message: str, help_: str = "") -> InputError:
    return InputError(Diagnostic(code, message, FilePlace(str(path)), help=help_))

"""Notes to contracts: the reader of objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pipelink import abi, elf
from pipelink.diagnostics import Diagnostic, FilePlace, InputError
from pipelink.model import Component

_T = TypeVar("_T")


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
        text
        for kind, version, text in notes.records
        if _kind(path, kind, version) == abi.NOTE_CONTRACT
    ]
    places = [text for kind, _, text in notes.records if kind == abi.NOTE_PLACES]
    if not contracts:
        raise _refuse(
            "PL002",
            path,
            f"{path} has no contract",
            "state one with PIPELINK_COMPONENT and compile it with `pipelink compile`",
        )
    if len(contracts) > 1 or len(places) > 1:
        raise _refuse(
            "PL003", path, f"{path} has {len(contracts)} contracts, one object holds one component"
        )
    if not notes.has_device_code:
        raise _refuse("PL001", path, f"{path} has a contract and no device code")
    contract = decode_contract(path, contracts[0])
    where = _decode(path, places[0], abi.Places) if places else None
    return Component(str(path), contract, abi.fnv1a(contracts[0]), where)


def read_contract_file(path: Path) -> Component:
    """The component of a .contract.json; its lines are not known."""
    text = _read(path)
    return Component(str(path), decode_contract(path, text), abi.fnv1a(text), None)


def contract_text(path: Path) -> bytes:
    """The contract's own bytes, as in the note: the fingerprint is their hash."""
    read_object(path)
    records = elf.read_notes(path.read_bytes()).records
    return next(text for kind, _, text in records if kind == abi.NOTE_CONTRACT)


def decode_contract(path: Path, text: bytes) -> abi.Contract:
    """A contract whose parts are what the passes take for granted."""
    contract = _decode(path, text, abi.Contract)
    for fault in _faults(contract):
        raise _refuse("PL003", path, f"{path}: {fault}")
    return contract


def _faults(contract: abi.Contract) -> Iterator[str]:
    """What is wrong in a contract, in words."""
    yield from _names(contract)
    yield from _slots(contract)
    for fact in contract.facts:
        if fact.kind in ("provides", "chooses") and not fact.values:
            yield f"fact '{fact.name}' has no value"
        if any(abs(v) >= 1 << 63 for v in fact.values):
            yield f"fact '{fact.name}' has a value of more than 64 bits"
    for claim in contract.claims:
        if not 0 < claim.align <= 1024 or claim.align & (claim.align - 1):
            yield f"claim '{claim.name}' is aligned to {claim.align}: a power of two up to 1024"
    for kind in ("warps", "registers", "stack"):
        if sum(c.kind == kind for c in contract.claims) > 1:
            yield f"it claims {kind} twice"
    for port in contract.ports:
        yield from _port(port)
    known = {"tile", *(f.name for f in contract.facts if f.kind == "extent")}
    known |= {p.name for p in contract.ports}
    for entry in contract.entries:
        for name in entry.arguments:
            if name not in known:
                yield f"entry '{entry.name}' has argument '{name[:80]}', no port and no extent"


def _names(contract: abi.Contract) -> Iterator[str]:
    """Names are identifiers, unique in their lists."""
    if not abi.IDENTIFIER.match(contract.component):
        yield f"'{contract.component[:80]}' is no name of a component"
    lists: list[tuple[str, list[str]]] = [
        ("fact", [f.name for f in contract.facts]),
        ("claim", [c.name for c in contract.claims]),
        ("port", [p.name for p in contract.ports]),
        ("entry", [e.name for e in contract.entries]),
        *(("part", [q.name for q in p.parts]) for p in contract.ports),
    ]
    for title, names in lists:
        seen: set[str] = set()
        for name in names:
            if not abi.IDENTIFIER.match(name):
                yield f"'{name[:80]}' is no name of a {title}"
            if name in seen:
                yield f"{title} '{name}' stands twice in the contract"
            seen.add(name)


def _slots(contract: abi.Contract) -> Iterator[str]:
    """A slot is known by its name alone, so a fact and a claim can't share one."""
    facts = {f.name for f in contract.facts}
    for claim in contract.claims:
        if claim.kind in ("shared", "barrier", "mbarrier") and claim.name in facts:
            yield f"'{claim.name}' is a fact and a claim"


def _port(port: abi.Port) -> Iterator[str]:
    tiles = port.parts if port.space == "shared" else (port,)
    if not tiles:
        yield f"port '{port.name}' has no part"
    for tile in tiles:
        if tile.element not in abi.ELEMENT_BYTES:
            known = ", ".join(abi.ELEMENT_BYTES)
            yield f"'{tile.name}' has elements of type '{tile.element[:80]}': known are {known}"
        if tile.swizzle not in abi.SWIZZLES:
            yield f"'{tile.name}' has a swizzle of {tile.swizzle} bytes: 0, 32, 64 or 128"


def _decode(path: Path, text: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refuse("PL003", path, f"{path}: the contract's note is damaged: {error}") from error


def _kind(path: Path, kind: int, version: int) -> int:
    if version > abi.NOTE_VERSION:
        raise _refuse(
            "PL004",
            path,
            f"{path} has a contract of format {version}, this PipeLink reads up to {abi.NOTE_VERSION}",
            "link it with a newer PipeLink",
        )
    return kind


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _refuse(
            "PL001", path, f"{path} can't be read: {(error.strerror or 'error').lower()}"
        ) from error


def _refuse(code: str, path: Path, message: str, help_: str = "") -> InputError:
    return InputError(Diagnostic(code, message, FilePlace(str(path)), help=help_))

"""Objects and cubins: the only importer of elftools."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from pipelink import abi

EM_CUDA = 190
EIATTR_REGCOUNT = 0x2F
EIATTR_FRAME_SIZE = 0x11
EIFMT_SVAL = 4
_TRUNCATED = "its sections are truncated or damaged"


class ElfError(ValueError):
    """The file is not what it should be; the message is a clause for a diagnostic."""


@dataclass(frozen=True)
class Notes:
    """The records of one object: (kind, version, text)."""

    records: tuple[tuple[int, int, bytes], ...]
    has_device_code: bool


# What elftools raises on damaged input, beside its own.
_DAMAGE = (
    ELFError,
    struct.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    RecursionError,
)


def _open(data: bytes) -> ELFFile:
    if data[:8] == b"!<arch>\n":
        raise ElfError("it is an archive; name one of its objects")
    try:
        return ELFFile(io.BytesIO(data))
    except _DAMAGE as error:
        raise ElfError(
            "it is not an ELF file" if data[:4] != b"\x7fELF" else "its ELF header is damaged"
        ) from error


def read_notes(data: bytes) -> Notes:
    """The PipeLink notes of an object."""
    elf = _open(data)
    try:
        sections = list(elf.iter_sections())
        records = [r for s in sections if s.name == abi.NOTE_SECTION for r in _records(s)]
        fatbin = any(s.name.startswith((".nv_fatbin", "__nv_relfatbin")) for s in sections)
    except ElfError:
        raise
    except _DAMAGE as error:
        raise ElfError(_TRUNCATED) from error
    return Notes(tuple(records), fatbin)


def _records(section: object) -> list[tuple[int, int, bytes]]:
    if not isinstance(section, NoteSection):
        raise ElfError(f"{abi.NOTE_SECTION} is not a note section")
    if section.compressed:
        raise ElfError(f"{abi.NOTE_SECTION} is compressed")
    if section["sh_size"] > abi.MAX_NOTE_BYTES:
        raise ElfError(
            f"{abi.NOTE_SECTION} has {section['sh_size']} bytes, {abi.MAX_NOTE_BYTES} at most"
        )
    data, position, found = section.data(), 0, []
    if len(data) != section["sh_size"]:
        raise ElfError(_TRUNCATED)
    little = section.elffile.little_endian
    header = struct.Struct("<III" if little else ">III")
    while position < len(data):
        if position + header.size > len(data):
            raise ElfError("a note is cut off")
        name_size, size, kind = header.unpack_from(data, position)
        start = position + header.size + (name_size + 3) // 4 * 4
        if start + size > len(data):
            raise ElfError("a note is cut off")
        name = data[position + header.size : position + header.size + name_size].rstrip(b"\0")
        if name == abi.NOTE_NAME.encode():
            found.append((kind & 0xFF, kind >> 8, data[start : start + size]))
        position = start + (size + 3) // 4 * 4
    return found


@dataclass(frozen=True)
class Cubin:
    """What the audit reads back from a linked cubin."""

    kernels: tuple[str, ...]
    functions: tuple[str, ...]
    registers: dict[str, int]
    frame_bytes: dict[str, int]
    static_shared: dict[str, int]
    text: dict[str, bytes]


def read_cubin(data: bytes) -> Cubin:
    """Kernels, their registers, frames and static shared memory."""
    elf = _open(data)
    if elf["e_machine"] not in (EM_CUDA, "EM_CUDA"):
        raise ElfError("it is not a cubin")
    try:
        return _cubin(elf)
    except _DAMAGE as error:
        raise ElfError("its sections are truncated or damaged") from error


def _cubin(elf: ELFFile) -> Cubin:
    symbols: dict[int, str] = {}
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    shared: dict[str, int] = {}
    text: dict[str, bytes] = {}
    kernels: list[str] = []
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            symbols = {n: s.name for n, s in enumerate(section.iter_symbols())}
    for section in elf.iter_sections():
        if section.name.startswith(".text."):
            text[section.name[6:]] = section.data()
        elif section.name.startswith(".nv.shared."):
            shared[section.name[11:]] = section["sh_size"]
        elif section.name.startswith(".nv.info."):
            kernels.append(section.name[9:])
        elif section.name == ".nv.info":
            for attribute, index, value in _attributes(section.data()):
                table = {EIATTR_REGCOUNT: registers, EIATTR_FRAME_SIZE: frames}.get(attribute)
                if table is not None:
                    table[symbols.get(index, "?")] = value
    return Cubin(tuple(kernels), tuple(text), registers, frames, shared, text)


def _attributes(data: bytes) -> list[tuple[int, int, int]]:
    """(attribute, symbol index, value) of the entries of .nv.info that have this form."""
    position, found = 0, []
    while position + 4 <= len(data):
        fmt, attribute, size = struct.unpack_from("<BBH", data, position)
        position += 4
        if fmt != EIFMT_SVAL:
            continue
        if size == 8:
            found.append((attribute, *struct.unpack_from("<II", data, position)))
        position += size
    return found

"""Objects and cubins: the only importer of elftools."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pipelink import abi

EM_CUDA = 190
EIATTR_REGCOUNT = 0x2F
EIATTR_FRAME_SIZE = 0x11
EIFMT_SVAL = 4
_SHT_NOTE = 7
_SHF_COMPRESSED = 0x800
_LONGEST_NAME = 64
_SECTIONS = (abi.NOTE_SECTION, f"{abi.NOTE_SECTION}.symbols")
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


@dataclass(frozen=True)
class _Section:
    """A row of the section table; the name as far as the names that are looked for go."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int


def read_notes(data: bytes) -> Notes:
    """The PipeLink notes of an object."""
    elf = _open(data)
    try:
        sections = list(_sections(elf, data))
        records = [r for name in _SECTIONS for r in _notes(elf, data, name, sections)]
    except ElfError:
        raise
    except _DAMAGE as error:
        raise ElfError(_TRUNCATED) from error
    fatbin = any(s.name.startswith((".nv_fatbin", "__nv_relfatbin")) for s in sections)
    return Notes(tuple(records), fatbin)


def _sections(elf: ELFFile, data: bytes) -> Iterator[_Section]:
    """The section table. elftools takes a tenth of a millisecond and a name of any length a section;
    a table of 65,000 rows can be one row over and over, if rows have no size."""
    order = "<" if elf.little_endian else ">"
    row = struct.Struct(order + ("IIQQQQ" if elf.elfclass == 64 else "IIIIII"))
    start, count, size = elf["e_shoff"], elf.num_sections(), elf["e_shentsize"]
    if count and (size < row.size or start + count * size > len(data)):
        raise ElfError(_TRUNCATED)
    if count > abi.MAX_SECTIONS:
        raise ElfError(f"it has {count} sections, {abi.MAX_SECTIONS} at most")
    rows = [row.unpack_from(data, start + n * size) for n in range(count)]
    names = rows[elf.get_shstrndx()][4] if rows else 0
    for name, kind, flags, _, offset, bytes_ in rows:
        end = data.find(b"\0", names + name, names + name + _LONGEST_NAME)
        text = data[names + name : max(end, 0)].decode("latin-1")
        yield _Section(text, kind, flags, offset, bytes_)


def _notes(
    elf: ELFFile, data: bytes, name: str, sections: Sequence[_Section]
) -> Iterator[tuple[int, int, bytes]]:
    """The notes in all sections of a name."""
    own = [s for s in sections if s.name == name]
    for section in own:
        if section.kind != _SHT_NOTE:
            raise ElfError(f"{name} is not a note section")
        if section.flags & _SHF_COMPRESSED:
            raise ElfError(f"{name} is compressed")
    size = sum(s.size for s in own)
    if size > abi.MAX_NOTE_BYTES:
        raise ElfError(f"{name} has {size} bytes, {abi.MAX_NOTE_BYTES} at most")
    for section in own:
        text = data[section.offset : section.offset + section.size]
        if len(text) != section.size:
            raise ElfError(_TRUNCATED)
        yield from _records(text, "<III" if elf.little_endian else ">III")


def _records(data: bytes, form: str) -> Iterator[tuple[int, int, bytes]]:
    header, position = struct.Struct(form), 0
    while position < len(data):
        if position + header.size > len(data):
            raise ElfError("a note is cut off")
        name_size, size, kind = header.unpack_from(data, position)
        start = position + header.size + (name_size + 3) // 4 * 4
        if start + size > len(data):
            raise ElfError("a note is cut off")
        name = data[position + header.size : position + header.size + name_size].rstrip(b"\0")
        if name == abi.NOTE_NAME.encode():
            yield kind & 0xFF, kind >> 8, data[start : start + size]
        position = start + (size + 3) // 4 * 4


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

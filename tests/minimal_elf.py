"""The smallest ELF objects that a test needs. `python -m tests.minimal_elf` writes tests/corrupt anew."""

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

CORRUPT = Path(__file__).parent / "corrupt"
PROGBITS, STRTAB, NOTE = 1, 3, 7
COMPRESSED = 0x800
CODE = ("__nv_relfatbin", PROGBITS, b"code", 0)
CONTRACT, PLACES = 1, 2

Section = tuple[str, int, bytes, int]


def note(kind: int, text: bytes, version: int = 2, size: int | None = None) -> bytes:
    """One ELF note of PipeLink; `size` is what its header says."""
    said = len(text) if size is None else size
    head = struct.pack("<III", 9, said, kind | version << 8)
    return head + b"PipeLink\0\0\0\0" + text + bytes(-len(text) % 4)


def elf(sections: Sequence[Section], sizes: dict[str, int] | None = None) -> bytes:
    """A relocatable x86-64 object; `sizes` are lies about the sizes of sections."""
    names = [s[0] for s in sections] + [".shstrtab"]
    strings = b"\0" + b"".join(n.encode() + b"\0" for n in names)
    rows, body = [bytes(64)], b""
    for name, kind, data, flags in [*sections, (".shstrtab", STRTAB, strings, 0)]:
        size = (sizes or {}).get(name, len(data))
        at = strings.index(b"\0" + name.encode() + b"\0") + 1
        rows.append(
            struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64 + len(body), size, 0, 0, 4, 0)
        )
        body += data + bytes(-len(data) % 8)
    ident = b"\x7fELF\2\1\1" + bytes(9)
    counts = (64, 0, 0, 64, len(rows), len(rows) - 1)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, *counts)
    return head + body + b"".join(rows)


def object_(
    *notes: bytes, code: bool = True, kind: int = NOTE, flags: int = 0, size: int = 0
) -> bytes:
    """An object with a note section, and a stand-in for device code."""
    section = (".note.pipelink", kind, b"".join(notes), flags)
    lies = {".note.pipelink": size} if size else {}
    return elf([section, CODE] if code else [section], lies)


def repeated(data: bytes, times: int, size: int = 64) -> bytes:
    """The file with its section 1 so many times in the table; with rows of 0 bytes there is one."""
    table = int.from_bytes(data[40:48], "little")
    rows = [data[at : at + 64] for at in range(table, len(data), 64)]
    made = [rows[0], *[rows[1]] * (times if size else 1), *rows[2:]]
    count = len(made) if size else times
    numbers = b"".join(value.to_bytes(2, "little") for value in (size, count, count - 1))
    return data[:58] + numbers + data[64:table] + b"".join(made)


def corrupt_files() -> dict[str, bytes]:
    """Each file of tests/corrupt: no two are wrong in the same way."""
    from contracts import EPILOGUE, encode, places

    text, lines = encode(EPILOGUE), encode(places(EPILOGUE))
    good = note(CONTRACT, text)
    whole = object_(good)
    return {
        "text.o": b"not an object\n",
        "header.o": whole[:30],
        "truncated.o": whole[:-40],
        "archive.o": b"!<arch>\n" + b"epilogue.o/".ljust(48) + b"4         `\nELF\n",
        "no_note.o": elf([CODE]),
        "no_code.o": object_(good, code=False),
        "newer.o": object_(note(CONTRACT, text, version=3)),
        "two_contracts.o": object_(good, good),
        "bad_json.o": object_(note(CONTRACT, text[:-9])),
        "not_utf8.o": object_(note(CONTRACT, text.replace(b"activation", b"\xff\xfe"))),
        "wrong_type.o": object_(
            note(CONTRACT, text.replace(b'"toolchain":[13,5]', b'"toolchain":13'))
        ),
        "unknown_field.o": object_(note(CONTRACT, text.replace(b'"owner"', b'"ovner"'))),
        "cut_off.o": object_(note(CONTRACT, text, size=len(text) + 8)),
        "huge_description.o": object_(note(CONTRACT, text, size=0xFFFFFFFF)),
        "huge_section.o": object_(good, size=1 << 40),
        "long_section.o": object_(good, size=1 << 20),
        "compressed.o": object_(good, flags=COMPRESSED),
        "no_note_section.o": object_(good, kind=PROGBITS),
        "damaged_places.o": object_(good, note(PLACES, b"{}")),
        "long_place.o": object_(good, note(PLACES, lines.replace(b"epilogue.cu", b"e" * 1025))),
        "notes_over_notes.o": repeated(whole, 600),
        "rows_of_nothing.o": repeated(whole, 60_000, 0),
        "long_owner.o": object_(note(CONTRACT, text.replace(b"activation", b"a" * 1025))),
        "owner_of_two_lines.o": object_(note(CONTRACT, text.replace(b"activation", b"a\\n#error"))),
        "owner_of_a_terminal.o": object_(
            note(CONTRACT, text.replace(b"activation", b"\\u001b[2J"))
        ),
        "no_mode.o": object_(note(CONTRACT, text.replace(b"ftz=0 div=1", b"fast"))),
        "huge_number.o": object_(
            note(CONTRACT, text.replace(b'"align":128', b'"align":1' + b"0" * 4000))
        ),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    CORRUPT.mkdir(exist_ok=True)
    for name, data in corrupt_files().items():
        (CORRUPT / name).write_bytes(data)

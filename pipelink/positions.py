"""Lines of a TOML text: tomllib gives values, this gives where they stand.

The text is one that tomllib takes, so the scan knows no errors. A path is of keys and numbers:
("roles", 1, "steps", 0) is the first step of the second [[roles]].
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)
      | (?P<newline>\n)
      | (?P<text>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')
      | (?P<mark>[\[\]{}=,.])
      | (?P<bare>[^\s\[\]{}=,.\"'\#]+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Positions:
    """The line of each key, table and array item, and the texts among the values."""

    keys: dict[Path, int] = field(default_factory=dict)
    texts: list[tuple[str, Path, int]] = field(default_factory=list)

    def nearest(self, path: Path) -> int:
        """The line of a path, or of the longest part of it that stands in the text; else 0."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path, 0)


def positions(text: str) -> Positions:
    """The lines of a text; none if it is no TOML."""
    try:
        tomllib.loads(text)
        scan = _Scan(text.replace("\r\n", "\n"))
        scan.document()
    except (tomllib.TOMLDecodeError, RecursionError):
        return Positions()
    return scan.found


class _Scan:
    """Recursive descent over tokens, each (kind, text, line)."""

    def __init__(self, text: str) -> None:
        self.found = Positions()
        self.at = 0
        self.counts: dict[Path, int] = {}
        self.tokens: list[tuple[str, str, int]] = []
        line = 1
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup or ""
            if kind != "space":
                self.tokens.append((kind, match[0], line))
            line += match[0].count("\n")
        self.tokens.append(("end", "", line))

    def document(self) -> None:
        table: Path = ()
        while (kind := self.tokens[self.at][0]) != "end":
            if kind == "newline":
                self.at += 1
            elif self.is_("["):
                table = self.header()
            else:
                self.pair(table)

    def is_(self, mark: str) -> bool:
        return self.tokens[self.at][1] == mark

    def skip(self, mark: str) -> bool:
        """Steps over a mark if it is the next token."""
        self.at += (here := self.is_(mark))
        return here

    def newlines(self) -> None:
        while self.tokens[self.at][0] == "newline":
            self.at += 1

    def header(self) -> Path:
        line = self.tokens[self.at][2]
        self.at += 1
        many = self.skip("[")
        *first, last = self.key()
        path: Path = ()
        for name in first:
            self.found.keys.setdefault((*path, name), line)
            path = self.latest((*path, name))
        path = (*path, last)
        if many:
            self.counts[path] = self.counts.get(path, -1) + 1
            self.found.keys.setdefault(path, line)
            path = self.latest(path)
        self.found.keys[path] = line
        self.at += 2 if many else 1
        return path

    def latest(self, path: Path) -> Path:
        """The last table of an array of tables; any other path as it is."""
        return (*path, self.counts[path]) if path in self.counts else path

    def key(self) -> list[str]:
        """A key, dotted or not."""
        parts = []
        while True:
            parts.append(_plain(self.tokens[self.at][1]))
            self.at += 1
            if not self.skip("."):
                return parts

    def pair(self, table: Path) -> None:
        line, path = self.tokens[self.at][2], table
        for name in self.key():
            path = (*path, name)
            self.found.keys.setdefault(path, line)
        self.skip("=")
        self.value(path)

    def value(self, path: Path) -> None:
        kind, text, line = self.tokens[self.at]
        if self.skip("["):
            self.array(path)
        elif self.skip("{"):
            self.table(path)
        else:
            if kind == "text":
                self.found.texts.append((_plain(text), path, line))
            while self.tokens[self.at][0] in ("text", "bare") or self.is_("."):
                self.at += 1

    def array(self, path: Path) -> None:
        number = 0
        while True:
            self.newlines()
            if self.skip("]"):
                return
            self.found.keys[(*path, number)] = self.tokens[self.at][2]
            self.value((*path, number))
            number += 1
            self.newlines()
            self.skip(",")

    def table(self, path: Path) -> None:
        while True:
            self.newlines()
            if self.skip("}"):
                return
            self.pair(path)
            self.newlines()
            self.skip(",")


def _plain(text: str) -> str:
    """A key or a text without its quotes."""
    if not text.startswith(('"', "'")):
        return text
    value = tomllib.loads(f"v = {text}")["v"]
    return str(value)

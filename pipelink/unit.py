"""What a component's object shares with others beyond its contract, read off nvcc's device unit.

nvJitLink takes one definition of a symbol and drops the others without a word: an inline function or
a template that two owners compiled from a header with different -D has one body for both, and a
struct has a layout for each. It also joins an object that calls a function of another owner by hand,
with whatever arguments, and gives all `extern __shared__` arrays one base. None of it is visible in an
object, as LTO-IR is opaque. It is in the file that nvcc's front end hands to its device compiler
(`X.cudafe1.gpu`): plain C with a line marker before each line, every name mangled. This module reads
definitions and uses out of it. It looks for a few fixed forms and leaves all else alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from pipelink import abi
from pipelink.abi import Symbol
from pipelink.diagnostics import Diagnostic, FilePlace

_MARKER = re.compile(r'#\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)")
_FUNCTION = re.compile(r"___device__\((extern|static)?[^)]*\)[^;{(]*?\b(\w+)\(")
_ARRAY = r"(?:\[[^\]]*\])*"
_VARIABLE = re.compile(
    rf"(extern|static)?\s*__(device|constant|shared)__\s[^;=(]*?\b(\w+){_ARRAY}\s*[;=]"
)
_TYPE = re.compile(r"(?:struct|union) (\w+) (?:: [^{]*)?\{")
_ENUM = re.compile(r"enum (?:\w+ )?\{$")
_TYPEDEF = re.compile(rf"typedef (.*?)\b(\w+)({_ARRAY}|\)\(.*\));$")
_ALIGNED = re.compile(r"__aligned__\((\d+)\)")
_WEAK = ("nv_linkonce_odr", "nv_weak_odr", "__weak__")
_PADDING = re.compile(r"\s*char __nv_no_debug_dummy_\w+\[\d+\];")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z_]\w*")
# Names that the front end numbers: temporaries, and what has internal linkage. These carry a hash of
# their unit, at times the number of a process, and say how long it is.
_TEMPORARY = re.compile(r"__(?:cuda_local_var|T)_?\d[\d_]*")
_OF_UNIT = re.compile(r"(\d+)(?=_INTERNAL_|_GLOBAL__N_)|__nv_static_(\d+)_")
_INTERNAL = re.compile(r"\d_INTERNAL_[0-9a-f]{8}_\d|\d_GLOBAL__N__[0-9a-f]{8}_\d|^__nv_static_\d")
_OWN = ("pipelink_", "__")
# What the toolchain brings is the same for all objects of one version, which contracts record.
_TOOLKIT = re.compile(r'"([^"]+)/bin/\.\./include/')
_HOST = re.compile(r"/usr/include/|/include/c\+\+/|/lib/gcc/")
_LONGEST_NAME, _LONGEST_TEXT = 120, 600
_DEEP = 4  # typedefs of typedefs


@dataclass
class Unit:
    """Definitions of a device unit. `shared` and `calls` have no place in a component."""

    strong: list[Symbol] = field(default_factory=list)
    weak: list[Symbol] = field(default_factory=list)
    types: list[Symbol] = field(default_factory=list)
    shared: list[Symbol] = field(default_factory=list)
    calls: list[Symbol] = field(default_factory=list)

    def named(self, demangled: Callable[[Sequence[str]], list[str]]) -> Unit:
        """The same with names as people write them."""
        kinds = (self.strong, self.weak, self.types, self.shared, self.calls)
        names = iter(demangled([symbol.name for kind in kinds for symbol in kind]))
        return Unit(*([_shown(s, next(names)) for s in kind] for kind in kinds))


def read_unit(text: str) -> Unit:
    """The definitions in a device unit's text."""
    return _Reader(text).read()


class _Reader:
    """Reads line by line; what inline definitions stand for is known at the end."""

    def __init__(self, text: str) -> None:
        toolkit = _TOOLKIT.search(text)
        root = toolkit[1] if toolkit else "/none"
        self.toolkit = tuple(f"{root}/{name}/" for name in ("bin/..", "include", "targets"))
        self.files = {match[2].replace("\\", "") for match in _MARKER.finditer(text)}
        self.lines = _placed(text)
        self.unit = Unit()
        self.declared: dict[str, Symbol] = {}
        self.defined: set[str] = set()
        self.weak: list[tuple[str, str, str]] = []
        # What a name stands for in this unit alone: internal functions and variables, types by
        # another name, enumerators.
        self.texts: dict[str, str] = {}
        self.typedefs: dict[str, str] = {}

    def read(self) -> Unit:
        for number, (line, place) in enumerate(self.lines):
            bare = _ATTRIBUTE.sub("", line).strip()
            if match := _TYPE.match(line):
                self.type(match[1], number)
            elif match := _FUNCTION.search(bare):
                self.function(match[1], match[2], number)
            elif match := _VARIABLE.match(bare):
                self.variable(match, line, place)
            elif not self.foreign(place):
                self.word(line, number)
        self.unit.weak = [Symbol(n, self.hash(text), place) for n, text, place in self.weak]
        left = [s for name, s in self.declared.items() if name not in self.defined]
        self.unit.calls = [s for s in left if self.listed(s.name, s.place, left=True)]
        return self.unit

    def type(self, name: str, number: int) -> None:
        place = self.lines[number][1]
        if self.listed(name, place):
            members = self.members(_below(self.lines, number))
            self.unit.types.append(Symbol(name, members, place))

    def function(self, linkage: str | None, name: str, number: int) -> None:
        line, place = self.lines[number]
        whole = _below(self.lines, number)
        if "{" not in whole:
            if linkage == "extern" and "__device_builtin__" not in line:
                self.declared[name] = Symbol(name, place=place)
            return
        self.defined.add(name)
        if linkage == "static":
            self.own(name, whole, place)
        elif self.listed(name, place):
            if any(word in line for word in _WEAK):
                self.weak.append((name, whole, place))
            else:
                self.unit.strong.append(Symbol(name, place=place))

    def variable(self, match: re.Match[str], line: str, place: str) -> None:
        linkage, space, name = match.groups()
        if space == "shared":
            self.unit.shared.append(Symbol(name, linkage or "", place))
        elif linkage == "extern":
            self.declared[name] = Symbol(name, "variable", place)
        else:
            self.defined.add(name)
            if linkage == "static":
                self.own(name, line, place)
            elif "nv_weak_odr" in line and self.listed(name, place):
                self.weak.append((name, line, place))

    def word(self, line: str, number: int) -> None:
        """A type by another name, or an enumeration."""
        if match := _TYPEDEF.match(line):
            self.typedefs[match[2]] = f"{match[1].strip()}{match[3]}"
            self.texts[match[2]] = line
        elif _ENUM.match(line):
            whole = _below(self.lines, number)
            self.texts |= dict.fromkeys(_WORD.findall(whole.partition("{")[2]), whole)

    def own(self, name: str, text: str, place: str) -> None:
        if not self.foreign(place):
            self.texts[name] = text

    def foreign(self, place: str) -> bool:
        return place.startswith(self.toolkit) or bool(_HOST.search(place))

    def listed(self, name: str, place: str, *, left: bool = False) -> bool:
        """Whether another object could have the same name, and it is not the toolchain's. An entry
        of PipeLink that is `left` undefined is one of another owner."""
        if name.startswith(_OWN) and not (left and name.startswith("pipelink__")):
            return False
        return not _INTERNAL.search(name) and not self.foreign(place)

    def hash(self, text: str) -> str:
        """Of a definition, with all that it names and no other unit has."""
        seen, left = {text: None}, [text]
        while left:
            for word in _WORD.findall(left.pop()):
                own = self.texts.get(word)
                if own is not None and own not in seen:
                    seen[own] = None
                    left.append(own)
        return _hash(self.plain("\n".join(seen)))

    def plain(self, text: str) -> str:
        """A text without what differs from unit to unit: numbers of names, names of its files."""
        parts, at = [], 0
        while match := _OF_UNIT.search(text, at):
            parts.append(text[at : match.start()])
            at = match.end() + int(match[1] or match[2])
        text = _TEMPORARY.sub("_", "".join([*parts, text[at:]]))
        return _STRING.sub(self.no_file, text)

    def no_file(self, text: re.Match[str]) -> str:
        """A marker has the name of a file without the backslashes of a string."""
        return '""' if text[1].replace("\\", "") in self.files else text[0]

    def members(self, text: str) -> str:
        """A type's members and its alignment, with types by their first names; of a long one a hash."""
        inside, _, after = self.plain(text).partition("{")[2].rpartition("}")
        inside = _PADDING.sub("", inside).strip()
        for _ in range(_DEEP):
            inside = _WORD.sub(lambda w: self.typedefs.get(w[0], w[0]), inside)
        if aligned := _ALIGNED.search(after):
            inside += f" aligned to {aligned[1]};"
        return inside if len(inside) <= _LONGEST_TEXT else f"#{_hash(inside)}"


def _placed(text: str) -> list[tuple[str, str]]:
    """Each line with the `file:line` that the marker before it names."""
    place, found = "", []
    for line in text.splitlines():
        marker = _MARKER.match(line)
        if marker:
            file = re.sub(r"\\(.)", r"\1", marker[2])
            place = f"{file}:{marker[1]}"
        elif line and not line.startswith("#"):
            found.append((line.strip(), place))
    return found


def _below(lines: list[tuple[str, str]], first: int) -> str:
    """A declaration or definition from its first line on: to its semicolon or its closing brace."""
    depth, taken = 0, []
    for line, _ in lines[first:]:
        taken.append(line)
        bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', "", line)
        depth += bare.count("{") - bare.count("}")
        if depth <= 0 and (bare.endswith((";", "}")) or "}" in bare):
            break
    return " ".join(taken)


def _hash(text: str) -> str:
    return f"{abi.fnv1a(text.encode()):016x}"


def _shown(symbol: Symbol, name: str) -> Symbol:
    shown = "" if name == symbol.name else _short(name)
    return replace(symbol, name=_short(symbol.name), shown=shown)


def _short(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 17]}~{abi.fnv1a(name.encode()):016x}"


def faults(unit: Unit) -> Iterator[Diagnostic]:
    """What a component may not do: it would be linked without a word, and be wrong."""
    for symbol in unit.shared:
        one_base = "all `extern __shared__` arrays of a kernel have one base, that of the arena"
        yield Diagnostic(
            "PL046",
            f"'{symbol.shown or symbol.name}' is shared memory that no contract claims",
            FilePlace(symbol.place),
            notes=(one_base,) if symbol.text == "extern" else (),
            help="claim the bytes with pl::claims_shared and take their address from it",
        )
    for symbol in unit.calls:
        used = "used" if symbol.text == "variable" else "called"
        yield Diagnostic(
            "PL047",
            f"'{symbol.shown or symbol.name}' is {used}, and this object does not define it",
            FilePlace(symbol.place),
            notes=("a link by name checks no types: it may find another thing of this name",),
            help="include its definition, or let its owner make it an entry that the kernel runs",
        )

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
_DECLARED = re.compile(r"___device__\((extern)?[^)]*\)[^;{(]*?\b(\w+)\(")
_ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)")
_INTERNAL = ("_INTERNAL_", "_GLOBAL__N_")
_SHARED = re.compile(r"(?:^|\s)__shared__\s[^;=]*?\b(\w+)(?:\[[^;]*)?[;=]")
_TYPE = re.compile(r"(?:struct|union) (\w+) (?:: [^{]*)?\{")
# Names that the front end numbers by unit: of temporaries, and of what has internal linkage.
_NUMBERED = re.compile(
    r"_INTERNAL_[0-9a-f]{8}_\d+_\w+?_[0-9a-f]{8}|__(?:cuda_local_var|T)_?\d[\d_]*"
)
_OWN = ("pipelink_", "__")
# What the toolchain brings is the same for all objects of one version, which contracts record.
_FOREIGN = ("/include/crt/", "/cuda_", "/nvidia/", "/c++/", "/usr/include/", "/gcc/")
_LONGEST_NAME, _LONGEST_TEXT = 120, 600


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
    unit = Unit()
    declared: dict[str, Symbol] = {}
    defined: set[str] = set()
    lines = _placed(text)
    for number, (line, place) in enumerate(lines):
        if "__shared__" in line and (match := _SHARED.search(line)):
            unit.shared.append(Symbol(match[1], place=place))
        if match := _TYPE.match(line):
            if _listed(match[1], place):
                body = _below(lines, number)
                unit.types.append(Symbol(match[1], _kept(body), place))
        elif match := _DECLARED.search(_ATTRIBUTE.sub("", line)):
            linkage, name = match[1], match[2]
            whole = _below(lines, number)
            if whole.rstrip().endswith(";") and "{" not in whole:
                if linkage and "__device_builtin__" not in line:
                    declared[name] = Symbol(name, place=place)
                continue
            defined.add(name)
            if "(static" in line or not _listed(name, place):
                continue
            weak = "nv_linkonce_odr" in line or "nv_weak_odr" in line
            own = Symbol(name, _hash(whole) if weak else "", place)
            (unit.weak if weak else unit.strong).append(own)
    unit.calls = [s for n, s in declared.items() if n not in defined and _listed(n, s.place)]
    return unit


def _placed(text: str) -> list[tuple[str, str]]:
    """Each line with the `file:line` that the marker before it names."""
    place, found = "", []
    for line in text.splitlines():
        marker = _MARKER.match(line)
        if marker:
            file = marker[2].encode().decode("unicode_escape", errors="replace")
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


def _listed(name: str, place: str) -> bool:
    """Whether another object could have the same name, and it is not the toolchain's."""
    if name.startswith(_OWN) or any(part in name for part in _INTERNAL):
        return False
    return not any(part in place for part in _FOREIGN)


def _hash(text: str) -> str:
    return f"{abi.fnv1a(_NUMBERED.sub('_', text).encode()):016x}"


def _kept(text: str) -> str:
    """A type's members; of a long type, their hash."""
    inside = _NUMBERED.sub("_", text.partition("{")[2].rpartition("}")[0]).strip()
    return inside if len(inside) <= _LONGEST_TEXT else f"#{_hash(inside)}"


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
        yield Diagnostic(
            "PL046",
            f"'{symbol.shown or symbol.name}' is shared memory that no contract claims",
            FilePlace(symbol.place),
            notes=("all `extern __shared__` arrays of a kernel have one base, that of the arena",),
            help="claim the bytes with pl::claims_shared and take their address from it",
        )
    for symbol in unit.calls:
        yield Diagnostic(
            "PL047",
            f"'{symbol.shown or symbol.name}' is called, and this object does not define it",
            FilePlace(symbol.place),
            notes=(
                "a link by name checks no types: the call may go to a function of other arguments",
            ),
            help="include its definition, or let its owner make it an entry that the kernel runs",
        )

"""Mutants of a component's source: each with one token of its contract changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\s+|//[^\n]*|==|!=|<=|>=|&&|\|\||.', re.DOTALL)
ITEM = re.compile(r"constexpr (?:auto|int) (\w+)")
WORDS = {
    "bf16": ("f16",),
    "float": ("int",),
    "int": ("float",),
    "swizzle_128": ("swizzle_64", "no_swizzle"),
    "no_swizzle": ("swizzle_128",),
    "each_warp": ("each_thread", "one_thread"),
    "each_thread": ("each_warp", "one_thread"),
    "each_warpgroup": ("each_warp", "one_thread"),
    "by_copies": ("each_warp", "one_thread"),
    "async_proxy": ("generic_proxy",),
    "generic_proxy": ("async_proxy",),
    "edge_zero": ("edge_undefined",),
    "edge_undefined": ("edge_zero",),
    "by_row": ("by_column", "whole"),
    "by_column": ("by_row", "whole"),
    "whole": ("by_row",),
    "provides": ("chooses", "agrees"),
    "chooses": ("imports",),
    "agrees": ("provides",),
    "extent": ("imports",),
    "promises": ("needs",),
    "needs": ("promises",),
    "fill": ("acquire", "commit"),
    "drain": ("wait", "release"),
    "wait": ("release",),
    "release": ("wait",),
    "min": ("max",),
    "fragment_out": ("fragment_in",),
    "fragment_in": ("fragment_out",),
    "array_out": ("array_in",),
    "array_in": ("array_out",),
    "below": ("ascending",),
    "ascending": ("below",),
    "true": ("false",),
    "false": ("true",),
}
SIGNS = {"*": "+", "/": "*", "-": "+", "%": "/", "==": "!=", ">=": ">", "<=": "<", "&&": "||"}
CHAINED = re.compile(r"\.(?:clipped|per_warp|per_warpgroup|edge_zero|edge_undefined|distinct)\(\)")


@dataclass
class Mutant:
    """One token changed, and what came of it."""

    manifest: str
    source: str
    item: str
    lines: tuple[int, int]
    kind: str
    before: str
    after: str
    text: str = field(repr=False, default="")
    outcome: str = ""
    codes: tuple[str, ...] = ()
    named: bool = False
    said: str = ""
    cubin: str = ""
    differences: int | None = None
    run: str = ""


def items(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of each statement of a contract, before PIPELINK_COMPONENT."""
    stop = text.index("PIPELINK_COMPONENT(")
    for match in ITEM.finditer(text, 0, stop):
        yield match[1], match.start(), text.index(";", match.end()) + 1


def changes(token: str, facts: list[str]) -> Iterator[tuple[str, str]]:
    """(kind, other token) of a token of a contract."""
    number = re.fullmatch(r"(\d+)(_n)?", token)
    if number:
        value, suffix = int(number[1]), number[2] or ""
        for other in dict.fromkeys((value + 1, value * 2, value // 2)):
            if other != value:
                yield "number", f"{other}{suffix}"
    elif token.startswith('"'):
        yield from texts(token[1:-1])
    elif token in WORDS:
        yield from (("word", other) for other in WORDS[token])
    elif token in SIGNS:
        yield "operator", SIGNS[token]
    elif token in facts:
        yield "fact", facts[(facts.index(token) + 1) % len(facts)]


def texts(text: str) -> Iterator[tuple[str, str]]:
    """Other texts: a name with a letter more; each number and name of a layout."""
    if not re.search(r"[():]", text) or " " in text:
        yield "name" if re.fullmatch(r"\w+", text) else "text", f'"{text}x"'
        return
    for match in re.finditer(r"\d+|[a-z_]+", text):
        other = str(int(match[0]) * 2) if match[0].isdigit() else "1"
        yield "layout", f'"{text[: match.start()]}{other}{text[match.end() :]}"'


def mutants(manifest: str, source: str) -> Iterator[Mutant]:
    text = (ROOT / source).read_text()
    found = list(items(text))
    facts = [
        name for name, a, b in found if re.search(r"<\"\w+\"", text[a:b]) and is_fact(text[a:b])
    ]
    seen = {text}
    for name, start, end in found:
        lines = (text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1)
        for at, kind, before, after in edits(text, name, start, end, facts):
            changed = text[:at] + after + text[at + len(before) :]
            if changed not in seen:
                seen.add(changed)
                yield Mutant(manifest, source, name, lines, kind, before, after, changed)


def is_fact(statement: str) -> bool:
    kinds = r"pl::(?:provides|chooses|imports|imports_or|derives)<"
    return re.search(kinds, statement) is not None


def edits(
    text: str, name: str, start: int, end: int, facts: list[str]
) -> Iterator[tuple[int, str, str, str]]:
    """(offset, kind, before, after) of each change of a statement."""
    head = ITEM.match(text, start)
    assert head is not None
    if name == "contract":
        yield from dropped(text, start, end)
        return
    for token in TOKEN.finditer(text, head.end(), end):
        if token[0].startswith("//") or token[0].isspace() or token[0] == name:
            continue
        for kind, other in changes(token[0], facts):
            yield token.start(), kind, token[0], other
    for chained in CHAINED.finditer(text, start, end):
        yield chained.start(), "word", chained[0], ""


def dropped(text: str, start: int, end: int) -> Iterator[tuple[int, str, str, str]]:
    """Each item left out of the contract's list, and its texts changed."""
    listed = text.index("(", start)
    for token in re.finditer(r'"(\w+)"', text[start:listed]):
        yield start + token.start(), "name", token[0], f'"{token[1]}x"'
    for token in re.finditer(r"\b(\w+),\s*", text[listed:end]):
        yield listed + token.start(), "dropped", token[0], ""

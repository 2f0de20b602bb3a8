"""The result of `diff`: lines for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pipelink import abi
from pipelink.diff import Change, Level

WORDS: Mapping[Level, str] = {
    Level.COMPATIBLE: "compatible",
    Level.RELINK: "needs relink",
    Level.AGREE: "needs consumers to agree",
    Level.BREAKING: "breaking",
}
NO_CHANGE = "no change"
SHOWN = 80

# What an item is, where the whole of it is new or gone.
ITEMS: Mapping[type[abi.Record], Callable[[Any], str]] = {
    abi.Fact: lambda f: " ".join(filter(None, (f.kind, _text(f.values, ""), f.value))),
    abi.Requirement: lambda r: r.why,
    abi.Claim: lambda c: f"{c.kind} {c.amount}".strip(),
    abi.Port: lambda p: " ".join(filter(None, (p.space, p.direction, p.element))),
    abi.Part: lambda p: f"{p.element} [{', '.join(p.shape)}]",
    abi.Copy: lambda c: f"{c.count} of {c.port}",
    abi.Cover: lambda c: f"{c.along} {c.step}",
    abi.Holds: lambda h: " ".join((h.what, " x ".join(h.sizes))).strip(),
    abi.Entry: lambda e: f"{e.kind} ({', '.join(e.arguments)})",
    abi.Operation: lambda o: " ".join(filter(None, (o.do, o.on, o.name, o.count))),
    abi.Tiling: lambda t: f"{t.of} by {t.step}",
    abi.Promise: lambda p: p.side,
    abi.SharedType: lambda t: f"{t.size} bytes",
    abi.Field: lambda f: f"{f.size} bytes at {f.offset}",
}


def as_text(changes: Sequence[Change]) -> str:
    """The changes by class, worst first, and the verdict."""
    return "\n".join([*_lines(changes), _verdict(changes)])


def _lines(changes: Sequence[Change]) -> Iterator[str]:
    for level in sorted(WORDS, reverse=True):
        found = [c for c in changes if c.level == level]
        if found:
            yield WORDS[level]
        for c in found:
            yield f"  {c.path}: {_text(c.old)} -> {_text(c.new)}; {c.why}"


def _verdict(changes: Sequence[Change]) -> str:
    if not changes:
        return f"verdict: {NO_CHANGE} of the contract (the code may differ)"
    number = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    return f"verdict: {_worst(changes)} ({number})"


def _worst(changes: Sequence[Change]) -> str:
    return WORDS[max(c.level for c in changes)] if changes else NO_CHANGE


def _text(value: object, nothing: str = "nothing") -> str:
    """A value of a contract on one line."""
    if isinstance(value, abi.Record):
        text = ITEMS[type(value)](value)
    elif isinstance(value, tuple):
        text = ", ".join(map(_text, value))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    text = nothing if value is None or not text else text
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def as_json(changes: Sequence[Change]) -> str:
    """The same as one JSON object, with whole values."""
    rows = [
        {"class": WORDS[c.level], "path": c.path, "old": c.old, "new": c.new, "why": c.why}
        for c in changes
    ]
    return msgspec.json.encode({"verdict": _worst(changes), "changes": rows}).decode()

"""Diagnostics rendered: text for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pipelink.diagnostics import Diagnostic
from pipelink.report.locate import Locate


def as_text(found: Sequence[Diagnostic], locate: Locate) -> str:
    """Each diagnostic: what, where, the other side, why, and the way out."""
    return "".join(f"{line}\n" for d in found for line in _lines(d, locate))


def _lines(d: Diagnostic, locate: Locate) -> Iterator[str]:
    yield f"error[{d.code}]: {d.message}"
    places = [w for w in (d.primary, *d.secondary) if w is not None]
    shown = [f"  --> {locate(w)}" + (f": {w.label}" if w.label else "") for w in places]
    yield from dict.fromkeys(shown)
    yield from (f"  = note: {note}" for note in d.notes)
    if d.help:
        yield f"  = help: {d.help}"


def as_json(found: Sequence[Diagnostic], locate: Locate) -> str:
    """The same as one JSON object."""
    rows = [
        {
            "code": d.code,
            "message": d.message,
            "places": [locate(w) for w in (d.primary, *d.secondary) if w is not None],
            "notes": d.notes,
            "help": d.help,
        }
        for d in found
    ]
    return msgspec.json.encode({"diagnostics": rows}).decode()

"""Diagnostics rendered: text for people, JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pipelink.diagnostics import Diagnostic
from pipelink.report.fold import Finding, distinct, folded
from pipelink.report.locate import Locate, Spot, source_line

# Of one code, so many are shown; the rest is counted.
SHOWN = 20


def as_text(found: Sequence[Diagnostic], locate: Locate) -> str:
    """Each diagnostic: what, where, the other sides, why, and the way out. Then how many."""
    if not found:
        return ""
    findings = folded(found, locate)
    shown, hidden = capped(findings)
    blocks = ["\n".join(_lines(f)) for f in shown]
    rest = [f"and {count} more of {code}" for code, count in hidden.items()]
    errors = f"{len(findings)} error{'s' if len(findings) > 1 else ''}"
    return "\n\n".join([*blocks, "\n".join([*rest, f"pipelink: {errors}"])]) + "\n"


def capped(findings: Sequence[Finding]) -> tuple[list[Finding], dict[str, int]]:
    """The first of each code, and how many more there are."""
    seen: Counter[str] = Counter()
    shown = []
    for finding in findings:
        seen[finding.code] += 1
        if seen[finding.code] <= SHOWN:
            shown.append(finding)
    return shown, {code: count - SHOWN for code, count in seen.items() if count > SHOWN}


def _lines(finding: Finding) -> Iterator[str]:
    yield f"error[{finding.code}]: {_printable(finding.message)}"
    for number, spots in enumerate(_by_line(finding.spots)):
        yield from _place(spots, first=number == 0)
    yield from (line for note in finding.notes for line in _said("note", note))
    if finding.help:
        yield from _said("help", finding.help)


def _by_line(spots: Sequence[Spot]) -> list[list[Spot]]:
    """Places of one line stand together, in the order of the first."""
    groups: dict[str, list[Spot]] = {}
    for spot in spots:
        groups.setdefault(str(spot), []).append(spot)
    return list(groups.values())


def _place(spots: Sequence[Spot], *, first: bool) -> Iterator[str]:
    """A line of a file with its number, under it what is said of it."""
    labels = list(dict.fromkeys(_printable(s.label) for s in spots if s.label))
    head = f"  {'-->' if first else ':::'} {_printable(str(spots[0]))}"
    line = source_line(spots[0])
    if line is None:
        yield f"{head}: {'; '.join(labels)}" if labels else head
        return
    number = f"{spots[0].line:>2}"
    gutter = f"{' ' * len(number)} |"
    yield from (head, gutter, f"{number} | {_printable(line)}".rstrip())
    yield from (f"{gutter} {'^^^' if first else '---'} {label}" for label in labels)


def _said(title: str, text: str) -> Iterator[str]:
    """A note or a help; the lines after the first are set under it."""
    first, *rest = text.rstrip().split("\n")
    yield f"  = {title}: {_printable(first)}".rstrip()
    yield from (f"          {_printable(line)}".rstrip() for line in rest)


def _printable(text: str) -> str:
    """A text that moves no cursor: what contracts and sources say goes to a terminal."""
    text = text.replace("\t", " ")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def as_json(found: Sequence[Diagnostic], locate: Locate) -> str:
    """All of it as one JSON object; the first place of each is the primary one."""
    rows = [
        {
            "code": d.code,
            "message": d.message,
            "places": [_row(spot) for spot in _sides(d, locate)],
            "notes": d.notes,
            "help": d.help,
        }
        for d in found
    ]
    return msgspec.json.encode({"diagnostics": rows}).decode()


def _sides(diagnostic: Diagnostic, locate: Locate) -> list[Spot]:
    """The places of a diagnostic, each instance's once."""
    places = [w for w in (diagnostic.primary, *diagnostic.secondary) if w is not None]
    return distinct(map(locate, places), lambda spot: (str(spot), spot.instance))


def _row(spot: Spot) -> dict[str, str | int | None]:
    return {
        "file": spot.file,
        "line": spot.line or None,
        "label": spot.label,
        "instance": spot.instance,
        "key": spot.key,
    }

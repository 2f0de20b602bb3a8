"""Repeats folded: what is wrong with every instance of a component is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pipelink.diagnostics import Diagnostic, Place, Where
from pipelink.report.locate import Locate, Spot


@dataclass(frozen=True)
class Finding:
    """A diagnostic with its places looked up, the primary one first."""

    code: str
    message: str
    spots: tuple[Spot, ...]
    notes: tuple[str, ...]
    help: str


def folded(found: Sequence[Diagnostic], locate: Locate) -> list[Finding]:
    """One finding for those that say the same of the same lines, and differ in instances only."""
    first: dict[object, Finding] = {}
    others: dict[object, list[str]] = {}
    for diagnostic in found:
        places = [w for w in (diagnostic.primary, *diagnostic.secondary) if w is not None]
        spots = tuple(map(locate, places))
        shown = tuple(distinct(spots, str))
        finding = Finding(
            diagnostic.code, diagnostic.message, shown, diagnostic.notes, diagnostic.help
        )
        key = (diagnostic.code, _sites(places, spots), _without_names(diagnostic.message, spots))
        if key not in first:
            first[key] = finding
            others[key] = []
        elif spots and spots[0].instance:
            others[key].append(spots[0].instance)
    return [_noted(finding, others[key]) for key, finding in first.items()]


def distinct(spots: Iterable[Spot], site: Callable[[Spot], object]) -> list[Spot]:
    """Places without those that say nothing new of a site."""
    said: dict[object, set[str]] = {}
    kept = []
    for spot in spots:
        labels = said.setdefault(site(spot), set())
        if not labels or spot.label not in {"", *labels}:
            kept.append(spot)
        labels.add(spot.label)
    return kept


def _sites(places: Sequence[Where], spots: Sequence[Spot]) -> tuple[object, ...]:
    """Where the places are, whoever's they are. A file without lines can hold many sites."""
    items = [(w.section, w.index) if isinstance(w, Place) else "" for w in places]
    return tuple((s.file, s.line, s.key, item) for s, item in zip(spots, items, strict=True))


def _without_names(message: str, spots: Sequence[Spot]) -> str:
    """The message with the instances of its places numbered in place of named."""
    names = dict.fromkeys(s.instance for s in spots if s.instance)
    for number, name in enumerate(names):
        message = re.sub(rf"(?<=['.]){re.escape(name)}(?=['.\]])", f"#{number}", message)
    return message


def _noted(finding: Finding, instances: Sequence[str]) -> Finding:
    names = [f"'{name}'" for name in dict.fromkeys(instances)]
    if not names:
        return finding
    note = f"the same for instance{'s' if len(names) > 1 else ''} {', '.join(names)}"
    return replace(finding, notes=(*finding.notes, note))

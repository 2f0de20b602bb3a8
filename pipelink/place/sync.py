"""Barriers between the acts of a role: who writes bytes that another warp reads, or reads bytes that
another warp writes next, waits for all warps of the role in between.

A phase with a schedule goes through its acts again and again, so the walk goes round twice: what the
first round leaves open meets the start of the second. A barrier stands as late as it can, right
before the act that needs it, so that one serves all that came before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipelink.place.program import Act

# Ranges of bytes of the arena, by the name of what lies there.
Spans = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Wait:
    """A barrier before act number `before`, and what needs it. `warp`: each warp waits for its own
    threads alone. `fence`: other bytes lie there now, and may be used through the async proxy."""

    before: int
    reason: str
    warp: bool
    fence: bool = False


def waits(acts: tuple[Act, ...], spans: Spans, again: bool) -> tuple[Wait, ...]:
    """Where a role has to wait for its own warps, or a warp for its threads."""
    found: dict[int, Wait] = {}
    # Acts since the last barrier of the role, and whether a barrier of the warp came after.
    pending: list[tuple[Act, bool]] = []
    for _ in range(2 if again else 1):
        for number, act in enumerate(acts):
            clash = _clash(number, pending, act, spans)
            if clash is not None and (number not in found or found[number].warp):
                found[number] = clash
            if number in found:
                after = found[number]
                pending = [(earlier, True) for earlier, _ in pending] if after.warp else []
            if act.reads or act.writes:
                pending.append((act, False))
    return tuple(sorted(found.values(), key=lambda w: w.before))


def _clash(number: int, pending: list[tuple[Act, bool]], act: Act, spans: Spans) -> Wait | None:
    """The barrier that an act needs: one of the role before one of the warp."""
    needed = [
        Wait(number, reason, warp, fence)
        for earlier, waited in pending
        for reason, warp, fence in _clashes(earlier, act, spans)
        if not (warp and waited)
    ]
    first = min(needed, key=lambda w: w.warp, default=None)
    return replace(first, fence=any(w.fence for w in needed)) if first else None


def _clashes(earlier: Act, act: Act, spans: Spans) -> Iterator[tuple[str, bool, bool]]:
    """Pairs of names whose bytes an earlier act and this one use, at least one of them to write, in
    words; whether they meet within each warp; whether other bytes lie where stores were made."""
    for mine, writes in _touched(act):
        for theirs, wrote in _touched(earlier):
            # What a component does with its own claims is its own to order.
            own = mine == theirs and earlier.step == act.step and act.do == "call"
            if (writes or wrote) and not own and _overlap(spans, mine, theirs):
                warp = mine == theirs and act.warp and earlier.warp
                done = f"'{theirs}' was {'written' if wrote else 'read'}"
                then = (
                    f"{'it' if mine == theirs else repr(mine)} is {'written' if writes else 'read'}"
                )
                yield f"{done}, then {then}", warp, wrote and mine != theirs


def _touched(act: Act) -> Iterator[tuple[str, bool]]:
    """Names with whether they are written; in a fixed order."""
    for name in sorted(act.reads | act.writes):
        yield name, name in act.writes


def _overlap(spans: Spans, one: str, other: str) -> bool:
    return any(a < d and c < b for a, b in spans[one] for c, d in spans[other])

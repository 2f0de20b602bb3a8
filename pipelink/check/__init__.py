"""The rules: each is a function of a view to diagnostics, by subject."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from pipelink.check import (
    channels,
    coverage,
    objects,
    parameters,
    protocol,
    rings,
    roles,
    values,
)
from pipelink.diagnostics import MOST_FINDINGS, Diagnostic, checkpoint
from pipelink.view import View

Rule = Callable[[View], Iterable[Diagnostic]]

# Without these the other rules would compute with nonsense.
FIRST: tuple[Rule, ...] = (values.computable, values.sizes)

# Without these there is no kernel to speak of: the other rules would only say so again.
SHAPE: tuple[Rule, ...] = (
    roles.steps,
    roles.schedule,
    channels.exist,
    channels.once,
    parameters.connected,
)

RULES: tuple[Rule, ...] = (
    objects.target,
    objects.floating_point,
    objects.toolchain,
    objects.agreed,
    objects.types,
    objects.symbols,
    objects.requirements,
    roles.warps,
    roles.register_values,
    roles.registers_move,
    roles.barrier_threads,
    roles.scopes,
    roles.one_thread,
    roles.placed,
    channels.fit,
    channels.edges,
    channels.promises,
    channels.layouts,
    channels.one_owner,
    channels.order,
    channels.conversions,
    channels.stages,
    channels.ring_stages,
    channels.compact,
    parameters.bounds,
    parameters.extents,
    parameters.agree,
    parameters.writers,
    parameters.phases,
    parameters.bulk,
    parameters.boxes,
    rings.arrivers,
    rings.ordered,
    rings.fences,
    rings.filled,
    coverage.covered,
    coverage.groups,
    protocol.plays,
    protocol.pipelines,
)


def _found(view: View, *rules: Rule) -> list[Diagnostic]:
    return [fault for rule in rules for fault in itertools.islice(rule(view), MOST_FINDINGS)]


def connected(view: View) -> None:
    """What needs no fact's value: without it imports would be looked for over the wrong channels, or none,
    and every fact that they miss would be a fault of its own."""
    checkpoint(_found(view, *SHAPE))


def check(view: View) -> tuple[str, ...]:
    """Every rule; all that they find is reported together. Returns what no rule could tell."""
    for rule in FIRST:
        checkpoint(_found(view, rule))
    connected(view)
    found = _found(view, *RULES)
    checkpoint([fault for fault in found if not fault.remark])
    return tuple(fault.message for fault in found)

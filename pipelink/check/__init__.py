"""The rules: each is a function of a view to diagnostics, by subject."""

from __future__ import annotations

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
from pipelink.diagnostics import Diagnostic, checkpoint
from pipelink.view import View

Rule = Callable[[View], Iterable[Diagnostic]]

# Without these the other rules would compute with nonsense.
FIRST: tuple[Rule, ...] = (values.computable, values.sizes)

RULES: tuple[Rule, ...] = (
    objects.target,
    objects.floating_point,
    objects.toolchain,
    objects.agreed,
    objects.types,
    objects.symbols,
    objects.requirements,
    roles.steps,
    roles.schedule,
    roles.warps,
    roles.register_values,
    roles.barrier_threads,
    roles.scopes,
    roles.placed,
    channels.exist,
    channels.once,
    channels.fit,
    channels.edges,
    channels.promises,
    channels.layouts,
    channels.one_owner,
    channels.order,
    parameters.connected,
    parameters.bounds,
    parameters.agree,
    parameters.boxes,
    rings.arrivers,
    rings.filled,
    coverage.covered,
    protocol.plays,
    protocol.pipelines,
)


def check(view: View) -> tuple[str, ...]:
    """Every rule; all that they find is reported together. Returns what no rule could tell."""
    for rule in FIRST:
        checkpoint(list(rule(view)))
    found = [fault for rule in RULES for fault in rule(view)]
    checkpoint([fault for fault in found if not fault.remark])
    return tuple(fault.message for fault in found)

"""Facts that the manifest leaves to the link: the best values with which the kernel is possible.

`[free]` names facts that their owners offer in a finite set, and what to have the most of: expressions
over facts, the first before the second. All combinations are put into the order of the objective,
equal ones in the order in which the owners list their values; the first that passes check and place
is taken, so it is the best one that is feasible.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from msgspec.structs import replace as with_fields

from pipelink import expression
from pipelink.abi import Value
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, checkpoint
from pipelink.expression import ExpressionError
from pipelink.model import Choice, Kernel, Plan
from pipelink.resolve import Facts, resolve, shown

MOST_COMBINATIONS = 4096
_FACT = re.compile(r"\b([A-Za-z]\w*)\.([A-Za-z]\w*)\b")

Values = dict[str, Value]  # by `instance.fact`


def choose(kernel: Kernel, planned: Callable[[Kernel], Plan]) -> Plan:
    """The plan with the best values of the free facts; raises if no combination is possible."""
    checkpoint(list(_faults(kernel)))
    candidates = _ordered(kernel)
    failed: list[tuple[Values, InputError]] = []
    for values in candidates:
        try:
            plan = planned(_with(kernel, values))
        except InputError as error:
            failed.append((values, error))
            continue
        why = _why(kernel, len(candidates), failed)
        choices = tuple(Choice(name, value, why) for name, value in values.items())
        return with_fields(plan, choices=choices)
    raise InputError(_impossible(kernel, failed))


def _faults(kernel: Kernel) -> Iterator[Diagnostic]:
    path = kernel.manifest.path
    for text in kernel.manifest.free:
        name, _, fact_name = text.partition(".")
        instance = kernel.instance(name)
        offered = [f.name for f in instance.contract.facts if f.kind == "chooses"]
        if fact_name not in offered:
            yield Diagnostic(
                "PL054",
                f"[free] names '{text}', and {instance.contract.component} of "
                f"{instance.contract.owner} offers no choice of it",
                FilePlace(path, text),
                help=f"facts that it leaves open: {', '.join(offered) or 'none'}",
            )
        spec = next(s for s in kernel.manifest.instances if s.name == name)
        if fact_name in spec.facts:
            yield Diagnostic(
                "PL054",
                f"'{text}' is free, and fixed to {shown(spec.facts[fact_name])} in [instances.{name}]",
                FilePlace(path, text),
                help="leave it out of one of the two",
            )
    if kernel.manifest.most and not kernel.manifest.free:
        yield Diagnostic("PL054", "[free] has an objective and no facts", FilePlace(path, "free"))
    total = math.prod(len(v) for v in _offers(kernel).values())
    if total > MOST_COMBINATIONS:
        yield Diagnostic(
            "PL054",
            f"the free facts have {total} combinations, at most {MOST_COMBINATIONS} are tried",
            FilePlace(path, "free"),
            help="fix some of them",
        )


def _offers(kernel: Kernel) -> dict[str, tuple[Value, ...]]:
    """The values of each free fact, as its owner lists them."""
    found = {}
    for text in kernel.manifest.free:
        name, _, fact_name = text.partition(".")
        facts = kernel.instance(name).contract.facts
        found[text] = next((f.values for f in facts if f.name == fact_name), ())
    return found


def _with(kernel: Kernel, values: Values) -> Kernel:
    """The kernel with these facts fixed."""
    specs = []
    for spec in kernel.manifest.instances:
        names = (spec.name, spec.like)
        own = {t.partition(".")[2]: v for t, v in values.items() if t.partition(".")[0] in names}
        specs.append(replace(spec, facts={**spec.facts, **own}) if own else spec)
    manifest = replace(kernel.manifest, instances=tuple(specs), free=(), most=())
    return replace(kernel, manifest=manifest)


def _ordered(kernel: Kernel) -> list[Values]:
    """All combinations, the best first; those whose facts do not resolve come last."""
    offers = _offers(kernel)
    rows = [dict(zip(offers, row, strict=True)) for row in itertools.product(*offers.values())]
    objective = kernel.manifest.most or tuple(kernel.manifest.free)

    def score(values: Values) -> tuple[int, ...]:
        try:
            facts, _ = resolve(_with(kernel, values))
        except InputError:
            return (1,)
        return (0, *(-_measured(kernel, facts, text) for text in objective))

    return sorted(rows, key=score)


def _measured(kernel: Kernel, facts: Facts, text: str) -> int:
    """An objective's value: an expression over `instance.fact`."""
    known = {f"{i}__{name}": value for i, own in facts.items() for name, value in own.items()}
    try:
        return expression.evaluate_number(_FACT.sub(r"\1__\2", text), known)
    except ExpressionError as error:
        place = FilePlace(kernel.manifest.path, "most")
        why = str(error).replace("__", ".")
        raise InputError(Diagnostic("PL054", f"'most' of [free]: {why}", place)) from error


def _why(kernel: Kernel, total: int, failed: list[tuple[Values, InputError]]) -> str:
    objective = ", then ".join(kernel.manifest.most or kernel.manifest.free)
    text = f"the most of {objective}"
    if not failed:
        return f"{text}: the best of {total}"
    codes = Counter(error.diagnostics[0].code for _, error in failed)
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(codes.items()))
    return f"{text}: the best of {total} that is possible; {len(failed)} better ones are not ({reasons})"


def _impossible(kernel: Kernel, failed: list[tuple[Values, InputError]]) -> Diagnostic:
    """Why nothing goes: the first reason of the combination that fails for the least."""
    _, error = failed[-1]
    first = error.diagnostics[0]
    values = ", ".join(f"{name} = {shown(value)}" for name, value in failed[-1][0].items())
    codes = Counter(e.diagnostics[0].code for _, e in failed)
    return Diagnostic(
        "PL054",
        f"none of {len(failed)} combinations of the free facts is possible",
        FilePlace(kernel.manifest.path, "free"),
        (*((first.primary,) if first.primary else ()), *first.secondary),
        notes=(
            ", ".join(f"{code} refuses {count}" for code, count in sorted(codes.items())),
            f"the last of them, {values}: {first.message}",
            *first.notes,
        ),
        help=first.help,
    )

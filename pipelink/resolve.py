"""Facts to a fixed point: every fact gets one value and one provider.

An import takes the value of the nearest provider: over channels, else of its role or the schedule.
The kernel's own facts (the manifest's [facts]) reach everybody. So two pipelines of the same components
can stand in one kernel, each with values of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipelink import expression
from pipelink.abi import Fact, Value
from pipelink.diagnostics import (
    MOST_FINDINGS,
    Diagnostic,
    FilePlace,
    Place,
    Where,
    checkpoint,
    nearest,
)
from pipelink.model import FactValue, Instance, Kernel
from pipelink.providers import KERNEL, Providers, Row, find_providers, listed, reached

Facts = dict[str, dict[str, Value]]


def resolve(kernel: Kernel) -> tuple[Facts, tuple[FactValue, ...]]:
    """Each instance's facts by name, and the list of all with their providers."""
    faults: list[Diagnostic] = []
    faults += _manifest_values(kernel)
    found, unprovided = find_providers(kernel)
    checkpoint(faults + unprovided)
    values, faults = _fixed_point(kernel, found)
    checkpoint(faults)
    checkpoint(_sets(kernel, values, found))
    return values, tuple(_listing(kernel, values, found))


def fact_type(value: Value) -> str:
    """The type of a computed value; a text may also be an element type or a layout."""
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "text"


def shown(value: Value) -> str:
    """A value as diagnostics write it: as in TOML."""
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _manifest_values(kernel: Kernel) -> Iterator[Diagnostic]:
    """The manifest sets facts that their owners leave to it, and the kernel's own, once each."""
    for instance in kernel.instances:
        yield from _chosen_values(kernel, instance)
    path = kernel.manifest.path
    imported = sorted({f.name for _, _, f in listed(kernel, "imports")})
    for name in kernel.manifest.facts:
        if name not in imported:
            close = nearest(name, imported)
            yield Diagnostic(
                "PL016",
                f"[facts] sets '{name}', which nobody imports",
                FilePlace(path, name),
                help=f"did you mean '{close[0]}'?" if close else f"remove '{name}' from [facts]",
            )
    for instance, index, fact in listed(kernel, "provides", "chooses", "derives"):
        if fact.name in kernel.manifest.facts:
            yield Diagnostic(
                "PL012",
                f"fact '{fact.name}' is fixed by the kernel and by instance '{instance.name}'",
                FilePlace(path, fact.name),
                (Place(instance.name, "facts", index),),
                help=f"remove '{fact.name}' from [facts]",
            )


def _chosen_values(kernel: Kernel, instance: Instance) -> Iterator[Diagnostic]:
    path = kernel.manifest.path
    spec = next(s for s in kernel.manifest.instances if s.name == instance.name)
    known = {f.name: (i, f) for i, f in enumerate(instance.contract.facts)}
    for name, value in spec.facts.items():
        index, fact = known.get(name, (0, None))
        if fact is None or fact.kind != "chooses":
            choices = [f.name for f in instance.contract.facts if f.kind == "chooses"]
            close = nearest(name, choices)
            yield Diagnostic(
                "PL016",
                f"the manifest sets '{name}' of instance '{instance.name}', "
                f"which {instance.contract.component} does not leave to it",
                FilePlace(path, name),
                (Place(instance.name, "facts", index),) if fact else (),
                help=f"did you mean '{close[0]}'?"
                if close
                else f"facts to set: {', '.join(choices) or 'none'}",
            )
        elif not _supports(fact, value):
            yield _outside(fact, value, FilePlace(path, name), instance, index)
    for name in spec.imports:
        if known.get(name, (0, None))[1] is None or known[name][1].kind != "imports":
            yield Diagnostic(
                "PL016",
                f"instance '{instance.name}' does not import '{name}'",
                FilePlace(path, name),
            )


def _supports(fact: Fact, value: Value) -> bool:
    """Equal, and of one type: 1 is not true."""
    return any(type(v) is type(value) and v == value for v in fact.values)


def _outside(fact: Fact, value: Value, where: Where, instance: Instance, index: int) -> Diagnostic:
    numbers = [v for v in fact.values if type(v) is int]
    ordered = sorted(numbers) if len(numbers) == len(fact.values) else list(fact.values)
    nearest = (
        f"the nearest supported value is {min(numbers, key=lambda v: abs(v - value))}"
        if numbers and type(value) is int
        else f"set one of {', '.join(map(shown, ordered))}"
    )
    return Diagnostic(
        "PL013",
        f"'{fact.name}' = {shown(value)}, and instance '{instance.name}' ({instance.contract.component} of "
        f"{instance.contract.owner}) supports {', '.join(map(shown, ordered))}",
        where,
        (Place(instance.name, "facts", index),),
        help=nearest,
    )


def _fixed_point(kernel: Kernel, providers: Providers) -> tuple[Facts, list[Diagnostic]]:
    """Each fact is computed once, when the last one that it reads is."""
    values = _fixed(kernel)
    rows = list(listed(kernel, "imports", "derives"))
    missing: list[int] = []
    readers: dict[tuple[str, str], list[int]] = {}
    ready: deque[int] = deque()
    for number, row in enumerate(rows):
        try:
            reads = [k for k in _reads(row, providers) if k[1] not in values[k[0]]]
        except expression.ExpressionError as error:
            return values, [_uncomputed(row, error)]
        missing.append(len(reads))
        for key in reads:
            readers.setdefault(key, []).append(number)
        if not reads:
            ready.append(number)
    while ready:
        row = rows[ready.popleft()]
        instance, _, fact = row
        try:
            values[instance.name][fact.name] = _value(row, providers, values)
        except expression.ExpressionError as error:
            return values, [_uncomputed(row, error)]
        for number in readers.get((instance.name, fact.name), ()):
            missing[number] -= 1
            if not missing[number]:
                ready.append(number)
    left = [row for row in rows if row[2].name not in values[row[0].name]]
    return values, [_stuck(left)] if left else []


def _fixed(kernel: Kernel) -> Facts:
    """What is fixed as it stands; nothing else has a value yet."""
    chosen = {s.name: s.facts for s in kernel.manifest.instances}
    values: Facts = {i.name: {} for i in kernel.instances}
    values[KERNEL] = dict(kernel.manifest.facts)
    for instance, _, fact in listed(kernel, "provides", "chooses", "agrees"):
        values[instance.name][fact.name] = chosen[instance.name].get(fact.name, fact.values[0])
    return values


def _reads(row: Row, providers: Providers) -> list[tuple[str, str]]:
    """The facts that an import or a derived fact reads, each (instance, name)."""
    instance, _, fact = row
    if fact.kind == "derives":
        return [(instance.name, name) for name in expression.names(fact.value)]
    provider = providers[instance.name, fact.name]
    return [] if provider == instance.name else [(provider, fact.name)]


def _value(row: Row, providers: Providers, values: Facts) -> Value:
    instance, _, fact = row
    if fact.kind == "derives":
        return expression.evaluate(fact.value, values[instance.name])
    provider = providers[instance.name, fact.name]
    if provider != instance.name:
        return values[provider][fact.name]
    assert fact.default is not None, "who is its own provider has a default"
    return fact.default


def _uncomputed(row: Row, error: expression.ExpressionError) -> Diagnostic:
    instance, index, fact = row
    return Diagnostic("PL015", f"fact '{fact.name}': {error}", Place(instance.name, "facts", index))


def _stuck(left: list[Row]) -> Diagnostic:
    """Some derived facts have no value: a name that the contract lacks, or a cycle."""
    for instance, index, fact in left:
        if fact.kind == "derives":
            facts = instance.contract.facts
            unknown = expression.names(fact.value) - instance.fact_index.keys()
            if unknown:
                return Diagnostic(
                    "PL016",
                    f"fact '{fact.name}' of instance '{instance.name}' reads '{sorted(unknown)[0]}', "
                    "which its contract does not name",
                    Place(instance.name, "facts", index),
                )
            early = [
                name
                for name in expression.names(fact.value)
                if facts[instance.fact_index[name]].kind == "extent"
            ]
            if early:
                return Diagnostic(
                    "PL015",
                    f"fact '{fact.name}' of instance '{instance.name}' reads extent "
                    f"'{sorted(early)[0]}', which has no value before the launch",
                    Place(instance.name, "facts", index),
                )
    names = ", ".join(sorted(f"{i.name}.{f.name}" for i, _, f in left)[:MOST_FINDINGS])
    return Diagnostic(
        "PL014",
        f"these facts need each other: {names}",
        Place(left[0][0].name, "facts", left[0][1]),
        tuple(Place(i.name, "facts", n) for i, n, _ in left[1:MOST_FINDINGS]),
    )


def _sets(kernel: Kernel, values: Facts, providers: Providers) -> list[Diagnostic]:
    """An import has a value of its type, and of its set if it is dispatched over one."""
    faults = []
    for instance, index, fact in listed(kernel, "imports"):
        value = values[instance.name][fact.name]
        here = Place(instance.name, "facts", index)
        provider = providers[instance.name, fact.name]
        other = place_of(kernel, provider, fact.name)
        theirs = _type_at(kernel, provider, fact.name, value)
        if not _same_type(fact.type, theirs):
            whose = "the kernel" if provider == KERNEL else f"instance '{provider}'"
            message = (
                f"'{fact.name}' is {_article(theirs)} {theirs} by {whose}, and instance "
                f"'{instance.name}' ({instance.contract.component} of {instance.contract.owner}) imports "
                f"{_article(fact.type)} {fact.type}"
            )
            help_ = "let both be of one type: pl::any_bool, pl::any_text and so on for an import"
            faults.append(Diagnostic("PL019", message, here, (other,), help=help_))
        elif fact.values and not _supports(fact, value):
            fault = _outside(fact, value, here, instance, index)
            faults.append(Diagnostic(fault.code, fault.message, here, (other,), help=fault.help))
    return faults


def _article(type_: str) -> str:
    return "an" if type_[0] in "aeiou" else "a"


def _type_at(kernel: Kernel, provider: str, name: str, value: Value) -> str:
    if provider != KERNEL:
        instance = kernel.instance(provider)
        fact = instance.contract.facts[instance.fact_index[name]]
        if fact.kind != "derives":
            return fact.type
    return fact_type(value)


def _same_type(left: str, right: str) -> bool:
    """A text of the manifest or of an expression may be an element type or a layout."""
    return left == right or (right == "text" and left in ("element", "layout"))


def place_of(kernel: Kernel, provider: str, fact: str) -> Where:
    """Where a fact is fixed: a line of a contract, or a key of the manifest."""
    if provider == KERNEL:
        return FilePlace(kernel.manifest.path, fact)
    return Place(provider, "facts", kernel.instance(provider).fact_index[fact])


def _listing(kernel: Kernel, values: Facts, providers: Providers) -> Iterator[FactValue]:
    consumers: dict[tuple[str, str], list[str]] = {}
    for (user, name), provider in providers.items():
        if provider != user:
            consumers.setdefault((provider, name), []).append(user)
    ways = {i.name: reached(kernel, i.name) for i in kernel.instances}
    for name, value in sorted(kernel.manifest.facts.items()):
        users = tuple(consumers.get((KERNEL, name), ()))
        yield FactValue(KERNEL, name, "provides", value, KERNEL, (KERNEL,), users)
    for instance, _, fact in listed(kernel, "provides", "chooses", "agrees", "derives", "imports"):
        provider = providers.get((instance.name, fact.name), instance.name)
        path = ways.get(provider, {}).get(instance.name, (provider, instance.name))
        yield FactValue(
            instance.name,
            fact.name,
            fact.kind,
            values[instance.name][fact.name],
            provider,
            path,
            tuple(consumers.get((instance.name, fact.name), ())),
        )

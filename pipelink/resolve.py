"""Facts to a fixed point: every fact gets one value and one provider.

An import takes the value of the nearest provider, over channels. The kernel's own facts (the
manifest's [facts]) reach everybody. So two pipelines of the same components can stand in one kernel,
each with values of its own.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterator, Mapping

from pipelink import expression
from pipelink.abi import Fact, Value
from pipelink.diagnostics import Diagnostic, FilePlace, Place, Where, checkpoint
from pipelink.model import FactValue, Instance, Kernel

KERNEL = "kernel"
_FAR = 1 << 20

Facts = dict[str, dict[str, Value]]
Providers = Mapping[tuple[str, str], str]


def resolve(kernel: Kernel) -> tuple[Facts, tuple[FactValue, ...]]:
    """Each instance's facts by name, and the list of all with their providers."""
    faults: list[Diagnostic] = []
    faults += _manifest_values(kernel)
    providers = {}
    for instance, index, fact in _facts(kernel, "imports"):
        found = _provider(kernel, instance, index, fact)
        if isinstance(found, Diagnostic):
            faults.append(found)
        else:
            providers[instance.name, fact.name] = found
    checkpoint(faults)
    values, faults = _fixed_point(kernel, providers)
    checkpoint(faults)
    checkpoint(_sets(kernel, values, providers))
    return values, tuple(_listing(kernel, values, providers))


def fact_type(value: Value) -> str:
    """The type of a computed value; a text may also be an element type or a layout."""
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "text"


def shown(value: Value) -> str:
    """A value as diagnostics write it: as in TOML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _facts(kernel: Kernel, *kinds: str) -> Iterator[tuple[Instance, int, Fact]]:
    for instance in kernel.instances:
        for index, fact in enumerate(instance.contract.facts):
            if fact.kind in kinds:
                yield instance, index, fact


def _manifest_values(kernel: Kernel) -> Iterator[Diagnostic]:
    """The manifest sets facts that their owners leave to it, and the kernel's own, once each."""
    for instance in kernel.instances:
        yield from _chosen_values(kernel, instance)
    path = kernel.manifest.path
    imported = sorted({f.name for _, _, f in _facts(kernel, "imports")})
    for name in kernel.manifest.facts:
        if name not in imported:
            close = difflib.get_close_matches(name, imported, 1)
            yield Diagnostic(
                "PL016",
                f"[facts] sets '{name}', which nobody imports",
                FilePlace(path, name),
                help=f"did you mean '{close[0]}'?" if close else f"remove '{name}' from [facts]",
            )
    for instance, index, fact in _facts(kernel, "provides", "chooses", "derives"):
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
            close = difflib.get_close_matches(name, choices, 1)
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


def _reached(kernel: Kernel, start: str) -> dict[str, tuple[str, ...]]:
    """The shortest way over channels from `start` to each instance that it is connected with."""
    edges: dict[str, set[str]] = {}
    for left, right in kernel.manifest.channels:
        a, b = left.split(".")[0], right.split(".")[0]
        edges.setdefault(a, set()).add(b)
        edges.setdefault(b, set()).add(a)
    found: dict[str, tuple[str, ...]] = {start: (start,)}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in sorted(edges.get(name, ())):
            if other not in found:
                found[other] = (*found[name], other)
                queue.append(other)
    return found


def _provider(kernel: Kernel, instance: Instance, index: int, fact: Fact) -> str | Diagnostic:
    """The instance that provides an import, or why there is none."""
    place = Place(instance.name, "facts", index)
    who = f"{instance.contract.component} of {instance.contract.owner} (instance '{instance.name}')"
    offers = [
        (other, i)
        for other, i, f in _facts(kernel, "provides", "chooses", "derives")
        if f.name == fact.name and other.name != instance.name
    ]
    spec = next(s for s in kernel.manifest.instances if s.name == instance.name)
    if fact.name in spec.imports:
        wired = spec.imports[fact.name]
        if wired in {o.name for o, _ in offers}:
            return wired
        names = ", ".join(o.name for o, _ in offers)
        return Diagnostic(
            "PL011",
            f"instance '{instance.name}' takes '{fact.name}' from '{wired}', which does not provide it",
            FilePlace(kernel.manifest.path, fact.name),
            (place,),
            help=f"instances that provide it: {names or 'none'}",
        )
    if fact.name in kernel.manifest.facts:
        return KERNEL
    if not offers:
        return instance.name if fact.default is not None else _nobody(kernel, who, fact, place)
    ways = _reached(kernel, instance.name)
    distance = {o.name: len(ways.get(o.name, ())) or _FAR for o, _ in offers}
    nearest = min(distance.values())
    near = [(o, i) for o, i in offers if distance[o.name] == nearest]
    if len(near) == 1:
        return near[0][0].name
    names = " and ".join(f"'{o.name}'" for o, _ in near)
    return Diagnostic(
        "PL012",
        f"'{fact.name}', which {who} imports, is provided by {names}",
        place,
        tuple(Place(o.name, "facts", i) for o, i in near),
        help=f'name one: [instances.{instance.name}] imports = {{ {fact.name} = "{near[0][0].name}" }}',
    )


def _nobody(kernel: Kernel, who: str, fact: Fact, place: Place) -> Diagnostic:
    """No provider: a name that is almost the same is on the other side of the mistake."""
    offers = {
        f.name: Place(o.name, "facts", i, f"provides '{f.name}'")
        for o, i, f in _facts(kernel, "provides", "chooses", "derives")
    }
    taken = {f.name for _, _, f in _facts(kernel, "imports")}
    free = sorted(offers.keys() - taken) or sorted(offers)
    close = difflib.get_close_matches(fact.name, free, 1, 0.7)
    otherwise = f"add an instance that provides '{fact.name}', or set it in [facts] of {kernel.manifest.path}"
    return Diagnostic(
        "PL011",
        f"nobody provides '{fact.name}', which {who} imports",
        place,
        tuple(offers[name] for name in close),
        help=f"did you mean '{close[0]}'? Otherwise {otherwise}" if close else otherwise,
    )


def _fixed_point(kernel: Kernel, providers: Providers) -> tuple[Facts, list[Diagnostic]]:
    chosen = {s.name: s.facts for s in kernel.manifest.instances}
    values: Facts = {i.name: {} for i in kernel.instances}
    values[KERNEL] = dict(kernel.manifest.facts)
    for instance, _, fact in _facts(kernel, "provides", "chooses", "agrees"):
        values[instance.name][fact.name] = chosen[instance.name].get(fact.name, fact.values[0])
    open_facts = list(_facts(kernel, "imports", "derives"))
    while True:
        left = []
        for instance, index, fact in open_facts:
            own = values[instance.name]
            if fact.kind == "imports":
                provider = providers[instance.name, fact.name]
                value = (
                    fact.default if provider == instance.name else values[provider].get(fact.name)
                )
                if value is not None:
                    own[fact.name] = value
                    continue
            else:
                try:
                    if expression.names(fact.value) <= own.keys():
                        own[fact.name] = expression.evaluate(fact.value, own)
                        continue
                except expression.ExpressionError as error:
                    place = Place(instance.name, "facts", index)
                    return values, [Diagnostic("PL015", f"fact '{fact.name}': {error}", place)]
            left.append((instance, index, fact))
        if len(left) == len(open_facts):
            return values, [_stuck(left)] if left else []
        open_facts = left


def _stuck(left: list[tuple[Instance, int, Fact]]) -> Diagnostic:
    """Some derived facts have no value: a name that the contract lacks, or a cycle."""
    for instance, index, fact in left:
        if fact.kind == "derives":
            unknown = expression.names(fact.value) - {f.name for f in instance.contract.facts}
            if unknown:
                return Diagnostic(
                    "PL016",
                    f"fact '{fact.name}' of instance '{instance.name}' reads '{sorted(unknown)[0]}', "
                    "which its contract does not name",
                    Place(instance.name, "facts", index),
                )
            extents = {f.name for f in instance.contract.facts if f.kind == "extent"}
            early = expression.names(fact.value) & extents
            if early:
                return Diagnostic(
                    "PL015",
                    f"fact '{fact.name}' of instance '{instance.name}' reads extent "
                    f"'{sorted(early)[0]}', which has no value before the launch",
                    Place(instance.name, "facts", index),
                )
    names = ", ".join(sorted(f"{i.name}.{f.name}" for i, _, f in left))
    return Diagnostic(
        "PL014",
        f"these facts need each other: {names}",
        Place(left[0][0].name, "facts", left[0][1]),
        tuple(Place(i.name, "facts", n) for i, n, _ in left[1:]),
    )


def _sets(kernel: Kernel, values: Facts, providers: Providers) -> list[Diagnostic]:
    """An import has a value of its type, and of its set if it is dispatched over one."""
    faults = []
    for instance, index, fact in _facts(kernel, "imports"):
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
            faults.append(Diagnostic("PL019", message, here, (other,)))
        elif fact.values and not _supports(fact, value):
            fault = _outside(fact, value, here, instance, index)
            faults.append(Diagnostic(fault.code, fault.message, here, (other,), help=fault.help))
    return faults


def _article(type_: str) -> str:
    return "an" if type_[0] in "aeiou" else "a"


def _type_at(kernel: Kernel, provider: str, name: str, value: Value) -> str:
    if provider != KERNEL:
        fact = next(f for f in kernel.instance(provider).contract.facts if f.name == name)
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
    facts = kernel.instance(provider).contract.facts
    return Place(provider, "facts", next(i for i, f in enumerate(facts) if f.name == fact))


def _listing(kernel: Kernel, values: Facts, providers: Providers) -> Iterator[FactValue]:
    consumers: dict[tuple[str, str], list[str]] = {}
    for (user, name), provider in providers.items():
        if provider != user:
            consumers.setdefault((provider, name), []).append(user)
    ways = {i.name: _reached(kernel, i.name) for i in kernel.instances}
    for name, value in sorted(kernel.manifest.facts.items()):
        users = tuple(consumers.get((KERNEL, name), ()))
        yield FactValue(KERNEL, name, "provides", value, KERNEL, (KERNEL,), users)
    for instance, _, fact in _facts(kernel, "provides", "chooses", "agrees", "derives", "imports"):
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

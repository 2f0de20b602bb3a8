"""Who provides an import: the nearest instance that has the fact, or the kernel itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from pipelink.abi import Fact
from pipelink.diagnostics import MOST_FINDINGS, Diagnostic, FilePlace, Place, nearest
from pipelink.model import Instance, Kernel

KERNEL = "kernel"
_BESIDE, _FAR = 1 << 19, 1 << 20

Row = tuple[Instance, int, Fact]
Providers = Mapping[tuple[str, str], str]
Offers = dict[str, list[tuple[Instance, int]]]


def find_providers(kernel: Kernel) -> tuple[Providers, list[Diagnostic]]:
    """The provider of each import, by (instance, fact); and the imports that have none."""
    found: dict[tuple[str, str], str] = {}
    faults: list[Diagnostic] = []
    offers: Offers = {}
    for instance, index, fact in listed(kernel, "provides", "chooses", "derives"):
        offers.setdefault(fact.name, []).append((instance, index))
    taken = {fact.name for _, _, fact in listed(kernel, "imports")}
    free = sorted(offers.keys() - taken) or sorted(offers)
    for instance, index, fact in listed(kernel, "imports"):
        provider = _provider(kernel, offers, free, (instance, index, fact))
        if isinstance(provider, Diagnostic):
            faults.append(provider)
        else:
            found[instance.name, fact.name] = provider
        if len(faults) >= MOST_FINDINGS:
            break
    return found, faults


def listed(kernel: Kernel, *kinds: str) -> Iterator[Row]:
    """Every fact of these kinds, with its instance and its number in the contract."""
    for instance in kernel.instances:
        for index, fact in enumerate(instance.contract.facts):
            if fact.kind in kinds:
                yield instance, index, fact


def reached(kernel: Kernel, start: str) -> dict[str, tuple[str, ...]]:
    """The shortest way over channels from `start` to each instance that it is connected with."""
    edges: dict[str, set[str]] = {}
    for channel in kernel.manifest.channels:
        a, b = (end.split(".")[0] for end in channel.ends)
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


def _beside(kernel: Kernel, name: str) -> set[str]:
    """Instances that a fact comes from without a channel: those of the same role, and the owner of
    the tile schedule, which all roles of its phases go by."""
    found: set[str] = set()
    for phase in kernel.manifest.phases:
        owner = phase.schedule[0] if phase.schedule else name
        running = {owner, *(instance for role in phase.roles for instance, _ in role.steps)}
        if name == owner and phase.schedule:
            found |= running
        for role in phase.roles:
            own = {instance for instance, _ in role.steps}
            if name in own:
                found |= own | {owner}
    return found


def _provider(kernel: Kernel, offered: Offers, free: Sequence[str], row: Row) -> str | Diagnostic:
    """The instance that provides an import, or why there is none."""
    instance, index, fact = row
    place = Place(instance.name, "facts", index)
    who = f"{instance.contract.component} of {instance.contract.owner} (instance '{instance.name}')"
    offers = [(o, i) for o, i in offered.get(fact.name, ()) if o.name != instance.name]
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
        if fact.default is not None:
            return instance.name
        close = [(name, *offered[name][-1]) for name in nearest(fact.name, free, 0.7)]
        return _nobody(kernel.manifest.path, who, fact, place, close)
    ways = reached(kernel, instance.name)
    beside = _beside(kernel, instance.name)
    distance = {
        o.name: len(ways.get(o.name, ())) or (_BESIDE if o.name in beside else _FAR)
        for o, _ in offers
    }
    least = min(distance.values())
    if least == _FAR:
        return _unconnected(instance.name, who, fact, place, offers)
    near = [(o, i) for o, i in offers if distance[o.name] == least]
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


def _unconnected(
    name: str, who: str, fact: Fact, place: Place, offers: list[tuple[Instance, int]]
) -> Diagnostic:
    """From an instance that has nothing to do with it a fact comes only if the manifest says so."""
    names = " and ".join(f"'{o.name}'" for o, _ in offers)
    return Diagnostic(
        "PL011",
        f"'{fact.name}', which {who} imports, is provided by {names} only, which is not connected with it",
        place,
        tuple(Place(o.name, "facts", i) for o, i in offers),
        help=f'if that is meant: [instances.{name}] imports = {{ {fact.name} = "{offers[0][0].name}" }}',
    )


def _nobody(
    path: str, who: str, fact: Fact, place: Place, close: list[tuple[str, Instance, int]]
) -> Diagnostic:
    """No provider: a name that is almost the same is on the other side of the mistake."""
    otherwise = f"add an instance that provides '{fact.name}', or set it in [facts] of {path}"
    return Diagnostic(
        "PL011",
        f"nobody provides '{fact.name}', which {who} imports",
        place,
        tuple(Place(o.name, "facts", i, f"provides '{name}'") for name, o, i in close),
        help=f"did you mean '{close[0][0]}'? Otherwise {otherwise}" if close else otherwise,
    )

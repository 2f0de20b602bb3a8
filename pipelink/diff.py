"""Two contracts of one component: every difference, and how far it reaches.

RULES is the judgement: for each field of each record what a change of it asks, and of whom. It is a
verdict where that is always the same, a small function where it depends on the values, KEY where the
field says which item it is, Items where it is a list. The walk below it knows no record by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace as renamed

from pipelink import abi, contract
from pipelink.arch import ARCHES, links_into
from pipelink.model import Component


class Level(IntEnum):
    """How far a change reaches; the value is the exit code."""

    COMPATIBLE = 10
    RELINK = 11
    AGREE = 12
    BREAKING = 13


@dataclass(frozen=True)
class Verdict:
    """A level, and in a clause what has to happen and to whom."""

    level: Level
    why: str


@dataclass(frozen=True)
class Change:
    """One difference; `old` or `new` is None where that side has nothing."""

    level: Level
    path: str
    old: object
    new: object
    why: str


@dataclass(frozen=True)
class Scope:
    """What a record stands in."""

    old: abi.Contract
    new: abi.Contract
    port: abi.Port | None = None


Judge = Callable[[Any, Any, Scope], Verdict | None]  # None: nothing that matters
Alone = tuple[Verdict, Verdict]  # of an item that is new, of one that is gone
Records = Sequence[abi.Record]
Labelled = Mapping[str, abi.Record]


@dataclass(frozen=True)
class Items:
    """A list of records, paired by the fields of `key`; `order` is the verdict on another order."""

    title: str
    alone: Callable[[Any], Alone]
    key: tuple[str, ...] = ("name",)
    order: Verdict | None = None


Rule = Verdict | Judge | Items | None
KEY = None  # another value is another item

compatible = partial(Verdict, Level.COMPATIBLE)
relink = partial(Verdict, Level.RELINK)
agree = partial(Verdict, Level.AGREE)
breaking = partial(Verdict, Level.BREAKING)

OFFERS = ("provides", "chooses", "derives")
# Code computes with numbers; it can use one of these only if it knows the value.
TOLD_APART = ("text", "element", "layout")
EDGES = ("undefined", "", "zero")  # what a producer leaves and a consumer needs, weakest first

REORDERED = compatible("the items are the same, a relink makes a new plan")
SHOWN = compatible("only reports show it")
OTHER_END = agree("the other end of its channel must declare the same (PL021)")
TENSOR = agree("who is at the other end of its channel, or passes the tensor, must have the same")
WITHOUT_IT = compatible("the others agree without it")
SAME_VALUE = agree("all who state it must state the same")
SAME_TYPE = agree("all who compile this type must have one layout of it")
PLAYED = agree("the other ends of its rings must play along")
TILED = agree("the tile schedule and those who cover tensors by it must fit")
HELD = agree("who fills the array must keep to it: a debug launch refuses other values")
ROLE = agree("the other steps of its role must claim as many (PL023)")
FIXED = agree("nobody else in a kernel may fix the same id (PL032)")
COPIED = relink("bulk copies and tensor maps are made anew")
PLACED = relink("shared memory is placed anew, and must still fit")
NUMBERED = relink("barrier ids are given anew, and must suffice")
ARRIVALS = relink("mbarriers are initialised anew")
MUST_HOLD = agree("the facts of every kernel must meet it (PL020)")
FREE = compatible("kernels need not meet it any more")
LET_GO = compatible("who fills the array need not keep to it any more")
RUNNABLE = compatible("manifests may run it")
UNCONNECTED = agree("manifests must connect it (PL022)")
DISCONNECTED = breaking("manifests that connect it are refused (PL016)")
NOT_RUN = breaking("manifests that run it are refused (PL016, PL029)")

NO_PROVIDER = breaking("who imports it has no provider (PL011)")
NO_IMPORT = agree("manifests that set, wire or bound it for this component alone must stop (PL016)")
NO_CHOICE = breaking("who imports or sets it is refused (PL011, PL016)")
NO_LONGER = breaking("manifests and owners that take it for what it was are refused")
OFFERED = relink("who imports that name takes the nearest provider, two as near clash (PL012)")
DEFAULTED = relink("it is bound at its default where nobody provides it")
FACTS: Mapping[str, Alone] = {
    "provides": (OFFERED, NO_PROVIDER),
    "chooses": (OFFERED, NO_CHOICE),
    "derives": (OFFERED, NO_PROVIDER),
    "imports": (agree("another owner or the manifest must provide it (PL011)"), NO_IMPORT),
    "extent": (relink("kernels read one more size from the shapes of tensors"), NO_IMPORT),
    "agrees": (SAME_VALUE, WITHOUT_IT),
}
CLAIMS: Mapping[str, Verdict] = {
    "shared": PLACED,
    "mbarrier": PLACED,
    "barrier": NUMBERED,
    "tensor_columns": NUMBERED,
    "warps": ROLE,
    "registers": relink("its role gets the most that a step claims, and all must still fit"),
    "stack": compatible("only the audit reads it"),
}
PROMISES: Mapping[str, Alone] = {
    "promises": (compatible("consumers may need it"), agree("no consumer may need it")),
    "needs": (agree("the producer must promise it"), compatible("the producer is free of it")),
}


def _target(a: abi.Contract, b: abi.Contract, _: Scope) -> Verdict:
    kernels = [name for name in ARCHES if links_into(a.target, name)] or [a.target]
    lost = [name for name in kernels if not links_into(b.target, name)]
    if lost:
        return breaking(f"kernels for {', '.join(lost)} can't link it (PL024)")
    return relink("it links into the same kernels")


def _toolchain(a: abi.Contract, b: abi.Contract, _: Scope) -> Verdict:
    if a.toolchain[0] != b.toolchain[0]:
        return agree("all components of a kernel must have one CUDA major version (PL026)")
    return compatible("components of a kernel may differ in the minor version")


def _fact_kind(a: abi.Fact, b: abi.Fact, scope: Scope) -> Verdict:
    if (a.kind, b.kind) == ("provides", "chooses"):
        return compatible("manifests may set it now")
    if a.kind == "chooses" and b.kind in OFFERS:
        return breaking("manifests that set it are refused (PL016)")
    if a.kind in OFFERS and b.kind in OFFERS:
        return _other_value(a, b, scope)
    return FACTS[a.kind][1] if a.kind in OFFERS else NO_LONGER


def _fact_value(a: abi.Fact, b: abi.Fact, scope: Scope) -> Verdict | None:
    if a.kind != b.kind and (a.kind, b.kind) != ("provides", "chooses"):
        return None  # the change of kind says it
    if b.kind == "agrees":
        return SAME_VALUE
    if b.kind == "imports":
        return _import_set(a, b)
    dropped = [str(v) for v in a.values if v not in b.values]
    if a.kind == "chooses" and dropped:
        return breaking(f"manifests that set {' or '.join(dropped)} are refused (PL013)")
    if a.values[:1] != b.values[:1] or a.value != b.value:
        return _other_value(a, b, scope)
    more = set(b.values) - set(a.values)
    return compatible("manifests have more to choose from") if more else None


def _import_set(a: abi.Fact, b: abi.Fact) -> Verdict | None:
    """A set is what the code supports; none is every value."""
    if b.values and (not a.values or set(a.values) - set(b.values)):
        return agree(f"its provider must give {' or '.join(map(str, b.values))} (PL013)")
    same = set(a.values) == set(b.values)
    return None if same else compatible("it takes more values than before")


def _other_value(a: abi.Fact, b: abi.Fact, scope: Scope) -> Verdict:
    """Importers follow a value, unless they may well be compiled for some values alone."""
    if b.type in TOLD_APART:
        return agree(f"who imports it must know this {b.type} (PL013)")
    if b.kind == "chooses" and b.values[0] in a.values:
        return relink("kernels that do not set it get the new default, importers follow")
    if any(a.name in _geometry(c) for c in (scope.old, scope.new)):
        return agree("it sizes a channel's tiles: who imports it must support it (PL013)")
    return relink("importers follow")


def _geometry(whole: abi.Contract) -> set[str]:
    """The facts that tiles of channels depend on, those behind a derived fact too."""
    ports = [p for p in whole.ports if p.space != "global"]
    texts = [t for p in ports for t in (*p.shape, p.count, p.layout)]
    texts += [t for p in ports for q in p.parts for t in (*q.shape, q.layout)]
    derived = {f.name: f.value for f in whole.facts if f.kind == "derives"}
    found: set[str] = set()
    while texts:
        new = set(re.findall(r"[A-Za-z]\w*", texts.pop())) - found
        found |= new
        texts += [derived[name] for name in new if name in derived]
    return found


def _fact_type(a: abi.Fact, b: abi.Fact, _: Scope) -> Verdict:
    if a.kind in OFFERS:
        return breaking(f"who imports or sets it as {a.type} is refused")
    return agree(f"who provides or states it must have it as {b.type}")


def _fact_default(a: abi.Fact, b: abi.Fact, _: Scope) -> Verdict | None:
    if a.kind != b.kind:
        return None
    if b.default is None:
        return agree("another owner or the manifest must provide it (PL011)")
    if a.default is None:
        return compatible("nobody has to provide it now")
    return relink("kernels where nobody provides it get the new value")


def _fact_alone(fact: abi.Fact) -> Alone:
    defaulted = fact.kind == "imports" and fact.default is not None
    return (DEFAULTED if defaulted else FACTS[fact.kind][0]), FACTS[fact.kind][1]


def _claim_alone(claim: abi.Claim) -> Alone:
    return CLAIMS[claim.kind] if claim.fixed is None else FIXED, CLAIMS[claim.kind]


def _claim(_: abi.Claim, claim: abi.Claim, __: Scope) -> Verdict:
    return CLAIMS[claim.kind]


def _edge(a: abi.Part, b: abi.Part, scope: Scope) -> Verdict:
    rises = EDGES.index(b.edge) > EDGES.index(a.edge)
    if scope.port is not None and scope.port.direction == "in":
        return agree("the producer must leave it so") if rises else compatible("it needs less")
    return compatible("it leaves more") if rises else agree("the consumer must need no more")


def _clipped(_: abi.Cover, b: abi.Cover, scope: Scope) -> Verdict:
    if b.clipped:
        return compatible("nothing past the tensor's end is touched any more")
    if scope.port is not None and scope.port.box:
        return compatible("bulk copies touch nothing past the end by themselves")
    if scope.port is not None and _open(b, scope.port, scope.new):
        return breaking(
            "kernels are refused: tiles pass the end of a size that a launch has (PL038)"
        )
    return agree("tensors must be of whole tiles")


def _open(cover: abi.Cover, port: abi.Port, whole: abi.Contract) -> bool:
    """Whether tiles go over a side whose size only a launch knows."""
    extents = {f.name for f in whole.facts if f.kind == "extent"}
    sides = (size for size, c in zip(port.shape, port.covers, strict=True) if c is cover)
    return cover.along != "whole" and any(size in extents for size in sides)


OPERATIONS = Items("operation", lambda _: (PLAYED, PLAYED), ("do", "on", "name"), PLAYED)
RULES: Mapping[type[abi.Record], Mapping[str, Rule]] = {
    abi.Contract: {
        "component": breaking("kernels call entries by the old name"),
        **dict.fromkeys(("owner", "version"), SHOWN),
        "target": _target,
        "floating_point": agree("all components of a kernel must have one mode (PL025)"),
        "toolchain": _toolchain,
        "facts": Items("fact", _fact_alone),
        "requires": Items("requirement", lambda _: (MUST_HOLD, FREE), ("condition",)),
        "claims": Items("claim", _claim_alone, ("kind", "name")),
        "ports": Items("port", lambda _: (UNCONNECTED, DISCONNECTED)),
        "entries": Items("entry", lambda _: (RUNNABLE, NOT_RUN)),
        "promises": Items("promise", lambda promise: PROMISES[promise.side], ("port", "name")),
        "types": Items("type", lambda _: (SAME_TYPE, WITHOUT_IT)),
    },
    abi.Fact: {
        "name": KEY,
        "kind": _fact_kind,
        "values": _fact_value,
        "value": _fact_value,
        "type": _fact_type,
        "default": _fact_default,
    },
    abi.Requirement: {"condition": KEY, "why": SHOWN},
    abi.Promise: {"name": KEY, "port": KEY, "side": OTHER_END, "why": SHOWN},
    abi.SharedType: {
        "name": KEY,
        "size": SAME_TYPE,
        "align": SAME_TYPE,
        "fields": Items("field", lambda _: (SAME_TYPE, SAME_TYPE)),
    },
    abi.Field: {"name": KEY, "offset": SAME_TYPE, "size": SAME_TYPE},
    abi.Claim: {
        **dict.fromkeys(("name", "kind"), KEY),
        **dict.fromkeys(("amount", "scope", "during"), _claim),
        **dict.fromkeys(("arrivals", "by"), ARRIVALS),
        "align": PLACED,
        "fixed": lambda _, claim, __: NUMBERED if claim.fixed is None else FIXED,
        "count": NUMBERED,
    },
    abi.Port: {
        "name": KEY,
        **dict.fromkeys(("space", "direction"), DISCONNECTED),
        **dict.fromkeys(("element", "shape"), TENSOR),
        **dict.fromkeys(("count", "layout", "stages"), OTHER_END),
        **dict.fromkeys(("box", "swizzle", "bytes"), COPIED),
        **dict.fromkeys(("arrivals", "by"), ARRIVALS),
        "parts": Items("part", lambda _: (OTHER_END, OTHER_END), order=OTHER_END),
        "proxy": relink("whether the producer needs a fence is decided anew"),
        "covers": Items("cover", lambda _: (TILED, TILED), ("along",), TILED),
        "fences": relink("whether who waits needs a fence is decided anew"),
        "adds": TENSOR,
        "holds": Items("condition", lambda _: (HELD, LET_GO), ("what",)),
    },
    abi.Part: {
        "name": KEY,
        **dict.fromkeys(("element", "shape", "swizzle", "layout"), OTHER_END),
        "edge": _edge,
        "copies": Items("copy", lambda _: (COPIED, COPIED), ("port",)),
    },
    abi.Copy: {"port": KEY, "count": COPIED},
    abi.Cover: {"along": KEY, "step": TILED, "clipped": _clipped},
    abi.Holds: {"what": KEY, "sizes": HELD},
    abi.Entry: {
        "name": KEY,
        "kind": NOT_RUN,
        **dict.fromkeys(("arguments", "threads"), relink("the glue that calls it is made anew")),
        "plays": OPERATIONS,
        "groups": TILED,
        "tiles": Items("tiling", lambda _: (TILED, TILED), ("of",), TILED),
    },
    abi.Operation: {"do": KEY, "on": KEY, "name": KEY, "count": PLAYED, "body": OPERATIONS},
    abi.Tiling: {"of": KEY, **dict.fromkeys(("step", "groups"), TILED)},
}


def read(path: Path) -> Component:
    """The component of an object, or of a contract where the name ends in .json."""
    json = path.suffix == ".json"
    return contract.read_contract_file(path) if json else contract.read_object(path)


def compare(old: Component, new: Component) -> list[Change]:
    """Every difference, worst first."""
    found = list(_record(old.contract, new.contract, "", Scope(old.contract, new.contract)))
    if not found and old.fingerprint != new.fingerprint:
        before, after = (f"{c.fingerprint:#018x}" for c in (old, new))
        found.append(Change(REORDERED.level, "fingerprint", before, after, REORDERED.why))
    return sorted(found, key=lambda change: -change.level)


def _record(a: abi.Record, b: abi.Record, path: str, scope: Scope) -> Iterator[Change]:
    """The changes from one record to another, field by field."""
    if isinstance(b, abi.Port):
        scope = replace(scope, port=b)
    for name in b.__struct_fields__:
        rule, old, new = RULES[type(b)][name], getattr(a, name), getattr(b, name)
        if rule is KEY or old == new:
            continue
        if isinstance(rule, Items):
            yield from _items(rule, old, new, f"{path}.{rule.title}".lstrip("."), scope)
            continue
        verdict = rule if isinstance(rule, Verdict) else rule(a, b, scope)
        if verdict is not None:
            # What a fact is, is its value.
            where = path if name in ("value", "values") else f"{path}.{name}".lstrip(".")
            yield Change(verdict.level, where, old, new, verdict.why)


def _items(rule: Items, old: Records, new: Records, path: str, scope: Scope) -> Iterator[Change]:
    """The changes of a list: another order, what has no pair, and within the pairs."""
    before, after = _labelled(rule, old), _labelled(rule, new)
    order = [tuple(k for k in one if k in two) for one, two in ((before, after), (after, before))]
    if rule.order and order[0] != order[1]:
        yield Change(rule.order.level, f"{path}s", order[0], order[1], rule.order.why)
    for label, item, note in _unpaired(before, after, path):
        gone = rule.alone(item)[1]
        yield Change(gone.level, f"{path} {label}", item, None, gone.why + note)
    for label, item, note in _unpaired(after, before, path):
        come = rule.alone(item)[0]
        yield Change(come.level, f"{path} {label}", None, item, come.why + note)
    for label in order[0]:
        yield from _record(before[label], after[label], f"{path} {label}", scope)


def _labelled(rule: Items, items: Records) -> dict[str, abi.Record]:
    """Items by what pairs them; what stands there again by its number too."""
    found: dict[str, abi.Record] = {}
    seen: Counter[str] = Counter()
    for item in items:
        words = dict.fromkeys(getattr(item, field) for field in rule.key)
        label = " ".join(filter(None, words))
        seen[label] += 1
        found[label if seen[label] == 1 else f"{label} {seen[label]}"] = item
    return found


def _unpaired(here: Labelled, there: Labelled, path: str) -> Iterator[tuple[str, abi.Record, str]]:
    """What stands on one side alone, with a note where the other has the same by another name."""
    for label, item in here.items():
        if label not in there:
            twin = next((k for k, v in there.items() if k not in here and _twins(item, v)), "")
            yield label, item, f" (renamed? see {path} {twin})" if twin else ""


def _twins(a: Any, b: Any) -> bool:
    return hasattr(a, "name") and renamed(a, name=b.name) == b

"""Rules on single values: every expression has one, and every size is a size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from pipelink.abi import ROLE_THREADS, Claim, Entry, Operation, Port
from pipelink.diagnostics import Diagnostic, Place
from pipelink.expression import ExpressionError
from pipelink.model import Instance
from pipelink.view import End, View, fact_names, who

# PTX ISA, "Phase of the mbarrier object": the largest pending count.
ARRIVALS = (1 << 20) - 1
# CUDA C++ Programming Guide, "Compute Capabilities": local memory of a thread, in bytes.
STACK = 512 << 10
WARPS = 1 << 10  # of a role: far more than a block has, and few enough to place
_UNBOUNDED = (1 << 63) - 1
_AMOUNT = {
    "shared": "bytes",
    "barrier": "threads",
    "mbarrier": "mbarriers",
    "tensor_columns": "columns",
    "stack": "bytes",
}


@dataclass(frozen=True)
class _Value:
    """An expression of a contract, what it is, and its bounds."""

    place: Place
    title: str
    text: str
    least: int = 1
    most: int = _UNBOUNDED


def _claim(place: Place, claim: Claim) -> Iterator[_Value]:
    title = f"{_AMOUNT.get(claim.kind, claim.kind)} of claim '{claim.name}'"
    if claim.amount or claim.kind != "barrier":
        least = 0 if claim.kind in ("stack", "shared") else 1
        most = {"stack": STACK, "warps": WARPS}.get(claim.kind, _UNBOUNDED)
        yield _Value(place, title, claim.amount, least, most)
    yield _Value(place, f"barriers of claim '{claim.name}'", claim.count)
    if claim.kind == "mbarrier" and not claim.by:
        yield _Value(place, f"arrivals of claim '{claim.name}'", claim.arrivals, 1, ARRIVALS)


def _port(place: Place, port: Port, extents: set[str]) -> Iterator[_Value]:
    of = f"of port '{port.name}'"
    whole = [c.step for c in port.covers if c.along == "whole"]
    steps = [c.step for c in port.covers if c.along != "whole"]
    # What only the launch knows can be a side of a tensor, and no other size.
    if port.space == "global":
        sides = [*port.box, *steps, *(s for s in (*port.shape, *whole) if s not in extents)]
    else:
        sides = [*port.box, *steps, *port.shape, *whole]
    for text in sides:
        yield _Value(place, f"a side {of}", text)
    for held in port.holds:
        for text in (s for s in held.sizes if s not in extents):
            yield _Value(place, f"a size of '{held.what}' {of}", text)
    if port.space == "register" and port.count:
        yield _Value(place, f"elements {of}", port.count)
    if port.space == "shared":
        yield from (_Value(place, f"stages {of}", text) for text in filter(None, [port.stages]))
        if not port.by:
            yield _Value(place, f"arrivals {of}", port.arrivals, 1, ARRIVALS)
        yield from (_Value(place, f"bytes {of}", text) for text in filter(None, [port.bytes]))
        for part in port.parts:
            for text in part.shape:
                yield _Value(place, f"a side of part '{part.name}' {of}", text)
            for copy in part.copies:
                yield _Value(place, f"copies of part '{part.name}' {of}", copy.count)


def _counts(operations: Iterable[Operation]) -> Iterator[str]:
    for operation in operations:
        if operation.do == "repeat" and operation.count:
            yield operation.count
        yield from _counts(operation.body)


def _entry(place: Place, entry: Entry, extents: set[str]) -> Iterator[_Value]:
    of = f"of entry '{entry.name}'"
    for text in _counts(entry.plays):
        yield _Value(place, f"a count {of}", text, -_UNBOUNDED)
    for tiling in entry.tiles:
        if tiling.of not in extents:
            yield _Value(place, f"the tiles {of}", tiling.of)
        yield _Value(place, f"the step {of}", tiling.step)


def _values(view: View, instance: Instance) -> Iterator[_Value]:
    contract = instance.contract
    extents = {f.name for f in contract.facts if f.kind == "extent"}
    for index, claim in view.claims_of(instance):
        yield from _claim(Place(instance.name, "claims", index), claim)
    for index, port in enumerate(contract.ports):
        if not view.idle(End(instance, index)):
            yield from _port(Place(instance.name, "ports", index), port, extents)
    for index, entry in enumerate(contract.entries):
        yield from _entry(Place(instance.name, "entries", index), entry, extents)


def computable(view: View) -> Iterator[Diagnostic]:
    for instance in view.kernel.instances:
        for value in _values(view, instance):
            try:
                view.value(instance, value.text)
            except ExpressionError as error:
                message = f"{value.title} of {who(instance)}: {error}"
                help_ = unlisted(instance, value.text)
                causes = view.causes(instance, value.text)
                yield Diagnostic("PL015", message, value.place, causes, help=help_)
    yield from _layouts(view)


def _layouts(view: View) -> Iterator[Diagnostic]:
    for end in view.ports("register"):
        title = f"the layout of port '{end.port.name}' of {who(end.instance)}"
        yield from _computed(partial(view.fragment, end), title, end.place)
    for end in view.ports("shared"):
        for part in filter(lambda p: p.layout, end.port.parts):
            title = (
                f"the layout of part '{part.name}' of port '{end.port.name}' of {who(end.instance)}"
            )
            of = partial(view.part_layout, end.instance, part)
            yield from _computed(of, title, end.place)


def _computed(layout: Callable[[], object], title: str, place: Place) -> Iterator[Diagnostic]:
    try:
        layout()
    except ExpressionError as error:
        yield Diagnostic("PL015", f"{title}: {error}", place)


def unlisted(instance: Instance, text: str) -> str:
    """The way out where an expression reads what is no fact of its contract."""
    kinds = {f.name: f.kind for f in instance.contract.facts}
    for name in sorted(fact_names(text)):
        if kinds.get(name) == "extent":
            return f"'{name}' is known at launch only: an expression can't read it"
        if name not in kinds and name != ROLE_THREADS:
            return f"list '{name}' in pl::contract of {instance.contract.component}"
    return ""


def sizes(view: View) -> Iterator[Diagnostic]:
    """A size below its bounds would let placements overlap."""
    for instance in view.kernel.instances:
        for value in _values(view, instance):
            found = view.value(instance, value.text)
            if value.least <= found <= value.most:
                continue
            bound = f"at least {value.least}" if found < value.least else f"at most {value.most}"
            yield Diagnostic(
                "PL020",
                f"{value.title} of {who(instance)}: {value.text} is {found}, {bound} can be",
                value.place,
                view.causes(instance, value.text),
            )

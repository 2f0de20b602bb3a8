"""What is wrong in a contract by itself, in words. Beyond this the passes take for granted that names
are names, that every reference in a contract has its target, and that values have their types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipelink import abi
from pipelink.abi import Claim, Contract, Entry, Fact, Operation, Port, Record, Value
from pipelink.expression import ExpressionError
from pipelink.floating import FloatingPoint
from pipelink.layout import parse

_TYPES = {"int": int, "bool": bool, "text": str, "element": str, "layout": str}


# Fields that hold expressions, or layouts of them.
_COMPUTED = {
    *("value", "condition", "amount", "arrivals", "count", "stages", "bytes"),
    *("shape", "box", "step", "of", "layout", "sizes"),
}
# Lists that tools write, of what a large component has many of.
_LONG = {"facts", "strong", "weak", "types"}


@dataclass(frozen=True)
class Fault:
    """What is wrong, and with which item of which list; without a list it is the whole contract."""

    message: str
    section: str = ""
    index: int = 0
    help: str = ""


def faults(contract: Contract, *, small: bool = False) -> Iterator[Fault]:
    """Every fault of a contract. Those of its size come first: the others take time by it. `small`:
    its text has been seen to have none of them."""
    if not small:
        yield from map(Fault, sizes(contract))
    yield from _names(contract)
    yield from map(Fault, _build(contract))
    yield from _slots(contract)
    for index, fact in enumerate(contract.facts):
        yield from _of("facts", index, _fact(fact))
    yield from _claims(contract)
    boxes = {p.name for p in contract.ports if p.space == "global" and p.box}
    for index, port in enumerate(contract.ports):
        yield from _of("ports", index, _port(port))
        yield from _of("ports", index, _copies(boxes, port))
    known = {"tile", *(f.name for f in contract.facts if f.kind == "extent")}
    known |= {p.name for p in contract.ports}
    ends = {p.name: p.direction for p in contract.ports if p.space == "shared" and p.by != "step"}
    for index, entry in enumerate(contract.entries):
        yield from _arguments(known, entry, index)
        yield from _of("entries", index, _entry(ends, entry))
    ports = {p.name: p for p in contract.ports}
    for index, promise in enumerate(contract.promises):
        if promise.port not in ports:
            text = f"'{promise.name}' is said of port '{promise.port[:80]}', which it does not have"
            yield Fault(text, "promises", index)


def _of(section: str, index: int, texts: Iterable[str]) -> Iterator[Fault]:
    return (Fault(text, section, index) for text in texts)


def _walk(record: Record) -> Iterator[tuple[str, object]]:
    """Every value in a record, with the field that it stands in."""
    left: list[tuple[str, object]] = [("contract", record)]
    while left:
        field, value = left.pop()
        yield field, value
        if isinstance(value, Record):
            left += [(name, getattr(value, name)) for name in value.__struct_fields__]
        elif isinstance(value, tuple):
            left += [(field, item) for item in value]


def plainly_small(text: bytes, commas: int = abi.MAX_ITEMS) -> bool:
    """Whether a note's text can have no fault of `sizes`, as most have none: then its records need not
    be walked. `commas` bound the items of all its lists; numbers are not looked at."""
    return (
        text.isascii()
        and b"\\" not in text
        and text.decode().isprintable()
        and text.count(b",") < commas
        and max(map(len, text.split(b'"'))) <= abi.MAX_TEXT
    )


def plainly_small_contract(text: bytes) -> bool:
    """The same of a contract, which has expressions, operations and numbers."""
    return (
        len(text) < abi.MAX_EXPRESSIONS
        and plainly_small(text)
        and text.count(b'"do"') < abi.MAX_OPERATIONS
        and not re.search(rb"\d{18}", text)
    )


def sizes(record: Record) -> Iterator[str]:
    """Lists, texts and numbers have bounds, whatever they are for; and so has what the passes take
    time by in all of a contract."""
    items = played = computed = 0
    for field, value in _walk(record):
        if isinstance(value, str):
            yield from _text(field, value)
            computed += len(value) if field in _COMPUTED else 0
        elif isinstance(value, tuple):
            most = abi.MAX_FACTS if field in _LONG else abi.MAX_ITEMS
            if len(value) > most:
                yield f"a list of {len(value)} {field}, {most} at most"
            items += 0 if field in ("facts", "values") else len(value)
            played += len(value) if field in ("plays", "body") else 0
        elif isinstance(value, int) and abs(value) >> 63 and field not in ("values", "default"):
            yield f"a number of more than 64 bits as {field}"
        elif isinstance(value, Fact) and value.type == "layout":
            computed += sum(len(str(v)) for v in value.values)
    if isinstance(record, Contract):
        yield from _totals(items, played, computed)


def _text(field: str, value: str) -> Iterator[str]:
    if len(value) > abi.MAX_TEXT:
        yield f"a text of {len(value)} characters as {field}, {abi.MAX_TEXT} at most"
    elif not value.isprintable():
        foreign = {c for c in value if not c.isprintable()} - {"\n", "\t", "\xa0"}
        if foreign:
            yield f"a text as {field} with {min(foreign)!r}, which can't be printed"


def _totals(items: int, played: int, computed: int) -> Iterator[str]:
    if items > abi.MAX_RECORDS:
        yield f"its lists have {items} items, {abi.MAX_RECORDS} at most"
    if played > abi.MAX_OPERATIONS:
        yield f"its entries play {played} operations, {abi.MAX_OPERATIONS} at most"
    if computed > abi.MAX_EXPRESSIONS:
        yield f"its expressions have {computed} characters, {abi.MAX_EXPRESSIONS} at most"


def _build(contract: Contract) -> Iterator[str]:
    """The owner's name stands in a comment of the glue: it can neither end nor continue the line."""
    if not contract.owner.isprintable() or "\\" in contract.owner:
        yield f"the owner is {contract.owner[:80]!r}, which is no name"
    try:
        FloatingPoint.parse(contract.floating_point)
    except ValueError:
        yield f"'{contract.floating_point[:80]}' is no floating-point mode"


def _names(contract: Contract) -> Iterator[Fault]:
    """Names are identifiers, unique in their lists."""
    if not abi.IDENTIFIER.match(contract.component):
        yield Fault(f"'{contract.component[:80]}' is no name of a component")
    lists: list[tuple[str, str, Iterable[str]]] = [
        ("facts", "fact", (f.name for f in contract.facts)),
        ("claims", "claim", (c.name for c in contract.claims)),
        ("ports", "port", (p.name for p in contract.ports)),
        ("entries", "entry", (e.name for e in contract.entries)),
        ("types", "type", (t.name for t in contract.types)),
    ]
    for section, title, names in lists:
        yield from (Fault(text, section, index) for index, text in _named(title, names))
    for index, port in enumerate(contract.ports):
        named = _named("part", (q.name for q in port.parts))
        yield from _of("ports", index, (text for _, text in named))
    for index, type_ in enumerate(contract.types):
        named = _named("field", (f.name for f in type_.fields))
        yield from _of("types", index, (text for _, text in named))


def _named(title: str, names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The faults of a list of names, each with the number of the name."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not abi.IDENTIFIER.match(name):
            yield index, f"'{name[:80]}' is no name of a {title}"
        if name in seen:
            yield index, f"{title} '{name}' stands twice in the contract"
        seen.add(name)


def _slots(contract: Contract) -> Iterator[Fault]:
    """A slot is known by its name alone, so a fact and a claim can't share one, and no part has the
    name of what a ring, a barrier or the role has beside it."""
    facts = {f.name for f in contract.facts}
    taken = {"role.first_thread", "role.threads"}
    for index, fact in enumerate(contract.facts):
        if fact.name == abi.ROLE_THREADS:
            yield Fault(
                f"'{fact.name}' is no name of a fact: it is the role's threads", "facts", index
            )
    for index, claim in enumerate(contract.claims):
        if claim.kind in abi.PLACED and claim.name in facts:
            yield Fault(f"'{claim.name}' is a fact and a claim", "claims", index)
        if claim.kind == "barrier":
            taken.add(f"{claim.name}.threads")
    for index, port in enumerate(contract.ports):
        for part in port.parts:
            slot = f"{port.name}.{part.name}"
            if part.name in ("full", "empty", "fence") or slot in taken:
                text = f"part '{part.name}' of port '{port.name}' has a name that is taken"
                yield Fault(text, "ports", index)


def _fact(fact: Fact) -> Iterator[str]:
    if fact.kind in ("provides", "chooses", "agrees") and not fact.values:
        yield f"fact '{fact.name}' has no value"
    if fact.kind in ("provides", "agrees") and len(fact.values) > 1:
        yield f"fact '{fact.name}' has {len(fact.values)} values, it provides one"
    given = fact.values if fact.default is None else (*fact.values, fact.default)
    for value in given:
        yield from _value(fact, value)
    if fact.default is not None and fact.values and fact.default not in fact.values:
        yield f"fact '{fact.name}' has a default of {fact.default!r}, which it does not support"


def _value(fact: Fact, value: Value) -> Iterator[str]:
    if type(value) is not _TYPES[fact.type]:
        yield f"fact '{fact.name}' of type {fact.type} has the value {str(value)[:80]!r}"
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        yield f"fact '{fact.name}' has a value of more than 64 bits"
    elif fact.type == "element" and value not in abi.ELEMENT_BYTES:
        yield f"fact '{fact.name}' is element type '{str(value)[:80]}': {_known_elements()}"
    elif fact.type == "layout":
        try:
            parse(str(value), {})
        except ExpressionError as error:
            yield f"fact '{fact.name}': {error}"


def _claims(contract: Contract) -> Iterator[Fault]:
    entries = {e.name for e in contract.entries if e.kind == "step"}
    for index, claim in enumerate(contract.claims):
        yield from _of("claims", index, _claim(claim, entries))
    for kind in ("warps", "registers", "stack"):
        claimed: set[str] = set()
        for index, claim in enumerate(contract.claims):
            if claim.kind != kind:
                continue
            during = set(claim.during) or entries | {""}
            if claimed & during:
                yield Fault(f"it claims {kind} twice", "claims", index)
            claimed |= during


def _claim(claim: Claim, entries: Collection[str]) -> Iterator[str]:
    if not 0 < claim.align <= 1024 or claim.align & (claim.align - 1):
        yield f"claim '{claim.name}' is aligned to {claim.align}: a power of two up to 1024"
    for name in claim.during:
        if name not in entries:
            yield f"claim '{claim.name}' lives during '{name[:80]}', which is no step"
    if claim.kind == "mbarrier" and not claim.arrivals and claim.by in ("", "step"):
        yield f"claim '{claim.name}' says nothing of who arrives"


def _known_elements() -> str:
    return f"known are {', '.join(abi.ELEMENT_BYTES)}"


def _port(port: Port) -> Iterator[str]:
    tiles = port.parts if port.space == "shared" else (port,)
    if not tiles:
        yield f"port '{port.name}' has no part"
    for tile in tiles:
        if tile.element not in abi.ELEMENT_BYTES:
            yield (f"'{tile.name}' has elements of type '{tile.element[:80]}': {_known_elements()}")
        if tile.swizzle not in abi.SWIZZLES:
            yield f"'{tile.name}' has a swizzle of {tile.swizzle} bytes: 0, 32, 64 or 128"
        sides = max(len(tile.shape), len(port.box))
        if sides > abi.MAX_SIDES or (tile is not port and not tile.shape):
            yield f"'{tile.name}' has {sides} sides: {abi.MAX_SIDES} at most, and a part has one"
    if port.space == "shared" and not port.by and not port.arrivals:
        yield f"port '{port.name}' says nothing of who arrives"
    if port.space == "shared" and (port.by == "step") == bool(port.stages):
        has = "has stages" if port.stages else "has no stages"
        yield f"port '{port.name}' {has}: a ring has some, a tile that the glue hands over none"
    if port.adds and (port.space, port.direction, port.box) != ("global", "out", ()):
        yield f"port '{port.name}' is added to, and is no array that is written"
    if port.covers and len(port.covers) != len(port.shape):
        yield (
            f"port '{port.name}' covers {len(port.covers)} sides of a tensor that has "
            f"{len(port.shape)}"
        )
    yield from _holds(port)


def _holds(port: Port) -> Iterator[str]:
    said = ", ".join(f"'{h.what}'" for h in port.holds)
    if said and (port.space != "global" or port.box):
        yield f"port '{port.name}' holds {said}, and is no array in global memory"
    elif said and port.element not in abi.INTEGERS:
        yield f"port '{port.name}' holds {said}, and has elements of type '{port.element[:80]}'"
    elif said and port.direction != "in":
        yield f"port '{port.name}' holds {said}, and is not read"
    for held in port.holds:
        if (held.what == "distinct") == bool(held.sizes):
            has = "has sizes, it takes none" if held.sizes else "has no sizes"
            yield f"'{held.what}' of port '{port.name}' {has}"


def _copies(boxes: Collection[str], port: Port) -> Iterator[str]:
    for part in port.parts:
        for copy in part.copies:
            if copy.port not in boxes:
                yield (
                    f"part '{part.name}' of port '{port.name}' is filled by '{copy.port[:80]}', "
                    "which is no port with a box"
                )


def _arguments(known: Collection[str], entry: Entry, index: int) -> Iterator[Fault]:
    for name in entry.arguments:
        if name not in known:
            text = f"entry '{entry.name}' has argument '{name[:80]}', no port and no extent"
            yield Fault(text, "entries", index, f"list '{name[:80]}' in pl::contract")


def _entry(ends: Mapping[str, str], entry: Entry) -> Iterator[str]:
    if entry.tiles and (entry.kind != "schedule" or len(entry.tiles) != 2):
        yield f"entry '{entry.name}' has {len(entry.tiles)} sides of tiles, a schedule has 2"
    if len(entry.tiles) == 2 and entry.tiles[1].groups:
        yield f"entry '{entry.name}' has columns of tiles in groups, which only rows can be"
    if entry.groups and (entry.kind != "step" or "tile" not in entry.arguments):
        yield f"entry '{entry.name}' goes by groups of rows, and is no step that takes the tile"
    if entry.threads == "one" and entry.kind != "step":
        yield f"schedule '{entry.name}' is asked by one thread, and all go by it"
    yield from (f"entry '{entry.name}' {fault}" for fault in _plays(entry.plays, ends, 1))


def _plays(operations: Iterable[Operation], ends: Mapping[str, str], depth: int) -> Iterator[str]:
    """`ends` are the rings of the contract and on which side of them it is."""
    if depth > abi.MAX_NESTING:
        yield f"plays loops {depth} deep, {abi.MAX_NESTING} at most"
        return
    for operation in operations:
        if operation.do in ("repeat", "maybe"):
            counted, named = operation.count != "", operation.name != ""
            if counted == named or (counted and operation.do == "maybe"):
                yield f"plays a {operation.do} that needs one of a count and a name"
            elif operation.on:
                yield f"plays a {operation.do} of '{operation.on[:80]}', which has a body alone"
            elif operation.name and not abi.IDENTIFIER.match(operation.name):
                yield f"plays a {operation.do} named '{operation.name[:80]}'"
            yield from _plays(operation.body, ends, depth + 1)
            continue
        side = "out" if operation.do in ("acquire", "commit") else "in"
        if ends.get(operation.on) != side:
            yield f"plays {operation.do} of '{operation.on[:80]}', which is no ring '{side}' port"
        elif operation.count or operation.name or operation.body:
            yield f"plays {operation.do} of '{operation.on}' with a count, a name or a body"

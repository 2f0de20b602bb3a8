"""Contracts, the map and diagnostics for a terminal: the only importer of rich."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pipelink.abi import Claim, Contract, Fact, Holds, Operation, Part, Port
from pipelink.driver import Product
from pipelink.model import Call
from pipelink.report.identity import summary
from pipelink.resolve import shown
from pipelink.sass import Comparison


def _console(out: TextIO | None) -> Console:
    stream = out or sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 120, highlight=False)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    return table


_NUMBERS = {
    "bytes",
    "from",
    "to",
    "id",
    "threads",
    "warps",
    "registers",
    "value",
    "arrivals",
    "count",
    "least",
    "most",
}


def print_map(product: Product, identity: Comparison | None, out: TextIO | None = None) -> None:
    """The linker map, section by section."""
    console, plan = _console(out), product.plan
    console.print(
        f"[bold]{plan.kernel}[/] for {plan.target}: {plan.threads} threads, "
        f"{plan.shared_bytes} of {plan.shared_limit} bytes of shared memory, "
        f"{product.audited.registers} registers a thread at launch"
    )
    console.print()
    for table in (
        _owners(product),
        _roles(product),
        _memory(product),
        _barriers(product),
        _columns(product),
        _channels(product),
        _arguments(product),
        _extents(product),
        _facts(product),
        _choices(product),
    ):
        if table.row_count:
            console.print(table)
    for remark in plan.remarks:
        console.print(f"remark       {remark}")
    audited, components = product.audited, {i.component for i in plan.instances}
    console.print("fold gate    held: every binding is a constant in the cubin")
    console.print(f"fingerprints held: {len(components)} contracts are those of the device code")
    console.print(
        f"audit        {audited.registers} registers, {audited.barriers} barriers with id 0, "
        f"{audited.stack_bytes} stack bytes, {audited.spill_bytes} spilled"
    )
    console.print(f"identity     {summary(identity)}")


def _owners(product: Product) -> Table:
    table = _table("Owners", "instance", "component", "version", "owner", "object", "role")
    for i in product.plan.instances:
        table.add_row(
            i.name, i.component, escape(i.version), escape(i.owner), escape(i.object), i.role
        )
    return table


def _roles(product: Product) -> Table:
    plan = product.plan
    several = len(plan.phases) > 1
    heads = ("phase",) if several else ()
    table = _table(
        "Warps and registers", *heads, "role", "warps", "threads", "registers", "steps", "why"
    )
    placed = {r.name: r for r in plan.roles}
    for phase in plan.phases:
        for steps in phase.roles:
            r = placed[steps.role]
            first, last = r.first_warp, r.first_warp + r.warps - 1
            calls = ", ".join(s.instance for s in steps.steps if isinstance(s, Call))
            registers = str(steps.registers or product.audited.registers)
            row = (r.name, f"{first}-{last}", str(32 * r.warps), registers, calls, steps.reason)
            table.add_row(*((phase.name,) if several else ()), *row)
    return table


def _memory(product: Product) -> Table:
    plan = product.plan
    several = len(plan.phases) > 1
    heads = ("phases",) if several else ()
    table = _table("Shared memory", "from", "to", "bytes", "region", "owners", *heads, "why")
    rows = [(r.offset, r.bytes, r.name, r.owners, r.phases, r.reason) for r in plan.regions]
    every = tuple(p.name for p in plan.phases)
    rows += [
        (m.offset, 8 * m.count, m.name, m.owners, every, f"mbarriers: {m.reason}")
        for m in plan.mbarriers
    ]
    for offset, size, name, owners, phases, reason in sorted(rows):
        when = (", ".join(phases),) if several else ()
        span = (str(offset), str(offset + size), str(size))
        table.add_row(*span, name, ", ".join(owners), *when, escape(reason))
    return table


def _barriers(product: Product) -> Table:
    table = _table("Named barriers", "id", "threads", "barrier", "owner", "why")
    for b in product.plan.barriers:
        ids = str(b.id) if b.count == 1 else f"{b.id}-{b.id + b.count - 1}"
        table.add_row(ids, str(b.threads), b.name, b.instance or "the glue", b.reason)
    return table


def _columns(product: Product) -> Table:
    table = _table("Tensor memory", "from", "to", "claim", "owner", "why")
    for c in product.plan.columns:
        table.add_row(str(c.first), str(c.first + c.count), c.name, c.instance, c.reason)
    return table


def _channels(product: Product) -> Table:
    table = _table("Channels", "from port", "to port", "transfer", "what", "bank conflicts")
    for c in product.plan.channels:
        ways = "-" if not c.conflict else "none" if c.conflict == 1 else f"{c.conflict} ways"
        table.add_row(c.producer, c.consumer, c.transfer, c.detail, ways)
    return table


def _arguments(product: Product) -> Table:
    table = _table("Arguments of a call", "argument", "element", "shape", "access", "ports")
    for a in product.plan.arguments:
        ports = [p.name.replace("__", ".") for p in product.plan.parameters if p.argument == a.name]
        shape = escape(f"[{', '.join(map(str, a.shape))}]")
        table.add_row(a.name, a.element, shape, a.access, ", ".join(ports))
    return table


def _extents(product: Product) -> Table:
    table = _table("Extents", "extent", "least", "most")
    for parameter in product.plan.parameters:
        if parameter.bounds:
            least, most = parameter.bounds
            table.add_row(parameter.name, str(least), str(most))
    return table


def _facts(product: Product) -> Table:
    table = _table("Facts", "fact", "value", "fixed by", "taken by")
    for f in product.plan.facts:
        if f.kind != "imports" or f.provider == f.instance:
            by = f"{f.instance} (default)" if f.kind == "imports" else f.instance
            table.add_row(f.name, escape(shown(f.value)), by, ", ".join(f.consumers) or "-")
    return table


def _choices(product: Product) -> Table:
    table = _table("Facts left to the link", "fact", "value", "why")
    for c in product.plan.choices:
        table.add_row(c.fact, escape(shown(c.value)), c.reason)
    return table


def print_contract(contract: Contract, out: TextIO | None = None) -> None:
    """A contract, readably."""
    console = _console(out)
    console.print(
        f"[bold]{contract.component}[/] {escape(contract.version)} of {escape(contract.owner)}, "
        f"for {escape(contract.target)}"
    )
    console.print(
        f"CUDA {contract.toolchain[0]}.{contract.toolchain[1]}, floating point {contract.floating_point}"
    )
    console.print()
    facts = _table("Facts", "fact", "kind", "type", "values")
    for f in contract.facts:
        facts.add_row(f.name, f.kind, _fact_type(f), escape(_fact_value(f)))
    claims = _table("Claims", "claim", "kind", "amount", "terms")
    for c in contract.claims:
        amount = escape(c.amount or "all of the role")
        claims.add_row(c.name, c.kind, amount, escape(_terms(c) or "-"))
    ports = _table("Ports", "port", "space", "direction", "what")
    for p in contract.ports:
        ports.add_row(p.name, p.space, p.direction, escape(_port(p)))
    entries = _table("Entries", "entry", "kind", "arguments", "plays, tiles")
    for e in contract.entries:
        tiles = ", ".join(f"{t.of} by {t.step}" for t in e.tiles)
        entries.add_row(
            e.name, e.kind, ", ".join(e.arguments), escape(played(e.plays) or tiles or "-")
        )
    rules = _table("Requirements", "condition", "why")
    for r in contract.requires:
        rules.add_row(escape(r.condition), escape(r.why))
    said = _table("Promises and needs", "name", "side", "port", "why")
    for s in contract.promises:
        said.add_row(escape(s.name), s.side, s.port, escape(s.why))
    types = _table("Shared types", "type", "size", "align", "fields")
    for t in contract.types:
        fields = ", ".join(f"{f.name} {f.size} at {f.offset}" for f in t.fields)
        types.add_row(t.name, str(t.size), str(t.align), fields)
    for table in (facts, rules, claims, ports, entries, said, types):
        if table.row_count:
            console.print(table)


def _fact_type(fact: Fact) -> str:
    return "-" if fact.kind == "derives" else fact.type


def _fact_value(fact: Fact) -> str:
    values = fact.value or ", ".join(map(shown, fact.values))
    if fact.default is not None:
        values = f"{values or 'any'}; {shown(fact.default)} if nobody provides it"
    return values or ("any" if fact.kind == "imports" else "-")


def _terms(claim: Claim) -> str:
    """All of a claim beside its amount."""
    terms = [f"aligned to {claim.align}"] if claim.kind == "shared" else []
    terms += [f"{claim.count} of them"] if claim.count != "1" else []
    terms += [f"from id {claim.fixed} on"] if claim.fixed is not None else []
    arrives = claim.by.replace("_", " ") or claim.arrivals
    terms += [f"arrivals: {arrives}"] if claim.kind == "mbarrier" else []
    terms += [f"one a {claim.scope}"] if claim.scope != "role" else []
    terms += [f"during {', '.join(claim.during)}"] if claim.during else []
    return ", ".join(terms)


def played(operations: tuple[Operation, ...]) -> str:
    """What an entry does with rings, in a line: `k_steps x (acquire out, commit out)`."""
    words = []
    for o in operations:
        if o.do == "repeat":
            words.append(f"{o.count or o.name} x ({played(o.body)})")
        elif o.do == "maybe":
            words.append(f"{o.name}? ({played(o.body)})")
        else:
            words.append(f"{o.do} {o.on}")
    return ", ".join(words)


def _port(port: Port) -> str:
    """What goes through a port, in a line."""
    sides = ", ".join(port.shape)
    if port.space == "register":
        tile = f"[{sides}] in all threads" if sides else f"{port.count} a thread"
        return f"{port.element} {tile}, {port.layout}"
    if port.space == "shared":
        parts = ", ".join(_part(q) for q in port.parts)
        who = port.by.replace("_", " ") or f"{port.arrivals} arrivals"
        proxy = f", {port.proxy} proxy" if port.proxy else ""
        return f"ring of [{port.stages}]: {parts}; by {who}{proxy}"
    box = f", boxes of [{', '.join(port.box)}]{_swizzle(port.swizzle)}" if port.box else ""
    covers = ", ".join(
        f"{c.step} by {c.along}{', clipped' if c.clipped else ''}"
        if c.along != "whole"
        else f"{c.step} in all"
        for c in port.covers
    )
    holds = ", ".join(map(_held, port.holds))
    return (
        f"{port.element} [{sides}]{box}"
        + (f"; a tile reaches {covers}" if covers else "")
        + (f"; values are {holds}" if holds else "")
    )


def _held(held: Holds) -> str:
    to = "to " if held.what == "ascending" else ""
    return f"{held.what} {to}{' x '.join(held.sizes)}".strip()


def _part(part: Part) -> str:
    copies = " and ".join(f"{c.count} x {c.port}" for c in part.copies)
    return (
        f"{part.name} {part.element} [{', '.join(part.shape)}]{_swizzle(part.swizzle)}"
        + (f" as {part.layout}" if part.layout else "")
        + (f" from {copies}" if copies else "")
        + (f", past the end {part.edge}" if part.edge else "")
    )


def _swizzle(bytes_: int) -> str:
    return f" {bytes_}-byte swizzle" if bytes_ else ""


# How a line of a rendered diagnostic looks, by how it begins; each group has a style.
_LOOKS = [
    (re.compile(r"(error\[\w+\])(.*)"), ("bold red", "bold")),
    (re.compile(r"( +(?:-->|:::))(.*)"), ("bold blue", "")),
    (re.compile(r"( +\|)( \^\^\^.*)"), ("bold blue", "bold red")),
    (re.compile(r"( +\|)( ---.*)"), ("bold blue", "bold blue")),
    (re.compile(r"( *\d* \|)(.*)"), ("bold blue", "")),
    (re.compile(r"(  = )(note|help)(:.*)"), ("bold blue", "bold", "")),
    (re.compile(r"(pipelink:)(.*)"), ("bold", "bold red")),
]


def print_diagnostics(text: str, out: TextIO) -> None:
    """Rendered diagnostics in colour, for a terminal; the text stays as it is."""
    lines = [Text("").append_tokens(_styled(line)) for line in text.splitlines()]
    _console(out).print(Text("\n").join(lines), soft_wrap=True)


def _styled(line: str) -> Iterator[tuple[str, str]]:
    """The parts of a line and their styles."""
    for pattern, styles in _LOOKS:
        match = pattern.fullmatch(line)
        if match:
            yield from zip(match.groups(), styles, strict=True)
            return
    yield line, ""

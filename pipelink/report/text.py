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

from pipelink.abi import Contract, Port
from pipelink.driver import Product
from pipelink.report.identity import summary
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
        _channels(product),
        _arguments(product),
        _extents(product),
        _facts(product),
    ):
        if table.row_count:
            console.print(table)
    audited, components = product.audited, {i.component for i in plan.instances}
    console.print("fold gate    held: every binding is a constant in the cubin")
    console.print(f"fingerprints held: {len(components)} contracts are those of the device code")
    console.print(
        f"audit        {audited.registers} registers, {audited.barriers} barriers with "
        f"__syncthreads(), {audited.stack_bytes} stack bytes, {audited.spill_bytes} spilled"
    )
    console.print(f"identity     {summary(identity)}")


def _owners(product: Product) -> Table:
    table = _table("Owners", "instance", "component", "version", "owner", "object", "role")
    for i in product.plan.instances:
        table.add_row(i.name, i.component, i.version, i.owner, i.object, i.role)
    return table


def _roles(product: Product) -> Table:
    table = _table("Warps and registers", "role", "warps", "threads", "registers", "steps", "why")
    for r in product.plan.roles:
        first, last = r.first_warp, r.first_warp + r.warps - 1
        steps = ", ".join(c.instance for c in r.steps)
        registers = str(r.registers or product.audited.registers)
        table.add_row(r.name, f"{first}-{last}", str(32 * r.warps), registers, steps, r.reason)
    return table


def _memory(product: Product) -> Table:
    table = _table("Shared memory", "from", "to", "bytes", "region", "owners", "why")
    plan = product.plan
    rows = [(r.offset, r.bytes, r.name, r.owners, r.reason) for r in plan.regions]
    rows += [
        (m.offset, 8 * m.count, m.name, m.owners, f"mbarriers: {m.reason}") for m in plan.mbarriers
    ]
    for offset, size, name, owners, reason in sorted(rows):
        table.add_row(str(offset), str(offset + size), str(size), name, ", ".join(owners), reason)
    return table


def _barriers(product: Product) -> Table:
    table = _table("Named barriers", "id", "threads", "barrier", "owner", "why")
    for b in product.plan.barriers:
        table.add_row(str(b.id), str(b.threads), b.name, b.instance, b.reason)
    return table


def _channels(product: Product) -> Table:
    table = _table("Channels", "from port", "to port", "transfer", "what")
    for c in product.plan.channels:
        table.add_row(c.producer, c.consumer, c.transfer, c.detail)
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
    table = _table("Facts", "fact", "value", "fixed by", "imported by")
    facts = product.plan.facts
    for f in facts:
        if f.kind != "imports":
            users = [
                u.instance
                for u in facts
                if u.kind == "imports" and (u.provider, u.name) == (f.instance, f.name)
            ]
            table.add_row(f.name, str(f.value), f.instance, ", ".join(users) or "-")
    return table


def print_contract(contract: Contract, out: TextIO | None = None) -> None:
    """A contract, readably."""
    console = _console(out)
    console.print(
        f"[bold]{contract.component}[/] {contract.version} of {contract.owner}, for {contract.target}"
    )
    console.print(
        f"CUDA {contract.toolchain[0]}.{contract.toolchain[1]}, floating point {contract.floating_point}"
    )
    console.print()
    facts = _table("Facts", "fact", "kind", "value")
    for f in contract.facts:
        facts.add_row(f.name, f.kind, f.value or ", ".join(map(str, f.values)) or "-")
    claims = _table("Claims", "claim", "kind", "amount")
    for c in contract.claims:
        claims.add_row(c.name, c.kind, c.amount)
    ports = _table("Ports", "port", "space", "direction", "what")
    for p in contract.ports:
        ports.add_row(p.name, p.space, p.direction, escape(_port(p)))
    entries = _table("Entries", "entry", "kind", "arguments")
    for e in contract.entries:
        entries.add_row(e.name, e.kind, ", ".join(e.arguments))
    rules = _table("Requirements", "condition", "why")
    for r in contract.requires:
        rules.add_row(r.condition, r.why)
    for table in (facts, rules, claims, ports, entries):
        if table.row_count:
            console.print(table)


def _port(port: Port) -> str:
    """What goes through a port, in a line."""
    if port.space == "register":
        return f"{port.count} {port.element} a thread, {port.layout}"
    if port.space == "shared":
        parts = ", ".join(f"{q.name} {q.element} [{', '.join(q.shape)}]" for q in port.parts)
        return f"ring of [{port.stages}]: {parts}; {port.arrivals} arrivals a stage"
    box = f", boxes of [{', '.join(port.box)}]" if port.box else ""
    return f"{port.element} [{', '.join(port.shape)}]{box}"


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

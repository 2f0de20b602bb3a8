"""The slots that code asks for, held against those that its contract lists.

The link binds what a contract lists. Code that uses another item would end the link with a binding
that did not fold (PL040), which names nobody: a slot is a hash. Here, where the source is at hand, the
item is found whose name has that hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelink.abi import Contract, fnv1a
from pipelink.diagnostics import Diagnostic, FilePlace

_ASKED = re.compile(r"pipelink_(?:bind|region)\((?:[^,()]|\([^()]*\))*,\s*(\d+)UL")
_MADE = re.compile(r'<\s*"(\w+)"')
_BESIDE = ("", ".threads", ".full", ".empty", ".fence")


def unlisted(contract: Contract, unit: str, source: str, path: str) -> Iterator[Diagnostic]:
    """Items that the code of a device unit uses and the contract does not list."""
    known = {fnv1a(slot.encode()) for slot in _listed(contract)}
    strange = {int(slot) for slot in _ASKED.findall(unit)} - known
    if not strange:
        return
    for number, line in enumerate(source.splitlines(), 1):
        for name in _MADE.findall(line):
            if strange & {fnv1a(f"{name}{rest}".encode()) for rest in _BESIDE}:
                yield Diagnostic(
                    "PL051",
                    f"item '{name}' is used and not listed in the contract",
                    FilePlace(f"{path}:{number}"),
                    notes=("the link decides values for listed items only",),
                    help="list it in pl::contract",
                )


def _listed(contract: Contract) -> Iterator[str]:
    yield from ("role.first_thread", "role.threads")
    yield from (fact.name for fact in contract.facts)
    for claim in contract.claims:
        yield from (claim.name, f"{claim.name}.threads")
    for port in contract.ports:
        parts = (part.name for part in port.parts)
        yield from (f"{port.name}.{name}" for name in (*parts, "full", "empty", "fence"))

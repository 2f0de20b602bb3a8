"""Diagnostics as data: what is wrong, where, what is on the other side, and the way out.

Passes make `Diagnostic` values; `report/` renders them. A place is symbolic (instance, section of
the contract, number): the line is looked up in the object only when a diagnostic is rendered, so
that no plan depends on where a line stands.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass

# Of one rule; so many say that it is not a slip.
MOST_FINDINGS = 64
_MOST_COMPARED = 1 << 14  # characters, each with each


@dataclass(frozen=True)
class Place:
    """A line of a contract: `section` is facts, requires, claims, ports or entries."""

    instance: str
    section: str
    index: int
    label: str = ""


@dataclass(frozen=True)
class FilePlace:
    """A file, or a key of a manifest."""

    file: str
    key: str = ""
    label: str = ""


Where = Place | FilePlace


@dataclass(frozen=True)
class Diagnostic:
    """One finding. `message` is lower case, without a full stop; `help` says how to mend it."""

    code: str
    message: str
    primary: Where | None = None
    secondary: tuple[Where, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    # Nothing is wrong that is known, and not everything is known.
    remark: bool = False


CODES = {
    "PL001": "a file can't be read",
    "PL002": "an object has no contract",
    "PL003": "a contract's note is damaged",
    "PL004": "a note's version is newer than this PipeLink",
    "PL005": "a manifest can't be read",
    "PL006": "a manifest has an unknown key",
    "PL007": "the target is not known",
    "PL008": "the plan is not the objects' plan",
    "PL009": "the compiler refuses a source",
    "PL010": "two objects define one component",
    "PL011": "an import that nobody provides",
    "PL012": "a fact with more than one provider",
    "PL013": "a value outside of the declared set",
    "PL014": "facts that need each other",
    "PL015": "an expression can't be computed",
    "PL016": "a name that the contract does not have",
    "PL017": "owners state different values of one agreed constant",
    "PL018": "owners compiled a shared type with different layouts",
    "PL019": "a fact of another type",
    "PL020": "a requirement does not hold",
    "PL021": "a channel's ports do not fit",
    "PL022": "a port is connected to nothing, or twice",
    "PL023": "a role's steps disagree on its warps",
    "PL024": "a component was built for another target",
    "PL025": "floating-point modes differ",
    "PL026": "toolchain versions do not mix",
    "PL027": "a copy box or swizzle that the hardware can't do",
    "PL028": "a kernel parameter's users disagree",
    "PL029": "the tile schedule",
    "PL030": "shared memory does not fit",
    "PL031": "the registers of the roles do not fit",
    "PL032": "named barriers",
    "PL033": "too many threads",
    "PL034": "a register claim that the hardware can't set",
    "PL035": "a need that no promise meets",
    "PL036": "copies that do not fill the stage",
    "PL037": "arrivals or proxies that can't be",
    "PL038": "a tensor that the tiles do not cover",
    "PL039": "pipelines that block, or overwrite what is not read",
    "PL040": "a binding did not fold",
    "PL041": "host and device see different contracts",
    "PL042": "a symbol that nobody defines, or two do",
    "PL043": "the link log says that the composition broke",
    "PL044": "stack or spills that no contract declares",
    "PL045": "the cubin is not what the plan says",
    "PL046": "shared memory outside of the contract",
    "PL047": "a call past the contract",
    "PL048": "an inline function with two bodies",
    "PL050": "the control can't be built",
    "PL051": "an item that the contract does not list",
    "PL052": "tensor memory",
    "PL053": "a transfer that can't be",
    "PL054": "facts that are left to the link",
}


class PipeLinkError(Exception):
    """Root of everything that PipeLink raises on purpose."""


class InputError(PipeLinkError):
    """The input is at fault; exit code 1."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics


class ToolError(PipeLinkError):
    """The toolchain or PipeLink itself failed; exit code 3."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def checkpoint(diagnostics: list[Diagnostic]) -> None:
    """Stops the run with every error that was found so far, if there is one."""
    if diagnostics:
        raise InputError(*dict.fromkeys(diagnostics))


def nearest(name: str, known: Collection[str], cutoff: float = 0.6) -> list[str]:
    """The known name that is most like it, if one is; none where the search would take long."""
    if len(name) * sum(map(len, known)) > _MOST_COMPARED:
        return []
    return difflib.get_close_matches(name, known, 1, cutoff)

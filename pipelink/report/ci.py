"""Diagnostics for CI systems: GitHub's workflow commands, and SARIF 2.1.0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from pipelink import __version__
from pipelink.diagnostics import CODES, Diagnostic
from pipelink.explain import prose
from pipelink.report.diagnostics import capped
from pipelink.report.fold import Finding, folded
from pipelink.report.locate import Locate, Spot

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_github(found: Sequence[Diagnostic], locate: Locate) -> str:
    """One `::error` command each: GitHub shows it at the line of the primary place."""
    shown, hidden = capped(folded(found, locate))
    rest = [f"::error::and {count} more of {code}" for code, count in hidden.items()]
    return "".join(f"{line}\n" for line in [*map(_command, shown), *rest])


def _command(finding: Finding) -> str:
    properties = {"title": finding.code}
    if finding.spots and finding.spots[0].is_file:
        spot = finding.spots[0]
        line = {"line": str(spot.line)} if spot.line else {}
        properties = {"file": spot.file, **line, **properties}
    settings = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::error {settings}::{_data(_message(finding))}"


def _message(finding: Finding) -> str:
    """What is shown at the primary line: all of the diagnostic, as plain lines."""
    lines = [finding.message, *(s.label for s in finding.spots[:1] if s.label)]
    lines += [f"{s}: {s.label}" if s.label else str(s) for s in finding.spots[1:]]
    lines += [f"note: {note}" for note in finding.notes]
    return "\n".join(lines + ([f"help: {finding.help}"] if finding.help else []))


def _data(text: str) -> str:
    """As @actions/core escapes the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(found: Sequence[Diagnostic], locate: Locate) -> str:
    """A log of one run; without findings its list of results is empty."""
    driver = {"name": "pipelink", "version": __version__, "rules": [_rule(c) for c in CODES]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(f) for f in folded(found, locate)],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n"


def _rule(code: str) -> dict[str, Any]:
    help_ = prose(code) or CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": CODES[code]},
        "help": {"text": help_, "markdown": help_},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding) -> dict[str, Any]:
    extra = [f"note: {n}" for n in finding.notes]
    extra += [f"help: {finding.help}"] if finding.help else []
    files = [s for s in finding.spots if s.is_file]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": list(CODES).index(finding.code),
        "level": "error",
        "message": {"text": "\n".join([finding.message, *extra])},
        "locations": [_location(s) for s in files[:1]],
    }
    if files[1:]:
        result["relatedLocations"] = [{"id": n} | _location(s) for n, s in enumerate(files[1:], 1)]
    return result


def _location(spot: Spot) -> dict[str, Any]:
    where: dict[str, Any] = {"artifactLocation": {"uri": _uri(spot.file)}}
    if spot.line:
        where["region"] = {"startLine": spot.line}
    said = {"message": {"text": spot.label}} if spot.label else {}
    return {"physicalLocation": where} | said


def _uri(file: str) -> str:
    """Relative to the working folder, which is where CI systems call from."""
    path = Path(file)
    if path.is_absolute():
        path = Path(os.path.relpath(path))
    return quote(path.as_posix())

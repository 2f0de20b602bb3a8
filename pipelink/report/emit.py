"""Diagnostics written out: text to standard error, forms for programs to standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipelink.diagnostics import Diagnostic
from pipelink.report.diagnostics import as_json, as_text
from pipelink.report.locate import Locate


def emit(form: str, found: Sequence[Diagnostic], locate: Locate) -> None:
    """Writes diagnostics in a form of `--format`; none of them is what a program reads as success."""
    if form == "text":
        _to_people(as_text(found, locate))
    elif form == "json":
        print(as_json(found, locate))
    else:
        from pipelink.report.ci import as_github, as_sarif

        text = as_github(found, locate) if form == "github" else as_sarif(found, locate)
        print(text, end="")


def _to_people(text: str) -> None:
    if text and sys.stderr.isatty():
        from pipelink.report.text import print_diagnostics

        print_diagnostics(text, sys.stderr)
    else:
        print(text, end="", file=sys.stderr)

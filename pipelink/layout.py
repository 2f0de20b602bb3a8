"""Layouts as CuTe writes them, `shape:stride`, with sizes that are expressions over facts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipelink import expression

_TOKEN = re.compile(r"[(),:]|[^(),:]+")


def concrete(layout: str, facts: Mapping[str, int]) -> str:
    """The layout with every size computed; `/` divides integers, as in the owner's C++."""
    return "".join(
        token
        if token in "(),:"
        else str(expression.evaluate(re.sub("/+", "//", token.strip()), facts))
        for token in _TOKEN.findall(layout)
        if token.strip()
    )

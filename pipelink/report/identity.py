"""The result of `verify`."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from pipelink.driver import Product
from pipelink.sass import Comparison

SHOWN = 10


def summary(comparison: Comparison | None) -> str:
    """One line; without a comparison it says that there was none."""
    if comparison is None:
        return "not compared: `pipelink verify` builds the control"
    count, differing = comparison.instructions, len(comparison.differences)
    return f"{differing} of {count} instructions differ from the control"


def as_text(product: Product, comparison: Comparison) -> str:
    """The summary and the first differences."""
    rows = [f"{product.plan.kernel}: {summary(comparison)}"]
    for d in comparison.differences[:SHOWN]:
        rows.append(
            f"  {d.function}+{d.address:#06x}: {d.linked or 'nothing'} | {d.control or 'nothing'}"
        )
    if len(comparison.differences) > SHOWN:
        rows.append(f"  and {len(comparison.differences) - SHOWN} more")
    return "\n".join(rows)


def as_json(product: Product, comparison: Comparison) -> str:
    """Everything that was compared."""
    return msgspec.json.encode({"kernel": product.plan.kernel, **asdict(comparison)}).decode()

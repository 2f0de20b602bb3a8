"""The linker map as data: who has which bytes, barriers, warps and registers, and why."""

from __future__ import annotations

import hashlib
from dataclasses import asdict

import msgspec

from pipelink.driver import Product


def encode_map(product: Product) -> bytes:
    """The map as JSON: the plan's placements with what the audit read back."""
    plan = product.plan
    data = {
        "kernel": plan.kernel,
        "target": plan.target,
        "cubin_sha256": hashlib.sha256(product.cubin).hexdigest(),
        "threads": plan.threads,
        "launch_registers": plan.launch_registers,
        "shared_bytes": plan.shared_bytes,
        "shared_limit": plan.shared_limit,
        "instances": plan.instances,
        "shared_bound": plan.shared_bound,
        "shared_how": plan.shared_how,
        "blocks_per_sm": plan.blocks_per_sm,
        "roles": plan.roles,
        "phases": plan.phases,
        "channels": plan.channels,
        "regions": plan.regions,
        "mbarriers": plan.mbarriers,
        "barriers": plan.barriers,
        "columns": plan.columns,
        "extents": {p.name: p.bounds for p in plan.parameters if p.kind == "extent"},
        "facts": plan.facts,
        "choices": plan.choices,
        "audit": asdict(product.audited),
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"

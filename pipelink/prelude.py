"""What `pipelink compile` puts before a component's source: target, mode and build, as macros.

nvcc's -D splits values at commas, so defines stand here too.
"""

from __future__ import annotations

import msgspec

from pipelink.abi import Build


def prelude(target: str, floating_point: str, build: Build) -> str:
    """The header's text."""
    record = msgspec.json.encode(build).decode()
    defines = [
        f"#define {name} {value or '1'}"
        for name, _, value in (d.partition("=") for d in build.define)
    ]
    return "\n".join(
        [
            f'#define PIPELINK_TARGET "{target}"',
            f'#define PIPELINK_FLOATING_POINT "{floating_point}"',
            f'#define PIPELINK_BUILD R"pipelink({record})pipelink"',
            *defines,
            "",
        ]
    )

"""What each step of the rebuild graph reads beside its sources: a build system runs the step again
when one of these changes."""

import importlib.metadata
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pipelink.resources import PACKAGE, template_dir

# The modules that each call runs, so that a change in one redoes the steps that it is part of and
# no other. tests/test_build.py holds this table against what the calls really import.
_EVERY = ("__init__", "__main__", "cli", "arch", "diagnostics", "resources")
_MODULES = {
    "compile": (*_EVERY, "abi", "contract", "elf", "floating", "model", "prelude", "toolchain"),
    "contract": (*_EVERY, "abi", "contract", "elf", "floating", "model", "toolchain"),
    "plan": ("*", "check/*", "place/*"),
    "render": ("*", "check/*", "place/*"),
    "link": ("*", "check/*", "place/*", "report/*"),
}
_NEVER = {"launch", "reproduce", "runtime", "sass", "scons", "steps", "verify"}
_TOOLS = {
    "compile": ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"),
    "link": ("cuda-bindings", "nvidia-nvjitlink"),
}


def modules(call: str) -> list[Path]:
    """PipeLink's own files that the call runs or fills in."""
    found = {f for pattern in _MODULES[call] for f in PACKAGE.glob(pattern + ".py")}
    if call == "render":
        found |= {f for f in template_dir().rglob("*") if f.is_file()}
    return sorted(f for f in found if f.stem not in _NEVER)


def tools(call: str, environment: Mapping[str, str]) -> list[str]:
    """The vendor's tools that the call runs, each with its version or where it is installed."""
    home = environment.get("PIPELINK_CUDA_HOME")
    if call == "compile" and home:
        return [f"PIPELINK_CUDA_HOME={home}"]
    return [f"{name}=={importlib.metadata.version(name)}" for name in _TOOLS.get(call, ())]


def objects(manifest: Path) -> list[str]:
    """The objects that a manifest names. What is wrong with a manifest, the plan step reports."""
    try:
        instances = tomllib.loads(manifest.read_text(encoding="utf-8")).get("instances")
    except (OSError, ValueError):
        return []
    tables = instances.values() if isinstance(instances, dict) else ()
    paths = [table.get("object") for table in tables if isinstance(table, dict)]
    return list(dict.fromkeys(path for path in paths if isinstance(path, str)))

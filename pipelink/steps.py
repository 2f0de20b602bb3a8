"""What each step of the rebuild graph reads beside its sources: a build system runs the step again
when one of these changes."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from pipelink.diagnostics import InputError
from pipelink.extends import read_table
from pipelink.resources import PACKAGE, template_dir

# The modules that each call runs, so that a change in one redoes the steps that it is part of and
# no other. tests/test_build.py holds this table against what the calls really import.
_EVERY = ("__init__", "__main__", "cli", "arch", "diagnostics", "resources")
_READ = (
    "abi",
    "contract",
    "elf",
    "expression",
    "floating",
    "form",
    "layout",
    "model",
    "toolchain",
    "transfer/__init__",
    "transfer/records",
)
_MODULES = {
    "compile": (*_EVERY, *_READ, "prelude", "slots", "unit"),
    "contract": (*_EVERY, *_READ),
    "plan": ("*", "check/*", "place/*", "transfer/*"),
    "render": ("*", "check/*", "place/*", "transfer/*"),
    "link": ("*", "check/*", "place/*", "report/*", "transfer/*"),
}
_NEVER = {
    "arrays",
    "device",
    "operator",
    "reproduce",
    "runtime",
    "sass",
    "scons",
    "steps",
    "verify",
}
_TOOLS = {
    "compile": ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"),
    "plan": ("ortools", "tensor-layouts"),
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


def inputs(manifest: Path) -> tuple[tuple[Path, ...], list[str]]:
    """The manifests that a manifest extends, and the objects that it names. What is wrong with one,
    the plan step reports."""
    try:
        table, files = read_table(manifest)
    except InputError:
        return (), []
    instances = table.get("instances")
    tables = instances.values() if isinstance(instances, dict) else ()
    paths = [row.get("object") for row in tables if isinstance(row, dict)]
    return files[1:], list(dict.fromkeys(path for path in paths if isinstance(path, str)))

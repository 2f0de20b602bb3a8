"""PipeLink links separately compiled GPU kernel components into one fused kernel."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelink.operator import torch_operator
    from pipelink.runtime import DriverError, Kernel, LaunchError, LoadError, RuntimeFault, load

__version__ = "0.1.0"
__all__ = [
    "DriverError",
    "Kernel",
    "LaunchError",
    "LoadError",
    "RuntimeFault",
    "__version__",
    "load",
    "torch_operator",
]


def __getattr__(name: str) -> Any:
    # The loader imports the CUDA bindings and the linker the build's packages: who wants one
    # must not pay for, or have, the other.
    if name not in __all__:
        raise AttributeError(f"module 'pipelink' has no attribute {name!r}")
    if name == "torch_operator":
        from pipelink.operator import torch_operator

        return torch_operator
    from pipelink import runtime

    return getattr(runtime, name)

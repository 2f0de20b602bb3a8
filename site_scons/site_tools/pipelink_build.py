"""`pipelink.scons` under a name that is not the package's: a tool module named `pipelink` would
take its place in `sys.modules`."""

from pipelink.scons import exists, generate

__all__ = ["exists", "generate"]

"""The SCons tool: `env.Component` and `env.FusedKernel`. In any SConstruct:

    import pipelink.scons
    env = Environment(tools=["default", pipelink.scons.generate])
    env.Component("loader.cu", CPPPATH=["include"], CPPDEFINES={"TILE": 128})
    env.FusedKernel("ffn.kernel.toml")

Products land in $PIPELINK_BUILD/$PIPELINK_ARCH. A manifest names its objects relative to it:
`src/loader.cu` becomes `src/loader.o`. As everywhere in SCons, a `$` in a string is written `$$`.
$PIPELINK_FLAGS (`["--ftz"]`) go to every compilation, that of the glue included, and `--lineinfo`
to the link too.

Each step is one `python -m pipelink` command, and depends on all that this command reads: sources,
headers, templates and PipeLink's own modules. Whatever comes out unchanged stops the rebuild there,
because SCons decides by content.
"""

import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from SCons.Action import Action
from SCons.Defaults import processDefines
from SCons.Errors import UserError
from SCons.Scanner import FindPathDirs
from SCons.Scanner.C import CScanner
from SCons.Subst import Literal

from pipelink import steps
from pipelink.resources import include_dir

# What the steps need of the caller's environment: nvcc runs gcc, and both write temporary files.
PASSED = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "PIPELINK_CUDA_HOME")


def generate(env: Any) -> None:
    env.SetDefault(
        PIPELINK_ARCH="sm_90a",
        PIPELINK_FLAGS=[],
        PIPELINK_BUILD="#build",
        PIPELINK_ENV={name: os.environ[name] for name in PASSED if name in os.environ},
    )
    env.AddMethod(component, "Component")
    env.AddMethod(fused_kernel, "FusedKernel")


def exists(env: Any) -> bool:
    """An installation for inference has the loader but none of the build's packages."""
    return all(importlib.util.find_spec(name) for name in ("elftools", "jinja2", "msgspec"))


def component(env: Any, source: Any, **overrides: Any) -> list[Any]:
    """Compile each source into `.o`, and extract `.contract.json` from it."""
    env = env.Override(overrides)
    made = []
    for src in env.arg2nodes(source, env.fs.File):
        path = _path(env, src.srcnode())
        if os.path.isabs(path):
            raise UserError(f"component outside of the source tree: {path}")
        obj = _root(env).File(os.path.splitext(path)[0] + ".o")
        search = FindPathDirs("CPPPATH")(env, env.fs.getcwd())
        flags = [word for directory in search for word in ("-I", directory)]
        for define in processDefines(env.get("CPPDEFINES", [])):
            flags += ["-D", env.subst(define)]
        words = ["compile", src, "-o", obj, *_options(env), *flags]
        made += [*_step(env, words, [obj], [src], search), _contract(env, obj)]
    return made


def fused_kernel(env: Any, manifest: Any, **overrides: Any) -> list[Any]:
    """Link the manifest's objects into `.cubin`, with its launch metadata, plan, glue and map."""
    env = env.Override(overrides)
    root = _root(env)
    (toml,) = env.arg2nodes(manifest, env.fs.File)
    name = toml.name.removesuffix(".toml").removesuffix(".kernel")
    plan, glue, fatbin, cubin, launch, chart = (
        root.File(f"{name}/{name}{suffix}")
        for suffix in (".plan.json", ".glue.cu", ".glue.fatbin", ".cubin", ".json", ".map.json")
    )
    bases, paths = steps.inputs(Path(toml.srcnode().get_abspath()))
    objects = [root.File(path) for path in paths]
    manifests = [toml, *(env.fs.File(str(base)) for base in bases)]
    contracts = [_contract(env, obj) for obj in objects]
    inputs = [toml, "--objects", root]

    _step(env, ["plan", *inputs, "--contracts", "-o", plan], [plan], [*manifests, *contracts])
    _step(env, ["render", plan, "-o", glue], [glue], [plan])
    _step(env, ["compile", "--glue", glue, "-o", fatbin, *_options(env)], [fatbin], [glue], ())
    # The plan holds all that the manifest says: what leaves it the same relinks nothing.
    words = ["link", *inputs, "--plan", plan, "--glue", fatbin, "-o", cubin]
    words += [word for word in env["PIPELINK_FLAGS"] if word == "--lineinfo"]
    products = [cubin, launch, chart]
    _step(env, words, products, [plan, fatbin, *objects])
    return [plan, glue, fatbin, *products]


def _contract(env: Any, obj: Any) -> Any:
    """The contract of an object; a Component or the first kernel that names the object makes it."""
    contract = obj.dir.File(os.path.splitext(obj.name)[0] + ".contract.json")
    if not contract.has_builder():
        _step(env, ["contract", obj, "-o", contract], [contract], [obj])
    return contract


def _step(
    env: Any, words: list[Any], targets: list[Any], sources: list[Any], search: Any = None
) -> Sequence[Any]:
    """One call of the command line. With `search`, headers are found there and tracked."""
    argv = [word if isinstance(word, str) else _path(env, word) for word in words]
    # The interpreter's path is no input, but the tools' versions and which files are read are:
    # SCons takes a file for unchanged if another one of the same size and time was read before.
    tools = steps.tools(argv[0], env["PIPELINK_ENV"])
    inputs = [*argv, *(_path(env, node) for node in sources), *tools]

    def command(source: Any, target: Any, env: Any, for_signature: bool) -> Any:
        if for_signature:
            return shlex.join(inputs).replace("$", "%24")
        line = [sys.executable, "-m", "pipelink", *argv]
        return Action([[Literal(w) for w in line]], cmdstr=shlex.join(line).replace("$", "$$"))

    scanner = {} if search is None else {"source_scanner": CScanner()}
    made: Sequence[Any] = env.Command(
        targets,
        sources,
        env.Action(command, generator=True),
        CPPPATH=[env.fs.Dir(str(include_dir())), *(search or ())],
        ENV={**env["ENV"], **env["PIPELINK_ENV"]},
        ESCAPE=shlex.quote,
        IMPLICIT_COMMAND_DEPENDENCIES=False,
        **scanner,
    )
    env.Depends(made, [env.fs.File(str(file)) for file in steps.modules(argv[0])])
    return made


def _options(env: Any) -> list[str]:
    return ["--arch", env.subst("$PIPELINK_ARCH"), *env["PIPELINK_FLAGS"]]


def _root(env: Any) -> Any:
    return env.fs.Dir(env.subst("$PIPELINK_BUILD/$PIPELINK_ARCH"))


def _path(env: Any, node: Any) -> str:
    return str(node.get_path(env.fs.Top))

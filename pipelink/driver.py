"""The line of passes.

    read -> resolve -> check -> place -> render -> compile glue -> link -> audit -> report

Each function is one stretch of it that the command line, SCons and tests call.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipelink import contract, toolchain
from pipelink.arch import ARCHES
from pipelink.audit import Audited, audit, defined_twice, refused
from pipelink.check import check, connected
from pipelink.diagnostics import Diagnostic, FilePlace, InputError, checkpoint
from pipelink.floating import FloatingPoint
from pipelink.launch import FORMAT
from pipelink.manifest import read_manifest
from pipelink.model import Component, Instance, InstanceSpec, Kernel, Plan
from pipelink.place.plan import place
from pipelink.resolve import resolve
from pipelink.view import View


@dataclass(frozen=True)
class Sources:
    """Where the objects of a manifest are, and whether contracts alone are read."""

    objects: Path
    contracts: bool = False

    def path(self, object_: str) -> Path:
        path = self.objects / object_
        return path.with_suffix(".contract.json") if self.contracts else path


@dataclass(frozen=True)
class Product:
    """A linked kernel."""

    plan: Plan
    cubin: bytes
    audited: Audited
    glue: str = ""


def read(manifest: Path, sources: Sources) -> Kernel:
    """Objects and manifest to a kernel; what can't be read is fatal at once."""
    spec = read_manifest(manifest)
    components: dict[str, Component] = {}
    faults: list[Diagnostic] = []
    for instance in spec.instances:
        try:
            if instance.object not in components:
                components[instance.object] = _component(instance, sources)
        except InputError as error:
            faults += error.diagnostics
    checkpoint(faults)
    checkpoint(_one_object_a_name(components))
    return Kernel(
        spec,
        tuple(Instance(s.name, n, components[s.object]) for n, s in enumerate(spec.instances)),
    )


def _component(instance: InstanceSpec, sources: Sources) -> Component:
    path = sources.path(instance.object)
    if not path.exists():
        message = f"instance '{instance.name}' needs {path}, which does not exist"
        help_ = "build it first; --objects names the folder that object paths start from"
        raise InputError(Diagnostic("PL001", message, FilePlace(str(path)), help=help_))
    return contract.read_contract_file(path) if sources.contracts else contract.read_object(path)


def _one_object_a_name(components: dict[str, Component]) -> list[Diagnostic]:
    first: dict[str, Component] = {}
    faults = []
    for component in components.values():
        name = component.contract.component
        other = first.setdefault(name, component)
        if other is not component:
            faults.append(
                Diagnostic(
                    "PL010",
                    f"component {name} is in {other.path} of {other.contract.owner} "
                    f"and in {component.path} of {component.contract.owner}",
                    FilePlace(component.path),
                    (FilePlace(other.path),),
                    help="rename one of them, or use one object for both instances",
                )
            )
    return faults


def plan(kernel: Kernel) -> Plan:
    """resolve, check, place: all decisions, or all errors."""
    if kernel.manifest.free or kernel.manifest.most:
        from pipelink.choose import choose

        return choose(kernel, _planned)
    return _planned(kernel)


def _planned(kernel: Kernel) -> Plan:
    connected(View(kernel, {}, ()))
    facts, listing = resolve(kernel)
    view = View(kernel, facts, listing)
    remarks = check(view)
    return place(view, listing, remarks)


def encode_plan(plan_: Plan) -> bytes:
    """A plan as JSON; equal plans give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(plan_), indent=2) + b"\n"


def read_plan(path: Path) -> Plan:
    """The plan of a file."""
    try:
        plan_ = msgspec.json.decode(read_file(path), type=Plan)
        FloatingPoint.parse(plan_.floating_point)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        message = f"{path} is no plan: {error}"
        raise InputError(Diagnostic("PL008", message, FilePlace(str(path)))) from error
    if plan_.target not in ARCHES:
        message = f"{path} is a plan for unknown target '{plan_.target}'"
        raise InputError(Diagnostic("PL008", message, FilePlace(str(path))))
    return plan_


def read_file(path: Path) -> bytes:
    """The bytes of an input."""
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{path} can't be read: {(error.strerror or 'error').lower()}"
        raise InputError(Diagnostic("PL001", message, FilePlace(str(path)))) from error


def render_glue(plan_: Plan) -> str:
    """Plan to glue; the template engine is loaded only here."""
    from pipelink.render import render

    return render(plan_)


def compile_glue(plan_: Plan, glue: str, beside: Path) -> bytes:
    """Glue source to LTO-IR."""
    with toolchain.scratch(beside) as folder:
        source = folder / f"{plan_.kernel}.glue.cu"
        source.write_text(glue)
        return toolchain.compile_glue(
            source, plan_.target, FloatingPoint.parse(plan_.floating_point)
        )


def link(plan_: Plan, sources: Sources, glue: bytes, *, lineinfo: bool = False) -> Product:
    """link, audit: the cubin of a plan, from the objects that it was made for."""
    inputs = []
    for instance in {i.object: i for i in plan_.instances}.values():
        path = sources.objects / instance.object
        component = contract.read_object(path)
        if f"{component.fingerprint:#018x}" != instance.fingerprint:
            raise InputError(
                Diagnostic(
                    "PL008",
                    f"the plan of '{plan_.kernel}' was made with another contract of {instance.component} "
                    f"of {instance.owner} than the one in {path}",
                    FilePlace(str(path)),
                    help="make the plan anew",
                )
            )
        checkpoint(_too_new(component))
        inputs.append((instance.object, path.read_bytes()))
    try:
        mode = FloatingPoint.parse(plan_.floating_point)
        linked = toolchain.link([*inputs, ("glue", glue)], plan_.target, mode, lineinfo=lineinfo)
    except toolchain.LinkFailed as error:
        raise refused(plan_, error.log, _definers(plan_, inputs, error.log)) from error
    return Product(plan_, linked.cubin, audit(plan_, linked.cubin, linked.log))


def _definers(plan_: Plan, inputs: list[tuple[str, bytes]], log: str) -> dict[str, list[str]]:
    """The objects that define a symbol of which the link says that it is defined twice. nvJitLink
    names one of them: the others are those that clash with it when the two are linked alone."""
    found = {}
    mode = FloatingPoint.parse(plan_.floating_point)
    for named, symbol in defined_twice(log):
        first = [row for row in inputs if row[0] == named]
        found[symbol] = [named]
        for other in inputs:
            if other[0] == named:
                continue
            try:
                toolchain.link([*first, other], plan_.target, mode)
            except toolchain.LinkFailed as error:
                if symbol in (s for _, s in defined_twice(error.log)):
                    found[symbol].append(other[0])
    return found


def _too_new(component: Component) -> list[Diagnostic]:
    """The linker takes LTO-IR of its own or an older minor version, of its own major."""
    built, linker = component.contract.toolchain, toolchain.linker_version()
    if built[0] == linker[0] and built <= linker:
        return []
    message = (
        f"{component.contract.component} of {component.contract.owner} was built by CUDA "
        f"{built[0]}.{built[1]}, the linker is of {linker[0]}.{linker[1]}"
    )
    help_ = f"build it with CUDA {linker[0]}.0 to {linker[0]}.{linker[1]}"
    return [Diagnostic("PL026", message, FilePlace(component.path), help=help_)]


def build(
    kernel: Kernel, sources: Sources, output: Path, *, lineinfo: bool = False
) -> tuple[Product, bytes]:
    """The whole line from a kernel; the product and its compiled glue."""
    plan_ = plan(kernel)
    # Beyond this point nothing is decided any more.
    glue = render_glue(plan_)
    fatbin = compile_glue(plan_, glue, output)
    product = link(plan_, sources, fatbin, lineinfo=lineinfo)
    return Product(plan_, product.cubin, product.audited, glue), fatbin


def metadata(product: Product) -> bytes:
    """What the loader needs, as JSON."""
    plan_ = product.plan
    data = {
        "pipelink": FORMAT,
        "kernel": plan_.kernel,
        "entry": plan_.kernel,
        "arch": plan_.target,
        "minimum_driver": 1000 * toolchain.linker_version()[0],
        "cubin_sha256": hashlib.sha256(product.cubin).hexdigest(),
        "manifest": plan_.manifest,
        "threads": plan_.threads,
        "shared_bytes": plan_.shared_bytes,
        "registers": product.audited.registers,
        "grid": {"kind": "persistent", "blocks_per_sm": plan_.blocks_per_sm},
        "facts": {f"{f.instance}.{f.name}": f.value for f in plan_.facts},
        "arguments": plan_.arguments,
        "parameters": [_parameter(p) for p in plan_.parameters],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _parameter(parameter: object) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(parameter)
    kept = {
        "tensor_map": ("kind", "argument", "element", "shape", "box", "swizzle"),
        "pointer": ("kind", "argument"),
        "extent": ("kind", "name", "bounds"),
    }[str(fields["kind"])]
    return {key: fields[key] for key in kept}


def write_product(product: Product, output: Path, extra: dict[str, bytes]) -> None:
    """All outputs of a link, each whole; `extra` maps suffixes to contents."""
    from pipelink.report.map import encode_map

    stem = output.with_suffix("")
    files = {
        **{Path(f"{stem}{suffix}"): data for suffix, data in extra.items()},
        Path(f"{stem}.map.json"): encode_map(product),
        Path(f"{stem}.json"): metadata(product),
        output: product.cubin,
    }
    with toolchain.scratch(output) as folder:
        for path, data in files.items():
            (folder / path.name).write_bytes(data)
        for path in files:
            os.replace(folder / path.name, path)

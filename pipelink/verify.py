"""The control: one unit of all component sources and the same glue, never through LTO."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelink import sass, toolchain
from pipelink.diagnostics import Diagnostic, FilePlace, InputError
from pipelink.driver import Product
from pipelink.floating import FloatingPoint
from pipelink.model import Component, Kernel
from pipelink.prelude import prelude


def control_source(kernel: Kernel, glue: str, root: Path) -> str:
    """The control's text. A component without source can't be compared, and is named."""
    components = {i.component.path: i.component for i in kernel.instances}.values()
    parts = [part for component in components for part in _include(component, root)]
    return "\n".join([*parts, glue])


def _include(component: Component, root: Path) -> Iterator[str]:
    build = component.places.build if component.places else None
    source = root / build.source if build else None
    if build is None or source is None or not source.is_file():
        raise InputError(
            Diagnostic(
                "PL050",
                f"not compared: {component.contract.component} of {component.contract.owner} has no source"
                + (f" at {build.source}" if build else ""),
                FilePlace(component.path),
                help="run verify where the sources are, with --root",
            )
        )
    undo = [f"#undef {d.partition('=')[0]}" for d in build.define]
    settings = ("PIPELINK_TARGET", "PIPELINK_FLOATING_POINT", "PIPELINK_BUILD")
    contract = component.contract
    yield prelude(contract.target, contract.floating_point, build)
    yield f'#include "{source.resolve().as_posix()}"'
    yield "\n".join([*undo, *(f"#undef {name}" for name in settings)])


def verify(
    kernel: Kernel, product: Product, output: Path, root: Path, *, lineinfo: bool = False
) -> sass.Comparison:
    """Builds the control and compares every instruction with the linked cubin's."""
    includes = [
        str(root / i)
        for instance in kernel.instances
        if instance.component.places
        for i in instance.component.places.build.include
    ]
    options = toolchain.CompileOptions(
        product.plan.target,
        include=tuple(dict.fromkeys(includes)),
        floating_point=FloatingPoint.parse(product.plan.floating_point),
        lineinfo=lineinfo,
    )
    with toolchain.scratch(output) as folder:
        source = folder / "control.cu"
        source.write_text(control_source(kernel, product.glue, root))
        try:
            toolchain.compile_control(source, folder / "control.cubin", options)
        except InputError as error:
            raise _refused(product, error) from error
        (folder / "linked.cubin").write_bytes(product.cubin)
        listings = [toolchain.disassemble(folder / f"{n}.cubin") for n in ("linked", "control")]
    return sass.compare(*listings)


def _refused(product: Product, error: InputError) -> InputError:
    notes = tuple(n for d in error.diagnostics for n in (d.message, *d.notes))
    return InputError(
        Diagnostic(
            "PL050",
            f"not compared: the sources of '{product.plan.kernel}' do not compile as one unit",
            FilePlace(product.plan.manifest),
            notes=notes[:20],
            help="names that clash belong into their owners' namespaces",
        )
    )

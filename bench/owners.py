"""Builds for experiments in which one owner changes a constant: the kernel that PipeLink links, its
control, and what symbol linking makes of the same sources. All with waits that have a limit.

A `Workshop` is a copy of the components' sources, in which files may be changed, and the objects
compiled from it: unchanged files are not compiled again, their objects are those of the first build.
Needs no GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pipelink import driver, toolchain  # noqa: E402
from pipelink.abi import fnv1a  # noqa: E402
from pipelink.diagnostics import InputError  # noqa: E402
from pipelink.driver import Product, Sources  # noqa: E402
from pipelink.floating import FloatingPoint  # noqa: E402
from pipelink.model import Kernel, Plan  # noqa: E402
from pipelink.prelude import prelude  # noqa: E402
from pipelink.report.diagnostics import as_text  # noqa: E402
from pipelink.report.locate import locator  # noqa: E402
from pipelink.verify import control_source  # noqa: E402

ARCH = "sm_90a"
RELEASE = "#include <pipelink/hooks/release.cuh>\n"
BOUNDED = f'#include "{ROOT / "bench/bounded.cuh"}"\n'


@dataclass(frozen=True)
class Edit:
    """A constant of one owner: in `file`, below components/, `old` becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Refused(Exception):
    """What PipeLink said."""

    text: str
    codes: tuple[str, ...]


class Workshop:
    """Sources and objects with some edits; `first` is the build without any."""

    def __init__(
        self, folder: Path, edits: tuple[Edit, ...] = (), first: Workshop | None = None
    ) -> None:
        self.folder, self.first = folder, first
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(
            ROOT / "components", folder / "components", ignore=shutil.ignore_patterns("__pycache__")
        )
        for edit in edits:
            path = folder / "components" / edit.file
            text = path.read_text()
            assert text.count(edit.old) == 1, (
                f"{edit.file} has '{edit.old}' {text.count(edit.old)} times"
            )
            path.write_text(text.replace(edit.old, edit.new))
        self.changed = {Path("components") / edit.file for edit in edits}
        self.objects = folder / "objects"

    def object(self, source: str) -> Path:
        """The object of a source: compiled here if the file was changed, else that of the first build."""
        relative = Path(source)
        target = self.objects / relative.with_suffix(".o")
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.first is not None and relative not in self.changed:
            shutil.copy2(self.first.object(source), target)
            return target
        command = [
            sys.executable,
            "-m",
            "pipelink",
            "compile",
            source,
            "-o",
            str(target),
            "--arch",
            ARCH,
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )
        if run.returncode:
            raise Refused(run.stderr, ())
        return target

    def hashes(self, sources: tuple[str, ...]) -> dict[str, str]:
        return {s: hashlib.sha256(self.object(s).read_bytes()).hexdigest() for s in sources}


def kernel_of(shop: Workshop, manifest: str, sources: tuple[str, ...]) -> tuple[Kernel, Plan]:
    """A kernel and its plan from the shop's objects."""
    for source in sources:
        shop.object(source)
    path = shop.folder / manifest
    try:
        kernel = driver.read(path, Sources(shop.objects))
        return kernel, driver.plan(kernel)
    except InputError as error:
        raise refusal(error, path, shop) from error


def refusal(error: InputError, manifest: Path, shop: Workshop) -> Refused:
    """Diagnostics with their places, as people read them."""
    text = as_text(error.diagnostics, locator(manifest, shop.objects))
    return Refused(text.replace(f"{shop.folder}/", ""), tuple(d.code for d in error.diagnostics))


def bounded(glue: str) -> str:
    assert RELEASE in glue
    return glue.replace(RELEASE, BOUNDED)


def publish(folder: Path, product: Product, cubin: bytes) -> Path:
    """A cubin with the launch metadata of a product, to be loaded on another machine."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{product.plan.kernel}.cubin"
    path.write_bytes(cubin)
    path.with_suffix(".json").write_bytes(driver.metadata(replace(product, cubin=cubin)))
    return path


def linked(shop: Workshop, plan: Plan, folder: Path) -> Product:
    """What PipeLink links, published."""
    glue = driver.compile_glue(plan, bounded(driver.render_glue(plan)), folder)
    try:
        product = driver.link(plan, Sources(shop.objects), glue)
    except InputError as error:
        raise refusal(error, shop.folder / plan.manifest, shop) from error
    publish(folder, product, product.cubin)
    return product


def control(shop: Workshop, kernel: Kernel, product: Product, folder: Path) -> Path:
    """One compilation of all sources as they stand in the shop, and the same glue."""
    plan = product.plan
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "control.cu", folder / "control.cubin"
    source.write_text(control_source(kernel, bounded(driver.render_glue(plan)), shop.folder))
    mode = FloatingPoint.parse(plan.floating_point)
    toolchain.compile_control(source, target, toolchain.CompileOptions(ARCH, floating_point=mode))
    return publish(folder, product, target.read_bytes())


# --- Symbol linking --------------------------------------------------------------------------------


def frozen(plan: Plan, component: str) -> str:
    """What a header of constants is to one owner's code: the values of a plan, as of that day."""
    cases = []
    for instance in (i for i in plan.instances if i.component == component):
        slots = "".join(
            f"case {fnv1a(name.encode()):#x}ull: return {value}ll;\n"
            for name, value in instance.bindings.items()
        )
        cases.append(f"case {instance.number}: switch (slot) {{\n{slots}}} break;\n")
    return f"""
extern __shared__ __align__(1024) unsigned char pipelink_arena[];
extern "C" __device__ long long pipelink_bind(pipelink::Self self, std::uint64_t slot) {{
    switch (static_cast<unsigned>(self)) {{ {"".join(cases)} }}
    return 0;
}}
extern "C" __device__ std::uint32_t pipelink_region(pipelink::Self self, std::uint64_t slot,
                                                    std::uint32_t offset) {{
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pipelink_arena)) +
           static_cast<std::uint32_t>(pipelink_bind(self, slot)) + offset;
}}
"""


def ordinary(shop: Workshop, kernel: Kernel, plan: Plan, source: str, folder: Path) -> Path:
    """One owner's object, compiled the ordinary way with the constants of a plan."""
    component = next(
        c
        for c in (i.component for i in kernel.instances)
        if c.places and c.places.build.source == source
    )
    name = component.contract.component
    build = component.places.build if component.places else None
    # Inline functions of the header read the constants: each owner has his own, as with a header of his.
    own = [f"#define {f} {f}__{name}" for f in ("pipelink_bind", "pipelink_region", "format2")]
    contract = component.contract
    folder.mkdir(parents=True, exist_ok=True)
    unit = folder / f"{name}.cu"
    unit.write_text(
        "\n".join(
            [
                *own,
                prelude(contract.target, contract.floating_point, build),
                f'#include "{shop.folder / source}"',
                frozen(plan, name),
            ]
        )
    )
    return compiled(unit)


def kernel_unit(plan: Plan, folder: Path) -> Path:
    """The unit with the kernel's entry: the glue without PipeLink's gates."""
    folder.mkdir(parents=True, exist_ok=True)
    glue = bounded(driver.render_glue(plan))
    begin = glue.index("// What the link decided.")
    end = glue.index('extern "C" __global__')
    kept = [line for line in glue[end:].splitlines() if "pipelink_fingerprint__" not in line]
    stub = 'extern "C" __device__ long long pipelink_bind(pipelink::Self, std::uint64_t) { return 0; }\n'
    unit = folder / "kernel.cu"
    unit.write_text(glue[:begin] + stub + "\n".join(kept) + "\n")
    target = unit.with_suffix(".fatbin")
    target.write_bytes(toolchain.compile_glue(unit, ARCH, FloatingPoint.parse(plan.floating_point)))
    return target


def compiled(unit: Path) -> Path:
    """An object with LTO-IR, as nvcc makes it."""
    target = unit.with_suffix(".o")
    command = [toolchain.tool("nvcc"), "-dc", *toolchain.code_target(ARCH), *toolchain.STANDARD]
    command += [f"-I{ROOT / 'pipelink/include'}", str(unit), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


def symbols(objects: list[Path], product: Product, folder: Path) -> Path:
    """Plain nvJitLink of objects; launched as `product` is."""
    inputs = [(p.name, p.read_bytes()) for p in objects]
    made = toolchain.link(inputs, ARCH, FloatingPoint.parse(product.plan.floating_point))
    return publish(folder, product, made.cubin)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")

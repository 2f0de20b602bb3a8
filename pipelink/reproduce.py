"""A link as a tar: all inputs, so that it gives the same bytes elsewhere."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from pipelink.driver import Product, Sources, encode_plan
from pipelink.model import Kernel


def archive(kernel: Kernel, product: Product, sources: Sources, glue: bytes) -> bytes:
    """Manifests, objects, plan, glue and the command; the same link gives the same tar."""
    read = [Path(file).resolve() for file in kernel.manifest.files]
    root = os.path.commonpath([path.parent for path in read])
    manifests = {path.relative_to(root).as_posix(): path.read_bytes() for path in read}
    name = product.plan.kernel
    command = (
        f"pipelink link {next(iter(manifests))} --objects objects --plan {name}.plan.json "
        f"--glue {name}.glue.fatbin -o {name}.cubin\n"
    )
    files = {
        **manifests,
        f"{name}.plan.json": encode_plan(product.plan),
        f"{name}.glue.cu": product.glue.encode(),
        f"{name}.glue.fatbin": glue,
        "command.txt": command.encode(),
    }
    for spec in kernel.manifest.instances:
        files[f"objects/{spec.object}"] = (sources.objects / spec.object).read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()

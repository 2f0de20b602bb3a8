"""Every kind of transfer as a kernel of its own: its glue, its machine code against the control, and
the instruction that it exists for. PIPELINK_REGENERATE=1 writes the golden files anew."""

import contextlib
import fcntl
import hashlib
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelink import driver, sass, toolchain, verify
from pipelink.cli import main

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

import transfer_cases as cases  # noqa: E402
import transfer_ends as ends  # noqa: E402

GOLDEN = Path(__file__).parent / "golden" / "kernels"
KINDS = cases.kinds()
# What a kind is for, in the machine code of an H200; and what must not be there.
INSTRUCTIONS = {
    "registers": ((), ("STS", "LDS", "SHFL", "BAR")),
    "permuted": ((), ("STS", "LDS", "SHFL", "BAR")),
    "shuffled": (("SHFL",), ("STS", "LDS", "BAR")),
    "staged": (("STSM", "LDS.128"), ("SHFL",)),
    "stored": (("STSM.16.M88.4", "F2FP.BF16"), ("SHFL",)),
    "loaded": (("LDSM.16.M88.4",), ("SHFL",)),
    "copied": (("LDS.128", "STS.128"), ("SHFL",)),
    "turned": (("LDSM.16.MT88", "STSM"), ("SHFL",)),
    "ring": (("SYNCS.ARRIVE", "SYNCS.PHASECHK"), ("SHFL",)),
    "tma": (("UTMALDG.2D", "SYNCS"), ("SHFL",)),
    "broadcast": (("LDSM.16.M88.4", "SYNCS.ARRIVE"), ("SHFL",)),
    "handed": (("STSM.16.M88.4", "FENCE.VIEW.ASYNC", "UBLKCP", "SYNCS.ARRIVE"), ()),
    "converted": (("F2FP.SATFINITE.E4M3",), ("STS", "SHFL")),
}
# On other targets: nothing of this ran on such a chip.
ELSEWHERE = {
    "sm_80": ("staged", "stored", "loaded", "broadcast"),
    "sm_100a": ("staged", "stored", "loaded", "broadcast", "tma"),
    "sm_103a": ("stored", "tma"),
    "sm_120a": ("staged", "stored", "loaded", "broadcast", "tma"),
}


STORED, LOADED = ("staged", "stored", "turned", "handed"), ("loaded", "broadcast", "turned")
# All of them, with PIPELINK_ALL_TARGETS=1: several minutes of compilation.
LACKS = {"sm_80": ("tma", "handed", "converted")}
if os.environ.get("PIPELINK_ALL_TARGETS"):
    ELSEWHERE = {
        target: tuple(kind for kind in KINDS if kind not in LACKS.get(target, ()))
        for target in ELSEWHERE
    }


@contextlib.contextmanager
def made(case):
    """The folder with a case's objects, each made once for each content; it is the current one."""
    sources = ends.components(case)
    header = b"".join(p.read_bytes() for p in sorted(ROOT.glob("pipelink/include/**/*.cuh")))
    key = hashlib.sha256(header).hexdigest()[:12]
    folder = ROOT / "build" / "test-transfers" / case.arch / key
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        for name, text in sources.items():
            with open(f"{name}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                source, object_ = Path(f"{name}.cu"), Path(f"{name}.o")
                if not object_.exists() or source.read_text() != text:
                    source.write_text(text)
                    arguments = ["compile", source.name, "-o", object_.name, "--arch", case.arch]
                    assert main(arguments) == 0
        yield folder


def linked(case):
    """The kernel of a case and what it became; its log was clean, or the audit had refused it."""
    path = Path(f"{os.getpid()}.kernel.toml")
    path.write_text(ends.manifest(case))
    try:
        kernel = driver.read(path, driver.Sources(Path()))
    finally:
        path.unlink()
    output = Path(f"{ends.kernel_name(case)}.cubin")
    product, _ = driver.build(kernel, driver.Sources(Path()), output)
    return kernel, product


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_transfer(kind):
    case = KINDS[kind]
    with made(case):
        kernel, product = linked(case)
        compared = verify.verify(kernel, product, Path(f"{kind}.cubin"), Path())
    assert compared.differences == ()
    golden = GOLDEN / f"{kind}.glue.cu"
    if os.environ.get("PIPELINK_REGENERATE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(product.glue)
    assert product.glue == golden.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_instruction_that_it_exists_for(kind, tmp_path):
    case = KINDS[kind]
    with made(case):
        _, product = linked(case)
    code = machine_code(product, tmp_path)
    wanted, unwanted = INSTRUCTIONS[kind]
    assert [name for name in wanted if name not in code] == []
    assert [name for name in unwanted if re.search(rf"\b{name}", code)] == []
    assert product.audited.stack_bytes == product.audited.spill_bytes == 0


def machine_code(product, folder):
    (folder / "x.cubin").write_bytes(product.cubin)
    listing = toolchain.disassemble(folder / "x.cubin")
    return "\n".join(i.text for own in sass.parse(listing).values() for i in own)


@pytest.mark.parametrize(
    ("target", "kind"), [(target, kind) for target, own in ELSEWHERE.items() for kind in own]
)
def test_other_targets(kind, target, tmp_path):
    """The same transfers, with what the target has for them."""
    case = replace(KINDS[kind], arch=target)
    with made(case):
        _, product = linked(case)
    code = machine_code(product, tmp_path)
    assert ("STSM" in code) == (target != "sm_80" and kind in STORED)
    assert ("LDSM" in code) == (kind in LOADED)
    assert ("UTMALDG" in code) == (kind == "tma")


@pytest.mark.parametrize("kind", ["stored", "tma", "handed", "broadcast"])
def test_the_channel_says_what_it_comes_to(kind):
    case = KINDS[kind]
    with made(case):
        _, product = linked(case)
    said = [(c.transfer, c.detail, c.conflict) for c in product.plan.channels]
    assert (
        said
        == {
            "stored": [
                ("fragment to tile", "4 stmatrix.x4, f32 to bf16, rounded nearest, 8192 bytes", 1)
            ],
            "tma": [("ring", "3 stages of 8192 bytes, filled by bulk copies", 0)],
            "handed": [
                (
                    "fragment to tile",
                    "4 stmatrix.x4, f32 to bf16, rounded nearest, 2 stages of 8192 bytes",
                    1,
                ),
            ],
            "broadcast": [
                ("tile to tile", "2 stages of 8192 bytes", 0),
                ("tile to fragment", "4 ldmatrix.x4, 2 stages of 8192 bytes", 1),
            ],
        }[kind]
    )

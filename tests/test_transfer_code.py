"""Transfers as code: the text is what was reviewed, and the machine code is what was meant.

PIPELINK_REGENERATE=1 writes the golden files anew.
"""

import os
import re
from collections import Counter
from pathlib import Path

import jinja2
import pytest

from pipelink import sass, toolchain
from pipelink.arch import ARCHES
from pipelink.floating import PRECISE
from pipelink.layout import parse
from pipelink.resources import template_dir
from pipelink.transfer.converting import convert
from pipelink.transfer.copy import copy
from pipelink.transfer.exchanging import exchange
from pipelink.transfer.moves import load, store
from pipelink.transfer.records import Fragment, Tile

GOLDEN = Path(__file__).parent / "golden" / "transfer"
HOPPER = ARCHES["sm_90a"]
THREADS = 128
KERNEL = """\
#include <pipelink/hooks/release.cuh>
#include <pipelink/transfer.cuh>

extern "C" __device__ long long pipelink_bind(pipelink::Self, std::uint64_t) { return 0; }

extern "C" __global__ void kernel(const std::uint32_t* in, std::uint32_t* out) {
    const std::uint32_t thread = threadIdx.x;
    const std::uint32_t at = pipelink_address(0);
    std::uint32_t x[%(x)d];
    std::uint32_t y[%(y)d];
    for (int n = 0; n < %(x)d; ++n) x[n] = in[n * 128 + thread];
%(body)s
    for (int n = 0; n < %(y)d; ++n) out[n * 128 + thread] = y[n];
}
"""


def macro(name, *arguments):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(template_dir())),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    module = environment.get_template("transfer.j2").module
    return getattr(module, name)(*arguments).strip("\n") + "\n"


def fragment(element, layout, shape=(64, 64)):
    return Fragment(element, shape, parse(layout, {}).text)


ACCUMULATOR = "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"
ROWS = fragment("bf16", "((8,16),(8,4)):((512,1),(64,16))")
OPERAND = fragment("bf16", "((4,8,4),(2,2,2,4)):((128,1,16),(64,8,512,1024))")
SWIZZLED = Tile("bf16", (64, 64), 128)
TURNED = Tile("bf16", (64, 64), 128, "(64,64):(1,64)")


def stored(fragment, tile, name="x"):
    return macro("moves", store(fragment, tile, THREADS, HOPPER), name, "at", "thread")


def loaded(tile, fragment, name="y"):
    return macro("moves", load(tile, fragment, THREADS, HOPPER), name, "at", "thread")


def moved(source, target):
    made = exchange(source, target, THREADS, HOPPER)
    kind = type(made).__name__.lower()
    if kind == "staged":
        down = macro("moves", made.store, "x", "at", "thread")
        barrier = "pipelink_barrier_sync(pipelink::Self{0}, 0, 1, 128);\n"
        wait = "pipelink::sync_warp();\n" if made.warp else barrier
        return down + wait + macro("moves", made.load, "y", "at", "thread")
    return macro(kind, made, "x", "y", *["thread"][: kind == "shuffle"])


def converted(source, target, count, rounding="nearest"):
    return macro("conversion", convert(source, target, count, rounding, HOPPER), "x", "y")


def copied(source, target):
    _, up, down = copy(source, target, THREADS, HOPPER)
    text = macro("moves", up, "y", "at", "thread")
    return text + macro("moves", down, "y", "(at + 32768)", "thread")


def accumulator(element):
    return fragment(element, ACCUMULATOR)


def bytes_to_words():
    """Accumulators of 32-bit lanes to operands of 8 bits: columns of a quad from pairs to runs."""
    quads = "((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))"
    pairs = "((4,8,4),(2,2,4)):((128,1,16),(64,8,512))"
    return moved(fragment("e4m3", pairs, (64, 32)), fragment("e4m3", quads, (64, 32)))


# name: the text; words of x and y; what the machine code must have, and what not.
KINDS = {
    "stmatrix": (lambda: stored(accumulator("bf16"), SWIZZLED), 16, 1, {"STSM": 4}, "PRMT"),
    "stmatrix_trans": (lambda: stored(accumulator("bf16"), TURNED), 16, 1, {"STSM": 4}, "PRMT"),
    "store_rows": (lambda: stored(ROWS, SWIZZLED), 16, 1, {"STS": 4}, "PRMT"),
    "ldmatrix": (lambda: loaded(SWIZZLED, OPERAND), 1, 16, {"LDSM": 4}, "PRMT"),
    "ldmatrix_trans": (lambda: loaded(TURNED, OPERAND), 1, 16, {"LDSM": 4}, "PRMT"),
    "load_rows": (lambda: loaded(SWIZZLED, ROWS), 1, 16, {"LDS": 4}, "PRMT"),
    "store_bytes": (
        lambda: stored(accumulator("e4m3"), Tile("e4m3", (64, 64), 64)), 8, 1, {"STS": 16}, "STSM",
    ),
    "load_bytes": (
        lambda: loaded(Tile("e4m3", (64, 64), 64), accumulator("e4m3")), 1, 8, {"LDS": 16}, "LDSM",
    ),
    "guarded": (
        lambda: stored(ROWS, Tile("bf16", (56, 64), 128)), 16, 1, {"STS": 4}, "PRMT",
    ),
    "permute": (
        lambda: moved(
            fragment("bf16", "(128,8):(1,128)", (128, 8)),
            fragment("bf16", "(128,(2,4)):(1,(512,128))", (128, 8)),
        ), 4, 4, {"PRMT": 4}, "SHFL",
    ),
    "shuffle": (
        lambda: moved(
            fragment("f32", "((32,4),4):((1,128),32)", (512,)),
            fragment("f32", "((32,4),4):((4,128),1)", (512,)),
        ), 4, 4, {"SHFL": 4}, "STS",
    ),
    "shuffle_bytes": (bytes_to_words, 4, 4, {"SHFL": 4}, "STS"),
    "staged": (lambda: moved(accumulator("bf16"), ROWS), 16, 16, {"STSM": 4, "LDS": 4}, "PRMT"),
    "staged_in_warps": (
        lambda: moved(accumulator("bf16"), fragment("bf16", "((8,4,4),(8,4)):((512,1,16),(64,4))")),
        16, 16, {"STSM": 4, "LDS": 4, "BAR": 0}, "PRMT",
    ),
    "copy": (lambda: copied(SWIZZLED, Tile("bf16", (64, 64))), 1, 16, {"LDS": 4, "STS": 4}, "PRMT"),
    "copy_turned": (lambda: copied(SWIZZLED, TURNED), 1, 16, {"LDSM": 4, "STSM": 4}, "PRMT"),
    "f32_to_bf16": (lambda: converted("f32", "bf16", 8), 8, 4, {"F2FP": 4}, "PRMT"),
    "f32_to_f16_toward_zero": (
        lambda: converted("f32", "f16", 8, "toward_zero"), 8, 4, {"F2FP": 4}, "PRMT",
    ),
    "f32_to_e4m3": (lambda: converted("f32", "e4m3", 8), 8, 2, {"F2FP": 4}, "PRMT"),
    "bf16_to_f32": (lambda: converted("bf16", "f32", 7), 4, 7, {}, "F2F"),
    "f16_to_bf16": (lambda: converted("f16", "bf16", 4), 2, 2, {"F2FP": 2}, "PRMT"),
    "e4m3_to_bf16": (lambda: converted("e4m3", "bf16", 4), 1, 2, {"F2FP": 4}, ""),
    "convert_and_store": (
        lambda: converted("f32", "bf16", 32).replace("y[", "z[")
        + stored(accumulator("bf16"), SWIZZLED, "z"),
        32, 1, {"F2FP": 16, "STSM": 4}, "PRMT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_text(kind):
    text, golden = KINDS[kind][0](), GOLDEN / f"{kind}.cu"
    if os.environ.get("PIPELINK_REGENERATE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The instructions of each kind: all kernels in one file, linked as glue is."""
    folder = tmp_path_factory.mktemp("transfer")
    source = folder / "transfers.cu"
    head, _, kernel = KERNEL.partition('extern "C" __global__')
    parts = [head]
    for kind, (text, x, y, _, _) in KINDS.items():
        body = "    std::uint32_t z[16];\n" * (kind == "convert_and_store") + text()
        made = f'extern "C" __global__{kernel}' % {"x": x, "y": y, "body": body}
        parts.append(made.replace("void kernel(", f"void kernel_{kind}("))
    source.write_text("\n".join(parts))
    fatbin = toolchain.compile_glue(source, "sm_90a", PRECISE)
    cubin = folder / "transfers.cubin"
    cubin.write_bytes(toolchain.link([("transfers", fatbin)], "sm_90a", PRECISE).cubin)
    return sass.parse(toolchain.disassemble(cubin))


@pytest.mark.xdist_group("transfer_code")
@pytest.mark.parametrize("kind", KINDS)
def test_the_machine_code(code, kind):
    _, _, _, want, never = KINDS[kind]
    texts = [re.sub(r"^@!?U?P\w+ ", "", i.text) for i in code[f"kernel_{kind}"]]
    found = Counter(text.split()[0].split(".")[0] for text in texts)
    assert not found["STL"] + found["LDL"], "registers stay registers"
    assert {name: found[name] for name in want} == want
    assert not never or not found[never]

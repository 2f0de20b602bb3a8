"""The two ends of each transfer that bench/bandwidth.py times: components whose steps cost next to
nothing beside it. A source makes values from the tile's number and the thread; a sink folds what it
gets into one word, and keeps that of the first `c` tiles. The hand-written kernels take their steps
from the same header.
"""

from __future__ import annotations

from dataclasses import dataclass

# What both sides of the comparison do besides the transfer.
STEPS = """\
#pragma once

namespace bandwidth {
constexpr unsigned magic = 0x9e3779b1u;

__device__ __forceinline__ void put(unsigned address, unsigned word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ void put4(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
__device__ __forceinline__ unsigned get(unsigned address) {
    unsigned word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
// The schedule: the number of this block's tile.
__device__ __forceinline__ bool numbered(int index, int& row, int rows) {
    row = blockIdx.x + index * gridDim.x;
    return row < rows;
}
// One lane of the warp. ptxas knows that it is one: a bulk copy needs no loop over lanes.
__device__ __forceinline__ bool elected() {
    unsigned chosen;
    asm volatile(
        "{\\n"
        ".reg .pred p;\\n"
        "elect.sync _|p, 0xffffffff;\\n"
        "selp.u32 %0, 1, 0, p;\\n"
        "}"
        : "=r"(chosen));
    return chosen;
}
__device__ __forceinline__ unsigned seed(int row, unsigned thread) {
    return row * magic + thread * 0x85ebca6bu;
}

// Two values a word, of any bits; and floats from 1 to 2.
template <unsigned count>
__device__ __forceinline__ void make(unsigned* words, int row, unsigned thread) {
    const unsigned first = seed(row, thread);
#pragma unroll
    for (unsigned v = 0; v < count; ++v) words[v] = first + v * 0x01234567u;
}
template <unsigned count>
__device__ __forceinline__ void make(float* values, int row, unsigned thread) {
    const unsigned first = 0x3f800000u + (seed(row, thread) & 0x3fffffu);
#pragma unroll
    for (unsigned v = 0; v < count; ++v) values[v] = __uint_as_float(first + v * 0x13579u);
}

// A tile of 8192 bytes is filled when its stage is first used; later one word of it changes.
__device__ __forceinline__ void touch(unsigned tile, int row, unsigned thread, unsigned stages) {
    if (row < static_cast<int>(stages * gridDim.x)) {
        for (unsigned n = thread; n < 2048; n += 128) put(tile + n * 4, seed(row, n));
    } else if (thread == 0) {
        put(tile, seed(row, 0));
    }
}
__device__ __forceinline__ void fill(unsigned tile, int row, unsigned thread) {
    const unsigned first = seed(row, thread);
#pragma unroll
    for (unsigned n = 0; n < 4; ++n) {
        put4(tile + thread * 16 + n * 2048, first + n, first + n + 11, first + n + 22, first + n + 33);
    }
}

// One word of all that came, unless the tile is checked: then each word has a weight of its own.
template <unsigned count>
__device__ __forceinline__ void fold(const unsigned* words, int* y, int row, unsigned thread, int c) {
    unsigned all = 0;
#pragma unroll
    for (unsigned v = 0; v < count; ++v) all ^= words[v];
    if (row < c || all == magic) {
        unsigned sum = 0;
#pragma unroll
        for (unsigned v = 0; v < count; ++v) sum += words[v] * (2 * v + 1);
        y[row % c * 128 + thread] = sum;
    }
}
__device__ __forceinline__ void look(unsigned tile, int* y, int row, unsigned thread, int c) {
    const unsigned word = get(tile + thread * 4);
    if (row < c || word == magic) {
        unsigned sum = 0;
        for (unsigned n = 0; n < 16; ++n) sum += get(tile + thread * 4 + n * 512) * (2 * n + 1);
        y[row % c * 128 + thread] = sum;
    }
}
}  // namespace bandwidth
"""


@dataclass(frozen=True)
class Registers:
    """A fragment of 64x64 in four warps."""

    name: str
    layout: str
    element: str = "bf16"


@dataclass(frozen=True)
class Tile:
    """A tile of 64x64 bf16 in shared memory; `how`: handed over by the glue (step), by the component
    (ring), or filled by bulk copies (tma)."""

    name: str
    swizzle: int
    how: str = "step"
    layout: str = ""
    stages: int = 1


ACCUMULATOR = "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))"
OPERAND = "((4,8,4),(2,2,2,4)):((128,1,16),(64,8,512,1024))"
PAIRS = "((8,4,4),(2,4,4)):((128,1,16),(64,4,1024))"
BLOCKED = "((8,16),(8,4)):((512,1),(64,16))"

ACC_F32 = Registers("acc_f32", ACCUMULATOR, "f32")
ACC = Registers("acc", ACCUMULATOR)
OP = Registers("op", OPERAND)
SWIZZLED = Tile("sw128", 128)


@dataclass(frozen=True)
class Kind:
    """One transfer; `moved`: the bytes a tile that pass shared memory in it."""

    name: str
    source: Registers | Tile
    sinks: tuple[Registers | Tile, ...]
    moved: int
    roles: int = 1
    stages: int = 1


TILE_BYTES, LOOK = 8192, 512


def kinds() -> list[Kind]:
    ring = Tile("ring", 128, "ring", stages=3)
    tma = Tile("tma", 128, "tma", stages=3)
    staged2 = Tile("sw128_s2", 128, stages=2)
    turned = Tile("turned", 128, layout="(64,64):(1,64)")
    return [
        Kind("registers", ACC_F32, (ACC,), 0),
        Kind("shuffled", OP, (Registers("pairs", PAIRS),), TILE_BYTES),
        Kind("staged", ACC, (Registers("blocked", BLOCKED),), 2 * TILE_BYTES),
        Kind("stored", ACC_F32, (SWIZZLED,), TILE_BYTES + LOOK),
        Kind("loaded", SWIZZLED, (OP,), TILE_BYTES),
        Kind("copied", Tile("plain", 0), (SWIZZLED,), 2 * TILE_BYTES + LOOK),
        Kind("turned", turned, (SWIZZLED,), 2 * TILE_BYTES + LOOK),
        Kind("ring", ring, (ring,), TILE_BYTES + LOOK, 2),
        Kind("tma", tma, (ring,), TILE_BYTES + LOOK, 2),
        Kind("broadcast", staged2, (SWIZZLED, OP), TILE_BYTES + LOOK, 2, 2),
        Kind("handed", ACC_F32, (SWIZZLED,), TILE_BYTES + LOOK, 2, 2),
    ]


_HEAD = """\
#include <pipelink/component.cuh>
#include "steps.cuh"

namespace {name} {{
namespace pl = pipelink;
using namespace pl::literals;
constexpr auto warps = pl::claims_warps({warps}_n);
"""

_SOURCE = """\
constexpr auto m = pl::extent<"m">();
constexpr auto t = pl::array_in<"t", unsigned char>(pl::shape(m));
constexpr auto schedule =
    pl::schedule<"schedule">()(m).tiles(pl::steps_over(m, 1_n), pl::steps_over(1_n, 1_n));
{ports}
constexpr auto contract = pl::contract<"{name}", "bench", "1.0">(m, t, warps, {listed}, run, schedule);
PIPELINK_COMPONENT({name}, contract)

PIPELINK_ENTRY({name}, schedule)(pl::Self, int index, pl::Tile& tile, int rows) {{
    tile.column = 0;
    return bandwidth::numbered(index, tile.row, rows);
}}
PIPELINK_ENTRY({name}, run)(pl::Self self, const pl::Tile& tile, const unsigned char*, {arguments}) {{
{code}}}
}}  // namespace {name}
"""

_SINK = """\
constexpr auto c = pl::extent<"c">();
constexpr auto y = pl::array_out<"y", int>(pl::shape(c, 128_n));
{ports}
constexpr auto contract = pl::contract<"{name}", "bench", "1.0">(c, y, warps, in, run);
PIPELINK_COMPONENT({name}, contract)

PIPELINK_ENTRY({name}, run)(pl::Self self, const pl::Tile& tile, int* to, {arguments}, int checked) {{
{code}}}
}}  // namespace {name}
"""

CTYPES = {"bf16": "pl::bf16", "f32": "float"}


def end_name(what: Registers | Tile, direction: str) -> str:
    return f"b_{direction}_{what.name}"


def component(what: Registers | Tile, direction: str) -> str:
    """The source of one end."""
    name = end_name(what, direction)
    warps = 1 if isinstance(what, Tile) and what.how == "tma" else 4
    written = _registers if isinstance(what, Registers) else _tile
    ports, arguments, code = written(what, direction)
    listed = "x, out" if "constexpr auto x " in ports else "out"
    body = _SOURCE if direction == "out" else _SINK
    return _HEAD.format(name=name, warps=warps) + body.format(
        name=name, ports=ports, listed=listed, arguments=arguments, code=code
    )


def _entry(direction: str, plays: str = "", extra: str = "") -> str:
    taken = f"pl::tile, t, {extra}out" if direction == "out" else "pl::tile, y, in, c"
    return f'constexpr auto run = pl::entry<"run">()({taken}){plays};'


def _registers(what: Registers, direction: str) -> tuple[str, str, str]:
    element = CTYPES[what.element]
    ports = (
        f'constexpr auto {direction} = pl::fragment_{direction}<"{direction}", {element}, '
        f'"{what.layout}">(pl::shape(64_n, 64_n));\n{_entry(direction)}'
    )
    if direction == "in":
        words = "reinterpret_cast<const unsigned*>(values)"
        code = f"    bandwidth::fold<16>({words}, to, tile.row, pl::role_thread(self), checked);\n"
        return ports, f"const {element}* values", code
    values, count = "values", 32
    if what.element != "f32":
        values, count = "reinterpret_cast<unsigned*>(values)", 16
    code = f"    bandwidth::make<{count}>({values}, tile.row, pl::role_thread(self));\n"
    return ports, f"{element}* values", code


def _part(what: Tile) -> str:
    swizzle = f"pl::swizzle_{what.swizzle}" if what.swizzle else "pl::no_swizzle"
    layout = f'.layout<"{what.layout}">()' if what.layout else ""
    return f'constexpr auto part = pl::part<"tile", pl::bf16>(pl::shape(64_n, 64_n), {swizzle}){layout}'


def _tile(what: Tile, direction: str) -> tuple[str, str, str]:
    if what.how == "tma":
        return _tma(what)
    if what.how == "ring":
        return _ring(what, direction)
    port = f'pl::tile_{direction}<"{direction}">()(pl::generic_proxy, part)'
    ports = f"{_part(what)};\nconstexpr auto {direction} = {port};\n{_entry(direction)}"
    at = f"{direction}.address(self, part, state)"
    code = f"    bandwidth::look({at}, to, tile.row, pl::role_thread(self), checked);\n"
    if direction == "out":
        code = f"    bandwidth::touch({at}, tile.row, pl::role_thread(self), {what.stages});\n"
    return ports, "const pl::RingState& state", code


def _ring(what: Tile, direction: str) -> tuple[str, str, str]:
    out = direction == "out"
    proxy = "" if out else "pl::generic_proxy, "
    port = f'pl::ring_{direction}<"{direction}">()({what.stages}_n, pl::each_warp, {proxy}part)'
    plays = f".plays(pl::{'fill' if out else 'drain'}({direction}))"
    ports = f"{_part(what)};\nconstexpr auto {direction} = {port};\n{_entry(direction, plays)}"
    if out:
        code = (
            "    out.acquire(self, state);\n"
            "    bandwidth::fill(out.address(self, part, state), tile.row, pl::role_thread(self));\n"
            "    out.commit(self, state);\n    out.advance(self, state);\n"
        )
    else:
        code = (
            "    in.wait(self, state);\n    const unsigned at = in.address(self, part, state);\n"
            "    bandwidth::look(at, to, tile.row, pl::role_thread(self), checked);\n"
            "    in.release(self, state.stage);\n    in.advance(self, state);\n"
        )
    return ports, "pl::RingState& state", code


def _tma(what: Tile) -> tuple[str, str, str]:
    ports = (
        'constexpr auto x = pl::tensor_map_in<"x", pl::bf16>(pl::shape(1024_n, 64_n), '
        "pl::box(64_n, 64_n), pl::swizzle_128);\n"
        f"{_part(what)}.filled_by(x, 1_n);\n"
        f'constexpr auto out = pl::ring_out<"out">()({what.stages}_n, pl::by_copies, part);\n'
        + _entry("out", ".plays(pl::fill(out)).by_one_thread()", "x, ")
    )
    code = """\
    out.acquire(self, state);
    const auto barrier = out.expect(self, state);
    pl::bulk_load_2d(out.address(self, part, state), map, 0, tile.row % 16 * 64, barrier);
    out.advance(self, state);
"""
    return ports, "const pl::TensorMap* map, pl::RingState& state", code


def components(kind: Kind) -> dict[str, str]:
    """The sources of a kind by name."""
    ends = [(kind.source, "out"), *((s, "in") for s in kind.sinks)]
    return {end_name(what, way): component(what, way) for what, way in ends}


def manifest(kind: Kind, blocks: int) -> str:
    """The kernel of a kind, of which an SM holds `blocks` blocks."""
    names = {"source": end_name(kind.source, "out")}
    names |= {f"sink{n}": end_name(s, "in") for n, s in enumerate(kind.sinks)}
    lines = [f'kernel = "{kernel_name(kind, blocks)}"', 'target = "sm_90a"']
    lines += ['schedule = "source.schedule"', f"blocks_per_sm = {blocks}"]
    for instance, name in names.items():
        lines += ["", f"[instances.{instance}]", f'object = "{name}.o"']
    roles = [list(names)] if kind.roles == 1 else [[n] for n in names]
    for role in roles:
        steps = ", ".join(f'"{n}.run"' for n in role)
        lines += ["", "[[roles]]", f'name = "role_{role[0]}"', f"steps = [{steps}]"]
    for n in range(len(kind.sinks)):
        lines += ["", "[[channels]]", 'from = "source.out"', f'to = "sink{n}.in"']
        lines += [f"stages = {kind.stages}"] if kind.stages > 1 else []
        lines += ['rounding = "nearest"'] if kind.source is ACC_F32 else []
    lines += ["", "[parameters]", 't = "source.t"']
    lines += ['x = "source.x"'] if kind.name == "tma" else []
    lines += [f'y{n} = "sink{n}.y"' for n in range(len(kind.sinks))]
    return "\n".join(lines) + "\n"


def kernel_name(kind: Kind, blocks: int) -> str:
    return f"b{blocks}_{kind.name}"

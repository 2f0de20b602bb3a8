"""Kernels that do nothing but one transfer: a component that reads a tensor into some layout, a channel,
and a component that writes the tensor from another layout. What comes out is what went in, converted
where the channel converts: any error of a transfer is seen in the bits.

`cases()` is the matrix that runs on the device; tests take single cases of it. transfer_ends.py writes
their components.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

BYTES = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1, "e5m2": 1, "i32": 4, "i8": 1, "u8": 1, "i64": 8}


@dataclass(frozen=True)
class Registers:
    """A fragment of `threads` threads: CuTe's (thread, value) -> row + rows * column."""

    name: str
    layout: str  # with R and C for the sides of one copy


@dataclass(frozen=True)
class Shared:
    """A tile in shared memory; row-major without a layout. `by` is `step` for a tile that the glue
    hands over, else who arrives at a ring; `tma`: bulk copies fill it."""

    name: str
    layout: str = ""
    swizzle: int = 0
    by: str = "step"
    proxy: str = "generic"
    tma: bool = False


@dataclass(frozen=True)
class Case:
    """One channel, or several from one source."""

    source: Registers | Shared
    sinks: tuple[Registers | Shared, ...]
    element: str = "bf16"
    target: str = ""
    rows: int = 64
    columns: int = 64
    warps: int = 4
    roles: int = 1  # 2: each sink in a role of its own
    stages: int = 1
    rounding: str = ""
    arch: str = "sm_90a"

    @property
    def name(self) -> str:
        ends = "_".join(s.name for s in self.sinks)
        converted = f"_to_{self.target}_{self.rounding or 'exact'}" if self.target else ""
        return (
            f"{self.source.name}__{ends}__{self.element}{converted}__{self.rows}x{self.columns}"
            f"__w{self.warps}r{self.roles}s{self.stages}"
        ).replace("__", "_")

    @property
    def out_element(self) -> str:
        return self.target or self.element


# Layouts of registers; R and C are the sides of the tile of one copy.
ACCUMULATOR = Registers("acc", "((4,8,4),(2,2,C/8)):((2*R,1,16),(R,8,8*R))")  # wgmma m64nC
OPERAND = Registers("op", "((4,8,W),(2,2,2,C/16)):((2*R,1,16),(R,8,8*R,16*R))")  # mma m16k16

BLOCKED = Registers("blocked", "((C/8,T*8/C),(8,R*C/8/T)):((8*R,1),(R,T*8/C))")
STRIPED = Registers("striped", "((32,W),(C/32,R/W)):((R,1),(32*R,W))")
ROW = Registers("row", "(R,C):(1,R)")  # a thread a row: R threads


PLAIN = Shared("plain")
SWIZZLED = {n: Shared(f"sw{n}", "", n) for n in (32, 64, 128)}
TURNED = Shared("turned", "(R,C):(1,R)")
TURNED_SWIZZLED = {n: Shared(f"turned_sw{n}", "(R,C):(1,R)", n) for n in (64, 128)}
CORES = Shared("cores", "((8,R/8),(8,C/8)):((8,64),(1,8*R))")  # matrices of 8x8 in one piece


TURNED_ACCUMULATOR = Registers("accv", "((4,8,4),(C/8,2,2)):((2*R,1,16),(8*R,8,R))")
# The columns of a pair in one thread, four threads a row: an operand whose lanes go another way.
PAIRS = Registers("pairs", "((8,4,W),(2,4,C/16)):((2*R,1,16),(R,4,16*R))")
TMA = {n: Shared(f"tma{n}", "", n, tma=True) for n in (0, 32, 64, 128)}
PLAIN_MOVES = ("bf16", "f16", "f32", "e4m3", "e5m2", "i32", "i8", "u8", "i64")


def by(what: Shared, arriver: str) -> Shared:
    """The same tile as a ring whose stages the component itself hands over."""
    return replace(what, by=arriver, name=f"{what.name}_{arriver}")


def bulk(what: Shared) -> Shared:
    """The same tile, read by a bulk copy: through the async proxy."""
    return replace(what, proxy="async", name=f"{what.name}_bulk")


def kinds() -> dict[str, Case]:
    """Every kind of transfer once."""
    swizzled, ring = SWIZZLED[128], by(SWIZZLED[128], "each_warp")
    return {
        "registers": Case(ACCUMULATOR, (ACCUMULATOR,), "f32"),
        "permuted": Case(ACCUMULATOR, (TURNED_ACCUMULATOR,), "bf16"),
        "shuffled": Case(OPERAND, (PAIRS,), "bf16"),
        "staged": Case(ACCUMULATOR, (BLOCKED,), "bf16"),
        "stored": Case(ACCUMULATOR, (swizzled,), "f32", "bf16", rounding="nearest"),
        "loaded": Case(swizzled, (OPERAND,), "bf16"),
        "copied": Case(PLAIN, (swizzled,), "bf16"),
        "turned": Case(TURNED_SWIZZLED[128], (swizzled,), "bf16"),
        "ring": Case(ring, (ring,), "bf16", roles=2, stages=3),
        "tma": Case(TMA[128], (ring,), "bf16", roles=2, stages=3),
        "broadcast": Case(swizzled, (swizzled, OPERAND), "bf16", roles=2, stages=2),
        "handed": Case(
            ACCUMULATOR, (bulk(swizzled),), "f32", "bf16", roles=2, stages=2, rounding="nearest"
        ),
        "converted": Case(ACCUMULATOR, (ACCUMULATOR,), "f32", "e4m3", rounding="nearest"),
    }


def cases() -> list[Case]:
    """The matrix that runs on the device; no case stands in it twice."""
    found = [*kinds().values(), *_between_registers(), *_stores_and_loads(), *_copies_of_tiles()]
    found += [*_from_role_to_role(), *_conversions(), *_uneven()]
    return list({case.name: case for case in found}.values())


def _between_registers() -> Iterator[Case]:
    ways = [
        (ACCUMULATOR, TURNED_ACCUMULATOR),
        (OPERAND, PAIRS),
        (PAIRS, OPERAND),
        (ACCUMULATOR, OPERAND),
        (ACCUMULATOR, BLOCKED),
        (BLOCKED, STRIPED),
    ]
    for (source, sink), element in itertools.product(ways, PLAIN_MOVES):
        yield Case(source, (sink,), element)


def _stores_and_loads() -> Iterator[Case]:
    tiles = [PLAIN, *SWIZZLED.values(), TURNED, TURNED_SWIZZLED[128], CORES]
    for tile, element in itertools.product(tiles, ("bf16", "f32", "e4m3")):
        yield Case(ACCUMULATOR, (tile,), element)
        yield Case(tile, (ACCUMULATOR,), element)
    for tile in tiles:
        yield Case(OPERAND, (tile,), "f16")
        yield Case(tile, (OPERAND,), "f16")
        yield Case(BLOCKED, (tile,), "i8")
        yield Case(tile, (STRIPED,), "i32")
    for registers in (BLOCKED, STRIPED, PAIRS):
        yield Case(registers, (SWIZZLED[128],), "bf16")
        yield Case(SWIZZLED[64], (registers,), "i64")
    yield Case(ROW, (SWIZZLED[128],), "bf16", rows=128)
    yield Case(SWIZZLED[128], (ROW,), "f32", rows=128, columns=32)
    yield Case(ACCUMULATOR, (SWIZZLED[128],), "bf16", rows=128, warps=8)
    yield Case(SWIZZLED[128], (OPERAND,), "bf16", rows=128, warps=8)
    yield Case(ACCUMULATOR, (bulk(SWIZZLED[128]),), "bf16")
    yield Case(BLOCKED, (bulk(CORES),), "f16")


def _copies_of_tiles() -> Iterator[Case]:
    ways = [
        (PLAIN, SWIZZLED[128]),
        (SWIZZLED[128], SWIZZLED[32]),
        (SWIZZLED[64], TURNED_SWIZZLED[128]),
        (TURNED, PLAIN),
        (CORES, SWIZZLED[128]),
        (PLAIN, bulk(TURNED_SWIZZLED[64])),
    ]
    for (source, sink), element in itertools.product(ways, ("bf16", "f32", "u8")):
        yield Case(source, (sink,), element)


def _from_role_to_role() -> Iterator[Case]:
    for element in ("bf16", "f32", "e5m2"):
        columns = 128 // BYTES[element]
        for arriver in ("each_warp", "each_thread"):
            ring = by(SWIZZLED[128], arriver)
            yield Case(ring, (ring,), element, columns=columns, roles=2, stages=2)
            yield Case(TMA[128], (ring,), element, columns=columns, roles=2, stages=4)
        yield Case(TMA[128], (OPERAND,), element, columns=columns, roles=2, stages=3)
        yield Case(TMA[128], (SWIZZLED[128],), element, columns=columns, roles=2, stages=2)
        yield Case(TMA[128], (PLAIN,), element, columns=columns, roles=2, stages=2)
        yield Case(ACCUMULATOR, (BLOCKED,), element, columns=columns, roles=2, stages=2)
        yield Case(
            ACCUMULATOR, (by(SWIZZLED[128], "each_warp"),), element, columns=columns, roles=2
        )
        yield Case(SWIZZLED[128], (TURNED,), element, columns=columns, roles=2, stages=2)
        yield Case(
            PLAIN, (by(SWIZZLED[128], "each_warp"),), element, columns=columns, roles=2, stages=3
        )
        yield Case(
            SWIZZLED[128],
            (SWIZZLED[128], ACCUMULATOR, PLAIN),
            element,
            columns=columns,
            roles=2,
            stages=2,
        )
        yield Case(ACCUMULATOR, (PLAIN, BLOCKED, ACCUMULATOR), element, columns=columns)
    # A tile for a ring that lies otherwise, which the producer's role copies, and for another role.
    for stages in (2, 3):
        sinks = (by(PLAIN, "each_warp"), SWIZZLED[128])
        yield Case(SWIZZLED[128], sinks, "bf16", roles=2, stages=stages)
    for swizzle in (0, 32, 64):
        columns = (swizzle or 64) // 2
        ring = by(SWIZZLED[swizzle] if swizzle else PLAIN, "each_warp")
        yield Case(TMA[swizzle], (ring,), "f16", columns=columns, roles=2, stages=3)


def _conversions() -> Iterator[Case]:
    floats = ("f32", "bf16", "f16", "e4m3", "e5m2")
    for source, target in itertools.permutations(floats, 2):
        exact = (source, target) in EXACT
        roundings = ["" if exact else "nearest"]
        if not exact and target not in ("e4m3", "e5m2"):
            roundings.append("toward_zero")
        for rounding in roundings:
            yield Case(ACCUMULATOR, (ACCUMULATOR,), source, target, rounding=rounding)
        yield Case(ACCUMULATOR, (SWIZZLED[128],), source, target, rounding=roundings[0])
        yield Case(SWIZZLED[64], (BLOCKED,), source, target, rounding=roundings[0])
        yield Case(PLAIN, (SWIZZLED[128],), source, target, rounding=roundings[0])
    yield Case(ACCUMULATOR, (BLOCKED,), "f32", "bf16", rounding="nearest")
    yield Case(ACCUMULATOR, (BLOCKED,), "e4m3", "f32", roles=2, stages=2)


EXACT = {
    *(("bf16", "f32"), ("f16", "f32"), ("e4m3", "f32"), ("e5m2", "f32")),
    *(("e4m3", "f16"), ("e5m2", "f16"), ("e4m3", "bf16"), ("e5m2", "bf16")),
}


def _uneven() -> Iterator[Case]:
    """Sides that are no powers of two, and roles of one warp."""
    for columns in (96, 160):
        yield Case(ACCUMULATOR, (PLAIN,), "f32", "bf16", columns=columns, rounding="nearest")
        yield Case(PLAIN, (ACCUMULATOR,), "bf16", columns=columns)
        yield Case(ACCUMULATOR, (STRIPED,), "bf16", columns=columns)
        yield Case(PLAIN, (TURNED,), "bf16", columns=columns)
    for sink in (PLAIN, TURNED):
        yield Case(PLAIN, (sink,), "bf16", "f32", rows=24, columns=40)
        yield Case(PLAIN, (sink,), "f32", "f16", rows=24, columns=40, rounding="nearest")
    yield Case(OPERAND, (SWIZZLED[128],), "bf16", rows=16, warps=1)
    yield Case(SWIZZLED[128], (OPERAND,), "bf16", rows=16, warps=1)
    yield Case(OPERAND, (PLAIN,), "bf16", rows=16, warps=1, roles=2, stages=2)

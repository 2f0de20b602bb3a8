"""Tiles to tiles: every element arrives, whatever the threads, and as wide as both tiles allow."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transfer_moves import HOPPER, byte_of
from transfer_machine import execute

from pipelink.abi import ELEMENT_BYTES
from pipelink.arch import ARCHES
from pipelink.transfer.copy import copy
from pipelink.transfer.places import Refused
from pipelink.transfer.records import Tile


def filled(tile, start):
    """Shared memory in which each byte of each element has its name."""
    memory = {}
    for element in coordinates(tile.shape):
        at = start + byte_of(tile, element)
        for byte in range(ELEMENT_BYTES[tile.element]):
            assert at + byte not in memory
            memory[at + byte] = (element, byte)
    return memory


def coordinates(shape):
    found = [()]
    for size in shape:
        found = [(*start, n) for start in found for n in range(size)]
    return found


def hold(source, target, threads, arch=HOPPER):
    """The copy, executed."""
    fragment, up, down = copy(source, target, threads, arch)
    memory, made = filled(source, 5 * source.align), {}
    registers = [[[None] * 4 for _ in range(fragment.words)] for _ in range(threads)]
    execute(up, registers, memory, 5 * source.align)
    execute(down, registers, made, 3 * target.align)
    assert made == filled(target, 3 * target.align)
    return up, down


def tile(element, shape, swizzle=0, layout=""):
    return Tile(element, shape, swizzle, layout)


AMPERE = ARCHES["sm_80"]
WIDE = ("ld.shared.v4.b32", "st.shared.v4.b32")
HALVES = ("ld.shared.v2.b32", "st.shared.v2.b32")
MATRICES = ("ldmatrix.x4", "stmatrix.x4")
CASES = [
    # Another swizzle, fewer threads than rows, more threads than elements.
    ("bf16", (128, 64), (128, ""), (0, ""), 128, HOPPER, WIDE, 1),
    ("f32", (64, 32), (128, ""), (64, "(64,(16,2)):(16,(1,1024))"), 128, HOPPER, HALVES, 1),
    ("e4m3", (16, 64), (64, ""), (0, ""), 128, HOPPER, HALVES, 1),
    ("bf16", (128, 64), (128, ""), (64, "(128,(32,2)):(32,(1,4096))"), 384, HOPPER, MATRICES, 1),
    ("bf16", (1000,), (0, ""), (0, ""), 128, HOPPER, WIDE, 1),
    ("i64", (7, 13), (0, ""), (0, ""), 32, HOPPER, None, None),
    # Columns in blocks of 32 and of 64 bytes; a width that is no power of two.
    ("bf16", (64, 160), (0, ""), (64, "(64,(32,5)):(32,(1,2048))"), 128, HOPPER, WIDE, 1),
    ("bf16", (60, 64), (128, ""), (64, "(60,(32,2)):(32,(1,1920))"), 128, HOPPER, HALVES, 1),
    # Another major side.
    ("bf16", (64, 64), (128, ""), (128, "(64,64):(1,64)"), 128, HOPPER, ("ldmatrix.x4.trans", "stmatrix.x4"), 1),
    ("f16", (64, 64), (128, ""), (128, "(64,64):(1,64)"), 256, AMPERE, ("ldmatrix.x4.trans", "st.shared.b32"), 1),
    ("f32", (32, 32), (128, ""), (128, "(32,32):(1,32)"), 64, HOPPER, None, 2),
    ("e4m3", (32, 64), (0, ""), (0, "(32,64):(1,32)"), 64, HOPPER, None, None),
    ("i64", (4, 8, 16), (0, ""), (0, "(4,8,16):(1,4,32)"), 64, HOPPER, None, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("element", "shape", "one", "other", "threads", "arch", "by", "ways"), CASES
)
def test_tiles(element, shape, one, other, threads, arch, by, ways):
    up, down = hold(tile(element, shape, *one), tile(element, shape, *other), threads, arch)
    if by:
        assert (up.instruction, down.instruction) == by
    if ways:
        assert max(up.conflict, down.conflict) <= ways


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["e4m3", "bf16", "f32", "i64"]),
    st.sampled_from([32, 96, 128]),
    st.integers(1, 24),
    st.integers(1, 24),
    st.sampled_from([0, 32, 64, 128]),
    st.sampled_from([0, 32, 64, 128]),
    st.booleans(),
)
def test_any_sizes(element, threads, rows, columns, one, other, turned):
    layout = f"({rows},{columns}):(1,{rows})" if turned else ""
    hold(
        Tile(element, (rows, columns), one), Tile(element, (rows, columns), other, layout), threads
    )


def test_those_past_the_end_leave_out_the_last_access():
    _, up, down = copy(Tile("bf16", (1000,)), Tile("bf16", (1000,), 128), 128, HOPPER)
    assert [a.threads for a in (*up.accesses, *down.accesses)] == [125, 125]
    assert math.ceil(1000 / 8) == 125


def test_other_tiles_are_refused():
    with pytest.raises(Refused, match="a tile of bf16"):
        copy(Tile("bf16", (8, 8)), Tile("bf16", (8, 9)), 32, HOPPER)

"""Fragments to tiles and back: the values land where the layouts say, by the instructions that one
would write by hand."""

import math
from functools import cache

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from transfer_machine import address, execute, swizzle

from pipelink.abi import ELEMENT_BYTES
from pipelink.arch import ARCHES
from pipelink.layout import parse
from pipelink.transfer.moves import load, store
from pipelink.transfer.places import Refused
from pipelink.transfer.records import Fragment, Tile

HOPPER, AMPERE = ARCHES["sm_90a"], ARCHES["sm_80"]


def wgmma(columns, rows=64):
    return f"((4,8,4),(2,2,{columns}/8,{rows}/64)):((2*{rows},1,16),({rows},8,8*{rows},64))"


MMA_A = "((4,8),(2,2,2,{k})):((2*{m},1),({m},8,8*{m},16*{m}))"


@cache
def modes_of(described):
    return described.map


def element_of(fragment, threads, thread, value):
    """The coordinate of a value, straight from the words of the contract."""
    found = modes_of(fragment)
    copies = threads // found.thread_count
    rows = fragment.shape[0] // copies
    at = 0
    for index, mode in zip((thread % found.thread_count, value), found.modes, strict=True):
        for size, stride in mode:
            at += index % size * stride
            index //= size
    coordinate = [at % rows + thread // found.thread_count * rows]
    at //= rows
    for size in fragment.shape[1:]:
        coordinate.append(at % size)
        at //= size
    assert at == 0
    return tuple(coordinate)


def byte_of(tile, coordinate):
    """Where an element lies, straight from CuTe's words."""
    found = modes_of(tile)
    at = 0
    for index, mode in zip(coordinate, found.modes, strict=True):
        for size, stride in mode:
            at += index % size * stride
            index //= size
    return swizzle(at * ELEMENT_BYTES[tile.element], tile.swizzle)


def words_of(fragment, threads, name):
    """Registers in which each byte is named by its element."""
    size = ELEMENT_BYTES[fragment.element]
    registers = []
    for thread in range(threads):
        flat = []
        for value in range(fragment.count):
            element = element_of(fragment, threads, thread, value)
            flat += [name(element, byte) for byte in range(size)]
        flat += [None] * (-len(flat) % 4)
        registers.append([flat[n : n + 4] for n in range(0, len(flat), 4)])
    return registers


def inside(tile, element):
    return all(c < size for c, size in zip(element, tile.shape, strict=True))


def hold(fragment, tile, threads, arch=HOPPER):
    """Both directions, executed; returns the moves."""
    size = ELEMENT_BYTES[tile.element]
    down, up = store(fragment, tile, threads, arch), load(tile, fragment, threads, arch)
    start = 3 * tile.align
    name = lambda element, byte: (element, byte) if inside(tile, element) else None  # noqa: E731
    registers, memory = words_of(fragment, threads, lambda e, b: (e, b)), {}
    execute(down, registers, memory, start)
    want = {}
    for thread in range(threads):
        for value in range(fragment.count):
            element = element_of(fragment, threads, thread, value)
            if inside(tile, element):
                for byte in range(size):
                    want[start + byte_of(tile, element) + byte] = (element, byte)
    assert memory == want
    empty = [[[None] * 4 for _ in registers[0]] for _ in range(threads)]
    execute(up, empty, memory, start)
    kept = words_of(fragment, threads, name)
    for got, expected in zip(empty, kept, strict=True):
        flat = [byte for word in got for byte in word]
        for n, byte in enumerate(b for word in expected for b in word):
            assert byte is None or flat[n] == byte
    for moves in (down, up):
        assert moves.conflict == measured(moves, threads, start)
    return down, up


def measured(moves, threads, start):
    """The worst bank conflict of what was executed."""
    worst = 1
    for access in moves.accesses:
        active = access.threads or threads
        for first in range(0, threads, 32):
            lanes = range(first, min(first + 32, threads, active))
            at = [address(moves, access, t, start) for t in lanes]
            rows = access.bytes // 4 * 8 if moves.matrix else len(at)
            group = 8 if moves.matrix else 128 // max(access.bytes, 4)
            width = 16 if moves.matrix else access.bytes
            for n in range(0, min(rows, len(at)), group):
                banks = {}
                for place in at[n : min(n + group, rows)]:
                    for byte in range(place, place + width):
                        banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
                worst = max(worst, *(len(words) for words in banks.values()))
    return worst


MATRICES = ("stmatrix.x4", "ldmatrix.x4")
TRANSPOSED = ("stmatrix.x4.trans", "ldmatrix.x4.trans")
VECTORS = ("st.shared.v4.b32", "ld.shared.v4.b32")
BY_HAND = [
    # A wgmma accumulator as bf16 to a tile of 64 columns, as the bulk copy of an epilogue takes it.
    ("bf16", (64, 64), wgmma(64), 128, 128, "", MATRICES, 1),
    ("f16", (128, 64), wgmma(64), 256, 128, "", MATRICES, 1),
    ("bf16", (128, 64), wgmma(64, 128), 128, 128, "", MATRICES, 1),
    ("bf16", (64, 32), wgmma(32), 128, 64, "", MATRICES, 1),
    ("bf16", (64, 16), wgmma(16), 128, 32, "", MATRICES, 1),
    ("bf16", (64, 64), wgmma(64), 128, 128, "(64,64):(1,64)", TRANSPOSED, 1),
    ("bf16", (64, 160), wgmma(160), 128, 128, "(64,160):(1,64)", TRANSPOSED, 1),
    # mma.m16n8k16's operand A, from a tile of 64 columns.
    ("bf16", (16, 64), MMA_A.format(m=16, k=4), 32, 128, "", MATRICES, 1),
    ("f16", (64, 64), MMA_A.format(m=16, k=4), 128, 128, "", MATRICES, 1),
    # Rows in blocks of 16 bytes.
    ("bf16", (128, 64), "(128,64):(1,128)", 128, 128, "", VECTORS, 1),
    ("f32", (128, 32), "((8,16),(4,8)):((512,1),(128,16))", 128, 128, "", VECTORS, 1),
    ("e4m3", (64, 128), "((8,8),(16,2)):((1024,1),(64,32))", 64, 128, "", VECTORS, 1),
    ("i64", (256,), "(32,8):(8,1)", 32, 0, "", VECTORS, 4),
]


@pytest.mark.parametrize(
    ("element", "shape", "layout", "threads", "width", "order", "by", "ways"), BY_HAND
)
def test_what_one_would_write_by_hand(element, shape, layout, threads, width, order, by, ways):
    layout = Fragment(element, shape, parse(layout, {}).text)
    stored, loaded = hold(layout, Tile(element, shape, width, order), threads)
    assert (stored.conflict, loaded.conflict) == (ways, ways)
    assert (stored.instruction, loaded.instruction) == by


@pytest.mark.parametrize("element", ["f32", "bf16", "e4m3"])
@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("columns", [24, 64, 160])
@pytest.mark.parametrize("order", ["", "(64,{c}):(1,64)", "(64,(8,{c}/8)):(8,(1,512))"])
def test_an_accumulator_to_any_tile(element, width, columns, order):
    tile = Tile(
        element,
        (64, columns),
        width,
        order.format(c=columns).replace(f"{columns}/8", str(columns // 8)),
    )
    hold(Fragment(element, (64, columns), parse(wgmma(columns), {}).text), tile, 128)


@pytest.mark.parametrize("element", ["f32", "bf16", "e4m3", "i64"])
@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_without_matrix_instructions(element, width):
    fragment = Fragment(element, (64, 64), parse(wgmma(64), {}).text)
    down, _ = hold(fragment, Tile(element, (64, 64), width), 128, ARCHES["sm_80"])
    assert "matrix" not in down.instruction


def sizes(total):
    """Ways to write a number as a product, innermost first."""
    primes = [p for p in (2, 3, 5, 7) for _ in range(20) if total % p ** (_ + 1) == 0]
    return st.permutations(primes)


@st.composite
def cases(draw):
    """A fragment that has each element of a tile once, in any order of its factors, and a tile that
    is any order of other factors, perhaps padded."""
    element = draw(st.sampled_from(["e4m3", "bf16", "f32", "i64"]))
    shape = draw(
        st.sampled_from([(64,), (32, 16), (16, 40), (64, 32), (8, 96), (4, 8, 16), (32, 32)])
    )
    rows, total = shape[0], math.prod(shape)
    copies = draw(st.sampled_from([c for c in (1, 1, 2, 4) if rows % c == 0]))
    each = total // copies
    strides, factors = 1, []
    for side in (rows // copies, *shape[1:]):
        for size in draw(sizes(side)):
            factors.append((size, strides))
            strides *= size
    factors = draw(st.permutations(factors))
    threads, thread, value = 1, [], []
    for size, stride in factors:
        if threads * size * copies <= 256 and draw(st.integers(0, 3)):
            threads *= size
            thread.append((size, stride))
        else:
            value.append((size, stride))
    assume(each // threads <= 128)
    fragment = Fragment(element, shape, written(thread, value))
    modes, stride = [], 1
    order = draw(
        st.permutations([(n, s) for n, side in enumerate(shape) for s in draw(sizes(side))])
    )
    sides = [[] for _ in shape]
    for side, size in order:
        sides[side].append((size, stride))
        stride *= size
        stride += draw(st.sampled_from([0, 0, 0, 0, 16, 4]))
    modes = [written_mode(side) for side in sides]
    layout = f"({','.join(m[0] for m in modes)},):({','.join(m[1] for m in modes)},)"
    return (
        fragment,
        Tile(element, shape, draw(st.sampled_from([0, 32, 64, 128])), layout),
        threads * copies,
    )


def written_mode(mode):
    mode = mode or [(1, 0)]
    return tuple(f"({','.join(str(pair[n]) for pair in mode)},)" for n in (0, 1))


def written(*modes):
    pairs = [written_mode(mode) for mode in modes]
    return f"({','.join(p[0] for p in pairs)}):({','.join(p[1] for p in pairs)})"


@settings(max_examples=80, deadline=None)
@given(cases())
def test_any_layouts(case):
    fragment, tile, threads = case
    size = tile.bytes // ELEMENT_BYTES[tile.element]
    if size == math.prod(tile.shape) and size & size - 1 == 0:
        hold(fragment, tile, threads)
        return
    try:
        hold(fragment, tile, threads)
    except Refused:  # a mode of five that passes the end of one of two: no sum of terms is that
        reject()


def test_values_that_several_threads_have():
    """A row's value is in all four lanes of a quad, and twice in each."""
    fragment = Fragment("f32", (64,), "((4,8,4),(2,2)):((0,1,16),(0,8))")
    down, up = hold(fragment, Tile("f32", (64,)), 128)
    assert len(down.accesses) == len(up.accesses) == 2


def test_a_tile_that_the_fragment_passes():
    """Eight rows are missing: the last thread quarter has nothing in its last access."""
    fragment = Fragment("bf16", (64, 64), "((8,16),(8,4)):((512,1),(64,16))")
    down, up = hold(fragment, Tile("bf16", (56, 64), 128), 128)
    assert [a.threads for a in down.accesses] == [0, 0, 0, 64]
    assert [a.threads for a in up.accesses] == [0, 0, 0, 64]


@pytest.mark.parametrize(
    ("layout", "tile", "threads", "why"),
    [
        ("(32,2):(1,32)", Tile("bf16", (64,)), 32, "a fragment of f32 and a tile of bf16"),
        ("(32,2):(1,32)", Tile("f32", (32,), 0, "(64):(1)"), 32, "no layout of a tile of 32"),
        ("(32,2):(1,32)", Tile("f32", (64,), 16), 32, "a swizzle of 16 bytes"),
        ("(32,2):(1,32)", Tile("f32", (64,)), 48, "48 threads are no whole copies of"),
        ("(32,4):(1,32)", Tile("f32", (64,)), 32, "passes the end of its tile of 64 elements"),
    ],
)
def test_what_is_no_transfer(layout, tile, threads, why):
    with pytest.raises(Refused, match=why):
        store(Fragment("f32", (64,), layout), tile, threads, HOPPER)

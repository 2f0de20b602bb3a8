"""Fragments of one layout to another, in registers, in warps, and through shared memory."""

import math

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from test_transfer_moves import HOPPER, element_of, sizes, words_of, written
from transfer_machine import execute, shuffled, word

from pipelink.transfer.exchanging import exchange
from pipelink.transfer.places import Refused
from pipelink.transfer.records import Fragment, InPlace, Permute, Shuffle, Staged

ACCUMULATOR = "((4,8,4),(2,2,{n})):((128,1,16),(64,8,512))"


def hold(source, target, threads):
    """The exchange, executed."""
    made = exchange(source, target, threads, HOPPER)
    name = lambda element, byte: (element, byte)  # noqa: E731
    registers = words_of(source, threads, name)
    if isinstance(made, Permute):
        registers = [[word(w, of_thread) for w in made.words] for of_thread in registers]
    elif isinstance(made, Shuffle):
        registers = shuffled(made, registers)
    elif isinstance(made, Staged):
        memory = {}
        execute(made.store, registers, memory, made.align)
        assert max(memory) < made.align + made.bytes
        registers = [[[None] * 4 for _ in range(target.words)] for _ in range(threads)]
        execute(made.load, registers, memory, made.align)
    for got, want in zip(registers, words_of(target, threads, name), strict=True):
        flat = [byte for w in got for byte in w]
        for n, byte in enumerate(b for w in want for b in w):
            assert byte is None or flat[n] == byte
    return made


CASES = [
    ("f32", (32, 4), "(32,4):(1,32)", "((8,4),4):((1,8),32)", 32, InPlace),
    ("bf16", (32, 8), "(32,8):(1,32)", "(32,(2,4)):(1,(128,32))", 32, Permute),
    ("e4m3", (64, 8), "(32,8):(1,32)", "(32,(2,2,2)):(1,(128,32,64))", 64, Permute),
    ("i64", (32, 4), "(32,4):(1,32)", "(32,(2,2)):(1,(64,32))", 32, Permute),
    ("f32", (32, 4), "(32,4):(1,32)", "(32,4):(4,1)", 32, Shuffle),
    ("i64", (32, 2), "(32,2):(1,32)", "(32,2):(2,1)", 32, Shuffle),
    ("bf16", (16, 16), "((4,8),(2,2,2)):((32,1),(16,8,128))", "((4,8),(2,2,2)):((2,16),(1,128,8))", 32, Shuffle),
    # Two accumulators of mma.m16n8k16 side by side are its next operand A.
    ("bf16", (64, 64), ACCUMULATOR.format(n=8), "((4,8,4),(2,2,2,4)):((128,1,16),(64,8,512,1024))", 128, InPlace),
    # Each quad's columns from pairs to runs, 8-bit operands from 32-bit accumulators.
    ("e4m3", (64, 32), ACCUMULATOR.format(n=4), "((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))", 128, Shuffle),
    ("bf16", (64, 48), ACCUMULATOR.format(n=6), "((4,8,4),(2,2,2,3)):((128,1,16),(64,512,8,1024))", 128, Permute),
    ("f32", (64, 64), ACCUMULATOR.format(n=8), "(128,32):(32,1)", 128, Staged),
    ("bf16", (64, 160), ACCUMULATOR.format(n=20), "(128,80):(1,128)", 128, Staged),
    ("e5m2", (64, 32), ACCUMULATOR.format(n=4), "((16,8),16):((128,1),8)", 128, Staged),
    # Each thread of a quad gets its rows' value.
    ("f32", (64,), "((2,64),1):((0,1),0)", "((4,8,4),2):((0,1,16),8)", 128, Shuffle),
    ("f32", (64,), "((2,64),1):((0,1),0)", "((4,8,4),2):((0,4,1),32)", 128, Staged),
    ("f32", (32,), "(32,1):(1,0)", "((4,8),(2,2)):((0,1),(8,16))", 32, Shuffle),
]  # fmt: skip


@pytest.mark.parametrize(("element", "shape", "source", "target", "threads", "kind"), CASES)
def test_the_cheapest_way(element, shape, source, target, threads, kind):
    made = hold(Fragment(element, shape, source), Fragment(element, shape, target), threads)
    assert type(made) is kind


def test_as_many_shuffles_as_words():
    made = hold(
        Fragment("f32", (32, 4), "(32,4):(1,32)"), Fragment("f32", (32, 4), "(32,4):(4,1)"), 32
    )
    assert isinstance(made, Shuffle)
    assert made.shuffles == 4
    assert not made.choices


def test_a_word_that_stays_is_not_shuffled():
    """Lanes change halves with their neighbours: half of the words stay where they are."""
    made = hold(
        Fragment("f32", (32, 4), "((2,16),(2,2)):((1,2),(32,64))"),
        Fragment("f32", (32, 4), "((2,16),(2,2)):((32,2),(1,64))"),
        32,
    )
    assert isinstance(made, Shuffle)
    assert made.shuffles == 2
    assert all(r.base == -1 for r in made.rounds)


def test_staging_without_conflicts():
    """Rows of an accumulator to whole rows a thread, and back."""
    down = Fragment("bf16", (64, 64), ACCUMULATOR.format(n=8))
    rows = Fragment("bf16", (64, 64), "((8,16),(8,4)):((512,1),(64,16))")
    for source, target in ((down, rows), (rows, down)):
        made = hold(source, target, 128)
        assert isinstance(made, Staged)
        assert (made.store.conflict, made.load.conflict) == (1, 1)
        assert made.bytes == 64 * 64 * 2
    assert made.store.instruction == "st.shared.v4.b32"
    assert made.load.instruction == "ldmatrix.x4"


@st.composite
def pairs(draw):
    """Two orders of one tile's factors, in as many threads and values."""
    element = draw(st.sampled_from(["e4m3", "bf16", "f32", "i64"]))
    shape = draw(st.sampled_from([(128,), (32, 4), (16, 16), (32, 12), (64, 16), (32, 8, 2)]))
    rows = shape[0]
    copies = draw(st.sampled_from([1, 1, 1, 2]))
    sides, strides, factors = (rows // copies, *shape[1:]), 1, []
    for side in sides:
        for size in draw(sizes(side)):
            factors.append((size, strides))
            strides *= size
    threads = draw(st.sampled_from([32, 64]))
    layouts = []
    for _ in range(2):
        left, thread, value = threads, [], []
        for size, stride in draw(st.permutations(factors)):
            if left % size == 0 and left > 1:
                thread.append((size, stride))
                left //= size
            else:
                value.append((size, stride))
        if left > 1:
            reject()
        layouts.append(Fragment(element, shape, written(thread, value)))
    return *layouts, threads * copies


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_any_layouts(case):
    source, target, threads = case
    hold(source, target, threads)


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(8)), st.permutations(range(8)))
def test_bits_of_lanes_and_words(one, other):
    """Any order of eight bits, five of the lane."""
    layouts = []
    for order in (one, other):
        pairs_ = [(2, 1 << bit) for bit in order]
        layouts.append(Fragment("f32", (256,), written(pairs_[:5], pairs_[5:])))
    made = hold(*layouts, 32)
    if isinstance(made, Shuffle):
        assert made.shuffles <= 8
        assert not made.choices


def test_what_is_no_exchange():
    one = Fragment("f32", (32,), "(32,1):(1,0)")
    with pytest.raises(Refused, match=r"a tile of f32 \(32,\), one of bf16 \(32,\)"):
        exchange(one, Fragment("bf16", (32,), "(32,1):(1,0)"), 32, HOPPER)


def test_what_nobody_has():
    half = Fragment("f32", (64,), "(32,1):(1,0)")
    with pytest.raises(Refused, match="nobody has element 32 of the tile"):
        exchange(half, Fragment("f32", (64,), "(32,2):(2,1)"), 32, HOPPER)


def test_no_element_is_made_up():
    """The machine's own names: an element's thread and value, from the contract's words."""
    fragment = Fragment("f32", (64, 8), "((4,8),(2,2)):((64,1),(32,8))")
    found = {element_of(fragment, 64, t, v) for t in range(64) for v in range(4)}
    assert len(found) == 64 * 4 == math.prod((64, 8)) // 2

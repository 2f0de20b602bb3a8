"""Layouts: the map that a text describes, and the algebra on them."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelink.layout import compose, fragment, names, parse, row_major


def place(layout, coordinate):
    """The place of a coordinate, as CuTe defines it."""
    at = 0
    for index, mode in zip(coordinate, layout.modes, strict=True):
        for size, stride in mode:
            at += index % size * stride
            index //= size
        assert index == 0
    return at


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("((4,8,4),(2,2)):((128,1,16),(64,8))", (((4, 128), (8, 1), (4, 16)), ((2, 64), (2, 8)))),
        ("((32,8),1):((1,32),7)", (((256, 1),), ())),
        ("(1,(1,1)):(0,(5,6))", ((), ())),
        ("((2,(2,2)),3):((1,(2,4)),0)", (((8, 1),), ((3, 0),))),
        ("64:2", (((64, 2),),)),
    ],
)
def test_modes_are_coalesced(text, modes):
    assert parse(text, {}).modes == modes


def test_steps_are_the_places_of_a_mode():
    layout = fragment("((4,8,4),(2,2)):((128,1,16),(64,8))", {})
    for thread, value in itertools.product(range(128), range(4)):
        assert layout.steps(0)[thread] + layout.steps(1)[value] == place(layout, (thread, value))


def test_the_package_has_the_same_map():
    layout = parse("((4,8,4),(2,2,n/8)):((2*64,1,16),(64,8,8*64))", {"n": 64})
    for thread, value in itertools.product(range(128), range(32)):
        assert layout.map(thread, value) == place(layout, (thread, value))


def test_a_fragment_in_a_row_major_tile():
    made = compose(row_major([64, 64]), fragment("((4,8,4),(2,2)):((128,1,16),(64,8))", {}))
    assert made == parse("((4,8,4),(2,2)):((2,64,1024),(1,512))", {})
    assert str(made) == "((4,8,4),(2,2)):((2,64,1024),(1,512))"


def test_what_the_algebra_has_no_layout_for():
    assert compose(row_major([10, 10]), parse("(7,4):(4,1)", {})) is None


@given(
    st.permutations([(2, 1), (2, 2), (2, 4), (2, 8), (2, 16), (2, 32)]), st.sampled_from([4, 8, 16])
)
def test_composition_is_one_map_after_the_other(factors, rows):
    sizes, strides = zip(*factors, strict=True)
    inner = parse(f"({sizes[:4]},{sizes[4:]}):({strides[:4]},{strides[4:]})".replace(" ", ""), {})
    outer = row_major([rows, 64 // rows])
    made = compose(outer, inner)
    assert made is not None
    assert math.prod(made.sizes) == 64
    for coordinate in itertools.product(*map(range, inner.sizes)):
        middle = place(inner, coordinate)
        assert place(made, coordinate) == place(outer, (middle % rows, middle // rows))


def test_the_facts_of_a_layout():
    assert names("((4,rows),n/8):((2*rows,1),k)") == {"rows", "n", "k"}

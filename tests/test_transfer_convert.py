"""Conversions: the instructions of each pair, one rounding each, and what there is not."""

import math
import struct
from fractions import Fraction
from itertools import product

import pytest

from pipelink.arch import ARCHES
from pipelink.transfer.converting import convert
from pipelink.transfer.places import Refused

FLOATING = ("f32", "bf16", "f16", "e4m3", "e5m2")
PAIRS = [pair for pair in product(FLOATING, FLOATING) if pair[0] != pair[1]]
WANT = {
    ("f32", "bf16"): ("cvt.rn.bf16x2.f32",),
    ("f32", "f16"): ("cvt.rn.f16x2.f32",),
    ("f32", "e4m3"): ("cvt.rn.satfinite.e4m3x2.f32",),
    ("f32", "e5m2"): ("cvt.rn.satfinite.e5m2x2.f32",),
    ("bf16", "f32"): ("shl.b32", "and.b32"),
    ("bf16", "f16"): ("shl.b32", "and.b32", "cvt.rn.f16x2.f32"),
    ("bf16", "e4m3"): ("shl.b32", "and.b32", "cvt.rn.satfinite.e4m3x2.f32"),
    ("bf16", "e5m2"): ("shl.b32", "and.b32", "cvt.rn.satfinite.e5m2x2.f32"),
    ("f16", "f32"): ("cvt.f32.f16",),
    ("f16", "bf16"): ("cvt.f32.f16", "cvt.rn.bf16x2.f32"),
    ("f16", "e4m3"): ("cvt.rn.satfinite.e4m3x2.f16x2",),
    ("f16", "e5m2"): ("cvt.rn.satfinite.e5m2x2.f16x2",),
    ("e4m3", "f32"): ("cvt.rn.f16x2.e4m3x2", "cvt.f32.f16"),
    ("e4m3", "bf16"): ("cvt.rn.f16x2.e4m3x2", "cvt.f32.f16", "cvt.rn.bf16x2.f32"),
    ("e4m3", "f16"): ("cvt.rn.f16x2.e4m3x2",),
    ("e4m3", "e5m2"): ("cvt.rn.f16x2.e4m3x2", "cvt.rn.satfinite.e5m2x2.f16x2"),
    ("e5m2", "f32"): ("cvt.rn.f16x2.e5m2x2", "cvt.f32.f16"),
    ("e5m2", "bf16"): ("cvt.rn.f16x2.e5m2x2", "cvt.f32.f16", "cvt.rn.bf16x2.f32"),
    ("e5m2", "f16"): ("cvt.rn.f16x2.e5m2x2",),
    ("e5m2", "e4m3"): ("cvt.rn.f16x2.e5m2x2", "cvt.rn.satfinite.e4m3x2.f16x2"),
}
# (exponent bits, mantissa bits, bias, whether the largest exponent has finite values)
FORMATS = {
    "f32": (8, 23, 127, False),
    "bf16": (8, 7, 127, False),
    "f16": (5, 10, 15, False),
    "e4m3": (4, 3, 7, True),
    "e5m2": (5, 2, 15, False),
}


def finite(name):
    """All finite values of a type of at most 16 bits."""
    exponents, mantissa, bias, whole = FORMATS[name]
    for bits in range(1 << (exponents + mantissa)):
        e, m = bits >> mantissa, bits & (1 << mantissa) - 1
        last = (1 << exponents) - 1
        if e == last and (not whole or m == (1 << mantissa) - 1):
            continue
        scale = max(e, 1) - bias - mantissa
        yield Fraction(m + (1 << mantissa if e else 0)) * Fraction(2) ** scale


@pytest.mark.parametrize("pair", PAIRS)
def test_the_instructions_of_a_pair(pair):
    assert convert(*pair, 8, "nearest").instructions == WANT[pair]


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_exact_is_said_so(pair):
    source, target = pair
    if source == "f32":
        exact = False
    elif target == "f32":
        exact = all(
            Fraction(struct.unpack("f", struct.pack("f", v))[0]) == v for v in finite(source)
        )
    else:
        exact = set(finite(source)) <= set(finite(target))
    assert convert(*pair, 8, "nearest").rounds is not exact


@pytest.mark.parametrize("source", ["e4m3", "e5m2"])
def test_on_the_way_through_f16_nothing_is_rounded(source):
    assert set(finite(source)) <= set(finite("f16"))


@pytest.mark.parametrize("pair", PAIRS)
def test_one_step_rounds_at_most(pair):
    """A second step that rounds would see what the first one made of a value."""
    source, target = pair
    steps = convert(*pair, 8, "nearest").instructions
    rounding = [s for s in steps if s.startswith("cvt.r") and not s.startswith("cvt.rn.f16x2.e")]
    assert len(rounding) == (
        target != "f32" and not (source in ("e4m3", "e5m2") and target == "f16")
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_toward_zero(pair):
    target = pair[1]
    if target in ("e4m3", "e5m2"):
        with pytest.raises(Refused, match=f"PTX rounds to {target} by rn, to nearest even, alone"):
            convert(*pair, 8, "toward_zero")
        return
    made = convert(*pair, 8, "toward_zero")
    assert any("cvt.rz" in step for step in made.instructions) == made.rounds
    assert all(name.endswith("_toward_zero") == made.rounds for name, _, _ in made.calls)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("count", range(1, 10))
def test_each_word_is_made_once(pair, count):
    bytes_ = {"f32": 4, "bf16": 2, "f16": 2, "e4m3": 1, "e5m2": 1}
    made = convert(*pair, count, "nearest")
    have, want = (math.ceil(count * bytes_[e] / 4) for e in pair)
    assert [n for _, to, _ in made.calls for n in to if n >= 0] == list(range(want))
    taken = [n for _, _, of in made.calls for n in of]
    assert sorted(set(taken)) == list(range(have))
    assert taken == sorted(taken)


def test_what_there_is_not():
    with pytest.raises(Refused, match="there is no conversion of i32 to f32"):
        convert("i32", "f32", 4, "nearest")
    with pytest.raises(Refused, match="there is no conversion of f32 to f32"):
        convert("f32", "f32", 4, "nearest")
    with pytest.raises(Refused, match="sm_80 has no conversions of fp8"):
        convert("f32", "e4m3", 4, "nearest", ARCHES["sm_80"])
    convert("f32", "bf16", 4, "nearest", ARCHES["sm_80"])
    assert issubclass(Refused, ValueError)

"""Which PTX instructions turn packed words of one element type into those of another.

A value is rounded once. Where there is no instruction for a pair of types, the way goes through a
type that holds each value of the source exactly: f32 for the two halves, f16 for the two of fp8. To
fp8 PTX rounds to nearest even alone, and what is too large becomes the largest finite value.
"""

from __future__ import annotations

from typing import Literal

from pipelink.abi import ELEMENT_BYTES
from pipelink.arch import Arch
from pipelink.transfer.places import Refused
from pipelink.transfer.records import WORD, Conversion

Rounding = Literal["nearest", "toward_zero"]
_FP8 = ("e4m3", "e5m2")
_FLOATING = ("f32", "bf16", "f16", *_FP8)
_MODE = {"nearest": "rn", "toward_zero": "rz"}
# What each type holds exactly: bits after the leading one, and exponents.
_HOLDS = {
    "f32": ("bf16", "f16", *_FP8),
    "f16": _FP8,
    "bf16": _FP8,
}


def convert(
    source: str, target: str, count: int, rounding: Rounding, arch: Arch | None = None
) -> Conversion:
    """How `count` values get from one element type to another; Refused says why they don't."""
    if source == target or source not in _FLOATING or target not in _FLOATING:
        raise Refused(f"there is no conversion of {source} to {target}")
    exact = source in _HOLDS.get(target, ())
    if target in _FP8 and rounding == "toward_zero":
        raise Refused(f"PTX rounds to {target} by rn, to nearest even, alone: not toward zero")
    if arch and not arch.fp8_convert and {source, target} & set(_FP8):
        raise Refused(f"{arch.name} has no conversions of fp8: they came with sm_89")
    toward = "_toward_zero" if rounding == "toward_zero" and not exact else ""
    return Conversion(
        source,
        target,
        count,
        _instructions(source, target, _MODE[rounding]),
        not exact,
        _calls(source, target, count, f"{source}_to_{target}{toward}"),
    )


def _instructions(source: str, target: str, mode: str) -> tuple[str, ...]:
    widen = {
        "bf16": ("shl.b32", "and.b32"),
        "f16": ("cvt.f32.f16",),
        "e4m3": ("cvt.rn.f16x2.e4m3x2", "cvt.f32.f16"),
        "e5m2": ("cvt.rn.f16x2.e5m2x2", "cvt.f32.f16"),
        "f32": (),
    }
    if target == "f32":
        return widen[source]
    if source in _FP8 and target != "bf16":
        step = f"cvt.rn.f16x2.{source}x2"
        return (step,) if target == "f16" else (step, f"cvt.rn.satfinite.{target}x2.f16x2")
    if target in _FP8:
        direct = f"cvt.rn.satfinite.{target}x2"
        return (f"{direct}.f16x2",) if source == "f16" else (*widen[source], f"{direct}.f32")
    mode = "rn" if source in _FP8 else mode
    return (*widen[source], f"cvt.{mode}.{target}x2.f32")


def _calls(
    source: str, target: str, count: int, function: str
) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]:
    """A call makes whole words of the narrower type; past the end the last word is taken once more,
    and what would be made there is dropped."""
    each = WORD // min(ELEMENT_BYTES[source], ELEMENT_BYTES[target])
    taken = [-(-count * ELEMENT_BYTES[e] // WORD) for e in (source, target)]
    at_once = [each * ELEMENT_BYTES[e] // WORD for e in (source, target)]
    return tuple(
        (
            function,
            tuple(w if w < taken[1] else -1 for w in range(n * at_once[1], (n + 1) * at_once[1])),
            tuple(min(w, taken[0] - 1) for w in range(n * at_once[0], (n + 1) * at_once[0])),
        )
        for n in range(-(-count // each))
    )

"""Machine code read back: encodings as nvdisasm shows them for sm_90a."""

import struct

import pytest

from pipelink import machine


def code(*lows):
    return b"".join(struct.pack("<QQ", low, 0x000FE20000010000) for low in lows)


@pytest.mark.parametrize(
    ("low", "barrier"),
    [
        (0x0000000000007B1D, (0, 0)),  # BAR.SYNC 0x0
        (0x0042000000007B1D, (1, 128)),  # BAR.SYNC 0x1, 0x80
        (0x0241000000007B1D, (9, 64)),  # BAR.SYNC 0x9, 0x40
        (0x00C1800000007B1D, (3, 96)),  # BAR.ARV 0x3, 0x60
        (0x03C0000000007B1D, (15, 0)),  # BAR.SYNC 0xf
    ],
)
def test_a_barrier(low, barrier):
    assert machine.uses("sm_90a", code(low)) == machine.Uses((), (barrier,))


def test_set_registers_in_order():
    found = machine.uses("sm_90a", code(0x000000E8000079C8, 0x00000028000079C8))
    assert found == machine.Uses((40, 232), ())


def test_other_instructions_are_no_use():
    assert machine.uses("sm_90a", code(0x00008000000079C5, 0x0)) == machine.Uses((), ())


def test_an_encoding_that_is_not_known_claims_nothing():
    assert machine.uses("sm_100a", code(0x0000000000007B1D)) is None

"""The comparison of machine code: what is counted, and each kind of difference."""

import pytest

from pipelink.sass import Difference, compare, parse

HEAD = '\t.section\t.text.{},"ax",@progbits\n'
MOV = (0x00, "MOV R1, c[0x0][0x28]", "0x00000a0000017a02", "0x000fe40000000f00")
FFMA = (0x10, "FFMA R2, R2, R3, R4", "0x0000000302027223", "0x000fe20000000004")
EXIT = (0x20, "EXIT", "0x000000000000794d", "0x000fea0003800000")


def listing(*rows, name="ffn"):
    """Rows as nvdisasm prints them with encodings."""
    text = HEAD.format(name)
    for address, instruction, low, high in rows:
        text += f"        /*{address:04x}*/                   {instruction} ;   /* {low} */\n"
        text += f"                                                       /* {high} */\n"
    return text


def test_an_instruction_has_its_address_text_and_both_words():
    (found,) = parse(listing(FFMA))["ffn"]
    assert (found.address, found.text) == (0x10, "FFMA R2, R2, R3, R4")
    assert found.encoding == "0000000302027223000fe20000000004"


def test_equal_listings_differ_in_nothing():
    result = compare(listing(MOV, FFMA, EXIT), listing(MOV, FFMA, EXIT))
    assert (result.instructions, result.differences, result.same_encoding) == (3, (), True)


@pytest.mark.parametrize(
    ("control", "differences"),
    [
        (
            listing(MOV, (0x10, "FFMA R2, R2, R3, R5", FFMA[2], "0x000fe20000000005"), EXIT),
            (Difference("ffn", 0x10, FFMA[1], "FFMA R2, R2, R3, R5"),),
        ),
        # The same text, other control bits: a stall count or a barrier is in the second word.
        (
            listing(MOV, (*FFMA[:3], "0x000fe40000000004"), EXIT),
            (Difference("ffn", 0x10, FFMA[1], FFMA[1]),),
        ),
        (listing(MOV, FFMA), (Difference("ffn", 0x20, "EXIT", None),)),
        (
            listing(MOV, FFMA, EXIT, (0x30, "NOP", *EXIT[2:])),
            (Difference("ffn", 0x30, None, "NOP"),),
        ),
        (
            listing(MOV, FFMA, EXIT) + listing(EXIT, name="helper"),
            (Difference("helper", 0x20, None, "EXIT"),),
        ),
    ],
    ids=["operand", "control bits", "missing tail", "longer tail", "extra function"],
)
def test_a_planted_difference_is_found(control, differences):
    result = compare(listing(MOV, FFMA, EXIT), control)
    assert result.differences == differences
    assert not result.same_encoding


def test_a_function_under_another_name_is_two_differences():
    result = compare(listing(EXIT), listing(EXIT, name="other"))
    assert [d.function for d in result.differences] == ["ffn", "other"]


@pytest.mark.parametrize("text", ["", HEAD.format("ffn"), "nvdisasm fatal: no code\n"])
def test_a_listing_without_instructions_is_never_the_same(text):
    with pytest.raises(ValueError, match=r"^the listing has no instructions$"):
        compare(text, text)

"""The reader of objects: what it finds, and that any other bytes are refused in words."""

from pathlib import Path

import pytest
from contracts import EPILOGUE, LOADER, MAINLOOP, add, change, encode, places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal_elf import CODE, CONTRACT, PLACES, elf, note, object_
from msgspec.structs import replace

from pipelink import abi, contract, form
from pipelink import elf as reader
from pipelink.abi import (
    Claim,
    Copy,
    Cover,
    Entry,
    Fact,
    Operation,
    Part,
    Port,
    Promise,
    Requirement,
    Tiling,
)
from pipelink.diagnostics import FilePlace, InputError

ROOT = Path(__file__).parent.parent
OBJECT = object_(note(PLACES, encode(places(EPILOGUE))), note(CONTRACT, encode(EPILOGUE)))
MANY = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def nested(depth: int) -> Operation:
    """A loop in a loop, and so on."""
    body = (nested(depth - 1),) if depth > 1 else ()
    return Operation("repeat", count="1", body=body)


def read(path: Path, data: bytes) -> str:
    """The component's name, or the refusal."""
    path.write_bytes(data)
    try:
        return contract.read_object(path).contract.component
    except InputError as error:
        return error.diagnostics[0].message


def test_a_contract_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "a.o"
    path.write_bytes(OBJECT)
    component = contract.read_object(path)
    assert component.contract == EPILOGUE
    assert component.places == places(EPILOGUE)
    assert component.fingerprint == abi.fnv1a(encode(EPILOGUE))


def test_notes_of_others_and_of_later_kinds_are_passed_over(tmp_path):
    other = note(CONTRACT, b"{}").replace(b"PipeLink", b"Whatever")
    later = note(0x7F, b"?")
    data = object_(other, later, note(CONTRACT, encode(EPILOGUE)))
    assert read(tmp_path / "a.o", data) == "epilogue"


def test_the_fingerprint_is_fnv1a():
    """The published test vectors, as text.cuh must have them too."""
    assert abi.fnv1a(b"") == 0xCBF29CE484222325
    assert abi.fnv1a(b"a") == 0xAF63DC4C8601EC8C
    assert abi.fnv1a(b"foobar") == 0x85944171F73967E8


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (change(LOADER, "facts", "stages", values=()), "fact 'stages' has no value"),
        (change(LOADER, "facts", "m", name="1m"), "'1m' is no name of a fact"),
        (
            change(LOADER, "facts", "tile_m", name="hidden"),
            "fact 'hidden' stands twice in the contract",
        ),
        (
            change(EPILOGUE, "claims", "staging", align=3),
            "claim 'staging' is aligned to 3: a power of two up to 1024",
        ),
        (
            change(EPILOGUE, "claims", "staging", align=0),
            "claim 'staging' is aligned to 0: a power of two up to 1024",
        ),
        (
            change(LOADER, "ports", "x", element="f64"),
            (
                "'x' has elements of type 'f64': known are bf16, f16, f32, i32, e4m3, e5m2, i8, u8, i64"
            ),
        ),
        (
            change(LOADER, "ports", "x", swizzle=96),
            "'x' has a swizzle of 96 bytes: 0, 32, 64 or 128",
        ),
        (change(LOADER, "ports", "out", parts=()), "port 'out' has no part"),
        (
            change(LOADER, "ports", "out", parts=(Part("x", "bf16", ("1",)),) * 2),
            "part 'x' stands twice in the contract",
        ),
        (
            add(LOADER, "entries", Entry("more", "step", ("zzz",))),
            "entry 'more' has argument 'zzz', no port and no extent",
        ),
        (
            add(LOADER, "claims", Claim("stages", "shared", "8")),
            "'stages' is a fact and a claim",
        ),
        (
            add(EPILOGUE, "claims", Claim("ready", "mbarrier", "2")),
            "claim 'ready' says nothing of who arrives",
        ),
        (
            change(MAINLOOP, "ports", "in", by=""),
            "port 'in' says nothing of who arrives",
        ),
        (
            change(EPILOGUE, "claims", "staging", during=("walk",)),
            "claim 'staging' lives during 'walk', which is no step",
        ),
        (
            add(LOADER, "facts", Fact("fast", "provides", (1,), type="bool")),
            "fact 'fast' of type bool has the value '1'",
        ),
        (
            add(LOADER, "facts", Fact("kind", "provides", ("f8",), type="element")),
            (
                "fact 'kind' is element type 'f8': known are bf16, f16, f32, i32, e4m3, e5m2, i8, u8, i64"
            ),
        ),
        (
            add(LOADER, "facts", Fact("order", "provides", ("(4,2):(2",), type="layout")),
            "fact 'order': '(4,2):(2' is no layout",
        ),
        (
            add(LOADER, "facts", Fact("depth", "imports", (1, 2), default=3)),
            "fact 'depth' has a default of 3, which it does not support",
        ),
        (
            add(LOADER, "facts", Fact("depth", "provides", (1, 2))),
            "fact 'depth' has 2 values, it provides one",
        ),
        (
            add(LOADER, "promises", Promise("finite", "gone", "promises", "no NaN")),
            "'finite' is said of port 'gone', which it does not have",
        ),
        (
            change(LOADER, "ports", "x", covers=(Cover("row", "tile_m"),)),
            "port 'x' covers 1 sides of a tensor that has 2",
        ),
        (
            change(
                LOADER, "ports", "out", parts=(Part("x", "bf16", ("1",), copies=(Copy("z", "1"),)),)
            ),
            "part 'x' of port 'out' is filled by 'z', which is no port with a box",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("wait", "out"),)),
            "entry 'run' plays wait of 'out', which is no ring 'in' port",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("repeat"),)),
            "entry 'run' plays a repeat that needs one of a count and a name",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("maybe", name="a b"),)),
            "entry 'run' plays a maybe named 'a b'",
        ),
        (
            change(LOADER, "entries", "run", plays=(nested(9),)),
            "entry 'run' plays loops 9 deep, 8 at most",
        ),
        (
            change(LOADER, "entries", "run", tiles=(Tiling("m", "tile_m"),)),
            "entry 'run' has 1 sides of tiles, a schedule has 2",
        ),
        (
            add(LOADER, "ports", Port("a.b", "global", "in", "bf16")),
            "'a.b' is no name of a port",
        ),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(tmp_path, changed, fault):
    path = tmp_path / "a.o"
    assert read(path, object_(note(CONTRACT, encode(changed)))) == f"{path}: {fault}"


@pytest.mark.parametrize(
    ("changed", "line", "way_out"),
    [
        (change(LOADER, "facts", "tile_m", name="hidden"), ":13", ""),
        (change(LOADER, "facts", "m", name="1m"), ":17", ""),
        (add(LOADER, "claims", Claim("warps", "warps", "1"), Claim("w", "warps", "1")), ":32", ""),
        (change(LOADER, "ports", "x", covers=(Cover("row", "tile_m"),)), ":40", ""),
        (change(LOADER, "entries", "run", plays=(Operation("wait", "out"),)), ":50", ""),
        (change(LOADER, "entries", "run", arguments=("z",)), ":50", "list 'z' in pl::contract"),
        (replace(LOADER, component="a b"), "", ""),
    ],
)
def test_a_fault_stands_at_the_line_of_its_item(changed, line, way_out):
    data = object_(note(CONTRACT, encode(changed)), note(PLACES, encode(places(changed))))
    with pytest.raises(InputError) as caught:
        contract.component_of(data, Path("a.o"))
    (found,) = caught.value.diagnostics
    assert found.primary == FilePlace(f"loader.cu{line}" if line else "a.o")
    assert found.help == way_out


def test_a_value_of_more_than_64_bits_is_refused(tmp_path):
    path = tmp_path / "a.o"
    text = encode(add(LOADER, "facts", Fact("big", "provides", (7,)))).replace(
        b"[7]", b"[9223372036854775808]"
    )
    assert (
        read(path, object_(note(CONTRACT, text)))
        == f"{path}: fact 'big' has a value of more than 64 bits"
    )


def test_a_deeply_nested_text_is_refused(tmp_path):
    path = tmp_path / "a.o"
    text = b'{"component":' + b"[" * 100_000
    assert read(path, object_(note(CONTRACT, text))) == (
        f"{path}: the contract's note is damaged: Expected `str`, got `array` - at `$.component`"
    )


def test_a_thousand_facts_are_read_at_once(tmp_path):
    """The check for names that stand twice is not quadratic."""
    facts = [Fact(f"f{n}", "extent") for n in range(10_000)]
    assert (
        read(tmp_path / "a.o", object_(note(CONTRACT, encode(add(LOADER, "facts", *facts)))))
        == "loader"
    )


def test_a_section_table_without_end_is_refused(tmp_path):
    """With e_shnum 0 section 0 has the count, with e_shentsize 0 every section is section 0."""
    path = tmp_path / "a.o"
    data = bytearray(elf([CODE]))
    names = int.from_bytes(data[40:48], "little") + 2 * 64
    data[40:48] = names.to_bytes(8, "little")
    data[58:62] = bytes(4)
    data[names + 32 : names + 40] = (1 << 60).to_bytes(8, "little")
    assert (
        read(path, bytes(data)) == f"{path} is no component: its sections are truncated or damaged"
    )


@MANY
@given(data=st.data())
def test_changed_bytes_of_an_object_are_read_or_refused(tmp_path, data):
    changed = bytearray(OBJECT)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    assert read(tmp_path / "a.o", bytes(changed))


@MANY
@given(at=st.integers(0, 63), value=st.integers(0, 255))
def test_changed_bytes_of_an_elf_header_are_read_or_refused(tmp_path, at, value):
    assert read(tmp_path / "a.o", OBJECT[:at] + bytes([value]) + OBJECT[at + 1 :])


@MANY
@given(length=st.integers(0, len(OBJECT) - 1))
def test_a_truncated_object_is_refused(tmp_path, length):
    path = tmp_path / "a.o"
    assert read(path, OBJECT[:length]).startswith(f"{path} is no component: it")


@MANY
@given(
    data=st.binary(max_size=400),
    magic=st.sampled_from([b"", b"\x7fELF", b"\x7fELF\2\1\1", b"!<arch>\n"]),
)
def test_any_bytes_are_refused(tmp_path, data, magic):
    path = tmp_path / "a.o"
    message = read(path, magic + data)
    assert message.startswith(f"{path} is no component: it") or message == f"{path} has no contract"


@MANY
@given(text=st.binary(max_size=200))
def test_any_text_of_a_note_is_refused(tmp_path, text):
    path = tmp_path / "a.o"
    message = read(path, object_(note(CONTRACT, text)))
    assert message.startswith(f"{path}: the contract's note is damaged: ")


@MANY
@given(data=st.data())
def test_changed_bytes_of_a_real_note_are_read_or_refused(tmp_path, objects, data):
    whole = bytearray((objects / "components/ffn/epilogue.o").read_bytes())
    first = whole.index(b"PipeLink")
    last = whole.rindex(b"PipeLink") + 64
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(first - 12, last))] = data.draw(st.integers(0, 255))
    assert read(tmp_path / "a.o", bytes(whole))


def test_a_real_object_has_its_contract_lines_and_device_code(objects):
    path = objects / "components/ffn/loader.o"
    component = contract.read_object(path)
    found = reader.read_notes(path.read_bytes())
    assert component.contract.component == "tma_loader"
    assert component.contract.facts[0] == Fact("stages", "chooses", (4, 2, 3, 5, 6, 8))
    assert found.has_device_code
    assert sorted(kind for kind, _, _ in found.records) == [1, 2, 3]


def test_the_places_of_a_real_object_are_the_lines_of_its_source(objects):
    component = contract.read_object(objects / "components/ffn/mainloop.o")
    assert component.places is not None
    for fact, place in zip(component.contract.facts, component.places.facts, strict=True):
        file, _, line = place.partition(":")
        source = (ROOT / file).read_text().splitlines()
        assert f'"{fact.name}"' in source[int(line) - 1]


@pytest.mark.parametrize(
    "changed",
    [
        replace(LOADER, owner="x" * 1025),
        replace(LOADER, owner="a\tb"),
        replace(LOADER, owner="a\u202eb"),
        add(LOADER, "facts", Fact("big", "provides", (1 << 62,))),
        add(LOADER, "requires", *[Requirement("1", "y")] * 1024),
        add(LOADER, "requires", *[Requirement("1 + " * 200 + "1", "y")] * 40),
        change(LOADER, "entries", "run", plays=(Operation("acquire", "out"),) * 256),
    ],
)
def test_what_may_be_too_large_is_looked_at_record_by_record(changed):
    """The quick look at a note's text lets nothing through that the slow one would name."""
    assert not form.plainly_small_contract(encode(changed))
    assert form.plainly_small_contract(encode(LOADER))

"""Hostile objects: what bench/fuzz.py found, that it finds, and a slice of it."""

import sys
import time
from collections import Counter
from pathlib import Path
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from contracts import ALL, EPILOGUE, LOADER, MAINLOOP, add, change, encode, repeat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal_elf import CONTRACT, CORRUPT, NOTE, elf, note, object_, repeated
from msgspec.structs import replace

from pipelink import abi, contract
from pipelink.abi import (
    Claim,
    Contract,
    Cover,
    Fact,
    Operation,
    Part,
    Port,
    Promise,
    Record,
    Requirement,
)
from pipelink.diagnostics import FilePlace, InputError
from pipelink.report.locate import locator

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import fuzz
import judge

FAST = 1.0  # seconds of processor time, as in the campaign


def refusal(data: bytes) -> str:
    """What the reader says of an object; nothing if it takes it."""
    try:
        contract.component_of(data, Path("a.o"))
    except InputError as error:
        return error.diagnostics[0].message.removeprefix("a.o").removeprefix(": ")
    return ""


def read(changed: Contract) -> str:
    return refusal(object_(note(CONTRACT, encode(changed))))


# --- the reader


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("huge_number.o", "a number of more than 64 bits as align"),
        ("long_owner.o", "a text of 1025 characters as owner, 1024 at most"),
        ("long_place.o", "a text of 1028 characters as entries, 1024 at most"),
        ("no_mode.o", "'fast sqrt=1 fma=1' is no floating-point mode"),
        (
            "notes_over_notes.o",
            " is no component: .note.pipelink has 1063200 bytes, 1048576 at most",
        ),
        ("owner_of_a_terminal.o", "a text as owner with '\\x1b', which can't be printed"),
        ("owner_of_two_lines.o", "the owner is 'a\\n#error', which is no name"),
        ("rows_of_nothing.o", " is no component: its sections are truncated or damaged"),
    ],
)
def test_a_corrupt_file_is_refused(name, message):
    assert refusal((CORRUPT / name).read_bytes()) == message


FACTS = tuple(Fact(f"f{n}", "extent") for n in range(abi.MAX_FACTS + 1))
CLAIMS = tuple(Claim(f"c{n}", "shared", "8") for n in range(abi.MAX_ITEMS + 1))
LONG = tuple(Requirement("tile_k" + "+1" * 500 + f"<{n}", "") for n in range(17))
FULL = Part("full", "bf16", ("1",))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(LOADER, facts=FACTS), "a list of 16385 facts, 16384 at most"),
        (replace(LOADER, claims=CLAIMS), "a list of 1025 claims, 1024 at most"),
        (
            replace(
                LOADER, promises=(Promise("a", "x", "needs", ""),) * 1024, requires=LONG[:1] * 1024
            )
            and change(LOADER, "ports", "x", shape=("1",) * 6, covers=()),
            "'x' has 6 sides: 5 at most, and a part has one",
        ),
        (
            change(LOADER, "ports", "out", parts=(Part("x", "bf16", ()),)),
            "'x' has 0 sides: 5 at most, and a part has one",
        ),
        (add(LOADER, "requires", *LONG), "its expressions have 17224 characters, 16384 at most"),
        (
            add(LOADER, "facts", *[Fact("o", "imports", ("(1):(1)" * 100,) * 30, type="layout")]),
            "its expressions have 21197 characters, 16384 at most",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("acquire", "out"),) * 257),
            "its entries play 257 operations, 256 at most",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("maybe", count="2", name="a"),)),
            "entry 'run' plays a maybe that needs one of a count and a name",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("repeat", "out", "2"),)),
            "entry 'run' plays a repeat of 'out', which has a body alone",
        ),
        (
            change(LOADER, "entries", "run", plays=(Operation("acquire", "out", "2"),)),
            "entry 'run' plays acquire of 'out' with a count, a name or a body",
        ),
        (
            change(LOADER, "ports", "out", parts=(FULL,)),
            "part 'full' of port 'out' has a name that is taken",
        ),
        (replace(EPILOGUE, owner="me\\"), "the owner is 'me\\\\', which is no name"),
    ],
)
def test_a_contract_out_of_bounds_is_refused(changed, message):
    assert read(changed) == message


def test_a_file_without_end_is_refused():
    with pytest.raises(InputError, match="/dev/zero has more than 134217728 bytes"):
        contract.read_object(Path("/dev/zero"))


@pytest.mark.parametrize(
    "data",
    [
        repeated(object_(note(CONTRACT, encode(LOADER))), 60_000),
        repeated(elf([("x" * 200_000, 1, b"", 0)]), 60_000),
        object_(*[note(9, b"")] * 30_000),
        elf([(".note.pipelink", NOTE, note(9, bytes(1 << 19)), 0)] * 1000),
    ],
)
def test_a_table_of_many_sections_or_notes_is_read_at_once(data):
    begin = time.process_time()
    assert refusal(data)
    assert time.process_time() - begin < FAST


def test_a_line_of_many_digits_is_a_file():
    spot = locator(None, None)(FilePlace(f"a.cu:{'9' * 5000}"))
    assert (spot.line, spot.file[:5]) == (0, "a.cu:")


# --- the passes


def test_a_box_of_fewer_sides_than_its_tensor_is_one_finding(toy):
    toy.contracts["loader"] = change(LOADER, "ports", "x", box=("tile_m",))
    assert (
        "PL027: port 'load.x' of loader of data (instance 'load') copies a box of [128] out of 2 dimensions"
        in (toy.messages())
    )


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("loader", change(LOADER, "ports", "x", box=("m", "tile_k"))),
        ("loader", change(LOADER, "ports", "x", covers=(Cover("row", "m"), Cover("whole", "m")))),
        ("mainloop", change(MAINLOOP, "ports", "acc", shape=("m", "tile_n"))),
    ],
)
def test_an_extent_is_no_size_that_is_computed_with(toy, name, changed):
    toy.contracts[name] = changed
    assert [m for m in toy.messages() if "'m' reads 'm', which has no value" in m]


def test_barriers_without_end_are_refused(toy):
    claim = Claim("many", "barrier", "128", fixed=20, count="4611686018427387904")
    toy.contracts["loader"] = add(LOADER, "claims", claim)
    assert toy.messages()[0].startswith(
        "PL032: barrier 'many' of loader of data (instance 'load') is fixed to 20 + "
    )


def test_stack_of_more_than_a_thread_has_is_refused(toy):
    toy.contracts["loader"] = add(LOADER, "claims", Claim("deep", "stack", "1 + 512 * 1024"))
    (message,) = toy.messages()
    assert message.endswith("1 + 512 * 1024 is 524289, at most 524288 can be")


def test_a_layout_of_more_than_64_bits_is_refused(toy):
    sizes = ",".join(["tile_m * 1000000"] * 40)
    layout = f"(({sizes}),1):(({sizes}),1)"
    toy.contracts["mainloop"] = change(MAINLOOP, "ports", "acc", layout=layout)
    assert toy.messages()[0].endswith("has a mode of more than 64 bits")


def test_very_many_combinations_are_told_in_words(toy):
    maybes = tuple(
        Operation("maybe", name=f"n{n}", body=(Operation("acquire", "out"),)) for n in range(90)
    )
    plays = (*LOADER.entries[0].plays, *maybes)
    toy.contracts["loader"] = change(LOADER, "entries", "run", plays=plays)
    begin = time.process_time()
    assert toy.messages()
    assert time.process_time() - begin < FAST


# --- time


def derived(count: int) -> list[Fact]:
    return [
        Fact(f"d{n}", "derives", value=f"d{n + 1}" if n < count - 1 else "1") for n in range(count)
    ]


@pytest.mark.parametrize(
    "changed",
    [
        add(LOADER, "facts", *derived(3000)),
        add(LOADER, "facts", *[Fact(f"tile_n{n}", "imports") for n in range(9000)]),
        add(LOADER, "facts", *[Fact(f"{'o' * 20}{n}", "imports") for n in range(40)]),
        add(LOADER, "facts", *[Fact(f"tile_m{n}", "provides", (n,)) for n in range(9000)]),
        add(LOADER, "requires", *[Requirement("hidden<0", "")] * 1024),
        add(
            LOADER, "claims", *[Claim(f"c{n}", "barrier", "32", scope="warp") for n in range(1020)]
        ),
        add(
            LOADER,
            "ports",
            *[Port(f"p{n}", "global", "in", "bf16", ("m", "m")) for n in range(1020)],
        ),
        change(
            LOADER, "ports", "out", parts=tuple(Part(f"p{n}", "f32", ("8",)) for n in range(1024))
        ),
    ],
    ids=["chain", "imports", "alike", "offers", "requires", "claims", "ports", "parts"],
)
def test_a_large_contract_is_planned_or_refused_at_once(toy, changed):
    toy.contracts["loader"] = changed
    kernel = toy.kernel()
    begin = time.process_time()
    try:
        toy.plan()
    except InputError as error:
        assert len(error.diagnostics) < 500
    assert time.process_time() - begin < FAST
    assert kernel.instances


def test_pipelines_that_never_come_to_a_state_again_are_left_in_time(toy):
    """Loops of 89 x 97 x 83 rounds against 97 x 83 x 89, over 1009 stages."""
    orders = {"loader": ("89", "97", "83"), "mainloop": ("97", "83", "89")}
    for name, counts in orders.items():
        own = ALL[name]
        body = own.entries[0].plays[0].body
        for count in counts:
            body = (repeat(count, *body),)
        toy.contracts[name] = change(own, "entries", "run", plays=body)
    toy.contracts["loader"] = change(toy.contracts["loader"], "facts", "stages", values=(1009,))
    begin = time.process_time()
    assert toy.messages()[0].startswith("PL030")
    assert time.process_time() - begin < FAST


# --- the campaign itself


def test_a_slice_of_the_campaign_finds_nothing(tmp_path):
    """In this process: about 5 s."""
    judge.lay(tmp_path, fuzz.KERNELS)
    counts = {"contract": 120, "lines": 20, "wide": 44, "object": 60, "random": 40}
    verdicts = [
        judge.judge(tmp_path, fuzz.make(0, kind, number), kind, number, limited=False)
        for kind, count in counts.items()
        for number in range(count)
    ]
    assert [v for v in verdicts if v.wrong or v.all_s > FAST] == []
    stages = Counter(v.stage for v in verdicts)
    assert min(stages[stage] for stage in ("read", "passes", "plan")) > 20


def test_the_good_kernels_of_the_campaign_have_plans(tmp_path):
    judge.lay(tmp_path, fuzz.KERNELS)
    for name in fuzz.KERNELS:
        case = fuzz.Case("good", name, {})
        assert judge.run(tmp_path, case, judge.Clock(limited=False)) == ("plan", "")


def wrong(do) -> dict[str, int]:
    """The verdicts of three inputs with a reader that does something on the second one."""
    seen = []

    def run(*_):
        seen.append(1)
        if len(seen) == 2:
            do()
        return "read", "PL001"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "run", run)
        patch.setattr(fuzz, "SILENT_S", 1.5)
        return Counter(v.stage for v in fuzz.campaign(0, {"random": 3}, 1))


def spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("do", "stage"),
    [
        (lambda: 1 / 0, "exception"),
        (spin, "slow"),
        (lambda: time.sleep(60), "hang"),
        (lambda: bytearray(300 << 20), "memory"),
        (lambda: bytearray(1 << 40), "exception"),
        (lambda: __import__("os")._exit(3), "crash"),
    ],
    ids=["exception", "slow", "hang", "memory", "limit", "crash"],
)
def test_the_campaign_sees(do, stage):
    assert wrong(do) == {"read": 2, stage: 1}


# --- whole contracts from the types


def of(kind, depth=0):
    """Values of a type of the format."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is UnionType:
        return st.one_of([of(a, depth) for a in args])
    if origin is tuple and args[1] is not ...:
        return st.tuples(*[of(a, depth) for a in args])
    if origin is tuple:
        return st.lists(of(args[0], depth + 1), max_size=3 if depth < 5 else 0).map(tuple)
    if isinstance(kind, type) and issubclass(kind, Record):
        return st.builds(kind, **{n: of(t, depth) for n, t in get_type_hints(kind).items()})
    simple = {
        int: st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 256),
        bool: st.booleans(),
        type(None): st.none(),
        str: st.sampled_from(["", "a", "b", "tile_m", "m", "out", "1", "f32"])
        | st.text(max_size=9),
    }
    return simple[kind]


SECTIONS = get_type_hints(Contract)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_contract_is_read_as_it_was_written_or_refused(data):
    changed = data.draw(st.sampled_from(list(ALL.values())))
    for section in data.draw(st.lists(st.sampled_from(list(SECTIONS)), max_size=3, unique=True)):
        own = data.draw(of(SECTIONS[section]))
        kept = (
            getattr(changed, section) if isinstance(own, tuple) and section != "toolchain" else ()
        )
        changed = replace(changed, **{section: (*kept, *own) if kept else own})
    try:
        found = contract.component_of(object_(note(CONTRACT, encode(changed))), Path("a.o"))
    except InputError:
        return
    assert found.contract == changed
    assert found.fingerprint == abi.fnv1a(encode(changed))

"""Hostile objects: what bench/fuzz.py found, what it sees, and a slice of it."""

import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from contracts import ALL, EPILOGUE, LOADER, MAINLOOP, add, change, encode, repeat
from contracts import contract as bare
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal_elf import CONTRACT, CORRUPT, elf, note, object_, repeated
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
    Record,
    Requirement,
    SharedType,
)
from pipelink.diagnostics import FilePlace, InputError
from pipelink.report.locate import locator

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import fuzz
import judge

FAST = judge.MOST_SECONDS


def refusal(data: bytes) -> str:
    """What the reader says of an object; nothing if it takes it."""
    try:
        contract.component_of(data, Path("a.o"))
    except InputError as error:
        return error.diagnostics[0].message.removeprefix("a.o").removeprefix(": ")
    return ""


@contextlib.contextmanager
def in_time():
    begin = time.process_time()
    yield
    assert time.process_time() - begin < FAST


# What is out of the reader's bounds.


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("huge_number.o", "a number of more than 64 bits as align"),
        ("long_owner.o", "a text of 1025 characters as owner, 1024 at most"),
        ("long_place.o", "a text of 1028 characters as entries, 1024 at most"),
        ("no_mode.o", "'fast sqrt=1 fma=1' is no floating-point mode"),
        (
            "notes_over_notes.o",
            " is no component: .note.pipelink has 1075200 bytes, 1048576 at most",
        ),
        ("owner_of_a_terminal.o", "a text as owner with '\\x1b', which can't be printed"),
        ("owner_of_two_lines.o", "the owner is 'a\\n#error', which is no name"),
        ("rows_of_nothing.o", " is no component: its sections are truncated or damaged"),
    ],
)
def test_a_corrupt_file_is_refused(name, message):
    assert refusal((CORRUPT / name).read_bytes()) == message


CLAIMS = tuple(Claim(f"c{n}", "shared", "8") for n in range(1025))
TYPES = tuple(SharedType(f"t{n}", 1, 1, ()) for n in range(4097))
LONG = (Requirement("1" + "+1" * 500, ""),) * 17
LAYOUTS = Fact("o", "imports", ("(1):(1)" * 100,) * 30, type="layout")


def plays(*operations: Operation) -> Contract:
    return change(LOADER, "entries", "run", plays=operations)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (replace(LOADER, claims=CLAIMS), "a list of 1025 claims, 1024 at most"),
        (bare("a", "me", types=TYPES), "its lists have 4099 items, 4096 at most"),
        (bare("a", "me", requires=LONG), "its expressions have 17017 characters, 16384 at most"),
        (bare("a", "me", facts=(LAYOUTS,)), "its expressions have 21000 characters, 16384 at most"),
        (
            change(LOADER, "ports", "x", shape=("1",) * 6, covers=()),
            "'x' has 6 sides: 5 at most, and a part has one",
        ),
        (
            change(LOADER, "ports", "out", parts=(Part("x", "bf16", ()),)),
            "'x' has 0 sides: 5 at most, and a part has one",
        ),
        (
            change(LOADER, "ports", "out", parts=(Part("full", "bf16", ("1",)),)),
            "part 'full' of port 'out' has a name that is taken",
        ),
        (
            plays(*[Operation("acquire", "out")] * 257),
            "its entries play 257 operations, 256 at most",
        ),
        (
            plays(Operation("maybe", count="2", name="a")),
            "entry 'run' plays a maybe that needs one of a count and a name",
        ),
        (
            plays(Operation("repeat", "out", "2")),
            "entry 'run' plays a repeat of 'out', which has a body alone",
        ),
        (
            plays(Operation("acquire", "out", "2")),
            "entry 'run' plays acquire of 'out' with a count, a name or a body",
        ),
        (replace(EPILOGUE, owner="me\\"), "the owner is 'me\\\\', which is no name"),
    ],
)
def test_a_contract_out_of_bounds_is_refused(changed, message):
    assert refusal(object_(note(CONTRACT, encode(changed)))) == message


def test_a_file_without_end_is_refused():
    with pytest.raises(InputError, match="/dev/zero has more than 134217728 bytes"):
        contract.read_object(Path("/dev/zero"))


@pytest.mark.parametrize(
    "made",
    [
        lambda: repeated(object_(note(CONTRACT, encode(LOADER))), 60_000),
        lambda: repeated(object_(note(9, bytes(900_000))), 60_000),
        lambda: repeated(elf([("x" * 200_000, 1, b"", 0)]), 60_000),
        lambda: object_(*[note(9, b"")] * 30_000),
    ],
    ids=["contracts", "notes", "names", "small"],
)
def test_many_sections_or_notes_are_read_at_once(made):
    data = made()
    with in_time():
        assert refusal(data)


def test_a_line_of_many_digits_is_a_part_of_the_file():
    text = f"a.cu:{'9' * 5000}"
    assert locator(None, None)(FilePlace(text)).file == text


# What the passes let out, or never came back from.


def test_a_box_of_fewer_sides_than_its_tensor_is_one_finding(toy):
    toy.contracts["loader"] = change(LOADER, "ports", "x", box=("tile_m",))
    of = "port 'load.x' of loader of data (instance 'load')"
    assert f"PL027: {of} copies a box of [128] out of 2 dimensions" in toy.messages()


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
    assert any("'m' reads 'm', which has no value" in message for message in toy.messages())


def test_barriers_without_end_are_refused(toy):
    claim = Claim("many", "barrier", "128", fixed=20, count="4611686018427387904")
    toy.contracts["loader"] = add(LOADER, "claims", claim)
    assert "(instance 'load') is fixed to 20 + 4611686018427387903 = " in toy.messages()[0]


def test_stack_of_more_than_a_thread_has_is_refused(toy):
    toy.contracts["loader"] = add(LOADER, "claims", Claim("deep", "stack", "1 + 512 * 1024"))
    assert toy.messages()[0].endswith("1 + 512 * 1024 is 524289, at most 524288 can be")


def test_a_layout_of_more_than_64_bits_is_refused(toy):
    sizes = ",".join(["tile_m*99999"] * 30)
    layout = f"(({sizes}),1):(({sizes}),1)"
    toy.contracts["mainloop"] = change(MAINLOOP, "ports", "acc", layout=layout)
    assert toy.messages()[0].endswith("has a mode of more than 64 bits")


def test_very_many_combinations_are_told_in_words(toy):
    for name, own in (("loader", LOADER), ("mainloop", MAINLOOP)):
        body = own.entries[0].plays[0].body
        maybes = tuple(Operation("maybe", name=f"n{n}", body=body) for n in range(80))
        toy.contracts[name] = change(own, "entries", "run", plays=maybes)
    with in_time():
        remarks = toy.plan().remarks
    assert "64 of very many combinations of named counts and decisions were played" in remarks


def derived(count: int) -> list[Fact]:
    """A chain, its end first."""
    last = count - 1
    return [Fact(f"d{n}", "derives", value=f"d{n + 1}" if n < last else "1") for n in range(count)]


def many(count: int, make) -> list[Record]:
    return [make(n) for n in range(count)]


@pytest.mark.parametrize(
    "changed",
    [
        add(LOADER, "facts", *derived(3000)),
        add(LOADER, "facts", *many(9000, lambda n: Fact(f"tile_n{n}", "imports"))),
        add(LOADER, "facts", *many(9000, lambda n: Fact(f"tile_m{n}", "provides", (n,)))),
        add(LOADER, "facts", *many(60, lambda n: Fact(f"{'tile' * 9}{n}", "imports"))),
        add(LOADER, "requires", *[Requirement("hidden<0", "")] * 1000),
        add(LOADER, "claims", *many(1020, lambda n: Claim(f"c{n}", "barrier", "32", scope="warp"))),
        add(LOADER, "ports", *many(1020, lambda n: Port(f"p{n}", "global", "in", "f32", ("m",)))),
        change(
            LOADER, "ports", "out", parts=tuple(many(1024, lambda n: Part(f"p{n}", "f32", ("8",))))
        ),
    ],
    ids=["chain", "imports", "offers", "alike", "requires", "claims", "ports", "parts"],
)
def test_a_large_contract_is_planned_or_refused_at_once(toy, changed):
    toy.contracts["loader"] = changed
    with in_time(), contextlib.suppress(InputError):
        toy.plan()


def test_rings_that_come_to_no_state_again_are_left_in_time(toy):
    """Loops of 89 x 97 x 83 rounds against 97 x 83 x 89, over 1009 stages."""
    for name, counts in {"loader": (89, 97, 83), "mainloop": (97, 83, 89)}.items():
        body = ALL[name].entries[0].plays[0].body
        for count in counts:
            body = (repeat(str(count), *body),)
        toy.contracts[name] = change(ALL[name], "entries", "run", plays=body)
    toy.contracts["loader"] = change(toy.contracts["loader"], "facts", "stages", values=(1009,))
    with in_time():
        assert toy.messages()[0].startswith("PL030")


# The campaign itself.


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
        (lambda: os._exit(3), "crash"),
    ],
    ids=["exception", "slow", "hang", "memory", "limit", "crash"],
)
def test_the_campaign_sees(monkeypatch, do, stage):
    """Of three inputs the second one does it."""
    seen = []

    def run(*_):
        seen.append(1)
        if len(seen) == 1:  # of the worker: a fork has fewer resident pages of files than its parent
            judge.MOST_KIB = judge.peak_kib() + (200 << 10)
        if len(seen) == 2:
            do()
        return "read", "PL001"

    monkeypatch.setattr(judge, "run", run)
    monkeypatch.setattr(fuzz, "SILENT_S", 1.5)
    found = Counter(v.stage for v in fuzz.campaign(0, {"random": 3}, 1))
    assert found == {"read": 2, stage: 1}


# Whole contracts, from the types of the format.


def of(kind, depth=0):
    """Values of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is UnionType:
        return st.one_of([of(a, depth) for a in args])
    if origin is tuple and args[1] is not ...:
        return st.tuples(*[of(a, depth) for a in args])
    if origin is tuple:
        return st.lists(of(args[0], depth + 1), max_size=3).map(tuple) if depth < 4 else st.just(())
    if issubclass(kind, Record):
        return st.builds(kind, **{n: of(t, depth) for n, t in get_type_hints(kind).items()})
    simple = {
        int: st.integers(0, 256) | st.integers(-(1 << 63), (1 << 63) - 1),
        bool: st.booleans(),
        type(None): st.none(),
        str: st.sampled_from(["", "a", "b", "tile_m", "m", "out", "1", "f32"])
        | st.text(max_size=9),
    }
    return simple[kind]


SECTIONS = {name: of(kind) for name, kind in get_type_hints(Contract).items()}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_contract_is_read_as_it_was_written_or_refused(data):
    changed = data.draw(st.sampled_from(list(ALL.values())))
    for section in data.draw(st.lists(st.sampled_from(list(SECTIONS)), max_size=3, unique=True)):
        own, kept = data.draw(SECTIONS[section]), getattr(changed, section)
        longer = isinstance(own, tuple) and section != "toolchain" and data.draw(st.booleans())
        changed = replace(changed, **{section: (*kept, *own) if longer else own})
    text = encode(changed)
    try:
        found = contract.component_of(object_(note(CONTRACT, text)), Path("a.o"))
    except InputError:
        return
    assert (found.contract, found.fingerprint) == (changed, abi.fnv1a(text))

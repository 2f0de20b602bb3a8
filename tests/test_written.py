"""Contracts written by hand: what they become, where their lines are, what they are refused for."""

import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from pipelink.abi import (
    Build,
    Claim,
    Contract,
    Entry,
    Fact,
    Operation,
    Part,
    Places,
    Port,
    Requirement,
)
from pipelink.diagnostics import InputError
from pipelink.positions import positions
from pipelink.written import read_written

FILE = Path("loader.contract.toml")
LOADER = """\
component = "loader"
owner = "data"
requires = [
  { condition = "tile_k > 0", why = "there is a tile" },
]

[[facts]]
name = "stages"
kind = "chooses"
values = [4, 2]

[[facts]]
name = "tile_k"
kind = "provides"
values = [64]

[[claims]]
name = "registers"
kind = "registers"
amount = 40

[[ports]]
name = "out"
space = "shared"
direction = "out"
stages = "stages"
arrivals = 1
[[ports.parts]]
name = "x"
element = "bf16"
shape = [128, "tile_k"]

[[entries]]
name = "run"
kind = "step"
arguments = ["out"]
[[entries.plays]]
do = "repeat"
count = 3
body = [{ do = "acquire", on = "out" }, { do = "commit", on = "out" }]
"""


def faults(text):
    with pytest.raises(InputError) as caught:
        read_written(FILE, text)
    assert {d.code for d in caught.value.diagnostics} == {"PL003"}
    return [(d.primary.file, d.message, d.help) for d in caught.value.diagnostics]


def test_a_written_contract_has_the_fields_of_the_format():
    stage = (Operation("acquire", "out"), Operation("commit", "out"))
    assert read_written(FILE, LOADER)[0] == Contract(
        component="loader",
        owner="data",
        version="1.0",
        target="sm_90a",
        floating_point="ftz=0 div=1 sqrt=1 fma=1",
        toolchain=(13, 5),
        facts=(Fact("stages", "chooses", (4, 2)), Fact("tile_k", "provides", (64,))),
        requires=(Requirement("tile_k > 0", "there is a tile"),),
        claims=(Claim("registers", "registers", "40"),),
        ports=(
            Port(
                "out",
                "shared",
                "out",
                stages="stages",
                arrivals="1",
                parts=(Part("x", "bf16", ("128", "tile_k")),),
            ),
        ),
        entries=(Entry("run", "step", ("out",), (Operation("repeat", count="3", body=stage),)),),
    )


def test_an_item_stands_at_its_header_or_at_its_inline_table():
    assert read_written(FILE, LOADER)[1] == Places(
        "loader",
        Build("loader.contract.toml"),
        facts=("loader.contract.toml:7", "loader.contract.toml:12"),
        requires=("loader.contract.toml:4",),
        claims=("loader.contract.toml:17",),
        ports=("loader.contract.toml:22",),
        entries=("loader.contract.toml:33",),
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "way_out"),
    [
        (
            'owner = "data"',
            'ovner = "data"',
            ":2",
            "the contract has an unknown field 'ovner'",
            "did you mean 'owner'?",
        ),
        (
            "[[claims]]",
            "[[claim]]",
            ":17",
            "the contract has an unknown field 'claim'",
            "did you mean 'claims'?",
        ),
        (
            'element = "bf16"',
            'element = "bf16"\nswizle = 128',
            ":31",
            "part of port 'out' 'x' has an unknown field 'swizle'",
            "did you mean 'swizzle'?",
        ),
        (
            'kind = "chooses"',
            'kind = "chosen"',
            ":9",
            (
                "'kind' of fact 'stages' is 'chosen', one of 'provides', 'chooses', 'imports', "
                "'derives', 'extent', 'agrees' is wanted"
            ),
            "did you mean 'chooses'?",
        ),
        ("amount = 40", "", ":17", "claim 'registers' has no 'amount'", ""),
        (
            "amount = 40",
            "amount = 40.5",
            ":20",
            "'amount' of claim 'registers' is 40.5, text or an integer is wanted",
            "",
        ),
        (
            "amount = 40",
            "amount = 40\nalign = 'x'",
            ":21",
            "'align' of claim 'registers' is 'x', an integer is wanted",
            "",
        ),
        (
            "values = [64]",
            "values = 64",
            ":15",
            "'values' of fact 'tile_k' is 64, an array is wanted",
            "",
        ),
        (
            "values = [64]",
            "values = [9223372036854775808]",
            ":15",
            "'values' of fact 'tile_k' has more than 64 bits",
            "",
        ),
        (
            'component = "loader"',
            'component = "loader"\ntoolchain = [13]',
            ":2",
            "'toolchain' of the contract is an array, an array of 2 integers is wanted",
            "",
        ),
        (
            '{ condition = "tile_k > 0", why = "there is a tile" }',
            '"tile_k > 0"',
            ":4",
            "requirement is 'tile_k > 0', a table is wanted",
            "",
        ),
        (
            '{ do = "acquire", on = "out" }',
            '{ doo = "acquire", on = "out" }',
            ":40",
            "operation of operation of entry 'run' has an unknown field 'doo'",
            "did you mean 'do'?",
        ),
        (
            'name = "registers"',
            'name = "a__b"',
            ":17",
            "'a__b' is no name of a claim",
            "",
        ),
    ],
)
def test_a_fault_names_file_line_and_field(old, new, line, message, way_out):
    assert LOADER.count(old) == 1
    text = LOADER.replace(old, new)
    assert faults(text) == [(f"{FILE}{line}", f"{FILE}: {message}", way_out)]


def test_all_faults_are_reported_together():
    text = 'owner = 3\ncolour = "red"\nfacts = [{ name = "a", kind = "imports", default = 1.5 }]\n'
    known = (
        "component, owner, version, target, floating_point, toolchain, facts, requires, claims, "
        "ports, entries, promises, types"
    )
    want = "an integer or text or true or false is wanted"
    assert faults(text) == [
        (f"{FILE}:2", f"{FILE}: the contract has an unknown field 'colour'", f"known are {known}"),
        (str(FILE), f"{FILE}: the contract has no 'component'", ""),
        (f"{FILE}:3", f"{FILE}: 'default' of fact 'a' is 1.5, {want}", ""),
    ]


def test_a_text_that_is_no_toml_is_refused():
    message = f"{FILE}: no TOML: Invalid value (at end of document)"
    assert faults("component =") == [(str(FILE), message, "")]


def paths(value, path=()):
    """The path of every table, key and array item of a parsed TOML."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*path, key))


@pytest.mark.parametrize(
    "text",
    [
        LOADER,
        'a = """\n[[b]]\n""" # x\n[c]\n"d e".f = [[1], [2, 3]]\n[[c.g]]\n[[c.g]]\nh = { i = "#" }',
        *(p.read_text() for p in [*ROOT.glob("components/*/*.toml"), ROOT / "pyproject.toml"]),
    ],
)
def test_every_path_of_a_toml_has_a_line(text):
    assert set(positions(text).keys) == set(paths(tomllib.loads(text)))


def test_lines_are_those_of_the_text():
    text = 'a.b = 1\n\n# [x]\n[[t]]\nk = [\n  "p",\n  { q = 1 },\n]\n[t.u]\n'
    found = positions(text)
    assert found.keys == {
        ("a",): 1,
        ("a", "b"): 1,
        ("t",): 4,
        ("t", 0): 4,
        ("t", 0, "k"): 5,
        ("t", 0, "k", 0): 6,
        ("t", 0, "k", 1): 7,
        ("t", 0, "k", 1, "q"): 7,
        ("t", 0, "u"): 9,
    }
    assert found.texts == [("p", ("t", 0, "k", 0), 6)]


@given(st.text(alphabet="ab[]{}=,.\"'#\n 1"))
def test_any_text_has_lines_or_none(text):
    positions(text)

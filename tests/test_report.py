"""Diagnostics as text, JSON, workflow commands and SARIF: the whole output."""

import io
import json
import re
from pathlib import Path

import pytest

from pipelink import __version__
from pipelink.diagnostics import CODES, Diagnostic, FilePlace, Place
from pipelink.explain import prose
from pipelink.report.ci import as_github, as_sarif
from pipelink.report.diagnostics import as_json, as_text
from pipelink.report.locate import Spot, line_of_key, locator
from pipelink.report.text import print_diagnostics

LOADER = """\
\tconstexpr auto stages = 4;   // \x1b[31m
constexpr auto out = ring();
"""
MANIFEST = """\
kernel = "toy"
schedule = "mma.schedule"
instances.load = { object = "load.o", facts = { stages = 7 } }
# steps = "of a comment"
[instances.mma]
object = "mma.o"
[[roles]]
name = "all"
steps = ["load.run", "mma.run"]
[[channels]]
from = "load.out"
to = "mma.in"
[parameters]
x = "load.x"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loader.cu").write_text(LOADER)
    Path("toy.kernel.toml").write_text(MANIFEST)


def locate(where):
    """Facts stand in line 1 of loader.cu, ports in line 2, everything else nowhere."""
    if isinstance(where, FilePlace):
        return locator(None, None)(where)
    line = {"facts": 1, "ports": 2}.get(where.section, 0)
    return Spot("loader.cu" if line else "loader.o", line, where.label, where.instance)


def differ(instance="load", **fields):
    """What a rule says of two ends of a channel."""
    return Diagnostic(
        "PL021",
        f"stage counts differ: 4 at '{instance}.out' (instance '{instance}'), 3 at 'mma.in'",
        Place(instance, "ports", 0, "4 stages"),
        **fields,
    )


def test_a_diagnostic_shows_each_place_with_its_line():
    sides = (Place("load", "facts", 0), FilePlace("toy.kernel.toml", "stages", "7 here"))
    assert as_text([differ(secondary=sides, notes=("why",), help="agree")], locate) == (
        "error[PL021]: stage counts differ: 4 at 'load.out' (instance 'load'), 3 at 'mma.in'\n"
        "  --> loader.cu:2\n"
        "   |\n"
        " 2 | constexpr auto out = ring();\n"
        "   | ^^^ 4 stages\n"
        "  ::: loader.cu:1\n"
        "   |\n"
        " 1 | constexpr auto stages = 4;   // \\x1b[31m\n"
        "  ::: toy.kernel.toml:3\n"
        "   |\n"
        ' 3 | instances.load = { object = "load.o", facts = { stages = 7 } }\n'
        "   | --- 7 here\n"
        "  = note: why\n"
        "  = help: agree\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_places_of_one_line_share_it_and_a_file_without_lines_has_its_labels():
    places = (Place("load", "ports", 1, "8 bytes"), Place("load", "ports", 2))
    owners = (Place("load", "claims", 0, "48"), Place("load", "claims", 1, "40"))
    assert as_text([differ(secondary=places + owners)], locate).splitlines()[1:-2] == [
        "  --> loader.cu:2",
        "   |",
        " 2 | constexpr auto out = ring();",
        "   | ^^^ 4 stages",
        "   | ^^^ 8 bytes",
        "  ::: loader.o: 48; 40",
    ]


def test_a_long_number_moves_the_gutter_and_a_long_line_ends():
    Path("loader.cu").write_text("\n" * 999 + "x" * 200)
    text = as_text([Diagnostic("PL001", "no", FilePlace("loader.cu:1000", label="this"))], locate)
    assert text.splitlines()[2:5] == ["     |", f"1000 | {'x' * 160} ...", "     | ^^^ this"]


@pytest.mark.parametrize("line", [3, 0])
def test_a_line_that_is_not_there_is_only_named(line):
    place = FilePlace(f"loader.cu:{line + 1000}")
    text = as_text([Diagnostic("PL001", "no", place)], locate)
    assert text == f"error[PL001]: no\n  --> {place.file}\n\npipelink: 1 error\n"


def test_a_note_of_several_lines_is_set_under_its_first():
    found = Diagnostic("PL001", "nvcc refuses a.cu", notes=("one\n  two\n\nthree\n",))
    assert as_text([found], locate) == (
        "error[PL001]: nvcc refuses a.cu\n"
        "  = note: one\n"
        "            two\n"
        "\n"
        "          three\n"
        "\n"
        "pipelink: 1 error\n"
    )


def test_what_differs_in_the_instance_alone_is_said_once():
    found = [differ("load"), differ("b"), differ("c"), Diagnostic("PL020", "another")]
    assert as_text(found, locate) == (
        "error[PL021]: stage counts differ: 4 at 'load.out' (instance 'load'), 3 at 'mma.in'\n"
        "  --> loader.cu:2\n"
        "   |\n"
        " 2 | constexpr auto out = ring();\n"
        "   | ^^^ 4 stages\n"
        "  = note: the same for instances 'b', 'c'\n"
        "\n"
        "error[PL020]: another\n"
        "\n"
        "pipelink: 2 errors\n"
    )
    text = as_text(found[:2], locate)
    assert text.splitlines()[-3:] == [
        "  = note: the same for instance 'b'",
        "",
        "pipelink: 1 error",
    ]


def test_other_numbers_or_other_sites_are_not_the_same():
    other = Diagnostic("PL021", differ("b").message.replace("4 at", "5 at"), differ("b").primary)
    site = Diagnostic("PL021", differ("b").message, Place("b", "claims", 1))
    assert as_text([differ(), other, site], locate).endswith("\npipelink: 3 errors\n")


def test_the_first_twenty_of_a_code_are_shown():
    found = [Diagnostic("PL020", f"number {n}") for n in range(23)] + [Diagnostic("PL021", "x")]
    lines = as_text(found, locate).splitlines()
    assert lines[-6:] == [
        "error[PL020]: number 19",
        "",
        "error[PL021]: x",
        "",
        "and 3 more of PL020",
        "pipelink: 24 errors",
    ]
    assert as_github(found, locate).splitlines()[-2:] == [
        "::error title=PL021::x",
        "::error::and 3 more of PL020",
    ]


def test_text_has_no_space_at_an_end_and_nothing_without_findings():
    assert as_text([], locate) == ""
    Path("loader.cu").write_text("\n  \n")
    text = as_text([differ()], locate)
    assert " 2 |\n" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_json_has_every_place_and_folds_nothing():
    found = [differ("load", secondary=(FilePlace("toy.kernel.toml", "nowhere"),)), differ("b")]
    place = {"file": "loader.cu", "line": 2, "label": "4 stages", "instance": "load", "key": ""}
    manifest = {
        "file": "toy.kernel.toml",
        "line": None,
        "label": "",
        "instance": "",
        "key": "nowhere",
    }
    first = {
        "code": "PL021",
        "message": differ().message,
        "places": [place, manifest],
        "notes": [],
        "help": "",
    }
    second = first | {"message": differ("b").message, "places": [place | {"instance": "b"}]}
    assert json.loads(as_json(found, locate)) == {"diagnostics": [first, second]}


def test_a_place_that_says_nothing_new_is_left_out():
    here = FilePlace("loader.cu:2", label="4 stages")
    sides = (FilePlace("loader.cu:2"), here, FilePlace("loader.cu:2", label="full"))
    found = [Diagnostic("PL021", "no", here, sides), differ(secondary=(Place("b", "ports", 1),))]
    places = [row["places"] for row in json.loads(as_json(found, locate))["diagnostics"]]
    assert [[(p["label"], p["instance"]) for p in row] for row in places] == [
        [("4 stages", ""), ("full", "")],
        [("4 stages", "load"), ("", "b")],
    ]
    assert as_github(found, locate).splitlines() == [
        "::error file=loader.cu,line=2,title=PL021::no%0A4 stages%0Aloader.cu:2: full",
        f"::error file=loader.cu,line=2,title=PL021::{differ().message}%0A4 stages",
    ]
    results = json.loads(as_sarif(found, locate))["runs"][0]["results"]
    assert [len(r.get("relatedLocations", ())) for r in results] == [1, 0]


def test_github_gets_a_command_a_finding_with_its_text_escaped():
    Path("a,b").mkdir()
    Path("a,b/50%: x.cu").write_text("\none\n")
    place = FilePlace("a,b/50%: x.cu:2", label="50% here")
    found = Diagnostic(
        "PL021", "a\r\nb", place, (Place("load", "ports", 0),), ("n: 1,2",), help="way out"
    )
    assert as_github([found, Diagnostic("PL007", "unknown", FilePlace("--arch"))], locate) == (
        "::error file=a%2Cb/50%25%3A x.cu,line=2,title=PL021::a%0D%0Ab%0A50%25 here%0A"
        "loader.cu:2%0Anote: n: 1,2%0Ahelp: way out\n"
        "::error title=PL007::unknown\n"
    )
    assert as_github([], locate) == ""


def test_sarif_has_all_rules_and_a_result_a_finding():
    Path("a b").mkdir()
    Path("a b/ü:%.cu").write_text("\none\n")
    sides = (FilePlace("--arch"), Place("load", "ports", 0, "other side"), FilePlace("x.o"))
    found = Diagnostic(
        "PL021", "differ", FilePlace(str(Path("a b/ü:%.cu:2").absolute())), sides, ("n",), "h"
    )
    log = json.loads(as_sarif([found], locate))
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["version"]) == ("2.1.0", __version__)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CODES)
    assert rules[12]["shortDescription"]["text"] == CODES[rules[12]["id"]]
    assert rules[12]["help"]["text"] == prose(rules[12]["id"]) != ""
    assert run["results"] == [
        {
            "ruleId": "PL021",
            "ruleIndex": list(CODES).index("PL021"),
            "level": "error",
            "message": {"text": "differ\nnote: n\nhelp: h"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "a%20b/%C3%BC%3A%25.cu"},
                        "region": {"startLine": 2},
                    }
                }
            ],
            "relatedLocations": [
                {
                    "id": 1,
                    "physicalLocation": {
                        "artifactLocation": {"uri": "loader.cu"},
                        "region": {"startLine": 2},
                    },
                    "message": {"text": "other side"},
                },
                {"id": 2, "physicalLocation": {"artifactLocation": {"uri": "x.o"}}},
            ],
        }
    ]
    assert json.loads(as_sarif([], locate))["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("kernel", 1),
        ("toy", 1),
        ("stages", 3),
        ("instances.load.facts.stages", 3),
        ("instances.mma.facts", 5),
        ("instances.mma.facts.stages", 5),
        ("roles.0.steps.1", 9),
        ("mma", 5),
        ("steps", 9),
        ("load.out", 11),
        ("mma.in", 12),
        ("x", 14),
        ("object", 0),
        ("facts", 3),
        ("of a comment", 0),
        ("nowhere", 0),
    ],
)
def test_a_key_of_a_manifest_has_a_line_unless_several_could_be_meant(key, line):
    assert line_of_key(MANIFEST, key) == line


def test_a_key_is_looked_up_in_the_manifest_that_is_extended():
    Path("kernels").mkdir()
    Path("kernels/variant.kernel.toml").write_text('extends = "../toy.kernel.toml"\nkernel = "v"\n')
    found = locator(None, None)(FilePlace("kernels/variant.kernel.toml", "stages"))
    assert str(found) == "kernels/../toy.kernel.toml:3"
    Path("kernels/variant.kernel.toml").write_text('extends = "variant.kernel.toml"\n')
    found = locator(None, None)(FilePlace("kernels/variant.kernel.toml", "stages"))
    assert str(found) == "kernels/variant.kernel.toml (stages)"


def test_an_instance_without_an_object_is_named():
    assert str(locator(None, None)(Place("load", "facts", 0))) == "instance 'load'"
    unread = locator(Path("none.kernel.toml"), Path())
    assert str(unread(Place("load", "facts", 0))) == "instance 'load'"


def test_colours_change_no_character(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    text = as_text([differ(notes=("[red]why", "x" * 300), help="agree")], locate)
    out = Terminal()
    print_diagnostics(text, out)
    assert out.getvalue().startswith("\x1b[1;31merror[PL021]\x1b[0m")
    assert re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()) == text
    plain = io.StringIO()
    print_diagnostics(text, plain)
    assert plain.getvalue() == text


# --- The command line -------------------------------------------------------------------------


@pytest.fixture
def bad(toy):
    toy.edit('steps = ["load.run"]', 'steps = ["loader.run"]')
    toy.objects()


@pytest.mark.parametrize("call_", ["check", "plan", "link", "verify", "map"])
def test_every_call_on_a_manifest_knows_the_forms(bad, call, call_):
    output = ("-o", "x.cubin") if call_ in ("plan", "link") else ()
    message = "role 'producer' names instance 'loader', which does not exist"
    text = (
        f"error[PL005]: {message}\n"
        "  --> toy.kernel.toml:19\n"
        "   |\n"
        '19 | steps = ["loader.run"]\n'
        "  = help: did you mean 'load'?\n"
        "\n"
        "pipelink: 1 error\n"
    )
    assert call(call_, "toy.kernel.toml", *output) == (1, "", text)
    done = call(call_, "toy.kernel.toml", *output, "--format", "github")
    shown = f"::error file=toy.kernel.toml,line=19,title=PL005::{message}%0A"
    assert done == (1, f"{shown}help: did you mean 'load'?\n", "")
    done = call(call_, "toy.kernel.toml", *output, "--format", "sarif")
    assert (done.code, done.err) == (1, "")
    assert [r["ruleId"] for r in json.loads(done.out)["runs"][0]["results"]] == ["PL005"]
    done = call(call_, "toy.kernel.toml", *output, "--format", "json")
    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out)["diagnostics"][0]["places"][0]["line"] == 19


@pytest.mark.parametrize("call_", ["check", "plan"])
def test_success_in_each_form(toy, call, call_):
    toy.objects()
    argv = (call_, "toy.kernel.toml", *(("-o", "x") if call_ == "plan" else ()), "--format")
    assert call(*argv, "github") == (0, "", "")
    assert call(*argv, "json") == (0, '{"diagnostics":[]}\n', "")
    done = call(*argv, "sarif")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["runs"][0]["results"] == []


def test_explain_shows_a_page_the_list_or_what_was_meant(call):
    done = call("explain", "pl021")
    assert done.out.startswith("# PL021: a channel's ports do not fit\n")
    assert (done.code, done.err) == (0, "")
    lines = "".join(f"{code}  {title}\n" for code, title in CODES.items())
    assert call("explain", "--list") == (0, lines, "")
    message = "pipelink: unknown code 'PL21': did you mean PL021?\n"
    assert call("explain", "PL21") == (1, "", message)
    codes = f"they are PL001 to {max(CODES)}, `pipelink explain --list` shows all"
    for code in ("PL999", "PL049", "../X"):
        message = f"pipelink: unknown code '{code}': {codes}\n"
        assert call("explain", code.lower()) == (1, "", message)
    assert call("explain").code == 2


def test_a_diagnostic_of_an_instance_is_found_in_its_object(toy):
    toy.objects()
    found = locator(toy.manifest, Path())(Place("load", "facts", 1, "here"))
    assert found == Spot("loader.cu", 11, "here", "load")
    found = locator(toy.manifest, Path())(Place("load", "promises", 7))
    assert found == Spot("loader.cu", 0, "", "load")

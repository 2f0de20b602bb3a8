"""Every example in Markdown prints what it says. PIPELINK_REGENERATE=1 writes what it prints now."""

import os
from pathlib import Path

import pytest
from literate import filled

from pipelink.diagnostics import CODES
from pipelink.explain import FOLDER

CASES = Path(__file__).parent / "diagnostics"
# What no placement can do: each names the smallest set of claims that conflict.
INFEASIBLE = Path(__file__).parent / "infeasible"
GUIDE = Path(__file__).parents[1] / "docs" / "contracts.md"
EXAMPLES = [*sorted(FOLDER.glob("*.md")), *sorted(CASES.glob("*.md")), *sorted(INFEASIBLE.glob("*.md"))]
EXAMPLES.append(GUIDE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_prints_what_it_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    made = filled(text)
    if os.environ.get("PIPELINK_REGENERATE"):
        path.write_text(made)
    else:
        assert made == text


def test_every_code_has_an_explanation_and_the_other_way_round():
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_explanation_begins_with_its_code_and_shows_it(code):
    text = (FOLDER / f"{code}.md").read_text()
    heading, blank, *_ = text.splitlines()
    assert (heading, blank) == (f"# {code}: {CODES[code]}", "")
    assert f"error[{code}]: " in text


@pytest.mark.parametrize("path", sorted(CASES.glob("*.md")), ids=lambda path: path.stem)
def test_a_case_says_where_it_was_seen(path):
    title, *_, last = path.read_text().splitlines()
    assert title.startswith("# ")
    assert last.startswith("seen in: ")

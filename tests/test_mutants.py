"""The mutants of a contract that bench/mutations.py builds: each has one change, inside the contract."""

import json

import pytest
from conftest import ROOT

from bench import mutants, mutations

SOURCES = [(k, s) for k, sources in mutations.KERNELS.items() for s in sources]


@pytest.mark.parametrize(("manifest", "source"), SOURCES, ids=lambda value: value.split("/")[-1])
def test_each_mutant_changes_one_line_of_the_contract(manifest, source):
    text = (ROOT / source).read_text()
    whole = text.splitlines()
    found = list(mutants.mutants(manifest, source))
    assert len({mutant.text for mutant in found}) == len(found) > 30
    end = text[: text.index("PIPELINK_COMPONENT(")].count("\n")
    for mutant in found:
        assert mutant.lines[1] <= end + 1
        if mutant.kind != "dropped":
            pairs = zip(whole, mutant.text.splitlines(), strict=True)
            changed = [n for n, (a, b) in enumerate(pairs, 1) if a != b]
            assert len(changed) == 1
            assert mutant.lines[0] <= changed[0] <= mutant.lines[1]


def test_no_mutant_of_the_results_is_accepted_wrongly():
    done = mutations.load()
    assert [m for m in done if mutations.wrong(m)] == []
    assert [m for m in done if m.cubin and m.run != "right"] == []


def test_a_refusal_that_speaks_of_something_else_is_seen():
    (mutant, *_) = mutants.mutants(*SOURCES[0])
    mutant.outcome = "refused by check"
    assert mutations.wrong(mutant) == "the diagnostic does not name the item"
    mutant.outcome, mutant.differences = "relinked", 3
    assert mutations.wrong(mutant) == "not its control"
    mutant.differences, mutant.run = 0, "hang"
    assert mutations.wrong(mutant) == "on the device: hang"


def test_the_page_is_that_of_the_results():
    data = json.loads(mutations.RESULTS.read_text())
    done = mutations.load()
    page = "\n".join(
        [mutations.HEAD, *mutations._counts(done), "", *mutations._details(done, data), ""]
    )
    assert mutations.PAGE.read_text() == page

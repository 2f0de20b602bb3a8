"""README.md's figures, and pages made from results, are those of the result files."""

import json
import subprocess
import sys
from pathlib import Path

from bench import campaign, changed_facts

ROOT = Path(__file__).parents[1]


def test_the_figures_are_those_of_the_result_files():
    command = [sys.executable, "bench/readme_figures.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_figures_are_seen(tmp_path):
    readme = (ROOT / "README.md").read_text().replace("\n| 4096 |", "\n| 4097 |")
    (tmp_path / "README.md").write_text(readme)
    command = [sys.executable, "bench/readme_figures.py", "--check", "--readme", tmp_path / "README.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "README.md: its figures are not those of the result file\n"


def test_the_page_of_changed_facts_is_that_of_the_results():
    assert changed_facts.PAGE.read_text() == changed_facts.page()


def test_what_was_measured_of_changed_facts_holds():
    cases = json.loads(changed_facts.RESULTS.read_text())["cases"]
    assert changed_facts.failing(cases) >= 5
    assert all(c["pipelink"]["outcome"] == "right" and c["equal"] for c in cases)
    assert all(len(c["unchanged"]) == 3 for c in cases if c["name"] != "nothing")


def test_no_mutant_of_the_campaign_has_a_third_outcome():
    mutants = json.loads(campaign.RESULTS.read_text())["mutants"]
    assert {m["outcome"] for m in mutants} == {"right", "refused"}
    assert sum(m["outcome"] == "right" for m in mutants) >= 60
    assert all(m["names"] for m in mutants if m["outcome"] == "refused")

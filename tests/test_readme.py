"""README.md's figures are those of the result files."""

import subprocess
import sys
from pathlib import Path

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

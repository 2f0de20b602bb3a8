"""`python -m pipelink`."""

from pipelink.cli import run

run()

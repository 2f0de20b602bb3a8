"""Literate examples: Markdown whose fenced blocks are files, and calls with what they print.

    ```toml loader.contract.toml    a contract by hand; loader.o is made of it, without code
    ```toml toy.kernel.toml         any other block with a name is a file
    ```console                      lines that begin with `$ ` are run, the rest is their output

A block without a name in any other language is for reading. Blocks take effect from top to bottom.
What can be run is `pipelink`, and `grep` to show a part of a file that it wrote.
"""

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
from minimal_elf import CONTRACT, PLACES, note, object_

from pipelink.cli import main
from pipelink.written import read_written

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def filled(text: str) -> str:
    """The text with what its calls print now; files are written to the working folder."""
    return _BLOCK.sub(_block, text)


def _block(block: re.Match[str]) -> str:
    language, name, body = block.groups()
    if language == "console":
        calls = [line for line in body.splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{c}\n{called(c[2:])}" for c in calls) + "```"
    if name:
        write(name, body)
    return block[0]


def write(name: str, body: str) -> None:
    """A file of an example, and the object of a contract."""
    Path(name).write_text(body)
    component, kind, _ = name.partition(".contract.toml")
    if kind:
        contract, places = read_written(Path(name), body)
        notes = [(CONTRACT, contract), (PLACES, places)]
        encoded = [note(number, msgspec.json.encode(record)) for number, record in notes]
        Path(f"{component}.o").write_bytes(object_(*encoded))


def called(line: str) -> str:
    """What a call prints; errors go with exit code 1, and nothing else does."""
    program, *argv = shlex.split(line)
    if program == "grep":
        return subprocess.run([program, *argv], capture_output=True, text=True, check=True).stdout
    assert program == "pipelink", line
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
    text = said.getvalue()
    assert code == (1 if "error[" in text else 0), text
    return text

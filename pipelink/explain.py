"""What each diagnostic code means: one Markdown file a code, with an example that a test runs."""

from __future__ import annotations

import difflib
from pathlib import Path

from pipelink.diagnostics import CODES

FOLDER = Path(__file__).parent / "explanations"


def explanation(code: str) -> str:
    """The page of a code, as it stands in its file; empty if there is none."""
    path = FOLDER / f"{code}.md"
    return path.read_text(encoding="utf-8") if code in CODES and path.is_file() else ""


def prose(code: str) -> str:
    """What the page says before its example, without the heading."""
    lines = []
    for line in explanation(code).splitlines()[1:]:
        if line.startswith(("#", "```")):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def listing() -> str:
    """All codes, a line each."""
    return "".join(f"{code}  {title}\n" for code, title in CODES.items())


def unknown(code: str) -> str:
    """One sentence on a code that there is not. Another digit is another code, no slip of the pen."""
    close = difflib.get_close_matches(code, CODES, 1, 0.85)
    codes = f"they are {min(CODES)} to {max(CODES)}, `pipelink explain --list` shows all"
    return f"unknown code '{code}': {f'did you mean {close[0]}?' if close else codes}"

"""What a result file says of how it was measured. Needs the standard library, and torch for a GPU."""

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def host() -> dict[str, Any]:
    """Machine, commit, date, the command of this process."""
    script = Path(sys.argv[0]).resolve()
    # Where a result goes is no matter.
    given = [a for a in sys.argv[1:] if not a.startswith("/") and a != "--output"]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python3", str(script.relative_to(ROOT)), *given]),
        "python": platform.python_version(),
    }


def circumstances() -> dict[str, Any]:
    """The same of a measurement on a GPU: with device, driver and versions."""
    import torch

    driver = output_of(
        "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"
    )
    own = {key: value for key, value in host().items() if key != "machine"}
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver or "unknown",
        **own,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def output_of(*command: str) -> str:
    """What a tool of this machine says, or nothing where there is no such tool."""
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def commit() -> str:
    given = os.environ.get("PIPELINK_COMMIT")
    if given:
        return given
    head = output_of("git", "rev-parse", "HEAD")
    changes = output_of(
        *("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    )
    return f"{head} with changes" if changes else head or "unknown"

"""The second program, run as a user runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKER = Path(__file__).resolve().parents[2] / "checker"


def checked(file: Path, folder: Path | None = None) -> tuple[int, str]:
    """The exit code of the checker and its last line."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKER), "OMP_NUM_THREADS": "1"}
    arguments = [str(file)] if folder is None else [str(file), str(folder)]
    run = subprocess.run(
        [sys.executable, "-m", "certiformer_checker", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return run.returncode, (run.stdout.strip() or run.stderr.strip()).splitlines()[-1]

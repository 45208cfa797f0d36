"""The second program, called as a user calls it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from certiformer_checker.__main__ import main

CHECKER = Path(__file__).resolve().parents[2] / "checker"


def checked(file: Path, folder: Path | None = None) -> tuple[int, str]:
    """The exit code of the checker and its last line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(called(file, folder))
    return code, told(out.getvalue(), err.getvalue())


def called(file: Path, folder: Path | None) -> list[str]:
    return [str(file)] if folder is None else [str(file), str(folder)]


def told(out: str, err: str) -> str:
    return (out.strip() or err.strip()).splitlines()[-1]


def checked_apart(file: Path, folder: Path | None = None) -> tuple[int, str]:
    """The same in a process of its own, where there is nothing but the checker."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKER), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "certiformer_checker", *called(file, folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return run.returncode, told(run.stdout, run.stderr)

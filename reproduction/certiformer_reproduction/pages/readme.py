"""Run what the README shows and put the real output back.

A block that starts with `$ certiformer` is run as a command. A Python block is run, all in one namespace, and what it
prints goes into the plain block right after it, where there is one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = re.compile(r"^```\n\$ (?P<call>certiformer [^\n]*)\n.*?^```\n", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?P<shown>\n```\n(?!\$)(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
MAIN = "from certiformer.cli import main; main()"


def command(found: re.Match[str]) -> str:
    """The block of a command with what it prints now."""
    words = shlex.split(found["call"])[1:]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise SystemExit(f"{found['call']}: exit code {done.returncode}\n{done.stderr}")
    return f"```\n$ {found['call']}\n{tidy(done.stdout)}```\n"


def python(found: re.Match[str], namespace: dict[str, object]) -> str:
    """A Python block with what it prints now, where that is shown."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found["code"], "README.md", "exec"), namespace)
    shown = f"\n```\n{tidy(printed.getvalue())}```\n" if found["shown"] else ""
    return f"```python\n{found['code']}```\n{shown}"


def tidy(text: str) -> str:
    """Without spaces at the ends of lines, empty lines at the end, or two of them in a row."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", lines) + "\n"


def renew(page: Path) -> None:
    """Write a page anew with what its blocks print now."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "readme"}
    text = PYTHON.sub(lambda found: python(found, namespace), text)
    text = COMMAND.sub(command, text)
    page.write_text(text, encoding="utf-8")

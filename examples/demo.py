"""One sentence, certified word by word with the bundled model: what `make demo` runs.

The same as `certiformer radius "SENTENCE" --out demo/report.html`. Give a sentence of your own as the argument.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from certiformer.cli import main as certiformer

SENTENCE = "a thin plot but a wonderful cast"
MEANING = (
    "'at' is the position of a word, 'certified' the radius that is proved, 'attacked'\n"
    "the size of a change that was found to turn the verdict around: the smallest such\n"
    "change lies between the two."
)
REPORT = Path(__file__).resolve().parents[1] / "demo" / "report.html"


def main(arguments: Sequence[str] | None = None, *, report: Path = REPORT) -> int:
    """Print the table, write the report and say where it is; the exit code of the command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sentence = " ".join(words) or SENTENCE
    report.parent.mkdir(parents=True, exist_ok=True)
    print(f"$ certiformer radius {shlex.quote(sentence)} --out {report.parent.name}/{report.name}\n", flush=True)
    try:
        certiformer(["radius", sentence, "--out", str(report)])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    if code == 0:
        print(f"{MEANING}\n\nAs a page to look at: {report.as_uri()}\n{_next(sentence)}")
    return code


def _next(sentence: str) -> str:
    """What to do next, as commands that work from here."""
    name = _tool("certiformer")
    lines = [
        (f"{name} app", f"in the browser, live ({_app()})"),
        (f"{name} certify {shlex.quote(sentence)} --eps 0.1", "one question, one verdict"),
        (f"{name} radius --model path/to/your/folder 'your sentence'", "your own model (docs/howto/huggingface.md)"),
    ]
    return "\nNext:\n" + "\n".join(f"  {line}\n      {told}" for line, told in lines)


def _tool(name: str) -> str:
    """A command of this Python, as it is called from here."""
    command = Path(sys.executable).with_name(name)
    return str(command.relative_to(Path.cwd())) if Path.cwd() in command.parents else name


def _app() -> str:
    installed = all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn"))
    return "docs/app.md" if installed else f"docs/app.md; first: {_tool('pip')} install '.[app]'"


if __name__ == "__main__":
    sys.exit(main())

"""One sentence, certified word by word with the bundled model: what `make demo` runs.

The same as `certiformer radius "SENTENCE" --out demo/report.html`. Give a sentence of your own as the argument.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from certiformer.cli import main as certiformer

SENTENCE = "a thin plot but a wonderful cast"
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
        print(
            "'at' is the position of a word, 'certified' the radius that is proved, 'attacked'\n"
            "the size of a change that was found to turn the verdict around: the smallest such\n"
            f"change lies between the two. As a page to look at: {report.as_uri()}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main())

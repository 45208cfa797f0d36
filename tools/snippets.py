"""The code that pages show: run in the order of the page, and what it prints compared or put back.

Python blocks share one namespace and commands one folder, as a reader would type them. A plain block right after Python
is what it prints; in a console block, what follows a `$ certiformer ...` is. `<!-- not run: why -->` before a block
leaves it out. `python tools/snippets.py` renews every page; the tests compare.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$\n?"
    r"(?P<shown>\n```(?:text)?\n(?!\$)(?P<printed>.*?)^```$\n?)?",
    re.MULTILINE | re.DOTALL,
)
PROMPT = "$ certiformer"
COLUMNS = "80"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    body: str
    mark: str
    shown: str | None  # what a page says that Python prints
    span: tuple[int, int]

    @property
    def commands(self) -> bool:
        """Whether this is commands of ours with what they print."""
        return self.language in ("", "console") and self.body.startswith(PROMPT)

    @property
    def runs(self) -> bool:
        """Whether it is run."""
        return not self.mark.startswith(("not run", "code:")) and (self.language == "python" or self.commands)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; what Python prints belongs to the Python before it."""
    found = []
    at = 0
    while (m := BLOCK.search(text, at)) is not None:
        python = m["language"] == "python"
        end = m.end() if python or m["shown"] is None else m.start("shown")
        shown = m["printed"] if python else None
        line = text[: m.start("body")].count("\n")
        found.append(Block(line, m["language"], m["body"], m["mark"] or "", shown, (m.start(), end)))
        at = end
    return found


def pages() -> list[Path]:
    """The README and the manuals; what is in the notebook was run when it was written."""
    manuals = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(p for p in manuals if "notebook" not in p.parts)]


@dataclass
class Reader:
    """Somebody who types what a page shows, in a folder of their own."""

    name: str
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})

    def python(self, block: Block) -> str:
        """What a block of Python prints."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.body, self.name, "exec"), self.namespace)
        return tidy(printed.getvalue())

    def console(self, block: Block) -> str:
        """A block of commands with what they print now."""
        parts = [command + "\n" + self.command(command) for command in commands(block.body)]
        return "\n".join(parts)

    def command(self, line: str) -> str:
        """What a command prints; it may say no, but it must not be wrong."""
        from certiformer.cli import main

        printed, said = io.StringIO(), io.StringIO()
        words = shlex.split(line.replace("\\\n", " "))[2:]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            try:
                main(words)
                code: object = 0
            except SystemExit as stop:
                code = stop.code or 0
        if code not in (0, 1):
            raise AssertionError(f"{self.name}: {line}: exit code {code}\n{said.getvalue()}")
        return tidy(printed.getvalue())


def commands(body: str) -> Iterator[str]:
    """The commands of a console block, with the lines they go on over."""
    going = ""
    for line in body.splitlines():
        if line.startswith(PROMPT) or going:
            going += line
            if going.endswith("\\"):
                going += "\n"
                continue
            yield going
            going = ""


def tidy(text: str) -> str:
    """Without spaces at the ends of lines, empty lines at the ends, or two of them in a row."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", lines) + "\n" if lines else ""


def rough(text: str) -> str:
    """Text without what differs between two runs or two machines: digits, bars, how lines are broken."""
    return " ".join(re.sub(r"[-+]?\d[\d.,e]*(?:e-?\d+)?|[█░]+", "#", text).split()).replace("# #", "#")


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder to work in, and a terminal of fixed width; what is logged to whom is afterwards as it was."""
    before, root, library = Path.cwd(), logging.getLogger(), logging.getLogger("certiformer")
    listening = (root.handlers[:], root.level, library.level)
    width = {"COLUMNS": COLUMNS, "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, width):
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            root.handlers[:] = listening[0]
            root.setLevel(listening[1])
            library.setLevel(listening[2])


def renewed(text: str, name: str) -> str:
    """A page with what its blocks print now."""
    reader, parts, at = Reader(name), [], 0
    with own_folder():
        for block in blocks(text):
            if not block.runs:
                continue
            start, end = block.span
            fence = text[start:end].index("```")
            opening = text[start : start + fence] + f"```{block.language}\n"
            if block.commands:
                now = f"{opening}{reader.console(block)}```\n"
            else:
                printed = reader.python(block)
                now = f"{opening}{block.body}```\n" + ("" if block.shown is None else f"\n```\n{printed}```\n")
            parts += [text[at:start], now]
            at = end
    return "".join([*parts, text[at:]])


def main(names: list[str]) -> int:
    """Write pages anew: those that are named, or all."""
    for page in [Path(name).resolve() for name in names] or pages():
        text = page.read_text(encoding="utf-8")
        print(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page, flush=True)
        page.write_text(renewed(text, page.name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

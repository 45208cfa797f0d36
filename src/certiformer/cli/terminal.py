"""What may go to a terminal: streams that never fail over a letter, and text without control characters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from ..text import visible

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 36  # columns below which lines are left to the terminal to break


def prepare_streams() -> None:
    """Letters that the output's encoding lacks are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def unicode() -> bool:
    """Whether the output can show every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def console(*, stderr: bool = False) -> Console:
    """A terminal, or a file in place of one, that leaves numbers whole and failures to the caller."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    made = Output(stderr=stderr, highlight=False)
    made.width = max(made.width, NARROWEST)
    return made


def say(line: str) -> None:
    """One line on stderr."""
    typer.echo(visible(line), err=True)


class _Said(logging.Handler):
    """Messages of the library as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


@contextmanager
def logged(verbose: bool) -> Iterator[None]:
    """While this lasts, what the library logs is said; without `verbose`, as before."""
    if not verbose:
        yield
        return
    logger, handler = logging.getLogger("certiformer"), _Said()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

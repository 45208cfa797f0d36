"""A progress bar for notebooks and terminals: `cf.radius(model, text, progress=bar())`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def bar(told: str = "bounding") -> Callable[[int, int], None]:
    """A function for `progress=`: it draws a bar in a notebook, and a line that counts in a terminal."""
    return _Drawn(told) if _in_notebook() else _Counted(told)


def _in_notebook() -> bool:
    """Whether cells can show HTML: a kernel runs this, and not a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class _Drawn:
    """A bar of HTML that is drawn again in its place, and goes when all is done."""

    def __init__(self, told: str) -> None:
        self.told = told
        self.shown: Any = None

    def __call__(self, done: int, total: int) -> None:
        display: Any = import_module("IPython.display")
        page = "" if done >= total else f'{self.told} <progress value="{done}" max="{total}"></progress> {done}/{total}'
        if self.shown is None:
            self.shown = display.display(display.HTML(page), display_id=True)
        else:
            self.shown.update(display.HTML(page))


class _Counted:
    """A line on stderr, where that is a terminal."""

    def __init__(self, told: str) -> None:
        self.told = told

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done >= total else ""
            print(f"\r{self.told} {done}/{total}", end=end, file=sys.stderr, flush=True)

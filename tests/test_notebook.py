"""The progress bar: drawn in a notebook, counted in a terminal, silent elsewhere."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from certiformer.notebook import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_counted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Terminal()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    progress = bar("words")
    progress(1, 2)
    progress(2, 2)
    assert written.getvalue() == "\rwords 1/2\rwords 2/2\n"


def test_nothing_is_written_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    bar()(1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_one_bar_that_goes_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def display(page: Any, *, display_id: bool) -> Any:
        assert display_id
        shown.append(page)
        return SimpleNamespace(update=shown.append)

    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    pages = SimpleNamespace(display=display, HTML=lambda text: text)
    monkeypatch.setitem(sys.modules, "IPython.display", pages)  # type: ignore[arg-type]
    progress = bar("words")
    for done in (1, 2, 3):
        progress(done, 3)
    assert [("<progress" in page, "1/3" in page) for page in shown] == [(True, True), (True, False), (False, False)]

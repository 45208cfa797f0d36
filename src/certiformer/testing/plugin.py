"""The pytest plugin: an option for a table of radii, and properties of JUnit files. It does not import torch."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ..numbers import down, up
from ..text import visible
from .notes import Note, noting

TABLE = "--certiformer-table"
PROPERTY = "certiformer"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of the table."""
    group = parser.getgroup("certiformer")
    group.addoption(TABLE, action="store_true", help="print the certified radius of every word of assert_certified")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep what a test asks with its report; pytest writes it to JUnit files as properties."""
    with noting(radii=bool(item.config.getoption(TABLE))) as kept:
        try:
            return (yield)
        finally:
            item.user_properties += [(PROPERTY, note.to_json()) for note in kept]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of radii, when it was asked for."""
    notes = list(_notes(terminalreporter))
    if not config.getoption(TABLE) or not notes:
        return
    terminalreporter.section("certified radii")
    for test, note in notes:
        told = f"{test}: {note.text!r}, {note.status} {note.within} ({note.model})"
        terminalreporter.write_line(visible(told))
        width = max(len(place.words) for place in note.places)
        for place in note.places:
            certified = "-" if place.certified is None else down(place.certified)
            attacked = "" if place.attacked is None else f"   attacked {up(place.attacked)}"
            terminalreporter.write_line(
                visible(f"    {place.words:<{width}}  {place.status:<9} {certified:>8}{attacked}")
            )


def _notes(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, Note]]:
    """The notes of every test with its name, also of those that other processes ran."""
    for reports in reporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for name, value in report.user_properties:
                    if name == PROPERTY:
                        yield report.nodeid, Note.from_json(str(value))

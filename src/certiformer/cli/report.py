"""`certiformer report`"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.names import option
from ..errors import InputError
from ..options import AttackQuestion, Beside, RadiusCall
from .asking import ask_radii
from .flags import Given, command
from .options import ANY_NORMS, Norms, Source, Target
from .reading import read_document
from .terminal import say
from .writing import check_out, write


@dataclass(frozen=True, kw_only=True)
class Page(Target):
    """The page, and what it is made from."""

    out: Path | None = option(Path("report.html"), "The HTML file to write.")
    json: bool = option(False, "Print JSON too.", flag=False)
    source: Path | None = option(None, "Make the report from what a command wrote as JSON.")


@dataclass(frozen=True, kw_only=True)
class AllNorms(Norms):
    """All three, where nothing is said."""

    norm: tuple[str, ...] = option(("1", "2", "inf"), ANY_NORMS)


@command(Page, AllNorms, RadiusCall, Beside, AttackQuestion, Source, aliases={"source": "--from"})
def report(given: Given) -> int:
    """Write one HTML file: every word by its certified and attacked radius, in every norm.

    Example: [bold]certiformer report "a great film" --out report.html[/bold]
    """
    page = given(Page)
    if page.out is None or page.out.suffix != ".html":
        raise InputError(f"--out {page.out}: expected a name that ends in .html")
    if page.source is None:
        return ask_radii(given, "report", certify=True, attack=given(Beside).attack)
    also = sorted(given.said - {"source", "out", "quiet"})
    if given.texts or also:
        named = ", ".join([*(f"--{name.replace('_', '-')}" for name in also), *(["sentences"] if given.texts else [])])
        raise InputError(f"--from and {named} were both given: use one")
    check_out(page.out)
    write(read_document(page.source, "--from"), page.out)
    if not page.quiet:
        say(f"written: {page.out}")
    return 0

"""`certiformer synonyms`"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.names import option
from ..errors import InputError
from ..named import DEFAULT, check_name
from ..options import Options
from . import INTERRUPTED
from .flags import Given, command, one_argument
from .options import Quiet
from .progress import progress_bar
from .terminal import console, say
from .view import table

if TYPE_CHECKING:
    from ..sweep.synonyms import SynonymsResult


@dataclass(frozen=True, kw_only=True)
class Replacing(Quiet):
    """What is asked, and where the results go."""

    model: str = option(DEFAULT, "A bundled model, a folder, or hf:NAME.")
    budgets: str = option("1,2,3,4,6", "How many words may be replaced at once, with commas between them.")
    texts: int | None = option(None, "Take this many from the beginning; default: all.")
    out: Path | None = option(None, "Folder of the results; the same command goes on from what it holds.")


@command(
    Replacing,
    Options,
    argument=one_argument("candidates", "JSON: label, words and candidates (the word first) of each text; also .gz."),
    without=("tolerance", "splits", "steps", "arithmetic", "timeout"),
)
def synonyms(given: Given) -> int:
    """Certified accuracy when at most so many words are replaced, each by any of its own substitutes.

    Example: [bold]certiformer synonyms candidates.test.json.gz --model runs/robust --out runs/synonyms[/bold]
    """
    asked = given(Replacing)
    check_name(asked.model)
    budgets = _budgets(asked.budgets)

    from ..sweep.synonyms import synonyms as run

    with progress_bar("texts", None, quiet=asked.quiet) as bar:
        try:
            found = run(
                asked.model,
                given.values["candidates"],
                budgets=budgets,
                texts=asked.texts,
                out=asked.out,
                options=given(Options),
                progress=lambda r: bar.advance(len(r.records), total=r.total, told=_line(r)),
            )
        except KeyboardInterrupt:
            if asked.out is not None:
                say(f"stopped; what is finished is in {asked.out}, the same command goes on")
            return INTERRUPTED
    _show(found)
    return 0


def _budgets(written: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in written.split(","))
    except ValueError:
        raise InputError(f"--budgets {written}: expected whole numbers with commas between them") from None


def _line(found: SynonymsResult) -> str:
    last = found.budgets[-1]
    return f"clean {found.clean:.2%}, {last} words: certified {found.certified(last):.2%}"


def _show(found: SynonymsResult) -> None:
    rows = table("words replaced", "certified", "not attacked")
    for row in found.rows():
        name = "none" if row["budget"] == 0 else f"at most {row['budget']}"
        rows.add_row(name, f"{row['certified']:.2%}", f"{row['attacked']:.2%}")
    console().print(rows)
    unread = sum(r["reason"] is not None for r in found.records)
    console().print(
        f"{len(found.records):,} texts; {found.count('substitutes'):,} substitutes, {found.count('unknown'):,} of them "
        f"unknown words to the model; {unread:,} texts are left open at some budget"
    )

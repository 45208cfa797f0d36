"""Results on a terminal: words coloured by radius, a legend, a table, and one sentence that says what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..report.style import HEAT_LIGHT, LEVELS
from ..report.wording import down, strengths, summary, up

if TYPE_CHECKING:
    from ..report import Place, Run, Sentence

_MOST_ROWS = 25
_BAR = 24
_RICH = tuple(f"{ink} on {back}" for back, ink in HEAT_LIGHT)
_FEW = ("none", "none", "yellow", "yellow", "black on yellow", "white on red", "bold white on red")  # 16 colours


def show_sentence(sentence: Sentence) -> None:
    """Everything that was found about a sentence."""
    console = Console(highlight=False)
    console.print(headline(sentence))
    for run in sentence.runs:
        console.print(_run(sentence, run, styles=_styles(console)))
    console.print()


def show_values(sentence: Sentence) -> None:
    """For --quiet: norm, positions, words, certified and attacked radius, separated by tabs."""
    for run in sentence.runs:
        for place in run.places:
            where = "+".join(map(str, place.positions))
            values = ["" if v is None else repr(v) for v in (place.certified, place.attacked)]
            typer.echo("\t".join([run.norm, where, " ".join(place.words), *values]))


def headline(sentence: Sentence) -> Text:
    """The verdict of the model, and what a reader should know about the text."""
    text = Text("The model says ")
    text.append(sentence.label, style="bold")
    text.append(f" (margin {sentence.margin:.3g}).")
    if sentence.note:
        text.append(f"\nNote: {sentence.note}.")
    return text


def _run(sentence: Sentence, run: Run, *, styles: tuple[str, ...]) -> Group:
    parts: list[Text | Table] = (
        [_coloured(sentence, run, styles), _legend(run, styles)] if styles else [Text(sentence.text)]
    )
    parts = [Text(), *parts, _table(run)]
    if len(run.places) > _MOST_ROWS:
        parts.append(Text(f"and {len(run.places) - _MOST_ROWS:,} more sets with larger radii; --json has all", "dim"))
    told = summary(sentence, run)
    parts.append(Text(told[:1].upper() + told[1:] + "."))
    if run.method is not None:
        seconds = "" if run.seconds is None else f", {run.seconds:.1f} s"
        parts.append(Text(f"{run.norm}, {run.method}, {run.relaxation} relaxation{seconds}", style="dim"))
    return Group(*parts)


def _coloured(sentence: Sentence, run: Run, styles: tuple[str, ...]) -> Text:
    heat = strengths(sentence, run)
    text = Text()
    for i, token in enumerate(sentence.tokens):
        if sentence.special[i]:
            continue
        if text:
            text.append(" ")
        text.append(
            f" {token} " if i in heat else token, style=styles[round(heat[i] * (LEVELS - 1))] if i in heat else ""
        )
    return text


def _styles(console: Console) -> tuple[str, ...]:
    """From the strongest word to the weakest; none where there is no colour."""
    if console.color_system is None:
        return ()
    return _FEW if console.color_system in ("standard", "windows") else _RICH


def _legend(run: Run, styles: tuple[str, ...]) -> Text:
    which = "certified" if run.method is not None else "attacked"
    text = Text()
    for style in styles:
        text.append("▁▁", style=style)
    text.append(f" strongest to weakest word, by {which} radius in {run.norm}", style="dim")
    return text


def _table(run: Run) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("word")
    table.add_column("at", justify="right")
    if run.method is not None:
        table.add_column("certified", justify="right")
    if run.attack is not None:
        table.add_column("attacked", justify="right")
    table.add_column("")
    shown = list(run.places)
    if len(shown) > _MOST_ROWS:
        shown = sorted(shown, key=_size)[:_MOST_ROWS]
    largest = max((v for p in shown for v in (p.certified, p.attacked) if v is not None), default=0.0)
    for place in shown:
        cells: list[str | Text] = [Text(" + ".join(place.words)), "+".join(map(str, place.positions))]
        if run.method is not None:
            cells.append(down(place.certified))
        if run.attack is not None:
            cells.append("none found" if place.attacked is None else up(place.attacked))
        if run.attack == "enumeration":
            cells.append(Text(f"by '{place.replacement}'" if place.replacement else ""))
        else:
            cells.append(_bar(place, largest))
        table.add_row(*cells)
    return table


def _size(place: Place) -> float:
    value = place.certified if place.certified is not None else place.attacked
    return float("inf") if value is None else value


def _bar(place: Place, largest: float) -> Text:
    """What is proved in full blocks, up to the counterexample in light ones."""
    if largest <= 0:
        return Text()
    proved = int(_BAR * (place.certified or 0.0) / largest)
    reached = int(_BAR * (place.attacked or 0.0) / largest)
    return Text("█" * proved, style="blue") + Text("░" * max(0, reached - proved), style="blue")

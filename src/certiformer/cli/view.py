"""Results on a terminal: words coloured by radius, a legend, a table, and one sentence that says what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..colours import LIGHT
from ..core.deadline import OUT_OF_TIME
from ..numbers import down, up
from ..report.scale import levels
from ..report.wording import summary
from ..text import visible
from .terminal import console, unicode

if TYPE_CHECKING:
    from ..report import Place, Run, Sentence

_MOST_ROWS = 25
_BAR = 24
WIDE = 64  # columns from which there is room for bars
_RICH = tuple(f"{ink} on {back}" for back, ink in LIGHT)
_FEW = ("none", "none", "yellow", "yellow", "black on yellow", "white on red", "bold white on red")  # 16 colours


def show_sentence(sentence: Sentence) -> None:
    """Everything that was found about a sentence."""
    output = console()
    output.print(headline(sentence))
    for run in sentence.runs:
        output.print(_run(sentence, run, output))
    output.print()


def show_values(sentence: Sentence) -> None:
    """For --quiet: norm, positions, words, certified and attacked radius and the sentence, separated by tabs."""
    for run in sentence.runs:
        for place in run.places:
            where = "+".join(map(str, place.positions))
            values = ["" if v is None else repr(v) for v in (place.certified, place.attacked)]
            row(run.norm, where, " ".join(place.words), *values, sentence.text)


def row(*cells: str) -> None:
    """One line of cells with tabs between them."""
    typer.echo("\t".join(visible(cell) for cell in cells))


def shown(text: str, style: str = "") -> Text:
    """Text from outside as it may be shown: nothing in it is markup or control."""
    return Text(visible(text, keep="\n\t"), style=style)


def headline(sentence: Sentence) -> Text:
    """The verdict of the model, and what a reader should know about the text."""
    text = Text("The model says ")
    text.append_text(shown(sentence.label, "bold"))
    text.append(f" (margin {sentence.margin:.3g}).")
    if sentence.note:
        text.append_text(shown(f"\nNote: {sentence.note}."))
    return text


def table(*names: str) -> Table:
    """An empty table: the first column holds words, which may be broken, the others numbers, which may not."""
    made = Table(box=box.SIMPLE_HEAD if unicode() else box.ASCII, pad_edge=False)
    made.add_column(names[0], overflow="fold")
    for name in names[1:]:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def _run(sentence: Sentence, run: Run, output: Console) -> Group:
    styles = _styles(output)
    parts: list[Text | Table] = (
        [_coloured(sentence, run, styles), _legend(run, styles)] if styles else [shown(sentence.text)]
    )
    parts = [Text(), *parts, _table(run, bars=output.width >= WIDE)]
    if len(run.places) > _MOST_ROWS:
        parts.append(Text(f"and {len(run.places) - _MOST_ROWS:,} more sets with larger radii; --json has all", "dim"))
    told = summary(sentence, run)
    parts.append(shown(told[:1].upper() + told[1:] + "."))
    if run.method is not None:
        seconds = "" if run.seconds is None else f", {run.seconds:.1f} s"
        ended = "" if run.complete else f", {run.stopped or OUT_OF_TIME}: more may be provable"
        parts.append(Text(f"{run.norm}, {run.method}, {run.relaxation} relaxation{seconds}{ended}", style="dim"))
    return Group(*parts)


def _coloured(sentence: Sentence, run: Run, styles: tuple[str, ...]) -> Text:
    found = levels(run)
    text = Text()
    for i, token in enumerate(sentence.tokens):
        if sentence.special[i]:
            continue
        if text:
            text.append(" ")
        style = styles[found[i]] if i in found else ""
        text.append_text(shown(f" {token} " if i in found else token, style))
    return text


def _styles(output: Console) -> tuple[str, ...]:
    """From the strongest word to the weakest; none where there is no colour."""
    if output.color_system is None:
        return ()
    return _FEW if output.color_system in ("standard", "windows") else _RICH


def _legend(run: Run, styles: tuple[str, ...]) -> Text:
    by_length = any(place.normalized is not None for place in run.places)
    first = "1 or more of the embedding's length" if by_length else f"the largest in {run.norm}"
    text = Text()
    for style in styles:
        text.append("▁▁" if unicode() else "__", style=style)
    text.append(f" radius: {first}, then half as much for each step", style="dim")
    return text


def _table(run: Run, *, bars: bool) -> Table:
    names = ["word", "at"]
    names += [f"certified\n{run.norm}"] * (run.method is not None) + [f"attacked\n{run.norm}"] * (
        run.attack is not None
    )
    made = table(*names)
    words = run.attack == "enumeration"
    if words:
        made.add_column("by", overflow="fold")
    elif bars:
        made.add_column("", no_wrap=True)
    places = list(run.places)
    if len(places) > _MOST_ROWS:
        places = sorted(places, key=_size)[:_MOST_ROWS]
    largest = max((v for p in places for v in (p.certified, p.attacked) if v is not None), default=0.0)
    for place in places:
        cells: list[str | Text] = [shown(" + ".join(place.words)), "+".join(map(str, place.positions))]
        if run.method is not None:
            cells.append(down(place.certified))
        if run.attack is not None:
            cells.append("none found" if place.attacked is None else up(place.attacked))
        if words:
            cells.append(shown(place.replacement or ""))
        elif bars:
            cells.append(_bar(place, largest))
        made.add_row(*cells)
    return made


def _size(place: Place) -> float:
    value = place.certified if place.certified is not None else place.attacked
    return float("inf") if value is None else value


def _bar(place: Place, largest: float) -> Text:
    """What is proved in full blocks, up to the counterexample in light ones."""
    if largest <= 0:
        return Text()
    full, light = "█░" if unicode() else "#."
    proved = int(_BAR * (place.certified or 0.0) / largest)
    reached = int(_BAR * (place.attacked or 0.0) / largest)
    return Text(full * proved, style="blue") + Text(light * max(0, reached - proved), style="blue")

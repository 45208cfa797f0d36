"""`certiformer importance`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Sentence
    from .work import Fraction


def importance(
    texts: options.Texts = None,
    model: options.ModelName = None,
    norm: options.Norm = "2",
    method: options.MethodOption = options.Method.auto,
    relaxation: options.RelaxationOption = None,
    tolerance: options.Tolerance = 1e-3,
    upper: Annotated[
        bool, typer.Option("--upper/--no-upper", help="Rank by the closest word that changes the verdict, too.")
    ] = True,
    file: options.File = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    quiet: options.Quiet = False,
) -> None:
    """Rank the words: the less one may move, relative to its length, the more it matters.

    Example: [bold]certiformer importance "a great film"[/bold]
    """
    from dataclasses import replace

    from ..questions.importance import importance as rank
    from ..questions.inputs import norm_name, norm_order, prepare
    from ..report import sentence
    from .work import check_out, collect, finish, open_model, precision, read_items

    check_out(out)
    p = norm_order(norm)
    items = read_items(texts, file)
    opened, where = open_model(model, device)

    def one(text: str, advance: Fraction) -> Sentence:
        found = rank(
            opened,
            text,
            norm=p,
            upper=upper,
            method=method.value,
            relaxation=None if relaxation is None else relaxation.value,
            tolerance=tolerance,
            dtype=precision(dtype.value),
            device=where,
            on_progress=advance,
        )
        return replace(sentence(prepare(opened, text, device=where)), importance=found.words)

    document = collect(
        opened,
        items,
        one,
        command="importance",
        settings={
            "norms": [norm_name(p)],
            "method": method.value,
            "relaxation": None if relaxation is None else relaxation.value,
            "tolerance": tolerance,
            "upper": upper,
            "device": where,
            "dtype": dtype.value,
        },
        quiet=quiet,
        show=None if json else _values if quiet else _show,
    )
    raise typer.Exit(finish(document, json=json, out=out, quiet=quiet))


def _values(found: Sentence) -> None:
    for word in found.importance:
        typer.echo(f"{word.rank}\t{word.position}\t{word.word}\t{word.normalized!r}")


def _show(found: Sentence) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..report.wording import down, up
    from .view import headline

    console = Console(highlight=False)
    console.print(headline(found))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("word")
    for name in ("at", "rank", "radius / length", "by gradient", "by closest word"):
        table.add_column(name, justify="right")
    for word in found.importance:
        closest = "–" if word.attacked_rank is None else str(word.attacked_rank)
        if word.replacement is not None:
            closest += f" ('{word.replacement}', {up(word.attacked_normalized)})"
        table.add_row(
            Text(word.word),
            str(word.position),
            str(word.rank),
            down(word.normalized),
            str(word.gradient_rank),
            Text(closest),
        )
    console.print(table)
    first = found.importance[0]
    console.print(
        Text(
            f"'{first.word}' matters most to the verdict '{found.label}': proved up to {down(first.certified)}, "
            f"{down(first.normalized)} of its length, less than any other word."
        )
    )
    console.print()

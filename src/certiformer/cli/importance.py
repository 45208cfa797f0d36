"""`certiformer importance`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Sentence
    from .progress import Fraction


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
    text_column: options.TextColumn = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    quiet: options.Quiet = False,
) -> None:
    """Rank the words: the less one may move, relative to its length, the more it matters.

    Example: [bold]certiformer importance "a great film"[/bold]
    """

    from ..norms import norm_name, norm_order
    from .opening import open_model
    from .reading import read_items
    from .running import Job
    from .writing import check_out, finish

    check_out(out)
    p = norm_order(norm)
    items = read_items(texts, file, text_column)

    from dataclasses import replace

    from ..api import Certifier
    from ..options import Options
    from ..questions.inputs import prepare
    from ..report import sentence

    opened, where = open_model(model, device)
    how = Options(
        method=method.value,
        relaxation="tight" if relaxation is None else relaxation.value,
        tolerance=tolerance,
        dtype=dtype.value,
        device=where,
    )
    certifier = Certifier(opened, how)

    def one(text: str, advance: Fraction) -> Sentence:
        found = certifier.importance(text, norm=p, upper=upper, progress=lambda done, of: advance(done / of))
        return replace(sentence(prepare(certifier.workspace, text, device=where)), importance=found.words)

    job = Job(
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
        show=None if json else _values if quiet else partial(_show, norm_name(p)),
    )
    document = job.run(quiet=quiet)
    raise typer.Exit(finish(document, json=json, out=out, quiet=quiet))


def _values(found: Sentence) -> None:
    from .view import row

    for word in found.importance:
        row(str(word.rank), str(word.position), word.word, repr(word.normalized), found.text)


def _show(norm: str, found: Sentence) -> None:
    from ..numbers import down, up
    from .terminal import console
    from .view import WIDE, headline, shown, table

    output = console()
    wide = output.width >= WIDE
    output.print(headline(found))
    made = table("word", *(["at"] if wide else []), "rank", "radius /\nlength", *(["by\ngradient"] if wide else []))
    made.add_column("by closest\nword", overflow="fold")
    for word in found.importance:
        closest = "–" if word.attacked_rank is None else str(word.attacked_rank)
        if word.replacement is not None:
            closest += f" ('{word.replacement}', {up(word.attacked_normalized)})"
        made.add_row(
            shown(word.word),
            *([str(word.position)] if wide else []),
            str(word.rank),
            down(word.normalized),
            *([str(word.gradient_rank)] if wide else []),
            shown(closest),
        )
    output.print(made)
    first = found.importance[0]
    output.print(
        shown(
            f"'{first.word}' matters most to the verdict '{found.label}': proved up to {down(first.certified)} "
            f"in {norm}, {down(first.normalized)} of its length, less than any other word."
        )
    )
    output.print()

"""`certiformer report`"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Sentence
    from .progress import Fraction


def report(
    texts: options.Texts = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    source: Annotated[
        Path | None, typer.Option("--from", help="Make the report from what a command printed with --json.")
    ] = None,
    model: options.ModelName = None,
    norm: options.Norms = None,
    method: options.MethodOption = options.Method.auto,
    relaxation: options.RelaxationOption = None,
    budget: options.BudgetOption = options.Budget.balanced,
    steps: options.Steps = 0,
    splits: options.MoreSplits = None,
    words: options.Words = 1,
    tolerance: options.Tolerance = 1e-3,
    attack: options.WithAttack = True,
    seed: options.Seed = 0,
    file: options.File = None,
    text_column: options.TextColumn = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML file: every word by its certified and attacked radius, in every norm.

    Example: [bold]certiformer report "a great film" --out report.html[/bold]
    """
    from ..errors import InputError
    from ..norms import norm_name, norm_order
    from .opening import open_model
    from .reading import read_document, read_items
    from .running import Job, Together
    from .writing import check_out, finish, write

    if out.suffix != ".html":
        raise InputError(f"--out {out}: expected a name that ends in .html")
    check_out(out)
    if source is not None:
        if texts or file is not None:
            raise InputError("--from and sentences were both given: use one")
        write(read_document(source, "--from"), out)
        if not quiet:
            typer.echo(f"written: {out}", err=True)
        return
    norms = [norm_order(p) for p in norm or ["1", "2", "inf"]]
    items = read_items(texts, file, text_column)

    from ..api import Certifier
    from ..options import AttackQuestion, Options, Question
    from ..questions.inputs import prepare
    from ..questions.positions import position_sets
    from ..report import measure_many

    opened, where = open_model(model, device, threads)
    how = Options(
        method=method.value,
        relaxation="tight" if relaxation is None else relaxation.value,
        budget=budget.value,
        steps=steps,
        splits=splits,
        tolerance=tolerance,
        dtype=dtype.value,
        device=where,
        threads=threads,
    )
    certifier, asked = Certifier(opened, how), Question(words=words)

    def key(text: str) -> tuple[Hashable, int]:
        prepared = prepare(certifier.workspace, text, device=where)
        return len(prepared.tokens), len(position_sets(prepared, asked))

    def many(texts: Sequence[str], advance: Fraction) -> Sequence[Sentence]:
        attacking = AttackQuestion(seed=seed) if attack else None
        return measure_many(certifier, texts, asked, norms=norms, attack=attacking, progress=advance)

    job = Job(
        opened,
        items,
        Together(key, many),
        command="report",
        settings={
            "norms": [norm_name(p) for p in norms],
            "method": method.value,
            "relaxation": None if relaxation is None else relaxation.value,
            "budget": budget.value,
            "steps": steps,
            "splits": splits,
            "words": words,
            "tolerance": tolerance,
            "attack": "gradient" if attack else None,
            "seed": seed if attack else None,
            "device": where,
            "dtype": dtype.value,
        },
        show=None,
    )
    document = job.run(quiet=quiet)
    raise typer.Exit(finish(document, json=False, out=out, quiet=quiet))

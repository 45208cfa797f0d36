"""`certiformer radius`"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Sentence
    from .progress import Fraction


def radius(
    texts: options.Texts = None,
    model: options.ModelName = None,
    norm: options.Norms = None,
    method: options.MethodOption = options.Method.auto,
    relaxation: options.RelaxationOption = None,
    budget: options.BudgetOption = options.Budget.balanced,
    steps: options.Steps = 0,
    splits: options.MoreSplits = None,
    words: options.Words = 1,
    positions: options.Positions = None,
    tolerance: options.Tolerance = 1e-3,
    attack: options.WithAttack = True,
    seed: options.Seed = 0,
    file: options.File = None,
    text_column: options.TextColumn = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    threads: options.Threads = None,
    resume: options.Resume = False,
    quiet: options.Quiet = False,
) -> None:
    """How far may each word move with the verdict proved unchanged, and how far does an attack need.

    Example: [bold]certiformer radius "a great film"[/bold]
    """
    from ..norms import norm_name, norm_order
    from .opening import open_model
    from .reading import read_items
    from .running import Job, Together
    from .writing import check_out, finish

    check_out(out)
    norms = [norm_order(p) for p in norm or ["2"]]
    items = read_items(texts, file, text_column)

    from ..api import Certifier
    from ..options import AttackQuestion, Options, Question
    from ..questions.inputs import prepare
    from ..questions.positions import position_sets
    from ..report import measure_many
    from .view import show_sentence, show_values

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
    certifier = Certifier(opened, how)
    asked = Question(words=words) if not positions else Question(positions=",".join(positions))

    def key(text: str) -> tuple[Hashable, int]:
        prepared = prepare(certifier.workspace, text, device=where)
        sets = position_sets(prepared, asked)
        return (len(prepared.tokens), tuple(sets)), len(sets)

    def many(texts: Sequence[str], advance: Fraction) -> Sequence[Sentence]:
        attacking = AttackQuestion(seed=seed) if attack else None
        return measure_many(certifier, texts, asked, norms=norms, attack=attacking, progress=advance)

    job = Job(
        opened,
        items,
        Together(key, many),
        command="radius",
        settings={
            "norms": [norm_name(p) for p in norms],
            "method": method.value,
            "relaxation": None if relaxation is None else relaxation.value,
            "budget": budget.value,
            "steps": steps,
            "splits": splits,
            "words": words,
            "positions": positions or None,
            "tolerance": tolerance,
            "attack": "gradient" if attack else None,
            "seed": seed if attack else None,
            "device": where,
            "dtype": dtype.value,
        },
        show=None if json else show_values if quiet else show_sentence,
        out=out,
    )
    if resume:
        job.resume()
    document = job.run(quiet=quiet)
    raise typer.Exit(finish(document, json=json, out=out, quiet=quiet))

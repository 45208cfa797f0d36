"""`certiformer attack`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Sentence
    from .progress import Fraction


def attack(
    texts: options.Texts = None,
    model: options.ModelName = None,
    norm: options.Norms = None,
    method: Annotated[
        options.Attack, typer.Option(help="gradient moves the embedding; enumeration tries every word.")
    ] = options.Attack.gradient,
    words: options.Words = 1,
    positions: options.Positions = None,
    steps: Annotated[int, typer.Option(help="Gradient steps.")] = 50,
    restarts: Annotated[int, typer.Option(help="Starts of each set of positions.")] = 3,
    seed: options.Seed = 0,
    file: options.File = None,
    text_column: options.TextColumn = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """How small a change of each word is enough to change the verdict; every one is checked by a forward pass.

    Example: [bold]certiformer attack "a great film" --method enumeration[/bold]
    """
    from ..norms import norm_name, norm_order
    from .opening import open_model
    from .reading import read_items
    from .running import Job
    from .writing import check_out, finish

    check_out(out)
    norms = [norm_order(p) for p in norm or ["2"]]
    items = read_items(texts, file, text_column)

    from ..api import Certifier
    from ..options import AttackQuestion, Options, Question
    from ..report import measure
    from .view import show_sentence, show_values

    opened, where = open_model(model, device)
    certifier = Certifier(opened, Options(device=where))
    asked = Question(words=words) if not positions else Question(positions=",".join(positions))
    how = AttackQuestion(attack_method=method.value, attack_steps=steps, restarts=restarts, seed=seed)

    def one(text: str, advance: Fraction) -> Sentence:
        return measure(certifier, text, question=asked, norms=norms, certify=False, attack=how, progress=advance)

    job = Job(
        opened,
        items,
        one,
        command="attack",
        settings={
            "norms": [norm_name(p) for p in norms],
            "attack": method.value,
            "words": words,
            "positions": positions or None,
            "steps": steps,
            "restarts": restarts,
            "seed": seed,
            "device": where,
        },
        show=None if json else show_values if quiet else show_sentence,
    )
    document = job.run(quiet=quiet)
    raise typer.Exit(finish(document, json=json, out=out, quiet=quiet))

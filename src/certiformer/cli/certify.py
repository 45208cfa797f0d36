"""`certiformer certify`"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import strict
from ..numbers import at_least, at_most
from . import options

if TYPE_CHECKING:
    from ..questions.inputs import Prepared
    from ..questions.verdict import CertifyResult
    from ..report import Document, Sentence, Verdict
    from .progress import Fraction

_WORST = ("error", "refuted", "unknown", "certified")


def certify(
    texts: options.Texts = None,
    eps: Annotated[
        float | None, typer.Option("--eps", "-e", parser=at_least, metavar="FLOAT", help="How far words may move.")
    ] = None,
    model: options.ModelName = None,
    norm: options.Norm = "2",
    method: options.MethodOption = options.Method.auto,
    relaxation: options.RelaxationOption = None,
    budget: options.BudgetOption = options.Budget.balanced,
    splits: options.Splits = 0,
    words: options.Words = 1,
    positions: options.Positions = None,
    substitutions: Annotated[
        Path | None, typer.Option(help="JSON file: word -> list of words; any of them may be replaced, all at once.")
    ] = None,
    attack: options.WithAttack = True,
    file: options.File = None,
    text_column: options.TextColumn = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Is the verdict proved when words move by up to --eps? Exit code 0: yes; 1: refuted or unknown.

    Example: [bold]certiformer certify "a great film" --eps 0.1 --positions great[/bold]
    """
    from ..errors import InputError
    from ..norms import norm_name, norm_order
    from .opening import open_model
    from .reading import read_items
    from .running import Job
    from .writing import check_out, finish

    check_out(out)
    p = norm_order(norm)
    if (eps is None) == (substitutions is None):
        raise InputError("give either --eps, how far words may move, or --substitutions, what may replace them")
    if eps is not None and not 0 <= eps < float("inf"):
        raise InputError(f"--eps {at_most(eps)}: expected a number from 0 on")
    replacing = None if substitutions is None else _read_substitutions(substitutions)
    items = read_items(texts, file, text_column)

    from ..api import Certifier
    from ..options import Options
    from ..questions.inputs import prepare
    from ..report import sentence

    opened, where = open_model(model, device)
    how = Options(
        method=method.value,
        relaxation="tight" if relaxation is None else relaxation.value,
        budget=budget.value,
        splits=splits,
        device=where,
    )
    certifier = Certifier(opened, how)
    which: dict[str, Any] = {"positions": ",".join(positions)} if positions else {"words": words}

    def one(text: str, advance: Fraction) -> Sentence:
        prepared = prepare(certifier.workspace, text, device=where)
        if replacing is not None:
            result = certifier.certify(
                text, substitutions=replacing, attack=attack, progress=lambda done, of: advance(done / of)
            )
        else:
            result = certifier.certify(text, eps=eps, norm=p, attack=attack, **which)
        return replace(sentence(prepared), verdicts=_verdicts(result, prepared))

    job = Job(
        opened,
        items,
        one,
        command="certify",
        settings={
            "eps": eps,
            "norms": [norm_name(p)],
            "method": method.value,
            "relaxation": None if relaxation is None else relaxation.value,
            "budget": budget.value,
            "splits": splits,
            "words": words,
            "positions": positions or None,
            "substitutions": None if substitutions is None else str(substitutions),
            "attack": attack,
            "device": where,
        },
        show=_shower(json=json, quiet=quiet, alone=len(items) == 1),
    )
    document = job.run(quiet=quiet)
    code = finish(document, json=json, out=out, quiet=quiet)
    raise typer.Exit(code or _code(document))


def overall(verdicts: tuple[Verdict, ...]) -> str:
    """The worst of some verdicts."""
    found = {verdict.status for verdict in verdicts}
    return next((status for status in _WORST if status in found), "certified")


def _code(document: Document) -> int:
    from . import CONTRADICTION

    worst = [overall(sentence.verdicts) for sentence in document.results]
    if "error" in worst:
        return CONTRADICTION
    return 1 if "refuted" in worst or "unknown" in worst else 0


def _verdicts(result: CertifyResult, prepared: Prepared) -> tuple[Verdict, ...]:
    """A record for each set of positions; the counterexample goes with the set it was found for."""
    from ..norms import norm_name
    from ..questions.inputs import label_name
    from ..report import Verdict

    found = result.counterexample
    verdicts = []
    for where, status, margin in zip(result.positions, result.statuses, result.margins, strict=True):
        example = found if found is not None and found.positions == where else None
        moved, replacements = None, None
        if example is not None and example.words is not None:
            replacements = tuple(example.words[i] for i in where)
        elif example is not None:
            moved = tuple(tuple(row) for row in example.point[0, list(where)].tolist())
        verdicts.append(
            Verdict(
                status=status,
                eps=result.eps,
                norm=norm_name(result.norm),
                positions=where,
                words=tuple(prepared.tokens[i] for i in where),
                margin=margin if math.isfinite(margin) else None,
                flipped=None if example is None else label_name(prepared.model, example.label),
                radius=None if example is None else example.radius,
                counterexample=moved,
                replacements=replacements,
                message=result.reason if status in ("unknown", "error") else None,
            )
        )
    return tuple(verdicts)


def _read_substitutions(path: Path) -> dict[str, list[str]]:
    from ..errors import InputError

    try:
        content = strict.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"--substitutions {path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    lists = isinstance(content, dict) and all(isinstance(v, list) for v in content.values())
    if not lists or not all(isinstance(word, str) for v in content.values() for word in v):
        raise InputError(f"--substitutions {path}: expected a JSON object of lists of words")
    return {str(key): list(value) for key, value in content.items()}


def _shower(*, json: bool, quiet: bool, alone: bool) -> Callable[[Sentence], None] | None:
    if json:
        return None
    if not quiet:
        return _show
    from .view import row

    return lambda found: row(overall(found.verdicts), *([] if alone else [found.text]))


def _show(found: Sentence) -> None:
    from rich.text import Text

    from ..report.wording import told
    from .terminal import console
    from .view import headline, shown

    output = console()
    output.print(headline(found))
    colours = {"certified": "bold green", "refuted": "bold red", "unknown": "bold yellow", "error": "bold red"}
    for verdict in found.verdicts:
        line = Text(f"{verdict.status:<10}", style=colours.get(verdict.status, "bold"))
        line.append_text(shown(told(verdict, found.label), "not bold default"))
        output.print(line)
    if len(found.verdicts) > 1:
        output.print(Text(f"All in all: {overall(found.verdicts)}."))
    output.print()

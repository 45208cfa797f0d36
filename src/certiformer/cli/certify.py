"""`certiformer certify`"""

from __future__ import annotations

import json as encoder
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options

if TYPE_CHECKING:
    from ..inputs import Prepared
    from ..report import Document, Sentence, Verdict
    from .work import Fraction

_WORST = ("error", "refuted", "unknown", "certified")


def certify(
    texts: options.Texts = None,
    eps: Annotated[float | None, typer.Option("--eps", "-e", help="How far each chosen word may move.")] = None,
    model: options.ModelName = None,
    norm: options.Norm = "2",
    method: options.MethodOption = options.Method.auto,
    relaxation: options.RelaxationOption = None,
    words: options.Words = 1,
    positions: options.Positions = None,
    substitutions: Annotated[
        Path | None, typer.Option(help="JSON file: word -> list of words; any of them may be replaced, all at once.")
    ] = None,
    attack: options.WithAttack = True,
    file: options.File = None,
    json: options.Json = False,
    out: options.Out = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    quiet: options.Quiet = False,
) -> None:
    """Is the verdict proved when words move by up to --eps? Exit code 0: yes; 1: refuted or unknown.

    Example: [bold]certiformer certify "a great film" --eps 0.1 --positions great[/bold]
    """
    from ..errors import InputError
    from ..inputs import norm_name, norm_order, position_sets, prepare
    from ..report import sentence
    from ..verdict import certify as ask
    from .work import check_out, chosen_sets, collect, finish, open_model, precision, read_items

    check_out(out)
    p = norm_order(norm)
    if (eps is None) == (substitutions is None):
        raise InputError("give either --eps, how far words may move, or --substitutions, what may replace them")
    if eps is not None and not 0 <= eps < float("inf"):
        raise InputError(f"--eps {eps}: expected a number from 0 on")
    replacing = None if substitutions is None else _read_substitutions(substitutions)
    items = read_items(texts, file)
    opened, where = open_model(model, device)
    shared: dict[str, Any] = {
        "norm": p,
        "method": method.value,
        "attack": attack,
        "dtype": precision(dtype.value),
        "device": where,
    }
    if relaxation is not None:
        shared["relaxation"] = relaxation.value

    def one(text: str, advance: Fraction) -> Sentence:
        prepared = prepare(opened, text, device=where)
        if replacing is not None:
            result = ask(opened, text, substitutions=replacing, **shared)
            return replace(sentence(prepared), verdicts=(_verdict(result, prepared, None, norm_name(p), ()),))
        verdicts = []
        sets = position_sets(prepared, words, chosen_sets(prepared, positions))
        for k, chosen in enumerate(sets):
            result = ask(opened, text, eps=eps, positions=[chosen], **shared)
            verdicts.append(_verdict(result, prepared, eps, norm_name(p), chosen))
            advance((k + 1) / len(sets))
        return replace(sentence(prepared), verdicts=tuple(verdicts))

    document = collect(
        opened,
        items,
        one,
        command="certify",
        settings={
            "eps": eps,
            "norms": [norm_name(p)],
            "method": method.value,
            "relaxation": None if relaxation is None else relaxation.value,
            "words": words,
            "positions": positions or None,
            "substitutions": None if substitutions is None else str(substitutions),
            "attack": attack,
            "device": where,
            "dtype": dtype.value,
        },
        quiet=quiet,
        show=_shower(json=json, quiet=quiet),
    )
    code = finish(document, json=json, out=out, quiet=quiet)
    raise typer.Exit(code or _code(document))


def overall(verdicts: tuple[Verdict, ...]) -> str:
    """The worst of some verdicts."""
    found = {verdict.status for verdict in verdicts}
    return next((status for status in _WORST if status in found), "certified")


def _code(document: Document) -> int:
    from .work import CONTRADICTION

    worst = [overall(sentence.verdicts) for sentence in document.results]
    if "error" in worst:
        return CONTRADICTION
    return 1 if "refuted" in worst or "unknown" in worst else 0


def _verdict(result: Any, prepared: Prepared, eps: float | None, norm: str, chosen: tuple[int, ...]) -> Verdict:
    """A record of what the library answered about one set of positions."""
    import torch

    from ..inputs import label_name
    from ..report import Verdict

    point = getattr(result, "counterexample", None)
    flipped, radius, moved = None, None, None
    if isinstance(point, torch.Tensor):
        rows = point.detach().reshape(prepared.embeddings.shape).to(prepared.embeddings)
        logits = prepared.model.module(rows)[0].clone()
        logits[prepared.label] = -float("inf")
        flipped = label_name(prepared.model, int(logits.argmax()))
        if chosen:
            p = float(norm.removeprefix("l"))
            gap = (rows - prepared.embeddings)[0, list(chosen)]
            radius = float(torch.linalg.vector_norm(gap, ord=p, dim=-1).max())
            moved = tuple(tuple(row) for row in rows[0, list(chosen)].tolist())
    words = getattr(result, "words", None)
    return Verdict(
        status=str(result.status),
        eps=eps,
        norm=norm,
        positions=chosen,
        words=tuple(prepared.tokens[i] for i in chosen),
        margin=None if result.margin is None else float(result.margin),
        flipped=flipped,
        radius=radius,
        counterexample=moved,
        replacements=tuple(map(str, words)) if words else None,
        message=getattr(result, "message", None) or None,
    )


def _read_substitutions(path: Path) -> dict[str, list[str]]:
    from ..errors import InputError

    try:
        content = encoder.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"--substitutions {path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    lists = isinstance(content, dict) and all(isinstance(v, list) for v in content.values())
    if not lists or not all(isinstance(word, str) for v in content.values() for word in v):
        raise InputError(f"--substitutions {path}: expected a JSON object of lists of words")
    return {str(key): list(value) for key, value in content.items()}


def _shower(*, json: bool, quiet: bool) -> Callable[[Sentence], None] | None:
    if json:
        return None
    return (lambda found: typer.echo(overall(found.verdicts))) if quiet else _show


def _show(found: Sentence) -> None:
    from rich.console import Console
    from rich.text import Text

    from .view import headline

    console = Console(highlight=False)
    console.print(headline(found))
    colours = {"certified": "bold green", "refuted": "bold red", "unknown": "bold yellow", "error": "bold red"}
    for verdict in found.verdicts:
        line = Text(f"{verdict.status:<10}", style=colours.get(verdict.status, "bold"))
        line.append(_told(verdict, found.label), style="not bold default")
        console.print(line)
    if len(found.verdicts) > 1:
        console.print(Text(f"All in all: {overall(found.verdicts)}."))
    console.print()


def _told(verdict: Verdict, label: str) -> str:
    """One sentence about one verdict."""
    from ..report.wording import named, up

    if verdict.eps is None:
        subject = "the words by the substitutes given"
    else:
        subject = f"{named(verdict.words)} by up to {verdict.eps:g} in {verdict.norm}"
    if verdict.status == "certified":
        return f"proved: no change of {subject} can change the verdict '{label}'"
    if verdict.status == "refuted":
        becomes = "" if verdict.flipped is None else f" to '{verdict.flipped}'"
        size = "" if verdict.radius is None else f" (a change of {up(verdict.radius)} is enough)"
        names = "" if not verdict.replacements else f": {' '.join(verdict.replacements)}"
        return f"a change of {subject} changes the verdict '{label}'{becomes}{size}{names}"
    told = f" ({verdict.message})" if verdict.message else ""
    return f"neither proved nor refuted for {subject}{told}" if verdict.status == "unknown" else f"error{told}"

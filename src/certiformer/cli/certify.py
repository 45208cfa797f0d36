"""`certiformer certify`"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import strict
from ..core.names import option
from ..errors import InputError
from ..norms import norm_name
from ..options import CertifyCall, CertifyQuestion, Options
from . import CONTRADICTION
from .asking import certifier_of, recorded, sentences
from .flags import Given, command
from .options import Source, Target
from .progress import counted
from .writing import finish

if TYPE_CHECKING:
    from ..questions.inputs import Prepared
    from ..questions.verdict import CertifyResult
    from ..report import Document, Sentence, Verdict
    from .progress import Fraction

_WORST = ("error", "refuted", "unknown", "certified")


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """What may replace words."""

    substitutions: Path | None = option(None, "JSON file: word -> list of words; any of them, all at once.")


@command(CertifyCall, Replacing, Source, Target, without=("tolerance",))
def certify(given: Given) -> int:
    """Is the verdict proved when words move by up to --eps? Exit code 0: yes; 1: refuted or unknown.

    Example: [bold]certiformer certify "a great film" --eps 0.1 --positions great[/bold]
    """
    table, target = given(Replacing).substitutions, given(Target)
    if table is not None and "norm" in given.said:
        raise InputError(f"--substitutions {table} and --norm: words that are replaced are not measured in a norm")
    question = given(CertifyQuestion, substitutions=None if table is None else _read_substitutions(table))
    items = sentences(given)
    if question.certificate is not None and len(items) != 1:
        raise InputError(f"--certificate {question.certificate}: expected one sentence, found {len(items):,}")

    from ..questions.inputs import prepare
    from ..report import sentence
    from .running import Job

    certifier = certifier_of(given)

    def one(text: str, advance: Fraction) -> Sentence:
        result = certifier.certify(text, **vars(replace(question, progress=counted(advance))))
        prepared = prepare(certifier.workspace, text, label=question.label, device=certifier.options.device)
        return replace(sentence(prepared), verdicts=_verdicts(result, prepared))

    norms = None if table is not None else [norm_name(question.p)]
    job = Job(
        certifier,
        items,
        one,
        command="certify",
        settings=recorded(certifier, question, given(Options), norms=norms, substitutions=question.substitutions),
        show=_shower(target, alone=len(items) == 1),
        out=target.out,
    )
    document = job.run(quiet=target.quiet)
    return finish(document, target) or _code(document)


def overall(verdicts: tuple[Verdict, ...]) -> str:
    """The worst of some verdicts."""
    found = {verdict.status for verdict in verdicts}
    return next((status for status in _WORST if status in found), "certified")


def _code(document: Document) -> int:
    worst = [overall(sentence.verdicts) for sentence in document.results]
    if "error" in worst:
        return CONTRADICTION
    return 1 if "refuted" in worst or "unknown" in worst else 0


def _verdicts(result: CertifyResult, prepared: Prepared) -> tuple[Verdict, ...]:
    """A record for each set of positions, with its counterexample."""
    from ..questions.inputs import label_name
    from ..report import Verdict

    verdicts = []
    parts = zip(result.positions, result.statuses, result.margins, result.counterexamples, strict=True)
    for where, status, margin, example in parts:
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
                certificate=result.certificate,
            )
        )
    return tuple(verdicts)


def _read_substitutions(path: Path) -> dict[str, list[str]]:
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


def _shower(target: Target, *, alone: bool) -> Callable[[Sentence], None] | None:
    if target.json:
        return None
    if not target.quiet:
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

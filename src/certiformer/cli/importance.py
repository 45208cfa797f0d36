"""`certiformer importance`"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..norms import norm_name
from ..options import ImportanceCall, ImportanceQuestion, Options
from .asking import certifier_of, recorded, sentences
from .flags import Given, command
from .options import Source, Target
from .progress import counted
from .writing import finish

if TYPE_CHECKING:
    from ..report import Sentence
    from .progress import Fraction


@command(ImportanceCall, Source, Target, without=("words", "positions"))
def importance(given: Given) -> int:
    """Rank the words: the less one may move, relative to its length, the more it matters.

    Example: [bold]certiformer importance "a great film"[/bold]
    """
    question, target = given(ImportanceQuestion), given(Target)
    items = sentences(given)

    from ..questions.inputs import prepare
    from ..report import sentence
    from .running import Job

    certifier = certifier_of(given)

    def one(text: str, advance: Fraction) -> Sentence:
        found = certifier.importance(text, **vars(replace(question, progress=counted(advance))))
        prepared = prepare(certifier.workspace, text, label=question.label, device=certifier.options.device)
        return replace(sentence(prepared), importance=found.words)

    named = norm_name(question.p)
    job = Job(
        certifier,
        items,
        one,
        command="importance",
        settings=recorded(certifier, question, given(Options), norms=[named]),
        show=None if target.json else _values if target.quiet else partial(_show, named),
        out=target.out,
    )
    return finish(job.run(quiet=target.quiet), target)


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

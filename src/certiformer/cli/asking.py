"""What the commands that measure radii share: sentences in, certified and attacked radii out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..named import DEFAULT, check_name
from ..norms import norm_name, norm_order
from ..options import AttackQuestion, Options, Question, RadiusQuestion, settings
from .flags import Given
from .options import Norms, Resumable, Source, Target
from .reading import Item, read_items
from .writing import check_out, finish

if TYPE_CHECKING:
    from ..api import Certifier
    from ..report import Sentence
    from .progress import Fraction


def certifier_of(given: Given, options: Options | None = None) -> Certifier:
    """The model that was named, on the device that was, ready to be asked."""
    from ..api import Certifier
    from ..models import load
    from ..models.device import pick_device

    where = str(pick_device(given.device))
    return Certifier(load(given(Source).model), options or given(Options), device=where)


def sentences(given: Given) -> list[Item]:
    """The sentences that were given, after a look at where the results are to go and at the model's name."""
    check_out(given(Target).out)
    check_name(given(Source).model or DEFAULT)
    return read_items(given.texts, given(Source))


def recorded(certifier: Certifier, *objects: Any, **more: Any) -> dict[str, Any]:
    """The settings of a document."""
    return settings(*objects, device=str(certifier.options.device), **more)


def ask_radii(given: Given, command: str, *, certify: bool, attack: bool) -> int:
    """Certified radii, attacked ones or both of every sentence, those of one length together; the exit code."""
    target = given(Resumable) if "resume" in given.values else given(Target)
    norms = [norm_order(p) for p in given(Norms).norm]
    question = given(RadiusQuestion if certify else Question, norm=norms[0])
    attacking = given(AttackQuestion, norm=norms[0]) if attack else None
    _check_attack(given, attack)
    items = sentences(given)
    options = given(Options) if certify else Options()

    from .limits import tell_if_long
    from .running import Job, Together
    from .view import show_sentence, show_values

    certifier = certifier_of(given, options)
    how = [question, *([options] if certify else []), *([attacking] if attacking else [])]
    job = Job(
        certifier,
        items,
        Together(*_together(certifier, norms, question, certify, attacking)),
        command=command,
        settings=recorded(certifier, *how, norms=[norm_name(p) for p in norms], attack=attack),
        show=None if target.json or command == "report" else show_values if target.quiet else show_sentence,
        out=target.out,
        parts=len(norms),
    )
    if certify and not target.quiet:
        tell_if_long(certifier, items, question, len(norms))
    if isinstance(target, Resumable) and target.resume:
        job.resume()
    return finish(job.run(quiet=target.quiet), target)


def _together(
    certifier: Certifier, norms: Sequence[float], question: Question, certify: bool, attack: AttackQuestion | None
) -> tuple[Callable[[str], tuple[Hashable, int]], Callable[[Sequence[str], Fraction], Sequence[Sentence]]]:
    """What sentences share that go together, and how to measure some of them."""
    from .. import report
    from ..questions.inputs import prepare
    from ..questions.positions import position_sets

    def key(text: str) -> tuple[Hashable, int]:
        prepared = prepare(certifier.workspace, text, label=question.label, device=certifier.options.device)
        sets = position_sets(prepared, question)
        return (len(prepared.tokens), tuple(sets)), len(sets)

    def many(texts: Sequence[str], advance: Fraction) -> Sequence[Sentence]:
        return report.measure_many(
            certifier, texts, question, norms=norms, certify=certify, attack=attack, progress=advance
        )

    return key, many


def _check_attack(given: Given, attack: bool) -> None:
    """Options of an attack that is not made would be ignored."""
    own = {f.name for f in fields(AttackQuestion)} - {f.name for f in fields(Question)}
    wrong = sorted(given.said & own)
    if wrong and not attack:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise InputError(f"--no-attack and {named}: there is no attack that this could be said of")

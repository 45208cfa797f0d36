"""Certified and attacked radii of one input side by side, checked against each other, as records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from ..api import Certifier
from ..attack import AttackResult, attack_sets, check_consistency, versions
from ..norms import norm_name, norm_order
from ..options import AttackQuestion, Options, Question
from ..questions.inputs import Inputs, Prepared, label_name, prepare
from ..questions.positions import position_sets
from ..questions.search import RadiusResult
from .records import Document, Place, Run, Sentence, Substitute

Fraction = Callable[[float], None]


def measure(certifier: Certifier, inputs: Inputs, **asked: Any) -> Sentence:
    """As `measure_many`, for one input."""
    (found,) = measure_many(certifier, [inputs], **asked)
    return found


def measure_many(
    certifier: Certifier,
    inputs: Sequence[Inputs],
    question: Question | None = None,
    *,
    norms: Sequence[float | str] = (2,),
    certify: bool = True,
    attack: AttackQuestion | None = None,
    substitutes: bool = False,
    progress: Fraction | None = None,
) -> tuple[Sentence, ...]:
    """Certified radii (unless `certify` is False) and attacked ones (where `attack` says how) in each norm.

    With `substitutes`, single words also have the closest word that changes the answer in their place. `progress` gets
    the share that is done. Where a certified radius exceeds an attacked one, the run's `error` says so
    and how to reproduce it.
    """
    question = question or Question()
    prepared = [prepare(certifier.workspace, x, label=question.label, device=certifier.options.device) for x in inputs]
    stages = max(1, len(norms) * (int(certify) + int(attack is not None) + int(substitutes)))
    done = 0.0

    def stage(share: float, finished: int, total: int) -> None:
        if progress is not None:
            progress((done + share * finished / max(1, total)) / stages)

    runs: list[list[Run]] = [[] for _ in prepared]
    for norm in norms:
        proved: Sequence[RadiusResult | None] = [None] * len(prepared)
        if certify:
            asked = replace(question, norm=norm, progress=partial(stage, 1.0))
            proved = certifier.radii(inputs, **vars(asked))
            done += 1
        for i, each in enumerate(prepared):
            found: list[AttackResult | None] = [None, None]
            words = (
                AttackQuestion(attack_method="enumeration") if substitutes and _replaceable(each, question) else None
            )
            for k, way in enumerate((attack, words)):
                if way is not None:
                    how = replace(way, norm=norm, progress=partial(stage, 1 / len(prepared)))
                    found[k] = attack_sets(each, position_sets(each, question), how)
                    done += 1 / len(prepared)
            run = _run(each, norm_name(norm_order(norm)), proved[i], found[0], certifier.options)
            runs[i].append(run if found[1] is None else _with_words(run, each, found[1], certifier.options))
    return tuple(sentence(each, runs=tuple(r)) for each, r in zip(prepared, runs, strict=True))


def sentence(prepared: Prepared, *, runs: tuple[Run, ...] = ()) -> Sentence:
    """The record of an input, without or with what was found."""
    words = (token for token, special in zip(prepared.tokens, prepared.special, strict=True) if not special)
    return Sentence(
        text=prepared.text if prepared.text is not None else " ".join(words),
        tokens=prepared.tokens,
        special=prepared.special,
        label=prepared.label_name,
        label_index=prepared.label,
        margin=prepared.margin,
        ids=prepared.ids,
        spans=prepared.spans,
        note=prepared.note,
        runs=runs,
    )


def _replaceable(prepared: Prepared, question: Question) -> bool:
    """Whether words of the vocabulary can stand in the place of each of those asked about."""
    known = prepared.ids is not None and bool(prepared.model.vocabulary)
    return known and all(len(where) == 1 for where in position_sets(prepared, question))


def _with_words(run: Run, prepared: Prepared, found: AttackResult, options: Options) -> Run:
    """A run with the closest word for each place; a proof that reaches as far is an error here too."""
    places = []
    for place, word, distance, flipped in zip(run.places, found.words, found.radii, found.flipped, strict=True):
        put = None
        if word is not None and flipped is not None:
            put = Substitute(word, distance, label_name(prepared.model, flipped))
        places.append(replace(place, substitute=put))
    error = run.error
    if error is None and run.method is not None:
        error = _contradiction(prepared, run, found.radii, options)
    return replace(run, places=tuple(places), substitute_seconds=found.seconds, error=error)


def _contradiction(prepared: Prepared, run: Run, attacked: Sequence[float], options: Options) -> dict[str, Any] | None:
    """What is needed to reproduce a certified radius that exceeds an attacked one, where one does."""
    error = check_consistency(
        positions=[place.positions for place in run.places],
        certified=[0.0 if place.certified is None else place.certified for place in run.places],
        attacked=attacked,
        model=prepared.model.name,
        norm=run.norm,
        inputs=prepared.ids if prepared.ids is not None else prepared.text,
        method=str(run.method),
        relaxation=str(run.relaxation),
        dtype=str(options.dtype),
    )
    return None if error is None else error.to_json()


def _run(
    prepared: Prepared, norm: str, proved: RadiusResult | None, found: AttackResult | None, options: Options
) -> Run:
    sets = proved.positions if proved is not None else found.positions if found is not None else ()
    places = []
    for i, where in enumerate(sets):
        flipped = found.flipped[i] if found is not None else None
        places.append(
            Place(
                positions=where,
                words=tuple(prepared.tokens[k] for k in where),
                certified=None if proved is None else proved.radii[i],
                normalized=None if proved is None else proved.normalized[i],
                attacked=None if found is None or math.isinf(found.radii[i]) else found.radii[i],
                replacement=None if found is None else found.words[i],
                flipped=None if flipped is None else label_name(prepared.model, flipped),
                certificate=None if proved is None or not proved.certificates else proved.certificates[i],
            )
        )
    run = Run(
        norm=norm,
        places=tuple(places),
        method=None if proved is None else proved.method,
        relaxation=None if proved is None else proved.relaxation,
        calls=None if proved is None else proved.calls,
        seconds=None if proved is None else proved.seconds,
        attack=None if found is None else found.method,
        attack_seconds=None if found is None else found.seconds,
        complete=proved is None or proved.complete,
        stopped=None if proved is None else proved.stopped,
        unwritten=None if proved is None else proved.unwritten,
    )
    if proved is None or found is None:
        return run
    return replace(run, error=_contradiction(prepared, run, found.radii, options))


def document(certifier: Certifier, results: Iterable[Sentence], **more: Any) -> Document:
    """The document of what was found. `more` are further fields of it: command, settings, seconds, hashes, ..."""
    return Document(
        model=certifier.model.name,
        labels=certifier.model.labels,
        versions=versions(),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        results=tuple(results),
        **more,
    )

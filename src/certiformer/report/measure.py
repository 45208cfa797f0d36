"""Certified and attacked radii of one input side by side, checked against each other, as records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..attack import AttackMethod, AttackResult, attack_prepared, check_consistency
from ..models.model import Model
from ..questions.inputs import Inputs, Positions, Prepared, label_name, norm_name, norm_order, prepare
from .records import Place, Run, Sentence

if TYPE_CHECKING:
    from ..core.names import AutoMethod, Budget, Relaxation
    from ..questions.search import RadiusResult

Fraction = Callable[[float], None]


def measure(
    model: Model,
    inputs: Inputs,
    *,
    norms: Sequence[float | str] = (2,),
    words: int = 1,
    positions: Positions | None = None,
    certify: bool = True,
    attack: AttackMethod | None = "gradient",
    method: AutoMethod = "auto",
    relaxation: Relaxation | None = None,
    budget: Budget = "balanced",
    optimise: int = 0,
    splits: int | None = None,
    tolerance: float = 1e-3,
    seed: int = 0,
    steps: int = 50,
    restarts: int = 3,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    on_progress: Fraction | None = None,
) -> Sentence:
    """Certified radii (unless `certify` is False) and attacked ones (unless `attack` is None) in each norm.

    `budget`, `optimise` (steps) and `splits` are of the proofs, `steps` and `restarts` of the attack.
    `on_progress` gets the share that is done. Where a certified radius exceeds an attacked one, the run's `error`
    says so and how to reproduce it.
    """
    (found,) = measure_many(
        model,
        [inputs],
        norms=norms,
        words=words,
        positions=positions,
        certify=certify,
        attack=attack,
        method=method,
        relaxation=relaxation,
        budget=budget,
        optimise=optimise,
        splits=splits,
        tolerance=tolerance,
        seed=seed,
        steps=steps,
        restarts=restarts,
        dtype=dtype,
        device=device,
        on_progress=on_progress,
    )
    return found


def measure_many(
    model: Model,
    inputs: Sequence[Inputs],
    *,
    norms: Sequence[float | str] = (2,),
    words: int = 1,
    positions: Positions | None = None,
    certify: bool = True,
    attack: AttackMethod | None = "gradient",
    method: AutoMethod = "auto",
    relaxation: Relaxation | None = None,
    budget: Budget = "balanced",
    optimise: int = 0,
    splits: int | None = None,
    tolerance: float = 1e-3,
    seed: int = 0,
    steps: int = 50,
    restarts: int = 3,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    on_progress: Fraction | None = None,
) -> tuple[Sentence, ...]:
    """As `measure`, for many inputs: the radii of those of one length are searched together."""
    prepared = [prepare(model, x, device=device) for x in inputs]
    stages = len(norms) * (int(certify) + int(attack is not None))
    done = 0.0

    def stage(share: float, finished: int, total: int) -> None:
        if on_progress is not None:
            on_progress((done + share * finished / max(1, total)) / max(1, stages))

    runs: list[list[Run]] = [[] for _ in prepared]
    for norm in norms:
        proved: Sequence[RadiusResult | None] = [None] * len(prepared)
        if certify:
            from ..questions.search import radii

            options: dict[str, Any] = {} if relaxation is None else {"relaxation": relaxation}
            proved = radii(
                model,
                inputs,
                norm=norm,
                words=words,
                positions=positions,
                method=method,
                budget=budget,
                steps=optimise,
                splits=splits,
                tolerance=tolerance,
                dtype=dtype,
                device=device,
                progress=partial(stage, 1.0),
                **options,
            )
            done += 1
        for i, each in enumerate(prepared):
            found: AttackResult | None = None
            if attack is not None:
                found = attack_prepared(
                    each,
                    norm=norm,
                    words=words,
                    positions=positions,
                    method=attack,
                    seed=seed,
                    steps=steps,
                    restarts=restarts,
                    on_progress=partial(stage, 1 / len(prepared)),
                )
                done += 1 / len(prepared)
            runs[i].append(_run(model, each, norm_name(norm_order(norm)), proved[i], found, dtype))
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


def _run(
    model: Model,
    prepared: Prepared,
    norm: str,
    proved: RadiusResult | None,
    found: AttackResult | None,
    dtype: torch.dtype,
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
                flipped=None if flipped is None else label_name(model, flipped),
            )
        )
    error = None
    if proved is not None and found is not None:
        error = check_consistency(
            positions=sets,
            certified=proved.radii,
            attacked=found.radii,
            model=model.name,
            norm=norm,
            inputs=prepared.ids if prepared.ids is not None else prepared.text,
            method=proved.method,
            relaxation=proved.relaxation,
            dtype=str(dtype).removeprefix("torch."),
        )
    return Run(
        norm=norm,
        places=tuple(places),
        method=None if proved is None else proved.method,
        relaxation=None if proved is None else proved.relaxation,
        calls=None if proved is None else proved.calls,
        seconds=None if proved is None else proved.seconds,
        attack=None if found is None else found.method,
        attack_seconds=None if found is None else found.seconds,
        error=None if error is None else error.to_json(),
    )

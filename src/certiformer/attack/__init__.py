"""Upper bounds: counterexamples by projected gradient or by trying every word of the vocabulary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ..errors import InputError
from ..models.model import Model
from ..questions.inputs import Inputs, Positions, Prepared, norm_order, position_sets, prepare
from .consistency import ConsistencyError, Contradiction, check_consistency, versions
from .enumeration import closest_words
from .gradient import smallest

__all__ = [
    "AttackMethod",
    "AttackResult",
    "ConsistencyError",
    "Contradiction",
    "attack",
    "attack_prepared",
    "check_consistency",
    "versions",
]

AttackMethod = Literal["gradient", "enumeration"]


@dataclass(frozen=True, eq=False)
class AttackResult:
    """For each set of positions the radius of a counterexample, inf where none was found.

    `points[i]` is the counterexample `[1, n, d]` in float64, `words[i]` the word put in place (enumeration only) and
    `flipped[i]` the label found there. Each was checked by a plain forward pass in float64. `radii[i]` is the largest
    p-norm of the perturbation of a position.
    """

    positions: tuple[tuple[int, ...], ...]
    radii: tuple[float, ...]
    points: tuple[Tensor | None, ...]
    words: tuple[str | None, ...]
    flipped: tuple[int | None, ...]
    tokens: tuple[str, ...]
    label: int
    margin: float
    norm: float
    method: AttackMethod
    seconds: float
    note: str | None = None


def attack(
    model: Model,
    inputs: Inputs,
    *,
    norm: float | str = 2,
    words: int = 1,
    positions: Positions | None = None,
    method: AttackMethod = "gradient",
    label: int | None = None,
    seed: int = 0,
    steps: int = 50,
    restarts: int = 3,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    on_progress: Callable[[int, int], None] | None = None,
) -> AttackResult:
    """Search the smallest change of the embeddings that changes the answer, for each set of positions.

    "gradient" moves the embeddings freely, each position by at most the radius; "enumeration" puts every word of the
    vocabulary in the place of one. `dtype` is the precision of the search; what it finds is checked in float64.
    """
    prepared = prepare(model, inputs, label=label, device=device)
    return attack_prepared(
        prepared,
        norm=norm,
        words=words,
        positions=positions,
        method=method,
        seed=seed,
        steps=steps,
        restarts=restarts,
        dtype=dtype,
        on_progress=on_progress,
    )


def attack_prepared(
    prepared: Prepared,
    *,
    norm: float | str = 2,
    words: int = 1,
    positions: Positions | None = None,
    method: AttackMethod = "gradient",
    seed: int = 0,
    steps: int = 50,
    restarts: int = 3,
    dtype: torch.dtype = torch.float32,
    on_progress: Callable[[int, int], None] | None = None,
) -> AttackResult:
    """`attack` for an input that was prepared already (in float64)."""
    began = time.perf_counter()
    p = norm_order(norm)
    if method not in get_args(AttackMethod):
        raise InputError(f"method={method!r}: expected {' or '.join(map(repr, get_args(AttackMethod)))}")
    for name, value in (("steps", steps), ("restarts", restarts)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}={value!r}: expected a whole number from 1 on")
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype={dtype}: expected torch.float32 or torch.float64")
    sets = tuple(position_sets(prepared, words, positions))
    replaced: tuple[str | None, ...] = (None,) * len(sets)
    if method == "enumeration":
        if any(len(s) > 1 for s in sets):
            raise InputError(f"method='enumeration' replaces one word at a time, but sets of {len(sets[0])} were asked")
        tried = closest_words(prepared, [s[0] for s in sets], p=p, dtype=dtype, on_progress=on_progress)
        replaced, points, radii, labels = tried.words, tried.points, tried.radii, tried.labels
    else:
        found = smallest(
            prepared,
            sets,
            p=p,
            steps=steps,
            restarts=restarts,
            seed=seed,
            dtype=dtype,
            on_progress=on_progress,
        )
        points, radii, labels = found.points, found.radii, found.labels
    return AttackResult(
        positions=sets,
        radii=radii,
        points=points,
        words=replaced,
        flipped=labels,
        tokens=prepared.tokens,
        label=prepared.label,
        margin=prepared.margin,
        norm=p,
        method=method,
        seconds=time.perf_counter() - began,
        note=prepared.note,
    )

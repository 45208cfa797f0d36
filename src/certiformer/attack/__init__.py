"""Upper bounds: counterexamples by projected gradient or by trying every word of the vocabulary."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from ..errors import InputError
from ..options import AttackMethod, AttackQuestion, Machine
from ..questions.inputs import Inputs, Prepared, prepare
from ..questions.positions import position_sets
from ..questions.workspace import Workspace
from ..results import AttackResult as AttackResult
from .consistency import ConsistencyError, Contradiction, check_consistency, versions
from .enumeration import closest_words
from .gradient import smallest

__all__ = [
    "AttackMethod",
    "AttackResult",
    "ConsistencyError",
    "Contradiction",
    "attack",
    "attack_sets",
    "check_consistency",
    "versions",
]


def attack(workspace: Workspace, inputs: Inputs, question: AttackQuestion, machine: Machine) -> AttackResult:
    """Search the smallest change of the embeddings that changes the answer, for each set of positions.

    "gradient" moves the embeddings freely, each position by at most the radius; "enumeration" puts every word of the
    vocabulary in the place of one.
    """
    prepared = prepare(workspace, inputs, label=question.label, device=machine.device)
    return attack_sets(prepared, position_sets(prepared, question), question)


def attack_sets(
    prepared: Prepared,
    sets: Sequence[tuple[int, ...]],
    question: AttackQuestion,
    *,
    dtype: torch.dtype = torch.float64,
) -> AttackResult:
    """`attack` for an input that was prepared already (in float64), and for these sets of positions.

    What gradients find is checked by a forward pass in `dtype`.
    """
    began = time.perf_counter()
    replaced: tuple[str | None, ...] = (None,) * len(sets)
    if question.attack_method == "enumeration":
        if any(len(s) > 1 for s in sets):
            most = max(len(s) for s in sets)
            raise InputError(f"attack_method='enumeration' replaces one word at a time, but sets of {most} were asked")
        tried = closest_words(prepared, [s[0] for s in sets], question)
        replaced, points, radii, labels = tried.words, tried.points, tried.radii, tried.labels
    else:
        found = smallest(prepared, sets, question, dtype=dtype)
        points, radii, labels = found.points, found.radii, found.labels
    return AttackResult(
        positions=tuple(sets),
        radii=radii,
        points=points,
        words=replaced,
        flipped=labels,
        tokens=prepared.tokens,
        label=prepared.label,
        margin=prepared.margin,
        norm=question.p,
        method=question.attack_method,
        seconds=time.perf_counter() - began,
        note=prepared.note,
    )

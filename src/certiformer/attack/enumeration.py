"""Every word of the vocabulary in one place: the closest, by the norm of the embeddings, that changes the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, ModelError
from ..models.faithful import same_by_ids
from ..models.model import Model
from ..options import AttackQuestion
from ..questions.inputs import UNKNOWN_TOKENS, Prepared, embed_ids, margins
from ..questions.workspace import precision
from .forward import logits_of
from .gradient import check, winner
from .norms import lengths

_FIRST, _LARGEST = 32, 512  # candidates of one position in the first batch, and at most
_ELEMENTS = 2**22  # numbers of input in one batch
_NEAR = 1e-4  # a margin this small, in units of the logits, is decided in float64


@dataclass(frozen=True, eq=False)
class Replaced:
    """For each position the closest word that changes the answer, the input with it, its radius and the new label."""

    words: tuple[str | None, ...]
    points: tuple[Tensor | None, ...]
    radii: tuple[float, ...]
    labels: tuple[int | None, ...]


def closest_words(prepared: Prepared, positions: Sequence[int], question: AttackQuestion) -> Replaced:
    """Try the vocabulary at each position, nearest first, and stop at the first word that changes the answer."""
    p, dtype = question.p, precision(question.attack_dtype)
    model = prepared.model
    if prepared.ids is None:
        raise InputError("enumeration replaces words: give a text or token ids instead of embeddings")
    if not model.vocabulary:
        raise ModelError(f"model {model.name!r} has no vocabulary to enumerate; use the gradient attack")
    candidates = _candidates(prepared)
    distances = _distances(prepared, candidates, positions, p=p, dtype=dtype)  # [candidates, positions]
    words: list[str | None] = []
    points: list[Tensor | None] = []
    radii: list[float] = []
    labels: list[int | None] = []
    for k, position in enumerate(positions):
        order = candidates[distances[:, k].argsort(stable=True)]
        order = order[order != prepared.ids[position]]
        word, point, label = _first_flip(prepared, position, order, dtype=dtype)
        words.append(None if word is None else model.vocabulary[word])
        points.append(point)
        labels.append(label)
        gap = None if point is None else point - prepared.embeddings.to(point)
        radii.append(math.inf if gap is None else float(lengths(gap, p).max()))
        if question.progress is not None:
            question.progress(k + 1, len(positions))
    return Replaced(tuple(words), tuple(points), tuple(radii), tuple(labels))


def _candidates(prepared: Prepared) -> Tensor:
    """Ids of the words: neither special tokens nor the unknown one."""
    model = prepared.model
    left_out = set(model.special) | {model.vocabulary.index(t) for t in UNKNOWN_TOKENS if t in model.vocabulary}
    ids = [i for i in range(len(model.vocabulary)) if i not in left_out]
    return torch.tensor(ids, device=prepared.embeddings.device)


def _distances(
    prepared: Prepared, candidates: Tensor, positions: Sequence[int], *, p: float, dtype: torch.dtype
) -> Tensor:
    """How far each candidate is from the word at each position: `[candidates, positions]`.

    A row of ids holds one candidate at all of the positions, so the vocabulary is embedded once.
    """
    model = prepared.cast(dtype)
    centre = prepared.embeddings.to(dtype)[:, list(positions)]  # [1, positions, d]
    template = torch.tensor([prepared.ids], device=centre.device)  # [1, n]
    batch = max(1, _ELEMENTS // prepared.embeddings.numel())
    parts = []
    for first in range(0, len(candidates), batch):
        some = candidates[first : first + batch]
        ids = template.repeat(len(some), 1)
        ids[:, list(positions)] = some[:, None]
        parts.append(lengths(embed_ids(model, ids, dtype=dtype)[:, list(positions)] - centre, p))
    return torch.cat(parts)


def _first_flip(
    prepared: Prepared, position: int, order: Tensor, *, dtype: torch.dtype
) -> tuple[int | None, Tensor | None, int | None]:
    """The first id of `order` that changes the answer at `position`, decided in float64."""
    device = prepared.embeddings.device
    fast = prepared.cast(dtype)
    exact = prepared.cast(torch.float64)
    template = torch.tensor([prepared.ids], device=device)
    done, size = 0, _FIRST
    largest = max(_FIRST, min(_LARGEST, _ELEMENTS // prepared.embeddings.numel()))
    while done < len(order):
        some = order[done : done + size]
        ids = template.repeat(len(some), 1)
        ids[:, position] = some
        with torch.no_grad():
            logits = logits_of(fast.module, embed_ids(fast, ids, dtype=dtype))
        near = _NEAR * logits.abs().amax(dim=1) if dtype != torch.float64 else 0.0
        close = (margins(logits, prepared.label) <= near).nonzero()[:, 0]
        hit = _decide(prepared, exact, ids[close]) if len(close) else None
        if hit is not None:
            row, point, label = hit
            return int(some[close[row]]), point, label
        done, size = done + len(some), min(2 * size, largest)
    return None, None, None


def _decide(prepared: Prepared, exact: Model, ids: Tensor) -> tuple[int, Tensor, int] | None:
    """The first of some inputs `[rows, n]` whose answer differs in float64, alone: its row, embeddings and label."""
    with torch.no_grad():
        found = margins(logits_of(exact.module, embed_ids(exact, ids, dtype=torch.float64)), prepared.label)
    for row in (found <= 0).nonzero()[:, 0].tolist():
        point = embed_ids(exact, ids[row : row + 1], dtype=torch.float64)
        logits = check(exact.module, point)
        if not same_by_ids(exact, ids[row : row + 1], prepared.arguments, point, logits):
            continue  # to the model's own forward pass this word is something else than its embedding
        if bool(margins(logits, prepared.label)[0] <= 0):
            return row, point, winner(logits, prepared.label)
    return None

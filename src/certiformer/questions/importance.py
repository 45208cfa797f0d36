"""Word importance from radii: the less a word may move, relative to its length, the more it matters."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..attack import AttackResult, attack_sets
from ..options import AttackQuestion, ImportanceQuestion, Options, Progress, Question, RadiusQuestion, only
from ..results import ImportanceResult as ImportanceResult
from ..results import Ranked as Ranked
from .inputs import Inputs, Prepared, margins, prepare
from .search import RadiusResult, radii, relative
from .workspace import Workspace


def importance(workspace: Workspace, text: Inputs, question: ImportanceQuestion, options: Options) -> ImportanceResult:
    """Rank the words of a text by normalised certified radius, beside the ranks by gradient and by enumeration.

    Without `upper` the enumeration of the vocabulary is left out, as it is where there is none.
    """
    began = time.perf_counter()
    prepared = prepare(workspace, text, label=question.label, device=options.device)
    enumerate_words = question.upper and bool(prepared.model.vocabulary) and prepared.ids is not None
    halves = 1 + int(enumerate_words)

    def half(number: int) -> Progress | None:
        tell = question.progress
        return None if tell is None else lambda done, total: tell(number * total + done, halves * total)

    asked = RadiusQuestion(**vars(only(Question, replace(question, progress=half(0)))))
    (proved,) = radii(workspace, [text], asked, options)
    slope_at = gradients(prepared)
    slopes = [slope_at[where[0]] for where in proved.positions]
    tried: AttackResult | None = None
    if enumerate_words:
        trying = AttackQuestion(norm=question.norm, attack_method="enumeration", progress=half(1))
        tried = attack_sets(prepared, proved.positions, trying)
    return ImportanceResult(
        words=_ranked(prepared, proved, slopes, tried),
        label=prepared.label,
        margin=prepared.margin,
        norm=question.p,
        method=proved.method,
        relaxation=proved.relaxation,
        seconds=time.perf_counter() - began,
        tokens=prepared.tokens,
    )


def _ranked(
    prepared: Prepared, proved: RadiusResult, slopes: list[float], tried: AttackResult | None
) -> tuple[Ranked, ...]:
    """The words with their ranks, most important first."""
    places = [where[0] for where in proved.positions]
    lengths = torch.linalg.vector_norm(prepared.blocks[0], ord=proved.norm, dim=-1).tolist()
    attacked = [math.inf] * len(places) if tried is None else list(tried.radii)
    replaced = [None] * len(places) if tried is None else list(tried.words)
    scaled = [relative(r, lengths[i]) for r, i in zip(attacked, places, strict=True)]
    ranks, gradient_ranks, upper_ranks = _ranks(proved.normalized), _ranks([-s for s in slopes]), _ranks(scaled)
    words = [
        Ranked(
            position=where,
            word=prepared.tokens[where],
            certified=proved.radii[k],
            normalized=proved.normalized[k],
            rank=ranks[k],
            gradient=slopes[k],
            gradient_rank=gradient_ranks[k],
            attacked=None if math.isinf(attacked[k]) else attacked[k],
            attacked_normalized=None if math.isinf(scaled[k]) else scaled[k],
            attacked_rank=None if tried is None else upper_ranks[k],
            replacement=replaced[k],
        )
        for k, where in enumerate(places)
    ]
    return tuple(sorted(words, key=lambda w: w.rank))


def gradients(prepared: Prepared) -> list[float]:
    """The l2 norm of the margin's gradient at every position."""
    x = prepared.embeddings.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(margins(prepared.model.module(x), prepared.label).sum(), x)
    norms: list[float] = torch.linalg.vector_norm(gradient.reshape(prepared.blocks.shape)[0], dim=-1).tolist()
    return norms


def _ranks(values: Sequence[float]) -> list[int]:
    """1 for the smallest; what is equal goes by position."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    ranks = [0] * len(values)
    for rank, i in enumerate(order, start=1):
        ranks[i] = rank
    return ranks

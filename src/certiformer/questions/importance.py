"""Word importance from radii: the less a word may move, relative to its length, the more it matters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..attack import attack_prepared
from ..models.model import Model
from .inputs import Prepared, margins, norm_order, prepare

if TYPE_CHECKING:
    from ..core.names import AutoMethod, Relaxation


@dataclass(frozen=True)
class Ranked:
    """A word with its three ranks; 1 is the most important.

    `normalized` is the certified radius over the norm of the word's embedding (small is important), `gradient` the l2
    norm of the margin's gradient (large is important), `attacked` the distance of the closest word that changes the
    answer (small is important; None where there is none, which ranks last).
    """

    position: int
    word: str
    certified: float
    normalized: float
    rank: int
    gradient: float
    gradient_rank: int
    attacked: float | None = None
    attacked_normalized: float | None = None
    attacked_rank: int | None = None
    replacement: str | None = None


@dataclass(frozen=True)
class ImportanceResult:
    """The words, most important first."""

    words: tuple[Ranked, ...]
    label: int
    margin: float
    norm: float
    method: str
    relaxation: str
    seconds: float


def importance(
    model: Model,
    text: str | Sequence[int],
    *,
    norm: float | str = 2,
    upper: bool = True,
    method: AutoMethod = "auto",
    relaxation: Relaxation | None = None,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> ImportanceResult:
    """Rank the words of a text by normalised certified radius, beside the ranks by gradient and by enumeration.

    `upper=False` leaves out the enumeration of the vocabulary, which is also left out where there is none.
    """
    from .search import radius

    began = time.perf_counter()
    p = norm_order(norm)
    prepared = prepare(model, text, device=device)
    enumerate_words = upper and bool(model.vocabulary) and prepared.ids is not None
    halves = 1 + int(enumerate_words)

    def report(done: int, total: int, before: int = 0) -> None:
        if on_progress is not None:
            on_progress((before + done / max(1, total)) / halves)

    options: dict[str, Any] = {} if relaxation is None else {"relaxation": relaxation}
    proved = radius(
        model,
        text,
        norm=norm,
        method=method,
        tolerance=tolerance,
        dtype=dtype,
        device=device,
        progress=report,
        **options,
    )
    places = [where[0] for where in proved.positions]
    lengths = torch.linalg.vector_norm(prepared.embeddings[0], ord=p, dim=-1).tolist()
    slope_at = gradients(prepared)
    slopes = [slope_at[i] for i in places]
    attacked: list[float] = [math.inf] * len(places)
    replaced: list[str | None] = [None] * len(places)
    if enumerate_words:
        found = attack_prepared(
            prepared,
            norm=norm,
            positions=[(place,) for place in places],
            method="enumeration",
            on_progress=lambda done, total: report(done, total, 1),
        )
        attacked, replaced = list(found.radii), list(found.words)
    relative = [_over(r, lengths[i]) for r, i in zip(attacked, places, strict=True)]
    ranks, gradient_ranks, upper_ranks = _ranks(proved.normalized), _ranks([-s for s in slopes]), _ranks(relative)
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
            attacked_normalized=None if math.isinf(relative[k]) else relative[k],
            attacked_rank=upper_ranks[k] if enumerate_words else None,
            replacement=replaced[k],
        )
        for k, where in enumerate(places)
    ]
    return ImportanceResult(
        words=tuple(sorted(words, key=lambda w: w.rank)),
        label=prepared.label,
        margin=prepared.margin,
        norm=p,
        method=proved.method,
        relaxation=proved.relaxation,
        seconds=time.perf_counter() - began,
    )


def gradients(prepared: Prepared) -> list[float]:
    """The l2 norm of the margin's gradient at every position."""
    x = prepared.embeddings.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(margins(prepared.model.module(x), prepared.label).sum(), x)
    norms: list[float] = torch.linalg.vector_norm(gradient[0], dim=-1).tolist()
    return norms


def _over(radius: float, length: float) -> float:
    return radius / length if length > 0 else math.inf


def _ranks(values: Sequence[float]) -> list[int]:
    """1 for the smallest; what is equal goes by position."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    ranks = [0] * len(values)
    for rank, i in enumerate(order, start=1):
        ranks[i] = rank
    return ranks

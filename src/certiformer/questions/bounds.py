"""`bounds`: margins of one input under given radii."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.names import Method, Relaxation
from ..errors import InputError
from ..models.model import Model
from .inputs import Inputs, Positions, norm_order, position_sets, prepare, problem_of


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the margins `logit[label] - logit[other]`, one row per set of positions, one column per other class.

    The prediction is proved unchanged where a whole row of `lower` is above 0. Where nothing could be proved the row is
    -inf, and `reasons` says why.
    """

    lower: Tensor
    upper: Tensor
    label: int
    positions: tuple[tuple[int, ...], ...]
    eps: tuple[float, ...]
    norm: float
    method: Method
    relaxation: Relaxation
    reasons: tuple[str | None, ...]
    seconds: float

    @property
    def certified(self) -> tuple[bool, ...]:
        """Per instance, whether the label is proved to stay."""
        return tuple(bool(row) for row in (self.lower > 0).all(dim=1))


def bounds(
    model: Model,
    inputs: Inputs,
    *,
    eps: float | Sequence[float] | Tensor,
    norm: float | str = 2,
    positions: Positions | None = None,
    words: int = 1,
    method: Method = "backward-forward",
    relaxation: Relaxation = "paper",
    label: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    max_memory: int | None = None,
    rounding: bool = True,
) -> Bounds:
    """Bound the margins of `inputs` when the embeddings at `positions` move by at most `eps` in the norm.

    `inputs`: a text, token ids (with CLS and SEP) or embeddings `[n, d]`. `positions`: indices, all perturbed together;
    a list of lists gives one instance each; by default every set of `words` words. `eps`: a number, or one per
    instance. `rounding=False` leaves out the accounting for floating point.
    """
    started = time.perf_counter()
    p = norm_order(norm)
    prepared = prepare(model, inputs, label=label, dtype=dtype, device=device)
    sets = position_sets(prepared, words, positions)
    radii = _radii(eps, len(sets), prepared.embeddings)
    problem = problem_of(
        [(prepared, s) for s in sets], p=p, method=method, relaxation=relaxation, max_memory=max_memory
    )
    margins = problem.margins(radii, rounding=rounding)
    return Bounds(
        lower=margins.lower,
        upper=margins.upper,
        label=prepared.label,
        positions=tuple(sets),
        eps=tuple(radii.tolist()),
        norm=p,
        method=method,
        relaxation=relaxation,
        reasons=margins.reasons,
        seconds=time.perf_counter() - started,
    )


def _radii(eps: float | Sequence[float] | Tensor, count: int, like: Tensor) -> Tensor:
    """A radius for each instance, checked."""
    try:
        radii = torch.as_tensor(eps, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"eps={eps!r}: expected a number, or one for each of the {count} instances") from None
    if radii.dim() == 0:
        radii = radii.expand(count)
    if radii.shape != (count,):
        raise InputError(
            f"eps has shape {list(radii.shape)}: expected one number, or one for each of {count} instances"
        )
    for value in radii.tolist():
        if not (value >= 0 and math.isfinite(value)):
            raise InputError(f"eps={value}: expected a finite radius of 0 or more")
    return radii

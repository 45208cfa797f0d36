"""lp geometry of blocks: every block `[..., d]` is a vector of its own, and a batch shares one radius a row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.sets import dual, norm

_TINY = 1e-30  # guards a division whose result is multiplied by zero; smaller than any gradient that matters


def lengths(x: Tensor, p: float) -> Tensor:
    """The p-norm of every block: `[..., d]` -> `[...]`."""
    return norm(x, p, dim=-1)


def dual_lengths(gradient: Tensor, p: float) -> Tensor:
    """How much a linear function grows at most over a unit p-ball: the dual norm of every block."""
    return lengths(gradient, dual(p))


def steepest(gradient: Tensor, p: float, kept: Tensor | None = None) -> Tensor:
    """The point of the unit p-ball where a linear function is largest: g/|g| for p = 2, its signs for p = inf, the
    largest coordinate alone for p = 1; with `kept` `[rows]`, so many of the largest there, in proportion."""
    if math.isinf(p):
        return gradient.sign()
    if p == 1:
        ordered = gradient.abs().sort(dim=-1, descending=True).values
        last = torch.ones_like(ordered[:, 0, 0], dtype=torch.long) if kept is None else kept
        cut = ordered.gather(-1, (last - 1)[:, None, None].expand(-1, ordered.shape[1], 1))
        direction = torch.where(gradient.abs() >= cut, gradient, 0)
        return direction / lengths(direction, 1)[..., None].clamp(min=_TINY)
    scaled = gradient / gradient.abs().amax(dim=-1, keepdim=True).clamp(min=_TINY)
    direction = scaled.sign() * scaled.abs() ** (dual(p) - 1)
    return direction / lengths(direction, p)[..., None].clamp(min=_TINY)


def into_ball(x: Tensor, radius: Tensor, p: float) -> Tensor:
    """Every block of `[rows, t, d]` brought into the p-ball of its row's `radius` `[rows]`.

    The nearest point of the ball for p = 1, 2 and inf; for other p the point on the ray from the centre.
    """
    bound = radius[:, None, None]
    if math.isinf(p):
        return torch.maximum(torch.minimum(x, bound), -bound)
    size = lengths(x, p)[..., None]
    if p != 1:
        return x * (bound / size.clamp(min=_TINY)).clamp(max=1)
    magnitude = x.abs()
    ordered = magnitude.sort(dim=-1, descending=True).values
    count = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    cuts = (ordered.cumsum(dim=-1) - bound) / count  # what to take off when the first `count` coordinates remain
    remaining = (ordered > cuts).sum(dim=-1, keepdim=True).clamp(min=1)
    cut = cuts.gather(-1, remaining - 1).clamp(min=0)
    return torch.where(size > bound, x.sign() * (magnitude - cut).clamp(min=0), x)

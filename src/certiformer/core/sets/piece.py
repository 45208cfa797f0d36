"""Pieces of a ball: what lies between parallel hyperplanes, `low_i <= normal_i . delta <= high_i`.

A linear function is least over such a piece at no less than, for any numbers `t_i`,

    min over the ball of (A - sum_i t_i normal_i) . delta  +  sum_i (t_i low_i if t_i > 0 else t_i high_i),

so the `t_i` need not be exact. For one Euclidean ball and orthonormal normals the best have a closed form up to one
number, which is found by bisection; for other norms the same ones are tried, and multiples of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..ops.base import ulp
from .ball import Ball

HALVINGS = 14
MULTIPLES = (1.0, 0.6, 0.8, 1.25, 1.6)


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece(Ball):
    """A ball between hyperplanes: `normal` [instances, k, m], about orthonormal; `low` and `high` [instances, k].

    Both may be infinite. Pieces that share the number at which they are cut, and the normal, leave nothing out between
    them.
    """

    normal: Tensor
    low: Tensor
    high: Tensor
    symmetric: ClassVar[bool] = False

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The least value of the first side and the greatest of the last: `[1, instance, *rows]` each."""
        return self._least(function[:1])[0], -self._least(-function[-1:])[0]

    def multipliers(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers `t` that the extremes are found with, those of the greatest for the negated function.

        `[1, instance, k, *rows]` each; 0 where the ball alone says as much.
        """
        return self._least(function[:1])[1], self._least(-function[-1:])[1]

    def _least(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The least value, and the multipliers it is found with."""
        flat = function.reshape(*function.shape[:3], -1)
        extent = self.spread(self.normal.mT[None])[0]  # [instance, k]
        whole = self.spread(flat)
        best = -whole
        exact = self.p == 2 and self.width is None and (self.joint or self.hot.shape[1] == 1)
        with torch.no_grad():  # at the best ones the value does not depend on them
            multipliers = self._multipliers(flat, extent)
        chosen = torch.zeros_like(multipliers)
        error = 4 * (flat.shape[2] + 4 * extent.shape[1] + 16) * ulp(flat)
        for factor in MULTIPLES[: 1 if exact else None]:
            t = multipliers * factor
            cut = torch.where(t > 0, self.low[:, :, None], torch.where(t < 0, self.high[:, :, None], 0))
            left = flat - torch.einsum("szkr,zkm->szmr", t, self.normal)
            slack = error * (whole + (t.abs() * (extent[:, :, None] + cut.abs())).sum(dim=2))
            found = (t * cut).sum(dim=2) - self.spread(left) - slack
            better = found > best  # not where it is not a number
            best, chosen = torch.where(better, found, best), torch.where(better[:, :, None], t, chosen)
        lead, rows = function.shape[:2], function.shape[3:]
        return best.reshape(*lead, *rows), chosen.reshape(*lead, -1, *rows)

    def _multipliers(self, flat: Tensor, extent: Tensor) -> Tensor:
        """`t` [side, instance, k, rows], finite, and of a sign only where the cut on that side is finite.

        In units of the extent of each normal, the least is where `r_i = clip(-along_i u / across)` with
        `u^2 + sum r_i^2 = 1`, which grows with u.
        """
        along = torch.einsum("szmr,zkm->szkr", flat, self.normal)
        size = torch.linalg.vector_norm(flat, dim=2)
        tiny = torch.finfo(flat.dtype).tiny
        left = (size.square() - along.square().sum(dim=2)).clamp(min=0).sqrt()
        across = torch.maximum(left, 1e-6 * size).clamp(min=tiny**0.5)[:, :, None]
        unit = extent.clamp(min=tiny**0.5)
        low, high = (self.low / unit)[:, :, None], (self.high / unit)[:, :, None]
        slope = -along / across
        below, above = torch.zeros_like(across), torch.ones_like(across)
        for _ in range(HALVINGS):
            u = (below + above) / 2
            r = torch.minimum(torch.maximum(slope * u, low), high)
            inside = u.square() + r.square().sum(dim=2, keepdim=True) < 1
            below, above = torch.where(inside, u, below), torch.where(inside, above, u)
        u = above
        r = torch.minimum(torch.maximum(slope * u, low), high)
        t = torch.where(r == slope * u, 0, along + r * across / u)
        t = torch.where(torch.isfinite(self.low)[:, :, None], t, t.clamp(max=0))
        t = torch.where(torch.isfinite(self.high)[:, :, None], t, t.clamp(min=0))
        return torch.where(torch.isfinite(t), t, 0)


@dataclass(frozen=True, eq=False)
class Cuts:
    """Where balls are cut, for any radius: `low` and `high` [instances, k] in units of the extent of the normals.

    `normal` [instances, k, t, d]; `extent` [instances, k] is that of each over the balls of radius 1.
    """

    normal: Tensor
    extent: Tensor
    low: Tensor
    high: Tensor

    def take(self, chosen: list[int]) -> Cuts:
        """Those of some instances."""
        return Cuts(self.normal[chosen], self.extent[chosen], self.low[chosen], self.high[chosen])

    def to(self, dtype: torch.dtype) -> Cuts:
        return Cuts(*(x.to(dtype) for x in vars(self).values()))

    def halved(self, k: int) -> Cuts:
        """Every piece cut in two across its k-th normal: first all lower halves, then the upper ones."""
        low, high = self.low.clone(), self.high.clone()
        low[:, k] = high[:, k] = (self.low[:, k].clamp(min=-1) + self.high[:, k].clamp(max=1)) / 2
        return replace(self, high=high).joined(replace(self, low=low))

    def joined(self, other: Cuts) -> Cuts:
        """Those of these instances and of others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Cuts(*(torch.cat(pair) for pair in pairs))

    def of(self, ball: Ball) -> Piece:
        """The pieces of balls, one of each."""
        unit = self.extent * ball.eps.amax(dim=1, keepdim=True)
        low, high = (torch.where(torch.isinf(c), c, c * unit) for c in (self.low, self.high))
        normal = self.normal[:, :, : ball.hot.shape[1]].flatten(2)
        return Piece(**{f.name: getattr(ball, f.name) for f in fields(Ball)}, normal=normal, low=low, high=high)

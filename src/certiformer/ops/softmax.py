"""Softmax over the last axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .base import OWN, Box, Narrowed, Op, Planes, Shape, Slope, letters, outward, register
from .elementwise import Exp, Reciprocal
from .linear import Add, Sum
from .product import Multiply


@register
@dataclass(frozen=True)
class Softmax(Op):
    """`p_j = 1 / sum_k exp(s_k - s_j)` over the last axis, bounded in one piece.

    With `z_k = s_k - s_j` in `[a_k, c_k]`: below, the tangent plane (in the middle) of the convex `1 / SE(z)`, where
    `SE` puts the chord in the place of every `exp`; above, `exp` under its chord in `log p`, and the tangent plane of
    the concave `-logsumexp(z)`. No denominator can reach zero.
    """

    name = "softmax"
    summary = "one piece: tangent of 1/(sum of chords) below; chord in log p of the tangent of -logsumexp above"
    targets = ("aten.softmax.int", "aten._softmax.default")

    def forward(self, *x: Tensor) -> Tensor:
        return x[0].softmax(dim=-1)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def floor(self, *floors: float) -> float:
        return 0.0

    def differences(self, box: Box) -> tuple[Tensor, Tensor]:
        """Ranges of `s_k - s_j`, `[..., j, k]`, exactly zero on the diagonal."""
        l, u = box
        a = l.unsqueeze(-2) - u.unsqueeze(-1)
        c = u.unsqueeze(-2) - l.unsqueeze(-1)
        own = torch.eye(l.shape[-1], dtype=torch.bool, device=l.device)
        zero = torch.zeros_like(a)
        slack = (a.abs() + c.abs()) * torch.finfo(a.dtype).eps
        return torch.where(own, zero, a - slack), torch.where(own, zero, c + slack)

    def interval(self, *boxes: Box) -> Box:
        a, c = self.differences(boxes[0])
        low, high = torch.exp(-torch.logsumexp(c, dim=-1)), torch.exp(-torch.logsumexp(a, dim=-1))
        low, high = outward(low, high, high, ulps=16 + a.shape[-1])
        return Box(low.clamp(min=0), high.clamp(max=1))

    def planes(self, *boxes: Box) -> Planes:
        return self.planes_of(*self.differences(boxes[0]), boxes[0])

    def planes_of(self, a: Tensor, c: Tensor, box: Box) -> Planes:
        """Planes from ranges of the differences `[..., j, k]` and the box of the scores."""
        n = a.shape[-1]
        m = a / 2 + c / 2
        # a shift per row j keeps every exponential representable: everything is relative to exp(top)
        top = c.amax(dim=-1, keepdim=True)
        ea, ec = torch.exp(a - top), torch.exp(c - top)
        width = c - a
        wide = width > 1e-6
        chord = torch.where(wide, (ec - ea) / torch.where(wide, width, torch.ones_like(width)), torch.exp(m - top))
        over = torch.maximum(ea - chord * a, ec - chord * c)  # chord z + over >= exp(z - top), any slope
        total = (chord * m + over).sum(dim=-1, keepdim=True)  # SE(m) exp(-top) > 0
        scale = torch.exp(-top)
        value = scale / total
        low_z = -value * chord / total  # gradient of 1/SE at m
        low0 = value.squeeze(-1) - (low_z * m).sum(dim=-1)
        # above
        log_lo, log_hi = -torch.logsumexp(c, dim=-1), -torch.logsumexp(a, dim=-1)
        p_lo, p_hi = log_lo.exp(), log_hi.exp()
        gap = log_hi - log_lo
        steep = gap > 1e-6
        kappa = torch.where(steep, (p_hi - p_lo) / torch.where(steep, gap, torch.ones_like(gap)), p_hi)
        lift = torch.maximum(p_lo - kappa * log_lo, p_hi - kappa * log_hi)  # kappa t + lift >= exp(t) on the range
        up_z = -kappa.unsqueeze(-1) * torch.softmax(m, dim=-1)
        up0 = lift - kappa * torch.logsumexp(m, dim=-1) - (up_z * m).sum(dim=-1)
        size = (low_z.abs() + up_z.abs()).mul(width.abs() + m.abs()).sum(dim=-1) + low0.abs() + up0.abs() + 1
        size = size + kappa * (log_lo.abs() + log_hi.abs()) + lift.abs()
        low0, up0 = outward(low0, up0, size, ulps=4 * n + 32)
        names = letters(box.lower.dim() - 1)
        batch, j, k = names[:-1], names[-1], OWN[0]
        slope = Slope(batch + k, batch + j + k, to_scores(low_z), to_scores(up_z))
        # rounding when moving slopes from differences to scores: their row sums are not exactly zero
        reach = torch.maximum(box.lower.abs(), box.upper.abs()).amax(dim=-1, keepdim=True)
        low0, up0 = outward(low0, up0, (low_z.abs() + up_z.abs()).sum(dim=-1) * reach, ulps=n + 4)
        return Planes(names, (slope,), low0, up0)

    def by_parts(self, build: Any, x: Any) -> Any:
        """As the paper does it: exp, sum, reciprocal, product; scores shifted by their largest value at rest."""
        e = build.add(Exp(), build.add(Add(-1.0), x, build.peak(x)))
        total = build.add(Sum((len(build.shape(x)) - 1,)), e)
        return build.add(Multiply(), e, build.add(Reciprocal(), total))

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, rank = args[0], len(build.shape(args[0]))
        axis = args[1] % rank
        if axis == rank - 1:
            return build.add(cls(), x)
        swapped = build.transpose(x, axis, rank - 1)
        return build.transpose(build.add(cls(), swapped), axis, rank - 1)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((2, 3),)
        yield cls(), ((2, 2, 5),)


def to_scores(gradient: Tensor) -> Tensor:
    """A gradient in differences `z_k = s_k - s_j` as one in the scores: the j-th gets minus the sum."""
    return gradient - torch.diag_embed(gradient.sum(dim=-1))

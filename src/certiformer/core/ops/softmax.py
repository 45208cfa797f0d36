"""Softmax over the last axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .base import OWN, Box, Narrowed, Op, Planes, Shape, Slope, letters, outward, register
from .elementwise import Tanh, chord

LARGEST = 1e6  # log-odds


@register
@dataclass(frozen=True)
class Softmax(Op):
    """`p_j = 1 / sum_k exp(s_k - s_j)` over the last axis, bounded in one piece through the differences of scores."""

    name = "softmax"
    summary = "one piece: tangent of 1/(sum of chords) below; lines in log p or the log-odds of their tangent above"

    def forward(self, *x: Tensor) -> Tensor:
        return x[0].softmax(dim=-1)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def floor(self, *floors: float) -> float:
        return 0.0

    def differences(self, box: Box) -> Box:
        """Ranges of `s_k - s_j`, `[..., j, k]`."""
        l, u = box
        a = l.unsqueeze(-2) - u.unsqueeze(-1)
        c = u.unsqueeze(-2) - l.unsqueeze(-1)
        slack = (a.abs() + c.abs()) * torch.finfo(a.dtype).eps
        return Box(a - slack, c + slack)

    def interval(self, *boxes: Box) -> Box:
        return OfDifferences().interval(self.differences(boxes[0]))

    def planes(self, *boxes: Box) -> Planes:
        planes = OfDifferences().planes(self.differences(boxes[0]))
        (slope,) = planes.slopes
        names = planes.outputs
        assert planes.lower is not None
        assert planes.upper is not None
        # moving the slopes to the scores rounds: their row sums are not exactly zero any more
        largest = torch.maximum(boxes[0].lower.abs(), boxes[0].upper.abs()).amax(dim=-1, keepdim=True)
        size = (slope.lower.abs() + slope.upper.abs()).sum(dim=-1) * largest
        lower, upper = outward(planes.lower, planes.upper, size, ulps=size.shape[-1] + 4)
        inputs, axes = names[:-1] + OWN[0], names + OWN[0]
        return Planes(names, (Slope(inputs, axes, to_scores(slope.lower), to_scores(slope.upper)),), lower, upper)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((2, 3),)
        yield cls(), ((2, 2, 5),)


class _Upper(NamedTuple):
    """A plane above: its slopes, its offset, how large what was added up for it is, and its value where it touches."""

    slopes: Tensor  # [..., j, k]
    offset: Tensor  # [..., j]
    size: Tensor
    value: Tensor


class _Steep(Tanh):
    """`tanh` with slopes found as well as they are needed: any slope is sound."""

    steps: ClassVar[int] = 12


@register
@dataclass(frozen=True)
class OfDifferences(Op):
    """`p_j = 1 / sum_k exp(z_jk)` for differences `z_jk = s_k - s_j` in `[a, c]`, zero on the diagonal.

    Below: the tangent plane (in the middle) of the convex `1 / SE(z)`, where `SE` puts the chord in the place of every
    `exp`. Above: `exp` under its chord in `log p`, and the tangent plane of the concave `-logsumexp(z)`; or, where that
    is less in the middle, the logistic function under a line in the log-odds `log p/(1 - p) = -logsumexp_{k != j}(z)`,
    and the tangent plane of these. No denominator can reach zero. The entries of a row sum to 1, which a sweep may use.
    """

    name = "softmax of differences"
    summary = "as softmax, on the differences of scores, bounded one by one; above also by a line in the log-odds"
    simplex = True
    checked = 2

    def forward(self, *x: Tensor) -> Tensor:
        own = torch.eye(x[0].shape[-1], dtype=torch.bool, device=x[0].device)
        return torch.exp(-torch.logsumexp(x[0].masked_fill(own, 0), dim=-1))

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def floor(self, *floors: float) -> float:
        return 0.0

    def ranges(self, box: Box) -> tuple[Tensor, Tensor]:
        """The box, exactly zero on the diagonal."""
        own = torch.eye(box.lower.shape[-1], dtype=torch.bool, device=box.lower.device)
        zero = box.lower.new_zeros(())
        return torch.where(own, zero, box.lower), torch.where(own, zero, box.upper)

    def interval(self, *boxes: Box) -> Box:
        a, c = self.ranges(boxes[0])
        most, least = torch.logsumexp(c, dim=-1), torch.logsumexp(a, dim=-1)
        low, high = torch.exp(-most), torch.exp(-least)
        size = torch.maximum(low * (1 + most), high * (1 + least))  # exp multiplies the error of its argument
        low, high = outward(low, high, torch.nan_to_num(size, nan=1.0, posinf=1.0), ulps=16 + a.shape[-1])
        return Box(low.clamp(min=0), high.clamp(max=1))

    def planes(self, *boxes: Box) -> Planes:
        return self.tuned(self.parameters(*boxes), *boxes)

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes:
        """With `d = z - m`, m the middle, w the weights of the terms there and `e = sum_k w_k d_k`,

            p_j / p_j(m) = exp(-e) / sum_k w_k exp(d_k - e),

        so that it is between `1 - e - h` and `1 - e + (exp(b) - 1 - b)`: b bounds `|e|`, and h the logarithm of that
        mean. It is at most `max |d|^2 / 2` (Hoeffding), and, for `|d_k| <= r_k`, `sum_k w_k (exp(r_k) - 1 - r_k)`:
        with that sum as S, the mean of `exp(d)` is at most `1 + e + S`, and `log(1 + e + S) - e <= S`.
        """
        a, c = self.ranges(boxes[0])  # [..., j, k]
        n, m, r = a.shape[-1], a / 2 + c / 2, c / 2 - a / 2
        w, log_p = torch.softmax(m, dim=-1), -torch.logsumexp(m, dim=-1)
        p = log_p.exp()
        b = (w * r).sum(dim=-1)
        mean = (w * (torch.expm1(r) - r)).sum(dim=-1)
        h = torch.minimum(r.amax(dim=-1) ** 2 / 2, torch.where(torch.isnan(mean), math.inf, mean))
        rise = torch.expm1(b) - b
        slope = -p.unsqueeze(-1) * w * (1 - torch.eye(n, dtype=a.dtype, device=a.device))
        middle = p - (slope * m).sum(dim=-1)
        largest, widest = torch.maximum(a.abs(), c.abs()) + 2 * r, r.amax(dim=-1)
        size = p * (2 + log_p.abs() + h + rise + torch.expm1(b) + largest.amax(dim=-1) * (1 + widest))
        size = (size + (slope.abs() * largest).sum(dim=-1)) * (1 + 2 * widest)
        lower, upper = outward(middle - p * h, middle + p * rise, size, ulps=4 * n + 64)
        other, low, high = self._parallel(boxes[0], m, r)  # where that is closer
        closer = ~(upper - lower <= high - low)  # also where the first is not a number
        lower, upper = torch.where(closer, low, lower), torch.where(closer, high, upper)
        slope = torch.where(closer.unsqueeze(-1), other, slope)
        names = letters(p.dim() - 1)
        inputs = names + OWN[0]
        return Planes(names, (Slope(inputs, inputs, slope, slope),), lower, upper)

    def _parallel(self, box: Box, m: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The usual planes, turned to the slope half way between them; constants where those are closer."""
        planes, values = self.planes(box), self.interval(box)
        (usual,), lower, upper = planes.slopes, planes.lower, planes.upper
        assert lower is not None
        assert upper is not None
        slope = usual.lower / 2 + usual.upper / 2
        turned = (usual.upper - usual.lower) / 2
        lower = lower - (turned * m + turned.abs() * r).sum(dim=-1)
        upper = upper + (turned * m + turned.abs() * r).sum(dim=-1)
        size = ((slope.abs() + turned.abs()) * (m.abs() + 2 * r)).sum(dim=-1) + lower.abs() + upper.abs()
        lower, upper = outward(lower, upper, size, ulps=4 * m.shape[-1] + 32)
        close = upper - lower <= values.upper - values.lower
        lower, upper = torch.where(close, lower, values.lower), torch.where(close, upper, values.upper)
        return slope * close.unsqueeze(-1), lower, upper

    def parameters(self, *boxes: Box) -> tuple[Tensor, ...]:
        """Where in the box the lower and the upper plane touch: in the middle. How much of the upper one is that in the
        log-odds: all where it is less there."""
        half = torch.full_like(boxes[0].lower, 0.5)
        if half.shape[-1] == 1:
            return half, half
        a, c = self.ranges(boxes[0])
        with torch.no_grad():
            less = self._in_odds(a, c, a / 2 + c / 2).value < self._in_logs(a, c, a / 2 + c / 2).value
        return half, half, less.to(half.dtype)

    def tuned(self, parameters: tuple[Tensor, ...], *boxes: Box) -> Planes:
        """With a share of the upper plane in the log-odds where there is a third parameter."""
        a, c = self.ranges(boxes[0])  # [..., j, k]
        n = a.shape[-1]
        width = c - a
        m, top_m = (torch.minimum(torch.maximum(a + t.clamp(0, 1) * width, a), c) for t in parameters[:2])
        # below; everything relative to exp(top), so that every exponential is representable
        middle = a / 2 + c / 2
        top = c.amax(dim=-1, keepdim=True)
        ea, ec = torch.exp(a - top), torch.exp(c - top)
        wide = width > 1e-6
        chord = torch.where(wide, (ec - ea) / torch.where(wide, width, torch.ones_like(width)), torch.exp(middle - top))
        over = torch.maximum(ea - chord * a, ec - chord * c)  # chord z + over >= exp(z - top), for any slope
        total = (chord * m + over).sum(dim=-1, keepdim=True)  # SE(m) exp(-top) > 0
        value = torch.exp(-top) / total
        other = 1 - torch.eye(n, dtype=a.dtype, device=a.device)
        low_z = -value * chord / total * other  # gradient of 1 / SE at m
        low0 = value.squeeze(-1) - (low_z * m).sum(dim=-1)
        largest = torch.maximum(a.abs(), c.abs()) + width
        size = (low_z.abs() * largest).sum(dim=-1) + low0.abs() + 1
        low0, _ = outward(low0, low0, size, ulps=4 * n + 32)
        above = self._in_logs(a, c, top_m)
        if len(parameters) > 2:
            odds, share = self._in_odds(a, c, top_m), parameters[2].clamp(0, 1)
            above = _Upper(
                torch.lerp(above.slopes, odds.slopes, share.unsqueeze(-1)),
                torch.lerp(above.offset, odds.offset, share),
                torch.lerp(above.size, odds.size, share),
                above.value,
            )
        _, up0 = outward(above.offset, above.offset, above.size, ulps=4 * n + 40)
        names = letters(low0.dim() - 1)
        inputs = names + OWN[0]
        return Planes(names, (Slope(inputs, inputs, low_z, above.slopes),), low0, up0)

    def _in_logs(self, a: Tensor, c: Tensor, m: Tensor) -> _Upper:
        """`kappa log p + lift >= p`, and `log p` under its tangent plane at m."""
        log_lo, log_hi = -torch.logsumexp(c, dim=-1), -torch.logsumexp(a, dim=-1)
        p_lo, p_hi = log_lo.exp(), log_hi.exp()
        gap = log_hi - log_lo
        steep = gap > 1e-6
        kappa = torch.where(steep, (p_hi - p_lo) / torch.where(steep, gap, torch.ones_like(gap)), p_hi)
        lift = torch.maximum(p_lo - kappa * log_lo, p_hi - kappa * log_hi)  # kappa t + lift >= exp(t) on the range
        other = 1 - torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        slopes = -kappa.unsqueeze(-1) * torch.softmax(m, dim=-1) * other
        value = lift - kappa * torch.logsumexp(m, dim=-1)
        size = kappa * (log_lo.abs() + log_hi.abs()) + lift.abs()
        return self._touching(a, c, m, slopes, value, size)

    def _in_odds(self, a: Tensor, c: Tensor, m: Tensor) -> _Upper:
        """`p = (1 + tanh(t / 2)) / 2` under a line of t, the log-odds, and these under their tangent plane at m."""
        own = torch.eye(a.shape[-1], dtype=torch.bool, device=a.device)
        others = [x.masked_fill(own, -math.inf) for x in (a, c, m)]
        hi, lo, at = (-torch.logsumexp(x, dim=-1) for x in others)
        # where t is so large that p is 0 or 1 to the last bit the line is flat, at 1
        flat = ~(torch.maximum(lo.abs(), hi.abs()) < LARGEST)
        box = Box(torch.where(flat, 0, lo) / 2, torch.where(flat, 0, hi) / 2)
        line = _Steep().above(box)
        (slope,) = line.slopes
        assert line.upper is not None
        kappa = torch.where(flat, 0, slope.upper / 4)
        lift = torch.where(flat, 1, (1 + line.upper) / 2)
        slopes = -kappa.unsqueeze(-1) * torch.softmax(others[2], dim=-1)
        value = lift + kappa * torch.where(flat, 0, at)
        size = kappa * (lo.abs() + hi.abs()) + lift.abs() + (math.log(a.shape[-1]) + 4) / 4  # p' is at most 1/4
        return self._touching(a, c, m, slopes, value, torch.where(flat, 1, size))

    @staticmethod
    def _touching(a: Tensor, c: Tensor, m: Tensor, slopes: Tensor, value: Tensor, size: Tensor) -> _Upper:
        """A plane of these slopes with this value at m."""
        offset = value - (slopes * m).sum(dim=-1)
        largest = torch.maximum(a.abs(), c.abs()) + (c - a)
        return _Upper(slopes, offset, size + (slopes.abs() * largest).sum(dim=-1) + offset.abs() + 1, value)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((2, 4, 4),)


@register
@dataclass(frozen=True)
class LogSumExp(Op):
    """`log sum_k exp(s_k)` over the last axis, which stays with size 1.

    Convex: its tangent plane in the middle lies below. Above: the chord in the place of every `exp`, and the tangent of
    `log` at the value T of that sum in the middle, `log T + (sum_k chord_k(s_k) - T) / T`.
    """

    name = "logsumexp"
    summary = "tangent plane in the middle below; tangent of log at the sum of chords above"

    def forward(self, *x: Tensor) -> Tensor:
        return torch.logsumexp(x[0], dim=-1, keepdim=True)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def interval(self, *boxes: Box) -> Box:
        l, u = boxes[0].map(self.forward)
        largest = torch.maximum(boxes[0].lower.abs(), boxes[0].upper.abs()).amax(dim=-1, keepdim=True)
        return Box(*outward(l, u, 1 + largest, ulps=16 + boxes[0].shape[-1]))

    def planes(self, *boxes: Box) -> Planes:
        (box,) = boxes
        l, u = box
        n, m = l.shape[-1], box.centre
        below = m.softmax(dim=-1)
        low = self.forward(m) - (below * m).sum(dim=-1, keepdim=True)
        top = u.amax(dim=-1, keepdim=True)
        el, eu = torch.exp(l - top), torch.exp(u - top)
        slope = chord(l, u, el, eu, torch.exp(m - top))
        over = torch.maximum(el - slope * l, eu - slope * u)  # slope s + over >= exp(s - top)
        total = (slope * m + over).sum(dim=-1, keepdim=True)
        above = slope / total
        high = top + torch.log(total) - 1 + over.sum(dim=-1, keepdim=True) / total
        largest = torch.maximum(l.abs(), u.abs()) + (u - l)
        size = ((below.abs() + 4 * above.abs()) * largest + 4 * over.abs() / total).sum(dim=-1, keepdim=True)
        size = size + largest.amax(dim=-1, keepdim=True) + low.abs() + high.abs() + 2
        low, high = outward(low, high, size, ulps=4 * n + 32)
        names = letters(l.dim() - 1)
        axes = names[:-1] + OWN[0]
        return Planes(names, (Slope(axes, axes, below, above),), low, high)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((2, 3),)
        yield cls(), ((2, 2, 5),)


def to_scores(gradient: Tensor) -> Tensor:
    """A gradient in differences `z_k = s_k - s_j` as one in the scores: the j-th gets minus the sum."""
    return gradient - torch.diag_embed(gradient.sum(dim=-1))

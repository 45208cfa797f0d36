"""Products of two perturbed tensors.

`x y` over the box `[lx, ux] x [ly, uy]` lies above `ly x + lx y - lx ly` and below `uy x + lx y - lx uy`: McCormick's
planes, the pair the paper proves optimal in volume.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import OWN, Box, Narrowed, Op, Planes, Shape, Slope, broadcast, letters, outward, register, shared_axis
from .linear import align, shared_axes


def corners(a: Box, b: Box) -> Box:
    """The exact range of a product, from its four corners."""
    p = torch.stack([a.lower * b.lower, a.lower * b.upper, a.upper * b.lower, a.upper * b.upper])
    low, high = p.amin(dim=0), p.amax(dim=0)
    return Box(*outward(low, high, torch.maximum(low.abs(), high.abs()), ulps=1))


def _mix(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """`(1 - share) first + share second`."""
    return (1 - share) * first + share * second


@register
@dataclass(frozen=True)
class Multiply(Op):
    """`x y` entry by entry, with broadcasting."""

    name = "multiply"
    summary = "lower: ly x + lx y - lx ly; upper: uy x + lx y - lx uy"

    def forward(self, *x: Tensor) -> Tensor:
        a, b = align(*x)
        return a * b

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return self, tuple(shared_axis(axis, output, s) for s in inputs)

    def interval(self, *boxes: Box) -> Box:
        lowers = align(boxes[0].lower, boxes[1].lower)
        uppers = align(boxes[0].upper, boxes[1].upper)
        return corners(Box(lowers[0], uppers[0]), Box(lowers[1], uppers[1]))

    def planes(self, *boxes: Box) -> Planes:
        x, y = boxes
        output = broadcast(x.shape, y.shape)
        lx, ly = align(x.lower, y.lower)
        ux, uy = align(x.upper, y.upper)
        full = (max(lx.shape[0], ly.shape[0]), *output)
        size = torch.maximum(lx.abs(), ux.abs()) * torch.maximum(ly.abs(), uy.abs())
        lower, upper = outward(-lx * ly, -lx * uy, 3 * size, ulps=2)
        names = letters(len(output))
        sx = Slope(shared_axes(x.shape, output), names, ly.expand(full), uy.expand(full))
        beta = lx.expand(full)
        sy = Slope(shared_axes(y.shape, output), names, beta, beta)
        return Planes(names, (sx, sy), lower.expand(full), upper.expand(full))

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4), (3, 4))
        yield cls(), ((2, 3, 4), (2, 3, 1))


@register
@dataclass(frozen=True)
class MatMul(Op):
    """`x @ y` on the last two axes: one product per term, summed. Leading axes agree."""

    name = "matmul"
    summary = "the planes of a product for every term, summed; coefficients on x depend on y's box alone and conversely"
    measures = ((0, -1), (1, -2), (1, -1))

    def forward(self, *x: Tensor) -> Tensor:
        return x[0] @ x[1]

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        from_end = len(output) - axis
        return self, (None if from_end == 1 else axis, None if from_end == 2 else axis)

    def interval(self, *boxes: Box) -> Box:
        x, y = boxes
        # [..., i, k, 1] and [..., 1, k, j]
        p = corners(
            Box(x.lower.unsqueeze(-1), x.upper.unsqueeze(-1)), Box(y.lower.unsqueeze(-3), y.upper.unsqueeze(-3))
        )
        low, high = p.lower.sum(dim=-2), p.upper.sum(dim=-2)
        size = torch.maximum(p.lower.abs(), p.upper.abs()).sum(dim=-2)
        return Box(*outward(low, high, size, ulps=x.shape[-1] + 2))

    def planes(self, *boxes: Box) -> Planes:
        x, y = boxes
        rank = len(x.shape)
        names = letters(rank)
        batch, i, j, k = names[:-2], names[-2], names[-1], OWN[0]
        lower = -(x.lower @ y.lower)
        upper = -(x.lower @ y.upper)
        xs = torch.maximum(x.lower.abs(), x.upper.abs())
        ys = torch.maximum(y.lower.abs(), y.upper.abs())
        lower, upper = outward(lower, upper, 3 * (xs @ ys), ulps=x.shape[-1] + 2)
        sx = Slope(batch + i + k, batch + k + j, y.lower, y.upper)
        sy = Slope(batch + k + j, batch + i + k, x.lower, x.lower)
        return Planes(names, (sx, sy), lower, upper)

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes:
        """`x y = cx y + x cy - cx cy + dx dy`, c the middles of the boxes and d the distances from them.

        Entry by entry `|dx_i . dy_j|` is at most `sum_k r_ik r_kj` and `|dx_i| |dy_j|`; as a vector over j,
        `|sum_k dx_ik dy_k|` is at most `sum_k r_ik |dy_k|`.
        """
        x, y = boxes
        rows, columns, across = lengths  # |dx_i| [.., i], |dy_j| over k [.., j], |dy_k| over j [.., k]
        names = letters(len(x.shape))
        batch, i, j, k = names[:-2], names[-2], names[-1], OWN[0]
        cx, cy, rx, ry = x.centre, y.centre, x.radius, y.radius
        joint = rows.unsqueeze(-1) * columns.unsqueeze(-2)
        gap = torch.minimum(rx @ ry, torch.where(torch.isnan(joint), math.inf, joint))  # 0 times unknown: the entries
        terms = torch.where(rx == 0, 0, rx * across.unsqueeze(-2))
        whole = torch.fmin(terms.sum(dim=-1), gap.sum(dim=-1))  # lengths that are not numbers are not known
        middle, size = -(cx @ cy), 3 * ((cx.abs() + rx) @ (cy.abs() + ry))
        lower, upper = outward(middle - gap, middle + gap, size, ulps=x.shape[-1] + 8)
        _, whole = outward(whole, whole, size.sum(dim=-1), ulps=x.shape[-1] + y.shape[-1] + 8)
        sx = Slope(batch + i + k, batch + k + j, cy, cy)
        sy = Slope(batch + k + j, batch + i + k, cx, cx)
        return Planes(names, (sx, sy), lower, upper, remainder=whole)

    def parameters(self, *boxes: Box) -> tuple[Tensor, ...]:
        """For every term `x_ik y_kj` and side, how much of the other plane of its pair: none."""
        x, y = boxes
        shape = (max(x.lower.shape[0], y.lower.shape[0]), *x.shape, y.shape[-1])  # [instances, ..., i, k, j]
        return x.lower.new_zeros(shape), x.lower.new_zeros(shape)

    def tuned(self, parameters: tuple[Tensor, ...], *boxes: Box) -> Planes:
        x, y = boxes
        names = letters(len(x.shape))
        batch, i, j, k = names[:-2], names[-2], names[-1], OWN[0]
        a, b = (p.clamp(0, 1) for p in parameters)
        lx, ux = x.lower.unsqueeze(-1), x.upper.unsqueeze(-1)  # [..., i, k, 1]
        ly, uy = y.lower.unsqueeze(-3), y.upper.unsqueeze(-3)  # [..., 1, k, j]
        lower = -((1 - a) * (lx * ly) + a * (ux * uy)).sum(dim=-2)
        upper = -((1 - b) * (lx * uy) + b * (ux * ly)).sum(dim=-2)
        xs = torch.maximum(x.lower.abs(), x.upper.abs())
        ys = torch.maximum(y.lower.abs(), y.upper.abs())
        lower, upper = outward(lower, upper, 3 * (xs @ ys), ulps=x.shape[-1] + 8)
        axes = batch + i + k + j
        sx = Slope(batch + i + k, axes, _mix(ly, uy, a), _mix(uy, ly, b))
        sy = Slope(batch + k + j, axes, _mix(lx, ux, a), _mix(lx, ux, b))
        return Planes(names, (sx, sy), lower, upper)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 2), (2, 4))
        yield cls(), ((2, 3, 2), (2, 2, 3))

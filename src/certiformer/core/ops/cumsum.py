"""Running sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import OWN, Box, Narrowed, Op, Planes, Shape, Slope, letters, outward, register
from .linear import Affine


@register
@dataclass(frozen=True)
class CumSum(Affine):
    """`y_i = x_0 + ... + x_i` over the last axis: a product with the triangular matrix of ones."""

    name = "cumsum"
    summary = "exact"

    def forward(self, *x: Tensor) -> Tensor:
        return x[0].cumsum(dim=-1)

    def interval(self, *boxes: Box) -> Box:
        lower, upper = boxes[0].map(self.forward)  # every entry of the matrix is 0 or 1
        size = self.forward(torch.maximum(boxes[0].lower.abs(), boxes[0].upper.abs()))
        return Box(*outward(lower, upper, size, ulps=boxes[0].shape[-1] + 1))

    def planes(self, *boxes: Box) -> Planes:
        shape = boxes[0].shape
        outputs = letters(len(shape))
        ones = boxes[0].lower.new_ones(1, shape[-1], shape[-1]).tril()  # [1, i, k]: x_k is in y_i for k <= i
        return Planes(outputs, (Slope(outputs[:-1] + OWN[0], outputs[-1] + OWN[0], ones, ones),))

    def floor(self, *floors: float) -> float:
        return floors[0] if floors[0] >= 0 else super().floor(*floors)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4),)
        yield cls(), ((2, 1, 5),)

"""Floating point: what the arithmetic of a sweep may have lost.

Substituting `y = sum_k c_k x_k + b` into coefficients `A` computes `fl(A c)`. In any order of summation the error is at
most `gamma |A| |c|`, and its effect on the bound at most `|A| (gamma (|c| |x|_max + |b|))`: one more gap on the offset
of the op. So rounding is a term of the planes, not a correction at the end. `|x|_max` comes from the boxes. Additions
of paths and of offsets are covered by counting them into gamma.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .ops.base import INSTANCE_NAME, Planes, Shape, Slope, ulp

SLACK = 24.0  # operations per entry besides the contraction itself: splitting slopes, joining paths


UNDERFLOW = 2.0**60  # products that may have been lost below the smallest normal number, each by less than that


def tiny(like: Tensor) -> float:
    """The smallest normal number of a precision."""
    return float(torch.finfo(like.dtype).tiny)


def rounded_down(x: float, like: Tensor) -> float:
    """The largest number of a precision that is not above x."""
    near = torch.tensor(x, dtype=like.dtype)
    down = near if float(near) <= x else torch.nextafter(near, torch.tensor(-math.inf, dtype=like.dtype))
    return float(down)


def gamma(like: Tensor, terms: float) -> float:
    """`k u / (1 - k u)`, doubled, since the error term is itself computed with rounding."""
    k = terms * ulp(like)
    if k >= 0.5:
        raise ValueError(f"{terms:g} operations are too many for {like.dtype}; use a wider type")
    return 2 * k / (1 - k)


def load(planes: Planes, k: int, x: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """`sum_k c_k x_k` on the axes of the output, broadcastable to it; by default with the sizes of the slopes."""
    slope: Slope = planes.slopes[k]
    size = torch.maximum(slope.lower.abs(), slope.upper.abs()) if coefficients is None else coefficients
    present = "".join(l for l in planes.outputs if l in slope.axes or l in slope.inputs)
    z = INSTANCE_NAME
    total: Tensor = torch.einsum(f"{z}{slope.axes},{z}{slope.inputs}->{z}{present}", size, x)
    for axis, letter in enumerate(planes.outputs):
        if letter not in present:
            total = total.unsqueeze(1 + axis)
    return total


def terms(planes: Planes, shape: Shape) -> int:
    """The length of the longest contraction in pulling coefficients on a node of this shape through its planes."""
    longest = 1
    for slope in planes.slopes:
        longest = max(
            longest, math.prod(s for l, s in zip(planes.outputs, shape, strict=True) if l not in slope.inputs)
        )
    return longest

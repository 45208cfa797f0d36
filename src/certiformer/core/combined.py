"""Half-spaces that must hold all at once, as one: `a_h y <= b_h` for every h implies `sum w_h a_h y <= sum w_h b_h`.

So where the least value of the sum is above its limit for any weights `w_h >= 0`, they never do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

GRAIN = 1 << 12  # weights are whole multiples of its inverse: products with small numbers have no rounding


def combined(rows: Tensor, limits: Tensor, weights: Sequence[float]) -> tuple[Tensor, float]:
    """The weighted row `[..., outputs]` of rows `[half-spaces, ..., outputs]`, and its limit, rounded up.

    Weights are rounded; where the row would still not be exact, it is the half-space of the largest weight.
    """
    shares = [Fraction(round(w * GRAIN), GRAIN) if w > 0 and math.isfinite(w) else Fraction(0) for w in weights]
    flat = rows.reshape(rows.shape[0], -1).tolist()
    if len(shares) > 1 and any(shares):
        total = [_sum(shares, column) for column in zip(*flat, strict=True)]
        row = torch.tensor([float(t) for t in total], dtype=rows.dtype).to(rows.device)
        if all(Fraction(a) == t for a, t in zip(row.tolist(), total, strict=True)):
            return row.reshape(rows.shape[1:]), _above(_sum(shares, limits.tolist()))
    best = max(range(len(shares)), key=lambda h: shares[h])
    return rows[best], float(limits[best])


def _sum(shares: Sequence[Fraction], values: Sequence[float]) -> Fraction:
    return sum((w * Fraction(v) for w, v in zip(shares, values, strict=True) if w and v), start=Fraction(0))


def _above(x: Fraction) -> float:
    """The least float64 that is not below x."""
    near = float(x)
    return near if Fraction(near) >= x else math.nextafter(near, math.inf)

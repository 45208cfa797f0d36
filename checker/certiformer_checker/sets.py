"""What may vary, and the least value of a linear function there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from certiformer_checker.numbers import TINY, Array, Span, above, dot, down, gamma, length, up


def spectral(b: Array) -> float:
    """At least the spectral norm: `|B|^2 = |G|`, `G = B B'`, `|G|^2 = |G^2|` eight times, then the Frobenius norm."""
    b = b if b.shape[0] <= b.shape[1] else b.T
    size = float(np.max(np.abs(b), initial=0.0))
    if not size > TINY:
        return float(up(size * math.sqrt(b.size) * 2)) if size >= 0 else math.nan
    b = b / size  # rounded; entries are at most 1
    g = b @ b.T
    error, n = float(up(np.sum(b * b) * gamma(b.shape[1] + 8))), len(g)
    g = g / 2 + g.T / 2
    bound, scales, errors = 0.0, [], []
    for _ in range(8):
        frobenius = float(length(g.reshape(-1)))
        g = g / frobenius
        scales.append(frobenius)
        errors.append(float(up(np.sum(g * g) * gamma(2 * n + 16))) + TINY)  # of the product, and of the division before
        g = g @ g
        g = g / 2 + g.T / 2
    bound = float(length(g.reshape(-1)))
    for scale, lost in zip(reversed(scales), reversed(errors), strict=True):
        bound = float(up(up(math.sqrt(up(bound + lost))) * scale * (1 + gamma(4))))
    return float(up(up(math.sqrt(up(bound + error))) * size * (1 + gamma(4))))


def dual(a: Array, p: float) -> Array:
    """At least the norm along the last axis that belongs to balls of the p-norm."""
    size = np.abs(a)
    if p == 1:
        return np.asarray(np.max(size, axis=-1, initial=0.0))
    if p == 2:
        return length(a)
    if p == math.inf:
        return up(size.sum(axis=-1) * (1 + gamma(a.shape[-1])))
    q = np.nextafter(p / (p - 1) * (1 - gamma(4)), 1.0)  # a little less than the true one: the norm is a little greater
    largest = np.maximum(size.max(axis=-1, keepdims=True, initial=0.0), TINY)
    inner = (Span(up(size / largest)).power(q)).sum()
    return np.asarray(up(inner.power(1 / Span(q)).hi * largest[..., 0]))


@dataclass(frozen=True)
class Region:
    """One case: balls of `radius` around x0 at `positions` (cut by hyperplanes), or convex hulls of `vertices`."""

    x0: Array  # [n, d]
    positions: list[int]
    p: float = 2.0
    radius: Array | None = None  # [t]
    normals: Array | None = None  # [k, t, d]
    low: Array | None = None  # [k]
    high: Array | None = None
    vertices: tuple[Array, ...] = ()  # each [count, d]

    def box(self) -> Span:
        low, high = self.x0.copy(), self.x0.copy()
        for j, position in enumerate(self.positions):
            if self.radius is None:
                low[position], high[position] = self.vertices[j].min(axis=0), self.vertices[j].max(axis=0)
            elif self.radius[j] > 0:
                low[position] = down(self.x0[position] - self.radius[j])
                high[position] = up(self.x0[position] + self.radius[j])
        return Span(low, high)

    def least(self, a: Array, cuts: Array | None = None) -> Array:
        """At most the least of `A·δ`, for rows `[rows, n, d]`; `cuts` are multipliers `[k, rows]` of the normals."""
        a = a[:, self.positions]
        if self.radius is None:
            total = Span(np.zeros(len(a)))
            for j, steps in enumerate(self.steps()):
                near = steps.lo / 2 + steps.hi / 2
                error = above(np.abs(a[:, j]), up(steps.hi - steps.lo).T)
                total = total + (dot(a[:, j], near.T) - Span(error)).lo.min(axis=1)
            return total.lo
        gain: Span | Array = np.zeros(len(a))
        error = np.zeros(a.shape)
        if cuts is not None and self.normals is not None:
            for t, normal, low, high in zip(cuts, self.normals, self.low, self.high, strict=True):  # type: ignore[arg-type]
                step = t[:, None, None] * normal
                a = a - step
                error = up(error + gamma(2) * (np.abs(step) + np.abs(a)))
                ends = np.where(t > 0, low, np.where(t < 0, high, 0.0))
                gain = Span.of(gain) + Span(t) * ends
        norms = up(dual(a, self.p) + dual(error, self.p)) if cuts is not None else dual(a, self.p)
        return (Span.of(gain) - Span(above(norms, self.radius))).lo

    def steps(self) -> list[Span]:
        """Of hulls: from x0 to the vertices of each position."""
        return [Span(v) - self.x0[position] for v, position in zip(self.vertices, self.positions, strict=True)]

    def longest(self, b: Array) -> float:
        """At least `sup |B δ|₂` for B `[rows, n, d]`; of a piece, that of the ball."""
        total, d = 0.0, b.shape[-1]
        for j, position in enumerate(self.positions):
            part = b[:, position]
            if self.radius is None:
                steps = self.steps()[j]
                moved = dot(part, (steps.lo / 2 + steps.hi / 2).T).size()  # [rows, vertices]
                most = float(length(up(moved + above(np.abs(part), up(steps.hi - steps.lo).T)), axis=0).max())
            elif self.p == 1:
                most = float(length(part, axis=0).max()) * float(self.radius[j])
            else:
                wide = Span(float(d)).power(0.5 - np.nextafter(1 / self.p, 0.0)).hi if self.p > 2 else 1.0
                most = float(up(spectral(part) * float(wide))) * float(self.radius[j])
            total = float(up(total + up(most)))
        return total

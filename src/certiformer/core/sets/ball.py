"""ℓp balls on chosen positions: `||x_k - x0_k||_p <= eps_k` for every perturbed position k, each its own ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..ops.base import Box


def dual(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def norm(x: Tensor, q: float, dim: int) -> Tensor:
    """`||x||_q`, scaled by the largest entry: `|x|^q` would underflow for large q, and a norm must not be too small."""
    if math.isinf(q) or q == 1:
        plain: Tensor = torch.linalg.vector_norm(x, ord=q, dim=dim)
        return plain
    if q == 2:  # squares below the smallest normal number are lost: put them back
        lost = math.sqrt(x.shape[dim] * torch.finfo(x.dtype).tiny)
        euclidean: Tensor = torch.linalg.vector_norm(x, dim=dim) + lost
        return euclidean
    largest = x.abs().amax(dim=dim, keepdim=True)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    size = torch.linalg.vector_norm(x / scale, ord=q, dim=dim) * scale.squeeze(dim)
    return torch.maximum(size, largest.squeeze(dim))


def blocks_of(function: Tensor, hot: Tensor) -> Tensor:
    """Linear functions `[side, instance, m, *rows]` by block: `[side, instance, t, d, *rows]`."""
    return function.reshape(*function.shape[:2], hot.shape[1], -1, *function.shape[3:])


def spectral(a: Tensor, times: int = 9) -> Tensor:
    """An upper bound on the spectral norm of matrices `[..., rows, columns]`, by products alone: eigenvalues keep a GPU
    waiting, and may not converge.

    `|a|^2 = |a a'|`, `times` times, and then the Frobenius norm, which is too large by `n^(1 / 2^(times + 1))` at most
    (0.5 % for 256 rows). With `a = s (c + d)`, c of Frobenius norm 1 and d its rounding, and h the computed `c c'`,
    `|a| <= s (|c| + u)` and `|c|^2 <= |h| + O(n u)`.
    """
    a = a if a.shape[-2] <= a.shape[-1] else a.mT
    unit, tiny = float(torch.finfo(a.dtype).eps), torch.finfo(a.dtype).tiny
    scales: list[Tensor] = []
    errors: list[float] = []  # of one division and of the product after it, as a part of the norm
    for step in range(times + 1):
        rows, columns = a.shape[-2:]
        size = torch.linalg.vector_norm(torch.linalg.vector_norm(a, dim=-1), dim=-1)
        scales.append(size * (1 + unit * (rows + columns)) + 2 * math.sqrt(rows * columns * tiny))
        errors.append(4 * unit * (columns + 16))
        a = a / scales[-1][..., None, None]
        a = a @ a.mT if step < times else a
    found = torch.ones_like(scales[0])
    for scale, error in zip(reversed(scales[1:]), reversed(errors[:-1]), strict=True):
        found = torch.sqrt(scale * (found + 4 * unit) + error)
    return torch.where(torch.isfinite(scales[0]), scales[0] * (found + 8 * unit) * (1 + 8 * unit), scales[0])


@dataclass(frozen=True, eq=False)
class Ball:
    """A batch of perturbed inputs, one instance each.

    `centre` [instances, 1, n, d] are the unperturbed inputs; `hot` [instances, t, n] marks the position of each of t
    blocks; `eps` [instances, t] is the radius of each (0 for a block that only pads the batch).
    """

    centre: Tensor
    hot: Tensor
    eps: Tensor
    p: float
    axis: int = 1
    symmetric: ClassVar[bool] = True

    @staticmethod
    def of(centre: Tensor, positions: list[tuple[int, ...]], eps: Tensor, p: float) -> Ball:
        """`centre` [instances, 1, n, d], positions and a radius for each instance."""
        t = max(len(ps) for ps in positions)
        hot = centre.new_zeros(len(positions), t, centre.shape[2])
        radii = centre.new_zeros(len(positions), t)
        for i, ps in enumerate(positions):
            for k, position in enumerate(ps):
                hot[i, k, position] = 1
                radii[i, k] = eps[i]
        return Ball(centre, hot, radii, p)

    def take(self, start: int, count: int) -> Ball:
        """Some of the instances."""
        cut = slice(start, start + count)
        return Ball(self.centre[cut], self.hot[cut], self.eps[cut], self.p, self.axis)

    @property
    def dimension(self) -> int:
        """How many numbers may vary: t blocks of d."""
        return self.hot.shape[1] * self.centre[0].numel() // self.centre.shape[1 + self.axis]

    def spread(self, function: Tensor) -> Tensor:
        """`sum_k eps_k ||A_k||_q` for linear functions `[side, instance, t, d..., *rows]` given as `[.., m, *rows]`."""
        blocks = blocks_of(function, self.hot)
        norms = norm(blocks, dual(self.p), dim=3)  # [side, instance, t, *rows]
        eps = self.eps.reshape(1, *self.eps.shape, *(1,) * (norms.dim() - 3))
        total: Tensor = (norms * eps).sum(dim=2)
        return total

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the greatest value over the set of linear functions `[side, instance, m, *rows]`."""
        spread = self.spread(function)
        return -spread, spread

    def magnitude(self, function: Tensor) -> Tensor:
        """A bound on `sum_m |A_m| |delta_m|` over the set."""
        return self.spread(function)

    def distance(self, function: Tensor) -> Tensor:
        """A bound on `|A delta|_2` over the set, A `[instance, m, *lead, rows]`: `[instance, *lead]`.

        l1: the largest column. l2: the spectral norm. Other norms: through `|delta|_2 <= d^(1/2 - 1/p) |delta|_p`.
        """
        blocks = blocks_of(function[None], self.hot)[0].movedim(2, -1)  # [instance, t, *lead, rows, d]
        if self.p == 1:
            norms = norm(blocks, 2.0, dim=-2).amax(dim=-1)
        else:
            d = blocks.shape[-1]
            norms = spectral(blocks) * d ** max(0.0, 0.5 - (0.0 if math.isinf(self.p) else 1 / self.p))
        return torch.einsum("zt...,zt->z...", norms, self.eps)

    def box(self) -> Box:
        """The smallest box around the set: half width eps on the perturbed positions, for every p."""
        radius = torch.einsum("zt,ztn->zn", self.eps, self.hot)[:, None, :, None].expand_as(self.centre)
        lower, upper = self.centre - radius, self.centre + radius
        slack = (self.centre.abs() + radius) * torch.finfo(radius.dtype).eps * (radius > 0)
        return Box(lower - slack, upper + slack)

    def sample(self, count: int, generator: torch.Generator, *, boundary: bool = True) -> Tensor:
        """Points of the set, `[instances, count, 1, n, d]`, most of them on its boundary."""
        instances, _, _, d = self.centre.shape
        t = self.hot.shape[1]
        noise = torch.randn(instances, count, t, d, generator=generator, dtype=torch.float64).to(self.centre)
        if math.isinf(self.p):
            noise = noise.sign() if boundary else noise.clamp(-1, 1)
        if self.p == 1:  # corners of the cross-polytope, and mixtures of a few
            keep = torch.rand(noise.shape, generator=generator, dtype=torch.float64).to(noise)
            keep = keep * (keep >= keep.topk(min(3, d), dim=-1).values[..., -1:])
            noise = noise * keep
        size = torch.linalg.vector_norm(noise, ord=self.p, dim=-1, keepdim=True)
        noise = noise / size.clamp(min=torch.finfo(noise.dtype).tiny)
        if not boundary:
            noise = noise * torch.rand(instances, count, t, 1, generator=generator, dtype=torch.float64).to(noise)
        delta = torch.einsum("zctd,zt,ztn->zcnd", noise, self.eps, self.hot)
        return self.centre[:, None] + delta[:, :, None]

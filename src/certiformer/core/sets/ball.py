"""ℓp balls on chosen positions: `||(x_k - x0_k) / w_k||_p <= eps_k` for every perturbed position k, each its own ball,
or for all of them together. With the maximum norm and a width w for every number they are boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..ops.base import Box

BLOCKS = 2  # so many have matrices of their own in `grams`


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


def grams_of(groups: Sequence[Tensor]) -> Tensor:
    """Matrices G `[block, instance, *lead, rows, rows]` of groups `[instance, groups, m, *lead, rows]` of functions:
    for every row b of numbers, `sum_g |b A_g|_2 <= sum_block sqrt(b G b')`.

    Of more than a few groups one matrix is made, by `sum_g |b A_g| <= sqrt(sum_g w_g) sqrt(sum_g |b A_g|^2 / w_g)`,
    with the weights `w_g = |A_g|`.
    """
    count = sum(g.shape[1] for g in groups)
    up = 1 + (32 + count) * float(torch.finfo(groups[0].dtype).eps)  # of all sums and products here
    if len(groups) == 1 and count <= BLOCKS:
        parts = groups[0] * up
        return torch.einsum("ztd...j,ztd...l->tz...jl", parts, parts)
    weights = [norm(norm(g, 2.0, dim=-1), 2.0, dim=2).unsqueeze(2).unsqueeze(-1) for g in groups]
    total = torch.cat(weights, dim=1).sum(dim=1, keepdim=True) * up
    found = []
    for parts, weight in zip(groups, weights, strict=True):
        inverse = torch.where(weight > 0, 1 / torch.where(weight > 0, weight, 1), 0)
        found.append((parts * (up * (inverse * total).sqrt())).flatten(1, 2))
    whole = torch.cat(found, dim=1)
    return torch.einsum("zm...j,zm...l->z...jl", whole, whole)[None]


def everywhere(positions: Sequence[tuple[int, ...]], n: int) -> bool:
    """Whether every one of n positions varies, in order, in all instances: it is another computation then."""
    return all(ps == tuple(range(n)) for ps in positions)


@dataclass(frozen=True, eq=False)
class Ball:
    """A batch of perturbed inputs, one instance each.

    `centre` [instances, 1, n, d] are the unperturbed inputs; `hot` [instances, t, n] marks the position of each of t
    blocks; `eps` [instances, t] is the radius of each (0 for a block that only pads the batch). By `width`
    [instances, t, d] every number is measured in a unit of its own. A `joint` ball takes one norm over all blocks.
    """

    centre: Tensor
    hot: Tensor
    eps: Tensor
    p: float
    axis: int = 1
    width: Tensor | None = None
    joint: bool = False
    whole: bool = False  # every position varies, in order: known so that nothing has to be picked out
    symmetric: ClassVar[bool] = True

    @staticmethod
    def of(
        centre: Tensor,
        positions: Sequence[tuple[int, ...]],
        eps: Tensor,
        p: float,
        *,
        width: Tensor | None = None,
        joint: bool = False,
    ) -> Ball:
        """`centre` [instances, 1, n, d], positions and a radius for each instance, and the width of what moves."""
        n = centre.shape[2]
        if everywhere(positions, n):
            hot = torch.eye(n, dtype=centre.dtype, device=centre.device).expand(len(positions), n, n)
            radii = eps.to(centre)[:, None].expand(-1, n)
            return Ball(centre, hot, radii, p, width=width, joint=joint, whole=True)
        t = max(len(ps) for ps in positions)
        hot = centre.new_zeros(len(positions), t, n)
        radii = centre.new_zeros(len(positions), t)
        for i, ps in enumerate(positions):
            for k, position in enumerate(ps):
                hot[i, k, position] = 1
                radii[i, k] = eps[i]
        return Ball(centre, hot, radii, p, width=None if width is None else width[:, :t], joint=joint)

    @property
    def dimension(self) -> int:
        """How many numbers may vary: t blocks of d."""
        return self.hot.shape[1] * self.centre[0].numel() // self.centre.shape[1 + self.axis]

    @property
    def lengths(self) -> Tensor | None:
        """How far each position is from rest at most and at least, `[instances, 1, n, 2]`, in Euclidean balls; None of
        others."""
        if self.p != 2 or self.width is not None or self.axis != 1 or self.centre.dim() != 4:
            return None
        furthest = torch.einsum("zt,ztn->zn", self.eps, self.hot)
        return torch.stack([furthest, torch.zeros_like(furthest)], dim=-1)[:, None]

    @property
    def radii(self) -> Tensor:
        """The radius of every norm that is taken: `[instances, t]`, or `[instances, 1]` where it is one for all."""
        return self.eps.amax(dim=1, keepdim=True) if self.joint else self.eps

    def _blocks(self, function: Tensor, width: Tensor | None, *, joint: bool) -> Tensor:
        """Linear functions `[side, instance, m, *rows]` in these units, by norm: `[side, instance, t, d, *rows]`."""
        blocks = blocks_of(function, self.hot)
        if width is not None:
            blocks = blocks * width.reshape(1, *width.shape, *(1,) * (blocks.dim() - 4))
        return blocks.flatten(2, 3).unsqueeze(2) if joint else blocks

    def spread(self, function: Tensor) -> Tensor:
        """`sum_k eps_k ||A_k w_k||_q` for linear functions `[side, instance, m, *rows]`, k the blocks of m = t d."""
        norms = norm(self._blocks(function, self.width, joint=self.joint), dual(self.p), dim=3)
        eps = self.radii.reshape(1, *self.radii.shape, *(1,) * (norms.dim() - 3))
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
        A box is one ball in the maximum norm, and as well one for each block: whichever is less.
        """
        far = self._distance(function, joint=self.joint)
        if math.isinf(self.p) and self.width is not None and not self.joint:
            far = torch.minimum(far, self._distance(function, joint=True))
        return far

    def _distance(self, function: Tensor, *, joint: bool) -> Tensor:
        width, flat = self.width, math.isinf(self.p)
        if width is not None and flat:  # |A delta| <= |A diag(sqrt w)| |delta / sqrt w| <= |A diag(sqrt w)| sqrt(sum w)
            width = width.sqrt()
        blocks = self._blocks(function[None], width, joint=joint)[0].movedim(2, -1)  # [instance, t, *lead, rows, d]
        if self.p == 1:
            norms = norm(blocks, 2.0, dim=-2).amax(dim=-1)
        else:
            norms = spectral(blocks)
            if width is not None and flat:
                length = norm(width.flatten(1)[:, None] if joint else width, 2.0, dim=-1)
                norms = norms * length.reshape(*length.shape, *(1,) * (norms.dim() - 2))
            else:
                norms = norms * blocks.shape[-1] ** max(0.0, 0.5 - (0.0 if flat else 1 / self.p))
        eps = self.eps.amax(dim=1, keepdim=True) if joint else self.eps
        return torch.einsum("zt...,zt->z...", norms, eps)

    def grams(self, function: Tensor) -> tuple[Tensor, Tensor] | None:
        """For functions A `[instance, m, *lead, rows]` a middle `c` `[instance, *lead, rows]` and matrices G `[block,
        instance, *lead, rows, rows]`: for every row b of numbers, `|b (A delta - c)| <= sum_block sqrt(b G b')` over
        the set. The middle is 0 here.

        `|b A delta| <= sum_g r_g |b A_g|_2`, g the blocks, or in the maximum norm every number by itself.
        """
        return torch.zeros_like(function[:, 0]), self._grams(function)

    def _grams(self, function: Tensor) -> Tensor:
        joint = self.joint and not math.isinf(self.p)
        parts = self._blocks(function[None], self.width, joint=joint)[0]  # [instance, t, d, *lead, rows]
        radii = self.radii if joint else self.eps
        if math.isinf(self.p):
            parts, radii = parts.flatten(1, 2).unsqueeze(2), radii.repeat_interleave(parts.shape[2], dim=1)
        else:
            radii = radii * parts.shape[2] ** max(0.0, 0.5 - 1 / self.p)
        return grams_of([parts * radii.reshape(*radii.shape, *(1,) * (parts.dim() - 2))])

    def box(self) -> Box:
        """The smallest box around the set, for every p: as wide as the set is along each number."""
        if self.width is None:
            radius = torch.einsum("zt,ztn->zn", self.eps, self.hot)[:, None, :, None].expand_as(self.centre)
        else:
            wide = self.eps[:, :, None] * self.width
            lost = (self.eps[:, :, None] > 0) & (self.width > 0)  # below the normal numbers a product may vanish
            wide = torch.where(lost, wide.clamp(min=torch.finfo(wide.dtype).tiny), wide)
            radius = torch.einsum("ztd,ztn->znd", wide, self.hot)[:, None]
        lower, upper = self.centre - radius, self.centre + radius
        slack = (self.centre.abs() + radius) * torch.finfo(radius.dtype).eps * (radius > 0)
        return Box(lower - slack, upper + slack)

    def sample(self, count: int, generator: torch.Generator, *, boundary: bool = True) -> Tensor:
        """Points of the set, `[instances, count, 1, n, d]`, most of them on its boundary."""
        instances, _, _, d = self.centre.shape
        t = self.hot.shape[1]
        noise = torch.randn(instances, count, t, d, generator=generator, dtype=torch.float64).to(self.centre)
        if self.joint:
            noise = (noise * (self.eps > 0)[:, None, :, None]).flatten(2).unsqueeze(2)  # one block of t d
        if math.isinf(self.p):
            noise = noise.sign() if boundary else noise.clamp(-1, 1)
        if self.p == 1:  # corners of the cross-polytope, and mixtures of a few
            keep = torch.rand(noise.shape, generator=generator, dtype=torch.float64).to(noise)
            keep = keep * (keep >= keep.topk(min(3, noise.shape[-1]), dim=-1).values[..., -1:])
            noise = noise * keep
        size = torch.linalg.vector_norm(noise, ord=self.p, dim=-1, keepdim=True)
        noise = noise / size.clamp(min=torch.finfo(noise.dtype).tiny)
        if not boundary:
            share = torch.rand(*noise.shape[:-1], 1, generator=generator, dtype=torch.float64)
            noise = noise * share.to(noise)
        noise = noise.reshape(instances, count, t, d)
        if self.width is not None:
            noise = noise * self.width[:, None]
        delta = torch.einsum("zctd,zt,ztn->zcnd", noise, self.eps, self.hot)
        return self.centre[:, None] + delta[:, :, None]

"""Division by the root mean square: the nonlinear half of LayerNorm and of RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import OWN, Box, Narrowed, Op, Planes, Shape, Slope, letters, outward, register, root_of

HUGE = 1e30  # in the place of a remainder that is not known
FARTHEST = 0.99  # of its length that a vector may move before its direction is taken for any
PIECES = 256
LEAST_EPS = 1e-30  # an eps below this may vanish in rounding: then a length of zero is one that cannot be divided by


@register
@dataclass(frozen=True)
class Normalize(Op):
    """`y = z / sigma`, `sigma = sqrt(|z|^2 / n + eps)` over the last axis of n entries.

    With one more coordinate `sqrt(n eps)` that never moves, y is `sqrt(n)` times the direction of z. Around the middle
    `z0` of the box, with `e = z0 / |z0|`, `|z - z0| <= t |z0|` and `t < 1`, the direction of z is

        e + (I - e e') (z - z0) / |z0| + r,   r = -(1 - cos f) e + (1 - q) sin f v,

    where f is the angle between z and z0, `q = |z| / |z0|`, and v a unit vector across e. So the plane through
    `-t^2 / 4 e` is in the middle of what r may be along e. As a vector, r is no further from it than `curved(t, a)`,
    where `a |z0|` bounds how far z moves along e. Entry by entry, with `1 - cos f <= t^2 k` and `|1 - q| <= l`, it is
    `t^2 (k - 1/4) |e_i| + l / (1 - l) (r_i / |z0| + a |e_i|)`, `r_i` the half width of coordinate i. Where constants
    are closer, they are the planes.
    """

    name = "normalize"
    summary = "Taylor's first order in the middle with a bound on the remainder; constants where that is worse"
    distances = True
    eps: float

    def __post_init__(self) -> None:
        if not 0 <= self.eps < math.inf:
            raise ValueError(f"eps={self.eps!r}: expected 0 or more")

    def valid(self, *boxes: Box) -> Tensor | None:
        """Without an eps, `0 / 0` must lie outside the box."""
        if self.eps >= LEAST_EPS:
            return None
        _, low, _ = Normalize(0.0).lengths(boxes[0])
        return (low > 0).flatten(1).all(dim=1)

    def forward(self, *x: Tensor) -> Tensor:
        z = x[0]
        return z / torch.sqrt((z * z).mean(dim=-1, keepdim=True) + self.eps)

    def lengths(self, box: Box) -> tuple[Tensor, Tensor, Tensor]:
        """`rho`, and bounds of `sqrt(|z|^2 + n eps)` from below and above, each `[..., 1]`."""
        n = box.lower.shape[-1]
        z0, r = box.centre, box.radius
        rho = torch.linalg.vector_norm(r, dim=-1, keepdim=True)
        if box.distance is not None:
            rho = torch.minimum(rho, box.distance.unsqueeze(-1))
        size = torch.linalg.vector_norm(z0, dim=-1, keepdim=True)
        slack = 1 + (2 * n + 16) * float(torch.finfo(z0.dtype).eps)
        lost = 2 * math.sqrt(n * torch.finfo(z0.dtype).tiny)  # squares that are no normal numbers
        rho = rho * slack + lost
        # the nearest point of the box to 0 is a bound too
        nearest = torch.where((box.lower <= 0) & (box.upper >= 0), 0.0, torch.minimum(box.lower.abs(), box.upper.abs()))
        low = torch.maximum(size / slack - rho, torch.linalg.vector_norm(nearest, dim=-1, keepdim=True) / slack) - lost
        low = torch.sqrt(low.clamp(min=0) ** 2 + n * self.eps) / slack
        high = torch.sqrt((size * slack + rho + lost) ** 2 + n * self.eps) * slack
        return rho, low, high

    @staticmethod
    def normal(z0: Tensor, sigma: Tensor) -> Tensor:
        """Whether the length of `z0` was computed without overflow, and without squares that are no normal numbers."""
        least = math.sqrt(torch.finfo(sigma.dtype).tiny) * 2.0**40
        return torch.isfinite(sigma) & (sigma > least)

    def interval(self, *boxes: Box) -> Box:
        (box,) = boxes
        n = box.lower.shape[-1]
        _, low, high = self.lengths(box)
        root = math.sqrt(n)
        near, far = root / low.clamp(min=torch.finfo(low.dtype).tiny), root / high
        lower = torch.where(box.lower >= 0, box.lower * far, box.lower * near)
        upper = torch.where(box.upper <= 0, box.upper * far, box.upper * near)
        lower, upper = outward(lower, upper, torch.maximum(lower.abs(), upper.abs()), ulps=n + 16)
        cap = root * (1 + (n + 16) * float(torch.finfo(low.dtype).eps))
        known = torch.isfinite(high) & (high > 0)  # squares may overflow: then any direction
        return Box(torch.where(known, lower.clamp(min=-cap), -cap), torch.where(known, upper.clamp(max=cap), cap))

    def planes(self, *boxes: Box) -> Planes:
        (box,) = boxes
        n = box.lower.shape[-1]
        z0, r = box.centre, box.radius
        rho, _, _ = self.lengths(box)
        sigma = torch.sqrt((z0 * z0).mean(dim=-1, keepdim=True) + self.eps)
        normal = self.normal(z0, sigma)
        sigma = torch.where(sigma > 0, sigma, 1.0)  # 0 / 0 is no number
        y0 = z0 / sigma
        values = self.interval(box)
        root, slack = math.sqrt(n), 1 + (4 * n + 64) * float(torch.finfo(z0.dtype).eps)
        moved = torch.where(normal, rho / (root * sigma) * slack, math.inf)
        t = moved.clamp(max=FARTHEST)
        e = (y0 / root).abs()
        radial = (e * r).sum(dim=-1, keepdim=True)  # of the length of z0 towards it
        if box.radial is not None:
            radial = torch.minimum(radial, box.radial.unsqueeze(-1))
        a = torch.minimum(radial / (root * sigma) * slack, t)
        k = 1 / (1 + torch.sqrt(1 - t * t))
        longer = torch.minimum(t, (a + t * t * k) / (1 - t * t * k))  # `|1 - q|`
        entries = t * t * (k - 0.25) * e + longer / (1 - longer) * (r / (root * sigma) + a * e)
        far = torch.where(moved < FARTHEST, curved(t, a) * slack, math.inf)
        remainder = torch.where(moved < FARTHEST, root * torch.minimum(far, entries * slack), math.inf)
        eye = torch.eye(n, dtype=z0.dtype, device=z0.device)
        jacobian = (eye - y0.unsqueeze(-1) * y0.unsqueeze(-2) / n) / sigma.unsqueeze(-1)  # [..., j, z]
        middle = y0 * (1 - t * t / 4) - (jacobian * z0.unsqueeze(-2)).sum(dim=-1)
        # a constant where it is closer than the tangent plane with its remainder, over the whole box
        tilt = (jacobian.abs() * r.unsqueeze(-2)).sum(dim=-1)
        # ... unless the remainder as a vector is less than all of those
        whole = (root * far).squeeze(-1)
        less = whole < torch.linalg.vector_norm(values.radius, dim=-1)
        flat = ((values.upper - values.lower >= 2 * remainder) | less.unsqueeze(-1)) & torch.isfinite(remainder)
        slope = jacobian * flat.unsqueeze(-1)
        lower = torch.where(flat, middle - remainder, values.lower)
        upper = torch.where(flat, middle + remainder, values.upper)
        terms = (jacobian.abs() * (z0.abs() + r).unsqueeze(-2)).sum(dim=-1)
        size = terms + tilt + y0.abs() + torch.where(flat, remainder, values.upper.abs() + values.lower.abs())
        lower, upper = outward(lower, upper, size, ulps=4 * n + 64)
        names = letters(z0.dim() - 1)
        _, whole = outward(whole, whole, torch.linalg.vector_norm(size, dim=-1), ulps=4 * n + 64)
        whole = torch.where(flat.all(dim=-1), whole, HUGE)
        slopes = (Slope(names[:-1] + OWN[0], names + OWN[0], slope, slope),)
        return Planes(names, slopes, lower, upper, remainder=whole)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(1e-5), ((3, 4),)
        yield cls(1e-12), ((2, 8),)


def curved(t: Tensor, a: Tensor) -> Tensor:
    """How far the direction of a vector may be from its linear part, less `t^2 / 4` along it, when it moves by t < 1 of
    its length, by `a` of it along itself.

    At an angle f, with `c = 1 - cos f` and `d = sqrt(t^2 - sin^2 f)`, its length q is within `1 - c -+ d` and within
    `(1 -+ a) / (1 - c)`. So `1 - q <= min(c + d, (a - c) / (1 - c))` and `q - 1 <= min(d - c, (a + c) / (1 - c))`, and
    angles where no q is left do not occur. The square of the result is the most of
    `(c - t^2 / 4)^2 + |1 - q|^2 sin^2 f`, bounded on each of many pieces of the angles.
    """
    s = torch.linspace(0, 1, PIECES + 1, dtype=t.dtype, device=t.device)  # sin^2 f = s t^2
    t, a = t.unsqueeze(-1), a.unsqueeze(-1)
    c = s * t * t / (1 + torch.sqrt(1 - t * t * s))  # grows with s, where d falls
    d = t * torch.sqrt(1 - s[:-1])
    first, last = c[..., :-1], c[..., 1:]
    shorter = torch.minimum(last + d, (a - first) / (1 - first))
    longer = torch.minimum(d - first, (a + last) / (1 - last))
    along = torch.maximum((first - t * t / 4).abs(), (last - t * t / 4).abs())
    across = s[1:] * t * t * torch.maximum(shorter, longer).clamp(min=0) ** 2
    occurs = (1 - first) * (1 - first + d) >= 1 - a - 64 * torch.finfo(t.dtype).eps
    return root_of(torch.where(occurs, along * along + across, 0).amax(dim=-1))

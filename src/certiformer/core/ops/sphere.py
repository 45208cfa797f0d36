"""The normalised input of a model over balls, in other variables: a tilt that is affine, and a height.

What is normalised at a position is `z = L x + c`, L the centring `I - 11'/n` or the identity, and x enters the model
nowhere else. Let `(z, sqrt(n eps))` have the length s and the direction `(e, q)` at rest, where `x = x0`, and let it
have the direction `(u, ..) = cos f (e, q) + (w, ..)` elsewhere, the last part at right angles to the first, so that its
length is `sin f`. Then `sqrt(n) u` is the normalised vector, and

    sin f <= |L (x - x0)| / s <= |x - x0| / s,

since a vector is no nearer to the line of another one than to that itself. At right angles to `(e, q)` is

    (w, -e'w / q), of the squared length w' (I + e e' / q^2) w = |T^-1 w|^2,   T = I - e e' / (1 + q),

for `T^2 = I - e e'`, as `|e|^2 = 1 - q^2`. Without an eps q is 0, w is at right angles to e, and `T w = w`. So there is
a v with `w = T v / s` and `|v| = s sin f <= |x - x0|`. Where L is the centring, e, u, w, and with them v, are centred:
`v = L v`. Call `x0 + v` the point x' in the place of x: then

    the normalised vector  =  sqrt(n) / s T L (x' - x0)  +  cos f sqrt(n) e,        exactly,

and no position of x' is further from rest than that of x. A set that holds with each point all those whose positions
are no further from rest (balls at every position, or one over several) holds x' as well. So what is proved for all x'
of the set, and all heights `cos f` between `sqrt(1 - t^2)` and 1, where no position moves by more than a part t < 1 of
s, holds for all x of the set. Where t may be 1 or more, heights are at least -1. Since `|x' - x0| = s sin f`, heights
are less than 1 in a piece of the set that does not reach as near to rest.

Which x' and which height belong to an x does not depend on the set: what is proved of a piece of one is proved of that
piece of every smaller one. With little eps the directions cover the whole cap `|w| <= t`, and nothing is given away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .base import OWN, Box, Op, Planes, Shape, Slope, letters, outward, register, root_of
from .linear import Center, Shift
from .normalize import LEAST_EPS, Normalize

LARGEST_ERROR = 0.01  # of the length at rest, beyond which its direction is taken for any


class Rest(NamedTuple):
    """What is known of the vector that is normalised at rest, and of the rounding of all that."""

    e: Tensor  # [.., n]
    q: Tensor  # [.., 1]
    size: Tensor  # s [.., 1]
    off: Tensor  # [.., n]: how far z may be from what was computed, in units of s
    error: Tensor  # [.., 1]: of s, as a part of it; more than off as a vector
    near: Tensor  # [.., 1]: whether the set does not get as far as s from rest


@dataclass(frozen=True)
class OnSphere(Op):
    """An op that reads the input, and in the end two constants: the input at rest, and `lengths` [.., 2], how far a
    position is from rest at most and at least."""

    constants = 2
    eps: float
    before: tuple[Op, ...]  # what was done to the input before: constants added, then centred or not

    def __post_init__(self) -> None:
        if not all(isinstance(op, Shift) for op in self.before[:-1]) or not all(
            isinstance(op, (Shift, Center)) for op in self.before
        ):
            raise ValueError(f"{[op.name for op in self.before]}: expected constants to be added, then a centring")

    @property
    def centres(self) -> bool:
        return bool(self.before) and isinstance(self.before[-1], Center)

    def linear(self, d: Tensor) -> Tensor:
        """`L d`."""
        return d - d.mean(dim=-1, keepdim=True) if self.centres else d

    def rest(self, x0: Tensor, lengths: Tensor) -> Rest:
        """At rest, `x0` [.., n], and of a set where positions move so far."""
        z, box, n = x0, Box(x0, x0), x0.shape[-1]
        for op in self.before:
            z, box = op.forward(z), op.interval(box)
        sigma = root_of((z * z).mean(dim=-1, keepdim=True) + self.eps)
        unit = float(torch.finfo(z.dtype).eps)
        normal = Normalize.normal(z, sigma)
        size = torch.where(normal, math.sqrt(n) * sigma, 1.0)
        off = torch.where(normal, torch.maximum(box.upper - z, z - box.lower), 0.0) / size
        error = 2 * torch.linalg.vector_norm(off, dim=-1, keepdim=True) + 2 * (n + 16) * unit
        within = lengths[..., :1] * (1 + 4 * error) < size
        return Rest(
            e=torch.where(normal, z, 0.0) / size,
            q=math.sqrt(n) * math.sqrt(self.eps) / size,
            size=size,
            off=off,
            error=error,
            near=normal & (error < LARGEST_ERROR) & within,
        )


@register
@dataclass(frozen=True)
class Height(OnSphere):
    """How much of the direction at rest is in another one: `cos f = sqrt(1 - |x' - x0|^2 / s^2)`, or minus that where
    the set gets as far as s."""

    name = "height"
    summary = (
        "constants: sqrt(1 - t^2) at the most and the least t, the part of its length that what is normalised moves"
    )

    def forward(self, *x: Tensor) -> Tensor:
        x1, x0, lengths = x
        furthest, nearest = self.ends(lengths)
        moved = torch.linalg.vector_norm(x1 - x0, dim=-1, keepdim=True)
        return across(torch.minimum(torch.maximum(moved, nearest), furthest) / self.rest(x0, lengths).size)

    @staticmethod
    def ends(lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The most and the least, `[.., 1]` each; of an empty set the same."""
        furthest = lengths[..., :1].clamp(min=0)
        return furthest, torch.minimum(lengths[..., 1:].clamp(min=0), furthest)

    def interval(self, *boxes: Box) -> Box:
        x0, lengths = boxes[1].lower, boxes[2].upper
        rest, (furthest, nearest) = self.rest(x0, lengths), self.ends(lengths)
        most = torch.where(rest.near, furthest / rest.size * (1 + 4 * rest.error), 0.0)
        least = torch.where(rest.near, nearest / rest.size * (1 - 4 * rest.error), 0.0)
        one = torch.ones_like(most)
        lower, upper = outward(across(most), across(least), one, ulps=16)
        return Box(torch.where(rest.near, lower, -upper), upper)

    def planes(self, *boxes: Box) -> Planes:
        box, shape = self.interval(*boxes), boxes[0].shape
        names, nothing = letters(len(shape)), boxes[0].lower.new_zeros(1, shape[-1])
        return Planes(names, (Slope(names[:-1] + OWN[0], OWN[0], nothing, nothing),), box.lower, box.upper)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(50.0, (Center(),)), ((1, 3, 4), (1, 3, 4), (1, 3, 2))
        yield cls(50.0, (Shift(torch.linspace(-1, 1, 4, dtype=torch.float64)),)), ((2, 4), (2, 4), (2, 2))


@register
@dataclass(frozen=True)
class Tilted(OnSphere):
    """The normalised vector `sqrt(n) / s T L (x' - x0) + h sqrt(n) e` at the height h.

    Where the set gets as far as s from rest, any vector of the length sqrt(n), whatever x' is.
    """

    name = "tilted"
    summary = "exact up to rounding, in its input and its height"

    def forward(self, *x: Tensor) -> Tensor:
        x1, height, x0, lengths = x
        rest, root, z = self.rest(x0, lengths), math.sqrt(x0.shape[-1]), x1
        d = self.linear(x1 - x0)
        along = (rest.e * d).sum(dim=-1, keepdim=True)
        for op in self.before:
            z = op.forward(z)
        tilted = root / rest.size * (d - rest.e * (along / (1 + rest.q))) + height * (root * rest.e)
        return torch.where(rest.near, tilted, Normalize(self.eps).forward(z))

    def valid(self, *boxes: Box) -> Tensor | None:
        """Without an eps, `0 / 0` must be out of reach."""
        if self.eps >= LEAST_EPS:
            return None
        return self.rest(boxes[2].lower, boxes[3].upper).near.flatten(1).all(dim=1)

    def interval(self, *boxes: Box) -> Box:
        x, height, x0 = boxes[0], boxes[1], boxes[2].lower
        rest = self.rest(x0, boxes[3].upper)
        matrix, gap, flat = self._matrix(rest), self._gap(rest, x, height, x0), math.sqrt(x0.shape[-1])
        middle = (matrix @ (x.centre - x0).unsqueeze(-1)).squeeze(-1) + height.centre * flat * rest.e
        spread = (matrix.abs() @ x.radius.unsqueeze(-1)).squeeze(-1) + height.radius * (flat * rest.e).abs() + gap
        size = self._size(matrix, rest, x, height, x0)
        lower, upper = outward(middle - spread, middle + spread, size, ulps=4 * x0.shape[-1] + 64)
        return self._where(rest, gap, lower, upper)

    def planes(self, *boxes: Box) -> Planes:
        x, height, x0 = boxes[0], boxes[1], boxes[2].lower
        rest, n = self.rest(x0, boxes[3].upper), x0.shape[-1]
        matrix, gap = self._matrix(rest), self._gap(rest, x, height, x0)
        offset = -(matrix @ x0.unsqueeze(-1)).squeeze(-1)
        size = self._size(matrix, rest, x, height, x0)
        lower, upper = outward(offset - gap, offset + gap, size, ulps=4 * n + 64)
        box = self._where(rest, gap, lower, upper)
        linear = self._linear(rest, gap)
        matrix = torch.where(linear.unsqueeze(-1), matrix, 0.0)
        middle = torch.where(linear, math.sqrt(n) * rest.e, 0.0)
        names = letters(x0.dim() - 1)
        own = Slope(names[:-1] + OWN[0], names + OWN[0], matrix, matrix)
        whole = torch.linalg.vector_norm(torch.where(linear, (upper - lower) / 2, 1.0), dim=-1)
        whole = whole * (1 + (n + 16) * float(torch.finfo(x0.dtype).eps)) + n * torch.finfo(x0.dtype).tiny ** 0.5
        slopes = (own, Slope(names[:-1] + OWN[1], names, middle, middle))
        return Planes(names, slopes, box.lower, box.upper, remainder=whole)

    def _matrix(self, rest: Rest) -> Tensor:
        """`sqrt(n) / s T L`, `[.., j, z]`."""
        n = rest.e.shape[-1]
        eye = torch.eye(n, dtype=rest.e.dtype, device=rest.e.device) - (1 / n if self.centres else 0.0)
        e, share = rest.e, 1 / (1 + rest.q)
        return (math.sqrt(n) / rest.size).unsqueeze(-1) * (eye - (e * share).unsqueeze(-1) * e.unsqueeze(-2))

    def _gap(self, rest: Rest, x: Box, height: Box, x0: Tensor) -> Tensor:
        """What the rounding of the matrix and of the direction at rest changes, entry by entry.

        The matrix is `sqrt(n) / s (L - e e' / (1 + q))`. The factors around e e' are off by 2 error of themselves at
        most, an entry of e by `2 off + 2 error |e|`, and e as a vector by 3 error.
        """
        n, e, tiny = x0.shape[-1], rest.e.abs(), float(torch.finfo(x0.dtype).tiny)
        moved = torch.maximum((x.upper - x0).abs(), (x0 - x.lower).abs())
        far = torch.linalg.vector_norm(moved, dim=-1, keepdim=True) + 2 * math.sqrt(n * tiny)
        each = 2 * rest.error * (moved + far / math.sqrt(n)) + far * (2 * rest.off + 10 * rest.error * e)
        most = torch.maximum(height.lower.abs(), height.upper.abs())
        lost = 8 * n * tiny * (1 + math.sqrt(n) / rest.size)  # what vanished
        gap: Tensor = 2 * math.sqrt(n) * (each / rest.size + most * (2 * rest.off + 2 * rest.error * e)) + lost
        return gap

    def _size(self, matrix: Tensor, rest: Rest, x: Box, height: Box, x0: Tensor) -> Tensor:
        """Sizes of all that is added up."""
        most = torch.maximum(height.lower.abs(), height.upper.abs())
        entries = x0.abs() + torch.maximum(x.lower.abs(), x.upper.abs())
        return (matrix.abs() @ entries.unsqueeze(-1)).squeeze(-1) + math.sqrt(x0.shape[-1]) * most * rest.e.abs()

    @staticmethod
    def _where(rest: Rest, gap: Tensor, lower: Tensor, upper: Tensor) -> Box:
        """Those numbers where they mean something, and else those of any vector of the length sqrt(n)."""
        n = lower.shape[-1]
        cap = math.sqrt(n) * (1 + (n + 16) * float(torch.finfo(lower.dtype).eps))
        linear = Tilted._linear(rest, gap)
        return Box(torch.where(linear, lower, -cap), torch.where(linear, upper, cap))

    @staticmethod
    def _linear(rest: Rest, gap: Tensor) -> Tensor:
        """Whether they do, all entries of a vector or none: what is known of it as a vector rests on every one."""
        return rest.near & torch.isfinite(gap).all(dim=-1, keepdim=True)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(50.0, (Center(),)), ((1, 3, 4), (1, 3, 1), (1, 3, 4), (1, 3, 2))
        shift = Shift(torch.linspace(-1, 1, 4, dtype=torch.float64))
        yield cls(50.0, (shift,)), ((2, 4), (2, 1), (2, 4), (2, 2))
        yield cls(60.0, (shift, Center())), ((1, 2, 4), (1, 2, 1), (1, 2, 4), (1, 2, 2))


def across(t: Tensor) -> Tensor:
    """`sqrt(1 - t^2)`, 0 from 1 on."""
    t = t.clamp(max=1.0)
    return root_of((1 - t) * (1 + t))

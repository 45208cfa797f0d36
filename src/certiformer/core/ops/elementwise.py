"""Functions of one variable. Each is slope first, offset second.

A slope may be any finite number; the offset is then the extreme of `f(x) - slope x` over the box, which sits at a
known point (an end of the box, or the point of tangency). So the planes are sound however the slope was found, also
where `u - l` is tiny and a chord is nothing but rounding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Box, Narrowed, Op, Planes, Shape, Slope, letters, outward, register, root_of, ulp
from .bend import Bending


class Elementwise(Op):
    """A function of one variable applied to every entry."""

    ulps: ClassVar[float] = 8.0  # bound on the error of the library's own evaluation, with room to spare

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4),)

    @abstractmethod
    def function(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def lines(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lower slope, lower offset, upper slope, upper offset in exact arithmetic."""
        ...

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(x[0])

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return self, (axis,)

    def inside(self, box: Box) -> Box:
        """The box with entries outside the domain replaced by something harmless (their instance is not valid)."""
        low, high = self.domain()
        if low == -math.inf and high == math.inf:
            return box
        ok = (box.lower > low) & (box.upper < high)
        one = torch.ones_like(box.lower)
        return Box(torch.where(ok, box.lower, one), torch.where(ok, box.upper, one))

    def planes(self, *boxes: Box) -> Planes:
        (box,) = boxes
        l, u = self.inside(box)
        sl, ol, su, ou = self.lines(l, u)
        largest = torch.maximum(l.abs(), u.abs())
        values = torch.maximum(self.function(l).abs(), self.function(u).abs())
        ol, _ = outward(ol, ol, sl.abs() * largest + ol.abs() + values, self.ulps)
        _, ou = outward(ou, ou, su.abs() * largest + ou.abs() + values, self.ulps)
        axes = letters(l.dim() - 1)
        return Planes(axes, (Slope(axes, axes, sl, su),), ol, ou)


def chord(l: Tensor, u: Tensor, fl: Tensor, fu: Tensor, middle: Tensor) -> Tensor:
    """The slope of the chord, or the derivative in the middle where the chord would be rounding noise."""
    width = u - l
    scale = torch.maximum(l.abs(), u.abs())
    wide = width > 64 * ulp(l) * scale + torch.finfo(l.dtype).tiny
    return torch.where(wide, (fu - fl) / torch.where(wide, width, torch.ones_like(width)), middle)


class Positive(Elementwise):
    """A function that is never negative."""

    def floor(self, *floors: float) -> float:
        return 0.0


class OfPositives(Elementwise):
    """A function of positive numbers: a box that is not provably positive is not valid."""

    @classmethod
    def domain(cls) -> tuple[float, float]:
        return (0.0, math.inf)


class Monotone(Elementwise):
    """An increasing function: its range is the range of its ends."""

    def interval(self, *boxes: Box) -> Box:
        (box,) = boxes
        l, u = self.inside(box)
        fl, fu = self.function(l), self.function(u)
        return Box(*outward(fl, fu, torch.maximum(fl.abs(), fu.abs()), self.ulps))


class Convex(Elementwise):
    """`f` convex: tangent below, chord above. `concave` turns the picture over."""

    concave: ClassVar[bool] = False

    def tangent_point(self, l: Tensor, u: Tensor) -> Tensor:
        return l / 2 + u / 2

    def lines(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fl, fu = self.function(l), self.function(u)
        middle = l / 2 + u / 2
        d = torch.minimum(torch.maximum(self.tangent_point(l, u), l), u)
        tangent = self.derivative(d)
        # a slope that underflows is 0; then, and for any other, the line must also pass the ends
        tangent = torch.where(tangent.abs() > 1e6 * torch.finfo(l.dtype).tiny, tangent, torch.zeros_like(tangent))
        touch = self.function(d) - tangent * d
        slope = chord(l, u, fl, fu, self.derivative(middle))
        if self.concave:
            above = torch.maximum(touch, torch.maximum(fl - tangent * l, fu - tangent * u))
            return slope, torch.minimum(fl - slope * l, fu - slope * u), tangent, above
        below = torch.minimum(touch, torch.minimum(fl - tangent * l, fu - tangent * u))
        return tangent, below, slope, torch.maximum(fl - slope * l, fu - slope * u)


@register
@dataclass(frozen=True)
class Relu(Positive, Monotone):
    """`max(x, 0)`; over `l < 0 < u` the chord above, and below `0` or `x`, whichever leaves the smaller area."""

    name = "relu"
    summary = "chord above; 0 or x below, by the smaller area"
    kink = 0.0
    ulps = 2.0

    def function(self, x: Tensor) -> Tensor:
        return x.clamp(min=0)

    def derivative(self, x: Tensor) -> Tensor:
        return (x > 0).to(x.dtype)

    def lines(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        width = u - l
        crossing = (l < 0) & (u > 0)
        above = torch.where(crossing, u / torch.where(crossing, width, torch.ones_like(width)), (l >= 0).to(l.dtype))
        below = torch.where(crossing, (u >= -l).to(l.dtype), (l >= 0).to(l.dtype))
        zero = torch.zeros_like(l)
        top = torch.where(crossing, torch.maximum(-above * l, u - above * u), zero)
        return below, zero, above, top

    def interval(self, *boxes: Box) -> Box:
        return boxes[0].map(self.function)

    def planes(self, *boxes: Box) -> Planes:
        return self.tuned(self.parameters(*boxes), *boxes)

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes:
        """The chord, and the same slope through 0 below it."""
        _, _, slope, _ = self.lines(*boxes[0])
        return self.tuned((slope,), *boxes).parallel()

    def parameters(self, *boxes: Box) -> tuple[Tensor, ...]:
        """The slope of the lower line where the box crosses zero."""
        return (self.lines(*boxes[0])[0],)

    def tuned(self, parameters: tuple[Tensor, ...], *boxes: Box) -> Planes:
        (box,) = boxes
        crossing = (box.lower < 0) & (box.upper > 0)
        sl, zero, su, top = self.lines(*box)
        sl = torch.where(crossing, parameters[0].clamp(0, 1), sl)
        _, top = outward(top, top, box.upper - box.lower, self.ulps)
        axes = letters(len(box.shape))
        return Planes(axes, (Slope(axes, axes, sl, su),), zero, torch.where(crossing, top, zero))


@register
@dataclass(frozen=True)
class Exp(Positive, Monotone, Convex):
    """`exp(x)`; the tangent touches no further than `l + 0.99`, which keeps the lower line positive on the box."""

    name = "exp"
    summary = "chord above; tangent at min((l+u)/2, l+0.99) below, positive on the box"

    def function(self, x: Tensor) -> Tensor:
        return x.exp()

    def derivative(self, x: Tensor) -> Tensor:
        return x.exp()

    def tangent_point(self, l: Tensor, u: Tensor) -> Tensor:
        return torch.minimum(l / 2 + u / 2, l + 0.99)


@register
@dataclass(frozen=True)
class Reciprocal(OfPositives, Positive, Convex):
    """`1 / x` for `x > 0`: convex and falling."""

    name = "reciprocal"
    summary = "x > 0: chord above, tangent in the middle below"

    def function(self, x: Tensor) -> Tensor:
        return 1 / x

    def derivative(self, x: Tensor) -> Tensor:
        return -1 / (x * x)

    def interval(self, *boxes: Box) -> Box:
        l, u = self.inside(boxes[0])
        return Box(*outward(1 / u, 1 / l, 1 / l, self.ulps))


@register
@dataclass(frozen=True)
class Square(Positive, Convex):
    """`x^2`; the tangent point is `min((l+u)/2, 2l)` for `l >= 0`, mirrored for `u <= 0`, and 0 across zero."""

    name = "square"
    summary = "chord above; tangent at min((l+u)/2, 2l), mirrored, 0 across zero: never negative on the box"

    def function(self, x: Tensor) -> Tensor:
        return x * x

    def derivative(self, x: Tensor) -> Tensor:
        return 2 * x

    def tangent_point(self, l: Tensor, u: Tensor) -> Tensor:
        middle = l / 2 + u / 2
        right = torch.minimum(middle, 2 * l)
        left = torch.maximum(middle, 2 * u)
        return torch.where(l >= 0, right, torch.where(u <= 0, left, torch.zeros_like(l)))

    def interval(self, *boxes: Box) -> Box:
        l, u = boxes[0]
        across = (l < 0) & (u > 0)
        a, b = l * l, u * u
        low = torch.where(across, torch.zeros_like(a), torch.minimum(a, b))
        high = torch.maximum(a, b)
        low, high = outward(low, high, high, self.ulps)
        return Box(low.clamp(min=0), high)


@register
@dataclass(frozen=True)
class Sqrt(OfPositives, Positive, Monotone, Convex):
    """`sqrt(x)` for `x > 0`: concave, chord below, tangent in the middle above."""

    name = "sqrt"
    summary = "x > 0: chord below, tangent in the middle above"
    concave = True

    def function(self, x: Tensor) -> Tensor:
        return x.sqrt()

    def derivative(self, x: Tensor) -> Tensor:
        return 0.5 / x.sqrt()


@register
@dataclass(frozen=True)
class Tanh(Bending, Monotone):
    """`tanh(x)`: convex below zero, concave above; across zero, lines tangent on one side through the other end.

    The slope is found by bisection. Whatever slope comes out, `tanh(x) - slope x` has its minimum over the box at the
    left tangency, `l` or `u`, and its maximum at the right tangency, `l` or `u`: the offset is the extreme of those.
    """

    name = "tanh"
    summary = "one-sided: chord and middle tangent; across zero: tangents through the far end"
    steps: ClassVar[int] = 60
    turns = (-0.6584789484624083543125, 0.6584789484624083543125)

    def function(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def derivative(self, x: Tensor) -> Tensor:
        # 1 - tanh(x)^2 without cancellation
        e = torch.exp(-2 * x.abs())
        return 4 * e / ((1 + e) * (1 + e))

    def touching(self, l: Tensor, u: Tensor) -> Tensor:
        """The d in [l, 0] whose tangent passes through (u, tanh(u)), or l when there is none."""
        fu = torch.tanh(u)
        low, high = l, torch.zeros_like(l)  # the tangent at `high` = 0 passes above (u, f(u)) for u > 0
        for _ in range(self.steps):
            d = low / 2 + high / 2
            under = torch.tanh(d) + self.derivative(d) * (u - d) <= fu
            low, high = torch.where(under, d, low), torch.where(under, high, d)
        return low

    def crosses(self, l: Tensor, u: Tensor) -> Tensor:
        """Whether the tangent at l already passes above (u, tanh(u))."""
        return torch.tanh(l) + self.derivative(l) * (u - l) > torch.tanh(u)

    def lines(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fl, fu = torch.tanh(l), torch.tanh(u)
        middle = l / 2 + u / 2
        tangent = self.derivative(middle)
        slope = chord(l, u, fl, fu, tangent)
        across = (l < 0) & (u > 0)
        lo, hi = l.clamp(max=0), u.clamp(min=0)
        dl = self.touching(lo, hi)
        du = -self.touching(-hi, -lo)
        # no tangent on the near side reaches the far end: there the chord is the line
        toward = torch.where(self.crosses(lo, hi), slope, self.derivative(dl))
        away = torch.where(self.crosses(-hi, -lo), slope, self.derivative(du))
        below = torch.where(across, toward, torch.where(l >= 0, slope, tangent))
        above = torch.where(across, away, torch.where(l >= 0, tangent, slope))
        return below, self.least(below, l, u), above, -self.least(above, -u, -l)

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes:
        """The slope half way between those of the two lines, or that in the middle (`Bending`)."""
        (box,) = boxes
        below, _, above, _ = self.lines(box.lower, box.upper)

        def lines(slope: Tensor) -> Planes:
            return self._between(slope, box)

        usual = lines(below / 2 + above / 2)
        return self.near(box, usual, lines, lengths[0]) if lengths else usual

    def above(self, box: Box) -> Planes:
        """Lines of the slope of the upper one, which is not negative."""
        _, _, slope, _ = self.lines(box.lower, box.upper)
        return self._between(slope.clamp(min=0), box)

    def _between(self, slope: Tensor, box: Box) -> Planes:
        """Lines of this slope."""
        l, u = box.lower, box.upper
        lower, upper = self.least(slope, l, u), -self.least(slope, -u, -l)
        size = slope * torch.maximum(l.abs(), u.abs()) + lower.abs() + upper.abs() + 1
        axes = letters(l.dim() - 1)
        return Planes(axes, (Slope(axes, axes, slope, slope),), *outward(lower, upper, size, self.ulps))

    def second(self, x: Tensor) -> Tensor:
        return -2 * torch.tanh(x) * self.derivative(x)

    def least(self, slope: Tensor, l: Tensor, u: Tensor) -> Tensor:
        """`min over [l, u] of tanh(x) - slope x`, for any slope: at an end or where `tanh' = slope`, x <= 0."""
        # tanh'(x) = s at tanh(x) = -sqrt(1 - s); a rounded root only misses by the square of the rounding
        s = slope.clamp(min=torch.finfo(slope.dtype).tiny, max=1)
        root = -torch.atanh(root_of(1 - s).clamp(max=1 - ulp(s)))
        root = torch.minimum(torch.maximum(root, l), u)
        ends = torch.minimum(torch.tanh(l) - slope * l, torch.tanh(u) - slope * u)
        return torch.minimum(ends, torch.tanh(root) - slope * root)

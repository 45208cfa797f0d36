"""Smooth activations: one routine for every C1 function whose inflection points are known.

The slope of a line is chosen first, freely: the one that supports the convex (concave) hull of a few points of the
graph in the middle of the box, which leaves the smallest area. Its offset is the extreme of `f(x) - slope x` over the
box, which sits at an end or where `f' = slope`. On a piece between inflections `f'` is monotone, so that root is
bracketed; what the bracket leaves open is bounded by a tangent, from the sound side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Box, Op, Planes, Shape, Slope, letters, outward, register, ulp
from .bend import Bending
from .elementwise import Convex, Elementwise, Monotone, OfPositives, Positive

SIDE = 4  # points of the hull on either side of the middle
NEAR = (-0.18, -0.1, -0.04, 0.0, 0.04, 0.1, 0.18)  # and again around the best of them, in units of the side


def _chords(x: Tensor, fx: Tensor, at: Tensor, f: Tensor, noise: Tensor, none: float) -> Tensor:
    """Slopes of the chords from points `[k, ...]` to one point; `none` where they are nothing but rounding."""
    width = at - x
    wide = width.abs() > noise
    return torch.where(wide, (f - fx) / torch.where(wide, width, torch.ones_like(width)), none)


def _pick(slopes: Tensor, x: Tensor, fx: Tensor, *, largest: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The extreme slope and the point it belongs to."""
    slope, i = slopes.max(dim=0) if largest else slopes.min(dim=0)
    return slope, x.gather(0, i[None])[0], fx.gather(0, i[None])[0]


class Smooth(Elementwise):
    """A C1 function, `f'` monotone between the `inflections`, `|f'|` at most about 1."""

    inflections: ClassVar[tuple[float, ...]] = ()
    convex_first: ClassVar[bool] = True  # whether f' rises left of the first inflection
    flats: ClassVar[tuple[float, ...]] = ()  # where f' = 0
    steps: ClassVar[int] = 20  # of bisection; the error left is of the order 4^-steps

    def interval(self, *boxes: Box) -> Box:
        l, u = boxes[0]
        points = [l, u, *(torch.minimum(torch.maximum(l, l.new_tensor(c)), u) for c in self.flats)]
        values = torch.stack([self.function(x) for x in points])
        low, high = values.amin(dim=0), values.amax(dim=0)
        lower, upper = outward(low, high, torch.maximum(l.abs(), u.abs()) + high.abs(), self.ulps)
        return Box(lower, upper)

    def planes(self, *boxes: Box) -> Planes:
        return self._between(*self.slopes(*boxes[0]), boxes[0])

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes | None:
        """The slope half way between those of the two lines, or that in the middle (`Bending`)."""
        (box,) = boxes
        below, above = self.slopes(box.lower, box.upper)

        def lines(slope: Tensor) -> Planes:
            return self._between(slope, slope, box)

        usual = lines(below / 2 + above / 2)
        return self.near(box, usual, lines, lengths[0]) if isinstance(self, Bending) and lengths else usual

    def _between(self, below: Tensor, above: Tensor, box: Box) -> Planes:
        """Lines of these slopes."""
        l, u = box.lower, box.upper
        under, over = self.least(below, l, u, 1.0), -self.least(above, l, u, -1.0)
        largest = torch.maximum(l.abs(), u.abs())  # libraries evaluate x(1 + erf(..)) and the like to within |x| ulps
        under, _ = outward(under, under, (1 + below.abs()) * largest + under.abs(), self.ulps)
        _, over = outward(over, over, (1 + above.abs()) * largest + over.abs(), self.ulps)
        axes = letters(l.dim() - 1)
        return Planes(axes, (Slope(axes, axes, below, above),), under, over)

    def lines(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        below, above = self.slopes(l, u)
        return below, self.least(below, l, u, 1.0), above, -self.least(above, l, u, -1.0)

    def slopes(self, l: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes of the lower and the upper hull at the middle."""
        return self.hull(l, u, 1.0), self.hull(l, u, -1.0)

    def hull(self, l: Tensor, u: Tensor, sign: float) -> Tensor:
        """The slope at the middle m of the convex hull of `sign f` (times sign), from a few points of the box.

        Where m is on the hull: the tangent, kept between the steepest chord from the left and the flattest to the
        right. Elsewhere the chord that passes lowest under m. Once over the box, then around the points found.
        """
        m = l / 2 + u / 2
        f, slope = sign * self.function(m), sign * self.derivative(m)
        x, y = self.points(m, l), self.points(m, u)  # [k, ...]
        noise = 64 * ulp(l) * torch.maximum(l.abs(), u.abs()) + torch.finfo(l.dtype).tiny
        near = torch.tensor(NEAR, dtype=l.dtype, device=l.device).reshape(-1, *(1,) * l.dim())
        for _ in range(2):
            fx, fy = sign * self.function(x), sign * self.function(y)
            steepest, a, fa = _pick(_chords(x, fx, m, f, noise, -math.inf), x, fx, largest=True)
            flattest, b, _ = _pick(_chords(y, fy, m, f, noise, math.inf), y, fy, largest=False)
            slope = torch.minimum(torch.maximum(slope, steepest), flattest)
            under = steepest > flattest
            _, b2, fb2 = _pick(_chords(y, fy, a, fa, noise, math.inf), y, fy, largest=False)
            chord, a2, _ = _pick(_chords(x, fx, b2, fb2, noise, -math.inf), x, fx, largest=True)
            slope = torch.where(under, chord, slope)
            a, b = torch.where(under, a2, a), torch.where(under, b2, b)
            x = torch.minimum(torch.maximum(a + (m - l) * near, l), m)
            y = torch.maximum(torch.minimum(b + (u - m) * near, u), m)
        return sign * slope

    def points(self, middle: Tensor, end: Tensor) -> Tensor:
        """Points from an end to the middle (left out), and the inflections between."""
        low, high = torch.minimum(middle, end), torch.maximum(middle, end)
        even = [torch.lerp(middle, end, k / SIDE) for k in range(1, SIDE)]
        inner = (torch.minimum(torch.maximum(low, low.new_tensor(c)), high) for c in self.inflections)
        return torch.stack([end, *even, *inner])

    def least(self, slope: Tensor, l: Tensor, u: Tensor, sign: float) -> Tensor:
        """A number not above `min over [l, u] of sign (f(x) - slope x)`, and next to it, for any slope."""

        def h(x: Tensor) -> Tensor:
            return sign * (self.function(x) - slope * x)

        def dh(x: Tensor) -> Tensor:
            return sign * (self.derivative(x) - slope)

        best = torch.minimum(h(l), h(u))
        cuts = (-math.inf, *self.inflections, math.inf)
        for k, (start, end) in enumerate(itertools.pairwise(cuts)):
            if (sign > 0) != (self.convex_first == (k % 2 == 0)):
                continue  # sign f is concave here: its least value is at an end, which another piece or the box has
            a = torch.minimum(torch.maximum(l, l.new_tensor(start)), u)
            b = torch.minimum(torch.maximum(l, l.new_tensor(end)), u)
            for _ in range(self.steps):
                x = a / 2 + b / 2
                rising = dh(x) > 0
                a, b = torch.where(rising, a, x), torch.where(rising, x, b)
            # h is convex on [a, b], which holds its minimum: it lies above its tangents at a and at b
            left = h(a) + dh(a).clamp(max=0) * (b - a)
            right = h(b) - dh(b).clamp(min=0) * (b - a)
            best = torch.minimum(best, torch.maximum(left, right))
        return best


@register
@dataclass(frozen=True)
class Gelu(Bending, Smooth):
    """`x Phi(x)`, with Phi the normal distribution: convex within `|x| <= sqrt 2`, concave outside."""

    name = "gelu"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (-math.sqrt(2), math.sqrt(2))
    convex_first = False
    flats = (-0.7517915246935644574579,)
    turns = (-2.0, 0.0, 2.0)

    def function(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x)

    def derivative(self, x: Tensor) -> Tensor:
        density = torch.exp(-x * x / 2) * (1 / math.sqrt(2 * math.pi))
        return torch.erfc(x * -math.sqrt(0.5)) / 2 + x * density

    def second(self, x: Tensor) -> Tensor:
        x = x.clamp(-100, 100)  # beyond, f'' is 0 to the last digit, and squares may overflow
        return (2 - x * x) * torch.exp(-x * x / 2) * (1 / math.sqrt(2 * math.pi))

    def floor(self, *floors: float) -> float:
        return -0.1699712074799037


@register
@dataclass(frozen=True)
class GeluTanh(Bending, Smooth):
    """`x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, the approximation of GELU by tanh."""

    name = "gelu_tanh"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (-1.418504008790828355548, 1.418504008790828355548)
    convex_first = False
    flats = (-0.7524614220710162584880,)
    rate: ClassVar[float] = math.sqrt(2 / math.pi)
    cubic: ClassVar[float] = 0.044715
    turns = (-2.01348072462425792808, 0.0, 2.01348072462425792808)

    def function(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")

    def derivative(self, x: Tensor) -> Tensor:
        x = x.clamp(-100, 100)  # beyond, f' is 0 or 1 to the last digit
        inner = self.rate * (x + self.cubic * x * x * x)
        e = torch.exp(-2 * inner.abs())
        bell = 4 * e / ((1 + e) * (1 + e))  # 1 - tanh^2
        return torch.sigmoid(2 * inner) + x * bell * (self.rate / 2) * (1 + 3 * self.cubic * x * x)

    def second(self, x: Tensor) -> Tensor:
        x = x.clamp(-100, 100)
        inner = 2 * self.rate * (x + self.cubic * x * x * x)
        rate, rise = 2 * self.rate * (1 + 3 * self.cubic * x * x), 12 * self.rate * self.cubic * x
        s = torch.sigmoid(inner)
        first = s * torch.sigmoid(-inner)
        return 2 * first * rate + x * (first * (1 - 2 * s) * rate * rate + first * rise)

    def floor(self, *floors: float) -> float:
        return -0.1700407505712541


@register
@dataclass(frozen=True)
class Silu(Bending, Smooth):
    """`x / (1 + exp(-x))`: convex within `|x| <= 2.3994`, concave outside."""

    name = "silu"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (-2.399357280515467667833, 2.399357280515467667833)
    convex_first = False
    flats = (-1.278464542761073795109,)
    turns = (-3.435840993535110688952, 0.0, 3.435840993535110688952)

    def function(self, x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))

    def second(self, x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        return s * torch.sigmoid(-x) * (2 + x * (1 - 2 * s))

    def floor(self, *floors: float) -> float:
        return -0.2784645427610739


@register
@dataclass(frozen=True)
class Sigmoid(Bending, Smooth):
    """`1 / (1 + exp(-x))`: convex below zero, concave above."""

    name = "sigmoid"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (0.0,)
    turns = (-1.316957896924816708625, 1.316957896924816708625)

    def function(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x)

    def second(self, x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        return s * torch.sigmoid(-x) * (1 - 2 * s)

    def floor(self, *floors: float) -> float:
        return 0.0


@register
@dataclass(frozen=True)
class Erf(Bending, Smooth):
    """The error function: convex below zero, concave above."""

    name = "erf"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (0.0,)
    turns = (-math.sqrt(0.5), math.sqrt(0.5))

    def function(self, x: Tensor) -> Tensor:
        return torch.erf(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.exp(-x * x) * (2 / math.sqrt(math.pi))

    def second(self, x: Tensor) -> Tensor:
        return -2 * x * self.derivative(x)

    def floor(self, *floors: float) -> float:
        return -1.0


@register
@dataclass(frozen=True)
class Elu(Smooth):
    """`x` above zero, `exp(x) - 1` below: convex."""

    name = "elu"
    summary = "alpha = 1: hull slopes; offsets at ends and where f' = slope"

    def function(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))

    def derivative(self, x: Tensor) -> Tensor:
        return torch.exp(x.clamp(max=0))

    def floor(self, *floors: float) -> float:
        return -1.0


@register
@dataclass(frozen=True)
class Softplus(Smooth):
    """`log(1 + exp(x))`: convex. PyTorch takes `x` itself above 20, which is less by up to `exp(-20)`."""

    name = "softplus"
    summary = "hull slopes; offsets at ends and where f' = slope; lower by exp(-20) where x may pass 20"
    threshold: ClassVar[float] = 20.0
    step: ClassVar[float] = 2.1e-9  # above exp(-20)

    def forward(self, *x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x[0], threshold=self.threshold)

    def function(self, x: Tensor) -> Tensor:
        return torch.logaddexp(x, torch.zeros_like(x))

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def floor(self, *floors: float) -> float:
        return 0.0

    def interval(self, *boxes: Box) -> Box:
        lower, upper = super().interval(*boxes)
        return Box(torch.where(boxes[0].upper >= self.threshold, lower - self.step, lower).clamp(min=0), upper)

    def _between(self, below: Tensor, above: Tensor, box: Box) -> Planes:
        planes = super()._between(below, above, box)
        assert planes.lower is not None
        return planes._replace(lower=torch.where(box.upper >= self.threshold, planes.lower - self.step, planes.lower))


@register
@dataclass(frozen=True)
class Mish(Smooth):
    """`x tanh(log(1 + exp(x)))`: convex between its inflections, concave outside."""

    name = "mish"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (-2.256376396360793120006, 1.490571179485428459294)
    convex_first = False
    flats = (-1.192431214515495212138,)

    def function(self, x: Tensor) -> Tensor:
        return torch.nn.functional.mish(x)

    def derivative(self, x: Tensor) -> Tensor:
        plus = torch.logaddexp(x, torch.zeros_like(x))
        e = torch.exp(-2 * plus)
        return torch.tanh(plus) + x * torch.sigmoid(x) * 4 * e / ((1 + e) * (1 + e))

    def floor(self, *floors: float) -> float:
        return -0.3088434130172505


@register
@dataclass(frozen=True)
class Rsqrt(OfPositives, Positive, Convex):
    """`1 / sqrt(x)` for `x > 0`: convex and falling."""

    name = "rsqrt"
    summary = "x > 0: chord above, tangent in the middle below"

    def function(self, x: Tensor) -> Tensor:
        return x.rsqrt()

    def derivative(self, x: Tensor) -> Tensor:
        return -0.5 * x.rsqrt() / x

    def interval(self, *boxes: Box) -> Box:
        l, u = self.inside(boxes[0])
        high = l.rsqrt()
        return Box(*outward(u.rsqrt(), high, high, self.ulps))


@register
@dataclass(frozen=True)
class Log(OfPositives, Monotone, Convex):
    """`log(x)` for `x > 0`: concave, chord below, tangent in the middle above."""

    name = "log"
    summary = "x > 0: chord below, tangent in the middle above"
    concave = True

    def function(self, x: Tensor) -> Tensor:
        return x.log()

    def derivative(self, x: Tensor) -> Tensor:
        return 1 / x


@register
@dataclass(frozen=True)
class Cube(Smooth):
    """`x^3`: concave below zero, convex above."""

    name = "cube"
    summary = "hull slopes; offsets at ends and where f' = slope"
    inflections = (0.0,)
    convex_first = False

    def function(self, x: Tensor) -> Tensor:
        return x * x * x

    def derivative(self, x: Tensor) -> Tensor:
        return 3 * x * x

    def _between(self, below: Tensor, above: Tensor, box: Box) -> Planes:
        l, u = box.lower, box.upper
        under, over = self.least(below, l, u, 1.0), -self.least(above, l, u, -1.0)
        largest = torch.maximum(l.abs(), u.abs())
        size = 4 * largest * largest * largest + torch.maximum(below.abs(), above.abs()) * largest
        under, over = outward(under, over, size, self.ulps)
        axes = letters(l.dim() - 1)
        return Planes(axes, (Slope(axes, axes, below, above),), under, over)

    def interval(self, *boxes: Box) -> Box:
        low, high = boxes[0].map(self.function)
        return Box(*outward(low, high, torch.maximum(low.abs(), high.abs()), self.ulps))

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4),)

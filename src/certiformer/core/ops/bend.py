"""Functions of one variable next to their tangents: entries of a vector are not all far from the middle at once.

Around the middle m of a box, with `u = x - m`,

    -a u^2 <= f(x) - f(m) - f'(m) u <= b u^2,

a and b from the range of the second derivative. So where the lower plane of slope `f'(m)` is `below` away from that
tangent, f is above that plane by `below (1 - u^2 / near)` at least, `near = below / a`; so for the upper one.

Coefficients A of a row take `sum_k A_k below_k` off for the planes. The squares of u add up to no more than the square
of the length of the vector, so for every t >= 0 at least

    sum_k min(A_k below_k, t near_k) - t length^2

of that is not lost (`core/bounding.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from .base import Bend, Box, Planes, ulp

SLACK = 64.0  # units by which a value or a derivative may be wrong, of functions whose derivatives are about 1 at most
WORSE = 1.1  # times as far apart as the usual ones planes may be that touch in the middle
PAYS = 3.0  # squares of the length that there must be room for, both sides together: a row meets about half of it


class Bending:
    """A function of one variable whose first two derivatives are about 1 at most."""

    bends: ClassVar[bool] = True
    turns: ClassVar[tuple[float, ...]] = ()  # where the third derivative is 0: all such numbers

    @abstractmethod
    def function(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def second(self, x: Tensor) -> Tensor:
        """The second derivative."""
        ...

    def curvature(self, box: Box) -> tuple[Tensor, Tensor]:
        """A bound of the second derivative over a box from below, and from above: that at its ends and turns."""
        l, u = box
        values = torch.stack([self.second(x) for x in (l, u, *(torch.minimum(l.clamp(min=c), u) for c in self.turns))])
        error = SLACK * ulp(l)  # a turn that is rounded misses by the square of the rounding
        return values.amin(dim=0) - error, values.amax(dim=0) + error

    def near(self, box: Box, usual: Planes, lines: Callable[[Tensor], Planes], length: Tensor) -> Planes:
        """The usual planes, or those of the slope in the middle where these are about as good, with what they leave
        out.

        Inputs are no further than `length` from the middle, as vectors along the last axis.
        """
        m = box.centre
        touching = lines(self.derivative(m))
        assert usual.lower is not None
        assert usual.upper is not None
        assert touching.lower is not None
        assert touching.upper is not None
        slope, low, high = touching.slopes[0].lower, touching.lower, touching.upper
        value, (least, most) = self.function(m), self.curvature(box)
        line = value - slope * m
        size = value.abs() + (slope * m).abs() + m.abs() + box.radius + low.abs() + high.abs()
        lost = SLACK * ulp(m) * (1 + size)  # of the value, and of the slope over the radius
        up = (1 + SLACK * ulp(m)) / 2
        a, b = up * (-least).clamp(min=ulp(m)), up * most.clamp(min=ulp(m))
        good = high - low <= WORSE * (usual.upper - usual.lower)
        below, above = (torch.where(good, away - lost, 0).clamp(min=0) for away in (line - low, high - line))
        room = (below / a + above / b).sum(dim=-1)
        good = good & (room > PAYS * length * length).unsqueeze(-1)
        below, above = torch.where(good, below, 0), torch.where(good, above, 0)
        slope = torch.where(good, slope, usual.slopes[0].lower)
        low, high = torch.where(good, low, usual.lower), torch.where(good, high, usual.upper)
        slopes = (usual.slopes[0]._replace(lower=slope, upper=slope),)
        return usual._replace(
            slopes=slopes, lower=low, upper=high, bend=Bend(below, above, below / a, above / b, length)
        )

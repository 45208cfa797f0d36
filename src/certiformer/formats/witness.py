"""Counterexamples as the file means them: numbers of the model's type within the bounds, judged by onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch
from torch import Tensor

from ..models.onnx import Network, Runtime
from .query import Case
from .result import Witness
from .rounding import fractions, half_spaces, inside

STEPS = 20  # away from the border of a condition, where a point lies on it


@dataclass(frozen=True, eq=False)
class Judge:
    """Tells whether points are counterexamples of one case."""

    runtime: Runtime
    network: Network  # in float64
    case: Case
    number: int

    @cached_property
    def floats(self) -> tuple[Any, Any, Any]:
        """The numbers of the model's type within the bounds: the least, the largest, and where there is none."""
        return inside(self.case, self.runtime.dtype)

    def confirmed(self, point: Tensor) -> Witness | None:
        """A point, rounded into the bounds, as a counterexample; None where onnxruntime says otherwise.

        All comparisons are of exact numbers. Where inputs had to be rounded out of their bounds, the conditions must
        also hold in float64 at the point itself.
        """
        low, high, none = self.floats
        flat = point.detach().reshape(-1).double().numpy()
        x = numpy.clip(flat.astype(self.runtime.dtype), low, high)
        y = self.runtime(x)
        if not numpy.isfinite(y).all():
            return None
        exact = fractions(x)
        within = all(
            skip or a <= v <= b for skip, a, v, b in zip(none, self.case.lower, exact, self.case.upper, strict=True)
        )
        if not within or not self.case.true_of(exact, fractions(y)):
            return None
        if none.any() and not self._in_float64(flat):
            return None
        return Witness(x, y, self.number, int(none.sum()))

    def _in_float64(self, flat: Any) -> bool:
        low = numpy.array([float(v) for v in self.case.lower])
        high = numpy.array([float(v) for v in self.case.upper])
        point = numpy.clip(flat, low, high)
        with torch.no_grad():
            y = self.network(torch.tensor(point).reshape(1, *self.network.shape))[0]
        return bool(torch.isfinite(y).all()) and self.case.true_of(fractions(point), fractions(y))

    def deepened(self, point: Tensor) -> Witness | None:
        """From a point that is one in float64, further into the conditions, until onnxruntime agrees."""
        found = self.confirmed(point)
        low, high, _ = (torch.as_tensor(v) for v in self.floats)
        low, high = low.double(), high.double()
        table, limits = half_spaces(self.case.rows, self.network.outputs)
        x = point.detach().reshape(-1).double().clamp(low, high)
        for k in range(STEPS):
            if found is not None:
                return found
            x = x.requires_grad_()
            worst = (table @ self.network(x.reshape(1, *self.network.shape))[0] - limits).max()
            (slope,) = torch.autograd.grad(worst, x)
            step = (high - low) * 0.5 / (1 + k)
            x = (x.detach() - step * slope.sign()).clamp(low, high)
            found = self.confirmed(x)
        return found

"""`--exact`: the planes, and the sweep of the margin, in ball arithmetic of 128 bits (python-flint)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from certiformer_checker.case import Case
from certiformer_checker.numbers import Array, Span, above, down, require, up

flint.ctx.prec = 128


def each(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of balls, entry by entry."""
    made = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(made(x), dtype=object)


_ball, _exp, _log = each(lambda x: flint.arb(float(x))), each(lambda x: x.exp()), each(lambda x: x.log())
_erf, _root, _low, _high = (
    each(lambda x: x.erf()),
    each(lambda x: x.sqrt()),
    each(lambda x: float(flint.arb(x).lower())),
    each(lambda x: float(flint.arb(x).upper())),
)
_positive, _negative = each(lambda x: flint.arb(x).max(0)), each(lambda x: flint.arb(x).min(0))
_less = np.frompyfunc(lambda x, y: x.min(y), 2, 1)


class Ball(Span):
    """The interface of Span, on arrays of balls."""

    __slots__ = ("x",)

    def __init__(self, lo: Any, hi: Any = None, x: Any = None) -> None:
        if x is None:
            x = _ball(np.asarray(lo, dtype=float))
            if hi is not None:
                x = np.asarray(np.frompyfunc(lambda a, b: a.union(b), 2, 1)(x, _ball(np.asarray(hi, dtype=float))))
        self.x = np.asarray(x, dtype=object)

    @classmethod
    def of(cls, x: Any) -> Ball:
        return x if isinstance(x, Ball) else Ball(x.lo, x.hi) if isinstance(x, Span) else Ball(x)

    @property
    def lo(self) -> Array:  # type: ignore[override]
        return down(_low(self.x).astype(float))

    @property
    def hi(self) -> Array:  # type: ignore[override]
        return up(_high(self.x).astype(float))

    def __add__(self, other: Any) -> Ball:
        return Ball(None, x=self.x + self.of(other).x)

    def __neg__(self) -> Ball:
        return Ball(None, x=-self.x)

    def __mul__(self, other: Any) -> Ball:
        return Ball(None, x=self.x * self.of(other).x)

    def inverse(self) -> Ball:
        require((self.lo > 0) | (self.hi < 0), "a division by what may be zero")
        return Ball(None, x=1 / self.x)

    def sqrt(self) -> Ball:
        return Ball(None, x=_root(self.x))

    def exp(self) -> Ball:
        return Ball(None, x=_exp(self.x))

    def log(self) -> Ball:
        return Ball(None, x=_log(self.x))

    def erf(self) -> Ball:
        return Ball(None, x=_erf(self.x))

    def least(self, other: Any) -> Ball:
        return Ball(None, x=_less(self.x, self.of(other).x))

    def sum(self, axis: int = -1) -> Ball:
        return Ball(None, x=self.x.sum(axis=axis))

    def __getitem__(self, key: Any) -> Ball:
        return Ball(None, x=self.x[key])


@dataclass
class ExactCase(Case):
    """A case whose planes, and whose sweep of the margin, are computed in balls."""

    real: type[Span] = Ball

    @staticmethod
    def signs(a: Array) -> tuple[Array, Array]:
        return (_positive(a), _negative(a)) if a.dtype == object else Case.signs(a)

    @staticmethod
    def floats(a: Array) -> Array:
        return Ball(None, x=a).hi if a.dtype == object else a

    def margin(self, rows: Array, shift: bool, cuts: Array | None) -> Array:
        found = self.sweep(len(self.graph) - 1, _ball(rows), shift)
        a = Ball(None, x=found.a)  # here balls end: the norm is taken of floating-point numbers, enclosed
        near = a.lo / 2 + a.hi / 2
        wrong = above((a.hi - a.lo).reshape(len(rows), -1), self.far[0].reshape(-1))
        return (Span(self.region.least(near, cuts)) + Ball(None, x=found.b - found.error).lo - wrong).lo

"""Arithmetic that encloses: intervals of float64, and sums of products with a bound on what rounding loses.

What is trusted: +, -, *, / and sqrt of numpy are rounded to nearest as IEEE 754 says, and a matrix product is a sum of
products in some order, fused or not. No exp, log, tanh or erf of any library is trusted: they are made of these here.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
MOST, TINY = (
    2.0**200,
    2.0**-700,
)  # larger numbers are refused; more than underflow loses of any sum of products of such numbers


class Wrong(Exception):
    """Why a certificate does not hold, or cannot be read: one line."""


def require(holds: Any, reason: str) -> None:
    """The one way to fail. What is not true everywhere (nothing about NaN is) is a rejection."""
    if holds is not True and not np.all(holds):
        raise Wrong(reason)


def up(x: Any) -> Array:
    """One ulp upwards. (Balls, see exact.py, need none.)"""
    return x if getattr(x, "dtype", None) == np.dtype(object) else np.asarray(np.nextafter(x, np.inf))


def down(x: Any) -> Array:
    return -up(-x)


def gamma(k: int) -> float:
    """At least twice `k u / (1 - k u)`: what `k` roundings in a row may lose, and the error of the error term."""
    return (k + 4) * 2.0**-52


def above(a: Array, b: Array) -> Array:
    """At least `a @ b`, for numbers that are not negative."""
    return up((a @ b) * (1 + gamma(a.shape[-1])) + TINY)


def length(x: Array, axis: int = -1) -> Array:
    """At least the Euclidean length along an axis."""
    scale = np.exp2(np.ceil(np.log2(np.maximum(np.max(np.abs(x), axis=axis, keepdims=True, initial=0.0), TINY))))
    squares = np.sum((x / scale) ** 2, axis=axis) * (1 + gamma(x.shape[axis] + 2))
    return np.asarray(up(up(np.sqrt(squares + TINY)) * np.squeeze(scale, axis)))


class Span:
    """Numbers between two arrays. Every operation moves the ends outwards by an ulp or more."""

    __array_ufunc__ = None  # numpy leaves `array * Span` to this class
    __slots__ = ("hi", "lo")

    def __init__(self, lo: Any, hi: Any = None) -> None:
        self.lo = np.asarray(lo, dtype=float)
        self.hi = self.lo if hi is None else np.asarray(hi, dtype=float)

    @classmethod
    def of(cls, x: Any) -> Span:
        return x if isinstance(x, cls) else cls(x)

    def __add__(self, other: Any) -> Span:
        y = self.of(other)
        return Span(down(self.lo + y.lo), up(self.hi + y.hi))

    def __neg__(self) -> Span:
        return Span(-self.hi, -self.lo)

    def __mul__(self, other: Any) -> Span:
        y = self.of(other)
        ends = [self.lo * y.lo, self.lo * y.hi, self.hi * y.lo, self.hi * y.hi]
        return Span(down(np.minimum.reduce(ends)), up(np.maximum.reduce(ends)))

    def inverse(self) -> Span:
        require((self.lo > 0) | (self.hi < 0), "a division by what may be zero")
        return Span(down(1 / self.hi), up(1 / self.lo))

    def sqrt(self) -> Span:
        require(self.hi >= 0, "the root of a negative number")
        return Span(np.maximum(down(np.sqrt(np.maximum(self.lo, 0.0))), 0.0), up(np.sqrt(self.hi)))

    def sum(self, axis: int = -1) -> Span:
        lost = up(np.sum(self.size(), axis=axis) * gamma(self.lo.shape[axis]))
        return Span(down(np.sum(self.lo, axis=axis) - lost), up(np.sum(self.hi, axis=axis) + lost))

    def __getitem__(self, key: Any) -> Span:
        return Span(self.lo[key], self.hi[key])

    def reshape(self, *shape: int) -> Span:
        return Span(self.lo.reshape(*shape), self.hi.reshape(*shape))

    def size(self) -> Array:
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    def least(self, other: Any) -> Span:
        y = self.of(other)
        return Span(np.minimum(self.lo, y.lo), np.minimum(self.hi, y.hi))

    def most(self, other: Any) -> Span:
        return -((-self).least(-self.of(other)))

    def exp(self) -> Span:
        low = _exp(self.lo)
        return low if self.hi is self.lo else Span(low.lo, _exp(self.hi).hi)

    def log(self) -> Span:
        require(self.lo > 0, "the logarithm of what may be zero")
        low = _log(self.lo)
        return low if self.hi is self.lo else Span(low.lo, _log(self.hi).hi)

    def erf(self) -> Span:
        return Span(_erf(self.lo).lo, _erf(self.hi).hi)

    # what follows is made of the above, for the balls of exact.py too

    def __sub__(self, other: Any) -> Span:
        return self + -self.of(other)

    def __rsub__(self, other: Any) -> Span:
        return -self + other

    def __truediv__(self, other: Any) -> Span:
        return self * self.of(other).inverse()

    def __rtruediv__(self, other: Any) -> Span:
        return self.inverse() * other

    def __radd__(self, other: Any) -> Span:
        return self + other

    def __rmul__(self, other: Any) -> Span:
        return self * other

    def square(self) -> Span:
        return (self * self).most(0.0)

    def sigmoid(self) -> Span:
        return 1.0 / ((-self).exp() + 1.0)

    def tanh(self) -> Span:
        return (1.0 - 2.0 / ((self * 2.0).exp() + 1.0)).most(-1.0).least(1.0)

    def normal(self) -> Span:
        """The normal distribution function."""
        return ((self / self.of(2.0).sqrt()).erf() + 1.0) * 0.5

    def power(self, q: Any) -> Span:
        """For numbers that are not negative, and q > 0; what is below 1e-300 counts as that much, upwards."""
        value = (self.most(1e-300).log() * q).exp()
        return Span(np.where(self.lo > 1e-300, value.lo, 0.0), value.hi)


def dot(a: Array, b: Array) -> Span:
    """`a @ b`, in whatever order it is summed."""
    lost, middle = above(np.abs(a), np.abs(b)) * gamma(a.shape[-1]), a @ b
    return Span(down(middle - lost), up(middle + lost))


LN2 = float.fromhex("0x1.62e42fefa0000p-1")  # its first 36 bits, and the rest
LN2_REST = Span(float.fromhex("0x1.cf79abc9e3b39p-40"), float.fromhex("0x1.cf79abc9e3b3ap-40"))
INVERSES = [Span(1.0) / float(n) for n in range(16, 0, -1)]
PI = Span(float.fromhex("0x1.921fb54442d18p+1"), float.fromhex("0x1.921fb54442d19p+1"))


def _exp(x: Array) -> Span:
    """`2^k exp(r)`, `|r| < 0.36`, by Taylor; the remainder is below 2^-70, and one more ulp covers it."""
    require(~np.isnan(x), "a number that is none")
    x = np.clip(x, -800.0, 800.0)
    k = np.rint(x / LN2)
    r = Span(x) - k * LN2 - k * LN2_REST  # k * LN2 is exact: 11 bits times 36
    series = Span(np.ones_like(x))
    for inverse in INVERSES:
        series = series * r * inverse + 1.0
    with np.errstate(over="ignore", under="ignore"):
        low, high = np.ldexp(series.lo, k.astype(np.int64)), np.ldexp(series.hi, k.astype(np.int64))
    return Span(np.maximum(down(np.minimum(low, np.finfo(float).max)), 0.0), up(high))


def _log(x: Array) -> Span:
    """`y + log(x exp(-y))` for a guess y; `t - t^2 <= log(1 + t) <= t` for |t| < 1/2."""
    y = np.log(x)
    t = x * Span(-y).exp() - 1.0
    require(t.size() < 0.5, "a logarithm outside of its range")
    return Span(y) + Span((t - t * t).lo, t.hi)


def _erf(x: Array) -> Span:
    """`2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (1 3 5 ... (2n+1))`: terms of one sign. Beyond 6: 1."""
    a = np.minimum(np.abs(x), 6.0)
    square = Span(a) * a
    term = series = Span(a)
    for n in range(1, 200):
        term = term * square * Span(2.0 / (2 * n + 1) * (1 - 2.0**-52), 2.0 / (2 * n + 1) * (1 + 2.0**-52))
        series = series + term
        if 4 * float(np.max(a, initial=0.0)) ** 2 < n and (term.hi <= 2.0**-60 * a).all():
            break  # from here every term is less than half of the one before: the rest is less than the last one
    value = (series + Span(0.0, term.hi)) * (-square).exp() * 2.0 / PI.sqrt()
    far = np.abs(x) > 6
    low, high = np.where(far, 1 - 2.0**-52, value.lo), np.minimum(np.where(far, 1.0, value.hi), 1.0)
    return Span(np.where(x < 0, -high, low), np.where(x < 0, -low, high))

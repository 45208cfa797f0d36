"""`--exact`: the planes, and the sweep of the margin, in ball arithmetic of 128 bits (python-flint)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from certiformer_checker.case import Case, gaps
from certiformer_checker.graph import gathered, sums_to_one, transposed
from certiformer_checker.numbers import Array, Span, above, down, require, up
from certiformer_checker.planes import PULL

flint.ctx.prec = 128


def each(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of balls, entry by entry."""
    made = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(made(x), dtype=object)


_ball, _exp, _log = each(lambda x: flint.arb(float(x))), each(lambda x: x.exp()), each(lambda x: x.log())
_erf, _root, _low, _high = (
    each(lambda x: x.erf()),
    each(lambda x: x.sqrt()),
    each(lambda x: float(x.lower())),
    each(lambda x: float(x.upper())),
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

    def margin(self, rows: Array, shift: bool, cuts: Array | None) -> Array:
        last = len(self.graph) - 1
        pending, b = {last: _ball(rows)}, _ball(np.zeros(len(rows)))
        for i in range(last, 0, -1):
            if i not in pending:
                continue
            a, node = pending.pop(i), self.graph[i]
            flat, rule = np.abs(a).reshape(len(a), -1), self.forms.get(i, self.planes.get(i))
            if rule is None:
                size = self.lost.get(i, np.zeros(node.shape)) if node.varies else self.far[i]
                b = b - flat @ size.reshape(-1)
                shapes = [self.graph[j].shape for j in node.inputs]
                parts = list(zip(node.inputs, transposed(node, a, shapes), strict=True)) if node.varies else []
            else:
                if (
                    shift
                    and i not in self.forms
                    and node.op == "softmax_of_differences"
                    and sums_to_one(self.graph, node)
                ):
                    m = self.median(i, _low(a).astype(float))
                    b = b - np.abs(_ball(m)).reshape(len(a), -1) @ self.defect(i).reshape(-1)
                    a = a - _ball(m)
                over, under = _positive(a), _negative(a)
                b = (
                    b
                    + over.reshape(len(a), -1) @ rule.low.reshape(-1)
                    + under.reshape(len(a), -1) @ rule.high.reshape(-1)
                )
                b = b - _ball(gaps(rule, up(_high(np.abs(a)).astype(float)))) if rule.gap is not None else b
                parts = []
                for kind, parent, low, high in zip(rule.kinds, rule.parents, rule.lower, rule.upper, strict=True):
                    part, shape = PULL[kind](over, low) + PULL[kind](under, high), self.graph[parent].shape
                    parts.append((parent, part.reshape(len(a), *shape) if kind == "whole" else gathered(part, shape)))
            for parent, part in parts:
                pending[parent] = pending[parent] + part if parent in pending else part
        ends = Ball(None, x=pending[0][:, 0])  # here balls end: the norm is taken of floating-point numbers, enclosed
        middle = ends.lo / 2 + ends.hi / 2
        wrong = above((ends.hi - ends.lo).reshape(len(rows), -1), self.far[0].reshape(-1))
        return (Span(self.region.least(middle, cuts)) + Ball(None, x=b).lo - wrong).lo

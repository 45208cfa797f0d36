"""Functions of one variable, and the largest of several."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..ops.base import Op
from ..ops.elementwise import Exp, Reciprocal, Relu, Sqrt, Square, Tanh
from ..ops.linear import Add, Scale, Shift
from ..ops.movement import Concat, Slice
from ..ops.product import Multiply
from ..ops.smooth import Elu, Erf, Gelu, GeluTanh, Log, Mish, Rsqrt, Sigmoid, Silu, Softplus
from .arithmetic import negative
from .moves import expand, squeeze, times
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten


@lowers(aten.relu.default, "self", op=Relu())
@lowers(aten.exp.default, "self", op=Exp())
@lowers(aten.reciprocal.default, "self", op=Reciprocal())
@lowers(aten.square.default, "self", op=Square())
@lowers(aten.sqrt.default, "self", op=Sqrt())
@lowers(aten.tanh.default, "self", op=Tanh())
@lowers(aten.silu.default, "self", op=Silu())
@lowers(aten.sigmoid.default, "self", op=Sigmoid())
@lowers(aten.erf.default, "self", op=Erf())
@lowers(aten.elu.default, "self", op=Elu())
@lowers(aten.mish.default, "self", op=Mish())
@lowers(aten.rsqrt.default, "self", op=Rsqrt())
@lowers(aten.log.default, "self", op=Log())
def entrywise(build: Build, x: Operand, *, op: Op) -> Ref:
    """The operation of that name."""
    return build.add(op, x)


@lowers(aten.gelu.default, "self approximate")
def gelu(build: Build, x: Operand, approximate: str) -> Ref:
    """GELU, or its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise Refused(f"a GELU approximated by {approximate!r}")
    return build.add(GeluTanh() if approximate == "tanh" else Gelu(), x)


@lowers(aten.softplus.default, "self beta threshold")
def softplus(build: Build, x: Operand, beta: float, threshold: float) -> Ref:
    """`log(1 + exp(beta x)) / beta`."""
    beta = float(beta)
    if threshold != Softplus.threshold or beta <= 0:
        raise Refused(f"a softplus with beta {beta:g} and threshold {threshold:g}")
    if beta == 1:
        return build.add(Softplus(), x)
    return build.add(Scale(1 / build.constant(beta)), build.add(Softplus(), times(build, beta, x)))


@lowers(aten.clamp.default, "self min max")
@lowers(aten.hardtanh.default, "self min_val max_val")
@lowers(aten.relu6.default, "self", low=0.0, high=6.0)
@lowers(aten.clamp_min.default, "self min")
def clamp(build: Build, x: Operand, low: float | None = None, high: float | None = None) -> Ref:
    """`max(x, a) = a + relu(x - a)`, `min(x, b) = b - relu(b - x)`."""
    x = build.node(x)
    if low is not None and low > -math.inf:
        x = _at_least(build, x, float(low))
    if high is not None and high < math.inf:
        x = negative(build, _at_least(build, negative(build, x), -float(high)))
    return x


@lowers(aten.clamp_max.default, "self max")
def clamp_max(build: Build, x: Operand, high: float) -> Ref:
    """`min(x, b) = b - relu(b - x)`."""
    return clamp(build, x, None, high)


def _at_least(build: Build, x: Ref, low: float) -> Ref:
    """`max(x, low)`."""
    if low == 0:
        return build.add(Relu(), x)
    return build.add(Shift(build.constant(low)), build.add(Relu(), build.add(Shift(build.constant(-low)), x)))


@lowers(aten.abs.default, "self")
def absolute(build: Build, x: Operand) -> Ref:
    """`relu(x) + relu(-x)`."""
    return build.add(Add(), build.add(Relu(), x), build.add(Relu(), negative(build, x)))


@lowers(aten.leaky_relu.default, "self negative_slope")
def leaky_relu(build: Build, x: Operand, slope: float) -> Ref:
    """`slope x + (1 - slope) relu(x)`."""
    rest = build.add(Scale(build.constant(1 - float(slope))), build.add(Relu(), x))
    return build.add(Add(), build.add(Scale(build.constant(float(slope))), x), rest)


@lowers(aten.hardsigmoid.default, "self")
def hardsigmoid(build: Build, x: Operand) -> Ref:
    """`relu6(x + 3) / 6`."""
    gate = clamp(build, build.add(Shift(build.constant(3.0)), x), 0.0, 6.0)
    return build.add(Scale(1 / build.constant(6.0)), gate)


@lowers(aten.hardswish.default, "self")
def hardswish(build: Build, x: Operand) -> Ref:
    """`x hardsigmoid(x)`."""
    return build.add(Multiply(), x, hardsigmoid(build, x))


@lowers(aten.maximum.default, "self other", sign=1.0)
@lowers(aten.minimum.default, "self other", sign=-1.0)
def larger(build: Build, x: Operand, y: Operand, *, sign: float) -> Ref:
    """`max(a, b) = a + relu(b - a)`; the least is minus the largest of `-x`."""
    factor = build.constant(sign)
    a, b = (build.add(Scale(factor), expand(build, v, build.result_shape)) for v in (x, y))
    return build.add(Scale(factor), pair(build, a, b))


@lowers(aten.amax.default, "self dim keepdim", sign=1.0)
@lowers(aten.amin.default, "self dim keepdim", sign=-1.0)
def largest(build: Build, x: Operand, dims: Sequence[int], keepdim: bool, *, sign: float) -> Ref:
    """The largest entry along axes, halves against halves; the least is minus the largest of `-x`."""
    x, rank = times(build, sign, x), len(build.shape(x))
    axes = tuple(sorted(d % rank for d in (dims or range(rank))))
    for axis in axes:
        while (size := build.shape(x)[axis]) > 1:
            half = size // 2
            best = pair(build, build.add(Slice(axis, 0, half), x), build.add(Slice(axis, half, half), x))
            last = [build.add(Slice(axis, size - 1, 1), x)] if size % 2 else []
            x = build.add(Concat(axis), best, *last) if last else best
    return times(build, sign, x if keepdim else squeeze(build, x, axes))


@lowers(aten.max.dim, "self dim keepdim", sign=1.0)
@lowers(aten.min.dim, "self dim keepdim", sign=-1.0)
def largest_of_axis(build: Build, x: Operand, dim: int, keepdim: bool, *, sign: float) -> list[Ref | None]:
    """As `amax` and `amin`; the places of the entries, which jump, are left out."""
    return [largest(build, x, [dim], keepdim, sign=sign), None]


@lowers(aten.max.default, "self", sign=1.0)
@lowers(aten.min.default, "self", sign=-1.0)
def largest_of_all(build: Build, x: Operand, *, sign: float) -> Ref:
    """As `amax` and `amin` over all axes."""
    return largest(build, x, [], False, sign=sign)


def pair(build: Build, a: Ref, b: Ref) -> Ref:
    return build.add(Add(), a, build.add(Relu(), build.add(Add(-1.0), b, a)))

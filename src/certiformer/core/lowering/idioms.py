"""Products that spell one smooth function, which is bounded better in one piece."""

from __future__ import annotations

import math

from torch import Tensor

from ..ops.base import ulp
from ..ops.elementwise import Square, Tanh
from ..ops.linear import Add, Scale, Shift, Sum
from ..ops.normalize import Normalize
from ..ops.smooth import Cube, Erf, Gelu, GeluTanh, Rsqrt, Sigmoid, Silu
from .moves import times
from .table import Build, Ref

FACTORS, FAR = 2, 64.0  # how many numbers may be multiplied into one, and how far each may be from 1


def idiom(build: Build, x: Ref, gate: Ref) -> Ref | None:
    """`c x gate(x)` as one function, or None."""
    c, base = scaled(build, x)
    factor, inner = scaled(build, gate)
    op = build.op(inner)
    if isinstance(op, Rsqrt) and c == factor == 1 and (eps := mean_square(build, inner, x)) is not None:
        return build.add(Normalize(eps), x)
    if isinstance(op, Sigmoid):
        rate, source = scaled(build, build.inputs(inner)[0])
        if source == base and rate > 0:
            return times(build, c * factor / rate, build.add(Silu(), times(build, rate, base)))
    if not (isinstance(op, Shift) and number(op.value) == 1):
        return None
    (wave,) = build.inputs(inner)
    if isinstance(build.op(wave), Erf):
        rate, source = scaled(build, build.inputs(wave)[0])
        if source == base and _close(rate, math.sqrt(0.5), build.like):
            return times(build, 2 * c * factor, build.add(Gelu(), base))
    if isinstance(build.op(wave), Tanh):
        rate, source = scaled(build, build.inputs(wave)[0])
        if _close(rate, GeluTanh.rate, build.like) and bent(build, source, base):
            return times(build, 2 * c * factor, build.add(GeluTanh(), base))
    return None


def mean_square(build: Build, root: Ref, x: Ref) -> float | None:
    """The eps of `rsqrt(mean(x^2) + eps)` over the last axis, or None where a node is something else."""
    (shift,) = build.inputs(root)
    op = build.op(shift)
    if not isinstance(op, Shift) or (eps := number(op.value)) is None or eps < 0:
        return None
    (mean,) = build.inputs(shift)
    op = build.op(mean)
    if not (isinstance(op, Sum) and op.mean and op.axes == (len(build.shape(mean)) - 1,)):
        return None
    (square,) = build.inputs(mean)
    return eps if isinstance(build.op(square), Square) and build.inputs(square) == (x,) else None


def bent(build: Build, x: Ref, base: Ref) -> bool:
    """Whether a node is `x + 0.044715 x^3`."""
    op = build.op(x)
    if not (isinstance(op, Add) and op.sign == 1.0 and build.inputs(x)[0] == base):
        return False
    rate, cube = scaled(build, build.inputs(x)[1])
    if not (isinstance(build.op(cube), Cube) and build.inputs(cube) == (base,)):
        return False
    return _close(rate, GeluTanh.cubic, build.like)


def number(value: Tensor) -> float | None:
    """The value of a constant that is one number."""
    return float(value) if value.numel() == 1 else None


def scaled(build: Build, x: Ref) -> tuple[float, Ref]:
    """A node as a number times an earlier one: one or two ordinary factors, between which float32 loses nothing."""
    factor = 1.0
    for _ in range(FACTORS):
        op = build.op(x)
        c = number(op.value) if isinstance(op, Scale) else None
        if c is None or not 1 / FAR <= abs(c) <= FAR:
            break
        factor, x = factor * c, build.inputs(x)[0]
    return factor, x


def _close(a: float, b: float, like: Tensor) -> bool:
    return abs(a - b) <= 4 * ulp(like) * abs(b)

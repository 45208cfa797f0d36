"""Sums, products, quotients and powers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..ops.base import Op, broadcast
from ..ops.cumsum import CumSum
from ..ops.elementwise import Reciprocal, Sqrt, Square
from ..ops.linear import Add, Linear, Scale, Shift, Sum
from ..ops.product import MatMul, Multiply
from ..ops.smooth import Cube, Rsqrt
from .idioms import idiom
from .moves import expand, squeeze, swap, times
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten
POWERS: dict[float, tuple[Op, ...]] = {
    1.0: (),
    2.0: (Square(),),
    3.0: (Cube(),),
    4.0: (Square(), Square()),
    0.5: (Sqrt(),),
    -0.5: (Rsqrt(),),
    -1.0: (Reciprocal(),),
    -2.0: (Square(), Reciprocal()),
}


@lowers(aten.add.Tensor, "self other alpha")
def add(build: Build, x: Operand, y: Operand, alpha: float) -> Ref:
    """`x + alpha y`."""
    alpha = float(alpha)
    if not isinstance(y, Ref) and math.frexp(abs(alpha))[0] == 0.5:  # a power of two: the product is exact
        return build.add(Shift(build.constant(y) * alpha), x)
    if not isinstance(x, Ref):
        return build.add(Shift(build.constant(x)), times(build, alpha, y))
    return build.add(Add(alpha), x, y)


@lowers(aten.sub.Tensor, "self other alpha")
def subtract(build: Build, x: Operand, y: Operand, alpha: float) -> Ref:
    """`x - alpha y`."""
    return add(build, x, y, -alpha)


@lowers(aten.rsub.Scalar, "self other alpha")
@lowers(aten.rsub.Tensor, "self other alpha")
def subtract_from(build: Build, x: Operand, y: Operand, alpha: float) -> Ref:
    """`y - alpha x`."""
    return add(build, y, x, -alpha)


@lowers(aten.neg.default, "self")
def negative(build: Build, x: Operand) -> Ref:
    """`-x`."""
    return build.add(Scale(build.constant(-1.0)), x)


@lowers(aten.mul.Tensor, "self other")
@lowers(aten.mul.Scalar, "self other")
def multiply(build: Build, x: Operand, y: Operand) -> Ref:
    """`x y`; where the factors spell GELU, SiLU or RMSNorm, that function in one piece."""
    if not isinstance(y, Ref):
        return build.add(Scale(build.constant(y)), x)
    if not isinstance(x, Ref):
        return build.add(Scale(build.constant(x)), y)
    found = idiom(build, x, y) or idiom(build, y, x)
    if found is not None:
        return found
    return build.add(Square(), x) if x == y else build.add(Multiply(), x, y)


@lowers(aten.div.Tensor, "self other")
@lowers(aten.div.Scalar, "self other")
def divide(build: Build, x: Operand, y: Operand) -> Ref:
    """`x / y`, for a constant y or one that is positive."""
    if not isinstance(y, Ref):
        divisor = build.constant(y)
        if not bool((divisor != 0).all()):
            raise Refused("a division by zero")
        return build.add(Scale(1 / divisor), x)
    inverse = build.add(Reciprocal(), y)
    if not isinstance(x, Ref):
        return build.add(Scale(build.constant(x)), inverse)
    return build.add(Multiply(), x, inverse)


@lowers(aten.pow.Tensor_Scalar, "self exponent")
def power(build: Build, x: Operand, exponent: float) -> Ref:
    """Powers of 2, 3, 4, 1, 1/2, -1/2, -1 and -2."""
    if float(exponent) not in POWERS:
        raise Refused(f"a power of {exponent} (there are 1/2, 1, 2, 3, 4 and their inverses)")
    x = build.node(x)
    for op in POWERS[float(exponent)]:
        x = build.add(op, x)
    return x


@lowers(aten.sum.dim_IntList, "self dim keepdim", unread="dtype", mean=False)
@lowers(aten.mean.dim, "self dim keepdim", unread="dtype", mean=True)
def total(build: Build, x: Operand, dims: Sequence[int] | None, keepdim: bool, *, mean: bool) -> Ref:
    """The sum or the mean over axes."""
    rank = len(build.shape(x))
    axes = tuple(sorted(d % rank for d in (dims or range(rank))))
    out = build.add(Sum(axes, mean=mean), x)
    return out if keepdim else squeeze(build, out, axes)


@lowers(aten.cumsum.default, "self dim", unread="dtype")
def cumsum(build: Build, x: Operand, dim: int) -> Ref:
    """Running sums along an axis."""
    last = len(build.shape(x)) - 1
    axis = dim % (last + 1)
    if axis == last:
        return build.add(CumSum(), x)
    return swap(build, build.add(CumSum(), swap(build, x, axis, last)), axis, last)


@lowers(aten.linear.default, "input weight bias")
def linear(build: Build, x: Operand, weight: Operand, bias: Operand | None) -> Ref:
    """`x W^T + b`."""
    return build.add(Linear(build.constant(weight), None if bias is None else build.constant(bias)), x)


@lowers(aten.matmul.default, "self other")
@lowers(aten.bmm.default, "self mat2")
@lowers(aten.mm.default, "self mat2")
def matmul(build: Build, x: Operand, y: Operand) -> Ref:
    """`x @ y`, where either may be a constant, and leading axes may broadcast."""
    if isinstance(x, Ref) and not isinstance(y, Ref):
        weight = build.constant(y)
        if weight.dim() == 2:
            return build.add(Linear(weight.T.contiguous()), x)
    a, b = build.shape(x), build.shape(y)
    if len(a) < 2 or len(b) < 2:
        raise Refused("a matrix product with a vector")
    lead = broadcast(a[:-2], b[:-2])
    return build.add(MatMul(), expand(build, x, lead + a[-2:]), expand(build, y, lead + b[-2:]))


@lowers(aten.addmm.default, "self mat1 mat2 beta alpha")
@lowers(aten.baddbmm.default, "self batch1 batch2 beta alpha")
def add_product(build: Build, bias: Operand, x: Operand, y: Operand, beta: float, alpha: float) -> Ref:
    """`beta b + alpha x @ y`."""
    out = times(build, alpha, matmul(build, x, y))
    return out if beta == 0 else add(build, out, bias, beta)

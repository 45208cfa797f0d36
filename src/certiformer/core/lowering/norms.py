"""LayerNorm, RMSNorm, BatchNorm at inference, and lengths of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ops.elementwise import Sqrt, Square
from ..ops.linear import Center, Scale, Shift
from ..ops.normalize import Normalize
from .arithmetic import total
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten


def _normalized(build: Build, x: Operand, dims: Sequence[int], eps: float, name: str) -> Ref:
    """`x / sqrt(mean(x^2) + eps)` over the last axis."""
    if len(dims) != 1:
        raise Refused(f"{name} over {len(dims)} axes (there is one over the last)")
    if not eps >= 0:
        raise Refused(f"{name} with eps={eps!r}: the root of a number that may be negative; expected 0 or more")
    return build.add(Normalize(float(eps)), x)


@lowers(aten.layer_norm.default, "input normalized_shape weight bias eps", unread="cudnn_enable")
def layer_norm(
    build: Build, x: Operand, dims: Sequence[int], weight: Operand | None, bias: Operand | None, eps: float
) -> Ref:
    """`w (x - mean) / sqrt(var + eps) + b`."""
    y = _normalized(build, build.add(Center(), x), dims, eps, "a LayerNorm")
    if weight is not None:
        y = build.add(Scale(build.constant(weight)), y)
    return y if bias is None else build.add(Shift(build.constant(bias)), y)


@lowers(aten.native_layer_norm.default, "input normalized_shape weight bias eps")
def native_layer_norm(
    build: Build, x: Operand, dims: Sequence[int], weight: Operand | None, bias: Operand | None, eps: float
) -> list[Ref | None]:
    """LayerNorm with its statistics, which nothing at inference reads."""
    return [layer_norm(build, x, dims, weight, bias, eps), None, None]


@lowers(aten.rms_norm.default, "input normalized_shape weight eps")
def rms_norm(build: Build, x: Operand, dims: Sequence[int], weight: Operand | None, eps: float | None) -> Ref:
    """`w x / sqrt(mean(x^2) + eps)`."""
    least = float(torch.finfo(build.like.dtype).eps)
    y = _normalized(build, x, dims, least if eps is None else eps, "an RMSNorm")
    return y if weight is None else build.add(Scale(build.constant(weight)), y)


@lowers(
    aten.batch_norm.default, "input weight bias running_mean running_var training eps", unread="momentum cudnn_enabled"
)
def batch_norm(
    build: Build,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand | None,
    variance: Operand | None,
    training: bool,
    eps: float,
) -> Ref:
    """`w (x - mean) / sqrt(var + eps) + b` along axis 1, with the mean and the variance of training as constants."""
    if training or mean is None or variance is None:
        raise Refused("a BatchNorm with the statistics of its input")
    spread = build.constant(variance) + eps
    if not bool((spread > 0).all()):
        raise Refused(f"a BatchNorm with eps={eps!r} that divides by the root of zero or less")
    along = (-1, *(1,) * (len(build.shape(x)) - 2))  # axis 1 of x
    factor = 1 / spread.sqrt() if weight is None else build.constant(weight) / spread.sqrt()
    y = build.add(Shift(-build.constant(mean).reshape(along)), x)
    y = build.add(Scale(factor.reshape(along)), y)
    return y if bias is None else build.add(Shift(build.constant(bias).reshape(along)), y)


@lowers(
    aten._native_batch_norm_legit_no_training.default,
    "input weight bias running_mean running_var eps",
    unread="momentum",
)
def native_batch_norm(
    build: Build,
    x: Operand,
    weight: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    eps: float,
) -> list[Ref | None]:
    """BatchNorm at inference, as above."""
    return [batch_norm(build, x, weight, bias, mean, variance, False, eps), None, None]


@lowers(aten.linalg_vector_norm.default, "self ord dim keepdim", unread="dtype")
def vector_norm(build: Build, x: Operand, order: float, dims: Sequence[int] | None, keepdim: bool) -> Ref:
    """The Euclidean length, `sqrt(sum(x^2))`; it must not be zero."""
    if order != 2:
        raise Refused(f"a norm of order {order} (there is the Euclidean one)")
    return build.add(Sqrt(), total(build, build.add(Square(), x), dims, keepdim, mean=False))

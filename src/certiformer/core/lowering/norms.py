"""LayerNorm, RMSNorm, and BatchNorm at inference."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ops.linear import Center, Scale, Shift
from ..ops.normalize import Normalize
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

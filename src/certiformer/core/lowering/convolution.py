"""Convolutions: patches cut out and mapped linearly, as the first layer of a vision Transformer does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..ops.linear import Linear, Shift
from ..ops.movement import Permute, Reshape
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten
MOST = 1 << 22  # entries of the matrix of a convolution whose patches overlap
Numbers = Sequence[int]


@lowers(aten.conv1d.default, "input weight bias stride padding dilation groups", call=aten.conv1d.default)
@lowers(aten.conv2d.default, "input weight bias stride padding dilation groups", call=aten.conv2d.default)
@lowers(
    aten.convolution.default,
    "input weight bias stride padding dilation transposed output_padding groups",
    call=aten.convolution.default,
)
def convolution(
    build: Build,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    *rest: Any,
    call: Any,
) -> Ref:
    """`conv2d` of `[1, channels, height, width]` (and `conv1d`); patches that do not overlap cost a reshape."""
    if isinstance(weight, Ref) or not isinstance(x, Ref):
        raise Refused("a convolution whose filters depend on the embeddings")
    filters, shape = build.constant(weight), build.shape(x)
    rank = filters.dim() - 2
    kernel = tuple(filters.shape[2:])
    if len(shape) != rank + 2 or shape[0] != 1:
        raise Refused(f"a convolution of a tensor of shape {list(shape)}: expected [1, channels, ...]")
    *transposed, groups = rest
    apart = (
        _numbers(stride, rank) == kernel
        and _numbers(padding, rank) == (0,) * rank
        and _numbers(dilation, rank) == (1,) * rank
        and groups == 1
        and not any(transposed[:1])
        and all(s % k == 0 for s, k in zip(shape[2:], kernel, strict=True))
    )
    if apart:
        return patches(build, x, filters, None if bias is None else build.constant(bias))
    out = matrix(build, x, lambda eye: call(eye, filters, None, stride, padding, dilation, *rest))
    return out if bias is None else build.add(Shift(build.constant(bias).reshape(-1, *(1,) * rank)), out)


def _numbers(value: Numbers, rank: int) -> tuple[int, ...]:
    """One number for every axis."""
    return tuple(value) * (rank if len(value) == 1 else 1)


def patches(build: Build, x: Ref, weight: Tensor, bias: Tensor | None) -> Ref:
    """[1, c, h k, w k] -> [1, h w, c k k] -> [1, h w, out] -> [1, out, h w] -> [1, out, h, w]"""
    shape, kernel, rank = build.shape(x), tuple(weight.shape[2:]), weight.dim() - 2
    grid = tuple(s // k for s, k in zip(shape[2:], kernel, strict=True))
    split = tuple(n for pair in zip(grid, kernel, strict=True) for n in pair)
    x = build.add(Reshape(shape[:2] + split), x)
    x = build.add(Permute((0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))), x)
    x = build.add(Reshape((shape[0], math.prod(grid), math.prod(weight.shape[1:]))), x)
    x = build.add(Linear(weight.reshape(weight.shape[0], -1).contiguous()), x)
    x = x if bias is None else build.add(Shift(bias), x)
    return build.add(Reshape((shape[0], weight.shape[0], *grid)), build.add(Permute((0, 2, 1)), x))


def matrix(build: Build, x: Ref, apply: Any) -> Ref:
    """Any other linear map of a tensor, as the matrix it is."""
    shape, target = build.shape(x), build.result_shape
    entries = math.prod(shape) * math.prod(target)
    if entries > MOST:
        raise Refused(f"a convolution with overlapping patches of {entries:,} weights written out")
    eye = torch.eye(math.prod(shape), dtype=build.like.dtype, device=build.like.device)
    columns = apply(eye.reshape(-1, *shape[1:]))
    flat = build.add(Reshape((1, math.prod(shape))), x)
    out = build.add(Linear(columns.reshape(eye.shape[0], -1).T.contiguous()), flat)
    return build.add(Reshape(target), out)

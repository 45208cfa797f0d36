"""Convolutions: patches cut out and mapped linearly, as the first layer of a vision Transformer does."""

from __future__ import annotations

import math
from typing import Any

import torch

from .composite import Rewrite, argument, rewrite
from .linear import Linear, Shift
from .movement import Permute, Reshape

MOST = 1 << 22  # entries of the matrix of a convolution whose patches overlap


@rewrite
class Convolution(Rewrite):
    """`conv2d` of `[1, channels, height, width]` (and `conv1d`); patches that do not overlap cost a reshape."""

    targets = ("aten.conv2d.default", "aten.conv1d.default", "aten.convolution.default")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, weight = args[0], args[1]
        if not build.is_node(x) or build.is_node(weight):
            return build.unsupported("a convolution whose filters depend on the embeddings")
        bias = argument(args, kwargs, 2, "bias", None)
        weight = build.constant(weight)
        shape, kernel = build.shape(x), tuple(weight.shape[2:])
        out = cls.patches(build, x, weight) if cls.apart(args, kwargs, shape, kernel) else None
        if out is None:
            out = cls.matrix(build, x, args, kwargs)
        if bias is None or not build.is_node(out):
            return out
        return build.add(Shift(build.constant(bias).reshape(-1, *(1,) * len(kernel))), out)

    @staticmethod
    def apart(args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
        """Whether the patches tile the image: stride = kernel, no padding, no dilation, one group."""
        rank = len(kernel)

        def numbers(index: int, name: str, default: int) -> tuple[int, ...]:
            value = argument(args, kwargs, index, name, default)
            return (value,) * rank if isinstance(value, int) else tuple(value) * (rank if len(value) == 1 else 1)

        if isinstance(argument(args, kwargs, 4, "padding", 0), str) or len(args) > 6:
            return False
        return (
            numbers(3, "stride", 1) == kernel
            and numbers(4, "padding", 0) == (0,) * rank
            and numbers(5, "dilation", 1) == (1,) * rank
            and kwargs.get("groups", 1) == 1
            and all(s % k == 0 for s, k in zip(shape[2:], kernel, strict=True))
        )

    @staticmethod
    def patches(build: Any, x: Any, weight: Any) -> Any:
        """[1, c, h k, w k] -> [1, h, w, c k k] -> [1, h, w, out] -> [1, out, h, w]"""
        shape, kernel, rank = build.shape(x), tuple(weight.shape[2:]), weight.dim() - 2
        grid = tuple(s // k for s, k in zip(shape[2:], kernel, strict=True))
        split = tuple(n for pair in zip(grid, kernel, strict=True) for n in pair)
        x = build.add(Reshape(shape[:2] + split), x)
        x = build.add(Permute((0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))), x)
        x = build.add(Reshape((shape[0], *grid, math.prod(weight.shape[1:]))), x)
        x = build.add(Linear(weight.reshape(weight.shape[0], -1).contiguous()), x)
        return build.add(Permute((0, rank + 1, *range(1, rank + 1))), x)

    @staticmethod
    def matrix(build: Any, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any other convolution, as the matrix it is."""
        shape, target = build.shape(x), build.result_shape
        entries = math.prod(shape) * math.prod(target)
        if shape[0] != 1 or entries > MOST:
            return build.unsupported(f"a convolution with overlapping patches of {entries:,} weights written out")
        call: Any = torch.ops.aten
        for part in build.target.split(".")[1:]:
            call = getattr(call, part)
        eye = torch.eye(math.prod(shape), dtype=build.example.dtype, device=build.example.device)
        rest = {k: v for k, v in kwargs.items() if k != "bias"}
        columns = call(eye.reshape(-1, *shape[1:]), build.constant(args[1]), None, *args[3:], **rest)
        flat = build.add(Reshape((1, math.prod(shape))), x)
        out = build.add(Linear(columns.reshape(eye.shape[0], -1).T.contiguous()), flat)
        return build.add(Reshape(target), out)

"""Other spellings of ops that exist, and calls that do nothing to numbers."""

from __future__ import annotations

from typing import Any

import torch

from .composite import Rewrite, argument, rewrite
from .linear import Scale
from .normalize import Normalize


@rewrite
class Same(Rewrite):
    """Casts and checks: the input itself."""

    targets = (
        "aten._assert_tensor_metadata.default",
        "aten.to.dtype",
        "aten.to.device",
        "aten.to.dtype_layout",
        "aten.type_as.default",
    )

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]


@rewrite
class Like(Rewrite):
    """A constant that takes no more than its shape from the input."""

    targets = (
        "aten.full_like.default",
        "aten.zeros_like.default",
        "aten.ones_like.default",
        "aten.new_zeros.default",
        "aten.new_ones.default",
        "aten.new_full.default",
    )

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = args[-1] if "full" in build.target else 1.0 if "ones" in build.target else 0.0
        kind = kwargs.get("dtype") or build.example.dtype
        return torch.full(build.result_shape, value, dtype=kind, device=build.example.device)


@rewrite
class NativeLayerNorm(Rewrite):
    """LayerNorm with its statistics, which nothing at inference reads."""

    targets = ("aten.native_layer_norm.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return [build.call("aten.layer_norm.default", *args), None, None]


@rewrite
class RmsNorm(Rewrite):
    """`w x / sqrt(mean(x^2) + eps)`."""

    targets = ("aten.rms_norm.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, dims = args[:2]
        weight, eps = argument(args, kwargs, 2, "weight", None), argument(args, kwargs, 3, "eps", None)
        if len(dims) != 1:
            return build.unsupported(f"an RMSNorm over {len(dims)} axes (there is one over the last)")
        y = build.add(Normalize(float(torch.finfo(build.example.dtype).eps if eps is None else eps)), x)
        return y if weight is None else build.add(Scale(build.constant(weight)), y)


@rewrite
class Baddbmm(Rewrite):
    """`beta b + alpha x @ y`."""

    targets = ("aten.baddbmm.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bias, x, y = args
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        out = build.call("aten.bmm.default", x, y)
        if alpha != 1:
            out = build.add(Scale(build.constant(alpha)), out)
        if beta == 0:
            return out
        if beta != 1:
            bias = build.call("aten.mul.Tensor", build.node(bias), beta) if build.is_node(bias) else bias * beta
        return build.call("aten.add.Tensor", out, bias)

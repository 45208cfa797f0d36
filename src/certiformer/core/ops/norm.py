"""LayerNorm and other operators that are only ever a few other ops."""

from __future__ import annotations

from typing import Any

from .base import Op
from .linear import Center, Scale, Shift
from .normalize import Normalize


class Composite:
    """An ATen operator that is only ever a few other ops; it has no row in the registry of its own."""

    targets: tuple[str, ...] = ()

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise TypeError("a composite says how it is lowered")


class LayerNorm(Composite):
    """`w (x - mean) / sqrt(var + eps) + b`."""

    targets = ("aten.layer_norm.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, dims, *rest = args
        weight, bias, eps = (list(rest) + [None, None, 1e-5][len(rest) :])[:3]
        if len(dims) != 1:
            return build.unsupported(f"a LayerNorm over {len(dims)} axes")
        y = build.add(Normalize(float(eps)), build.add(Center(), x))
        if weight is not None:
            y = build.add(Scale(build.constant(weight)), y)
        return y if bias is None else build.add(Shift(build.constant(bias)), y)


class Dropout(Composite):
    """Nothing, at inference."""

    targets = (
        "aten.dropout.default",
        "aten.clone.default",
        "aten.contiguous.default",
        "aten.alias.default",
        "aten.detach.default",
        "aten._to_copy.default",
        "aten.lift_fresh_copy.default",
    )

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]


COMPOSITES: tuple[type[Composite], ...] = (LayerNorm, Dropout)
__all__ = ["COMPOSITES", "Composite", "LayerNorm", "Op"]

"""Piecewise linear functions by ReLU, powers, and idioms that stand for one smooth function."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from .base import Op, ulp
from .composite import Rewrite, argument, rewrite
from .elementwise import Reciprocal, Relu, Sqrt, Square, Tanh
from .linear import Add, Scale, Shift, Sum
from .movement import Slice
from .normalize import Normalize
from .product import Multiply
from .smooth import Cube, Erf, Gelu, GeluTanh, Rsqrt, Sigmoid, Silu


@rewrite
class Clamp(Rewrite):
    """`clamp`, `hardtanh`, leaky ReLU and `|x|`: `max(x, a) = a + relu(x - a)`, `min(x, b) = b - relu(b - x)`."""

    targets = (
        "aten.clamp.default",
        "aten.clamp_min.default",
        "aten.clamp_max.default",
        "aten.hardtanh.default",
        "aten.relu6.default",
        "aten.leaky_relu.default",
        "aten.abs.default",
    )

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, name = args[0], build.target
        if "abs" in name:
            flipped = build.add(Scale(build.constant(-1.0)), x)
            return build.add(Add(), build.add(Relu(), x), build.add(Relu(), flipped))
        if "leaky" in name:
            slope = float(argument(args, kwargs, 1, "negative_slope", 0.01))
            rest = build.add(Scale(build.constant(1 - slope)), build.add(Relu(), x))
            return build.add(Add(), build.add(Scale(build.constant(slope)), x), rest)
        low, high = argument(args, kwargs, 1, "min", None), argument(args, kwargs, 2, "max", None)
        if "clamp_max" in name:
            low, high = None, argument(args, kwargs, 1, "max", None)
        if "relu6" in name:
            low, high = 0.0, 6.0
        if "hardtanh" in name:
            low = argument(args, kwargs, 1, "min_val", -1.0)
            high = argument(args, kwargs, 2, "max_val", 1.0)
        if any(isinstance(bound, Tensor) or build.is_node(bound) for bound in (low, high)):
            return build.unsupported("a clamp between tensors")
        if low is not None and low > -math.inf:
            x = maximum(build, x, float(low))
        if high is not None and high < math.inf:
            x = build.add(Scale(build.constant(-1.0)), x)
            x = build.add(Scale(build.constant(-1.0)), maximum(build, x, -float(high)))
        return x


@rewrite
class Hard(Rewrite):
    """`hardsigmoid(x) = relu6(x + 3) / 6` and `hardswish(x) = x hardsigmoid(x)`."""

    targets = ("aten.hardsigmoid.default", "aten.hardswish.default")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, whole = args[0], "hardswish" in build.target
        gate = build.call("aten.relu6.default", build.add(Shift(build.constant(3.0)), x))
        gate = build.add(Scale(1 / build.constant(6.0)), gate)
        return build.add(Multiply(), x, gate) if whole else gate


def maximum(build: Any, x: Any, low: float) -> Any:
    """`max(x, low)`."""
    if low == 0:
        return build.add(Relu(), x)
    return build.add(Shift(build.constant(low)), build.add(Relu(), build.add(Shift(build.constant(-low)), x)))


@rewrite
class Largest(Rewrite):
    """The largest entry along axes: `max(a, b) = a + relu(b - a)`, halves against halves."""

    targets = ("aten.amax.default", "aten.max.dim", "aten.maximum.default", "aten.minimum.default")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if "amax" not in build.target and "max.dim" not in build.target:
            sign = build.constant(-1.0 if "minimum" in build.target else 1.0)
            a, b = (build.add(Scale(sign), build.expand(build.node(x), build.result_shape)) for x in args[:2])
            return build.add(Scale(sign), cls.pair(build, a, b))
        x, rank = args[0], len(build.shape(args[0]))
        dims = argument(args, kwargs, 1, "dim", list(range(rank)))
        axes = sorted(d % rank for d in ([dims] if isinstance(dims, int) else dims))
        for axis in axes:
            while (size := build.shape(x)[axis]) > 1:
                half = size // 2
                a, b = build.add(Slice(axis, 0, half), x), build.add(Slice(axis, half, half), x)
                best = cls.pair(build, a, b)
                if size % 2:
                    best = build.call("aten.cat.default", [best, build.add(Slice(axis, size - 1, 1), x)], axis)
                x = best
        out = x if argument(args, kwargs, 2, "keepdim", False) else build.squeeze(x, tuple(axes))
        return [out, None] if isinstance(dims, int) else out

    @staticmethod
    def pair(build: Any, a: Any, b: Any) -> Any:
        return build.add(Add(), a, build.add(Relu(), build.add(Add(-1.0), b, a)))


@rewrite
class Power(Rewrite):
    """Powers of 2, 3, 4, 1, 1/2, -1/2 and -1."""

    targets = ("aten.pow.Tensor_Scalar",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, y = args[:2]
        chains: dict[float, tuple[Op, ...]] = {
            1.0: (),
            2.0: (Square(),),
            3.0: (Cube(),),
            4.0: (Square(), Square()),
            0.5: (Sqrt(),),
            -0.5: (Rsqrt(),),
            -1.0: (Reciprocal(),),
            -2.0: (Square(), Reciprocal()),
        }
        if float(y) not in chains:
            return build.unsupported(f"a power of {y} (there are 1/2, 1, 2, 3, 4 and their inverses)")
        for op in chains[float(y)]:
            x = build.add(op, x)
        return x


@rewrite
class Product(Rewrite):
    """`x y`; where the factors spell GELU, SiLU or RMSNorm, that function in one piece."""

    targets = ("aten.mul.Tensor",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, y = args[:2]
        if build.is_node(x) and build.is_node(y):
            found = cls.idiom(build, x, y) or cls.idiom(build, y, x)
            if found is not None:
                return found
        return Multiply.lower(build, args, kwargs)

    @classmethod
    def idiom(cls, build: Any, x: Any, gate: Any) -> Any:
        """`c x gate(x)` as one function, or None."""
        c, base = scaled(build, x)
        factor, inner = scaled(build, gate)
        node = build.nodes[inner.index]
        if isinstance(node.op, Rsqrt) and c == factor == 1 and (eps := cls.mean_square(build, node, x)) is not None:
            return build.add(Normalize(eps), x)
        if isinstance(node.op, Sigmoid):
            rate, source = scaled(build, build.at(node.inputs[0]))
            if source == base and rate > 0:
                return _times(build, c * factor / rate, build.add(Silu(), _times(build, rate, base)))
        if not (isinstance(node.op, Shift) and number(node.op.value) == 1):
            return None
        wave = build.nodes[node.inputs[0]]
        if isinstance(wave.op, Erf):
            rate, source = scaled(build, build.at(wave.inputs[0]))
            if source == base and _close(rate, math.sqrt(0.5), build.example):
                return _times(build, 2 * c * factor, build.add(Gelu(), base))
        if isinstance(wave.op, Tanh):
            rate, source = scaled(build, build.at(wave.inputs[0]))
            if _close(rate, GeluTanh.rate, build.example) and cls.bent(build, source, base):
                return _times(build, 2 * c * factor, build.add(GeluTanh(), base))
        return None

    @staticmethod
    def mean_square(build: Any, node: Any, x: Any) -> float | None:
        """The eps of `rsqrt(mean(x^2) + eps)` over the last axis, or None where a node is something else."""
        shift = build.nodes[node.inputs[0]]
        if not isinstance(shift.op, Shift) or (eps := number(shift.op.value)) is None:
            return None
        mean = build.nodes[shift.inputs[0]]
        if not (isinstance(mean.op, Sum) and mean.op.mean and mean.op.axes == (len(mean.shape) - 1,)):
            return None
        square = build.nodes[mean.inputs[0]]
        return eps if isinstance(square.op, Square) and square.inputs == (x.index,) else None

    @staticmethod
    def bent(build: Any, ref: Any, base: Any) -> bool:
        """Whether a node is `x + 0.044715 x^3`."""
        node = build.nodes[ref.index]
        if not (isinstance(node.op, Add) and node.op.sign == 1.0 and node.inputs[0] == base.index):
            return False
        rate, source = scaled(build, build.at(node.inputs[1]))
        cube = build.nodes[source.index]
        return (
            isinstance(cube.op, Cube) and cube.inputs == (base.index,) and _close(rate, GeluTanh.cubic, build.example)
        )


def number(value: Tensor) -> float | None:
    """The value of a constant that is one number."""
    return float(value) if value.numel() == 1 else None


def scaled(build: Any, ref: Any) -> tuple[float, Any]:
    """A node as a number times an earlier one."""
    factor = 1.0
    while isinstance(op := build.nodes[ref.index].op, Scale) and (c := number(op.value)) is not None:
        factor, ref = factor * c, build.at(build.nodes[ref.index].inputs[0])
    return factor, ref


def _times(build: Any, factor: float, ref: Any) -> Any:
    return ref if factor == 1 else build.add(Scale(build.constant(factor)), ref)


def _close(a: float, b: float, like: Tensor) -> bool:
    return abs(a - b) <= 4 * ulp(like) * abs(b)

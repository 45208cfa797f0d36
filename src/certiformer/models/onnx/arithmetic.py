"""Operators that compute: sums, products, functions entry by entry, normalisation, convolutions."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .table import TABLE, Call, Operator, Refused, axis_of, is_float, operator, scalar, whole

PLAIN: dict[str, Any] = {
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Softplus": F.softplus,
    "Mish": F.mish,
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "MatMul": torch.matmul,
}
CONSTANT: dict[str, Any] = {
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Sign": torch.sign,
    "Not": torch.logical_not,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
}


def _without_call(function: Any, call: Call, *inputs: Any) -> Any:
    return function(*inputs)


TABLE.update({name: Operator(partial(_without_call, f), (), False) for name, f in PLAIN.items()})
TABLE.update({name: Operator(partial(_without_call, f), (), True) for name, f in CONSTANT.items()})


@operator("Div")
def div(call: Call, x: Tensor, y: Tensor) -> Tensor:
    if is_float(x) or is_float(y):
        return x / y
    if bool((y == 0).any()):
        raise Refused("a whole number divided by zero")
    return torch.div(x, y, rounding_mode="trunc")


@operator("Pow", static=(1,))
def power(call: Call, x: Tensor, exponent: Any) -> Tensor:
    value = scalar(exponent)
    assert value is not None
    return torch.pow(x, int(value) if value == int(value) else value)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.T if call.get("transA", 0) else a
    b = b.T if call.get("transB", 0) else b
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    product = a @ b if alpha == 1 else alpha * (a @ b)
    return product if c is None else product + (c if beta == 1 else beta * c)


@operator("Sum", "Mean", "Min", "Max")
def variadic(call: Call, *inputs: Tensor) -> Tensor:
    together = {"Min": torch.minimum, "Max": torch.maximum}.get(call.name, torch.add)
    found: Tensor = reduce(together, inputs)
    return found / len(inputs) if call.name == "Mean" else found


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, call.get("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    return torch.relu(x) - slope * torch.relu(-x)


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F.elu(x, call.get("alpha", 1.0))


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return torch.clamp(call.get("alpha", 0.2) * x + call.get("beta", 0.5), 0, 1)


@operator("HardSwish")
def hard_swish(call: Call, x: Tensor) -> Tensor:
    return F.hardswish(x)


@operator("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call.get("approximate", "none"))


@operator("Clip", static=(1, 2))
def clip(call: Call, x: Tensor, least: Any = None, most: Any = None) -> Tensor:
    low, high = scalar(least, call.get("min")), scalar(most, call.get("max"))
    if low is not None and high is not None and low > high:
        raise Refused(f"a Clip from {low} to {high}")
    x = x if low is None or low <= -torch.finfo(torch.float32).max else torch.clamp_min(x, low)
    return x if high is None or high >= torch.finfo(torch.float32).max else torch.clamp_max(x, high)


@operator("Softmax", "LogSoftmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    """From version 13 on along one axis; before, over all axes from that one on together."""
    function = F.softmax if call.name == "Softmax" else F.log_softmax
    axis = axis_of(call.get("axis", -1 if call.opset >= 13 else 1), x.dim())
    if call.opset >= 13 or axis == x.dim() - 1:
        return function(x, dim=axis)
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


@operator("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", static=(1,))
def reduction(call: Call, x: Tensor, axes: Any = None) -> Tensor:
    """Along axes that are an attribute or, in later versions, an input."""
    chosen = call.get("axes") if axes is None else whole(axes)
    if not chosen and call.get("noop_with_empty_axes", 0):
        return x
    dims = [axis_of(a, x.dim()) for a in chosen] if chosen else list(range(x.dim()))
    keep = bool(call.get("keepdims", 1))
    if call.name == "ReduceProd":
        if is_float(x):
            raise Refused("a product over an axis")
        for dim in sorted(dims, reverse=True):
            x = x.prod(dim=dim, keepdim=keep)
        return x
    functions: dict[str, Any] = {
        "ReduceMean": torch.mean,
        "ReduceSum": torch.sum,
        "ReduceMax": torch.amax,
        "ReduceMin": torch.amin,
        "ReduceL2": torch.linalg.vector_norm,
    }
    found: Tensor = functions[call.name](x, dim=dims, keepdim=keep)
    return found


@operator("LayerNormalization")
def layer_norm(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if call.outputs != 1:
        raise Refused("the statistics of a LayerNormalization as outputs")
    axis = axis_of(call.get("axis", -1), x.dim())
    shape = list(x.shape[axis:])
    return F.layer_norm(
        x, shape, weight.expand(shape), None if bias is None else bias.expand(shape), call.get("epsilon", 1e-5)
    )


@operator("RMSNormalization")
def rms_norm(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    shape = list(x.shape[axis_of(call.get("axis", -1), x.dim()) :])
    return F.rms_norm(x, shape, weight.expand(shape), call.get("epsilon", 1e-5))


@operator("BatchNormalization")
def batch_norm(call: Call, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    call.refuse_unless("training_mode", 0)
    call.refuse_unless("spatial", 1)
    if call.outputs != 1:
        raise Refused("the statistics of a BatchNormalization as outputs")
    return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=call.get("epsilon", 1e-5))


@operator("Conv")
def convolution(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = weight.dim() - 2
    functions: dict[int, Any] = {1: F.conv1d, 2: F.conv2d}
    if rank not in functions:
        raise Refused(f"a convolution over {rank} axes")
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    before, after = _pads(call, x, list(weight.shape[2:]), strides, dilations)
    if before != after:
        x, before = F.pad(x, _around(before, after)), [0] * rank
    found: Tensor = functions[rank](x, weight, bias, strides, before, dilations, call.get("group", 1))
    return found


def _around(before: list[int], after: list[int]) -> list[int]:
    """Pads as PyTorch counts them: the last axis first."""
    return [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]


def _pads(
    call: Call, x: Tensor, kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Zeros before and after each axis."""
    kind, rank = call.get("auto_pad", "NOTSET"), len(kernel)
    if kind in ("NOTSET", ""):
        pads = call.get("pads", [0] * 2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    if kind == "VALID":
        return [0] * rank, [0] * rank
    wanted = [
        max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    small, large = [n // 2 for n in wanted], [n - n // 2 for n in wanted]
    return (small, large) if kind == "SAME_UPPER" else (large, small)


@operator("AveragePool", "MaxPool")
def pooling(call: Call, x: Tensor) -> Tensor:
    """Windows as strided slices, one for each place in the window."""
    kernel: list[int] = call.get("kernel_shape")
    rank = len(kernel)
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    before, after = _pads(call, x, kernel, strides, dilations)
    if any(before) or any(after) or call.get("ceil_mode", 0) or call.outputs != 1:
        raise Refused("pooling with pads, ceil_mode or the places of the entries")
    parts = [x]
    for a in range(rank):
        size, step, gap, count = x.shape[2 + a], strides[a], dilations[a], kernel[a]
        last = size - (count - 1) * gap  # first entries of windows come before this one
        if last <= 0:
            raise Refused(f"windows of {count} on an axis of {size}")
        cuts = [(slice(None),) * (2 + a) + (slice(k * gap, k * gap + last, step),) for k in range(count)]
        parts = [part[cut] for part in parts for cut in cuts]
    together = torch.maximum if call.name == "MaxPool" else torch.add
    found: Tensor = reduce(together, parts)
    return found / len(parts) if call.name == "AveragePool" else found


@operator("GlobalAveragePool")
def global_average(call: Call, x: Tensor) -> Tensor:
    return x.mean(dim=list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max(call: Call, x: Tensor) -> Tensor:
    return x.amax(dim=list(range(2, x.dim())), keepdim=True)


@operator("Einsum")
def einsum(call: Call, *inputs: Tensor) -> Tensor:
    equation = call.get("equation")
    return torch.einsum(equation.decode() if isinstance(equation, bytes) else equation, *inputs)

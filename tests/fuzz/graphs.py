"""Every node of a captured graph at one point, with many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from certiformer.core.graph.graph import Graph
from certiformer.core.ops.base import REGISTRY

from .functions import ENTRYWISE, Array, exact, logsumexp, normalize, of_differences, softmax, total


def _linear(op: Any, x: Array) -> Array:
    y = x @ exact(op.weight).T
    return y if op.bias is None else y + exact(op.bias)


def _gather(op: Any, x: Array) -> Array:
    shape = list(x.shape)
    shape[op.axis] = op.index.shape[op.axis]
    return np.take_along_axis(x, np.broadcast_to(op.index.numpy(), shape), axis=op.axis)


def _slice(op: Any, x: Array) -> Array:
    return x.take(range(op.start, op.start + op.length), axis=op.axis)


OPS: dict[str, Callable[..., Array]] = {
    "linear": _linear,
    "add": lambda op, x, y: x + mp.mpf(op.sign) * y,
    "shift": lambda op, x: x + exact(op.value),
    "scale": lambda op, x: x * exact(op.value),
    "sum": lambda op, x: total(x, op.axes, mean=op.mean),
    "cumsum": lambda op, x: x.cumsum(axis=-1),
    "center": lambda op, x: x - total(x, (x.ndim - 1,), mean=True),
    "multiply": lambda op, x, y: x * y,
    "matmul": lambda op, x, y: x @ y,
    "softmax": lambda op, x: softmax(x),
    "softmax of differences": lambda op, x: of_differences(x),
    "logsumexp": lambda op, x: logsumexp(x),
    "normalize": lambda op, x: normalize(x, op.eps),
    "permute": lambda op, x: x.transpose(op.order),
    "reshape": lambda op, x: x.reshape(op.shape),
    "slice": _slice,
    "concat": lambda op, *x: np.concatenate(x, axis=op.axis),
    "expand": lambda op, x: np.broadcast_to(x, op.shape),
    "gather": _gather,
}
assert set(OPS) | set(ENTRYWISE) >= set(REGISTRY), "an op without its exact function"


def values(graph: Graph, x: Array, rest: list[Any]) -> list[Array]:
    """Every node at `x`, of the shape of the input; `rest` are the values at rest, whose peaks are constants."""
    found: list[Array] = []
    for node in graph.nodes:
        name, op = node.op.name, node.op
        if name == "input":
            value = x
        elif name == "constant":
            value = exact(op.value)  # type: ignore[attr-defined]
        elif name == "peak":
            value = exact(rest[node.index][0])
        else:
            inputs = [found[i] for i in node.inputs]
            value = ENTRYWISE[name](*inputs) if name in ENTRYWISE else OPS[name](op, *inputs)
        found.append(np.asarray(value, dtype=object))
    return found

"""Every node of a captured graph at one point, with many digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from certiformer.core.graph.graph import Graph
from certiformer.core.ops.base import REGISTRY

from .functions import ENTRYWISE, Array, Undefined, exact, logsumexp, normalize, of_differences, softmax, total


def _linear(op: Any, x: Array) -> Array:
    y = x @ exact(op.weight).T
    return y if op.bias is None else y + exact(op.bias)


def _gather(op: Any, x: Array) -> Array:
    shape = list(x.shape)
    shape[op.axis] = op.index.shape[op.axis]
    return np.take_along_axis(x, np.broadcast_to(op.index.numpy(), shape), axis=op.axis)


def _slice(op: Any, x: Array) -> Array:
    return x.take(range(op.start, op.start + op.length), axis=op.axis)


def _before(op: Any, x: Array) -> Array:
    """What is normalised."""
    for each in op.before:
        x = OPS[each.name](each, x)
    return x


def _at_rest(op: Any, rest: Array) -> tuple[Array, Array, Array]:
    """Its direction at rest, the last entry of that, and its length."""
    z = _before(op, rest)
    more = z.shape[-1] * mp.mpf(op.eps)
    size = ENTRYWISE["sqrt"](total(z * z, (z.ndim - 1,)) + more)
    if (size == 0).any():
        raise Undefined
    return z / size, mp.sqrt(more) / size, size


def height(op: Any, x: Array, rest: Array, lengths: Array) -> Array:
    """Of a direction, over the one at rest."""
    moved = ENTRYWISE["sqrt"](total((x - rest) * (x - rest), (x.ndim - 1,)))
    furthest = np.maximum(lengths[..., :1], mp.mpf(0))
    nearest = np.minimum(np.maximum(lengths[..., 1:], mp.mpf(0)), furthest)
    share = np.minimum(np.maximum(moved, nearest), furthest) / _at_rest(op, rest)[2]
    return ENTRYWISE["sqrt"](np.maximum(mp.mpf(0), 1 - share * share))


def tilted(op: Any, x: Array, h: Array, rest: Array, lengths: Array) -> Array:
    """A direction by how it is tilted; where it may be any, the normalised vector itself."""
    e, q, size = _at_rest(op, rest)
    d, root = _before(op, x) - _before(op, rest), mp.sqrt(x.shape[-1])
    turned = (d - e * total(e * d, (d.ndim - 1,)) / (1 + q)) / size + h * e
    return np.where(lengths[..., :1] < size, root * turned, normalize(_before(op, x), op.eps))


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
    "height": lambda op, x, rest, lengths: height(op, x, rest, lengths),
    "tilted": lambda op, x, h, rest, lengths: tilted(op, x, h, rest, lengths),
    "permute": lambda op, x: x.transpose(op.order),
    "reshape": lambda op, x: x.reshape(op.shape),
    "slice": _slice,
    "concat": lambda op, *x: np.concatenate(x, axis=op.axis),
    "expand": lambda op, x: np.broadcast_to(x, op.shape),
    "gather": _gather,
}
assert set(OPS) | set(ENTRYWISE) >= set(REGISTRY), "an op without its exact function"


def values(graph: Graph, x: Array, rest: list[Any]) -> list[Array]:
    """Every node at `x`, of the shape of the input; `rest` are the values at rest, of which some are constants."""
    found: list[Array] = []
    for node in graph.nodes:
        name, op = node.op.name, node.op
        if name == "input":
            value = x
        elif name == "constant":
            value = exact(op.value)  # type: ignore[attr-defined]
        elif name in ("peak", "rest", "lengths"):
            value = exact(rest[node.index][0])
        else:
            inputs = [found[i] for i in node.inputs]
            value = ENTRYWISE[name](*inputs) if name in ENTRYWISE else OPS[name](op, *inputs)
        found.append(np.asarray(value, dtype=object))
    return found

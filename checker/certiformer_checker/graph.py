"""The graph: affine operations forwards and transposed, and the range of every operation over boxes.

Values have one axis more in front than the specification's shapes: points forwards, rows of coefficients backwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from certiformer_checker.numbers import TINY, Array, Span, down, gamma, length, require, up

ELEMENTWISE = ("relu", "tanh", "sigmoid", "gelu")
NONLINEAR = (*ELEMENTWISE, "multiply", "matmul", "softmax_of_differences", "normalize")
MOVES = ("permute", "reshape", "slice", "concat")


@dataclass(frozen=True)
class Node:
    """One operation; `constants` has its tensors, `rules` its attributes."""

    op: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    rules: dict[str, Any]
    constants: dict[str, Array]
    varies: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Graph = tuple[Node, ...]


def aligned(x: Array, rank: int) -> Array:
    """`[rows, *shape]` with axes of size 1 in front of the shape, so that it broadcasts as the shape alone does."""
    return x.reshape(x.shape[0], *(1,) * (rank + 1 - x.ndim), *x.shape[1:])


def gathered(a: Array, shape: tuple[int, ...]) -> Array:
    """Transpose of broadcasting `shape` to that of a: sums over the axes that were copied."""
    if a.shape[1:] == shape:
        return a
    a = a.sum(axis=tuple(range(1, a.ndim - len(shape))))
    copied = tuple(i + 1 for i, size in enumerate(shape) if size == 1 and a.shape[i + 1] != 1)
    return np.asarray(a.sum(axis=copied, keepdims=True))


def affine(node: Node, xs: list[Array], sizes: bool = False) -> Array:
    """The operation; with `sizes`, by the absolute values of its coefficients and without what it adds."""
    x, op, rules, held = xs[0], node.op, node.rules, node.constants
    if op == "linear":
        y = x @ (np.abs(held["weight"]) if sizes else held["weight"]).T
        return np.asarray(y if sizes else y + held.get("bias", 0.0))
    if op == "add":
        x, y = (aligned(each, len(node.shape)) for each in xs)
        return np.asarray(x + y * (1 if sizes else rules["sign"]))
    if op == "shift":
        return x if sizes else x + held["value"]
    if op == "scale":
        return np.asarray(x * (np.abs(held["value"]) if sizes else held["value"]))
    if op == "sum":
        y = x.sum(axis=tuple(axis + 1 for axis in rules["axes"]), keepdims=True)
        return np.asarray(y / (x.size / y.size) if rules["mean"] else y)
    if op == "center":
        mean = x.sum(axis=-1, keepdims=True) / x.shape[-1]
        return np.asarray(x * (1 - 2 / x.shape[-1]) + mean if sizes else x - mean)
    if op == "permute":
        return x.transpose(0, *(axis + 1 for axis in rules["order"]))
    if op == "reshape":
        return x.reshape(len(x), *node.shape)
    if op == "slice":
        return np.take(x, range(rules["start"], rules["start"] + rules["length"]), rules["axis"] + 1)
    if op == "concat":
        return np.concatenate(xs, axis=rules["axis"] + 1)
    require(op == "expand" and x.ndim == len(node.shape) + 1, f"{op}: not an affine operation")
    return np.broadcast_to(x, (x.shape[0], *node.shape))


def added(node: Node) -> Array | float:
    """The size of what an affine operation adds."""
    return np.abs(node.constants.get("bias", node.constants["value"] if node.op == "shift" else 0.0))


def transposed(node: Node, a: Array, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Coefficients on the value become coefficients on the inputs."""
    op, shape = node.op, shapes[0]
    if op == "linear":
        return [a @ node.constants["weight"]]
    if op == "add":
        return [gathered(a, shape), gathered(a, shapes[1]) * node.rules["sign"]]
    if op == "shift":
        return [a]
    if op == "scale":
        return [a * node.constants["value"]]
    if op == "sum":
        a = a / (math.prod(shape) / node.size) if node.rules["mean"] else a
        return [np.broadcast_to(a, (a.shape[0], *shape))]
    if op == "center":
        return [a - a.sum(axis=-1, keepdims=True) / shape[-1]]
    if op == "permute":
        return [a.transpose(0, *(axis + 1 for axis in np.argsort(node.rules["order"])))]
    if op == "reshape":
        return [a.reshape(len(a), *shape)]
    if op == "slice":
        result = np.zeros((a.shape[0], *shape), dtype=a.dtype)
        place = slice(node.rules["start"], node.rules["start"] + node.rules["length"])
        result[(slice(None),) * (node.rules["axis"] + 1) + (place,)] = a
        return [result]
    if op == "concat":
        axis = node.rules["axis"]
        return np.split(a, np.cumsum([s[axis] for s in shapes[:-1]]), axis=axis + 1)
    return [gathered(a, shape)]


def roundings(node: Node, shapes: list[tuple[int, ...]]) -> int:
    """How many roundings lie behind any one number, forwards or backwards; 0 where numbers are only moved."""
    copies = max(node.size // max(math.prod(shape), 1) for shape in shapes)
    if node.op == "linear":
        return sum(node.constants["weight"].shape) + 2
    if node.op == "sum":
        return math.prod(shapes[0]) // node.size + 2
    return 0 if node.op in MOVES else copies + 2 + (shapes[0][-1] + 4 if node.op == "center" else 0)


def lost(node: Node, values: list[Array], shapes: list[tuple[int, ...]]) -> Array | float:
    """What rounding may lose of an affine operation on numbers of these sizes."""
    k = roundings(node, shapes)
    return up((affine(node, values, sizes=True) + added(node)) * gamma(2 * k) + TINY) if k else 0.0


def middle(box: Span) -> tuple[Array, Array]:
    """The middle of a box, and the distance to its farther end."""
    centre = box.lo / 2 + box.hi / 2
    return centre, np.maximum(up(box.hi - centre), up(centre - box.lo))


def normalized(box: Span, n: int, eps: float, distance: Array | None) -> tuple[Array, Span, Span]:
    """Of a `normalize`: the distance from the middle as a vector; the ranges of `sqrt(|z|^2 + n eps)` and the value."""
    centre, radius = middle(box)
    reach = length(radius)
    reach = reach if distance is None else np.minimum(reach, distance)
    nearest = Span(np.maximum(np.maximum(box.lo, -box.hi), 0.0)).square().sum()
    size = Span(centre).square().sum().sqrt()
    low = (size - reach).most(0.0).square().most(nearest) + Span(float(n)) * eps
    long = Span(low.sqrt().lo, ((size + reach).square() + Span(float(n)) * eps).sqrt().hi)
    require(long.lo > 0, "a normalize of what may be zero")
    root = Span(float(n)).sqrt()
    return reach, long, (box * root / Span(long.lo[..., None], long.hi[..., None])).most(-root).least(root)


def ranged(node: Node, boxes: list[Span], distance: Array | None = None) -> Span:
    """The range of an operation over boxes, enclosed."""
    x, op = boxes[0], node.op
    shapes = [box.lo.shape[1:] for box in boxes]
    if op not in NONLINEAR:
        if op in MOVES:
            return Span(affine(node, [box.lo for box in boxes]), affine(node, [box.hi for box in boxes]))
        centres, radii = zip(*(middle(box) for box in boxes), strict=True)
        wide = affine(node, list(radii), sizes=True) * (1 + gamma(2 * roundings(node, shapes)))
        error = up(wide + lost(node, [np.abs(c) for c in centres], shapes) + TINY)
        value = affine(node, list(centres))
        return Span(down(value - error), up(value + error))
    if op == "relu":
        return x.most(0.0)
    if op in ("tanh", "sigmoid"):
        low, high = getattr(Span(x.lo), op)(), getattr(Span(x.hi), op)()
        return Span(low.lo, high.hi)
    if op == "gelu":  # falls to its least value, above -0.17, at a point between -0.7518 and -0.7517, then rises
        low, high = (Span(end) * Span(end).normal() for end in (x.lo, x.hi))
        inside = (x.lo < -0.7517) & (x.hi > -0.7518)
        return Span(np.where(inside, -0.1699712075, np.minimum(low.lo, high.lo)), np.maximum(low.hi, high.hi))
    if op == "multiply":
        x, y = (Span(*(aligned(end, len(node.shape)) for end in (box.lo, box.hi))) for box in boxes)
        return x * y
    if op == "matmul":
        require(
            x.lo.shape[:-2] == boxes[1].lo.shape[:-2] and node.size * x.lo.shape[-1] <= 2**27,
            "a matmul of other shapes",
        )
        return (x[..., :, :, None] * boxes[1][..., None, :, :]).sum(axis=-2)
    if op == "softmax_of_differences":
        require(x.lo.shape[-1] == x.lo.shape[-2], "differences that are not square")
        return without_own(x).exp().sum().inverse().least(1.0)
    return normalized(x, node.shape[-1], node.rules["eps"], distance)[2]


def without_own(z: Span) -> Span:
    """Differences with `z_jj = 0`, exactly."""
    own = np.eye(z.lo.shape[-1], dtype=bool)
    return Span(np.where(own, 0.0, z.lo), np.where(own, 0.0, z.hi))


def sums_to_one(graph: Graph, node: Node) -> bool:
    """Whether a `softmax_of_differences` is of differences `s_k - s_j`, so that its rows sum to 1."""
    minus = graph[node.inputs[0]]
    if node.op != "softmax_of_differences" or minus.op != "add" or minus.rules["sign"] != -1:
        return False
    k, j = (graph[i] for i in minus.inputs)
    scores = minus.shape[:-2] + (1, minus.shape[-1]), minus.shape[:-2] + (minus.shape[-1], 1)
    if (k.op, j.op) != ("reshape", "reshape") or (k.shape, j.shape) != scores:
        return False
    return k.inputs == j.inputs

"""Small steps that many rows share."""

from __future__ import annotations

from ..ops.base import Shape
from ..ops.linear import Scale
from ..ops.movement import Expand, Permute, Reshape
from .table import Build, Operand, Ref


def squeeze(build: Build, x: Operand, axes: tuple[int, ...]) -> Ref:
    """Without some axes of size 1."""
    return build.add(Reshape(tuple(s for a, s in enumerate(build.shape(x)) if a not in axes)), x)


def swap(build: Build, x: Operand, i: int, j: int) -> Ref:
    """With two axes exchanged."""
    order = list(range(len(build.shape(x))))
    order[i], order[j] = order[j], order[i]
    return build.add(Permute(tuple(order)), x)


def expand(build: Build, x: Operand, shape: Shape) -> Ref:
    """Copied along axes of size 1 and along new ones in front."""
    x, old = build.node(x), build.shape(x)
    if len(old) < len(shape):
        x = build.add(Reshape((1,) * (len(shape) - len(old)) + old), x)
    return x if build.shape(x) == shape else build.add(Expand(shape), x)


def copies(build: Build, x: Ref, axis: int, count: int) -> Ref:
    """Every entry of an axis `count` times in a row."""
    shape = build.shape(x)
    if count == 1:
        return x
    x = build.add(Reshape(shape[: axis + 1] + (1,) + shape[axis + 1 :]), x)
    x = build.add(Expand(shape[: axis + 1] + (count,) + shape[axis + 1 :]), x)
    return build.add(Reshape(shape[:axis] + (shape[axis] * count,) + shape[axis + 1 :]), x)


def times(build: Build, factor: float, x: Operand) -> Ref:
    """`factor x`."""
    return build.node(x) if factor == 1 else build.add(Scale(build.constant(factor)), x)

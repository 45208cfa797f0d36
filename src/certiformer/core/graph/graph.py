"""The op graph: what a model computes from one perturbed tensor, in topological order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..ops.base import Box, Narrowed, Op, Shape, whole_axes
from ..ops.movement import Concat, Movement, Permute, Reshape
from ..ops.rounded import Rounded


@dataclass(frozen=True)
class Input(Op):
    """The tensor that is perturbed."""

    name = "input"
    exact = True

    def forward(self, *x: Tensor) -> Tensor:
        return x[0]

    def interval(self, *boxes: Box) -> Box:
        return boxes[0]

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield from ()


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A tensor of the model itself."""

    name = "constant"
    exact = True
    value: Tensor

    def forward(self, *x: Tensor) -> Tensor:
        return self.value[None]

    def interval(self, *boxes: Box) -> Box:
        return Box(self.value[None], self.value[None])

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield from ()


class AtRest(Op):
    """A constant of the instance, made of the value of its input at the unperturbed input."""

    exact = True

    def interval(self, *boxes: Box) -> Box:
        raise TypeError(f"{self.name} does not vary")

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield from ()


@dataclass(frozen=True)
class Peak(AtRest):
    """The largest entry along the last axis."""

    name = "peak"

    def forward(self, *x: Tensor) -> Tensor:
        return x[0].amax(dim=-1, keepdim=True)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None


@dataclass(frozen=True)
class Rest(AtRest):
    """The value itself."""

    name = "rest"

    def forward(self, *x: Tensor) -> Tensor:
        return x[0]


@dataclass(frozen=True)
class Lengths(AtRest):
    """How far each position of the input is from rest at most and at least `[.., 2]`, where the set says so in lengths
    alone; else infinite, and 0."""

    name = "lengths"

    def forward(self, *x: Tensor) -> Tensor:
        return torch.stack([torch.full_like(x[0][..., 0], torch.inf), torch.zeros_like(x[0][..., 0])], dim=-1)


@dataclass(frozen=True, eq=False)
class Node:
    """One op applied to earlier nodes. `path` is where in the model it came from."""

    index: int
    op: Op
    inputs: tuple[int, ...]
    shape: Shape
    path: str
    perturbed: bool
    reads: tuple[int, ...] = ()  # nodes whose boxes say how far it may be off

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.op.name} {list(self.shape)}{where}"


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in topological order; node 0 is the perturbed input, the last one the output."""

    nodes: tuple[Node, ...]
    folded: tuple[str, ...] = ()  # calls among constants alone that another precision would round otherwise

    @property
    def output(self) -> Node:
        return self.nodes[-1]

    def parents(self, node: Node) -> tuple[Node, ...]:
        return tuple(self.nodes[i] for i in node.inputs)

    def to(self, dtype: torch.dtype) -> Graph:
        """The same graph with all numbers of its ops in another precision."""
        return replace(self, nodes=tuple(replace(node, op=_cast(node.op, dtype)) for node in self.nodes))

    def values(self, x: Tensor, nominal: Sequence[Tensor] | None = None, lengths: Tensor | None = None) -> list[Tensor]:
        """Every node's value at `x` [instances, *shape]; `nominal` are the values at the unperturbed input.

        With the `lengths` of a set [instances, *positions, 2], by which its positions may move, a graph on a sphere is
        another function of its input than the model (`sphere.py`).
        """
        values: list[Tensor] = []
        for node in self.nodes:
            if isinstance(node.op, Input):
                values.append(x)
            elif isinstance(node.op, AtRest) and nominal is not None:
                values.append(nominal[node.index])
            elif isinstance(node.op, Lengths) and lengths is not None:
                values.append(lengths)
            else:
                values.append(node.op.forward(*(values[i] for i in node.inputs)))
        return values

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """For each node a number that none of its entries goes below, whatever the input (squares, sums of them)."""
        floors: list[float] = []
        for node in self.nodes:
            floors.append(node.op.floor(*(floors[i] for i in node.inputs)))
        return tuple(floors)

    @cached_property
    def position_axes(self) -> tuple[frozenset[int], ...]:
        """For each node, the axes that run over positions of the input (its axis 1)."""
        axes: list[frozenset[int]] = []
        for node in self.nodes:
            axes.append(_position_axes(node, self.parents(node), [axes[i] for i in node.inputs]))
        return tuple(axes)


def _position_axes(node: Node, parents: tuple[Node, ...], known: list[frozenset[int]]) -> frozenset[int]:
    op: Any = node.op
    if isinstance(op, Input):
        return frozenset({1})
    if not parents:
        return frozenset()
    if isinstance(op, Permute):
        return frozenset(i for i, a in enumerate(op.order) if a in known[0])
    if isinstance(op, Reshape):
        carried = _carried(parents[0].shape, node.shape)
        return frozenset(carried[a] for a in known[0] if a in carried)
    if isinstance(op, (Concat, AtRest)):
        return frozenset().union(*known)
    if isinstance(op, (Movement, Rounded)):
        return known[0]
    blank = [Box.blank(p.shape, parent_like(op)) for p in parents]
    planes = op.planes(*blank)
    found = set()
    for slope, axes in zip(planes.slopes, known, strict=False):
        found |= {planes.outputs.index(slope.inputs[a]) for a in axes if slope.inputs[a] in planes.outputs}
    return frozenset(found)


def _carried(old: Shape, new: Shape) -> dict[int, int]:
    """Axes that a reshape leaves as they are, those of size 1 included where nothing before or behind them changed."""
    carried = dict(whole_axes(old, new))
    for a in range(min(len(old), len(new))):
        if old[a] != new[a]:
            break
        carried.setdefault(a, a)
    for a in range(1, min(len(old), len(new)) + 1):
        if old[-a] != new[-a]:
            break
        carried.setdefault(len(old) - a, len(new) - a)
    return carried


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """An op, or what one holds, in another precision; what is finite stays so."""
    if isinstance(value, Tensor):
        if not value.is_floating_point() or value.dtype == dtype:
            return value
        if torch.finfo(dtype).max >= torch.finfo(value.dtype).max:
            return value.to(dtype)
        kept = value.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        return torch.where(torch.isinf(value), value, kept).to(dtype)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_cast(v, dtype) for v in value)
    if isinstance(value, Op) and is_dataclass(value):
        return replace(value, **{f.name: _cast(getattr(value, f.name), dtype) for f in fields(value)})
    return value


def parent_like(op: Op) -> Tensor:
    """A tensor in the precision of an op's own constants."""
    for value in vars(op).values():
        if isinstance(value, Tensor):
            return value
    return torch.zeros((), dtype=torch.float64)

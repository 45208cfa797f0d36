"""Rewrites of a graph into an equivalent one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..ops.base import Op
from ..ops.movement import Slice
from ..ops.normalize import Normalize
from ..ops.softmax import Softmax
from .build import Builder, Ref
from .graph import Constant, Graph, Input, Node


def rebuild(graph: Graph, example: Tensor, replace: Callable[[Builder, Node, tuple[Ref, ...]], Ref | None]) -> Graph:
    """Copy a graph node by node; where `replace` returns a node, it stands for the copy."""
    builder = Builder(example)
    refs: list[Ref] = []
    for node in graph.nodes:
        builder.path = node.path
        inputs = tuple(refs[i] for i in node.inputs)
        if isinstance(node.op, Input):
            refs.append(Ref(0))
        elif isinstance(node.op, Constant):
            refs.append(builder.node(node.op.value))
        else:
            refs.append(replace(builder, node, inputs) or builder.add(node.op, *inputs))
    return builder.graph(refs[-1])


def by_parts(graph: Graph, example: Tensor) -> Graph:
    """As the paper has it: softmax and normalisation as chains of functions of one variable and products."""

    def replace(builder: Any, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        return node.op.by_parts(builder, inputs[0]) if isinstance(node.op, (Softmax, Normalize)) else None

    return rebuild(graph, example, replace)


def by_differences(graph: Graph, example: Tensor) -> Graph:
    """Softmax as a function of the differences of scores, which are then bounded as such."""

    def replace(builder: Any, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        return node.op.by_differences(builder, inputs[0]) if isinstance(node.op, Softmax) else None

    return rebuild(graph, example, replace)


Cut = tuple[int, int, int]  # axis, start, length


def narrowed(graph: Graph, example: Tensor) -> Graph:
    """Compute only what is used: a slice of a node becomes a slice of its inputs, as far back as it goes.

    A classifier that reads the first position needs its last layer at that position alone.
    """
    cuts = _demands(graph)
    builder = Builder(example)
    refs: list[Ref] = []

    def cut_to(i: int, cut: Cut | None) -> Ref:
        """Node i of the old graph, cut as asked."""
        if cut is None or cuts[i] == cut:
            return refs[i]
        return builder.add(Slice(*cut), refs[i])

    for node in graph.nodes:
        builder.path = node.path
        cut = cuts[node.index]
        if isinstance(node.op, Input):
            refs.append(Ref(0))
        elif isinstance(node.op, Constant):
            refs.append(builder.node(node.op.value))
        elif isinstance(node.op, Slice) and cut is None:
            refs.append(cut_to(node.inputs[0], (node.op.axis, node.op.start, node.op.length)))
        else:
            op, axes = _cut_op(graph, node, cut)
            inputs = [
                cut_to(i, None if cut is None or a is None else (a, *cut[1:]))
                for i, a in zip(node.inputs, axes, strict=True)
            ]
            refs.append(builder.add(op, *inputs))
    return builder.graph(refs[-1])


def _cut_op(graph: Graph, node: Node, cut: Cut | None) -> tuple[Op, tuple[int | None, ...]]:
    if cut is not None:
        found = node.op.narrowed(*cut, node.shape, tuple(p.shape for p in graph.parents(node)))
        if found is not None:
            return found
    return node.op, (None,) * len(node.inputs)


def _demands(graph: Graph) -> list[Cut | None]:
    """For each node the one slice of it that all its users want, or None where they want it whole."""
    wanted: list[set[Cut | None]] = [set() for _ in graph.nodes]
    wanted[-1].add(None)
    cuts: list[Cut | None] = [None] * len(graph.nodes)
    for node in reversed(graph.nodes):
        asked = wanted[node.index]
        cut = next(iter(asked)) if len(asked) == 1 else None
        fixed = not node.inputs or isinstance(node.op, Slice)
        if fixed or (cut is not None and not _can(graph, node, cut)):
            cut = None
        cuts[node.index] = cut
        if isinstance(node.op, Slice):
            wanted[node.inputs[0]].add((node.op.axis, node.op.start, node.op.length))
            continue
        _, axes = _cut_op(graph, node, cut)
        for i, a in zip(node.inputs, axes, strict=True):
            wanted[i].add(None if cut is None or a is None else (a, cut[1], cut[2]))
    return cuts


def _can(graph: Graph, node: Node, cut: Cut) -> bool:
    return node.op.narrowed(*cut, node.shape, tuple(p.shape for p in graph.parents(node))) is not None

"""Rewrites of a graph into an equivalent one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

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


def softmax_by_parts(graph: Graph, example: Tensor) -> Graph:
    """The paper's softmax: exp, sum, reciprocal, product."""

    def parts(builder: Any, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        if not isinstance(node.op, Softmax):
            return None
        ref: Ref = node.op.by_parts(builder, inputs[0])
        return ref

    return rebuild(graph, example, parts)

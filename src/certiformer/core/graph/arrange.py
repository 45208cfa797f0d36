"""Inputs of any shape as positions: what a graph does first, if it only rearranges, is done to the sets.

The engine knows inputs `[1, n, d]`: n positions of d numbers. A picture `[1, c, h, w]` that is cut into patches first
becomes its patches; any other tensor is one position that holds all of its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..lowering import Ref
from ..ops.base import Shape
from ..ops.movement import Permute, Reshape, Slice
from .build import Builder
from .graph import Constant, Graph, Node


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Where the entries of a module's input `[1, *shape]` are in that of its graph `[1, n, d]`."""

    shape: Shape  # (1, n, d)
    order: Tensor | None  # entry k is entry order[k] of the module's input; as they are without

    def __call__(self, x: Tensor, lead: int = 0) -> Tensor:
        """A tensor `[*lead, 1, *shape]` as the graph has it."""
        if self.order is None:
            return x.reshape(*x.shape[:lead], *self.shape)
        return x.flatten(lead)[..., self.order.to(x.device)].reshape(*x.shape[:lead], *self.shape)


def arranged(graph: Graph, example: Tensor) -> tuple[Graph, Arrangement]:
    """A graph on `[1, n, d]` that computes what one on inputs like the example does, and where its entries are.

    The positions of an input `[1, n, d]` stay what they are: steps that come back to it are left out, no others.
    """
    given = tuple(example.shape)
    entries = torch.arange(example.numel(), device=example.device).reshape(1, *given)
    root, order, node = 0, entries, graph.nodes[0]
    while (step := _only_rearranged(graph, node)) is not None:
        node = step
        entries = node.op.forward(entries)
        if len(node.shape) != 3 or node.shape[0] != 1:
            continue
        if len(given) != 3 or (node.shape == given and bool((entries.flatten().diff() == 1).all())):
            root, order = node.index, entries
    if root == 0 and len(given) == 3:
        return graph, Arrangement(given, None)
    shape = graph.nodes[root].shape if root else (1, 1, math.prod(given))
    place = Arrangement(shape, None if bool((order.flatten().diff() == 1).all()) else order.flatten())
    return _rooted(graph, root, given, place(example)), place


def _only_rearranged(graph: Graph, node: Node) -> Node | None:
    """The one node that is made of another, by putting its entries elsewhere."""
    users = [n for n in graph.nodes if node.index in n.inputs]
    if len(users) != 1:
        return None
    whole = isinstance(users[0].op, Slice) and users[0].shape == node.shape  # as `x[0]` of a batch of one is
    return users[0] if whole or isinstance(users[0].op, (Reshape, Permute)) else None


def _rooted(graph: Graph, root: int, given: Shape, example: Tensor) -> Graph:
    """The graph from a node on that holds the input's entries; from the input itself, after giving it its shape."""
    builder = Builder(example[None])
    refs = {root: Ref(0) if root else builder.add(Reshape(given), Ref(0))}
    for node in graph.nodes:
        if node.index in refs or not _needed(node, refs):
            continue
        builder.path = node.path
        inputs = (refs[i] for i in node.inputs)
        refs[node.index] = (
            builder.node(node.op.value) if isinstance(node.op, Constant) else builder.add(node.op, *inputs)
        )
    return builder.graph(refs[graph.output.index])


def _needed(node: Node, known: dict[int, Ref]) -> bool:
    """Whether a node stands behind the root, or beside the input."""
    return isinstance(node.op, Constant) or (bool(node.inputs) and all(i in known for i in node.inputs))

"""Nodes that are one and the same affine function of the input at every position.

The queries, keys and values of the first layer are `x_i W^T + b` at each position i. A sweep that arrives there needs
the coefficients at the positions that vary and nothing else: the others only ever meet a constant. So it stops there,
exactly, instead of going through the weights position by position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from .coefficients import Coefficients, Link, SplitSlope
from .graph.graph import Graph, Node
from .ops.base import Box
from .ops.movement import Movement
from .rounding import load, terms


@dataclass(frozen=True, eq=False)
class Local:
    """`node[i] = block x[start + i] + constant` for every position i, which runs along `axis` of the node."""

    axis: int
    start: int
    block: Tensor  # [numbers of the node at one position, numbers of the input at one position]
    chain: tuple[int, ...]  # the nodes from the input to this one, in order
    terms: int  # lengths of the sums along it, added up

    def marked(self, hot: Tensor, node: Node) -> Tensor:
        """Which of the node's own positions vary: `[instance, t, positions]`."""
        return hot.narrow(2, self.start, node.shape[self.axis])

    def carried(self, a: Tensor) -> Tensor:
        """Coefficients `[side, instance, t, *(node without axis), *rows]` as `[side, instance, t, d, all rows]`."""
        flat = a.reshape(*a.shape[:3], self.block.shape[0], -1)
        return (flat.mT @ self.block).mT


def local_nodes(graph: Graph, like: Tensor) -> dict[int, Local]:
    """Every node that is local, the input itself aside."""
    found: dict[int, Local] = {}
    exact = {0}
    for node in graph.nodes[1:]:
        if not node.perturbed or not node.op.exact:
            continue
        if all(p.index in exact for p in graph.parents(node) if p.perturbed):
            exact.add(node.index)
            local = _local(graph, node, like)
            if local is not None:
                found[node.index] = local
    return found


def _local(graph: Graph, node: Node, like: Tensor) -> Local | None:
    """What one node is of the input, if that is the same at every position."""
    axes = graph.position_axes[node.index]
    if len(axes) != 1:
        return None
    (axis,) = axes
    links = tuple(Link(a, 0) if size > 1 or a == axis else None for a, size in enumerate(node.shape))
    start = Coefficients(like.new_ones((1,) * (2 + 2 * len(links))), node.shape, node.shape, links)
    frontier: dict[int, Coefficients] = {node.index: start}
    chain, length = [], 0
    for index in range(node.index, 0, -1):
        part = frontier.pop(index, None)
        here = graph.nodes[index]
        if part is None or not here.perturbed:
            continue
        chain.append(index)
        parents = graph.parents(here)
        shapes = tuple(p.shape for p in parents)
        pulled = here.op.pull(part, shapes)
        if not isinstance(here.op, Movement):
            planes = here.op.planes(*(Box.blank(s, like) for s in shapes))
            length += terms(planes, here.shape)
            pulled = pulled or tuple(
                part.pull(planes, k, s, SplitSlope.of(planes.slopes[k])) for k, s in enumerate(shapes)
            )
        assert pulled is not None
        for parent, a in zip(parents, pulled, strict=True):
            frontier[parent.index] = frontier[parent.index] + a if parent.index in frontier else a
    whole = frontier[0]
    link = whole.links[axis]
    if link is None or link.axis != 1:
        return None
    for b in range(len(whole.node)):
        if b != 1:
            whole = whole.unlink(b)
    lead = 2 + len(whole.rows)
    if whole.tensor.shape[0] != 1 or whole.tensor.shape[1] != 1 or whole.tensor.shape[lead + 1] != 1:
        return None
    rows = math.prod(whole.rows) // whole.rows[axis]
    columns = math.prod(whole.node) // whole.node[1]
    return Local(axis, link.offset, whole.tensor.reshape(rows, columns).contiguous(), tuple(reversed(chain)), length)


def sizes(graph: Graph, local: Local, size: Tensor, rest: list[Tensor]) -> Tensor:
    """`|W_k| ... |W_1| |x|_max + ...`: what is added up on the way from the input, given the sizes of its entries."""
    known = {0: size}
    for index in local.chain:
        node = graph.nodes[index]
        inputs = [known[p.index] if p.perturbed else rest[p.index].abs() for p in graph.parents(node)]
        if isinstance(node.op, Movement):
            known[index] = node.op.forward(*inputs)
            continue
        planes = node.op.planes(*(Box.blank(p.shape, size) for p in graph.parents(node)))
        total = sum((load(planes, k, x) for k, x in enumerate(inputs)), start=size.new_zeros(()))
        if planes.lower is not None:
            total = total + planes.lower.abs()
        known[index] = total.expand(total.shape[0], *node.shape)
    return known[local.chain[-1]]

"""Nodes that are one and the same affine function of the input at every position.

The queries, keys and values of the first layer are `x_i W^T + b` at each position i. A sweep that arrives there needs
the coefficients at the positions that vary and nothing else: the others only ever meet a constant. So it stops there,
exactly, instead of going through the weights position by position.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .coefficients import Coefficients, Link, SplitSlope
from .graph.graph import Graph, Input, Node
from .ops.base import Box, entries
from .ops.movement import Movement
from .rounding import least, load, terms
from .sets import Perturbation
from .sweep import Visitor, add_up, sweep


@dataclass(frozen=True, eq=False)
class Local:
    """`node[i] = block x[start + i] + constant` for every position i, which runs along `axis` of the node."""

    axis: int
    start: int
    block: Tensor  # [numbers of the node at one position, numbers of the input at one position]
    chain: tuple[int, ...]  # the nodes from the input to this one, in order
    terms: int  # lengths of the sums along it, added up

    def marked(self, ball: Perturbation, node: Node) -> Tensor | None:
        """Which of the node's own positions vary: `[instance, t, positions]`; None where they are all of them."""
        count = node.shape[self.axis]
        return None if ball.whole and count == ball.hot.shape[2] else ball.hot.narrow(2, self.start, count)

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


class Following(Visitor[Coefficients]):
    """One exact op after the other down to the input: the nodes on the way, and the function of the input itself."""

    def __init__(self, graph: Graph, like: Tensor) -> None:
        self.graph, self.like = graph, like
        self.chain: list[int] = []  # the last one first
        self.terms = 0
        self.whole: Coefficients | None = None

    def ends(self, node: Node) -> bool:
        return isinstance(node.op, Input)

    def join(self, parts: list[Coefficients], a: Coefficients) -> None:
        add_up(parts, a)

    def arrived(self, node: Node, parts: list[Coefficients]) -> None:
        (self.whole,) = parts

    def through(self, node: Node, parts: list[Coefficients]) -> Iterable[tuple[Node, Coefficients]]:
        (part,) = parts
        self.chain.append(node.index)
        parents = self.graph.parents(node)
        shapes = tuple(p.shape for p in parents)
        pulled = node.op.pull(part, shapes)
        if not isinstance(node.op, Movement):
            planes = node.op.planes(*(Box.blank(s, self.like) for s in shapes))
            self.terms += terms(planes, node.shape)
            pulled = pulled or tuple(
                part.pull(planes, k, s, SplitSlope.of(planes.slopes[k])) for k, s in enumerate(shapes)
            )
        assert pulled is not None
        return zip(parents, pulled, strict=True)


def _local(graph: Graph, node: Node, like: Tensor) -> Local | None:
    """What one node is of the input, if that is the same at every position."""
    axes = graph.position_axes[node.index]
    if len(axes) != 1:
        return None
    (axis,) = axes
    links = tuple(Link(a, 0) if size > 1 or a == axis else None for a, size in enumerate(node.shape))
    start = Coefficients(like.new_ones((1,) * (2 + 2 * len(links))), node.shape, node.shape, links)
    following = Following(graph, like)
    sweep(graph, node, start, following)
    whole = following.whole
    assert whole is not None
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
    block = whole.tensor.reshape(rows, columns).contiguous()
    return Local(axis, link.offset, block, tuple(reversed(following.chain)), following.terms)


def sizes(graph: Graph, local: Local, size: Tensor, nominal: list[Tensor]) -> tuple[Tensor, Tensor]:
    """`|W_k| ... |W_1| |x|_max + ...`: what is added up on the way from the input, given the sizes of its entries.

    With what underflows on the way, which the next matrices may make large; and the largest size that is met there, by
    instance: a product of the last matrices that underflows would have been multiplied by it.
    """
    known = {0: size}
    for index in local.chain:
        node = graph.nodes[index]
        inputs = [known[p.index] if p.perturbed else nominal[p.index].abs() for p in graph.parents(node)]
        if isinstance(node.op, Movement):
            known[index] = node.op.forward(*inputs)
            continue
        planes = node.op.planes(*(Box.blank(p.shape, size) for p in graph.parents(node)))
        total = sum((load(planes, k, x) for k, x in enumerate(inputs)), start=size.new_zeros(()))
        if planes.lower is not None:
            total = total + planes.lower.abs()
        known[index] = (total + least(size)).expand(total.shape[0], *node.shape)
    largest = entries(size).amax(dim=1)
    for index in local.chain:
        largest = torch.maximum(largest, entries(known[index]).amax(dim=1))
    return known[local.chain[-1]], largest

"""Rows of entries that belong to two positions, as scores do: one function of a query and of a key.

Until positions are mixed, a row of the score of i and j meets entries at i and entries at j and no others. Added up
they are stored with a zero for every other position. Kept apart they are linked, one to each of the two, and cost a
small part of that. Each part for itself is bounded soundly, and where `i != j` they share no entry, so that nothing is
lost; the rows with `i = j` are bounded once more, added up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from .coefficients import Coefficients
from .graph.graph import Graph, Node
from .ops.base import Box, Shape
from .ops.product import MatMul
from .speed.memory import Window

FROM = 24  # positions; of fewer, one sweep more costs as much as it saves
Linked = tuple[int | None, ...]  # for every axis of a node the axis of the rows that it is linked to


def of_two_positions(graph: Graph, node: Node) -> bool:
    """Whether rows of a node are kept apart: a product `[.., n, n]` of what varies along positions, behind an op that
    is not exact."""
    if not isinstance(node.op, MatMul) or not all(p.perturbed for p in graph.parents(node)):
        return False
    last = len(node.shape) - 1
    square = node.shape[-1] == node.shape[-2] >= FROM and {last - 1, last} <= graph.position_axes[node.index]
    return square and any(n.perturbed and not n.op.exact for n in graph.nodes[: node.index])


def separate(parts: Sequence[Linked]) -> bool:
    """Whether functions of a node share no entries but in rows where two coordinates are the same: every two are
    linked along some axis to different axes of the rows."""
    return all(any(None not in (x, y) and x != y for x, y in zip(a, b, strict=True)) for a, b in combinations(parts, 2))


def diagonal(shape: Shape, like: Tensor, window: Window) -> Coefficients:
    """Rows `[*lead n]` of the entries `[*lead, i, i]` of a node, within a window, none of them linked."""
    ((first, count),), n = window, shape[-1]
    rows = torch.arange(first, first + count, device=like.device)
    entries = torch.arange(math.prod(shape), device=like.device) == (rows * n + rows % n)[:, None]
    return Coefficients.matrix(entries.to(like.dtype).reshape(1, count, *shape), shape)


def with_diagonal(box: Box, own: Box) -> Box:
    """A box `[*lead, n, n]`, better on its diagonal by one of those entries alone `[*lead n]`."""
    for whole, part, better in zip(box, own, (torch.maximum, torch.minimum), strict=True):
        entries = whole.diagonal(dim1=-2, dim2=-1)
        entries.copy_(better(entries, part.reshape(entries.shape)))
    return box


def both_signs(box: Box, n: int) -> Box:
    """Bounds of `x_k - x_j` `[.., pairs j < k]` as those of all pairs `[.., j, k]`."""
    j, k = torch.triu_indices(n, n, 1, device=box.lower.device)
    ends = []
    for one, other in ((box.lower, box.upper), (box.upper, box.lower)):
        table = one.new_zeros(*one.shape[:-1], n, n)
        table[..., j, k], table[..., k, j] = one, -other
        ends.append(table)
    return Box(*ends)

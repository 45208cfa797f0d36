"""Bounds of the output over parts of a set, in which entries of nodes are assumed to lie on one side of a number.

Two parts in which an entry is at most and at least the same number cover the set. In each, the box of that entry is
cut, and so are the planes of what is a function of it. What is assumed is used once more: for any `m >= 0`,

    f >= f - m (z - low)  where z >= low,        f >= f - m (high - z)  where z <= high,

so that multipliers on assumptions are rows of linear functions of their nodes which a sweep takes along. Boxes of all
other entries are those that are known of the whole set: one sweep from the output is all that a part costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .bounding import Bounding
from .coefficients import Coefficients
from .engine import Engine
from .graph.graph import Graph, Node
from .joint import Sums
from .ops.base import Box, MeasuredBox, Parameters, Reach, entries
from .ops.rounded import Rounded
from .speed.kernels import with_sides
from .sweep import sweep

Multipliers = Mapping[int, tuple[Tensor, Tensor]]  # node -> of what is assumed below and above, [parts, *shape]


def bent(graph: Graph) -> list[Node]:
    """Nodes that vary and that something which is not linear is a function of: their boxes are all that planes need."""
    found = {
        i for n in graph.nodes if n.perturbed and not n.op.exact and not isinstance(n.op, Rounded) for i in n.inputs
    }
    return [graph.nodes[i] for i in sorted(found) if graph.nodes[i].perturbed]


@dataclass(eq=False)
class Known:
    """Boxes of nodes that were proved within one radius of each instance; the better of all that were."""

    graph: Graph
    eps: Tensor
    boxes: dict[int, dict[int, Box]] = field(default_factory=dict)  # instance -> node -> [1, *shape]
    sums: dict[int, dict[int, Sums]] = field(default_factory=dict)  # instance -> product -> of its right factor

    def learn(self, engine: Engine, chosen: list[int], eps: Tensor) -> None:
        """From an engine that has proved margins of some instances, where nothing has failed."""
        if engine.graph is not self.graph or not engine.rounding:
            return
        for row, (instance, why) in enumerate(zip(chosen, engine.reasons, strict=True)):
            if why is None and float(eps[row]) >= float(self.eps[instance]):
                own = self.boxes.setdefault(instance, {})
                for node in bent(self.graph):
                    own[node.index] = _joined(own.get(node.index), _row(engine.box(node), row))
                for index in engine.scheme.products:
                    found = engine.products.together(engine, self.graph.nodes[index])
                    if found is not None:
                        self.sums.setdefault(instance, {})[index] = found.take(row)


def _row(box: Box, row: int) -> Box:
    """The box of one of the instances."""
    row = row if box.lower.shape[0] > 1 else 0
    lower, upper = (end[row : row + 1].clone(memory_format=torch.contiguous_format) for end in box)
    if not isinstance(box, MeasuredBox):
        return Box(lower, upper)
    distance, radial, middle = (x[row : row + 1].clone() for x in (*box.reach[:2], box.centre))
    return MeasuredBox(lower, upper, Reach(distance, radial, middle))


def _joined(one: Box | None, other: Box) -> Box:
    """Two boxes that both hold; one that is measured stays as it is, since its centre counts."""
    if one is None or isinstance(other, MeasuredBox) or isinstance(one, MeasuredBox):
        return other if one is None else one
    return one.met(other)


@dataclass(eq=False, kw_only=True)
class Part(Engine):
    """Bounds of rows of the output over parts of a batch of sets.

    `known` has the boxes of the nodes that planes need, over the whole sets, and `learnt` what sums of entries of the
    right factors of products can be; `assumed` what each part assumes of some nodes, infinite where nothing;
    `multipliers` those of the assumptions in the lower bound. Whatever they are, what is negative or has no assumption
    counts as 0.
    """

    known: Mapping[int, Box]  # [parts, *shape]
    assumed: Mapping[int, Box]
    multipliers: Multipliers
    learnt: Mapping[int, Sums]  # of right factors over the whole sets, by their product

    void: Tensor = field(init=False)  # [parts]: nothing meets what is assumed

    def __post_init__(self) -> None:
        super().__post_init__()
        self.void = torch.zeros_like(self.largest, dtype=torch.bool)
        self.products.sums.update({index: self.learnt.get(index) for index in self.scheme.products})
        for index in sorted(self.known):
            self.boxes[index] = self._narrowed(self.graph.nodes[index])

    def _narrowed(self, node: Node) -> Box:
        """A box that is known, cut to what is assumed and to what its inputs leave of it."""
        box = self.known[node.index]
        if isinstance(box, MeasuredBox):  # how far it gets from its middle is known of no other box
            return box
        lower, upper = box
        if node.op.simplex and all(i in self.known for i in node.inputs):
            within = self._interval(node)
            lower, upper = torch.maximum(lower, within.lower), torch.minimum(upper, within.upper)
        if node.index in self.assumed:
            low, high = self.assumed[node.index]
            lower, upper = torch.maximum(lower, low), torch.minimum(upper, high)
        nothing = lower > upper
        self.void = self.void | entries(nothing).any(dim=1)
        lower, upper = torch.where(nothing, box.lower, lower), torch.where(nothing, box.upper, upper)
        return self._without_nan(node, Box(lower, upper))

    def margins(self, rows: Tensor) -> Box:
        """Bounds of `rows @ output`, rows `[parts, 1, *output shape]`; they mean nothing of a part that is void."""
        return self.bounds_of(self.graph.output, rows)

    def bounds_of(self, node: Node, rows: Tensor) -> Box:
        """Bounds of one row for each part of any node, `[parts, 1, *shape]`, by one sweep."""
        for kind, before in self.scheme.steps:
            if kind == "planes" and before.index <= node.index:
                self.substitution(before)
        return self._concretize(*self.sweep(node, Coefficients.matrix(rows, node.shape), shift=True), node)

    def sweep(
        self, start: Node, rows: Coefficients, *, shift: bool, tangent: bool = False, apart: bool = False
    ) -> tuple[Tensor, Tensor]:
        """As any sweep, with what is assumed beside it where it is of one row for each part, as all those asked for."""
        self.deadline.check()
        ready = self.tangent if tangent else self.substitution
        bounding = Bounding(self, start, rows, shift=shift, ready=ready, apart=apart)
        own = (i for i in self.assumed if i < start.index and rows.rows == (1,) and rows.links == (None,))
        sweep(self.graph, start, rows, bounding, {i: self._beside(i, bounding) for i in own})
        self.peak = bounding.peak
        self.most = max(self.most, self.peak)
        return bounding.result

    def _beside(self, index: int, bounding: Bounding) -> Coefficients:
        """`m_high (z - high) - m_low (z - low)`, at most 0 in a part, as rows on the node of z.

        The constant is added to the lower offset."""
        node, value = self.graph.nodes[index], self.nominal[index]
        total, constant, spread = torch.zeros_like(value), torch.zeros_like(value), torch.zeros_like(value)
        for end, given, sign in zip(self.assumed[index], self.multipliers[index], (-1.0, 1.0), strict=True):
            used = torch.isfinite(end)
            m, at = torch.where(used, given.clamp(min=0), 0), torch.where(used, end, 0)
            total = total + sign * m
            constant = constant + sign * m * (value - at)
            slack = self.slack(node, at.abs() + value.abs())
            spread = spread if slack is None else spread + m * slack
        off = entries(constant - spread).sum(dim=1)[None, :, None]  # [side, part, row]
        bounding.offset = with_sides(bounding.offset, torch.cat([-off, torch.zeros_like(off)]))
        sides = torch.stack([total, torch.zeros_like(total)])
        return Coefficients(sides.unsqueeze(2), (1,), node.shape, (None,))


__all__ = ["Known", "Multipliers", "Parameters", "Part", "bent"]

"""The engine: one backward sweep to anchors.

To bound a node, start with the identity on it and substitute backwards, op by op. Nodes with a known linear form in
the perturbation are anchors: there the sweep stops, and the functions that arrive on different paths are *added*; the
norm is taken once, at the end. The methods of the paper differ only in which nodes are anchors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph.graph import Graph, Input, Node
from ..ops.base import Box, Planes
from ..ops.linear import Add, Scale, Shift
from ..ops.movement import Movement
from ..sets.ball import Ball
from .coefficients import Coefficients, SplitSlope, with_sides


class Form(NamedTuple):
    """A node between two linear functions of the perturbation: `centre ± gap`, coefficients and offset.

    Coefficients are `[instance, m, *shape]` over the m numbers that may vary, offsets `[instance, *shape]`.
    """

    centre: Tensor
    gap: Tensor | None
    offset: Tensor
    offset_gap: Tensor | None

    def map(self, node: Node) -> Form:
        """The form of a rearrangement of this node."""
        op = node.op
        assert isinstance(op, Movement)
        return Form(
            op.move((self.centre,), 2),
            None if self.gap is None else op.move((self.gap,), 2),
            op.move((self.offset,), 1),
            None if self.offset_gap is None else op.move((self.offset_gap,), 1),
        )


class Ready(NamedTuple):
    """An op's planes, with slopes and offsets as centre and gap."""

    planes: Planes
    slopes: tuple[SplitSlope, ...]
    offset: Tensor | None
    offset_gap: Tensor | None


@dataclass
class Engine:
    """Bounds of the nodes of one graph over one batch of balls. Nodes are bounded when they are asked for."""

    graph: Graph
    ball: Ball
    anchors: frozenset[int]
    rest: list[Tensor]  # every node's value at the unperturbed input
    boxes: dict[int, Box] = field(default_factory=dict)
    forms: dict[int, Form] = field(default_factory=dict)
    ready: dict[int, Ready] = field(default_factory=dict)
    reasons: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reasons = [None] * self.ball.centre.shape[0]

    # ---- what is known of a node -------------------------------------------------------------------------------

    def box(self, node: Node) -> Box:
        """Numbers that enclose every entry of a node."""
        if node.index not in self.boxes:
            self.boxes[node.index] = self._box(node)
        return self.boxes[node.index]

    def _box(self, node: Node) -> Box:
        if not node.perturbed:
            value = self.rest[node.index]
            return Box(value, value)
        if self._carries(node):
            return node.op.interval(*(self.box(p) for p in self.graph.parents(node)))
        if node.index in self.anchors:
            self.form(node)
            return self.boxes[node.index]
        return self._bound(node)[0]

    def _carries(self, node: Node) -> bool:
        """Whether a node's box is exactly that of its input: entries moved, scaled or shifted."""
        if isinstance(node.op, Add):
            return not all(p.perturbed for p in self.graph.parents(node))
        return isinstance(node.op, (Movement, Scale, Shift))

    def form(self, node: Node) -> Form:
        """The linear form of an anchor."""
        if node.index not in self.forms:
            parents = self.graph.parents(node)
            if isinstance(node.op, Movement) and len(parents) == 1 and parents[0].index in self.anchors:
                self.forms[node.index] = self.form(parents[0]).map(node)
            else:
                self.boxes[node.index], self.forms[node.index] = self._bound(node)
        return self.forms[node.index]

    def _bound(self, node: Node) -> tuple[Box, Form]:
        window = tuple((0, size) for size in node.shape)
        start = Coefficients.identity(node.shape, self.ball.centre, window)
        function, offset = self.sweep(node, start)
        return self._concretize(function, offset, node), _form(function, offset)

    def margins(self, rows: Tensor) -> Box:
        """Bounds of `rows @ output` for rows `[instances, k, *output shape]`."""
        node = self.graph.output
        function, offset = self.sweep(node, Coefficients.matrix(rows, node.shape))
        return self._concretize(function, offset, node)

    def _concretize(self, function: Tensor, offset: Tensor, node: Node) -> Box:
        spread = self.ball.spread(function)
        lower, upper = offset[0] - spread[0], offset[-1] + spread[-1]
        good = (torch.isfinite(lower) & torch.isfinite(upper)).flatten(1).all(dim=1)
        if not bool(good.all()):
            self.fail(good, f"the bounds of {node} overflow")
            keep = good.reshape(-1, *(1,) * (lower.dim() - 1))
            lower, upper = torch.where(keep, lower, 0), torch.where(keep, upper, 0)
        return Box(lower, upper)

    def fail(self, good: Tensor, why: str) -> None:
        """Instances for which nothing can be said, and why; the first reason stands."""
        for i, ok in enumerate(good.tolist()):
            if not ok and self.reasons[i] is None:
                self.reasons[i] = why

    # ---- the sweep ---------------------------------------------------------------------------------------------

    def sweep(self, start: Node, rows: Coefficients) -> tuple[Tensor, Tensor]:
        """`rows` on `start` as linear functions of the perturbation.

        Returns coefficients `[side, instance, m, *rows]` and offsets `[side, instance, *rows]`.
        """
        instances = self.ball.centre.shape[0]
        function = self.ball.centre.new_zeros((1, instances, self.ball.dimension, *rows.rows))
        offset = self.ball.centre.new_zeros((1, instances, *rows.rows))
        frontier: dict[int, list[Coefficients]] = {start.index: [rows]}
        for index in range(start.index, -1, -1):
            parts = frontier.pop(index, None)
            if parts is None:
                continue
            node = self.graph.nodes[index]
            if not node.perturbed:
                for part in parts:
                    offset = offset + part.contract(self.rest[index])
            elif isinstance(node.op, Input):
                for part in parts:
                    moved = part.select(self.ball.hot, self.ball.axis)
                    function = function + moved.reshape(*moved.shape[:2], -1, *rows.rows)
                    offset = offset + part.contract(self.ball.centre)
            elif index in self.anchors and index != start.index:
                form, whole = self.form(node), _merged(parts)
                function = _apply(function, whole, form.centre, form.gap, "X")
                offset = _apply(offset, whole, form.offset, form.offset_gap, "")
            else:
                offset = self._substitute(node, parts, frontier, offset)
        return function, offset

    def _substitute(
        self, node: Node, parts: list[Coefficients], frontier: dict[int, list[Coefficients]], offset: Tensor
    ) -> Tensor:
        """Replace a node by its op's planes in its inputs."""
        parents = self.graph.parents(node)
        shapes = tuple(p.shape for p in parents)
        if not node.op.exact:
            parts = [_merged(parts)]
        for part in parts:
            pulled = node.op.pull(part, shapes)
            if pulled is None:
                ready = self.planes(node)
                pulled = tuple(
                    part.pull(ready.planes, k, shapes[k], ready.slopes[k]) for k in range(len(parents))
                )
                if ready.offset is not None:
                    offset = _apply(offset, part, ready.offset, ready.offset_gap, "")
            for parent, a in zip(parents, pulled, strict=True):
                _join(frontier.setdefault(parent.index, []), a)
        return offset

    def planes(self, node: Node) -> Ready:
        """An op's planes over the boxes of its inputs."""
        if node.index not in self.ready:
            parents = self.graph.parents(node)
            if node.op.exact:
                boxes = tuple(Box.blank(p.shape, self.ball.centre) for p in parents)
            else:
                boxes = tuple(self.box(p) for p in parents)
            planes = node.op.planes(*boxes)
            if planes.valid is not None and not bool(planes.valid.all()):
                self.fail(planes.valid, f"{node} is not defined on the whole range of its input")
            lower, upper = planes.lower, planes.upper
            if lower is None or upper is None:
                split: tuple[Tensor | None, Tensor | None] = (None, None)
            elif lower is upper:
                split = (lower, None)
            else:
                split = ((lower + upper) / 2, (upper - lower) / 2)
            self.ready[node.index] = Ready(planes, tuple(SplitSlope.of(s) for s in planes.slopes), *split)
        return self.ready[node.index]


def _apply(total: Tensor, a: Coefficients, centre: Tensor, gap: Tensor | None, lead: str) -> Tensor:
    """Add `A centre ∓ |A| gap` to the running total of either side."""
    moved = a.contract(centre, lead)
    if gap is not None:
        moved = with_sides(moved, a.contract_abs(gap, lead))
    return total + moved


def _join(parts: list[Coefficients], a: Coefficients) -> None:
    """Add to what has arrived at a node: summed at once where the links agree, side by side where not."""
    for i, part in enumerate(parts):
        if part.links == a.links:
            parts[i] = part + a
            return
    parts.append(a)


def _merged(parts: list[Coefficients]) -> Coefficients:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole


def _form(function: Tensor, offset: Tensor) -> Form:
    """The two sides of a sweep's result as centre and gap."""
    if function.shape[0] == 1 and offset.shape[0] == 1:
        return Form(function[0], None, offset[0], None)
    return Form(
        (function[0] + function[-1]) / 2,
        (function[-1] - function[0]) / 2,
        (offset[0] + offset[-1]) / 2,
        (offset[-1] - offset[0]) / 2,
    )

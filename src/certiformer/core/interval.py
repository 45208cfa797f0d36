"""Interval bound propagation: boxes only, op by op."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from .coefficients import Coefficients, SplitSlope
from .graph.graph import Graph, Input, Node
from .ops.base import Box, entries
from .ops.movement import Movement
from .ops.rounded import MOST, Rounded
from .rounding import SLACK, UNDERFLOW, gamma, load, rounded_down, tiny, too_long, too_many
from .sets import Perturbation
from .speed.replay import Evaluation
from .sweep import Visitor, sweep


def interval_margins(graph: Graph, ball: Perturbation, nominal: list[Tensor], rows: Tensor) -> Evaluation:
    """Bounds of `rows @ output` by intervals alone."""
    boxes, good, whys = interval_boxes(graph, ball, nominal)
    return Evaluation(_last(graph, boxes, rows), good, whys, 0)


def interval_boxes(graph: Graph, ball: Perturbation, nominal: list[Tensor]) -> tuple[list[Box], Tensor, list[str]]:
    """The box of every node from those of its inputs, and the checks `[checks, instances]` with what they mean."""
    every = torch.ones_like(ball.centre.flatten(1)[:, 0], dtype=torch.bool)
    longest = max(graph.nodes, key=lambda n: math.prod(n.shape))
    good = [torch.full_like(every, not too_many(ball.centre, _terms(graph, longest, longest)))]
    whys = [too_long(longest, ball.centre)]
    boxes: list[Box] = []
    for node in graph.nodes:
        inputs = tuple(boxes[i] for i in node.inputs)
        if isinstance(node.op, Input):
            box = ball.box()
        elif not node.perturbed:
            box = Box(nominal[node.index], nominal[node.index])
        else:
            valid = node.op.valid(*inputs)
            if valid is not None:
                good.append(valid)
                whys.append(f"{node} is not defined on the whole range of its input")
            box = _rounded(node, boxes, good, whys) if isinstance(node.op, Rounded) else node.op.interval(*inputs)
            box = Box(box.lower.clamp(min=rounded_down(graph.floors[node.index], box.lower)), box.upper)
            good.append(entries(torch.isfinite(box.lower) & torch.isfinite(box.upper)).all(dim=1))
            whys.append(f"the bounds of {node} overflow")
            keep = good[-1].reshape(-1, *(1,) * (box.lower.dim() - 1))
            box = Box(torch.where(keep, box.lower, 0), torch.where(keep, box.upper, 0))
        boxes.append(box)
    return boxes, torch.stack([g.expand_as(every) for g in good]), whys


def _rounded(node: Node, boxes: list[Box], good: list[Tensor], whys: list[str]) -> Box:
    """The box of a rounded value, with the check that its error is known."""
    assert isinstance(node.op, Rounded)
    error = node.op.error(*(boxes[i] for i in node.reads))
    good.append((error < MOST).flatten(1).all(dim=1))
    whys.append(node.op.reason(node.path))
    return node.op.widened(boxes[node.inputs[0]], error)


def _terms(graph: Graph, node: Node, parent: Node) -> float:
    """Operations for one entry in going from one node to the one before it."""
    return math.prod(node.shape) + math.prod(parent.shape) + len(graph.nodes) + SLACK


SPARE = 1 + 2.0**-10  # for the rounding of a sum of errors


class Last(Visitor[Coefficients]):
    """Rows through the affine ops at the end of the graph, then over the box of what those start from."""

    def __init__(self, graph: Graph, boxes: list[Box], rows: Tensor) -> None:
        self.graph, self.boxes = graph, boxes
        self.offset, self.slack = rows.new_zeros(()), rows.new_zeros(())
        self.result = Box(self.offset, self.slack)

    def ends(self, node: Node) -> bool:
        ends = not node.op.exact or len(node.inputs) != 1 or isinstance(node.op, (Movement, Input))
        return ends and not isinstance(node.op, Rounded)

    def through(self, node: Node, parts: list[Coefficients]) -> Iterable[tuple[Node, Coefficients]]:
        (a,) = parts
        (parent,) = self.graph.parents(node)
        box = self.boxes[parent.index]
        if isinstance(node.op, Rounded):
            error = node.op.error(*(self.boxes[i] for i in node.reads))
            self.slack = self.slack + SPARE * a.contract_abs(error.expand(error.shape[0], *node.shape))[0]
            yield parent, a
            return
        planes = node.op.planes(box)
        size = load(planes, 0, torch.maximum(box.lower.abs(), box.upper.abs()))
        if planes.lower is not None:
            self.offset = self.offset + a.contract(planes.lower.expand(-1, *node.shape))[0]
            size = size + planes.lower.abs()
        lost = a.contract_abs(size.expand(size.shape[0], *node.shape))[0]
        lost = lost * gamma(size, _terms(self.graph, node, parent))
        self.slack = self.slack + lost
        yield parent, a.pull(planes, 0, parent.shape, SplitSlope.of(planes.slopes[0]))

    def arrived(self, node: Node, parts: list[Coefficients]) -> None:
        (a,) = parts
        box = self.boxes[node.index]
        middle, spread = a.contract(box.centre)[0] + self.offset, a.contract_abs(box.radius)[0]
        size = a.contract_abs(box.centre.abs() + box.radius)[0] + self.offset.abs()
        slack = self.slack + size * gamma(size, len(self.graph.nodes) + box.lower[0].numel() + SLACK)
        largest = torch.stack([bound.abs().max() for box in self.boxes for bound in box]).max()
        slack = slack + UNDERFLOW * tiny(size) * (1 + largest)
        self.result = Box(middle - spread - slack, middle + spread + slack)

    def still(self, node: Node, parts: list[Coefficients]) -> None:
        self.arrived(node, parts)


def _last(graph: Graph, boxes: list[Box], rows: Tensor) -> Box:
    last = Last(graph, boxes, rows)
    sweep(graph, graph.output, Coefficients.matrix(rows, graph.output.shape), last)
    return last.result

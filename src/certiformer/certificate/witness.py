"""What a recorded proof rests on, in words and numbers: boxes, what the planes are made of, sweeps and reaches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ..core.graph.graph import Node
from ..core.ops.base import Box, Planes
from ..core.ops.elementwise import Elementwise, Relu, Tanh
from ..core.ops.normalize import Normalize
from ..core.ops.product import MatMul
from ..core.ops.smooth import Smooth
from ..core.ops.softmax import OfDifferences
from ..core.recording import Recording
from ..core.sets import Piece
from .graph import small

HALVINGS = 60  # of the search for a point of tangency


def witness(engine: Recording, case: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A case of a certificate: its JSON, and its numbers by name."""
    numbers: dict[str, Tensor] = {}
    claimed = _claimed(engine)
    for i in claimed:
        box = engine.boxes[i]
        numbers[f"{case}.box.{i}.lower"], numbers[f"{case}.box.{i}.upper"] = box.lower[0], box.upper[0]
    for i, planes in engine.planes.items():
        for name, value in _choices(engine, engine.graph.nodes[i], planes).items():
            numbers[f"{case}.{name}"] = small(value[0])
    reaches = [i for i, reach in engine.reaches.items() if bool(torch.isfinite(reach.distance).all())]
    for i in reaches:
        numbers[f"{case}.reach.{i}.distance"] = engine.reaches[i].distance[0]
        numbers[f"{case}.reach.{i}.radial"] = engine.reaches[i].radial[0]
    for i, cuts in engine.cuts.items():
        for s, (lower, upper) in enumerate(cuts):
            numbers[f"{case}.cut.{i}.{s}.lower"], numbers[f"{case}.cut.{i}.{s}.upper"] = lower[0, 0], upper[0, 0]
    swept = sorted({*engine.shifts, *engine.forms_of})
    if isinstance(engine.ball, Piece):  # forms that were moved from another node were never bounded: any number serves
        for i in (i for i in swept if i not in engine.cuts):
            none = engine.ball.low.new_zeros(engine.ball.low.shape[1], *engine.graph.nodes[i].shape)
            numbers[f"{case}.cut.{i}.0.lower"] = numbers[f"{case}.cut.{i}.0.upper"] = none
    words = {
        "anchors": {str(i): "form" for i in sorted(engine.forms_of)},
        "boxes": {str(i): sorted(engine.ways[i]) for i in claimed},
        "sweeps": {str(i): engine.shifts.get(i, [True]) for i in swept},
        "reaches": sorted(reaches),
    }
    return words, numbers


def _claimed(engine: Recording) -> list[int]:
    """Nodes whose boxes are written: inputs of nonlinear ops, and all that were swept for."""
    inputs = {i for n in engine.graph.nodes if n.index in engine.planes for i in n.inputs}
    swept = {i for i, ways in engine.ways.items() if "sweep" in ways}
    return sorted(i for i in inputs | swept if engine.graph.nodes[i].perturbed)


def _choices(engine: Recording, node: Node, planes: Planes) -> dict[str, Tensor]:
    """What the planes of a node are made of, besides the boxes of its inputs: `[1, ...]` each."""
    op, i = node.op, node.index
    boxes = [engine.box(p) for p in engine.graph.parents(node)]
    settings = engine.parameters.get(i)
    if isinstance(op, Elementwise):
        (slope,) = planes.slopes
        choices = {f"slope.{i}.lower": slope.lower, f"slope.{i}.upper": slope.upper}
        return choices if isinstance(op, Relu) else choices | {f"touch.{i}": _touching(op, boxes[0], planes)}
    if isinstance(op, OfDifferences):
        a, c = op.ranges(boxes[0])
        shares = op.parameters(*boxes) if settings is None else settings
        points = [torch.minimum(torch.maximum(a + t.clamp(0, 1) * (c - a), a), c) for t in shares[:2]]
        return {f"point.{i}.lower": points[0], f"point.{i}.upper": points[1]}
    if isinstance(op, Normalize):
        return {f"tangent.{i}": (planes.slopes[0].lower != 0).any(dim=-1)}
    if isinstance(op, MatMul) and settings is not None:
        lower, upper = (s.clamp(0, 1) for s in settings)
        return {f"share.{i}.lower": lower, f"share.{i}.upper": upper}
    return {}


def _touching(op: Elementwise, box: Box, planes: Planes) -> Tensor:
    """For each piece on which a function is convex or concave the point where its lower or upper line may touch it:
    `[1, pieces, *shape]`."""
    if isinstance(op, Smooth):
        ends, convex = (-math.inf, *op.inflections, math.inf), op.convex_first
    else:
        assert isinstance(op, Tanh)
        ends, convex = (-math.inf, 0.0, math.inf), True
    (slope,) = planes.slopes
    points = []
    for start, end in itertools.pairwise(ends):
        low, high = (torch.minimum(torch.maximum(box.lower, box.lower.new_tensor(x)), box.upper) for x in (start, end))
        wanted = slope.lower if convex else slope.upper
        for _ in range(HALVINGS):
            x = low / 2 + high / 2
            before = (op.derivative(x) < wanted) == convex
            low, high = torch.where(before, x, low), torch.where(before, high, x)
        points.append(low / 2 + high / 2)
        convex = not convex
    return torch.stack(points, dim=1)

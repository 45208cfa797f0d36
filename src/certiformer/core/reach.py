"""How far a node gets from the middle of its box, as a vector along its last axis: at all, and towards the middle.

Every op is a linear function plus a remainder, `y = C x + c + r` with `|r| <= g` entry by entry, so a node is

    z = A delta + b + sum_k M_k r_k,

one remainder for each nonlinear op before it. Entry by entry each r_k may have the worst signs for that entry, but
hardly for all at once: `|M r|_2` is at most `| |M| g |_2`, and at most `|M diag(sqrt g)|_2 sqrt(sum g)`, which for a
wide node is far less. One sweep with the middle of the two planes finds every M_k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .bounding import plus
from .coefficients import Coefficients, Link, SplitSlope
from .graph.graph import Input, Node
from .ops.base import Box, Reach, root_of
from .ops.movement import Expand, Movement
from .ops.rounded import Rounded
from .rounding import SLACK, gamma, load, too_many
from .sets import Piece
from .sets.ball import norm, spectral
from .speed.memory import Window
from .sweep import Visitor, add_up, sweep

HELD = 8  # matrices of one row of a node that are there at once: coefficients, sizes, products for spectral norms

if TYPE_CHECKING:
    from .engine import Engine
    from .form import Form, Substitution


def by_sweeps(engine: Engine, node: Node, box: Box, axis: int = -1, *, own: bool = False) -> Reach:
    """Bounds on `|z - m|` and on `|m' (z - m)| / |m|` along an axis of a node, `[instances, *shape without it]`.

    m is the middle of the box, or with `own` that of what the sweeps find. Infinite where the memory of the engine is
    too small for it, or its precision.
    """
    lead, axis = list(node.shape), axis % len(node.shape)
    width = lead.pop(axis)
    instances, largest = box.lower.shape[0], max(math.prod(n.shape) for n in engine.graph.nodes)
    count = largest + len(engine.graph.nodes) + engine.ball.dimension
    needed = HELD * box.lower.element_size() * instances * width * largest
    if needed > engine.memory or too_many(box.lower, count + SLACK):
        return Reach(*(torch.full_like(box.lower.select(1 + axis, 0), math.inf),) * 2)
    middle = box.centre.movedim(1 + axis, -1).reshape(instances, -1, width)
    rows = []
    for k, place in enumerate(itertools.product(*(range(size) for size in lead))):
        window = (*((at, 1) for at in place[:axis]), (0, width), *((at, 1) for at in place[axis:]))
        rows.append(_row(engine, node, window, None if own else middle[:, k]))
    distance, radial, centre = (torch.stack(parts, dim=1) for parts in zip(*rows, strict=True))
    reach = rounded(Reach(distance.reshape(-1, *lead), radial.reshape(-1, *lead)), count)
    return reach._replace(middle=centre.reshape(-1, *lead, width).movedim(-1, 1 + axis)) if own else reach


def by_form(engine: Engine, node: Node, middle: Tensor, form: Form) -> Reach:
    """The same around `middle` from the linear form of a node alone, entry by entry: `|A delta| + |gap| + |shift|`."""
    away = (engine.nominal[node.index] + form.offset - middle).abs()
    if form.offset_gap is not None:
        away = away + form.offset_gap.abs()
    if form.gap is not None:
        away = away + engine.ball.magnitude(form.gap[None])[0]
    e = direction(middle)
    reach = Reach(
        engine.ball.distance(form.centre) + norm(away, 2.0, dim=-1),
        engine.furthest((form.centre * e[:, None]).sum(dim=-1)) + (away * e.abs()).sum(dim=-1),
    )
    return rounded(reach, engine.ball.dimension + middle.shape[-1])


def direction(middle: Tensor) -> Tensor:
    """The direction of vectors along the last axis; of a zero vector any, here 0."""
    largest = middle.abs().amax(dim=-1, keepdim=True)
    scaled = middle / torch.where(largest > 0, largest, 1)  # whose squares neither overflow nor vanish
    size = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(size > 0, size, 1)


def rounded(reach: Reach, terms: float) -> Reach:
    """With what was lost in sums of so many terms, and in the direction of the middle."""
    reach = reach.times(1 + gamma(reach.distance, terms + SLACK))
    lost = reach.distance * gamma(reach.distance, terms + SLACK)
    return Reach(reach.distance, torch.minimum(reach.radial + lost, reach.distance))


class Measuring(Visitor[Coefficients]):
    """The middle of the planes all the way back: `function` and `offset`, and in `total` the lengths of all remainders
    of one row of a node, `[instances]`."""

    def __init__(self, engine: Engine, rows: Coefficients, instances: int) -> None:
        ball = engine.ball
        self.engine, self.rows = engine, rows.rows
        self.function = ball.centre.new_zeros((1, instances, ball.dimension, *rows.rows))
        self.offset = ball.centre.new_zeros((1, instances, *rows.rows))
        self.total = ball.centre.new_zeros(instances)

    def ends(self, node: Node) -> bool:
        return isinstance(node.op, Input) or node.index in self.engine.scheme.local

    def anchored(self, node: Node) -> bool:
        return node.index in self.engine.scheme.anchors

    def join(self, parts: list[Coefficients], a: Coefficients) -> None:
        add_up(parts, a)

    def still(self, node: Node, parts: list[Coefficients]) -> None:
        slack = self.engine.slack(node, self.engine.nominal[node.index].abs())
        self.total = self.total + _length(parts[0], slack=slack)

    def arrived(self, node: Node, parts: list[Coefficients]) -> None:
        local = self.engine.scheme.local.get(node.index)
        chosen = parts[0].select(*self.engine.marked(node))
        moved = chosen if local is None else local.carried(chosen)
        self.function = self.function + moved.reshape(*moved.shape[:2], -1, *self.rows)
        if self.engine.rounding:
            self.total = self.total + _length(parts[0], slack=self.engine.arrival_slack(node))

    def met(self, node: Node, parts: list[Coefficients]) -> None:
        (part,) = parts
        form = self.engine.form(node)
        self.function = self.function + part.contract(form.centre, "X")
        self.offset = self.offset + part.contract(form.offset)
        moving = None if form.gap is None else self.engine.ball.magnitude(form.gap[None])[0]
        slack = self.engine.slack(node, form.size)
        self.total = self.total + _length(part, form.offset_gap, moving, slack=slack)

    def _shifted(self, node: Node, part: Coefficients) -> Coefficients:
        """On probabilities, which sum to 1, coefficients less their mean by the size of the remainders."""
        if not (self.engine.scheme.style.tangents and node.op.simplex) or part.linked(len(node.shape) - 1) is not None:
            return part
        shifted, constant = part.balanced(self.engine.tangent(node).offset_gap)
        ones = self.engine.ball.centre.new_ones((1, *constant.node))
        self.total = self.total + _length(constant, slack=self.engine.slack(node, ones))
        return shifted

    def through(self, node: Node, parts: list[Coefficients]) -> Iterable[tuple[Node, Coefficients]]:
        part = self._shifted(node, parts[0])
        engine, sources = self.engine, self.engine.graph.parents(node)
        pulled = node.op.pull(part, tuple(p.shape for p in sources))
        if not isinstance(node.op, Movement):
            ready = engine.tangent(node)
            if pulled is None:
                sources = ready.sources
                middle = [SplitSlope(slope.centre, None) for slope in ready.slopes]
                pulled = tuple(part.pull(ready.planes, k, p.shape, middle[k]) for k, p in enumerate(sources))
            if ready.offset is not None:
                self.offset = self.offset + part.contract(ready.offset)
            if isinstance(node.op, Rounded):
                self.total = self.total + _length(part, slack=plus(ready.offset_gap, ready.slack))
            else:
                gap, vector = remainder(engine, node, ready), ready.planes.remainder
                self.total = self.total + _length(part, gap, slack=ready.slack, vector=vector)
        elif isinstance(node.op, Expand):  # copies add up
            self.total = self.total + _length(part, slack=engine.slack(node, engine.magnitude(node)))
        assert pulled is not None
        return zip(sources, pulled, strict=True)


def _row(engine: Engine, start: Node, window: Window, middle: Tensor | None) -> Reach:
    """How far one row of a node gets from `middle` `[instances, width]`, or from its own: `[instances]` each."""
    ball, rows = engine.ball, Coefficients.identity(start.shape, engine.ball.centre, window)
    measuring = Measuring(engine, rows, ball.centre.shape[0])
    sweep(engine.graph, start, rows, measuring)
    function = measuring.function[0].reshape(ball.centre.shape[0], ball.dimension, -1)  # all rows are along one axis
    centre = (measuring.offset + rows.contract(engine.nominal[start.index]))[0].reshape(len(function), -1)
    shift, distance = around(engine, function)
    middle = centre + shift if middle is None else middle
    far = measuring.total + norm(centre + shift - middle, 2.0, dim=-1)
    e = direction(middle)
    towards = furthest(engine, (function * e[:, None]).sum(dim=-1), (shift * e).sum(dim=-1))
    return Reach(distance + far, towards + far, middle)


def around(engine: Engine, function: Tensor) -> tuple[Tensor, Tensor]:
    """Where linear functions `[instances, m, rows]` are in the middle of the set, and how far from there they get."""
    ball = engine.ball
    if engine.scheme.style.tangents and isinstance(ball, Piece):
        return ball.around(function)
    return torch.zeros_like(function[:, 0]), ball.distance(function)


def furthest(engine: Engine, function: Tensor, middle: Tensor) -> Tensor:
    """The most that a linear function `[instances, m]` can be away from a number `[instances]`."""
    if not engine.scheme.style.tangents:
        return engine.furthest(function) + middle.abs()
    low, high = engine.ball.extremes(function[None])
    return torch.maximum(middle - low, high - middle)[0]


def remainder(engine: Engine, node: Node, ready: Substitution) -> Tensor | None:
    """How far an op may be from the middle of its planes, entry by entry, anywhere in the box of its inputs."""
    if node.op.exact:
        return None
    if all(s.upper is s.lower for s in ready.whole.slopes):
        return ready.offset_gap
    radius = engine.gap(node) / 2
    for k, parent in enumerate(engine.graph.parents(node)):
        slope = ready.whole.slopes[k]
        if slope.upper is not slope.lower:
            radius = radius + load(ready.whole, k, engine.box(parent).radius, (slope.upper - slope.lower).abs() / 2)
    return radius


def _length(
    part: Coefficients, *gaps: Tensor | None, slack: Tensor | None = None, vector: Tensor | None = None
) -> Tensor:
    """A bound on `|M (r + e)|_2`, `[instances]`, for `|r| <= the sum of the gaps`, `|r|_2 <= vector` along the last
    axis, and rounding errors `|e| <= slack`, which are too small to be careful with.

    With the gaps g: `| |M| g |_2` and `|M diag(sqrt g)|_2 sqrt(sum g)`, whichever is less.
    """
    lost = part.tensor.new_zeros(()) if slack is None else _worst(part, slack.abs())
    known = [g.abs() for g in gaps if g is not None]
    if not known:
        return lost
    gap = sum(known[1:], start=known[0])
    a = _met(part)
    for axis in range(len(a.node)):
        a = a.unlink(axis)
    matrix = a.tensor[0].expand(-1, *a.rows, *a.node).flatten(1, len(a.rows))  # [instances | 1, rows, *N]
    size = _cut(gap, part).expand(-1, *a.node).flatten(1)  # [instances | 1, entries of N]
    root = torch.where((matrix != 0).any(dim=1).flatten(1), root_of(size), 0)  # others no row sees, of other positions
    length = spectral(matrix.flatten(2) * root[:, None]) * norm(root, 2.0, dim=-1)
    bound = torch.minimum(_worst(part, gap), length)
    if vector is not None:
        by_place = spectral(matrix.flatten(2, -2).movedim(2, 1))  # of [rows, last axis]: [instances | 1, places]
        bound = torch.minimum(bound, (by_place * _cut(vector, part).expand(-1, *a.node[:-1]).flatten(1)).sum(dim=1))
    return bound + lost


def _met(part: Coefficients) -> Coefficients:
    """The same rows on those entries of the node alone that they can meet: those in their window."""
    node, links = list(part.node), list(part.links)
    for a, link in enumerate(part.links):
        if link is not None:
            node[link.axis], links[a] = part.rows[a], Link(link.axis, 0)
    return replace(part, node=tuple(node), links=tuple(links))


def _cut(value: Tensor, part: Coefficients) -> Tensor:
    """Values `[instances | 1, *axes of the node]` there."""
    for a, link in enumerate(part.links):
        if link is not None and 1 + link.axis < value.dim() and value.shape[1 + link.axis] != 1:
            value = value.narrow(1 + link.axis, link.offset, part.rows[a])
    return value


def _worst(part: Coefficients, gap: Tensor) -> Tensor:
    """`| |M| g |_2`: every row with the worst signs for itself."""
    return norm(part.contract_abs(gap)[0].flatten(1), 2.0, dim=-1)

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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .bounding import plus
from .coefficients import Coefficients, SplitSlope
from .graph.graph import Input, Node
from .ops.base import Box, Reach, root_of
from .ops.movement import Expand, Movement
from .ops.rounded import Rounded
from .rounding import SLACK, gamma, load, too_many
from .sets.ball import norm, spectral
from .speed.memory import Window
from .sweep import Visitor, add_up, sweep

HELD = 8  # matrices of one row of a node that are there at once: coefficients, sizes, products for spectral norms

if TYPE_CHECKING:
    from .engine import Engine
    from .form import Form


def by_sweeps(engine: Engine, node: Node, box: Box) -> Reach:
    """Bounds on `|z - m|` and on `|m' (z - m)| / |m|`, m the middle of the box, along the last axis of a node,
    `[instances, *shape[:-1]]`.

    Infinite where the memory of the engine is too small for it, or its precision.
    """
    *lead, width = node.shape
    instances, largest = box.lower.shape[0], max(math.prod(n.shape) for n in engine.graph.nodes)
    count = largest + len(engine.graph.nodes) + engine.ball.dimension
    needed = HELD * box.lower.element_size() * instances * width * largest
    if needed > engine.memory or too_many(box.lower, count + SLACK):
        return Reach(*(torch.full_like(box.lower[..., 0], math.inf),) * 2)
    middle = box.centre.reshape(instances, -1, width)
    rows = []
    for k, place in enumerate(itertools.product(*(range(size) for size in lead))):
        window = (*((at, 1) for at in place), (0, width))
        rows.append(_row(engine, node, window, middle[:, k]))
    reach = Reach(*(torch.stack(parts, dim=-1).reshape(-1, *lead) for parts in zip(*rows, strict=True)))
    return rounded(reach, count)


def by_form(engine: Engine, node: Node, box: Box, form: Form) -> Reach:
    """The same from the linear form of a node alone, entry by entry: `|A delta| + |gap| + |shift|`."""
    away = (engine.nominal[node.index] + form.offset - box.centre).abs()
    if form.offset_gap is not None:
        away = away + form.offset_gap.abs()
    if form.gap is not None:
        away = away + engine.ball.magnitude(form.gap[None])[0]
    e = direction(box.centre)
    reach = Reach(
        engine.ball.distance(form.centre) + norm(away, 2.0, dim=-1),
        engine.furthest((form.centre * e[:, None]).sum(dim=-1)) + (away * e.abs()).sum(dim=-1),
    )
    return rounded(reach, engine.ball.dimension + box.shape[-1])


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

    def through(self, node: Node, parts: list[Coefficients]) -> Iterable[tuple[Node, Coefficients]]:
        (part,) = parts
        engine, sources = self.engine, self.engine.graph.parents(node)
        pulled = node.op.pull(part, tuple(p.shape for p in sources))
        if not isinstance(node.op, Movement):
            ready = engine.substitution(node)
            if pulled is None:
                sources = ready.sources
                middle = [SplitSlope(slope.centre, None) for slope in ready.slopes]
                pulled = tuple(part.pull(ready.planes, k, p.shape, middle[k]) for k, p in enumerate(sources))
            if ready.offset is not None:
                self.offset = self.offset + part.contract(ready.offset)
            if isinstance(node.op, Rounded):
                self.total = self.total + _length(part, slack=plus(ready.offset_gap, ready.slack))
            else:
                gap, vector = remainder(engine, node), ready.planes.remainder
                self.total = self.total + _length(part, gap, slack=ready.slack, vector=vector)
        elif isinstance(node.op, Expand):  # copies add up
            self.total = self.total + _length(part, slack=engine.slack(node, engine.magnitude(node)))
        assert pulled is not None
        return zip(sources, pulled, strict=True)


def _row(engine: Engine, start: Node, window: Window, middle: Tensor) -> Reach:
    """How far one row of a node gets from `middle` `[instances, width]`: `[instances]` each."""
    ball, rows = engine.ball, Coefficients.identity(start.shape, engine.ball.centre, window)
    measuring = Measuring(engine, rows, middle.shape[0])
    sweep(engine.graph, start, rows, measuring)
    function, offset, total = measuring.function, measuring.offset, measuring.total
    nominal = rows.contract(engine.nominal[start.index])
    apart = norm((offset + nominal)[0].reshape(middle.shape) - middle, 2.0, dim=-1)
    e = direction(middle).reshape(-1, 1, *(1,) * (len(rows.rows) - 1), middle.shape[-1])
    towards = engine.furthest((function[0] * e).sum(dim=-1)).reshape(-1)
    return Reach(ball.distance(function[0]).reshape(-1) + total + apart, towards + total + apart)


def remainder(engine: Engine, node: Node) -> Tensor | None:
    """How far an op may be from the middle of its planes, entry by entry, anywhere in the box of its inputs."""
    if node.op.exact:
        return None
    ready, radius = engine.substitution(node), engine.gap(node) / 2
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
    a = part
    for axis in range(len(part.node)):
        a = a.unlink(axis)
    matrix = a.tensor[0].expand(-1, *a.rows, *a.node).flatten(1, len(a.rows))  # [instances | 1, rows, *N]
    size = gap.expand(-1, *part.node).flatten(1)  # [instances | 1, entries of N]
    root = torch.where((matrix != 0).any(dim=1).flatten(1), root_of(size), 0)  # others no row sees, of other positions
    length = spectral(matrix.flatten(2) * root[:, None]) * norm(root, 2.0, dim=-1)
    bound = torch.minimum(_worst(part, gap), length)
    if vector is not None:
        by_place = spectral(matrix.flatten(2, -2).movedim(2, 1))  # of [rows, last axis]: [instances | 1, places]
        bound = torch.minimum(bound, (by_place * vector.expand(-1, *part.node[:-1]).flatten(1)).sum(dim=1))
    return bound + lost


def _worst(part: Coefficients, gap: Tensor) -> Tensor:
    """`| |M| g |_2`: every row with the worst signs for itself."""
    return norm(part.contract_abs(gap)[0].flatten(1), 2.0, dim=-1)

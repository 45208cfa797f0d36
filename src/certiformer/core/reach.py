"""How far a node gets from the middle of its box, as a vector along its last axis: at all, and towards the middle.

Every op is a linear function plus a remainder, `y = C x + c + r` with `|r| <= g` entry by entry, so a node is

    z = A delta + b + sum_k M_k r_k,

one remainder for each nonlinear op before it. Entry by entry each r_k may have the worst signs for that entry, but
hardly for all at once: `|M r|_2` is at most `| |M| g |_2`, and at most `|M diag(sqrt g)|_2 sqrt(sum g)`, which for a
wide node is far less. One sweep with the middle of the two planes finds every M_k.

Remainders in different directions do not add up either. Where `|v' y_k|^2 <= v' G_k v` for every v, for any w_k > 0

    |sum_k y_k|_2 <= sqrt(sum_k w_k) sqrt(|sum_k G_k / w_k|),

which with the bounds of `|y_k|_2` as w is no more than their sum, and less unless all reach furthest in one direction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from .bounding import plus
from .coefficients import Coefficients, Link, SplitSlope
from .graph.graph import Input, Node
from .ops.base import Box, MeasuredBox, Reach, Shape, root_of, ulp
from .ops.movement import Expand, Movement
from .ops.rounded import Rounded
from .rounding import SLACK, gamma, least, load, too_many
from .sets import Piece
from .sets.ball import norm, spectral
from .speed.memory import Window
from .sweep import Visitor, add_up, sweep

HELD = 10  # matrices of one row of a node that are there at once: coefficients, sizes, products for spectral norms

if TYPE_CHECKING:
    from .engine import Engine
    from .form import Form, Substitution

T = TypeVar("T")


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
    middle = box.centre.movedim(1 + axis, -1)
    distance = box.lower.new_full((instances, *lead), math.inf)
    radial, centre = distance.clone(), middle.clone()
    for places in _blocks(tuple(lead), engine.memory // needed):
        window = (*places[:axis], (0, width), *places[axis:])
        here = (slice(None), *(slice(start, start + length) for start, length in places))
        found = _vectors(engine, node, window, axis, None if own else middle[here], count + SLACK)
        distance[here], radial[here], centre[here] = found
    reach = rounded(Reach(distance, radial), count)
    return reach._replace(middle=centre.movedim(-1, 1 + axis)) if own else reach


def along_itself(engine: Engine, node: Node, middle: Tensor) -> Tensor:
    """A bound on `|e' (z - m)|`, e the direction of the middle m, for the vectors along the last axis of a node:
    `[instances, *shape without it]`. By sweeps of these rows: every remainder counts as it meets this one direction."""
    e, lead = direction(middle), node.shape[:-1]
    links = tuple(Link(axis, 0) if size > 1 else None for axis, size in enumerate(lead))
    rows = Coefficients(e.reshape(1, e.shape[0], *(1,) * len(lead), *node.shape), lead, node.shape, links)
    usual, tangents = (engine.ends(node, rows, tangent=tangent) for tangent in (False, True))
    low, high = usual.met(tangents)
    at, size = (e * middle).sum(dim=-1), (e * middle).abs().sum(dim=-1)
    lost = (size + low.abs() + high.abs()) * gamma(at, node.shape[-1] + SLACK)
    return torch.maximum(high - at, at - low) + lost


def _blocks(shape: Shape, most: int) -> Iterator[Window]:
    """All places of a shape, in blocks of at most so many: whole axes at the end, then a part of the one before."""
    lengths = [max(1, min(size, most // math.prod(shape[a + 1 :]))) for a, size in enumerate(shape)]
    starts = [range(0, size, length) for size, length in zip(shape, lengths, strict=True)]
    for first in itertools.product(*starts):
        yield tuple((at, min(length, size - at)) for at, length, size in zip(first, lengths, shape, strict=True))


def by_form(engine: Engine, node: Node, middle: Tensor, form: Form) -> Reach:
    """The same around `middle` from the linear form of a node alone, entry by entry: `|A delta| + |gap| + |shift|`."""
    away = (engine.nominal[node.index] + form.offset - middle).abs()
    if form.offset_gap is not None:
        away = away + form.offset_gap.abs()
    if form.gap is not None:
        away = away + engine.ball.magnitude(form.gap[None])[0]
    slack = engine.slack(node, form.size)
    away = away if slack is None else away + slack
    e = direction(middle)
    reach = Reach(
        engine.ball.distance(form.centre) + norm(away, 2.0, dim=-1),
        engine.furthest((form.centre * e[:, None]).sum(dim=-1)) + (away * e.abs()).sum(dim=-1),
    )
    return rounded(reach, engine.ball.dimension + middle.shape[-1])


def vectors(engine: Engine, node: Node) -> tuple[tuple[Box, ...], tuple[Tensor, ...]]:
    """The boxes of an op's inputs, and how far these are from the middles as vectors, as far as the op measures it:
    `[instances, *shape without the axis]` for every axis.

    What is known of a piece of a ball as a vector is known around a middle of its own: the box of half a ball is half
    as long, but no point is nearer to all of it than the centre of the ball.
    """
    boxes, parents = [], engine.graph.parents(node)
    for k, parent in enumerate(parents):
        own = [axis % len(parent.shape) for j, axis in node.op.measures if j == k]
        boxes.append(_centred(engine, parent, own))
    lengths = [_far(engine, parents[k], boxes[k], axis % len(parents[k].shape)) for k, axis in node.op.measures]
    if node.op.bends and parents[0].index in engine.lengths:
        lengths.append(engine.lengths[parents[0].index])
    return tuple(boxes), tuple(lengths)


def _centred(engine: Engine, node: Node, axes: list[int]) -> Box:
    """The box of a node around what its vectors along the first of some axes are near to; those of other positions move
    one by one."""
    box = engine.box(node)
    swept = [axis for axis in axes if node.perturbed and axis not in engine.graph.position_axes[node.index]]
    if not swept:
        return box
    key = node.index, swept[0]
    if key not in engine.around:
        found = by_sweeps(engine, node, box, swept[0], own=True)
        if found.middle is not None:  # which may have overflowed
            known = torch.isfinite(found.middle).all(dim=1 + swept[0]) & torch.isfinite(found.distance)
            middle = torch.where(known.unsqueeze(1 + swept[0]), found.middle, box.centre)
            found = Reach(torch.where(known, found.distance, math.inf), found.radial, middle)
        engine.around[key] = found
    return MeasuredBox(box.lower, box.upper, engine.around[key])


def _far(engine: Engine, node: Node, box: Box, axis: int) -> Tensor:
    """How far a node gets from the middle of a box as a vector along an axis."""
    length = norm(box.radius + ulp(box.lower) * box.lower.abs(), 2.0, dim=1 + axis)
    known = engine.around.get((node.index, axis))
    if known is None or not isinstance(box, MeasuredBox) or box.reach is not known:
        return length
    return torch.fmin(length, known.distance)  # whatever is a number


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


class Length(NamedTuple):
    """How long vectors `y = M r + M e` may be, `[instances, *lead]`, rounding errors e included.

    `M r` is at most `weight` long, and `|v' M r|^2 <= weight |v' root|^2` for every v; `M e` is at most `lost` long.
    """

    size: Tensor  # no more than the two together
    lost: Tensor
    weight: Tensor | None  # None: nothing but rounding
    root: Tensor | None  # [instances, *lead, rows, entries]


class Together:
    """Vectors added up, as far as they go in the same direction: their weights, and `gram`, the sum of `root root'`.

    What is so small that its squares are no normal numbers is `lost`. All sums have at most so many `terms`.
    """

    def __init__(self, terms: float) -> None:
        self.terms = terms
        self.weight: Tensor | float = 0.0
        self.lost: Tensor | float = 0.0
        self.gram: Tensor | None = None

    def add(self, found: Length) -> None:
        self.lost = self.lost + found.lost
        if found.weight is not None and found.root is not None:
            self._add(found.weight, found.root @ found.root.mT, found.weight)

    def _add(self, weight: Tensor, gram: Tensor, square: Tensor) -> None:
        """`gram` is as large as `square`."""
        counts = square > self.terms**2 * least(square)
        gram = torch.where(counts[..., None, None], gram, 0)
        self.weight = self.weight + torch.where(counts, weight, 0)
        self.lost = self.lost + torch.where(counts, 0, weight)
        self.gram = gram if self.gram is None else self.gram + gram

    def size(self, grams: Tensor) -> Tensor:
        """A bound on the length of the sum, with linear functions of these `grams` `[block, instances, *lead, rows,
        rows]` in it (see `Ball.grams`)."""
        for gram in grams:
            square = spectral(gram)
            weight = root_of(square)
            self._add(weight, gram / weight[..., None, None], square)
        assert self.gram is not None
        unit = gamma(grams, self.terms)
        largest = spectral(self.gram) + unit * self.gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return root_of(self.weight * largest) * (1 + unit) + self.lost


class Measuring(Visitor[Coefficients]):
    """The middle of the planes all the way back: `function` and `offset`, and of each vector of a node along an axis in
    `total` the lengths of all remainders `[instances, *the other axes]`, and how they go `together` where wanted."""

    def __init__(self, engine: Engine, rows: Coefficients, axis: int, *, together: Together | None) -> None:
        ball, instances = engine.ball, engine.ball.centre.shape[0]
        self.engine, self.rows, self.axis = engine, rows.rows, axis
        self.function = ball.centre.new_zeros((1, instances, ball.dimension, *rows.rows))
        self.offset = ball.centre.new_zeros((1, instances, *rows.rows))
        self.total = ball.centre.new_zeros(instances, *rows.rows[:axis], *rows.rows[axis + 1 :])
        self.together = together

    def _add(
        self, part: Coefficients, *gaps: Tensor | None, slack: Tensor | None = None, vector: Tensor | None = None
    ) -> None:
        found = length(part, self.axis, *gaps, slack=slack, vector=vector)
        self.total = self.total + found.size
        if self.together is not None:
            self.together.add(found)

    def ends(self, node: Node) -> bool:
        return isinstance(node.op, Input) or node.index in self.engine.scheme.local

    def anchored(self, node: Node) -> bool:
        return node.index in self.engine.scheme.anchors

    def join(self, parts: list[Coefficients], a: Coefficients) -> None:
        add_up(parts, a)

    def still(self, node: Node, parts: list[Coefficients]) -> None:
        slack = self.engine.slack(node, self.engine.nominal[node.index].abs())
        self._add(parts[0], slack=slack)

    def arrived(self, node: Node, parts: list[Coefficients]) -> None:
        local = self.engine.scheme.local.get(node.index)
        chosen = parts[0].select(*self.engine.marked(node))
        moved = chosen if local is None else local.carried(chosen)
        self.function = self.function + moved.reshape(*moved.shape[:2], -1, *self.rows)
        if self.engine.rounding:
            self._add(parts[0], slack=self.engine.arrival_slack(node))

    def met(self, node: Node, parts: list[Coefficients]) -> None:
        (part,) = parts
        form = self.engine.form(node)
        self.function = self.function + part.contract(form.centre, "X")
        self.offset = self.offset + part.contract(form.offset)
        moving = None if form.gap is None else self.engine.ball.magnitude(form.gap[None])[0]
        slack = self.engine.slack(node, form.size)
        self._add(part, form.offset_gap, moving, slack=slack)

    def _shifted(self, node: Node, part: Coefficients) -> Coefficients:
        """On probabilities, which sum to 1, coefficients less their mean by the size of the remainders."""
        if not (self.engine.scheme.style.tangents and node.op.simplex) or part.linked(len(node.shape) - 1) is not None:
            return part
        shifted, constant = part.balanced(self.engine.tangent(node).offset_gap)
        ones = self.engine.ball.centre.new_ones((1, *constant.node))
        self._add(constant, slack=self.engine.slack(node, ones))
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
                self._add(part, slack=plus(ready.offset_gap, ready.slack))
            else:
                gap, vector = remainder(engine, node, ready), ready.planes.remainder
                self._add(part, gap, slack=ready.slack, vector=vector)
        elif isinstance(node.op, Expand):  # copies add up
            self._add(part, slack=engine.slack(node, engine.magnitude(node)))
        assert pulled is not None
        return zip(sources, pulled, strict=True)


def _vectors(
    engine: Engine, start: Node, window: Window, axis: int, middle: Tensor | None, terms: float
) -> tuple[Tensor, Tensor, Tensor]:
    """How far the vectors of a node along an axis, within a window, get from `middle` `[instances, *lead, width]`, or
    from their own: `[instances, *lead]` each, and that middle. No sum has more than so many terms."""
    rows = Coefficients.identity(start.shape, engine.ball.centre, window)
    measuring = Measuring(engine, rows, axis, together=Together(terms) if middle is None else None)
    sweep(engine.graph, start, rows, measuring)
    function = measuring.function[0].movedim(2 + axis, -1)  # [instances, m, *lead, width]
    centre = (measuring.offset + rows.contract(engine.nominal[start.index]))[0].movedim(1 + axis, -1)
    shift, distance = around(engine, function)
    distance = distance + measuring.total
    if middle is None:
        shift, distance = _closer(engine, measuring, function, shift, distance)
        middle = centre + shift
    away = norm(centre + shift - middle, 2.0, dim=-1)
    e = direction(middle)
    towards = furthest(engine, (function * e[:, None]).sum(dim=-1), (shift * e).sum(dim=-1))
    return distance + away, towards + measuring.total + away, middle


def _closer(
    engine: Engine, measuring: Measuring, function: Tensor, shift: Tensor, distance: Tensor
) -> tuple[Tensor, Tensor]:
    """A middle of linear functions and how far what was measured is from there, or another where that is less with all
    that moves taken together."""
    together, grams = measuring.together, engine.ball.grams(function)
    if together is None or grams is None:
        return shift, distance
    middle, matrices = grams
    size = together.size(matrices)
    closer = size < distance  # not where it is no number
    return torch.where(closer.unsqueeze(-1), middle, shift), torch.where(closer, size, distance)


def around(engine: Engine, function: Tensor) -> tuple[Tensor, Tensor]:
    """Where linear functions `[instances, m, *lead, rows]` are in the middle of the set, and how far they get from
    there."""
    ball = engine.ball
    if engine.scheme.style.tangents and isinstance(ball, Piece):
        return ball.around(function)
    return torch.zeros_like(function[:, 0]), ball.distance(function)


def furthest(engine: Engine, function: Tensor, middle: Tensor) -> Tensor:
    """The most that linear functions `[instances, m, *lead]` can be away from numbers `[instances, *lead]`."""
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
    for k, (slope, parent) in enumerate(zip(ready.whole.slopes, engine.graph.parents(node), strict=False)):
        if slope.upper is not slope.lower:
            radius = radius + load(ready.whole, k, engine.box(parent).radius, (slope.upper - slope.lower).abs() / 2)
    return radius


def length(
    part: Coefficients, axis: int, *gaps: Tensor | None, slack: Tensor | None = None, vector: Tensor | None = None
) -> Length:
    """A bound on `|M (r + e)|_2`, the rows of M those along an axis: `[instances, *the other axes of the rows]`.

    For `|r| <= the sum of the gaps` g, `|r|_2 <= vector` along the last axis, and rounding errors `|e| <= slack`, which
    are too small to be careful with. `| |M| g |_2` and `|M diag(sqrt g)|_2 sqrt(sum g)`, whichever is less.
    """
    lost = part.tensor.new_zeros(()) if slack is None else _worst(part, axis, slack.abs())
    known = [g.abs() for g in gaps if g is not None]
    if not known:
        return Length(lost, lost, None, None)
    gap = sum(known[1:], start=known[0])
    blocks, lead = _Blocks.of(part, axis), len(part.rows) - 1
    matrix = blocks.matrix.flatten(lead + 2)  # [instances | 1, *lead, rows, entries of N]
    size = blocks.values(gap).flatten(lead + 1)
    root = torch.where((matrix != 0).any(dim=-2), root_of(size), 0)  # others no row sees, of other positions
    whole = norm(root, 2.0, dim=-1)
    weight = spectral(matrix * root.unsqueeze(-2)) * whole
    share = root * (whole * _inverse(root_of(weight))).unsqueeze(-1)
    bound, rest = torch.minimum(_worst(part, axis, gap), weight), lost
    if vector is not None:
        each = blocks.matrix.unsqueeze(lead + 2).flatten(lead + 2, -2).movedim(-2, lead + 1)  # [.., places, rows, last]
        radius = blocks.values(vector.unsqueeze(-1), last=1).flatten(lead + 1)
        norms = spectral(each)
        total = (norms * radius).sum(dim=-1)
        inverse, less = _inverse(norms), total < weight
        own = root_of(radius * inverse).repeat_interleave(each.shape[-1], dim=-1)
        share = torch.where(less.unsqueeze(-1), own, share)
        left_out = torch.where(inverse > 0, 0, norms * radius).sum(dim=-1)
        weight, bound = torch.minimum(weight, total), torch.minimum(bound, total)
        rest = rest + torch.where(less, left_out, 0)
    return Length(bound + lost, rest, weight, matrix * share.unsqueeze(-2))


def _inverse(x: Tensor) -> Tensor:
    """`1 / x`, 0 where x is so small that its square is no normal number."""
    counts = x > math.sqrt(least(x))
    return torch.where(counts, 1 / torch.where(counts, x, 1), 0)


class _Blocks(NamedTuple):
    """The rows along an axis as matrices `[instances | 1, *lead, rows, *N]`, one for each of their other coordinates,
    on those entries of N alone that they can meet: of an axis of N that is linked to one of `lead` it is one."""

    part: Coefficients
    matrix: Tensor

    @staticmethod
    def of(part: Coefficients, axis: int) -> _Blocks:
        a = _met(part)
        own = a.links[axis]
        a = a if own is None else a.unlink(own.axis)
        rows, links, matrix = _last(a.rows, axis), _last(a.links, axis), a.tensor[0].movedim(1 + axis, len(a.rows))
        for row, link in enumerate(links):
            if link is not None:
                matrix = matrix.transpose(1 + row, 1 + len(rows) + link.axis)
        shape = [-1 if link is not None else size for size, link in zip(rows, links, strict=True)]
        sizes = [1 if a.linked(b) is not None else size for b, size in enumerate(a.node)]
        return _Blocks(replace(part, rows=rows, links=_last(part.links, axis)), matrix.expand(-1, *shape, *sizes))

    def values(self, value: Tensor, last: int | None = None) -> Tensor:
        """Values `[instances | 1, *axes of the node]` there: `[instances | 1, *lead, *N]`, the last axis of the given
        size if there is one."""
        part, lead = self.part, len(self.part.rows) - 1
        links = part.links[:-1]
        for a, link in enumerate(part.links):
            if link is not None and value.shape[1 + link.axis] != 1:
                value = value.narrow(1 + link.axis, link.offset, part.rows[a])
        value = value.reshape(value.shape[0], *(1,) * lead, *value.shape[1:])
        for row, link in enumerate(links):
            if link is not None:
                value = value.transpose(1 + row, 1 + lead + link.axis)
        sizes = list(self.matrix.shape[2 + lead :])
        sizes[-1] = sizes[-1] if last is None else last
        return value.expand(*value.shape[: 1 + lead], *sizes)


def _last(items: tuple[T, ...], axis: int) -> tuple[T, ...]:
    """With one of them behind the others."""
    return (*items[:axis], *items[axis + 1 :], items[axis])


def _met(part: Coefficients) -> Coefficients:
    """The same rows on those entries of the node alone that they can meet: those in their window."""
    node, links = list(part.node), list(part.links)
    for a, link in enumerate(part.links):
        if link is not None:
            node[link.axis], links[a] = part.rows[a], Link(link.axis, 0)
    return replace(part, node=tuple(node), links=tuple(links))


def _worst(part: Coefficients, axis: int, gap: Tensor) -> Tensor:
    """`| |M| g |_2`: every row with the worst signs for itself."""
    return norm(part.contract_abs(gap)[0], 2.0, dim=1 + axis)

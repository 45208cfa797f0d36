"""The engine: one backward sweep to anchors.

To bound a node, start with the identity on it and substitute backwards, op by op. Nodes with a known linear form in
the perturbation are anchors: there the sweep stops, and the functions that arrive on different paths are *added*; the
norm is taken once, at the end. The methods of the paper differ only in which nodes are anchors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .bounding import Bounding
from .coefficients import Coefficients, SplitSlope
from .deadline import Deadline
from .form import Form, Substitution, halves
from .graph import fold
from .graph.graph import Graph, Input, Node
from .joint import Products
from .local import sizes
from .ops.base import Box, MeasuredBox, Parameters, Planes, Reach, Shape, entries, ulp
from .ops.movement import Movement
from .ops.rounded import MOST, Rounded
from .reach import along_itself, by_form, by_sweeps, rounded, vectors
from .relaxation import Scheme
from .rounding import SLACK, UNDERFLOW, gamma, least, load, rounded_down, terms, tiny, too_long, too_many
from .scores import both_signs, diagonal, with_diagonal
from .sets import Perturbation
from .speed.memory import TEMPORARIES, Footprints, Window, Windows, room_of
from .sweep import sweep

Start = Callable[[Shape, Tensor, Window], Coefficients]  # rows on a node within a window


class _Parts(NamedTuple):
    """What sweeps over windows of rows found: linear functions, or the numbers they come to."""

    windows: Windows
    functions: list[Tensor]
    offsets: list[Tensor]
    boxes: list[Box]


@dataclass(eq=False, kw_only=True)
class Engine:
    """Bounds of the nodes of one graph over one batch of balls. Nodes are bounded when they are asked for.

    `Problem.engine` makes those that prove anything. Whatever a bound rests on is given: nothing has a default.
    """

    scheme: Scheme
    ball: Perturbation
    nominal: list[Tensor]  # every node's value at the unperturbed input
    rounding: bool  # account for the rounding of the sweeps themselves
    parameters: Parameters  # of the planes; the usual ones of nodes that have none here
    memory: int  # bytes that one sweep may use
    footprints: Footprints
    deadline: Deadline

    by_windows: ClassVar[bool] = True  # rows are bounded window by window, and of two opposite ones one
    boxes: dict[int, Box] = field(init=False, default_factory=dict)
    forms: dict[int, Form] = field(init=False, default_factory=dict)
    products: Products = field(init=False, default_factory=Products)
    substitutions: dict[int, Substitution] = field(init=False, default_factory=dict)
    tangents: dict[int, Substitution] = field(init=False, default_factory=dict)
    around: dict[tuple[int, int], Reach] = field(init=False, default_factory=dict)  # middles of their own, by axis
    lengths: dict[int, Tensor] = field(init=False, default_factory=dict)  # how far nodes get from their middles
    sizes: dict[int, Tensor] = field(init=False, default_factory=dict)
    local_sizes: dict[int, Tensor] = field(init=False, default_factory=dict)
    gaps: dict[int, Tensor] = field(init=False, default_factory=dict)
    errors: dict[int, Tensor] = field(init=False, default_factory=dict)
    failures: list[tuple[Tensor, str]] = field(init=False, default_factory=list)  # who is good, why the others not
    peak: int = field(init=False, default=0)  # the most entries the last sweep held at once
    most: int = field(init=False, default=0)  # the most that any sweep did
    largest: Tensor = field(init=False)  # the largest size of any node, by instance

    def __post_init__(self) -> None:
        self.largest = self.ball.centre.new_zeros(self.ball.centre.shape[0])

    @property
    def graph(self) -> Graph:
        return self.scheme.graph

    @property
    def reasons(self) -> list[str | None]:
        """For each instance why nothing can be said of it, the first reason there was; None where all is well."""
        if not self.failures:
            return [None] * self.ball.centre.shape[0]
        return first_reasons(torch.stack([good for good, _ in self.failures]), [why for _, why in self.failures])

    # ---- what is known of a node -------------------------------------------------------------------------------

    def box(self, node: Node) -> Box:
        """Numbers that enclose every entry of a node."""
        if node.index not in self.boxes:
            box = self._box(node)
            self.boxes[node.index] = self._without_nan(node, box) if node.perturbed else box
        return self.boxes[node.index]

    def _without_nan(self, node: Node, box: Box) -> Box:
        """A NaN compares false with everything, so an op would not notice it: the instance ends here."""
        return self._kept(box, ~torch.isnan(box.lower + box.upper), f"the bounds of {node} are not numbers")

    def _note(self, good: Tensor, why: str) -> None:
        """A check that instances may have failed, and what that means; nothing waits for the answer."""
        self.failures.append((good.expand(self.ball.centre.shape[0]), why))

    def _kept(self, box: Box, good: Tensor, why: str) -> Box:
        """A box whose instances fail, and are zeros from here on, where any of their entries is not good."""
        good = entries(good).all(dim=1)
        self._note(good, why)
        keep = good.reshape(-1, *(1,) * (box.lower.dim() - 1))
        lower, upper = torch.where(keep, box.lower, 0), torch.where(keep, box.upper, 0)
        return MeasuredBox(lower, upper, box.reach) if isinstance(box, MeasuredBox) else Box(lower, upper)

    def _box(self, node: Node) -> Box:
        if not node.perturbed:
            value = self.nominal[node.index]
            return Box(value, value)
        if self.scheme.by_inputs(node):
            return self._interval(node)
        form: Form | None = None
        if node.index in self.scheme.anchors:
            self.form(node)
            box = self.boxes[node.index]
        else:
            box, form = self._bound(node)
            if form is not None and self.products.wants(self, node):
                self.products.forms[node.index] = form
        if self.scheme.style.intersect and not node.op.exact and not isinstance(node.op, Rounded):
            box = box.met(self._interval(node))
        if form is not None and node.index in self.scheme.bent:  # around the middle of what is left of the box
            self.lengths[node.index] = by_form(self, node, box.centre, form).distance
        return box

    def _interval(self, node: Node) -> Box:
        if isinstance(node.op, Rounded):
            return node.op.widened(self.box(self.graph.nodes[node.inputs[0]]), self.error(node))
        return node.op.interval(*(self.box(p) for p in self.graph.parents(node)))

    def form(self, node: Node) -> Form:
        """The linear form of an anchor."""
        if node.index not in self.forms:
            source = self.scheme.moved_from(node)
            if source is not None:
                self.forms[node.index] = self.form(source).map(node)
            else:
                self.boxes[node.index], form = self._bound(node)
                assert form is not None
                self.forms[node.index] = form
        return self.forms[node.index]

    def _bound(self, node: Node) -> tuple[Box, Form | None]:
        """Box and, where it is wanted, form of a node, with how far it gets from the middle where that is wanted."""
        box, form = self._swept(node)
        if node.index in self.scheme.measured:
            assert form is not None
            box = MeasuredBox(box.lower, box.upper, self._reach(node, box, form))
        return box, form

    def _swept(self, node: Node) -> tuple[Box, Form | None]:
        """Box and form by sweeps: the better box of with and without shifting probabilities."""
        box, form = self._rows(node, shift=True)
        if self.scheme.twice(node):
            plain, _ = self._rows(node, shift=False)
            box = box.met(plain)
        if self.scheme.by_tangents(node):
            other, found = self._rows(node, shift=True, tangent=True)
            box, form = box.met(other), found if node.index in self.scheme.bent else form
        return box, form

    def _reach(self, node: Node, box: Box, form: Form) -> Reach:
        """How far a node gets from the middle of its box."""
        own = self.scheme.style.tangents
        swept = by_sweeps(self, node, box, own=own)
        reach = swept.least(by_form(self, node, box.centre if swept.middle is None else swept.middle, form))
        if not own or reach.middle is None:
            return reach
        return reach.least(rounded(Reach(reach.distance, along_itself(self, node, reach.middle)), node.shape[-1]))

    def ends(self, node: Node, rows: Coefficients, *, tangent: bool) -> Box:
        """The least and the greatest values of rows on a node."""
        return self._ends(*self.sweep(node, rows, shift=True, tangent=tangent))

    def furthest(self, function: Tensor) -> Tensor:
        """The most that linear functions `[instances, m, *rows]` can be away from 0: `[instances, *rows]`."""
        low, high = self.ball.extremes(function[None])
        return torch.maximum(-low, high)[0]

    def _rows(self, node: Node, *, shift: bool, tangent: bool = False) -> tuple[Box, Form | None]:
        """Bounds of every entry of a node, a window of rows at a time where memory asks for it."""
        wanted = self._wanted(node)
        scores = self.scheme.pairs(node) if self.by_windows else None
        if scores is not None:
            pairs = scores.shape[-1] * (scores.shape[-1] - 1) // 2
            parts = self._windows(
                scores, (*scores.shape[:-1], pairs), Coefficients.pairs, node, shift=shift, tangent=tangent
            )
            return both_signs(self._joined(parts, node), scores.shape[-1]), None
        apart = self.by_windows and not wanted and node.index in self.scheme.apart
        parts = self._windows(node, node.shape, Coefficients.identity, node, shift=shift, tangent=tangent, apart=apart)
        if self.by_windows and not wanted:
            box, form = self._joined(parts, node), None
            if apart:
                few = (math.prod(node.shape[:-1]),)
                own = self._windows(node, few, diagonal, node, shift=shift, tangent=tangent)
                box = with_diagonal(box, self._joined(own, node))
        else:
            function, offset = parts.windows.joined(parts.functions, 3), parts.windows.joined(parts.offsets, 2)
            box, form = self._concretize(function, offset, node), self._form(node, function, offset) if wanted else None
        floor = rounded_down(self.graph.floors[node.index], box.lower)
        return Box(box.lower.clamp(min=floor), box.upper), form

    def _wanted(self, node: Node) -> bool:
        """Whether the linear form of a node is wanted."""
        index = node.index
        if index in self.scheme.anchors or index in self.scheme.measured:
            return True
        return self.products.wants(self, node) or (index in self.scheme.bent and self.products.small(self, node))

    def _windows(
        self, start: Node, shape: Shape, rows: Start, node: Node, *, shift: bool, tangent: bool, apart: bool = False
    ) -> _Parts:
        """Sweeps from `start` with rows `[*shape]` for the bounds of a node, window by window.

        What a window found is kept where a linear form is wanted; else it is made into numbers at once.
        """
        instances = self.ball.centre.shape[0]
        room = max(1, room_of(self.memory, self.ball.centre) // TEMPORARIES)
        key = (node.index, self.rounding, len(shape))
        windows = Windows(shape, self.footprints.per_slice(key) * instances)
        if not windows.per_slice:
            dense = 2 * instances * math.prod(shape) * max(math.prod(n.shape) for n in self.graph.nodes)
            windows.per_slice = math.ceil(dense / windows.slices) if dense <= room else 0
        parts = _Parts(windows, [], [], [])
        at_once = self.by_windows and not self._wanted(node)
        while (window := windows.next(room)) is not None:
            own = rows(start.shape, self.ball.centre, window)
            function, offset = self.sweep(start, own, shift=shift, tangent=tangent, apart=apart)
            windows.used(self.peak)
            if at_once:
                parts.boxes.append(self._ends(function, offset))
            else:
                parts.functions.append(function)
                parts.offsets.append(offset)
        self.footprints.note(key, math.ceil(windows.per_slice / instances))
        return parts

    def _joined(self, parts: _Parts, node: Node) -> Box:
        lower, upper = (parts.windows.joined([box[side][None] for box in parts.boxes], 2)[0] for side in (0, 1))
        return self._finite(Box(lower, upper), node)

    def margins(self, rows: Tensor) -> Box:
        """Bounds of `rows @ output` for rows `[instances, k, *output shape]`."""
        for kind, node in self.scheme.steps:
            if kind == "planes":
                self.substitution(node)
            elif kind == "form":
                self.form(node)
            else:
                self.box(node)
        node = self.graph.output
        box = self._concretize(*self.sweep(node, Coefficients.matrix(rows, node.shape), shift=True), node)
        if self.scheme.last_twice:
            plain = self._concretize(*self.sweep(node, Coefficients.matrix(rows, node.shape), shift=False), node)
            box = box.met(plain)
        if self.scheme.by_tangents(node):
            joint = self.sweep(node, Coefficients.matrix(rows, node.shape), shift=True, tangent=True)
            box = box.met(self._concretize(*joint, node))
        return box

    def _concretize(self, function: Tensor, offset: Tensor, node: Node) -> Box:
        return self._finite(self._ends(function, offset), node)

    def _ends(self, function: Tensor, offset: Tensor) -> Box:
        """The least and the greatest values of two linear functions over the set."""
        low, high = self.ball.extremes(function)
        lower, upper = offset[0] + low[0], offset[-1] + high[-1]
        if self.rounding:
            size = high if self.ball.symmetric else self.ball.magnitude(function)
            slack = size * gamma(lower, self.ball.dimension + SLACK) + self._vanished(lower)
            lower, upper = lower - slack[0], upper + slack[-1]
        return Box(lower, upper)

    def _finite(self, box: Box, node: Node) -> Box:
        finite = torch.isfinite(box.lower) & torch.isfinite(box.upper)
        return self._kept(box, finite, f"the bounds of {node} overflow")

    def _vanished(self, like: Tensor) -> Tensor:
        """What coefficients that underflowed on the way could have added: they would have met these sizes."""
        largest = self.largest.reshape(-1, *(1,) * (like.dim() - 1))
        return UNDERFLOW * tiny(like) * (1 + largest)

    # ---- the sweep ---------------------------------------------------------------------------------------------

    def sweep(
        self, start: Node, rows: Coefficients, *, shift: bool, tangent: bool = False, apart: bool = False
    ) -> tuple[Tensor, Tensor]:
        """`rows` on `start` as linear functions of the perturbation, by the usual planes of ops or by tangents; what
        two positions have of them added up or kept apart.

        Returns coefficients `[side, instance, m, *rows]` and offsets `[side, instance, *rows]`.
        """
        self.deadline.check()
        ready = self.tangent if tangent else self.substitution
        bounding = Bounding(self, start, rows, shift=shift, ready=ready, apart=apart)
        sweep(self.graph, start, rows, bounding)
        self.peak = bounding.peak
        self.most = max(self.most, self.peak)
        return bounding.result

    def marked(self, node: Node) -> tuple[Tensor | None, int]:
        """Which positions of the input or of a local node vary, None where all do, and the axis they run along."""
        local = self.scheme.local.get(node.index)
        if local is None:
            return (None if self.ball.whole else self.ball.hot), self.ball.axis
        return local.marked(self.ball, node), local.axis

    def substitution(self, node: Node) -> Substitution:
        """An op's planes over the boxes of its inputs."""
        if node.index not in self.substitutions:
            self.substitutions[node.index] = self._substituted(node, self._planes(node))
        return self.substitutions[node.index]

    def tangent(self, node: Node) -> Substitution:
        """An op's planes of equal slopes, whose remainder is small as a vector; its usual ones where it has none."""
        if node.index not in self.tangents:
            planes = None
            if self.scheme.style.tangents and not node.op.exact and not isinstance(node.op, Rounded):
                planes = node.op.tangent(*vectors(self, node))
            ready = self.substitution(node) if planes is None else self._substituted(node, planes)
            self.tangents[node.index] = ready
        return self.tangents[node.index]

    def _planes(self, node: Node) -> Planes:
        parents = self.graph.parents(node)
        if isinstance(node.op, Rounded):
            return node.op.around(self.error(node), node.shape)
        if node.op.exact:
            boxes = tuple(Box.blank(p.shape, self.ball.centre) for p in parents)
        else:
            boxes = tuple(self.box(p) for p in parents)
        settings = self.parameters.get(node.index)
        if node.op.checked is not None and not self.scheme.style.unchecked:
            settings = (settings or node.op.parameters(*boxes))[: node.op.checked]
        planes = node.op.planes(*boxes) if settings is None else node.op.tuned(settings, *boxes)
        valid = node.op.valid(*boxes)
        if valid is not None:
            self._note(valid, f"{node} is not defined on the whole range of its input")
        return planes

    def _substituted(self, node: Node, planes: Planes) -> Substitution:
        """Planes as a sweep uses them."""
        parents, whole, offset, gap = self.graph.parents(node)[: len(planes.slopes)], planes, None, None
        if not node.op.exact:
            offset, gap = halves(self._deviation(node, planes, 0), self._deviation(node, planes, 1))
            folded = fold(self.graph, node, planes)
            if folded is not None:
                planes, parents = folded
        slack = None
        if self.rounding:
            slack = self.slack(node, self._load(node, planes, parents), terms(planes, node.shape))
        return Substitution(planes, parents, tuple(SplitSlope.of(s) for s in planes.slopes), offset, gap, slack, whole)

    def _deviation(self, node: Node, planes: Planes, side: int) -> Tensor:
        """The offset of a plane in deviations: its value at the nominal inputs, less the op's."""
        offset = planes.upper if side else planes.lower
        total = -self.nominal[node.index] if offset is None else offset - self.nominal[node.index]
        for k, (slope, parent) in enumerate(zip(planes.slopes, self.graph.parents(node), strict=False)):
            total = total + load(planes, k, self.nominal[parent.index], slope.upper if side else slope.lower)
        return total

    def gap(self, node: Node) -> Tensor:
        """How far apart the planes of a node are in the middle of the boxes of its inputs."""
        if node.index not in self.gaps:
            ready = self.substitution(node)
            assert ready.offset_gap is not None
            gap = 2 * ready.offset_gap
            for k, (s, parent) in enumerate(zip(ready.whole.slopes, self.graph.parents(node), strict=False)):
                if s.upper is not s.lower:
                    away = self.box(parent).centre - self.nominal[parent.index]
                    gap = gap + load(ready.whole, k, away, s.upper - s.lower)
            self.gaps[node.index] = gap.clamp(min=0)
        return self.gaps[node.index]

    # ---- the evaluation that is bounded, where it rounds ---------------------------------------------------------

    def error(self, node: Node) -> Tensor:
        """How far a rounded node may be from the exact value of its op: `[instances | 1, *shape]` or broadcast."""
        assert isinstance(node.op, Rounded)
        if node.index not in self.errors:
            error = node.op.error(*(self._enclosure(self.graph.nodes[i]) for i in node.reads))
            good = error < MOST  # and not where it is not a number
            self._note(good.flatten(1).all(dim=1), node.op.reason(node.path))
            self.errors[node.index] = torch.where(good, error, 0)
        return self.errors[node.index]

    def _enclosure(self, node: Node) -> Box:
        """The box of a node, or a wider one where that would take a sweep of its own."""
        if node.index in self.boxes:
            return self.boxes[node.index]
        size = self.magnitude(node)
        return Box(-size, size)

    # ---- rounding ----------------------------------------------------------------------------------------------

    def magnitude(self, node: Node) -> Tensor:
        """A bound on the size of every entry of a node over the set, good enough to scale rounding errors."""
        if node.index not in self.sizes:
            self.sizes[node.index] = size = self._magnitude(node)
            self.largest = torch.maximum(self.largest, entries(size).amax(dim=1))
        return self.sizes[node.index]

    def _magnitude(self, node: Node) -> Tensor:
        if isinstance(node.op, Input):
            box = self.ball.box()
        elif not node.perturbed:
            return self.nominal[node.index].abs()
        elif node.index in self.boxes:
            box = self.boxes[node.index]
        elif isinstance(node.op, Movement):
            return node.op.forward(*(self.magnitude(p) for p in self.graph.parents(node)))
        elif isinstance(node.op, Rounded):
            return self.magnitude(self.graph.nodes[node.inputs[0]]) + self.error(node)
        elif node.op.exact:
            return self._load(node, self.substitution(node).planes, self.graph.parents(node))
        else:
            box = node.op.interval(*(self.box(p) for p in self.graph.parents(node)))
        size = torch.maximum(box.lower.abs(), box.upper.abs())
        return torch.maximum(size, self.nominal[node.index].abs())  # a piece of a ball may lie aside of it

    def _load(self, node: Node, planes: Planes, sources: tuple[Node, ...]) -> Tensor:
        """`sum_k |c_k| |x_k|_max + |b|`: what is added up in evaluating a node's planes."""
        total = sum(
            (load(planes, k, self.magnitude(p)) for k, p in enumerate(sources)), start=self.ball.centre.new_zeros(())
        )
        for offset in (planes.lower, planes.upper):
            if offset is not None:
                total = total + offset.abs()
        return total.expand(total.shape[0], *node.shape)

    def arrival_slack(self, node: Node) -> Tensor | None:
        """The rounding of what ends at the input or at a local node: of the way between the two."""
        local = self.scheme.local.get(node.index)
        if local is None:
            return self.slack(node, self.magnitude(node))
        if node.index not in self.local_sizes:
            size, largest = sizes(self.graph, local, self.magnitude(self.graph.nodes[0]), self.nominal)
            self.local_sizes[node.index] = size
            self.largest = torch.maximum(self.largest, largest)
        return self.slack(node, self.local_sizes[node.index], local.terms)

    def slack(self, node: Node, size: Tensor | None, inner: int = 1) -> Tensor | None:
        """The gap that stands for the rounding of one step whose terms add up to `size`.

        Twice: in pulling coefficients through it, and in computing the nominal value.
        """
        if not self.rounding:
            return None
        assert size is not None, f"{node}: no size to scale rounding by"
        count = math.prod(node.shape) + inner + len(self.graph.nodes) + SLACK
        if too_many(size, count):
            self._note(torch.zeros_like(self.largest, dtype=torch.bool), too_long(node, size))
            return None
        return 2 * (size + least(size)) * gamma(size, count)

    def _form(self, node: Node, function: Tensor, offset: Tensor) -> Form:
        """The two sides of a sweep's result as centre and gap."""
        offset = offset - self.nominal[node.index]
        centre, gap, middle, half = function[0], None, offset[0], None
        if function.shape[0] > 1:
            centre, gap = (function[0] + function[1]) / 2, (function[1] - function[0]) / 2
        if offset.shape[0] > 1:
            middle, half = (offset[0] + offset[1]) / 2, (offset[1] - offset[0]) / 2
        if not self.rounding:
            return Form(centre, gap, middle, half, None)
        size = self.ball.magnitude(centre[None])[0] + middle.abs() + self.nominal[node.index].abs()
        size = size + self._vanished(size) / ulp(size)  # coefficients that underflowed, whatever meets the form
        if gap is not None:
            size = size + self.ball.magnitude(gap[None])[0]
        if half is not None:
            size = size + half.abs()
        return Form(centre, gap, middle, half, size)


def first_reasons(good: Tensor, whys: list[str]) -> list[str | None]:
    """For each instance the first of the checks `[checks, instances]` that failed, in words."""
    if bool(good.all()):
        return [None] * good.shape[1]
    return [None if all(passed) else whys[passed.index(False)] for passed in good.T.tolist()]

"""The engine: one backward sweep to anchors.

To bound a node, start with the identity on it and substitute backwards, op by op. Nodes with a known linear form in
the perturbation are anchors: there the sweep stops, and the functions that arrive on different paths are *added*; the
norm is taken once, at the end. The methods of the paper differ only in which nodes are anchors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .coefficients import Chosen, Coefficients, SplitSlope
from .form import Form, Ready
from .graph.graph import Graph, Input, Node
from .local import Local, sizes
from .ops.base import Box, MeasuredBox, Planes
from .ops.linear import Add, Scale, Shift
from .ops.movement import Expand, Movement
from .ops.softmax import fold
from .reach import by_form, by_sweeps
from .rounding import SLACK, UNDERFLOW, gamma, load, rounded_down, terms, tiny
from .sets import Perturbation
from .speed.kernels import with_sides
from .speed.memory import Windows

Parameters = dict[int, tuple[Tensor, ...]]  # node -> what its op's planes are chosen by, [instances, ...]


@dataclass(frozen=True)
class Style:
    """What a relaxation does beyond the planes of its ops."""

    intersect: bool = False  # boxes with the exact range of the op
    simplex: bool = False  # shift the coefficients on a row of probabilities, which sum to 1
    both: bool = False  # bound with and without that shift, and keep the better
    sweep_differences: bool = False  # bound differences of scores one by one
    sweep_probabilities: bool = True  # bound probabilities by sweeps, not only by their range


PAPER = Style()
TIGHT = Style(intersect=True, simplex=True, both=False, sweep_differences=True, sweep_probabilities=False)


@dataclass
class Engine:
    """Bounds of the nodes of one graph over one batch of balls. Nodes are bounded when they are asked for."""

    graph: Graph
    ball: Perturbation
    anchors: frozenset[int]
    rest: list[Tensor]  # every node's value at the unperturbed input
    style: Style = PAPER
    rounding: bool = True  # account for the rounding of the sweeps themselves
    budget: int = 1 << 31  # bytes that one sweep may use
    parameters: Parameters = field(default_factory=dict)  # of the planes; the usual ones where there are none
    boxes: dict[int, Box] = field(default_factory=dict)
    forms: dict[int, Form] = field(default_factory=dict)
    ready: dict[int, Ready] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)
    local_sizes: dict[int, Tensor] = field(default_factory=dict)
    gaps: dict[int, Tensor] = field(default_factory=dict)
    footprints: dict[tuple[int, bool], int] = field(default_factory=dict)  # entries per slice and instance, by node
    peak: int = 0  # the most entries the last sweep held at once
    most: int = 0  # the most that any sweep did
    measured: frozenset[int] = frozenset()  # nodes whose distance from the middle is wanted
    differences: frozenset[int] = frozenset()  # nodes that hold differences of scores
    local: dict[int, Local] = field(default_factory=dict)  # nodes at which every sweep may stop
    failures: list[tuple[Tensor, str]] = field(default_factory=list)  # which instances are good, and why the others not

    largest: Tensor = field(init=False)  # the largest size of any node, by instance

    def __post_init__(self) -> None:
        self.largest = self.ball.centre.new_zeros(self.ball.centre.shape[0])
        self.measured = frozenset(i for n in self.graph.nodes if n.op.distances for i in n.inputs)
        self.differences = frozenset(n.inputs[0] for n in self.graph.nodes if n.op.simplex)

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

    def _kept(self, box: Box, entries: Tensor, why: str) -> Box:
        """A box whose instances fail, and are zeros from here on, where any of their entries is not good."""
        good = entries.flatten(1).all(dim=1)
        self._note(good, why)
        keep = good.reshape(-1, *(1,) * (box.lower.dim() - 1))
        lower, upper = torch.where(keep, box.lower, 0), torch.where(keep, box.upper, 0)
        return MeasuredBox(lower, upper, box.reach) if isinstance(box, MeasuredBox) else Box(lower, upper)

    def _box(self, node: Node) -> Box:
        if not node.perturbed:
            value = self.rest[node.index]
            return Box(value, value)
        if self._carries(node) or self._by_interval(node):
            return self._interval(node)
        if node.index in self.anchors:
            self.form(node)
            box = self.boxes[node.index]
        else:
            box = self._bound(node)[0]
        if self.style.intersect and not node.op.exact:
            other = self._interval(node)
            box = Box(torch.maximum(box.lower, other.lower), torch.minimum(box.upper, other.upper))
        return box

    def _interval(self, node: Node) -> Box:
        return node.op.interval(*(self.box(p) for p in self.graph.parents(node)))

    def _by_interval(self, node: Node) -> bool:
        """Whether the box of a node is taken from its inputs' boxes: probabilities, and differences where too many."""
        if node.op.simplex:
            return not self.style.sweep_probabilities
        return node.index in self.differences and not self.style.sweep_differences

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
                self.boxes[node.index], form = self._bound(node)
                assert form is not None
                self.forms[node.index] = form
        return self.forms[node.index]

    def _bound(self, node: Node) -> tuple[Box, Form | None]:
        """Box and, where it is wanted, form of a node; the better box of with and without shifting probabilities."""
        box, form = self._rows(node, shift=True)
        if self.style.both and self._above_attention(node):
            plain, _ = self._rows(node, shift=False)
            box = Box(torch.maximum(box.lower, plain.lower), torch.minimum(box.upper, plain.upper))
        if node.index in self.measured:
            assert form is not None
            box = MeasuredBox(box.lower, box.upper, by_form(self, node, box, form).least(by_sweeps(self, node, box)))
        return box, form

    def _above_attention(self, node: Node) -> bool:
        return any(n.op.simplex for n in self.graph.nodes[: node.index])

    def _rows(self, node: Node, *, shift: bool) -> tuple[Box, Form | None]:
        """Bounds of every entry of a node, a window of rows at a time where memory asks for it."""
        instances = self.ball.centre.shape[0]
        room = max(1, self.budget // (4 * self.ball.centre.element_size()))  # a few temporaries come on top
        key = (node.index, self.rounding)
        windows = Windows(node.shape, self.footprints.get(key, 0) * instances)
        if not windows.per_slice:
            dense = 2 * instances * math.prod(node.shape) * max(math.prod(n.shape) for n in self.graph.nodes)
            windows.per_slice = math.ceil(dense / node.shape[windows.axis]) if dense <= room else 0
        functions, offsets = [], []
        while (window := windows.next(room)) is not None:
            self.peak = 0
            start = Coefficients.identity(node.shape, self.ball.centre, window)
            function, offset = self.sweep(node, start, shift=shift)
            windows.used(self.peak)
            functions.append(function)
            offsets.append(offset)
        self.footprints[key] = math.ceil(windows.per_slice / instances)
        function, offset = windows.joined(functions, 3), windows.joined(offsets, 2)
        box = self._concretize(function, offset, node)
        floor = rounded_down(self.graph.floors[node.index], box.lower)
        wanted = node.index in self.anchors or node.index in self.measured
        return Box(box.lower.clamp(min=floor), box.upper), self._form(node, function, offset) if wanted else None

    def margins(self, rows: Tensor) -> Box:
        """Bounds of `rows @ output` for rows `[instances, k, *output shape]`."""
        for node in self.graph.nodes:  # in order, so that no sweep has to wait inside another
            if node.perturbed and not node.op.exact:
                self.planes(node)
            if node.index in self.anchors and node.index not in self.local:
                self.form(node)
        node = self.graph.output
        box = self._concretize(*self.sweep(node, Coefficients.matrix(rows, node.shape)), node)
        if self.style.simplex:  # the shift does not always pay: take the better of with and without
            plain = self._concretize(*self.sweep(node, Coefficients.matrix(rows, node.shape), shift=False), node)
            box = Box(torch.maximum(box.lower, plain.lower), torch.minimum(box.upper, plain.upper))
        return box

    def _concretize(self, function: Tensor, offset: Tensor, node: Node) -> Box:
        low, high = self.ball.extremes(function)
        lower, upper = offset[0] + low[0], offset[-1] + high[-1]
        if self.rounding:
            reach = high if self.ball.symmetric else self.ball.reach(function)
            slack = reach * gamma(lower, self.ball.dimension + SLACK) + self._vanished(lower)
            lower, upper = lower - slack[0], upper + slack[-1]
        finite = torch.isfinite(lower) & torch.isfinite(upper)
        return self._kept(Box(lower, upper), finite, f"the bounds of {node} overflow")

    def _vanished(self, like: Tensor) -> Tensor:
        """What coefficients that underflowed on the way could have added: they would have met these sizes."""
        largest = self.largest.reshape(-1, *(1,) * (like.dim() - 1))
        return UNDERFLOW * tiny(like) * (1 + largest)

    # ---- the sweep ---------------------------------------------------------------------------------------------

    def sweep(self, start: Node, rows: Coefficients, *, shift: bool = True) -> tuple[Tensor, Tensor]:
        """`rows` on `start` as linear functions of the perturbation.

        Returns coefficients `[side, instance, m, *rows]` and offsets `[side, instance, *rows]`.
        """
        function: Tensor | None = None
        value = self.rest[start.index]
        offset = _applied(None, rows, value, self._slack(start, value.abs()))
        frontier: dict[int, list[Coefficients]] = {start.index: [rows]}
        chosen: dict[int, list[Chosen]] = {}  # at nodes where only the positions that vary matter
        for index in range(start.index, -1, -1):
            parts, ahead = frontier.pop(index, []), chosen.pop(index, [])
            if not parts and not ahead:
                continue
            node = self.graph.nodes[index]
            self.peak = max(self.peak, sum(p.tensor.numel() for ps in (parts, *frontier.values()) for p in ps))
            self.most = max(self.most, self.peak)
            if not node.perturbed:
                slack = self._slack(node, self.rest[index].abs())
                offset = _widened(offset, parts, slack)
            elif isinstance(node.op, Input) or index in self.local:
                local = self.local.get(index)
                hot, axis = self.marked(node)
                for a in (*(Chosen(part.select(hot, axis)) for part in parts), *ahead):
                    moved = a.tensor if local is None else local.carried(a.tensor)
                    function = _sum(function, moved.reshape(*moved.shape[:2], -1, *rows.rows))
                if self.rounding:
                    offset = _widened(offset, parts, self.arrival_slack(node))
            elif index in self.anchors and index != start.index:
                form, whole = self.form(node), _merged(parts)
                function = _applied(function, whole, form.centre, form.gap, "X")
                offset = _applied(offset, whole, form.offset, _sum(form.offset_gap, self._slack(node, form.size)))
            else:
                offset = self._substitute(node, parts, frontier, chosen, offset, shift)
        if function is None:
            function = self.ball.centre.new_zeros((1, self.ball.centre.shape[0], self.ball.dimension, *rows.rows))
        return function, offset

    def _substitute(
        self,
        node: Node,
        parts: list[Coefficients],
        frontier: dict[int, list[Coefficients]],
        chosen: dict[int, list[Chosen]],
        offset: Tensor,
        shift: bool,
    ) -> Tensor:
        """Replace a node by its op's planes in its inputs."""
        parents = self.graph.parents(node)
        if not node.op.exact:
            parts = [_merged(parts)]
        if shift and node.op.simplex and self.style.simplex and parts[0].linked(len(node.shape) - 1) is None:
            shifted, constant = parts[0].shifted(self._gap(node))  # the sum does not deviate, whatever its factor
            ones = self.ball.centre.new_ones((1, *constant.node))
            parts, offset = [shifted], _widened(offset, [constant], self._slack(node, ones))
        for part in parts:
            pulled = node.op.pull(part, tuple(p.shape for p in parents))
            if pulled is None:
                ready = self.planes(node)
                parents = ready.sources
                pulled = tuple(self._pulled(part, ready, k, chosen) for k in range(len(parents)))
            if not node.op.exact:
                offset = self._add_offset(node, self.planes(node), part, offset)
            elif isinstance(node.op, Expand):  # copies add up
                offset = _widened(offset, [part], self._slack(node, self.magnitude(node)) if self.rounding else None)
            elif self.rounding and not isinstance(node.op, Movement):
                offset = _widened(offset, [part], self.planes(node).slack)
            for parent, a in zip(parents, pulled, strict=True):
                if a is not None:
                    _join(frontier.setdefault(parent.index, []), a)
        return offset

    def _pulled(self, part: Coefficients, ready: Ready, k: int, chosen: dict[int, list[Chosen]]) -> Coefficients | None:
        """Coefficients on the k-th source, or None where only those at the positions that vary were computed."""
        source, split = ready.sources[k], ready.slopes[k]
        if not self.rounding and (source.index in self.local or isinstance(source.op, Input)):
            found = part.pull_at(ready.planes, k, split, *self.marked(source))
            if found is not None:
                chosen.setdefault(source.index, []).append(found)
                return None
        return part.pull(ready.planes, k, source.shape, split)

    def marked(self, node: Node) -> tuple[Tensor, int]:
        """Which positions of the input or of a local node vary, and the axis they run along."""
        local = self.local.get(node.index)
        return (self.ball.hot, self.ball.axis) if local is None else (local.marked(self.ball.hot, node), local.axis)

    def _add_offset(self, node: Node, ready: Ready, part: Coefficients, offset: Tensor) -> Tensor:
        """The offsets of a node's planes, entry by entry or, where it is less, as a vector."""
        remainder = ready.planes.remainder
        assert ready.offset is not None
        if remainder is None or ready.offset_gap is None or part.linked(len(node.shape) - 1) is not None:
            return _applied(offset, part, ready.offset, _sum(ready.offset_gap, ready.slack))
        spread = torch.minimum(part.contract_abs(ready.offset_gap), part.contract_norm(remainder))
        offset = offset + with_sides(part.contract(ready.offset), spread)
        return _widened(offset, [part], ready.slack)

    def planes(self, node: Node) -> Ready:
        """An op's planes over the boxes of its inputs."""
        if node.index not in self.ready:
            parents = self.graph.parents(node)
            if node.op.exact:
                boxes = tuple(Box.blank(p.shape, self.ball.centre) for p in parents)
            else:
                boxes = tuple(self.box(p) for p in parents)
            settings = self.parameters.get(node.index)
            planes = node.op.planes(*boxes) if settings is None else node.op.tuned(settings, *boxes)
            valid = node.op.valid(*boxes)
            if valid is not None:
                self._note(valid, f"{node} is not defined on the whole range of its input")
            self.ready[node.index] = self._prepared(node, planes)
        return self.ready[node.index]

    def _prepared(self, node: Node, planes: Planes) -> Ready:
        """Planes as a sweep uses them."""
        parents, whole, offset, gap = self.graph.parents(node), planes, None, None
        if not node.op.exact:
            offset, gap = _split(self._deviation(node, planes, 0), self._deviation(node, planes, 1))
            folded = fold(self.graph, node, planes)
            if folded is not None:
                planes, parents = folded
        slack = None
        if self.rounding:
            slack = self._slack(node, self._load(node, planes, parents), terms(planes, node.shape))
        return Ready(planes, parents, tuple(SplitSlope.of(s) for s in planes.slopes), offset, gap, slack, whole)

    def _deviation(self, node: Node, planes: Planes, side: int) -> Tensor:
        """The offset of a plane in deviations from rest: its value at rest, less the op's."""
        offset = planes.upper if side else planes.lower
        total = -self.rest[node.index] if offset is None else offset - self.rest[node.index]
        for k, parent in enumerate(self.graph.parents(node)):
            slope = planes.slopes[k]
            total = total + load(planes, k, self.rest[parent.index], slope.upper if side else slope.lower)
        return total

    def _gap(self, node: Node) -> Tensor:
        """How far apart the planes of a node are in the middle of the boxes of its inputs."""
        if node.index not in self.gaps:
            ready = self.planes(node)
            assert ready.offset_gap is not None
            gap = 2 * ready.offset_gap
            for k, parent in enumerate(self.graph.parents(node)):
                s = ready.whole.slopes[k]
                gap = gap + load(ready.whole, k, self.box(parent).centre - self.rest[parent.index], s.upper - s.lower)
            self.gaps[node.index] = gap.clamp(min=0)
        return self.gaps[node.index]

    # ---- rounding ----------------------------------------------------------------------------------------------

    def magnitude(self, node: Node) -> Tensor:
        """A bound on the size of every entry of a node over the set, good enough to scale rounding errors."""
        if node.index not in self.sizes:
            self.sizes[node.index] = size = self._magnitude(node)
            self.largest = torch.maximum(self.largest, size.flatten(1).amax(dim=1))
        return self.sizes[node.index]

    def _magnitude(self, node: Node) -> Tensor:
        if isinstance(node.op, Input):
            box = self.ball.box()
        elif not node.perturbed:
            return self.rest[node.index].abs()
        elif node.index in self.boxes:
            box = self.boxes[node.index]
        elif isinstance(node.op, Movement):
            return node.op.forward(*(self.magnitude(p) for p in self.graph.parents(node)))
        elif node.op.exact:
            return self._load(node, self.planes(node).planes, self.graph.parents(node))
        else:
            box = node.op.interval(*(self.box(p) for p in self.graph.parents(node)))
        size = torch.maximum(box.lower.abs(), box.upper.abs())
        return torch.maximum(size, self.rest[node.index].abs())  # a piece of a ball may lie aside of the input at rest

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
        local = self.local.get(node.index)
        if local is None:
            return self._slack(node, self.magnitude(node))
        if node.index not in self.local_sizes:
            size = sizes(self.graph, local, self.magnitude(self.graph.nodes[0]), self.rest)
            self.local_sizes[node.index] = size
            self.largest = torch.maximum(self.largest, size.flatten(1).amax(dim=1))
        return self._slack(node, self.local_sizes[node.index], local.terms)

    def _slack(self, node: Node, size: Tensor | None, inner: int = 1) -> Tensor | None:
        """The gap that stands for the rounding of one step whose terms add up to `size`.

        Twice: in pulling coefficients through it, and in computing the value at rest.
        """
        if not self.rounding or size is None:
            return None
        return 2 * size * gamma(size, math.prod(node.shape) + inner + len(self.graph.nodes) + SLACK)

    def _form(self, node: Node, function: Tensor, offset: Tensor) -> Form:
        """The two sides of a sweep's result as centre and gap."""
        offset = offset - self.rest[node.index]
        if function.shape[0] == 1 and offset.shape[0] == 1:
            centre, gap, middle, half = function[0], None, offset[0], None
        else:
            centre, gap = (function[0] + function[-1]) / 2, (function[-1] - function[0]) / 2
            middle, half = (offset[0] + offset[-1]) / 2, (offset[-1] - offset[0]) / 2
        if not self.rounding:
            return Form(centre, gap, middle, half)
        size = self.ball.reach(centre[None])[0] + middle.abs() + self.rest[node.index].abs()
        if gap is not None and half is not None:
            size = size + self.ball.reach(gap[None])[0] + half.abs()
        return Form(centre, gap, middle, half, size)


def first_reasons(good: Tensor, whys: list[str]) -> list[str | None]:
    """For each instance the first of the checks `[checks, instances]` that failed, in words."""
    if bool(good.all()):
        return [None] * good.shape[1]
    return [None if all(passed) else whys[passed.index(False)] for passed in good.T.tolist()]


def _split(lower: Tensor | None, upper: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Two offsets as centre and half gap."""
    if lower is None or upper is None:
        return None, None
    return (lower, None) if lower is upper else ((lower + upper) / 2, (upper - lower) / 2)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _applied(total: Tensor | None, a: Coefficients, centre: Tensor, gap: Tensor | None, lead: str = "") -> Tensor:
    """Add `A centre ∓ |A| gap` to the running total of either side."""
    moved = a.contract(centre, lead)
    if gap is not None:
        moved = with_sides(moved, a.contract_abs(gap, lead))
    return moved if total is None else total + moved


def _widened(total: Tensor, parts: list[Coefficients], slack: Tensor | None) -> Tensor:
    """Take `|A| slack` off the lower side and add it to the upper one."""
    for part in parts if slack is not None else ():
        assert slack is not None
        total = with_sides(total, part.contract_abs(slack))
    return total


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

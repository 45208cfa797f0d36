"""The floor: what an evaluation must multiply and move, counted from the shapes of the graph alone.

Sweeps are those of the engine (`core/sweep.py`), from each node that it bounds so (`core/relaxation.py`) back to the
anchors and to the nodes that are one function of the input at every position, with the rows that share a coordinate
with a node stored once (see `core/coefficients.py`), but only shapes are carried. Where a sweep ends at such a node or
at the input, it needs the coefficients at the positions that vary and no others. A product over an axis counts two
operations for each pair of numbers; where the two planes of an op differ, the product of the centres and that of the
gaps both count. Every tensor that enters or leaves a product is moved once. Anything that touches each number alone
counts nothing, as if it were fused into its neighbours. So no faster program of the same method exists on a machine of
these rates, unless it leaves out something that is zero or that was computed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from .graph import fold
from .graph.graph import Graph, Input, Node, parent_like
from .joint import by_products, products_of_two
from .ops.base import Box, Planes, Shape, whole_axes
from .ops.linear import Center, Scale, Shift
from .ops.movement import Movement
from .ops.rounded import Rounded
from .relaxation import Scheme
from .scores import separate
from .sweep import Visitor, merged, sweep

if TYPE_CHECKING:
    from .problem import Problem


@dataclass(frozen=True)
class Rates:
    """Floating-point operations and bytes a second, and where the numbers come from."""

    flops: float
    bytes: float
    source: str


@dataclass
class Work:
    """The products of an evaluation: operations and numbers moved, one pair for each."""

    products: list[tuple[float, float]] = field(default_factory=list)
    carried: float = 0.0  # numbers that go through a node, whatever is done to them there
    width: int = 8  # bytes of a number

    @property
    def flops(self) -> float:
        return sum(f for f, _ in self.products)

    @property
    def bytes(self) -> float:
        return self.width * sum(n for _, n in self.products)

    def seconds(self, rates: Rates) -> float:
        """Each product by what limits it, operations or bytes."""
        return sum(max(f / rates.flops, self.width * n / rates.bytes) for f, n in self.products)


@dataclass(frozen=True)
class Rows:
    """The shape of coefficients on a node: `coefficients.Coefficients` without its numbers.

    `linked[b]` is the axis of the rows that axis b of the node shares its coordinate with; `stored[b]` the size in
    which that axis is held, 1 while the coefficients are the same all along it.
    """

    rows: Shape
    node: Shape
    linked: tuple[int | None, ...]
    stored: Shape
    sides: int = 1
    instances: int = 1

    @staticmethod
    def identity(shape: Shape) -> Rows:
        return Rows(shape, shape, tuple(a if s > 1 else None for a, s in enumerate(shape)), (1,) * len(shape))

    @staticmethod
    def pairs(shape: Shape) -> Rows:
        """Differences of two entries along the last axis, one of every two opposite ones."""
        *lead, n = shape
        linked = (*(a if s > 1 else None for a, s in enumerate(lead)), None)
        return Rows((*lead, n * (n - 1) // 2), shape, linked, (*(1,) * len(lead), n))

    @staticmethod
    def dense(rows: int, shape: Shape, instances: int) -> Rows:
        return Rows((rows,), shape, (None,) * len(shape), shape, instances=instances)

    @property
    def free(self) -> int:
        """How many rows there are beside those that the node's own axes tell."""
        return math.prod(s for a, s in enumerate(self.rows) if a not in self.linked)

    @property
    def size(self) -> int:
        return self.sides * self.instances * self.free * math.prod(self.stored)

    # what a `Movement` does to coefficients; nothing of it moves a number

    def permute(self, order: tuple[int, ...]) -> Rows:
        return replace(
            self,
            node=tuple(self.node[i] for i in order),
            linked=tuple(self.linked[i] for i in order),
            stored=tuple(self.stored[i] for i in order),
        )

    def reshape(self, old: Shape, new: Shape) -> Rows:
        whole = {b: a for a, b in whole_axes(old, new)}
        linked = tuple(self.linked[whole[b]] if b in whole else None for b in range(len(new)))
        stored = tuple(self.stored[whole[b]] if linked[b] is not None else s for b, s in enumerate(new))
        return replace(self, node=new, linked=linked, stored=stored)

    def pad(self, axis: int, before: int, size: int) -> Rows:
        if self.linked[axis] is not None:
            return self._with(axis, size, self.linked[axis], self.stored[axis])
        free = (a for a, s in enumerate(self.rows) if s == 1 and a not in self.linked)
        spare = next(free, None) if self.node[axis] == 1 < size else None
        return self._with(axis, size, spare, size if spare is None else 1)

    def extent(self, axis: int) -> int:
        """How many entries of an axis of the node the rows meet: those of a window where they are linked to it."""
        linked = self.linked[axis]
        return self.node[axis] if linked is None else min(self.node[axis], self.rows[linked])

    def narrow(self, axis: int, start: int, length: int) -> Rows:
        return self._with(axis, length, None, length)

    def collapse(self, axis: int) -> Rows:
        return self._with(axis, 1, None, 1)

    def scatter(self, axis: int, index: Tensor, node: Shape) -> Rows:
        return replace(self, node=node, linked=(None,) * len(node), stored=node)

    def unlink(self, axis: int) -> Rows:
        return self._with(axis, self.node[axis], None, self.node[axis])

    def at(self, axis: int, positions: int) -> Rows:
        """Those at some positions along an axis, and no others."""
        return self._with(axis, min(self.node[axis], positions), self.linked[axis], min(self.stored[axis], positions))

    def _with(self, axis: int, size: int, linked: int | None, stored: int) -> Rows:
        return replace(
            self,
            node=self.node[:axis] + (size,) + self.node[axis + 1 :],
            linked=self.linked[:axis] + (linked,) + self.linked[axis + 1 :],
            stored=self.stored[:axis] + (stored,) + self.stored[axis + 1 :],
        )

    def alike(self, other: object) -> bool:
        return isinstance(other, Rows) and self.linked == other.linked

    def __add__(self, other: Rows) -> Rows:
        whole = self
        for b, (x, y) in enumerate(zip(self.linked, other.linked, strict=True)):
            if x != y:
                whole = whole.unlink(b)
        stored = tuple(max(s, t) for s, t in zip(whole.stored, other.stored, strict=True))
        return replace(
            whole,
            stored=stored,
            sides=max(self.sides, other.sides),
            instances=max(self.instances, other.instances),
        )


def work_of(problem: Problem, *, instances: int | None = None) -> Work:
    """What one evaluation of all instances of a problem, or of so many, needs at least."""
    if problem.method == "ibp":
        return Work(width=problem.centre.element_size())
    return count(
        problem.scheme,
        instances=instances or len(problem),
        varying=max(len(p) for p in problem.positions),
        each=problem.centre.shape[-1],
        width=problem.centre.element_size(),
    )


def count(scheme: Scheme, *, instances: int, varying: int, each: int, width: int) -> Work:
    """The products of all sweeps of one evaluation; at `varying` positions of the input `each` number may vary."""
    counter = Counter(scheme, instances, varying, each, Work(width=width))
    for kind, node in scheme.steps:
        if kind != "planes":
            scores = scheme.pairs(node)
            start, rows = (node, Rows.identity(node.shape)) if scores is None else (scores, Rows.pairs(scores.shape))
            for _ in range(1 + scheme.twice(node) + scheme.by_tangents(node)):
                counter.apart = scores is None and node.index in scheme.apart
                sweep(scheme.graph, start, rows, counter)
                if counter.apart:  # and those of its diagonal, added up
                    counter.apart = False
                    sweep(scheme.graph, node, Rows.dense(math.prod(node.shape[:-1]), node.shape, 1), counter)
    last = scheme.graph.output
    for _ in range(1 + scheme.last_twice + scheme.by_tangents(last)):
        sweep(scheme.graph, last, Rows.dense(max(1, last.shape[-1] - 1), last.shape, instances), counter)
    return counter.work


@dataclass
class Counter(Visitor[Rows]):
    """Follows sweeps through a graph and enters every product."""

    scheme: Scheme
    instances: int
    varying: int
    each: int
    work: Work
    apart: bool = False  # whether what two positions have of a row is kept apart
    ready: dict[int, tuple[Planes, tuple[Node, ...]]] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.scheme.graph

    @cached_property
    def bent(self) -> frozenset[int]:
        """Nodes that are not affine in the input: their forms have a gap."""
        found: set[int] = set()
        for node in self.graph.nodes:
            if node.perturbed and (not node.op.exact or any(i in found for i in node.inputs)):
                found.add(node.index)
        return frozenset(found)

    def ends(self, node: Node) -> bool:
        return self._end(node) is not None

    def anchored(self, node: Node) -> bool:
        return node.index in self.scheme.anchors

    def _end(self, node: Node) -> int | None:
        """The axis of positions of a node at which every sweep ends, None of any other."""
        if isinstance(node.op, Input):
            return 1
        local = self.scheme.local.get(node.index)
        return None if local is None else local.axis

    def arrived(self, node: Node, parts: list[Rows]) -> None:
        axis = self._end(node)
        assert axis is not None
        for part in parts:
            self._carry(node, part.at(axis, self.varying), axis)

    def met(self, node: Node, parts: list[Rows]) -> None:
        self._meet(node, merged(parts))

    def through(self, node: Node, parts: list[Rows]) -> Iterator[tuple[Node, Rows]]:
        apart = node.op.exact or (self.apart and separate([part.linked for part in parts]))
        for part in parts if apart else [merged(parts)]:
            self.work.carried += part.size
            if node.index in self.scheme.products and part.linked[-1] is None:
                self._together(node, part)
            yield from self._pull(node, part)

    def _carry(self, node: Node, a: Rows, axis: int) -> None:
        """Coefficients on a node that is the same function of the input at every position, times that function.

        Where it only scales, shifts or centres, going through it is less than a product.
        """
        chain = self.scheme.local[node.index].chain if node.index else ()
        inner = math.prod(s for b, s in enumerate(a.node) if a.linked[b] is None and b != axis)
        if inner == 1 or all(isinstance(self.graph.nodes[i].op, (Movement, Scale, Shift, Center)) for i in chain):
            return
        held = math.prod(s for b, s in enumerate(a.node) if b != axis) * self.each
        self._enter(a.size * self.each, a.size + held + a.size // inner * self.each)

    def _meet(self, node: Node, a: Rows) -> None:
        """Coefficients on an anchor times its form."""
        gap = node.index in self.bent
        inner = math.prod(s for s, linked in zip(a.node, a.linked, strict=True) if linked is None)
        if inner == 1:
            return
        numbers = self.varying * self.each
        full = self.instances * numbers * math.prod(a.extent(b) for b in range(len(a.node)))
        sides = 2 if gap else a.sides
        self._enter(
            a.sides * a.free * full * (2 if gap else 1),
            a.size + full * (2 if gap else 1) + sides * self.instances * numbers * math.prod(a.rows),
        )

    def _together(self, node: Node, a: Rows) -> None:
        """What sums of entries of the right factor of a product take, looked at together (`joint.py`)."""
        x, y = self.graph.parents(node)
        at, _ = self.scheme.products[node.index]
        n, total = y.shape[-1] * (1 if at.index in self.scheme.local else 2), x.shape[-1]  # two functions of each
        squares = products_of_two(n) if by_products(n, total) else n * n
        batch = math.prod(max(s, 1 if a.linked[b] is not None else y.shape[b]) for b, s in enumerate(a.stored[:-2]))
        rows = 2 * self.instances * a.free * batch * a.stored[-2]
        self._enter(rows * total * (2 * n + squares), rows * (n + total + min(squares, total * n)))

    def _pull(self, node: Node, a: Rows) -> list[tuple[Node, Rows]]:
        parents = self.graph.parents(node)
        shapes = tuple(p.shape for p in parents)
        if isinstance(node.op, Movement):
            return list(zip(parents, node.op.pull(a, shapes), strict=True))
        if isinstance(node.op, Rounded):
            return [(parents[0], a)]
        if isinstance(node.op, Center):
            return [(parents[0], a.unlink(len(shapes[0]) - 1))]
        if node.index not in self.ready:
            planes = node.op.planes(*(Box.blank(p.shape, parent_like(node.op)) for p in parents))
            self.ready[node.index] = fold(self.graph, node, planes) or (planes, parents[: len(planes.slopes)])
        planes, sources = self.ready[node.index]
        return [(s, self._through(a, planes, k, s, node.op.exact)) for k, s in enumerate(sources)]

    def _through(self, a: Rows, planes: Planes, k: int, source: Node, exact: bool) -> Rows:
        """Through an op with these planes to its k-th source; where the sweep ends there, to what varies of it."""
        slope, shape = planes.slopes[k], source.shape
        gap = not exact and slope.upper is not slope.lower
        slopes = dict(zip(slope.axes, map(int, slope.lower.shape[1:]), strict=True))
        end = self._end(source)
        if end is not None:
            letter = slope.inputs[end]
            shape = shape[:end] + (min(self.varying, shape[end]),) + shape[end + 1 :]
            if letter in planes.outputs:
                a = a.at(planes.outputs.index(letter), self.varying)
            if letter in slopes:
                slopes[letter] = min(slopes[letter], self.varying)
        sizes = dict(zip(planes.outputs, a.stored, strict=True))
        linked = dict(zip(planes.outputs, a.linked, strict=True))
        for name, size in slopes.items():
            row = linked.get(name)
            sizes[name] = max(sizes.get(name, 1), size if row is None else min(size, a.rows[row]))
        links = tuple(linked.get(name) for name in slope.inputs)
        result = Rows(
            a.rows,
            shape,
            links,
            tuple(
                sizes.get(l, 1) if link is not None else s
                for l, link, s in zip(slope.inputs, links, shape, strict=True)
            ),
            sides=2 if gap else a.sides,
            instances=a.instances if exact else self.instances,
        )
        inner = math.prod(sizes[l] for l in planes.outputs if l not in slope.inputs and linked[l] is None)
        if inner > 1:
            volume = a.sides * result.instances * a.free * math.prod(sizes.values())
            held = math.prod(slopes.values()) * (1 if exact else self.instances * (2 if gap else 1))
            self._enter(volume * (2 if gap else 1), a.size + held + result.size)
        return result

    def _enter(self, pairs: float, moved: float) -> None:
        self.work.products.append((2.0 * pairs, float(moved)))

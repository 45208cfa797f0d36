"""How nodes are bounded: the methods, the relaxations, what "auto" chooses, and which nodes an evaluation sweeps from.

The methods of the paper differ only in which nodes are anchors, whose linear form a sweep uses instead of going on. The
relaxations differ in the planes of their ops and in what is done beyond them (`Style`).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from . import joint
from .graph import differences_of
from .graph.graph import Graph, Input, Node, parent_like
from .local import Local
from .names import BoundOptions, Method, Relaxation
from .ops.base import Box
from .ops.linear import Add, Scale, Shift
from .ops.movement import Movement
from .ops.rounded import Rounded
from .ops.sphere import OnSphere
from .scores import of_two_positions


@dataclass(frozen=True, kw_only=True)
class Style:
    """What a relaxation does beyond the planes of its ops."""

    intersect: bool  # boxes with the exact range of the op
    simplex: bool  # shift the coefficients on a row of probabilities, which sum to 1
    both: bool  # bound with and without that shift, and keep the better
    sweep_differences: int  # softmaxes, from the first, of which differences of scores are bounded one by one
    sweep_probabilities: bool  # bound probabilities by sweeps, not only by their range
    tangents: bool  # measure how far vectors get with planes of equal slopes and remainders that are vectors
    joint: bool  # sums of entries of the right factor of a product are bounded as such
    unchecked: bool  # planes beyond those that certificates know

    @property
    def checkable(self) -> Style:
        """Without what certificates cannot say."""
        return replace(self, tangents=False, joint=False, unchecked=False)


EVERY = sys.maxsize  # softmax
PAPER = Style(
    intersect=False,
    simplex=False,
    both=False,
    sweep_differences=0,
    sweep_probabilities=True,
    tangents=False,
    joint=False,
    unchecked=False,
)
TIGHT = Style(
    intersect=True,
    simplex=True,
    both=False,
    sweep_differences=EVERY,
    sweep_probabilities=False,
    tangents=True,
    joint=True,
    unchecked=True,
)
STYLES: Mapping[Relaxation, Style] = {"paper": PAPER, "tight": TIGHT}


class Plan(NamedTuple):
    """How an input is bounded."""

    method: Method
    style: Style


def choose(graph: Graph, options: BoundOptions, fits: Callable[[Style], bool]) -> Plan:
    """A method where none was named, and in how many layers differences of scores are bounded one by one.

    What is asked for by name is done in full, whatever it costs; only "auto" leaves out what the budget does not allow:
    `fits` says whether fully backward bounds of a style are among what it does.
    """
    method, relaxation = options.method, options.relaxation
    style = STYLES[relaxation]
    if relaxation == "paper":
        return Plan("backward-forward" if method == "auto" else method, style)
    full = replace(style, both=style.both or options.budget == "tight")
    if method == "backward" or (method == "auto" and fits(full)):
        return Plan("backward", full)
    if method == "auto" and fits(replace(full, sweep_differences=0)):
        more = range(1, len(_differences(graph)))
        fitting = bisect_left(more, True, key=lambda k: not fits(replace(full, sweep_differences=k)))
        return Plan("backward", replace(full, sweep_differences=fitting))
    return Plan("backward-forward" if method == "auto" else method, replace(style, sweep_differences=0))


def _differences(graph: Graph) -> tuple[int, ...]:
    """Nodes that hold what probabilities are functions of, in order: differences of scores, where those are taken."""
    return tuple(dict.fromkeys(n.inputs[0] for n in graph.nodes if n.op.simplex))


# ---- anchors -------------------------------------------------------------------------------------------------------


def anchors(graph: Graph, method: Method) -> frozenset[int]:
    """Nodes whose linear form a sweep uses instead of going on; of a value that is rounded, the rounded one."""
    later = {n.inputs[0]: n.index for n in graph.nodes if isinstance(n.op, Rounded)}
    return frozenset(later.get(i, i) for i in _anchors(graph, method))


def _anchors(graph: Graph, method: Method) -> frozenset[int]:
    """Nodes whose linear form a sweep uses instead of going on.

    forward: every node. backward: the input alone. backward-forward: the input, what mixes positions (from the
    products of queries and keys to the attention output), and what enters it (queries, keys, values).
    """
    perturbed = [n for n in graph.nodes if n.perturbed and not isinstance(n.op, Input)]
    if method == "forward":
        return frozenset(n.index for n in perturbed)
    if method == "backward":
        return frozenset()
    if method == "backward-forward":
        mixing = {n.index for n in perturbed if mixes(graph, n)}
        axes = graph.position_axes
        entering = {
            p
            for i in mixing
            for p in graph.nodes[i].inputs
            if graph.nodes[p].perturbed and p != 0 and len(axes[p]) <= 1
        }
        stages = mixing | entering
        for i in sorted(stages, reverse=True):  # a rearranged anchor takes its form from what it rearranges
            node = graph.nodes[i]
            while isinstance(node.op, Movement) and len(node.inputs) == 1 and node.inputs[0] != 0:
                node = graph.nodes[node.inputs[0]]
                stages.add(node.index)
        return frozenset(stages)
    raise ValueError(f"no anchors for the method {method!r}")


def mixes(graph: Graph, node: Node) -> bool:
    """Whether an entry of a node needs its inputs at several positions, or belongs to a pair of positions."""
    axes = graph.position_axes
    if isinstance(node.op, (Movement, Rounded)):
        return False
    if len(axes[node.index]) > 1 and not node.op.exact:
        return True
    planes = node.op.planes(*(Box.blank(p.shape, parent_like(node.op)) for p in graph.parents(node)))
    for slope, parent in zip(planes.slopes, node.inputs, strict=False):
        if any(slope.inputs[a] not in planes.outputs for a in axes[parent]):
            return True
    return False


# ---- what an evaluation does ---------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One step of an evaluation: a node's box or linear form by a sweep from it, or the planes of its op."""

    kind: Literal["box", "form", "planes"]
    node: Node


@dataclass(frozen=True, eq=False, kw_only=True)
class Scheme:
    """How each node of a graph is bounded, and in which order: what the engine does and what the benchmark counts."""

    graph: Graph
    anchors: frozenset[int]
    local: Mapping[int, Local]  # nodes at which every sweep may stop
    style: Style

    @cached_property
    def measured(self) -> frozenset[int]:
        """Nodes whose distance from the middle is wanted."""
        return frozenset(i for n in self.graph.nodes if n.op.distances for i in n.inputs)

    @cached_property
    def bent(self) -> frozenset[int]:
        """Nodes that functions which bend are taken of, whose distance from the middle of their box is wanted; what is
        measured has another middle."""
        if self.anchors:
            return frozenset()
        of_bends = {i for n in self.graph.nodes if n.op.bends for i in n.inputs} - self.measured
        nodes = (self.graph.nodes[i] for i in sorted(of_bends))
        return frozenset(n.index for n in nodes if n.perturbed and self.by_tangents(n) and not self.by_inputs(n))

    @cached_property
    def products(self) -> dict[int, tuple[Node, tuple[Node, ...]]]:
        """Products whose right factor is taken together, with the node that it rearranges, and by what."""
        if not self.style.joint or self.anchors:
            return {}
        found = joint.products(self.graph)
        return {i: (at, moves) for i, (at, moves) in found.items() if not self.by_inputs(at)}

    @cached_property
    def formed(self) -> frozenset[int]:
        """Nodes whose linear form is kept for the products they enter."""
        return frozenset(at.index for at, _ in self.products.values())

    @cached_property
    def unswept(self) -> frozenset[int]:
        """Nodes that hold differences of scores, and whose boxes are taken from the scores'."""
        return frozenset(_differences(self.graph)[self.style.sweep_differences :])

    def pairs(self, node: Node) -> Node | None:
        """The scores whose differences a node holds, where their sweep is from the scores: of `s_k - s_j` and its
        opposite one is enough, and no linear form is wanted."""
        if node.index in self.anchors or node.index in self.measured:
            return None
        scores = differences_of(self.graph, node)
        return scores if scores is not None and scores.shape[-1] > 1 else None

    @cached_property
    def apart(self) -> frozenset[int]:
        """Nodes whose rows belong to two positions each, and are followed to either on its own."""
        return frozenset(n.index for n in self.graph.nodes if of_two_positions(self.graph, n)) - self.anchors

    @cached_property
    def attention(self) -> int:
        """Where the first probabilities are; behind the last node if there are none."""
        return min((n.index for n in self.graph.nodes if n.op.simplex), default=len(self.graph.nodes))

    def by_inputs(self, node: Node) -> bool:
        """Whether the box of a node is taken from its inputs' boxes.

        Where that is exact (entries moved, scaled or shifted), for probabilities, and for differences where too many.
        """
        if isinstance(node.op, Rounded):
            (source,) = self.graph.parents(node)
            return not source.op.exact or self.by_inputs(source)
        if isinstance(node.op, Add):
            exact = not all(p.perturbed for p in self.graph.parents(node))
        else:
            exact = isinstance(node.op, (Movement, Scale, Shift))
        if exact or node.op.simplex:
            return exact or not self.style.sweep_probabilities
        return node.index in self.unswept

    def moved_from(self, node: Node) -> Node | None:
        """The anchor that an anchor takes its linear form from, which it only rearranges."""
        parents = self.graph.parents(node)
        if isinstance(node.op, Movement) and len(parents) == 1 and parents[0].index in self.anchors:
            return parents[0]
        return None

    def twice(self, node: Node) -> bool:
        """Whether a node is swept from with and without the shift of probabilities."""
        return self.style.both and self.attention < node.index

    def by_tangents(self, node: Node) -> bool:
        """Whether a node is swept from once more, by planes of equal slopes: where vectors are normalised."""
        vectors = bool(self.measured) or any(isinstance(n.op, OnSphere) for n in self.graph.nodes)
        return self.style.tangents and vectors and self.attention < node.index

    @property
    def last_twice(self) -> bool:
        """Whether the output is: the shift does not always pay."""
        return self.style.simplex

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Everything before the sweep from the output, in order, so that no sweep has to wait inside another."""
        steps: list[Step] = []
        boxed: set[int] = set()
        formed: set[int] = set()

        def enter(kind: Literal["box", "form"], node: Node) -> None:
            boxed.add(node.index)
            if node.index in self.anchors:
                formed.add(node.index)
            steps.append(Step(kind, node))

        def need(node: Node) -> None:
            if node.index in boxed or not node.perturbed:
                return
            if not self.by_inputs(node):
                enter("box", node)
                return
            boxed.add(node.index)
            for parent in self.graph.parents(node):
                need(parent)

        for node in self.graph.nodes:
            if node.perturbed and not node.op.exact:
                for parent in () if isinstance(node.op, Rounded) else self.graph.parents(node):
                    need(parent)
                steps.append(Step("planes", node))
            if node.index in self.anchors and node.index not in self.local:
                source = node
                while (further := self.moved_from(source)) is not None:
                    source = further
                if source.index not in formed:
                    enter("form", source)
        return tuple(steps)

"""The one backward loop: rows of linear functions on a node, substituted backwards through the graph.

    frontier = {start: rows}
    for each node from the start back to the input:
        what has arrived there is
            nothing that varies         -> `still`
            at an end of every sweep    -> `arrived`   the input, and what is the same function of it everywhere
            at a known linear form      -> `met`       an anchor
            else                        -> `through`   the op, to what it is a function of

What is carried, and what becomes of it at each kind of node, is the visitor's: bounds, distances, the matrices of
local nodes and the cost of an evaluation are all found by this loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from .graph.graph import Graph, Node


class Carried(Protocol):
    """Rows of linear functions of one node, or what stands for them."""

    def __add__(self: A, other: A, /) -> A: ...

    def alike(self: A, other: A) -> bool:
        """Whether adding up is entry by entry, so that it is done at once where two paths meet."""
        ...


A = TypeVar("A", bound=Carried)


class Visitor(ABC, Generic[A]):
    """What is done with rows on their way back."""

    @abstractmethod
    def ends(self, node: Node) -> bool:
        """Whether every sweep ends at this node."""

    def anchored(self, node: Node) -> bool:
        """Whether a linear form of this node is used in its place."""
        return False

    def join(self, parts: list[A], a: A) -> None:
        """Add to what has arrived at a node: summed at once where that is simple, side by side where not."""
        for i, part in enumerate(parts):
            if part.alike(a):
                parts[i] = part + a
                return
        parts.append(a)

    def holding(self, parts: Iterable[list[A]]) -> None:
        """All that the sweep holds before each step."""

    def still(self, node: Node, parts: list[A]) -> None:
        """At a node that does not vary."""

    @abstractmethod
    def arrived(self, node: Node, parts: list[A]) -> None:
        """At an end."""

    def met(self, node: Node, parts: list[A]) -> None:
        """At an anchor."""
        raise NotImplementedError(f"{node} is no anchor")

    @abstractmethod
    def through(self, node: Node, parts: list[A]) -> Iterable[tuple[Node, A]]:
        """Past an op: rows on each node that it is a function of."""


def sweep(graph: Graph, start: Node, rows: A, visitor: Visitor[A], beside: Mapping[int, A] | None = None) -> None:
    """Take rows on `start` back until nothing is left of them; `beside` are functions of earlier nodes to add."""
    frontier: dict[int, list[A]] = {i: [a] for i, a in (beside or {}).items()}
    visitor.join(frontier.setdefault(start.index, []), rows)
    for index in range(start.index, -1, -1):
        parts = frontier.pop(index, None)
        if parts is None:
            continue
        node = graph.nodes[index]
        visitor.holding((parts, *frontier.values()))
        if not node.perturbed:
            visitor.still(node, parts)
        elif visitor.ends(node):
            visitor.arrived(node, parts)
        elif visitor.anchored(node) and index != start.index:
            visitor.met(node, parts)
        else:
            for source, a in visitor.through(node, parts):
                visitor.join(frontier.setdefault(source.index, []), a)


def merged(parts: list[A]) -> A:
    """The sum of what has arrived side by side."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole


def add_up(parts: list[A], a: A) -> None:
    """What a visitor that needs one sum at every node joins by."""
    parts[:] = [merged([*parts, a])]

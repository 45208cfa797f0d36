"""The methods: which nodes are anchors."""

from __future__ import annotations

from .graph.graph import Graph, Input, Node
from .names import Method
from .ops.base import Box, Op
from .ops.movement import Movement


def anchors(graph: Graph, method: Method) -> frozenset[int]:
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
    if isinstance(node.op, Movement):
        return False
    if len(axes[node.index]) > 1 and not node.op.exact:
        return True
    planes = blank_planes(graph, node.op, node)
    for slope, parent in zip(planes, node.inputs, strict=True):
        if any(slope[0][a] not in slope[1] for a in axes[parent]):
            return True
    return False


def blank_planes(graph: Graph, op: Op, node: Node) -> list[tuple[str, str]]:
    """Names of each input's axes, and of the output's."""
    from .graph.graph import parent_like

    planes = op.planes(*(Box.blank(p.shape, parent_like(op)) for p in graph.parents(node)))
    return [(s.inputs, planes.outputs) for s in planes.slopes]

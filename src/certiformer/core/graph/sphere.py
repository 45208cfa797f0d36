"""The graph in the variables of `ops/sphere.py`, of models that do nothing with their input but normalise it."""

from __future__ import annotations

from torch import Tensor

from ..lowering import Ref
from ..ops.base import Op
from ..ops.linear import Add, Center, Shift
from ..ops.normalize import Normalize
from ..ops.sphere import Height, Tilted
from .build import Builder
from .graph import Constant, Graph, Lengths, Node, Rest
from .rewrite import rebuild


def on_sphere(graph: Graph, example: Tensor) -> Graph:
    """The same graph with its first normalisation as a tilt and a height; unchanged where that is not possible.

    Over sets of lengths (`Perturbation.lengths`) its values, at all inputs of the set and all heights in their range,
    are those of the model at all inputs of the set: bounds of one are bounds of the other. At one and the same input
    the two differ. Without lengths its values are those of the model.
    """
    found = _normalised(graph)
    if found is None:
        return graph
    last, before = found

    def replace(builder: Builder, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        if node.index != last.index:
            return None
        x = Ref(0)
        constants = builder.add(Rest(), x), builder.add(Lengths(), x)
        assert isinstance(node.op, Normalize)
        height = builder.add(Height(node.op.eps, before), x, *constants)
        return builder.add(Tilted(node.op.eps, before), x, height, *constants)

    return rebuild(graph, example, replace)


def _normalised(graph: Graph) -> tuple[Node, tuple[Op, ...]] | None:
    """The one normalisation that the input goes to, and what is done before: constants added, then centred or not."""
    node, before = graph.nodes[0], list[Op]()
    if len(node.shape) != 3:
        return None
    while node.index != graph.output.index:
        users = [n for n in graph.nodes if node.index in n.inputs or node.index in n.reads]
        if len(users) != 1 or users[0].shape != node.shape or users[0].reads:
            return None
        before_it, (node,) = node, users
        if isinstance(node.op, Normalize):
            return node, tuple(before)
        op = _added(graph, node, before_it)
        if op is None or (before and isinstance(before[-1], Center)):
            return None
        before.append(op)
    return None


def _added(graph: Graph, node: Node, source: Node) -> Op | None:
    """A node as a constant that is added to its source, or as its centring; None of anything else."""
    if isinstance(node.op, (Shift, Center)):
        return node.op
    others = [graph.nodes[i] for i in node.inputs if i != source.index]
    if not isinstance(node.op, Add) or len(others) != 1 or not isinstance(others[0].op, Constant):
        return None
    if node.inputs[0] == source.index:
        return Shift(node.op.sign * others[0].op.value) if abs(node.op.sign) == 1 else None
    return Shift(others[0].op.value) if node.op.sign == 1 else None

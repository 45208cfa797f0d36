"""The graph of what a forward pass in float32 computes: every op that rounds is followed by its error."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ..lowering import Ref
from ..ops.linear import Center
from ..ops.normalize import Normalize
from ..ops.rounded import LARGEST, Rounded, known, representable, rounds
from .build import Builder
from .graph import Constant, Graph, Input, Node


def in_float32(graph: Graph, example: Tensor) -> Graph:
    """A graph whose nodes are those of any float32 evaluation: behind every op that rounds a node for its error."""
    if graph.folded:
        raise _refused(f"it computes constants first, which float32 rounds otherwise: {', '.join(graph.folded[:3])}")
    builder = Builder(example)
    plain: list[Ref] = []  # each node as a real function of rounded inputs
    refs: list[Ref] = []  # and rounded itself
    for node in graph.nodes:
        builder.path = node.path
        _check(node)
        inputs = tuple(refs[i] for i in node.inputs)
        reads = inputs
        first = graph.nodes[node.inputs[0]] if node.inputs else node
        if isinstance(node.op, Normalize) and isinstance(first.op, Center):
            # one LayerNorm: its error is that of the whole, whichever way it is computed
            inputs = (plain[first.index],)
            reads = (plain[first.index], refs[first.inputs[0]])
        if isinstance(node.op, Input):
            plain.append(Ref(0))
        else:
            constant = isinstance(node.op, Constant)
            plain.append(builder.node(vars(node.op)["value"]) if constant else builder.add(node.op, *inputs))
        refs.append(_rounded(builder, node, plain[-1], reads))
    return builder.graph(refs[-1])


def _rounded(builder: Builder, node: Node, y: Ref, reads: tuple[Ref, ...]) -> Ref:
    if isinstance(node.op, Input):
        return builder.add(Rounded(), y, reads=(y,))
    if isinstance(node.op, Constant):
        return y if representable(node.op.value) else builder.add(Rounded(), y, reads=(y,))
    return builder.add(Rounded(node.op), y, reads=reads) if rounds(node.op) else y


def _check(node: Node) -> None:
    """Refuse what has no float32 value, or no known error."""
    op = node.op
    if not isinstance(op, (Input, Constant)) and rounds(op) and not known(op):
        raise _refused(f"the error of {node} is not known")
    if isinstance(op, Normalize) and op.eps == torch.finfo(torch.float64).eps:
        raise _refused(f"the eps of {node} is that of the precision it runs in; give it one")
    for f in fields(op):  # type: ignore[arg-type]
        value = getattr(op, f.name)
        if isinstance(value, Tensor) and value.is_floating_point() and not bool((value.abs() < LARGEST).all()):
            raise _refused(f"{node} holds numbers beyond float32")


def _refused(why: str) -> UnsupportedError:
    return UnsupportedError(f"arithmetic='float32': this model cannot be bounded as it runs in float32: {why}")

"""Rewrites of a graph into an equivalent one."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..lowering import Ref
from ..ops.base import OWN, Op, Planes, Shape, Slope
from ..ops.elementwise import Exp, Reciprocal, Sqrt, Square
from ..ops.linear import Add, Shift, Sum
from ..ops.movement import Concat, Reshape, Slice
from ..ops.normalize import Normalize
from ..ops.product import Multiply
from ..ops.rounded import Rounded
from ..ops.softmax import OfDifferences, Softmax, to_scores
from .build import Builder
from .graph import Constant, Graph, Input, Node, Peak


def rebuild(graph: Graph, example: Tensor, replace: Callable[[Builder, Node, tuple[Ref, ...]], Ref | None]) -> Graph:
    """Copy a graph node by node; where `replace` returns a node, it stands for the copy."""
    builder = Builder(example)
    refs: list[Ref] = []
    for node in graph.nodes:
        builder.path = node.path
        inputs = tuple(refs[i] for i in node.inputs)
        if isinstance(node.op, Input):
            refs.append(Ref(0))
        elif isinstance(node.op, Constant):
            refs.append(builder.node(node.op.value))
        else:
            reads = tuple(refs[i] for i in node.reads)
            refs.append(replace(builder, node, inputs) or builder.add(node.op, *inputs, reads=reads))
    return builder.graph(refs[-1])


def by_parts(graph: Graph, example: Tensor) -> Graph:
    """As the paper has it: softmax and normalisation as chains of functions of one variable and products."""

    def replace(builder: Builder, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        if isinstance(node.op, Softmax):
            return softmax_by_parts(builder, inputs[0])
        return normalize_by_parts(builder, inputs[0], node.op.eps) if isinstance(node.op, Normalize) else None

    return rebuild(graph, example, replace)


def by_differences(graph: Graph, example: Tensor) -> Graph:
    """Softmax as a function of the differences of scores, which are then bounded as such."""

    def replace(builder: Builder, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        if isinstance(node.op, Rounded) and isinstance(node.op.op, Softmax):
            return builder.add(Rounded(OfDifferences()), inputs[0], reads=builder.inputs(inputs[0]))
        return softmax_by_differences(builder, inputs[0]) if isinstance(node.op, Softmax) else None

    return rebuild(graph, example, replace)


def softmax_by_parts(build: Builder, x: Ref) -> Ref:
    """As the paper does it: exp, sum, reciprocal, product; scores shifted by their largest nominal value."""
    e = build.add(Exp(), build.add(Add(-1.0), x, build.add(Peak(), x)))
    total = build.add(Sum((len(build.shape(x)) - 1,)), e)
    return build.add(Multiply(), e, build.add(Reciprocal(), total))


def softmax_by_differences(build: Builder, x: Ref) -> Ref:
    """As a function of the differences `s_k - s_j`, which are bounded as such."""
    shape = build.shape(x)
    rows = build.add(Reshape((*shape[:-1], 1, shape[-1])), x)  # s_k
    columns = build.add(Reshape((*shape, 1)), x)  # s_j
    return build.add(OfDifferences(), build.add(Add(-1.0), rows, columns))


def normalize_by_parts(build: Builder, x: Ref, eps: float) -> Ref:
    """The paper's chain: square, mean, sqrt, reciprocal, product."""
    axis = len(build.shape(x)) - 1
    mean = build.add(Sum((axis,), mean=True), build.add(Square(), x))
    sigma = build.add(Sqrt(), build.add(Shift(build.constant(eps)), mean))
    return build.add(Multiply(), x, build.add(Reciprocal(), sigma))


def fold(graph: Graph, node: Node, planes: Planes) -> tuple[Planes, tuple[Node, ...]] | None:
    """Planes in the differences of scores as planes in the scores, with the node that holds those.

    `sum_k g_jk (s_k - s_j)` has the slope `g_jk` on `s_k` and `-sum_k g_jk` on `s_j`: n numbers a row, not n².
    """
    if not isinstance(node.op, OfDifferences):
        return None
    differences = graph.nodes[node.inputs[0]]
    if not (isinstance(differences.op, Add) and differences.op.sign == -1):
        return None
    rows, columns = graph.parents(differences)
    if not (isinstance(rows.op, Reshape) and isinstance(columns.op, Reshape) and rows.inputs == columns.inputs):
        return None
    if rows.shape[-2] != 1 or columns.shape[-1] != 1:  # s_j - s_k, not s_k - s_j
        return None
    (slope,) = planes.slopes
    inputs, axes = planes.outputs[:-1] + OWN[0], planes.outputs + OWN[0]
    moved = Slope(inputs, axes, to_scores(slope.lower), to_scores(slope.upper))
    return planes._replace(slopes=(moved,)), (graph.nodes[rows.inputs[0]],)


Cut = tuple[int, int, int]  # axis, start, length
UNUSED: Cut = (0, 0, 0)


def narrowed(graph: Graph, example: Tensor) -> Graph:
    """Compute only what is used: a slice of a node becomes a slice of its inputs, as far back as it goes.

    A classifier that reads the first position needs its last layer at that position alone.
    """
    cuts = _demands(graph)
    builder = Builder(example)
    refs: list[Ref] = []

    def cut_to(i: int, cut: Cut | None) -> Ref:
        """Node i of the old graph, cut as asked."""
        if cut is None or cuts[i] == cut:
            return refs[i]
        return builder.add(Slice(*cut), refs[i])

    for node in graph.nodes:
        builder.path = node.path
        if isinstance(node.op, Input) or cuts[node.index] == UNUSED:
            refs.append(Ref(0))
        elif isinstance(node.op, Constant):
            refs.append(builder.node(node.op.value))
        else:
            found = _cut(graph, node, cuts[node.index])
            assert found is not None
            op, wanted = found
            inputs = [cut_to(i, c) for i, c in wanted]
            refs.append(inputs[0] if op is None else builder.add(op, *inputs))
    return builder.graph(refs[-1])


def _cut(graph: Graph, node: Node, cut: Cut | None) -> tuple[Op | None, list[tuple[int, Cut | None]]] | None:
    """The op that gives a node cut as asked, and of which inputs it needs what; or None if there is none.

    Without an op it is the one input itself.
    """
    op = node.op
    if isinstance(op, Slice) and (cut is None or cut[0] == op.axis):
        start, length = (0, op.length) if cut is None else cut[1:]
        return None, [(node.inputs[0], (op.axis, op.start + start, length))]
    if cut is None:
        return op, [(i, None) for i in node.inputs]
    if isinstance(op, Concat) and cut[0] == op.axis:
        pieces = [(node.inputs[k], (op.axis, s, n)) for k, s, n in op.pieces(*cut[1:], _shapes(graph, node))]
        return (op if len(pieces) > 1 else None), [(i, _unless_whole(graph.nodes[i], c)) for i, c in pieces]
    found = op.narrowed(*cut, node.shape, _shapes(graph, node))
    if found is None:
        return None
    narrow, axes = found
    return narrow, [(i, None if a is None else (a, *cut[1:])) for i, a in zip(node.inputs, axes, strict=True)]


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return tuple(p.shape for p in graph.parents(node))


def _unless_whole(node: Node, cut: Cut) -> Cut | None:
    return None if cut[1:] == (0, node.shape[cut[0]]) else cut


def _demands(graph: Graph) -> list[Cut | None]:
    """For each node the one slice of it that all its users want, or None where they want it whole."""
    wanted: list[set[Cut | None]] = [set() for _ in graph.nodes]
    wanted[-1].add(None)
    cuts: list[Cut | None] = [None] * len(graph.nodes)
    for node in reversed(graph.nodes):
        asked = wanted[node.index]
        cut = next(iter(asked)) if len(asked) == 1 else None
        if not asked:
            cuts[node.index] = UNUSED
            continue
        found = _cut(graph, node, cut) if node.inputs else None
        if found is None:
            cut, found = None, _cut(graph, node, None)
            assert found is not None
        cuts[node.index] = cut
        for i, c in found[1]:
            wanted[i].add(c)
    return cuts

"""Rewrites of a graph into an equivalent one."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from ..lowering import Ref
from ..ops.base import OWN, Op, Planes, Shape, Slope
from ..ops.elementwise import Exp, Reciprocal, Sqrt, Square
from ..ops.linear import Add, Linear, Shift, Sum
from ..ops.movement import Concat, Reshape, Slice
from ..ops.normalize import Normalize
from ..ops.product import Multiply
from ..ops.rounded import Rounded
from ..ops.softmax import OfDifferences, Softmax, to_scores
from .build import Builder
from .graph import Constant, Graph, Input, Node, Peak

Replace = Callable[[Builder, Node, tuple[Ref, ...]], Ref | None]


def rebuild(graph: Graph, example: Tensor, replace: Replace, known: dict[int, Ref] | None = None) -> Graph:
    """Copy a graph node by node; where `replace` returns a node, it stands for the copy. `known` are those by then."""
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
        if known is not None:
            known[node.index] = refs[-1]
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
    scores = differences_of(graph, graph.nodes[node.inputs[0]]) if isinstance(node.op, OfDifferences) else None
    if scores is None:
        return None
    (slope,) = planes.slopes
    inputs, axes = planes.outputs[:-1] + OWN[0], planes.outputs + OWN[0]
    moved = Slope(inputs, axes, to_scores(slope.lower), to_scores(slope.upper))
    return planes._replace(slopes=(moved,)), (scores,)


def differences_of(graph: Graph, node: Node) -> Node | None:
    """The scores `[.., n]` of whose differences `s_k - s_j` a node `[.., j, k]` consists, if it does."""
    if not (isinstance(node.op, Add) and node.op.sign == -1):
        return None
    rows, columns = graph.parents(node)
    if not (isinstance(rows.op, Reshape) and isinstance(columns.op, Reshape) and rows.inputs == columns.inputs):
        return None
    scores = graph.nodes[rows.inputs[0]]
    lead, n = scores.shape[:-1], scores.shape[-1:]
    return scores if (rows.shape, columns.shape) == ((*lead, 1, *n), (*lead, *n, 1)) else None  # not s_j - s_k


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


def unstacked(graph: Graph, example: Tensor) -> Graph:
    """Linear maps whose outputs are only ever used in slices, as queries, keys and values often are, one by one."""
    users: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for i in node.inputs:
            users.setdefault(i, []).append(node)
    found = {n.index: own for n in graph.nodes if isinstance(n.op, Slice) and (own := _own_map(graph, n, users))}

    def replace(builder: Builder, node: Node, inputs: tuple[Ref, ...]) -> Ref | None:
        if node.index not in found:
            return None
        source, ops = found[node.index]
        ref = known[source]
        for op in ops:
            ref = builder.add(op, ref)
        return ref

    known: dict[int, Ref] = {}
    return rebuild(graph, example, replace, known) if found else graph


def _own_map(graph: Graph, cut: Node, users: dict[int, list[Node]]) -> tuple[int, list[Op]] | None:
    """What a slice is of the input of a linear map, by ops of its own: the node, and the ops from there on."""
    assert isinstance(cut.op, Slice)
    axis, start, length = cut.op.axis, cut.op.start, cut.op.length
    node, ops = graph.nodes[cut.inputs[0]], list[Op]()
    while all(isinstance(user.op, Slice) for user in users[node.index]) or len(users[node.index]) == 1:
        if isinstance(node.op, Linear):
            if axis != len(node.shape) - 1:
                return None
            bias = None if node.op.bias is None else node.op.bias.narrow(0, start, length)
            weight = node.op.weight.narrow(0, start, length).contiguous()
            return node.inputs[0], [Linear(weight, bias), *reversed(ops)]
        if isinstance(node.op, Reshape):
            below = _within(node.op, graph.parents(node)[0].shape, axis, start, length)
            if below is None:
                return None
            op, axis, start, length = below
        else:
            found = node.op.narrowed(axis, start, length, node.shape, _shapes(graph, node))
            if found is None or len(node.inputs) != 1 or found[1][0] is None:
                return None
            op, axis = found[0], found[1][0]
        ops.append(op)
        node = graph.nodes[node.inputs[0]]
    return None


def _within(op: Reshape, old: Shape, axis: int, start: int, length: int) -> tuple[Op, int, int, int] | None:
    """A slice of a reshape as the reshape of a slice, if its axis is the first of those that an axis was split into."""
    behind, before = math.prod(op.shape[axis + 1 :]), math.prod(op.shape[:axis])
    for b, size in enumerate(old):
        inner = behind // max(1, math.prod(old[b + 1 :]))
        if (
            math.prod(old[:b]) == before
            and inner * math.prod(old[b + 1 :]) == behind
            and size == op.shape[axis] * inner
        ):
            return Reshape((*op.shape[:axis], length, *op.shape[axis + 1 :])), b, start * inner, length * inner
    return None

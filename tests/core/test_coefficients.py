"""Linked rows against the same rows stored in full: sums, pulls to chosen positions, folded differences."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from certiformer.core import engine
from certiformer.core.coefficients import Coefficients, Link, SplitSlope
from certiformer.core.engine import Engine
from certiformer.core.graph import fold
from certiformer.core.ops.base import Box, Op
from certiformer.core.ops.linear import Add, Linear, Scale, Sum
from certiformer.core.ops.movement import Reshape
from certiformer.core.ops.product import MatMul, Multiply
from certiformer.core.ops.softmax import OfDifferences, to_scores
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model

Links = tuple[Link | None, ...]


def made(rows: tuple[int, ...], node: tuple[int, ...], links: Links, *, sides: int = 2, seed: int = 0) -> Coefficients:
    """Random coefficients; a linked axis of the node holds the window of rows."""
    generator = torch.Generator().manual_seed(seed)
    stored = list(node)
    for a, link in enumerate(links):
        if link is not None:
            stored[link.axis] = rows[a]
    free = [1 if link else s for s, link in zip(rows, links, strict=True)]
    tensor = torch.randn(sides, 3, *free, *stored, generator=generator, dtype=torch.float64)
    return Coefficients(tensor, rows, node, links)


def dense(a: Coefficients) -> Tensor:
    """All entries `[side, instance, *rows, *node]`, put where they belong one by one."""
    whole = a.tensor.new_zeros(*a.tensor.shape[:2], *a.rows, *a.node)
    for row in itertools.product(*map(range, a.rows)):
        for entry in itertools.product(*map(range, a.node)):
            at, stored = list(row), list(entry)
            for axis, link in enumerate(a.links):
                if link is not None:
                    at[axis], stored[link.axis] = 0, row[axis]
            if all(link is None or entry[link.axis] == row[i] + link.offset for i, link in enumerate(a.links)):
                sizes = a.tensor.shape[2:]
                place = tuple(min(i, s - 1) for i, s in zip((*at, *stored), sizes, strict=True))
                whole[(slice(None), slice(None), *row, *entry)] = a.tensor[(slice(None), slice(None), *place)]
    return whole


FREE = (None, None)
WINDOWS: list[Links] = [
    FREE,
    (Link(0, 0), None),
    (Link(0, 1), None),
    (None, Link(1, 2)),
    (Link(1, 1), None),
    (Link(0, 2), Link(1, 1)),
    (Link(1, 0), Link(0, 1)),
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("one", "other"), itertools.product(WINDOWS, repeat=2))
def test_sums_are_sums_of_what_is_stored_in_full(one: Links, other: Links, grad: bool) -> None:
    """Links on one, on the other, on both, the same or not, into windows of the node."""
    a, b = made((2, 3), (4, 5), one), made((2, 3), (4, 5), other, sides=1, seed=1)
    with torch.set_grad_enabled(grad):
        for x, y in ((a, b), (b, a)):
            kept = x.tensor.clone(), y.tensor.clone()
            total = x + y
            torch.testing.assert_close(dense(total), dense(x) + dense(y), rtol=0, atol=1e-12)
            assert all(link is None or (link in one and link in other) for link in total.links)
            assert torch.equal(x.tensor, kept[0])
            assert torch.equal(y.tensor, kept[1])


@pytest.mark.parametrize("grad", [False, True])
def test_a_sum_with_an_identity_or_what_is_spread_along_an_axis(grad: bool) -> None:
    window = ((1, 2), (0, 3))
    start = Coefficients.identity((4, 3), torch.zeros((), dtype=torch.float64), window)
    full = made((2, 3), (4, 3), (None, Link(1, 0)))
    spread = replace(full, tensor=full.tensor[..., :1].expand(*full.tensor.shape[:-1], 3))
    with torch.set_grad_enabled(grad):
        for other in (full, spread, start.unlink(0)):
            torch.testing.assert_close(dense(start + other), dense(start) + dense(other), rtol=0, atol=1e-12)


@pytest.mark.parametrize("links", [FREE, (Link(0, 0), None)])
@pytest.mark.parametrize("how", ["shifted", "balanced"])
def test_a_constant_taken_off_is_the_constant_that_is_given_back(how: str, links: Links) -> None:
    """On rows that sum to 1 both say the same, to the last bit; and the median leaves the least for the weights."""
    a = made((4, 3), (4, 5), links)
    weights = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    less, constant = getattr(a, how)(weights)
    assert constant.node == (4, 1)
    torch.testing.assert_close(dense(less) + dense(constant), dense(a), rtol=0, atol=1e-15)
    assert float(dense(constant).abs().max()) > 0.1
    if how == "shifted" and links == FREE:
        left = (dense(less).abs() * weights[:, None, None]).sum(-1)
        for other in dense(a).unbind(-1):  # a weighted median is one of the entries
            assert bool(((dense(a) - other[..., None]).abs() * weights[:, None, None]).sum(-1).ge(left - 1e-12).all())


@pytest.mark.parametrize("before", [0, 2])
def test_through_a_slice_of_one_entry_the_zeros_are_not_stored(before: int) -> None:
    """Rows with an axis of size 1 are linked to the entry; without one, or of more entries, zeros are put beside."""
    a = made((2, 1), (1, 5), FREE)
    expected = torch.zeros(2, 3, 2, 1, 4, 5, dtype=torch.float64)
    expected[..., before, :] = a.tensor[..., 0, :]
    found = a.pad(0, before, 4)
    assert found.links == (None, Link(0, before))
    assert found.tensor.numel() == a.tensor.numel()
    assert torch.equal(dense(found), expected)
    opened = found.opened(0)
    assert opened.links == FREE
    assert torch.equal(opened.tensor, expected)
    for other in (made((2, 2), (1, 5), FREE), made((2, 1), (2, 5), FREE), made((1, 3), (1, 5), (Link(0, 0), None))):
        padded = other.pad(0, before, 6)
        whole = torch.zeros(2, 3, *other.rows, 6, 5, dtype=torch.float64)
        whole[..., before : before + other.node[0], :] = dense(other)
        assert torch.equal(dense(padded), whole)


def random_box(shape: tuple[int, ...], seed: int) -> Box:
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    return Box(lower, lower + torch.rand(3, *shape, generator=generator, dtype=torch.float64))


WEIGHT = torch.randn(4, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
THREE = (None, None, None)
CASES: list[tuple[Op, tuple[tuple[int, ...], ...], int, int, Links]] = [
    # op, shapes of its inputs, which of them, its axis of positions, links of the rows to the output
    (Linear(WEIGHT), ((2, 6, 5),), 0, 1, THREE),
    (Linear(WEIGHT), ((2, 6, 5),), 0, 1, (None, None, Link(2, 0))),
    (Scale(WEIGHT[0, :4]), ((2, 6, 4),), 0, 1, THREE),
    (Sum((1,)), ((2, 6, 4),), 0, 1, (None, None, None)),
    (Sum((2,), mean=True), ((2, 6, 4),), 0, 1, (None, None, None)),
    (Add(), ((2, 6, 4), (6, 1)), 0, 1, THREE),
    (Add(-1.0), ((2, 6, 4), (6, 1)), 1, 0, THREE),
    (Multiply(), ((2, 6, 4), (2, 6, 4)), 0, 1, THREE),
    (Multiply(), ((2, 6, 4), (2, 6, 1)), 1, 1, (None, None, Link(2, 0))),
    (MatMul(), ((2, 6, 5), (2, 5, 4)), 0, 1, THREE),
    (MatMul(), ((2, 4, 6), (2, 6, 4)), 1, 1, (None, Link(1, 1), None)),
    (MatMul(), ((2, 4, 6), (2, 6, 4)), 0, 2, (None, None, Link(2, 0))),
    (MatMul(), ((2, 4, 5), (2, 5, 6)), 1, 2, (None, Link(1, 1), None)),
]


@pytest.mark.parametrize(("op", "shapes", "k", "axis", "links"), CASES)
@pytest.mark.parametrize("shared", [False, True])
def test_a_pull_to_chosen_positions_is_a_pull_and_a_choice(
    op: Op, shapes: tuple[tuple[int, ...], ...], k: int, axis: int, links: Links, shared: bool
) -> None:
    boxes = [random_box(s, seed) for seed, s in enumerate(shapes)]
    output = tuple(op.forward(*(b.lower for b in boxes)).shape[1:])
    if op.exact:
        boxes = [Box.blank(s, boxes[0].lower) for s in shapes]
    rows = tuple(
        3 if link is not None and output[link.axis] > 3 else s for link, s in zip(links, (2, 3, 4), strict=True)
    )
    a = made(rows, output, links)
    if shared:  # nothing depended on the instance so far
        a = replace(a, tensor=a.tensor[:1, :1])
    planes = op.planes(*boxes)
    split = SplitSlope.of(planes.slopes[k])
    hot = torch.zeros(3, 2, shapes[k][axis], dtype=torch.float64)
    hot[0, 0, 1] = hot[0, 1, 4] = hot[1, 0, 5] = hot[2, 1, 0] = 1  # the second and third instance mark one each
    found = a.pull_at(planes, k, split, hot, axis)
    assert found is not None
    expected = a.pull(planes, k, shapes[k], split).select(hot, axis)
    torch.testing.assert_close(found.tensor.expand_as(expected), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("op", "shapes", "k", "axis"), [case[:4] for case in CASES])
@pytest.mark.parametrize("at", [0, 3])
def test_a_pull_of_one_entry_is_that_of_it_between_zeros(
    op: Op, shapes: tuple[tuple[int, ...], ...], k: int, axis: int, at: int
) -> None:
    """Whichever op comes next, and what is met, chosen or added behind it."""
    boxes = [random_box(s, seed) for seed, s in enumerate(shapes)]
    output = tuple(op.forward(*(b.lower for b in boxes)).shape[1:])
    if op.exact:
        boxes = [Box.blank(s, boxes[0].lower) for s in shapes]
    planes = op.planes(*boxes)
    split = SplitSlope.of(planes.slopes[k])
    for where in range(len(output)):
        offset = min(at, output[where] - 1)
        a = made((3, 1), output, (None, Link(where, offset)))
        found, expected = (x.pull(planes, k, shapes[k], split) for x in (a, a.unlink(where)))
        torch.testing.assert_close(dense(found), dense(expected), rtol=0, atol=1e-12)
        value, lead = random_box(shapes[k], 7).lower, random_box((2, *shapes[k]), 8).lower
        for x, y in ((value, ""), (lead, "X")):
            torch.testing.assert_close(found.contract(x, y), expected.contract(x, y), rtol=0, atol=1e-12)
        hot = torch.zeros(3, 2, shapes[k][axis], dtype=torch.float64)
        hot[0, 0, offset % shapes[k][axis]] = hot[1, 1, 0] = hot[2, 0, -1] = 1
        one, other = found.select(hot, axis), expected.select(hot, axis)
        torch.testing.assert_close(one.expand_as(other), other, rtol=0, atol=1e-12)
        torch.testing.assert_close(dense(found + expected), 2 * dense(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["backward", "backward-forward"])
@pytest.mark.parametrize("layer_norm", ["no_var", "standard"])
def test_bounds_are_those_with_the_zeros_stored(method: Any, layer_norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(random_model(layers=2, scale=0.3, seed=6, layer_norm=layer_norm), IDS)
    problem = problem_of([(prepared, s) for s in ((1,), (2, 3))], p=2.0, method=method, relaxation="tight")
    eps = torch.tensor([0.02, 0.01], dtype=torch.float64)
    linked: list[int | None] = []
    real = Coefficients._spare

    def noted(self: Coefficients) -> int | None:
        linked.append(real(self))
        return linked[-1]

    monkeypatch.setattr(Coefficients, "_spare", noted)
    found = problem.margins(eps)
    assert any(a is not None for a in linked)
    monkeypatch.setattr(Coefficients, "_spare", lambda self: None)
    whole = problem.margins(eps)
    torch.testing.assert_close(found.lower, whole.lower, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.upper, whole.upper, rtol=1e-9, atol=1e-12)


def test_positions_that_rows_are_linked_to_or_that_are_copied_are_not_chosen() -> None:
    like = torch.zeros((), dtype=torch.float64)
    hot = torch.ones(3, 1, 6, dtype=torch.float64)
    planes = Linear(WEIGHT).planes(Box.blank((2, 6, 5), like))
    split = SplitSlope.of(planes.slopes[0])
    assert made((2, 3, 4), (2, 6, 4), (None, Link(1, 0), None)).pull_at(planes, 0, split, hot, 1) is None
    assert made((2, 3, 4), (2, 6, 4), (Link(0, 0), None, None)).pull_at(planes, 0, split, hot, 1) is None
    copied = Add().planes(Box.blank((2, 6, 4), like), Box.blank((2, 1, 4), like))
    split = SplitSlope.of(copied.slopes[1])
    assert made((2, 3, 4), (2, 6, 4), THREE).pull_at(copied, 1, split, hot[..., :1], 1) is None


def test_planes_in_differences_are_the_same_planes_in_scores() -> None:
    box = random_box((2, 4, 4), 3)
    planes = OfDifferences().planes(box)
    (slope,) = planes.slopes
    scores = torch.randn(3, 2, 4, dtype=torch.float64)
    differences = scores[:, :, None, :] - scores[:, :, :, None]
    for gradient in (slope.lower, slope.upper):
        expected = (gradient * differences).sum(dim=-1)
        found = (to_scores(gradient) * scores[:, :, None, :]).sum(dim=-1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["forward", "backward", "backward-forward"])
@pytest.mark.parametrize("layer_norm", ["no_var", "standard"])
def test_folded_bounds_are_those_of_sweeps_through_the_differences(
    method: Any, layer_norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(random_model(layers=2, scale=0.3, seed=6, layer_norm=layer_norm), IDS)
    problem = problem_of([(prepared, s) for s in ((1,), (2, 3))], p=2.0, method=method, relaxation="tight")
    eps = torch.tensor([0.02, 0.01], dtype=torch.float64)
    folded = problem.margins(eps, rounding=False)
    calls = []

    def whole(graph: Any, node: Any, planes: Any) -> None:
        calls.append(fold(graph, node, planes))

    monkeypatch.setattr(engine, "fold", whole)
    plain = problem.margins(eps, rounding=False)
    layers = sum(c is not None for c in calls)  # one a layer, and one more where lengths are measured by tangents
    assert layers == 2 if layer_norm != "standard" else layers > 2
    torch.testing.assert_close(folded.lower, plain.lower, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(folded.upper, plain.upper, rtol=1e-9, atol=1e-12)


def test_only_differences_of_one_tensor_are_folded() -> None:
    prepared = prepare(random_model(layers=1), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="backward", relaxation="tight")
    graph = problem.compiled.graph
    node = next(n for n in graph.nodes if isinstance(n.op, OfDifferences))
    planes = node.op.planes(Box.blank(graph.nodes[node.inputs[0]].shape, problem.centre))
    found = fold(graph, node, planes)
    assert found is not None
    (scores,) = found[1]
    differences = graph.nodes[node.inputs[0]]
    rows, columns = graph.parents(differences)
    assert isinstance(rows.op, Reshape)
    assert scores.index == rows.inputs[0] == columns.inputs[0]
    nodes = list(graph.nodes)
    nodes[columns.index] = replace(columns, inputs=(rows.index,))
    assert fold(replace(graph, nodes=tuple(nodes)), node, planes) is None
    nodes = list(graph.nodes)
    nodes[differences.index] = replace(differences, op=Add())
    assert fold(replace(graph, nodes=tuple(nodes)), node, planes) is None
    assert fold(graph, differences, planes) is None
    nodes = list(graph.nodes)
    nodes[differences.index] = replace(differences, inputs=differences.inputs[::-1])  # s_j - s_k
    assert fold(replace(graph, nodes=tuple(nodes)), node, planes) is None


def test_probabilities_are_shifted_without_a_box_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where differences are bounded one by one, each with its opposite, nothing asks for the scores themselves."""
    prepared = prepare(random_model(layers=2), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="backward", relaxation="tight")
    assert problem.style.sweep_differences
    started: dict[int, int] = {}
    real = Engine.sweep

    def sweep(self: Engine, start: Any, rows: Any, **options: Any) -> Any:
        started[start.index] = rows.rows[-1]
        return real(self, start, rows, **options)

    monkeypatch.setattr(Engine, "sweep", sweep)
    problem.margins(torch.tensor([0.01], dtype=torch.float64))
    graph = problem.compiled.graph
    differences = [graph.nodes[n.inputs[0]] for n in graph.nodes if isinstance(n.op, OfDifferences)]
    scores = [problem.scheme.pairs(node) for node in differences]
    assert [started[n.index] for n in scores if n is not None] == [len(IDS) * (len(IDS) - 1) // 2] * 2
    others = {n.index for n in graph.nodes if isinstance(n.op, MatMul) and n.shape[-1] == len(IDS)}
    assert not (others - {n.index for n in scores if n is not None}) & set(started)

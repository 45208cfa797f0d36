"""How far the input of a normalisation gets from the middle of its box, as a vector."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core import reach
from certiformer.core.coefficients import Coefficients
from certiformer.core.names import Method
from certiformer.core.reach import by_form
from certiformer.questions.inputs import prepare, problem_of

WIDTH = 24


class Block(nn.Module):
    """Attention, a wide hidden layer with GELU and standard LayerNorm: [batch, n, d] -> [batch, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, activation="gelu", batch_first=True, dropout=0.0)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(x).mean(dim=1))
        return logits


@pytest.fixture(scope="module")
def model() -> cf.Model:
    torch.manual_seed(0)
    return cf.Model(module=Block().double(), embed=nn.Embedding(10, WIDTH).double())


@pytest.mark.parametrize("method", ["backward", "backward-forward"])
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_every_point_is_within_the_distance(model: cf.Model, method: Method, norm: float) -> None:
    eps = {1.0: 0.4, 2.0: 0.2, float("inf"): 0.03}[norm]
    prepared = prepare(model, [1, 2, 3])
    problem = problem_of([(prepared, (0,)), (prepared, (1, 2))], p=norm, method=method, relaxation="tight")
    ball = problem.ball(torch.tensor([eps, eps / 2], dtype=torch.float64), [0, 1])
    engine, graph = problem.engine(ball, {}, rounding=True), problem.compiled.graph
    assert len(engine.scheme.measured) == 2
    with torch.no_grad():
        points = ball.sample(200, torch.Generator().manual_seed(0))  # [instances, count, 1, n, d]
        for index in sorted(engine.scheme.measured):
            box = engine.box(graph.nodes[index])
            reached, towards = box.distance, box.radial
            assert reached is not None
            assert towards is not None
            assert (towards <= reached).all()
            e = box.centre / torch.linalg.vector_norm(box.centre, dim=-1, keepdim=True)
            entries = torch.linalg.vector_norm(box.radius, dim=-1)
            assert (reached <= entries * (1 + 1e-9) + 1e-12).all()
            furthest, along = torch.zeros_like(reached), torch.zeros_like(reached)
            for k in range(points.shape[1]):
                z = graph.values(points[:, k])[index]
                furthest = torch.maximum(furthest, torch.linalg.vector_norm(z - box.centre, dim=-1))
                along = torch.maximum(along, ((z - box.centre) * e).sum(dim=-1).abs())
            assert (furthest <= reached).all()
            assert (along <= towards).all()
            assert (along > 0.05 * towards).any()
            assert (furthest > 0.05 * reached).any()


def test_remainders_are_not_added_up_with_the_worst_signs(model: cf.Model) -> None:
    """Behind a wide hidden layer the remainders of GELU are bounded as a vector: much less than entry by entry."""
    problem = problem_of([(prepare(model, [1, 2, 3]), (0,))], p=2.0, method="backward", relaxation="tight")
    ball = problem.ball(torch.tensor([0.3], dtype=torch.float64), [0])
    engine = problem.engine(ball, {}, rounding=True)
    with torch.no_grad():
        node = problem.compiled.graph.nodes[max(engine.scheme.measured)]
        box, form = engine._bound(node)
        assert box.distance is not None
        assert form is not None
        assert (box.distance[:, 0, 0] < 0.8 * by_form(engine, node, box.centre, form).distance[:, 0, 0]).all()


@pytest.mark.parametrize("window", [((2, 1), (0, 4)), ((1, 2), (0, 4)), ((0, 5), (0, 4)), ((3, 1), (1, 2))])
def test_remainders_are_those_of_the_rows_own_positions(window: tuple[tuple[int, int], ...]) -> None:
    """Rows that are linked to positions meet the remainders there, as they do where every zero is stored; each position
    is a vector of its own."""
    torch.manual_seed(0)
    like = torch.zeros(1, dtype=torch.float64)
    gap = torch.rand(1, 5, 4, dtype=torch.float64) + torch.arange(5.0, dtype=torch.float64)[:, None]
    part = Coefficients.identity((5, 4), like, window)
    linked = replace(part, tensor=torch.rand(1, 1, 1, 1, window[0][1], window[1][1], dtype=torch.float64) + 0.5)
    full = linked.unlink(0).unlink(1)
    vector = torch.linalg.vector_norm(gap, dim=-1)
    for given in (None, vector, 0.5 * vector):
        found, expected = (reach._length(each, 1, gap, vector=given) for each in (linked, full))
        assert found.shape == (1, window[0][1])
        assert torch.allclose(found, expected, rtol=1e-2)  # spectral norms are bounded, not computed
    seen = tuple(slice(start, start + count) for start, count in window)
    moved = linked.tensor[0, 0, 0, 0] * gap[0][seen]  # the remainder that reaches furthest
    assert (reach._length(linked, 1, gap)[0] >= torch.linalg.vector_norm(moved, dim=-1) * (1 - 1e-12)).all()


@pytest.mark.parametrize("shape", [(), (5,), (1, 7), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("most", [1, 2, 4, 6, 100])
def test_blocks_hold_every_place_once_and_no_more_than_fit(shape: tuple[int, ...], most: int) -> None:
    seen = torch.zeros(shape)
    for block in reach._blocks(shape, most):
        here = tuple(slice(start, start + length) for start, length in block)
        seen[here] += 1
        assert seen[here].numel() <= most
    assert (seen == 1).all()


def test_distances_are_the_same_in_little_memory(model: cf.Model) -> None:
    problem = problem_of([(prepare(model, [1, 2, 3, 4, 5, 6]), (0,))], p=2.0, method="backward", relaxation="tight")
    found = []
    for memory in (problem.memory, 2 * reach.HELD * 8 * WIDTH * 4 * 6 * 4 * WIDTH):  # all places at once, or four
        ball = problem.ball(torch.tensor([0.2], dtype=torch.float64), [0])
        engine = replace(problem, memory=memory).engine(ball, {}, rounding=True)
        with torch.no_grad():
            found.append([engine.box(problem.compiled.graph.nodes[i]).distance for i in sorted(engine.scheme.measured)])
    for whole, parts in zip(*found, strict=True):
        assert torch.isfinite(whole).all()
        assert torch.allclose(whole, parts, rtol=1e-12)

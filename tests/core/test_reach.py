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
        found, expected = (reach.length(each, 1, gap, vector=given).size for each in (linked, full))
        assert found.shape == (1, window[0][1])
        assert torch.allclose(found, expected, rtol=1e-2)  # spectral norms are bounded, not computed
    seen = tuple(slice(start, start + count) for start, count in window)
    moved = linked.tensor[0, 0, 0, 0] * gap[0][seen]  # the remainder that reaches furthest
    assert (reach.length(linked, 1, gap).size[0] >= torch.linalg.vector_norm(moved, dim=-1) * (1 - 1e-12)).all()


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


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("eps", [0.01, 0.4])
def test_no_gradient_gets_further_than_the_distances(model: cf.Model, norm: float, eps: float) -> None:
    """Points that are sent as far as they go from the middle, and along it."""
    eps *= {1.0: 2.0, 2.0: 1.0, float("inf"): 0.15}[norm]
    problem = problem_of(
        [(prepare(model, [1, 2, 3]), s) for s in ((0,), (1, 2))], p=norm, method="backward", relaxation="tight"
    )
    ball = problem.ball(torch.tensor([eps, eps / 2], dtype=torch.float64), [0, 1])
    engine, graph = problem.engine(ball, {}, rounding=True), problem.compiled.graph
    with torch.no_grad():
        boxes = {i: engine.box(graph.nodes[i]) for i in sorted(engine.scheme.measured)}
    generator = torch.Generator().manual_seed(1)
    for index, box in boxes.items():
        assert box.distance is not None
        assert box.radial is not None
        e = box.centre / torch.linalg.vector_norm(box.centre, dim=-1, keepdim=True)
        for along in (False, True):
            for _ in range(3):
                x = ball.sample(1, generator)[:, 0]
                for _ in range(12):
                    x = x.detach().requires_grad_(True)
                    away = graph.values(x)[index] - box.centre
                    far = (away * e).sum(dim=-1).abs() if along else torch.linalg.vector_norm(away, dim=-1)
                    assert (far <= (box.radial if along else box.distance)).all()
                    (step,) = torch.autograd.grad(far.flatten(1)[:, 0].sum(), x)
                    x = ball.centre + furthest_along(step, ball.hot, ball.eps, norm)


def furthest_along(step: Tensor, hot: Tensor, eps: Tensor, p: float) -> Tensor:
    """The point of balls around 0 that is furthest in a direction: `[instances, 1, n, d]`."""
    blocks = torch.einsum("zund,ztn->ztd", step, hot)
    if p == 2:
        size = torch.linalg.vector_norm(blocks, dim=-1, keepdim=True)
        unit = blocks / torch.where(size > 0, size, 1)
    elif p == 1:
        best = blocks.abs().argmax(dim=-1, keepdim=True)
        unit = torch.zeros_like(blocks).scatter(-1, best, blocks.gather(-1, best).sign())
    else:
        unit = blocks.sign()
    return torch.einsum("ztd,zt,ztn->znd", unit, eps * (1 - 1e-12), hot)[:, None]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("alike", [0.0, 1.0])
def test_what_goes_together(dtype: torch.dtype, scale: float, alike: float) -> None:
    """The longest sum of vectors from boxes, balls and linear functions that can be found is within the bound, which is
    less than the sum of the lengths where they go in different directions, and no more where all go in one."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    ways = draw(9, 1) @ torch.ones(1, 20, dtype=torch.float64)
    like, axis = torch.zeros(1, dtype=dtype), 0
    together, alone = reach.Together(1000.0), torch.zeros(1, dtype=dtype)
    moves = []  # how far the sum goes along v, exactly
    for k in range(6):
        matrix = (scale * (alike * ways + (1 - alike) * draw(9, 20))).to(dtype)
        part = replace(Coefficients.identity((9,), like, ((0, 9),)).unlink(0), tensor=matrix[None, None], node=(20,))
        gap = draw(1, 20).abs().to(dtype)
        vector = None if k % 2 else 0.3 * torch.linalg.vector_norm(gap, dim=-1)
        found = reach.length(part, axis, gap, vector=vector)
        together.add(found)
        alone = alone + found.size
        moves.append((matrix.double(), gap[0].double(), None if vector is None else float(vector)))
    linear = (scale * (alike * ways[:, :5] + (1 - alike) * draw(9, 5))).to(dtype)
    grams = (linear @ linear.mT)[None, None]
    bound = float(together.size(grams))
    total = float(alone + torch.linalg.matrix_norm(linear, 2))
    longest = 0.0
    for _ in range(30):
        v = draw(9)
        for _ in range(30):
            ends = [linear.double() @ _unit(linear.double().mT @ v)]
            for matrix, gap, vector in moves:
                a = matrix.mT @ v
                corner = gap * a.sign()
                ends.append(matrix @ corner if vector is None else matrix @ _inside(a, gap, vector))
            reached = sum(ends)
            assert isinstance(reached, Tensor)
            longest = max(longest, float(torch.linalg.vector_norm(reached)))
            v = _unit(reached)
    assert longest <= bound
    if dtype == torch.float64 or scale == 1:  # else squares leave the range of float32: sums are used then
        assert bound <= total * (1.02 if alike else 0.8)


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x)


def _inside(a: Tensor, gap: Tensor, vector: float) -> Tensor:
    """A point that is far along `a`, within a box and no longer than `vector`."""
    point = torch.minimum(a.abs() * vector / torch.linalg.vector_norm(a), gap) * a.sign()
    return point


def test_rounding_and_sums_without_squares_are_not_lost() -> None:
    """What rounding may add counts in full, and so do lengths of which the squares are no normal numbers."""
    none = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    for weight, lost in ((1.0, 0.25), (1e-290, 0.0), (1e-300, 1e-150)):
        together = reach.Together(100.0)
        one = torch.ones(1, dtype=torch.float64)
        root = torch.zeros(1, 2, 3, dtype=torch.float64)
        root[0, 0, 0] = weight**0.5
        together.add(reach.Length((weight + lost) * one, lost * one, weight * one, root))
        assert float(together.size(none)) >= (weight + lost) * (1 - 1e-12)
        assert float(together.lost) >= (lost if weight == 1 else weight + lost) * (1 - 1e-12)

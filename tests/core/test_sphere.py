"""A normalised input in other variables: what is proved there holds of the model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.branch import divide
from certiformer.core.graph import Graph, on_sphere
from certiformer.core.ops.base import Box
from certiformer.core.ops.linear import Center, Shift
from certiformer.core.ops.normalize import Normalize
from certiformer.core.ops.sphere import Height, OnSphere, Tilted
from certiformer.core.part import Known
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball, Choices, Cuts
from certiformer.core.split import Split
from certiformer.questions.inputs import Prepared, prepare, problem_of
from conftest import IDS, random_model
from contracts import evaluate
from enclosure import _checked, bounds_of, cloud_of, enclosed, inside
from spread import spread
from test_million import attacked

SETS = [(1,), (1, 3), (2,)]
N, D = 5, 8


class Reader(nn.Module):
    """A normalisation of the input with constants added, then something that is not linear."""

    def __init__(self, *, eps: float, rms: bool = False, heavy: float = 0.0, residual: bool = False) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.eps, self.rms, self.residual = eps, rms, residual
        shape = ((N, D), (1, D), (D, D), (D, 3))
        first, second, mix, out = (torch.randn(s, generator=g, dtype=torch.float64) for s in shape)
        self.first, self.second, self.mix, self.out = first, second, mix / 3, out
        self.weight = 1 + heavy * torch.randn(D, generator=g, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        z = x + self.first + self.second
        if self.rms:
            y = z * torch.rsqrt((z * z).mean(dim=-1, keepdim=True) + self.eps) * self.weight
        else:
            y = nn.functional.layer_norm(z, (D,), self.weight, eps=self.eps)
        h = torch.softmax((y @ self.mix) @ y.transpose(-1, -2), dim=-1) @ y
        h = h + x if self.residual else h
        return torch.tanh(h[:, 0] @ self.mix) @ self.out


def reader(**more: Any) -> Prepared:
    module = Reader(**{"eps": 1e-5, **more}).double().eval()
    x = torch.randn(1, N, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return prepare(cf.Model(module=module), x)


def classifier(**more: Any) -> Prepared:
    return prepare(random_model(layer_norm="standard", **more), IDS)


KINDS: dict[str, Any] = {
    "BERT": lambda: classifier(layers=1, seed=7),
    "BERT, two layers": lambda: classifier(layers=2, seed=5),
    "constants": reader,
    "a large eps": lambda: reader(eps=2.0),
    "an eps as large as the rest": lambda: reader(eps=30.0),
    "no centring": lambda: reader(rms=True),
    "no centring, a large eps": lambda: reader(rms=True, eps=3.0),
    "no eps": lambda: reader(eps=0.0),
}


def op_of(problem: Problem) -> Tilted:
    (found,) = (n.op for n in problem.compiled.graph.nodes if isinstance(n.op, Tilted))
    return found


def sizes(problem: Problem) -> Tensor:
    """The least length at rest of what is normalised at the positions that move, by instance."""
    op, x0 = op_of(problem), problem.centre
    size = op.rest(x0, torch.zeros_like(x0[..., :2])).size[:, 0, :, 0]
    return torch.stack([size[i, list(where)].min() for i, where in enumerate(problem.positions)])


def other(op: OnSphere, x0: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The point in the place of x, and the height, from the module's own words."""
    z0, z = x0, x
    for each in op.before:
        z0, z = each.forward(z0), each.forward(z)
    more = math.sqrt(z.shape[-1] * op.eps)
    rest, there = (torch.cat([v, torch.full_like(v[..., :1], more)], dim=-1) for v in (z0, z))
    size = torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
    middle, unit = rest / size, there / torch.linalg.vector_norm(there, dim=-1, keepdim=True)
    height = (middle * unit).sum(dim=-1, keepdim=True)
    w = unit - height * middle
    e, q = middle[..., :-1], middle[..., -1:]
    return x0 + size * (w[..., :-1] - e * (w[..., -1:] / (1 + q))), height


def outside(ball: Ball, x: Tensor) -> Tensor:
    """By how much positions of points are too far out."""
    moved = torch.linalg.vector_norm(x - ball.centre[:, None], dim=-1)
    assert ball.lengths is not None
    return (moved - ball.lengths[:, None, ..., 0]).max()


@pytest.mark.parametrize(("kind", "share"), spread(list(KINDS), [0.02, 0.3, 0.9]))
def test_every_input_has_another_one_in_its_place(kind: str, share: float) -> None:
    """The graph at the other point is the module at the point itself, and no node leaves its bounds there."""
    prepared = KINDS[kind]()
    problem = problem_of([(prepared, s) for s in SETS], p=2.0, method="backward", relaxation="tight")
    chosen = list(range(len(SETS)))
    ball = problem.ball(share * sizes(problem), chosen)
    cloud = cloud_of(problem, ball, 60)
    op, graph = op_of(problem), problem.compiled.graph
    there, height = other(op, ball.centre[:, None], cloud)
    assert outside(ball, there) < 1e-9
    near = torch.linalg.vector_norm(there - cloud, dim=-1).max()
    assert near > 1e-3 * share, "another point, indeed"
    nominal = graph.values(ball.centre, lengths=ball.lengths)
    every = [v.expand(len(SETS), *v.shape[1:]).repeat_interleave(cloud.shape[1], dim=0) for v in nominal]
    values = graph.values(there.flatten(0, 1), every)
    with torch.no_grad():
        logits = torch.cat([prepared.model.module(x) for x in cloud.flatten(0, 1)])
    torch.testing.assert_close(values[-1].flatten(1), logits, rtol=1e-7, atol=1e-7)
    index = next(n.index for n in graph.nodes if isinstance(n.op, Height))
    torch.testing.assert_close(values[index], height.flatten(0, 1), rtol=1e-7, atol=1e-7)
    assert _checked(problem, ball, there, inside(ball, there)) > 60
    boxes, _, _, good = bounds_of(problem, ball)
    assert good.all()
    plain = graph.values(cloud.flatten(0, 1))  # and none of the model itself
    for node in graph.nodes[index + 1 :]:
        if node.perturbed:
            value, box = plain[node.index].unflatten(0, (len(SETS), -1)), boxes[node.index]
            slack = 1e-9 * (1 + value.abs())
            assert ((value >= box.lower[:, None] - slack) & (value <= box.upper[:, None] + slack)).all(), node


@pytest.mark.parametrize(("kind", "share"), spread([k for k in KINDS if k != "no eps"], [0.999, 1.001, 1.5, 20.0]))
def test_sets_that_get_as_far_as_the_length_at_rest(kind: str, share: float) -> None:
    """Any direction may be there then, the opposite one too; no margin leaves its bounds, and some are known."""
    prepared = KINDS[kind]()
    problem = problem_of([(prepared, s) for s in SETS], p=2.0, method="backward", relaxation="tight")
    eps, chosen = share * sizes(problem), list(range(len(SETS)))
    ball, found = problem.ball(eps, chosen), problem.margins(eps)
    assert not any(found.reasons)
    cloud = cloud_of(problem, ball, 60)
    with torch.no_grad():
        logits = torch.stack([torch.cat([prepared.model.module(x) for x in own]) for own in cloud])
    margins = (problem.rows(chosen)[:, None, :, 0] * logits[:, :, None]).sum(dim=-1)
    assert (margins >= found.lower[:, None]).all()
    assert (margins <= found.upper[:, None]).all()


def test_without_an_eps_nothing_is_said_of_sets_that_reach_zero() -> None:
    problem = problem_of([(reader(eps=0.0), (1,))], p=2.0, method="backward", relaxation="tight")
    found = problem.margins(1.001 * sizes(problem))
    assert "tilted" in str(found.reasons[0])
    assert not torch.isfinite(found.lower).any()


@pytest.mark.parametrize(
    ("method", "joint", "layers"),
    [
        ("forward", True, 1),
        ("backward-forward", False, 1),
        *(
            pytest.param(*way, marks=pytest.mark.slow)
            for way in (
                ("backward-forward", False, 2),
                ("forward", False, 1),
                ("backward", True, 2),
                ("backward", False, 2),
            )
        ),
    ],
)
def test_pieces_joint_balls_and_single_precision(method: Any, joint: bool, layers: int) -> None:
    dtype = torch.float32 if joint else torch.float64
    prepared = prepare(random_model(layer_norm="standard", layers=layers, seed=3), IDS, dtype=dtype)
    problem = problem_of([(prepared, s) for s in SETS], p=2.0, joint=joint, method=method, relaxation="tight")
    assert op_of(problem)
    eps = torch.tensor([0.2, 0.1, 0.4], dtype=dtype)
    assert enclosed(problem, eps, samples=40) > 40
    cut = divide(problem, 2 * eps, 4 if layers == 1 else 2)
    assert isinstance(cut, Split)
    assert enclosed(cut, 2 * eps, samples=40) > 40
    if layers == 1:
        assert enclosed(problem.tuned(eps, steps=1), eps, samples=40) > 40


# ---- where it is not done ------------------------------------------------------------------------------------------


def has(prepared: Prepared, **more: Any) -> bool:
    options: dict[str, Any] = {"p": 2.0, "method": "backward", "relaxation": "tight", **more}
    return any(isinstance(n.op, OnSphere) for n in problem_of([(prepared, (1,))], **options).compiled.graph.nodes)


def test_where_it_is_done() -> None:
    assert has(reader())
    assert has(reader(), method="auto")
    assert has(reader(), joint=True)
    for other in ({"p": 1.0}, {"p": math.inf}, {"p": 1.5}, {"relaxation": "paper"}, {"method": "ibp"}):
        assert not has(reader(), **other), other
    assert not has(classifier(), arithmetic="float32")
    assert not has(reader(residual=True)), "the input is read elsewhere"


def test_lengths_are_those_of_euclidean_balls() -> None:
    """Of no set that does not hold all that is no further from rest."""
    centre, eps = torch.zeros(1, 1, N, D, dtype=torch.float64), torch.tensor([0.5]).double()
    for joint in (False, True):
        found = Ball.of(centre, [(1, 3)], eps, 2.0, joint=joint).lengths
        assert found is not None
        assert found[..., 0].flatten().tolist() == [0, 0.5, 0, 0.5, 0]
    for p in (1.0, 1.5, math.inf):
        assert Ball.of(centre, [(1, 3)], eps, p).lengths is None
    assert Ball.of(centre, [(1, 3)], eps, 2.0, width=torch.ones(1, 2, D).double()).lengths is None
    assert Choices.of(centre, {1: torch.ones(2, D).double()}).lengths is None


class Layers(nn.Module):
    """A normalisation of what a function makes of the input."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.before, self.norm = before, nn.LayerNorm(D).double()
        self.out = torch.randn(D, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.before(x))).mean(dim=1) @ self.out


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (lambda x: x, True),
        (lambda x: x + 1, True),
        (lambda x: 2 - x, False),
        (lambda x: 2 * x, False),
        (lambda x: x + x, False),
        (lambda x: x + x.mean(dim=-2, keepdim=True), False),
        (lambda x: x + torch.linspace(0, 1, D, dtype=torch.float64) * x, False),
        (lambda x: x.roll(1, dims=1), False),
        (lambda x: torch.tanh(x), False),
        (lambda x: x @ torch.eye(D, dtype=torch.float64).flip(0), False),
    ],
)
def test_only_constants_may_be_added_before(before: Any, expected: bool) -> None:
    x = torch.randn(1, N, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert has(prepare(cf.Model(module=Layers(before)), x)) == expected


def test_a_constant_behind_the_centring_is_refused() -> None:
    with pytest.raises(ValueError, match="expected constants to be added"):
        Tilted(1e-5, (Center(), Shift(torch.ones(3))))


def test_a_graph_without_a_normalisation_is_left_alone() -> None:
    problem = problem_of([(prepare(random_model(layer_norm="no_var"), IDS), (1,))], p=2.0, method="backward")
    graph: Graph = problem.compiled.graph
    assert on_sphere(graph, problem.centre) is graph
    assert problem.compiled.plain is problem.compiled


def test_methods_share_the_graph() -> None:
    """What one method has proved of a node is known to the next one, in the same variables."""
    prepared, options = classifier(layers=1, seed=7), {"p": 2.0, "relaxation": "tight"}
    first, then = (problem_of([(prepared, (1,))], method=m, **options) for m in ("backward-forward", "backward"))
    assert op_of(first)
    assert first.compiled.graph is then.compiled.graph
    known, widths = Known(first.compiled.graph, torch.tensor([0.1]).double()), list[float]()
    for problem in (first, then):
        replace(problem, known=known).margins(known.eps)
        widths.append(sum(float((box.upper - box.lower).sum()) for box in known.boxes[0].values()))
    assert widths[1] < widths[0]


# ---- against attacks -----------------------------------------------------------------------------------------------


class Straight(nn.Module):
    """A normalisation that is read at once: nothing but the sphere keeps what is proved from what is true."""

    def __init__(self, residual: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.residual, self.eps, self.out = residual, eps, nn.Linear(D, 3)
        with torch.no_grad():
            self.out.weight.copy_(torch.randn(3, D, generator=torch.Generator().manual_seed(4)))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.layer_norm(x, (D,), eps=self.eps) + self.residual * x
        out: Tensor = self.out(y.mean(dim=1))
        return out


@pytest.mark.parametrize(("norm", "residual", "eps"), spread([1, 2, math.inf], [0.0, 0.7, -1.2], [1e-5, 2.0], times=2))
def test_what_is_proved_is_not_more_than_an_attack_leaves(norm: float, residual: float, eps: float) -> None:
    x = torch.randn(1, 2, D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model = cf.Model(module=Straight(residual, eps))
    for joint, positions in ((False, [[0, 1], [0]]), (True, [[0, 1]])):
        asked: dict[str, Any] = {"norm": norm, "joint": joint, "positions": positions}
        found, tried = cf.radius(model, x, tolerance=1e-3, **asked), cf.attack(model, x, **asked)
        pairs = list(zip(found.radii, tried.radii, strict=True))
        assert all(0 < proved < attacked for proved, attacked in pairs), pairs


@pytest.mark.parametrize(
    "kind", ["BERT", "no centring", *(pytest.param(k, marks=pytest.mark.slow) for k in ("constants", "a large eps"))]
)
def test_no_point_of_a_certified_ball_changes_the_answer(kind: str) -> None:
    prepared = KINDS[kind]()
    found = cf.radius(prepared.model, IDS if "BERT" in kind else prepared.embeddings, method="backward")
    generator = torch.Generator().manual_seed(0)
    for positions, radius in zip(found.positions, found.radii, strict=True):
        assert radius > 0
        ball = Ball.of(prepared.embeddings[None], [positions], torch.tensor([radius]).double(), 2.0)
        tried, flips = attacked(prepared.model.module, ball, found.label, generator)
        assert tried > 1000
        assert flips == 0


# ---- what it is worth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if "two" in k else ()) for k in KINDS if "large" not in k]
)
def test_bounds_are_closer_than_those_of_the_plain_graph(kind: str) -> None:
    """Not where the eps is of the size of the variance: what moves a vector along itself then tilts it less."""
    problem = problem_of([(KINDS[kind](), s) for s in SETS], p=2.0, method="backward", relaxation="tight")
    plain = replace(problem, compiled=problem.compiled.plain)
    assert not any(isinstance(n.op, OnSphere) for n in plain.compiled.graph.nodes)
    for share, more in ((1e-6, 0.0), (0.05, 0.0), (0.2, 1e-3), (0.5, 0.05)):
        eps = share * sizes(problem)
        gain = problem.margins(eps).lower - plain.margins(eps).lower
        assert gain.min() > -1e-9
        assert gain.max() > more or "two layers" in kind


def test_without_lengths_the_graph_is_the_model() -> None:
    problem = problem_of([(reader(), (1,))], p=2.0, method="backward", relaxation="tight")
    x = problem.centre + torch.randn(20, 1, N, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = problem.compiled.plain.graph
    found = problem.compiled.graph.values(x)[-1]
    torch.testing.assert_close(found, plain.values(x)[-1], rtol=0, atol=0)
    assert any(isinstance(n.op, Normalize) for n in plain.nodes)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_the_largest_and_the_smallest_numbers(dtype: torch.dtype, eps: float) -> None:
    """No wrong bound comes of squares that overflow or vanish: any vector of the length sqrt(n), or the right one."""
    numbers = torch.finfo(dtype)
    for size in (numbers.max / 8, numbers.max**0.5 * 2, numbers.tiny**0.5 / 4, numbers.tiny**0.5 * 2, numbers.tiny * 4):
        x0 = (torch.tensor([[[1.0, -0.4, 0.3]]], dtype=torch.float64) * size).to(dtype)
        z = x0.double() - x0.double().mean(dim=-1, keepdim=True)
        far = float(z.abs().max())
        y = z / math.hypot(far * float((z / far).square().mean().sqrt()), math.sqrt(eps))
        still, none = Box(x0, x0), Box(torch.zeros_like(x0[..., :2]), torch.zeros_like(x0[..., :2]))
        height = Height(eps, (Center(),)).interval(still, still, none)
        found = Tilted(eps, (Center(),)).interval(still, height, still, none)
        planes = Tilted(eps, (Center(),)).planes(still, height, still, none)
        slopes = tuple(s._replace(lower=s.lower.double(), upper=s.upper.double()) for s in planes.slopes)
        exact = [x0.double(), height.upper.double()]
        lower, upper, _ = evaluate(planes._replace(slopes=slopes), exact, (1, 1, 3))
        assert ((height.lower <= 1) & (height.upper >= 1)).all()
        for low, high in (found, (lower, upper)):
            assert ((low.double() <= y + 1e-15) & (high.double() >= y - 1e-15)).all()
            assert (high - low <= 4).all()


@pytest.mark.parametrize("skew", [0.0, 0.05])
def test_points_of_a_piece_are_no_nearer_to_rest_than_its_cuts(skew: float) -> None:
    problem = problem_of([(classifier(layers=1, seed=7), (1,))], p=2.0, method="backward", relaxation="tight")
    generator = torch.Generator().manual_seed(3)
    ball = problem.ball(torch.tensor([0.3], dtype=torch.float64), [0])
    first, second = torch.linalg.qr(torch.randn(ball.dimension, 2, generator=generator, dtype=torch.float64))[0].mT
    normal = torch.stack([first, second + skew * first, torch.zeros_like(first)])[None, :, None]
    inf = torch.inf
    ends = torch.tensor([[0.15, -inf, -inf], [inf, -0.1, inf]], dtype=torch.float64)
    cuts = Cuts(normal, ends[:1], ends[1:])
    piece = cuts.of(ball)
    assert piece.lengths is not None
    furthest, nearest = piece.lengths[0, 0, 1].tolist()
    assert furthest == 0.3
    assert nearest == pytest.approx(math.hypot(0.15, 0.1) / math.sqrt(1 + skew), rel=skew + 1e-9)
    moves = torch.randn(4000, ball.dimension, generator=generator, dtype=torch.float64)
    moves = moves + 3 * first - 3 * second
    moves = (
        0.3 * moves / moves.norm(dim=1, keepdim=True) * torch.rand(4000, 1, generator=generator, dtype=torch.float64)
    )
    held = ((moves @ normal[0, :, 0].mT >= cuts.low) & (moves @ normal[0, :, 0].mT <= cuts.high)).all(dim=1)
    assert held.sum() > 50
    assert moves[held].norm(dim=1).min() >= nearest
    edge = (0.15 * first - (0.1 + 0.15 * skew) * second).norm()  # the nearest point that there is
    assert edge >= nearest
    index = next(n.index for n in problem.compiled.graph.nodes if isinstance(n.op, Height))
    part = problem.engine(piece, {}, rounding=True).box(problem.compiled.graph.nodes[index])
    assert part.upper[0, 0, 1, 0] < 1 < part.upper[0, 0, 0, 0] + 1e-9  # the others do not move


def test_a_vector_with_one_entry_that_is_not_known_is_any_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its remainder as a vector would leave out how far that entry may be."""
    gap = Tilted._gap

    def overflowed(self: Tilted, *given: Any) -> Tensor:
        found = gap(self, *given).clone()
        found[..., 1] = math.inf
        return found

    x0 = torch.tensor([[[1.0, -0.4, 0.3, 0.2]]], dtype=torch.float64)
    moves, lengths = 0.01 * torch.ones_like(x0), torch.tensor([[[0.02, 0.0]]], dtype=torch.float64)
    boxes = Box(x0 - moves, x0 + moves), Box(x0, x0), Box(lengths, lengths)
    height = Height(1e-5, (Center(),)).interval(*boxes)
    given = boxes[0], height, *boxes[1:]
    op = Tilted(1e-5, (Center(),))
    assert float(op.planes(*given).remainder) < 0.1
    monkeypatch.setattr(Tilted, "_gap", overflowed)
    planes = op.planes(*given)
    assert float(planes.remainder) >= 2  # the square root of four entries
    assert all(not s.lower.any() for s in planes.slopes)
    assert (planes.lower <= -2).all()
    assert (planes.upper >= 2).all()

"""Nothing leaves its bounds: sampled and attacked points, every node, every method and norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from certiformer.core.problem import Problem
from certiformer.core.sets import Ball
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model

METHODS = ("forward", "backward", "backward-forward")
NORMS = (1.0, 2.0, math.inf, 1.5)


def project(delta: Tensor, p: float, eps: Tensor) -> Tensor:
    """Scale every block [.., d] back into its ball."""
    size = torch.linalg.vector_norm(delta, ord=p, dim=-1, keepdim=True)
    return delta * (eps[..., None] / size.clamp(min=1e-300)).clamp(max=1)


def attacked(problem: Problem, ball: Ball, target: Tensor, steps: int = 15) -> Tensor:
    """Points of the set that push one output of every instance down, by projected gradient."""
    graph = problem.compiled.graph
    eps = torch.einsum("zt,ztn->zn", ball.eps, ball.hot)[:, None]  # [instances, 1, n]
    delta = torch.zeros_like(ball.centre)
    for _ in range(steps):
        x = (ball.centre + delta).requires_grad_(True)
        value = (problem.rows(list(range(len(problem)))) * graph.values(x)[-1][:, None]).flatten(2).sum(dim=2)
        (g,) = torch.autograd.grad((value * target).sum(), x)
        direction = g.sign() if math.isinf(ball.p) else g
        if ball.p == 1:  # the steepest corner
            direction = g * (g.abs() >= g.abs().amax(dim=-1, keepdim=True))
        size = torch.linalg.vector_norm(direction, ord=ball.p, dim=-1, keepdim=True).clamp(min=1e-300)
        delta = project(delta - 0.5 * eps[..., None] * direction / size, ball.p, eps)
    return ball.centre + delta


def check(problem: Problem, eps: Tensor, seed: int, samples: int = 400) -> int:
    """Bound every node, then try to leave the bounds; returns how many points were tried."""
    chosen = list(range(len(problem)))
    graph, ball = problem.compiled.graph, problem.ball(eps, chosen)
    engine = problem.engine(ball, {}, rounding=True)
    rest = engine.nominal
    margins = engine.margins(problem.rows(chosen))
    boxes = {n.index: engine.box(n) for n in graph.nodes[1:] if n.perturbed}
    good = torch.tensor([r is None for r in engine.reasons])
    generator = torch.Generator().manual_seed(seed)
    clouds = [ball.sample(samples, generator), ball.sample(samples // 3, generator, boundary=False)]
    for k in range(problem.classes - 1):
        target = torch.zeros(len(chosen), problem.classes - 1, dtype=torch.float64)
        target[:, k] = 1
        clouds += [attacked(problem, ball, s * target)[:, None] for s in (1, -1)]
    cloud = torch.cat(clouds, dim=1)[good]  # [instances, points, *input shape]
    count = cloud.shape[1]
    values = graph.values(cloud.flatten(0, 1), [r[good].repeat_interleave(count, dim=0) for r in rest])
    for index, box in boxes.items():
        node, value = graph.nodes[index], values[index].unflatten(0, (-1, count))
        slack = 1e-9 * (1 + value.abs())  # the rounding of this evaluation, not of the bounds
        assert (value >= box.lower[good][:, None] - slack).all(), f"{node} below its bound"
        assert (value <= box.upper[good][:, None] + slack).all(), f"{node} above its bound"
    outputs = values[-1].unflatten(0, (-1, count))[:, :, None]  # [instances, points, 1, 1, classes]
    margin = (problem.rows(chosen)[good][:, None] * outputs).flatten(3).sum(dim=3)
    assert (margin >= margins.lower[good][:, None] - 1e-9).all()
    assert (margin <= margins.upper[good][:, None] + 1e-9).all()
    assert not torch.isnan(margins.lower).any()
    return int(good.sum()) * count


@pytest.mark.parametrize("layer_norm", ["no_var", "standard", "none"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("relaxation", ["paper", "tight"])
def test_no_point_leaves_the_bounds_of_any_node(layer_norm: str, layers: int, relaxation: str) -> None:
    scale = 0.4 if (layers, relaxation) in ((1, "paper"), (2, "tight"), (3, "paper")) else 0.2
    prepared = prepare(random_model(layers=layers, layer_norm=layer_norm, scale=scale, seed=7 * layers), IDS)
    tried = 0
    for k, method in enumerate(METHODS):
        questions = [(prepared, ps) for ps in ((1,), (3,), (1, 2))]
        p = NORMS[(layers + k) % len(NORMS)]
        problem = problem_of(questions, p=p, method=method, relaxation=relaxation)  # type: ignore[arg-type]
        tried += check(problem, torch.tensor([1e-3, 0.05, 0.02], dtype=torch.float64), seed=layers)
    assert tried > 2000


@pytest.mark.parametrize("p", NORMS)
def test_ibp_margins_hold(p: float) -> None:
    model = random_model(layers=2, scale=0.3, seed=5)
    prepared = prepare(model, IDS)
    problem = problem_of([(prepared, (i,)) for i in (1, 2, 3)], p=p, method="ibp", relaxation="paper")
    eps = torch.tensor([0.002, 0.01, 0.02], dtype=torch.float64)
    margins = problem.margins(eps)
    ball = problem.ball(eps, [0, 1, 2])
    for x in ball.sample(200, torch.Generator().manual_seed(0)).unbind(dim=1):
        value = (problem.rows([0, 1, 2]) * problem.compiled.graph.values(x)[-1][:, None]).flatten(2).sum(dim=2)
        assert (value >= margins.lower).all()
        assert (value <= margins.upper).all()


def test_zero_radius_gives_the_margin_itself() -> None:
    model = random_model(layers=2, scale=0.3, seed=2)
    prepared = prepare(model, IDS)
    exact = prepared.logits[0, prepared.label] - prepared.logits[0]
    expected = torch.cat([exact[: prepared.label], exact[prepared.label + 1 :]])
    for method in ("ibp", *METHODS):
        problem = problem_of([(prepared, (2,))], p=2.0, method=method, relaxation="paper")  # type: ignore[arg-type]
        found = problem.margins(torch.zeros(1, dtype=torch.float64))
        torch.testing.assert_close(found.lower[0], expected, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(found.upper[0], expected, rtol=1e-7, atol=1e-7)


def test_float32_bounds_enclose_float64_ones_around_every_sample() -> None:
    """In single precision the rounding is accounted for: its bounds still hold for the exact function."""
    model = random_model(layers=2, scale=0.3, seed=9)
    single, double = prepare(model, IDS, dtype=torch.float32), prepare(model, IDS)
    eps = torch.tensor([1e-4, 1e-2])
    problem = problem_of([(single, (1,)), (single, (2,))], p=2.0, method="backward-forward", relaxation="paper")
    wide = problem_of([(double, (1,)), (double, (2,))], p=2.0, method="backward-forward", relaxation="paper")
    margins = problem.margins(eps)
    ball = wide.ball(eps.double(), [0, 1])
    for x in ball.sample(100, torch.Generator().manual_seed(4)).unbind(dim=1):
        value = (wide.rows([0, 1]) * wide.compiled.graph.values(x)[-1][:, None]).flatten(2).sum(dim=2)
        assert (value >= margins.lower.double()).all()
        assert (value <= margins.upper.double()).all()

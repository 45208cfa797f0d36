"""Try to leave the bounds of every node of a model, in every method."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from certiformer.core.problem import Problem
from certiformer.core.sets import Ball
from certiformer.questions.inputs import Prepared, problem_of

WAYS: tuple[tuple[Any, Any], ...] = tuple(
    (method, relaxation)
    for method in ("ibp", "forward", "backward", "backward-forward")
    for relaxation in ("paper", "tight")
)


def pushed(problem: Problem, ball: Ball, sign: float, steps: int = 8) -> Tensor:
    """Points of the balls where gradient steps have taken the sum of the margins far down, or up."""
    graph, rows = problem.compiled.graph, problem.rows(list(range(len(problem))))
    eps = torch.einsum("zt,ztn->zn", ball.eps, ball.hot)[:, None, :, None]
    delta = torch.zeros_like(ball.centre)
    for _ in range(steps):
        x = (ball.centre + delta).requires_grad_(True)
        (g,) = torch.autograd.grad(sign * (rows * graph.values(x)[-1][:, None]).sum(), x)
        g = (
            g.sign()
            if math.isinf(ball.p)
            else g * (g.abs() >= g.abs().amax(dim=-1, keepdim=True))
            if ball.p == 1
            else g
        )
        size = torch.linalg.vector_norm(g, ord=ball.p, dim=-1, keepdim=True).clamp(min=1e-300)
        delta = delta - 0.5 * eps * g / size
        size = torch.linalg.vector_norm(delta, ord=ball.p, dim=-1, keepdim=True).clamp(min=1e-300)
        delta = delta * (eps / size).clamp(max=1)
    return ball.centre + delta


def cloud_of(problem: Problem, ball: Ball, samples: int) -> Tensor:
    """Sampled and attacked points `[instances, points, *input shape]`."""
    generator = torch.Generator().manual_seed(len(problem))
    clouds = [ball.sample(samples, generator), ball.sample(samples // 3, generator, boundary=False)]
    return torch.cat([*clouds, *(pushed(problem, ball, s)[:, None] for s in (1, -1))], dim=1)


def hold(prepared: Prepared, *, method: Any, relaxation: Any, eps: float, p: float, samples: int = 100) -> int:
    """Check margins and the box of every node of the model's graph; returns how many instances had bounds at all."""
    n = prepared.embeddings.shape[1]
    sets = [(1,), (n - 2,), (1, 2)]
    problem = problem_of([(prepared, s) for s in sets], p=p, method=method, relaxation=relaxation)
    radii = torch.tensor([eps, eps / 20, eps / 2], dtype=torch.float64)
    chosen = list(range(len(sets)))
    graph, ball = problem.compiled.graph, problem.ball(radii, chosen)
    rest = graph.values(ball.centre)
    engine = None
    if method == "ibp":
        (margins, reasons) = problem.over(ball, chosen)
    else:
        engine = problem.engine(ball, {}, rounding=True)
        margins, reasons = engine.margins(problem.rows(chosen)), engine.reasons
    good = torch.tensor([r is None for r in reasons])
    cloud = cloud_of(problem, ball, samples)
    count = cloud.shape[1]
    every = [r.expand(len(sets), *r.shape[1:]).repeat_interleave(count, dim=0) for r in rest]
    values = [v.expand(len(sets) * count, *v.shape[1:]) for v in graph.values(cloud.flatten(0, 1), every)]
    outputs = values[-1].unflatten(0, (-1, count))[:, :, None]
    found = (problem.rows(chosen)[:, None] * outputs).flatten(3).sum(dim=3)[good]
    assert not torch.isnan(margins.lower).any()
    assert (found >= margins.lower[good][:, None] - 1e-9).all()
    assert (found <= margins.upper[good][:, None] + 1e-9).all()
    for node in graph.nodes[1:]:
        if engine is not None and node.perturbed:
            box, value = engine.box(node), values[node.index].unflatten(0, (-1, count))[good]
            slack = 1e-9 * (1 + value.abs())  # the rounding of this evaluation, not of the bounds
            assert (value >= box.lower[good][:, None] - slack).all(), f"{node} below its bound"
            assert (value <= box.upper[good][:, None] + slack).all(), f"{node} above its bound"
    return int(good.sum())

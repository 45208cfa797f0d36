"""Try to leave the bounds of every node of a model: of the engine that answers questions, and of no other."""

from __future__ import annotations

import itertools
import math
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from certiformer.core.engine import Engine
from certiformer.core.interval import interval_boxes
from certiformer.core.names import METHODS, RELAXATIONS
from certiformer.core.ops.base import Box
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball, Piece
from certiformer.core.split import Split
from certiformer.questions.inputs import Prepared, problem_of

WAYS = tuple(itertools.product(METHODS, RELAXATIONS))
EVALUATION = 1e-9  # what the evaluation of the points may be off by, relative to 1 + their size


def pushed(problem: Problem, ball: Ball, targets: Tensor, steps: int = 8) -> Tensor:
    """Points `[targets, *centre shape]` of the balls where gradient steps have taken each of some combinations of the
    margins far down."""
    graph, rows = problem.compiled.graph, problem.rows(list(range(len(problem))))
    eps = torch.einsum("zt,ztn->zn", ball.eps, ball.hot)[:, None, :, None]
    unit = torch.ones_like(ball.centre)
    if ball.width is not None:
        unit = torch.einsum("ztd,ztn->znd", ball.width, ball.hot)[:, None]
    move = ball.centre.new_zeros(len(targets), *ball.centre.shape)  # in these units
    for _ in range(steps):
        x = (ball.centre + unit * move).requires_grad_(True)
        outputs = graph.values(x.flatten(0, 1))[-1].unflatten(0, x.shape[:2])
        margins = (rows * outputs[:, :, None]).flatten(3).sum(dim=3)  # [targets, instances, classes - 1]
        (g,) = torch.autograd.grad((margins * targets[:, None]).sum(), x)
        g = g * unit * (eps > 0)
        if math.isinf(ball.p):
            g = g.sign()
        elif ball.p == 1:  # the steepest corner
            g = g * (g.abs() >= (g.abs().amax(dim=(-2, -1), keepdim=True) if ball.joint else _largest(g)))
        move = move - 0.5 * eps * g / _size(g, ball)
        move = move * (eps / _size(move, ball)).clamp(max=1)
    return ball.centre + unit * move


def _largest(g: Tensor) -> Tensor:
    return g.abs().amax(dim=-1, keepdim=True)


def _size(x: Tensor, ball: Ball) -> Tensor:
    """The norm of every position, or of all of them together."""
    tiny = torch.finfo(x.dtype).tiny
    whole = x.flatten(-2)[..., None, :] if ball.joint else x
    size = torch.linalg.vector_norm(whole, ord=ball.p, dim=-1, keepdim=True)
    return size.clamp(min=tiny)


def cloud_of(problem: Problem, ball: Ball, samples: int) -> Tensor:
    """Sampled and attacked points `[instances, points, *input shape]`."""
    generator = torch.Generator().manual_seed(len(problem))
    each = torch.eye(problem.classes - 1).to(ball.centre)
    return torch.cat(
        [
            ball.sample(samples, generator),
            ball.sample(samples // 3, generator, boundary=False),
            pushed(problem, ball, torch.cat([each, -each])).transpose(0, 1),
        ],
        dim=1,
    )


def inside(ball: Ball, cloud: Tensor) -> Tensor:
    """Which points `[instances, points]` of the balls are in their pieces; all of them where there are none."""
    if not isinstance(ball, Piece):
        return torch.ones(cloud.shape[:2], dtype=torch.bool)
    delta = torch.einsum("zcnd,ztn->zctd", (cloud - ball.centre[:, None])[:, :, 0], ball.hot).flatten(2)
    along = torch.einsum("zcm,zkm->zck", delta, ball.normal)
    return ((along >= ball.low[:, None]) & (along <= ball.high[:, None])).all(dim=2)


Lengths = dict[tuple[int, int, int], tuple[Tensor, Tensor]]  # (node, axis, which) -> a middle, and how far from it


def answered(problem: Problem, ball: Ball) -> tuple[Box, list[str | None], Engine | None]:
    """Margins, why there are none, and the engine that found them, if one did."""
    plain, made = Problem.engine, list[Engine]()

    def engine(self: Problem, *args: Any, **more: Any) -> Engine:
        made.append(plain(self, *args, **more))
        return made[-1]

    with patch.object(Problem, "engine", engine):
        found, reasons = problem.over(ball, list(range(len(problem))))
    return found, reasons, made[-1] if made else None


def bounds_of(problem: Problem, ball: Ball) -> tuple[dict[int, Box], Lengths, Box, Tensor]:
    """The box of every node that varies, lengths where they are known, the margins, and which instances have any: as
    questions are answered."""
    lengths: Lengths = {}
    graph = problem.compiled.graph
    with torch.no_grad():
        answer, reasons, engine = answered(problem, ball)
        if problem.method == "ibp":
            found, _, _ = interval_boxes(graph, ball, graph.values(ball.centre))
            boxes = {n.index: found[n.index] for n in graph.nodes if n.perturbed}
        else:
            assert engine is not None
            boxes = {n.index: engine.box(n) for n in graph.nodes[1:] if n.perturbed}
            assert engine.reasons == reasons
            for (index, axis), reach in engine.around.items():
                middle = boxes[index].centre if reach.middle is None else reach.middle
                lengths[index, axis, 0] = middle, reach.distance
            for index, box in boxes.items():
                if box.distance is not None:
                    lengths[index, len(graph.nodes[index].shape) - 1, 1] = box.centre, box.distance
            for index, length in engine.lengths.items():
                lengths[index, len(graph.nodes[index].shape) - 1, 2] = boxes[index].centre, length
    assert not torch.isnan(answer.lower).any()
    assert not torch.isnan(answer.upper).any()
    return boxes, lengths, answer, torch.tensor([r is None for r in reasons])


def enclosed(problem: Problem, eps: Tensor, samples: int = 100) -> int:
    """Check margins and the box of every node at many points of the sets; returns at how many.

    Pieces of balls are checked at those points of the ball that are in them, and every point must be in one. In single
    precision the points are evaluated in double precision, and must be within the bounds exactly.
    """
    chosen = list(range(len(problem)))
    ball = problem.ball(eps, chosen)
    cloud = cloud_of(problem, ball, samples)
    if isinstance(problem, Split):
        owners = list(problem.owners)
        pieces = problem.pieces.ball(eps[owners], list(range(len(owners))))
        cloud, of = cloud[owners], torch.tensor(owners)
        mask = inside(pieces, cloud)
        assert all(mask[of == i].any(dim=0).all() for i in chosen), "a point is in no piece"
        whole = problem.margins(eps)
        assert all(bool((_values(problem, ball, cloud[of == i][0], i) >= whole.lower[i] - 1e-9).all()) for i in chosen)
        return _checked(problem.pieces, pieces, cloud, mask)
    return _checked(problem, ball, cloud, inside(ball, cloud))


def _values(problem: Problem, ball: Ball, points: Tensor, instance: int) -> Tensor:
    """Margins of one instance at points of its ball."""
    graph, lengths = problem.compiled.graph, ball.lengths
    lengths = None if lengths is None else lengths[instance : instance + 1]
    outputs = graph.values(points, graph.values(ball.centre[instance : instance + 1], lengths=lengths))[-1][:, None]
    return (problem.rows([instance]) * outputs).flatten(2).sum(dim=2)


def _checked(problem: Problem, ball: Ball, cloud: Tensor, mask: Tensor) -> int:
    boxes, lengths, margins, good = bounds_of(problem, ball)
    mask = mask & good[:, None]
    graph, chosen, count = problem.compiled.graph, list(range(len(problem))), cloud.shape[1]
    single = ball.centre.dtype == torch.float32
    nominal = [v.double().expand(len(problem), *v.shape[1:]) for v in graph.values(ball.centre, lengths=ball.lengths)]
    graph = graph.to(torch.float64)
    every = [v.repeat_interleave(count, dim=0) for v in nominal]
    values = graph.values(cloud.double().flatten(0, 1), every)
    values = [v.expand(len(problem) * count, *v.shape[1:]).unflatten(0, (-1, count)) for v in values]
    rows = problem.rows(chosen).double()

    def within(name: object, value: Tensor, box: Box) -> None:
        slack = 0.0 if single else EVALUATION * (1 + value.abs())  # the rounding of this evaluation, not of the bounds
        lower, upper = box.lower.double()[:, None], box.upper.double()[:, None]
        seen = mask.reshape(*mask.shape, *(1,) * (value.dim() - 2))
        assert (~seen | (value >= lower - slack)).all(), f"{name} below its bound"
        assert (~seen | (value <= upper + slack)).all(), f"{name} above its bound"

    for index, box in boxes.items():
        within(graph.nodes[index], values[index], box)
    for (index, axis, _), (middle, most) in lengths.items():
        if index in boxes:
            moved = values[index] - middle.double()[:, None]
            far = torch.linalg.vector_norm(moved, dim=2 + axis)
            within(f"the length of {graph.nodes[index]}", far, Box(torch.zeros_like(most), most))
    within("margin", (rows[:, None] * values[-1][:, :, None]).flatten(3).sum(dim=3), margins)
    return int(mask.sum())


def hold(prepared: Prepared, *, method: Any, relaxation: Any, eps: float, p: float, samples: int = 100) -> int:
    """Check margins and the box of every node of the model's graph; returns how many instances had bounds at all."""
    n = prepared.embeddings.shape[1]
    sets = [(1,), (n - 2,), (1, 2)]
    problem = problem_of([(prepared, s) for s in sets], p=p, method=method, relaxation=relaxation)
    radii = torch.tensor([eps, eps / 20, eps / 2], dtype=torch.float64)
    ball = problem.ball(radii, list(range(len(sets))))
    cloud = cloud_of(problem, ball, samples)
    return _checked(problem, ball, cloud, inside(ball, cloud)) // cloud.shape[1]

"""The bounds of a module that is being trained, as a function of its weights: for gradients, never for proofs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .captured import Captured
from .graph import Graph
from .graph.capture import exported, follow
from .interval import interval_margins
from .names import BoundOptions
from .problem import Instance, Problem
from .sets import Choices, Perturbation


class _Followed(Captured):
    """Graphs of a module as it is at this step. They are not compared with it."""

    def __init__(self, module: nn.Module, programs: dict[tuple[int, ...], Any]) -> None:
        super().__init__(module)
        self._programs = programs

    def _capture(self, example: Tensor) -> Graph:
        shape = tuple(example.shape)
        if shape not in self._programs:
            self._programs[shape] = exported(self.module, example)
        return follow(self.module, example, self._programs[shape])

    def _compare(self, graph: Graph, x: Tensor) -> None:
        pass


class Live:
    """A module and how it was exported, for every shape of its input; its graphs are made anew at every step."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._programs: dict[tuple[int, ...], Any] = {}

    def margins(
        self,
        x: Tensor,
        labels: Sequence[int],
        positions: Sequence[tuple[int, ...]],
        radii: Tensor,
        p: float,
        options: BoundOptions,
    ) -> Tensor:
        """Lower bounds `[batch]` of the margins of inputs `[batch, n, d]`, without terms for rounding."""
        problem = self._problem(x, labels, positions, p, options)
        return _lower(problem, problem.ball(radii.to(x), list(range(len(x)))))

    def margins_over(self, x: Tensor, labels: Sequence[int], moves: Tensor, options: BoundOptions) -> Tensor:
        """The same where each position ranges over the hull of its moves `[batch, n, choices, d]`, the first one 0."""
        n = x.shape[1]
        problem = self._problem(x, labels, [tuple(range(n))] * len(x), math.inf, options)  # no ball
        hot = torch.eye(n, dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
        return _lower(problem, Choices(problem.centre, hot, moves))

    def _problem(
        self, x: Tensor, labels: Sequence[int], positions: Sequence[tuple[int, ...]], p: float, options: BoundOptions
    ) -> Problem:
        instances = [Instance(x[k : k + 1], positions[k], label) for k, label in enumerate(labels)]
        followed = _Followed(self.module, self._programs)
        return Problem.of(followed, instances, examples=[x[:1].detach()], p=p, options=options)


def _lower(problem: Problem, around: Perturbation) -> Tensor:
    every = list(range(len(problem)))
    if problem.method == "ibp":
        graph = problem.compiled.graph
        found = interval_margins(graph, around, graph.values(around.centre), problem.rows(every))
        lower, fine = found.box.lower.amin(dim=1), found.good.all(dim=0)
    else:
        engine = problem.engine(around, {}, rounding=False)
        lower = engine.margins(problem.rows(every)).lower.amin(dim=1)
        fine = torch.tensor([reason is None for reason in engine.reasons], device=lower.device)
    return torch.where(fine & torch.isfinite(lower), lower, -torch.inf)

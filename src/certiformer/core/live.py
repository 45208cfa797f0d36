"""The bounds of a module that is being trained, as a function of its weights: for gradients, never for proofs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .captured import Captured
from .graph import Graph
from .graph.capture import exported, follow
from .names import BoundOptions
from .problem import Instance, Problem


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
        instances = [Instance(x[k : k + 1], positions[k], label) for k, label in enumerate(labels)]
        every = list(range(len(x)))
        problem = Problem.of(
            _Followed(self.module, self._programs), instances, examples=[x[:1].detach()], p=p, options=options
        )
        engine = problem.engine(problem.ball(radii.to(x), every), {}, rounding=False)
        lower = engine.margins(problem.rows(every)).lower.amin(dim=1)
        fine = torch.tensor([reason is None for reason in engine.reasons], device=x.device)
        return torch.where(fine & torch.isfinite(lower), lower, -torch.inf)

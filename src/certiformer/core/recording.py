"""An engine that keeps what its proof rests on, so that another program can replay it.

Every box is widened a little before anything is made of it: whoever replays the proof rounds differently, and what
follows for it must lie inside. All that comes out is a bound of the engine itself, a little looser than without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .engine import Engine
from .form import Form
from .graph.graph import Node
from .ops.base import Box, Planes, Reach, entries
from .problem import Problem
from .sets import Perturbation, Piece

Way = Literal["interval", "sweep"]


@dataclass(eq=False, kw_only=True)
class Recording(Engine):
    """The engine of one instance, with what it did: `boxes`, and the rest below, all by the number of the node."""

    by_windows: ClassVar[bool] = False  # what is kept of a sweep is of all rows of a node
    loosened: float  # by how much of their size bounds are widened

    ways: dict[int, list[Way]] = field(init=False, default_factory=dict)  # how each box was found
    shifts: dict[int, list[bool]] = field(init=False, default_factory=dict)  # sweeps, with or without the simplex shift
    cuts: dict[int, list[tuple[Tensor, Tensor]]] = field(init=False, default_factory=dict)  # multipliers of each sweep
    reaches: dict[int, Reach] = field(init=False, default_factory=dict)
    planes: dict[int, Planes] = field(init=False, default_factory=dict)
    margin: Tensor = field(init=False)  # lower bounds for the other classes

    def __post_init__(self) -> None:
        super().__post_init__()
        # the linear form of the output is of no use, and a certificate knows the middle of the usual planes alone
        scheme, last = self.scheme, self.graph.output.index
        self.scheme = replace(scheme, anchors=scheme.anchors - {last}, style=scheme.style.checkable)

    @staticmethod
    def of(problem: Problem, ball: Perturbation, instance: int, *, loosened: float) -> Recording:
        """What a problem proves of one of its instances over a set, kept."""
        parameters = {i: tuple(p[[instance]] for p in ps) for i, ps in problem.parameters.items()}
        with torch.no_grad():
            engine = problem.engine(ball, parameters, rounding=True, kind=partial(Recording, loosened=loosened))
            assert isinstance(engine, Recording)
            engine.margin = engine.margins(problem.rows([instance])).lower[0]
        output = engine.graph.output.index
        engine.shifts[output] = [True, False] if engine.scheme.last_twice else [True]
        return engine

    @property
    def forms_of(self) -> frozenset[int]:
        """Nodes at which sweeps end in a linear form."""
        return self.scheme.anchors - frozenset(self.scheme.local)

    def _slack(self, box: Box) -> Tensor:
        """By how much bounds of a node are widened, `[instances]`."""
        return self.loosened * entries(torch.maximum(box.lower.abs(), box.upper.abs())).amax(dim=1)

    def _widened(self, box: Box) -> Box:
        slack = self._slack(box).reshape(-1, *(1,) * (box.lower.dim() - 1))
        return Box(box.lower - slack, box.upper + slack)

    def _interval(self, node: Node) -> Box:
        self.ways.setdefault(node.index, []).append("interval")
        return self._widened(super()._interval(node))

    def _swept(self, node: Node) -> tuple[Box, Form | None]:
        self.ways.setdefault(node.index, []).append("sweep")
        box, form = super()._swept(node)
        return self._widened(box), form

    def _reach(self, node: Node, box: Box, form: Form) -> Reach:
        distance, radial, _ = super()._reach(node, box, form).times(1 + self.loosened)
        slack = self._slack(box).reshape(-1, *(1,) * (distance.dim() - 1))
        reach = Reach(distance + slack, radial + slack)
        self.reaches[node.index] = reach
        return reach

    def furthest(self, function: Tensor) -> Tensor:
        """Over the whole ball where this is a piece of one: no multipliers are kept of it."""
        return self.ball.spread(function[None])[0] if isinstance(self.ball, Piece) else super().furthest(function)

    def _rows(self, node: Node, *, shift: bool, tangent: bool = False) -> tuple[Box, Form | None]:
        self.shifts.setdefault(node.index, []).append(shift)
        return super()._rows(node, shift=shift, tangent=tangent)

    def _concretize(self, function: Tensor, offset: Tensor, node: Node) -> Box:
        if isinstance(self.ball, Piece):
            self.cuts.setdefault(node.index, []).append(self.ball.multipliers(function))
        return super()._concretize(function, offset, node)

    def _planes(self, node: Node) -> Planes:
        planes = super()._planes(node)
        if not node.op.exact:
            self.planes[node.index] = planes
        return planes

"""Optimised planes: climb the certified margin over the choices that every op leaves open.

Any values of the parameters give sound planes, so every iterate is a bound. They are shares of the box they live in
(how much of which plane, where in the box to touch), so what was found at one radius serves at those near it. The
gradient goes through everything, the bounds of all nodes before included: that is where most of the gain is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .deadline import NEVER, Deadline
from .engine import Engine
from .ops.base import Parameters
from .speed.memory import peak

RATE = 0.08  # of the first step; parameters live in [0, 1]
ENOUGH = 0.01  # of the size of the first margin: above 0 by so much it will be proved
PATIENCE = 8  # steps without a gain anywhere after which it is over


class Climb(NamedTuple):
    """Margins at some parameters, and which way they grow."""

    reached: Tensor  # [instances]: what is to become large
    good: Tensor  # [instances]: whether it holds
    gradient: Tensor  # [instances, numbers], of each by its own parameters
    bytes: int

    def copied(self) -> Climb:
        """With tensors of its own."""
        return Climb(self.reached.clone(), self.good.clone(), self.gradient.clone(), self.bytes)


class Tuned(NamedTuple):
    """The best parameters of each instance, the margin with them, None where none was computed, and the steps taken."""

    parameters: Parameters
    reached: Tensor | None
    steps: int = 0

    def first(self, count: int) -> Tuned:
        """Of the first instances: the others only pad the batch."""
        parameters = {i: tuple(p[:count] for p in own) for i, own in self.parameters.items()}
        return Tuned(parameters, None if self.reached is None else self.reached[:count], self.steps)


def usual(engine: Engine, rows: Tensor, least: Callable[[Tensor], Tensor]) -> Tuned:
    """The parameters of planes as they are without any, beside those that an engine is given, and its margins."""
    with torch.no_grad():
        reached = least(engine.margins(rows).lower)
        reached = torch.where(held(engine), reached, -torch.inf)
        found: Parameters = {}
        for node in engine.graph.nodes:
            if node.perturbed and not node.op.exact:
                boxes = tuple(engine.box(p) for p in engine.graph.parents(node))
                own = engine.parameters.get(node.index) or node.op.parameters(*boxes)
                if own:
                    found[node.index] = tuple(p.detach().clone() for p in own)
    return Tuned(found, reached)


def climb(
    build: Callable[[Parameters], Engine], rows: Tensor, least: Callable[[Tensor], Tensor], parameters: Parameters
) -> Climb:
    """The margins of instances at some parameters, and their gradients."""
    with peak(rows.device) as taken, torch.enable_grad():
        numbers = flat(parameters).detach().requires_grad_(True)
        engine = build(parted(numbers, parameters))
        reached = least(engine.margins(rows).lower)
        (gradient,) = torch.autograd.grad(reached.sum(), numbers)
    return Climb(reached.detach(), held(engine), gradient, taken())


def held(engine: Engine) -> Tensor:
    """Of which instances every check held, `[instances]`."""
    return torch.stack([good for good, _ in engine.failures]).all(dim=0)


def tune(
    step: Callable[[Parameters], Climb],
    start: Tuned,
    *,
    steps: int,
    rate: float = RATE,
    until: Deadline = NEVER,
    until_proved: bool = False,
) -> Tuned:
    """The best parameters of each instance after at most this many steps from some on. No step begins after `until`,
    nor, with `until_proved`, after all margins are above 0."""
    if not start.parameters or not steps:
        return start
    current, best, reached, scale = flat(start.parameters), flat(start.parameters), start.reached, None
    optimizer = torch.optim.Adam([current], lr=rate)
    idle = taken = 0
    for k in range(steps):
        if scale is None and reached is not None:
            scale = _size(reached)
        enough = until_proved and reached is not None and scale is not None and bool((reached > ENOUGH * scale).all())
        if until.passed or enough:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - k / steps)
        at, taken = step(parted(current, start.parameters)), k + 1
        found = torch.where(torch.isfinite(at.reached) & at.good, at.reached, -torch.inf)
        if reached is None:
            reached = found
            scale = _size(reached)
        assert scale is not None
        idle = 0 if bool((found > reached + 1e-3 * scale).any()) else idle + 1
        best = torch.where((found > reached)[:, None], current, best)
        reached = torch.maximum(reached, found)
        if idle >= PATIENCE:
            break
        current.grad = -at.gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) / scale[:, None]
        optimizer.step()
        current.clamp_(0, 1)
    return Tuned(parted(best, start.parameters), reached, taken)


def _size(margins: Tensor) -> Tensor:
    """How large they are; 1 where there are none."""
    return margins.abs().clamp(min=torch.finfo(margins.dtype).eps).nan_to_num(posinf=1.0)


def flat(parameters: Parameters) -> Tensor:
    """All parameters of each instance in one row, `[instances, numbers]`; a copy."""
    return torch.cat([p.flatten(1) for own in parameters.values() for p in own], dim=1)


def parted(numbers: Tensor, like: Parameters) -> Parameters:
    """Such rows as parameters again."""
    sizes = [p[0].numel() for own in like.values() for p in own]
    parts = iter(torch.split(numbers, sizes, dim=1))
    return {i: tuple(next(parts).reshape(-1, *p.shape[1:]) for p in own) for i, own in like.items()}

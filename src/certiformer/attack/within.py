"""Counterexamples inside a given set: gradient steps towards bad outputs, each point brought back into the set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.deadline import Deadline
from ..core.goal import Clause, Goal
from ..options import Tries
from ..properties import Wanted
from ..questions.inputs import Prepared
from ..questions.regions import Region
from .forward import alone, logits_of
from .norms import into_ball, steepest

_ELEMENTS = 2**20  # numbers of input in one batch
_AIMS = 10  # half-spaces or clauses that starts aim at, the nearest first


@dataclass(frozen=True, eq=False)
class Found:
    """A point `[1, *shape]` of a region in float64 with bad outputs, and the clause by which they are."""

    region: int
    point: Tensor
    outputs: tuple[float, ...]
    clause: int


def find(
    prepared: Prepared,
    regions: Sequence[Region],
    wanted: Wanted,
    tries: Tries | None,
    deadline: Deadline,
    *,
    dtype: torch.dtype,
) -> Found | None:
    """The first region in which a point with bad outputs is found; without tries only their centres are looked at.

    `prepared` is in float64; what counts is a forward pass of one input in `dtype`.
    """
    judge = _Judge(prepared, wanted, dtype)
    for k, region in enumerate(regions):
        point = region.centre if region.ends is not None else prepared.embeddings.to("cpu", torch.float64)
        found = judge.checked(k, region, point)
        if found is not None:
            return found
    for k, region in enumerate(regions if tries is not None else ()):
        assert tries is not None
        found = _attacked(prepared, k, region, judge, tries, deadline)
        if found is not None or deadline.passed:
            return found
    return None


@dataclass(frozen=True, eq=False)
class _Judge:
    """Decides whether a point refutes: it is of the set, exactly, and the model itself gives bad outputs."""

    prepared: Prepared
    wanted: Wanted
    dtype: torch.dtype

    def checked(self, k: int, region: Region, point: Tensor) -> Found | None:
        device = self.prepared.embeddings.device
        given = point.to(self.dtype).double()  # what the model is really given
        if not region.holds(given):
            return None
        with torch.no_grad():
            outputs = alone(self.prepared.cast(self.dtype).module, given.to(device, self.dtype))[0].double().cpu()
        if not bool(torch.isfinite(outputs).all()):
            return None
        clause = self.wanted.violated(outputs)
        return None if clause is None else Found(k, given, tuple(outputs.tolist()), clause)


@dataclass(frozen=True, eq=False)
class _Space:
    """A region as moves in units of its widths, `[rows, blocks, numbers]`: every block a unit ball."""

    region: Region
    centre: Tensor  # [1, *shape]
    width: Tensor

    @property
    def blocks(self) -> tuple[int, int]:
        """How many norms are taken, of how many numbers."""
        apart = not self.region.joint and self.region.positions is not None and not math.isinf(self.region.p)
        return (self.centre.shape[1], self.centre[0, 0].numel()) if apart else (1, self.centre.numel())

    def points(self, moves: Tensor) -> Tensor:
        """Inputs `[rows, *shape]`, those of a box between its ends."""
        points = self.centre + moves.reshape(-1, *self.centre.shape[1:]) * self.width
        if self.region.ends is None:
            return points
        lower, upper = (end.to(points) for end in self.region.ends)
        return torch.minimum(torch.maximum(points, lower), upper)

    def exact(self, move: Tensor) -> Tensor:
        """One point in float64, inside: ends are kept, and a ball is entered a little."""
        shape, region = self.centre.shape, self.region
        moved = move.double().cpu().reshape(shape) * region.width
        if region.ends is not None:
            return torch.minimum(torch.maximum(region.centre + moved, region.ends[0]), region.ends[1])
        point = region.centre + moved
        return torch.where(region.width > 0, point, region.centre)


def _attacked(
    prepared: Prepared, k: int, region: Region, judge: _Judge, tries: Tries, deadline: Deadline
) -> Found | None:
    device = prepared.embeddings.device
    module = prepared.cast(torch.float32).module
    space = _Space(region, region.centre.to(device).float(), region.width.to(device).float())
    goal = judge.wanted.goal
    with torch.no_grad():
        here = _values(goal, logits_of(module, space.centre))[0]
    aims = _aims(goal, here)
    starts = [(aim, start) for start in range(tries.restarts) for aim in aims]
    generator = torch.Generator().manual_seed(tries.seed)
    batch = max(1, _ELEMENTS // space.centre.numel())
    for first in range(0, len(starts), batch):
        part = starts[first : first + batch]
        for move in _descended(space, module, goal, part, tries.attack_steps, generator, deadline):
            for shrink in (0.0, 1e-9, 1e-6):  # rounding may have left the set by a little
                found = judge.checked(k, region, space.exact(move * (1 - shrink)))
                if found is not None:
                    return found
        if deadline.passed:
            break
    return None


def _values(goal: Goal, outputs: Tensor) -> Tensor:
    """`rows y - limits` `[rows, half-spaces]` of outputs `[rows, outputs]`."""
    return outputs @ goal.rows.to(outputs).T - goal.limits.to(outputs)


def _aims(goal: Goal, here: Tensor) -> list[Clause]:
    """What starts aim at: clauses, and each half-space of those that one is enough for, the nearest first."""
    aims = [
        one
        for clause in goal.clauses
        for one in ([Clause((h,), 1) for h in clause.halfspaces] if clause.count == 1 else [clause])
    ]
    far = [float(Goal(goal.rows, goal.limits, (aim,)).least(here.double())) for aim in aims]
    return [aims[i] for i in sorted(range(len(aims)), key=lambda i: far[i])[:_AIMS]]


def _descended(
    space: _Space,
    module: torch.nn.Module,
    goal: Goal,
    starts: Sequence[tuple[Clause, int]],
    steps: int,
    generator: torch.Generator,
    deadline: Deadline,
) -> list[Tensor]:
    """The worst move of each start that seems to reach bad outputs, the worst first."""
    p, like = space.region.p, space.centre
    rows, (count, size) = len(starts), space.blocks
    noise = torch.rand(rows, count, size, generator=generator, dtype=torch.float64) * 2 - 1
    noise[[i for i, (_, start) in enumerate(starts) if start == 0]] = 0
    ones = like.new_ones(rows)
    moves = into_ball(noise.to(like) * (space.width > 0).reshape(count, size), ones, p)
    best, worst = moves.clone(), like.new_full((rows,), math.inf)
    for step in range(steps + 1):
        x = moves.detach().requires_grad_(True)
        with torch.enable_grad():
            values = _values(goal, logits_of(module, space.points(x)))
            aimed = torch.stack([_of(aim, row) for (aim, _), row in zip(starts, values, strict=True)])
            live = aimed.requires_grad
            (gradient,) = torch.autograd.grad(aimed.sum(), x) if live else (torch.zeros_like(x),)
        reached = goal.least(values.detach())
        better = reached < worst
        worst, best = torch.where(better, reached, worst), torch.where(better[:, None, None], moves, best)
        if step == steps or bool((worst <= 0).any()) or deadline.passed:
            break
        length = 0.5 * (1 + math.cos(math.pi * step / steps)) * 0.5 + 0.01
        direction = steepest(torch.nan_to_num(gradient), p, torch.full((rows,), max(1, size // 4), device=like.device))
        moves = into_ball(moves - length * direction, ones, p).detach()
    slack = 1e-4 * (1 + worst.abs().min())  # single precision may just miss what double finds
    order = worst.argsort().tolist()
    return [best[i] for i in order if float(worst[i]) <= float(slack)]


def _of(aim: Clause, values: Tensor) -> Tensor:
    """What must come down to 0: of a clause that needs several half-spaces, the sum of those still to be reached."""
    chosen = values[list(aim.halfspaces)]
    if aim.count == 1:
        return chosen.amin()
    nearest = chosen.topk(aim.count, largest=False).values
    return torch.relu(nearest).sum() + nearest.amax()

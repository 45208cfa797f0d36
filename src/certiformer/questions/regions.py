"""Sets that a caller names, as those of one model's input: what is bounded, what is attacked, and what lies inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ..core.goal import Goal
from ..core.names import BoundOptions
from ..core.problem import Instance, Problem
from ..errors import InputError, ModelError
from ..models.model import Model
from ..models.reading import Inputs, as_given, logits_at
from ..numbers import at_least
from ..options import Options, Question
from ..sets import Ball, Box, Set, added
from .inputs import Prepared
from .positions import position_sets
from .refine import not_less

NEAR = 1e-9  # by how much of its radius a point must lie inside a ball whose norm is not computed exactly


@dataclass(frozen=True, eq=False)
class Region:
    """One set of inputs in float64: around `centre` `[1, *shape]`, as wide as `width` in each number, 0 where it stays.

    Norms are of units of the widths, at most 1: one over all (`joint`), or one for each of the `positions`. A box has
    its two ends as well.
    """

    name: str
    centre: Tensor
    width: Tensor
    p: float
    joint: bool
    positions: tuple[int, ...] | None  # that vary; None for an input without
    eps: float | None = None  # the radius of a ball, whose widths are all the same
    ends: tuple[Tensor, Tensor] | None = None

    @property
    def kind(self) -> tuple[float, bool, bool]:
        """Regions of one kind are bounded in one batch."""
        return self.p, self.joint, self.eps is None

    def holds(self, point: Tensor) -> bool:
        """Whether a point `[1, *shape]` of float64 lies in the set, in exact arithmetic; for norms that have no exact
        value, whether it is inside by more than rounding."""
        if self.ends is not None:
            return bool(((self.ends[0] <= point) & (point <= self.ends[1])).all())
        if bool(((point != self.centre) & (self.width == 0)).any()):
            return False
        radius = Fraction(float(self.width.max()) if self.eps is None else self.eps)
        return all(self._short(block, radius) for block in self._moves(point))

    def _moves(self, point: Tensor) -> list[list[Fraction]]:
        """How far each number moved, exactly, for each norm that is taken."""
        pairs = zip(point.flatten().tolist(), self.centre.flatten().tolist(), strict=True)
        moved = [abs(Fraction(x) - Fraction(c)) for x, c in pairs]
        if self.joint or self.positions is None:
            return [moved]
        d = point.shape[-1]
        return [moved[k * d : (k + 1) * d] for k in self.positions]

    def _short(self, move: list[Fraction], radius: Fraction) -> bool:
        if math.isinf(self.p):
            return max(move) <= radius
        if self.p == 1:
            return sum(move) <= radius
        if self.p == 2:
            return sum(x * x for x in move) <= radius * radius
        largest = float(max(move))
        size = largest * sum((float(x) / largest) ** self.p for x in move) ** (1 / self.p) if largest else 0.0
        return size * (1 + NEAR) <= float(radius)

    def instance(self, like: Tensor, label: int) -> Instance:
        """This set as one to bound, in the precision of `like`: of a box the smallest around it."""
        centre = self.centre.to(like)
        near = centre.to("cpu", torch.float64)
        if self.ends is None and not torch.equal(near, self.centre):
            raise InputError(f"dtype={like.dtype}: the input is not made of such numbers, nor is a ball around it")
        if self.eps is not None:
            return Instance(centre, self.positions, label)
        width, positions = self.width, self.positions
        if self.ends is not None:
            width = _half(*self.ends, near)
            positions = None if positions is None else moving(width)
        else:  # a ball on chosen numbers
            width = width.masked_fill(width > 0, at_least(float(width.max())))
        rounded = not_less(width, like)
        if not bool(torch.isfinite(rounded).all() and torch.isfinite(centre).all()):
            raise InputError(f"{self.name}: too large for {like.dtype}")
        return Instance(centre, positions, label, rounded)


def _half(lower: Tensor, upper: Tensor, centre: Tensor) -> Tensor:
    """How far a box goes from a centre, number by number, rounded up."""
    return torch.maximum(added(upper, -centre, math.inf), added(centre, -lower, math.inf)).clamp(min=0)


def moving(width: Tensor) -> tuple[int, ...]:
    """The positions of `[1, n, d]` at which anything varies, at least one."""
    return tuple(int(i) for i in (width[0] > 0).any(dim=1).nonzero()[:, 0]) or (0,)


def looked_at(model: Model, inputs: Inputs | None, sets: Sequence[Set]) -> Inputs:
    """The input that a question is about: the one given, or the middle of the first box."""
    if inputs is not None:
        return inputs
    first = sets[0]
    if not isinstance(first, Box):
        raise InputError(f"inputs={inputs!r}: expected an input; only a Box needs none")
    if not first.middle.dim():
        if model.shape is None:
            raise InputError(f"inputs={inputs!r}, within={first!r}: expected an input, or a Box of arrays")
        return first.middle.expand(model.shape)
    return _everywhere(model, first.middle)


def regions_of(prepared: Prepared, sets: Sequence[Set]) -> list[Region]:
    """Every set of a union as sets of this input: a ball on several sets of positions is as many."""
    found: list[Region] = []
    for k, one in enumerate(sets):
        if isinstance(one, Box):
            found.append(_boxed(prepared, one, k))
        elif isinstance(one, Ball):
            found += _balls(prepared, one, k)
        else:
            raise InputError(f"within={one!r}: substitutions are asked about alone")
    return found


def _shaped(prepared: Prepared, given: Tensor, asked: str) -> Tensor:
    """A tensor with a number for each of the input's, as the module takes them: `[1, *shape]`."""
    like = prepared.embeddings
    if not given.dim():
        return given.expand(like.shape).clone()
    try:
        found = as_given(prepared.model, _everywhere(prepared.model, given))
    except InputError as error:
        raise InputError(f"{asked}: {error}") from None
    if found.shape != like.shape:
        raise InputError(f"{asked}: expected the shape {list(like.shape[1:])}, found {list(found.shape[1:])}")
    return found


def _everywhere(model: Model, given: Tensor) -> Tensor:
    """Numbers that are the same along some axes of an input, as those of a channel, for all of it."""
    shape = model.shape or getattr(getattr(model.module, "cut", None), "shape", None)
    if shape is None or given.dim() != len(shape):
        return given
    repeats = all(a in (1, b) for a, b in zip(given.shape, shape, strict=True))
    return given.expand(shape) if repeats else given


def _boxed(prepared: Prepared, box: Box, k: int) -> Region:
    lower, upper = (_shaped(prepared, x, f"within[{k}]={box!r}") for x in (box.lower, box.upper))
    centre = Box(lower, upper).middle
    width = _half(lower, upper, centre)
    positions = moving(width) if prepared.has_positions else None
    return Region(f"box {k}", centre, width, math.inf, False, positions, ends=(lower, upper))


def _balls(prepared: Prepared, ball: Ball, k: int) -> list[Region]:
    centre = prepared.embeddings.to("cpu", torch.float64)
    if ball.where is not None:
        chosen = _shaped(prepared, ball.where.double(), f"within[{k}]") > 0
        width = torch.zeros_like(centre).masked_fill(chosen, float(ball.eps))
        return [Region(f"ball {k}", centre, width, ball.p, True, moving(width) if prepared.has_positions else None)]
    if not prepared.has_positions:
        if ball.positions is not None:
            raise InputError(f"positions={ball.positions!r}: this input has none; choose its numbers by where=")
        width = torch.full_like(centre, float(ball.eps))
        return [Region(f"ball {k}", centre, width, ball.p, True, None, eps=float(ball.eps))]
    found = []
    for where in position_sets(prepared, Question(positions=ball.positions)):
        width = torch.zeros_like(centre)
        width[:, list(where)] = float(ball.eps)
        name = f"ball {k} at {'+'.join(map(str, where))}"
        found.append(Region(name, centre, width, ball.p, ball.joint, where, eps=float(ball.eps)))
    return found


def problem_of_regions(prepared: Prepared, regions: Sequence[Region], goal: Goal | None, options: Options) -> Problem:
    """Regions of one kind as a batch; every one is asked about at the radius `radii_in` gives."""
    first, like = regions[0], prepared.embeddings
    if goal is not None and not goal.exact_in(like.dtype):
        raise InputError(f"dtype={like.dtype}: the property has coefficients that are no such numbers; use float64")
    bounds = BoundOptions(**{name: getattr(options, name) for name in BoundOptions.__dataclass_fields__})
    captured = prepared.workspace.on(dtype=like.dtype, device=like.device).captured
    problem = Problem.of(
        captured,
        [region.instance(like, prepared.label) for region in regions],
        examples=[like, *(region.centre.to(like) for region in regions if region.ends is not None)],
        p=first.p,
        options=bounds,
        joint=first.joint,
        goal=goal,
    )
    if problem.arithmetic == "float32":
        _check_deployed(prepared, problem, regions)
    return problem


def radii_in(regions: Sequence[Region]) -> tuple[float, ...]:
    """The radius of each: that of a ball; 1 where the widths say it all."""
    return tuple(1.0 if r.eps is None else r.eps for r in regions)


def _check_deployed(prepared: Prepared, problem: Problem, regions: Sequence[Region]) -> None:
    """The model's own forward pass in float32 must lie within the bounds at the centres themselves."""
    bounds = problem.margins(torch.zeros(len(regions), dtype=torch.float64))
    model = prepared.cast(torch.float32)
    for k, region in enumerate(regions):
        if bounds.reasons[k] is not None:
            continue
        x = region.centre.to(prepared.embeddings).float()
        outputs = logits_at(model, x, given=False, least=1).to(problem.centre)
        found = (problem.rows([k])[0, :, 0] * outputs).sum(dim=1)
        found = found if problem.goal is None else found.double() - problem.goal.limits.to(found.device)
        if not bool(((bounds.lower[k] <= found) & (found <= bounds.upper[k])).all()):
            raise ModelError(
                f"arithmetic='float32': model {model.name!r} gives {found.tolist()} in float32, which rounding does "
                f"not explain: does it compute something else in float32, or in less than that?"
            )

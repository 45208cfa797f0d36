"""Radii and margins piece by piece: branch and bound until all is proved, nothing is gained, or the time is out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from ..core.branch import Branching, cuttable
from ..core.deadline import OutOfTime
from ..core.problem import Margins, Problem
from ..core.split import Split
from .bracket import Bracket
from .closing import Stage, again, reached, verify

BEYOND, NEAREST, FARTHEST = 1.5, 0.03, 0.2  # where balls are cut, past what was reached: times the last gain, between
FEW = 4  # pieces before planes are optimised, too
SAFE = 5e-4  # what is taken off the radius of a draft before it is proved
TUNING = 0.4  # of the time that is left that optimising planes may take, at most
PATIENCE = 2  # doublings that gain less than the tolerance after which an instance is left alone
LONG = 4  # the same in a given time


@dataclass
class Front:
    """How far the pieces of one instance reach by a draft, what the last cuts gained, and how often hardly anything."""

    near: float
    gain: float = FARTHEST
    idle: int = 0
    patience: int = PATIENCE
    goal: float = 0.0  # where pieces are cut; 0: nowhere

    @property
    def ahead(self) -> float:
        """Where to cut pieces: a little beyond what is reached, more where the last ones gained much; 0: nowhere."""
        if self.idle >= self.patience:
            return 0.0
        return self.near * (1 + min(max(BEYOND * self.gain, NEAREST), FARTHEST))

    def moved(self, near: float, tolerance: float, *, most: bool) -> None:
        """The pieces, as many as there may be or not, reach so far now."""
        near = min(max(near, self.near), self.goal)
        self.gain, self.near = near / self.near - 1, near
        self.idle = self.idle + 1 if self.gain < tolerance else 0
        if most and near < self.goal:
            self.idle = self.patience


def divided(problem: Problem, nominal: list[float], radii: list[float], splits: int, stage: Stage) -> list[float]:
    """Radii proved piece by piece, by at most so many pieces each; never less than those given, which are proved.

    The number of pieces doubles, each time by cutting a little beyond the radius that those so far get to. Where time
    is limited, what was reached is proved each time: when time is out, that is the answer.
    """
    if not cuttable(problem):
        return radii
    branching, place, began = Branching(problem), len(stage.ways), time.monotonic()
    limited = problem.deadline.limited
    fronts = [Front(r, patience=LONG if limited else PATIENCE) for r in radii]
    with suppress(OutOfTime):
        while any(f.ahead for f in fronts):
            goals = branching.nearer([f.ahead for f in fronts], [f.near for f in fronts])
            for front, goal in zip(fronts, goals, strict=True):
                front.goal = goal
            count = min(2 * branching.most, splits)
            branching.grow(goals, count)
            _tune(branching, goals, count)
            split = branching.split()
            near = _reached(split, branching, fronts, nominal, stage)
            for i, front in enumerate(fronts):
                if front.goal > 0:
                    front.moved(near[i], stage.tolerance, most=len(branching.of(i)) == splits)
            if limited:
                radii = _confirmed(split, nominal, radii, fronts, stage)
                stage.ways[place:] = [split]
            branching.learn(split)
            stage.progress(int(len(radii) * _share(problem, began, branching.most / splits)))
    return radii if limited else again(branching.split(), nominal, radii, [f.near for f in fronts], stage)


def _tune(branching: Branching, radii: list[float], count: int) -> None:
    """Optimise the planes of the pieces that are not proved, where there is a time to use: more cuts alone gain less
    and less."""
    deadline = branching.problem.deadline
    if deadline.limited and count > FEW:
        branching.tune(radii, deadline.share(TUNING))


def _share(problem: Problem, began: float, cut: float) -> float:
    """How much of the cutting is done: of the time, where that is limited, else of the doublings."""
    if not problem.deadline.limited:
        return cut
    passed = time.monotonic() - began
    return min(1.0, passed / max(passed + problem.deadline.left, 1e-9))


def _reached(
    split: Split, branching: Branching, fronts: list[Front], nominal: list[float], stage: Stage
) -> list[float]:
    """About how far the pieces reach, given what cutting them has found at the goal."""
    brackets = []
    for i, (front, margin) in enumerate(zip(fronts, nominal, strict=True)):
        bracket = Bracket(margin, front.near, low=front.near)
        if front.goal > 0:
            least = branching.least(i)
            bracket.guess = None if least > 0 else front.near
            bracket.take(front.goal, least, rounding=False)
        brackets.append(bracket)
    return reached(split, brackets, stage.calls)


def _confirmed(
    split: Split, nominal: list[float], radii: list[float], fronts: list[Front], stage: Stage
) -> list[float]:
    """Radii that are proved where a draft has reached further, or those proved before."""
    brackets = [Bracket(m, f.near) for m, f in zip(nominal, fronts, strict=True)]
    for bracket, front, radius in zip(brackets, fronts, radii, strict=True):
        bracket.low = front.near * (1 - SAFE) if front.near * (1 - SAFE) > radius else 0.0
    found = verify(split, brackets, stage.calls, stage.tolerance)
    return [max(a, b) for a, b in zip(radii, found, strict=True)]


@dataclass(frozen=True)
class Cutting:
    """Margins within radii by at most so many pieces of each ball; with `until_proved`, until all are."""

    problem: Problem
    eps: Tensor
    splits: int
    rounding: bool
    until_proved: bool

    def margins(self, known: Margins, chosen: list[int], ways: list[Problem]) -> Iterator[Margins]:
        """Those known, where those of some instances get better and better; the last pieces join the `ways`."""
        branching, count, place = Branching(self.problem), 1, len(ways)
        radii = [r if i in chosen else 0.0 for i, r in enumerate(self.eps.tolist())]
        while count < self.splits:
            count = min(2 * count, self.splits) if self.problem.deadline.limited else self.splits
            grown = branching.grow(radii, count)
            _tune(branching, radii, count)
            split = branching.split()
            found = split.margins(self.eps[chosen], chosen, rounding=self.rounding)
            branching.learn(split)
            ways[place:] = [split]
            yield _replaced(known, found, chosen)
            if not grown or (self.until_proved and bool((found.least > 0).all())):
                return


def _replaced(known: Margins, found: Margins, chosen: list[int]) -> Margins:
    """Margins of all instances, those of some by what was found of them."""
    lower, upper, least, reasons = known.lower.clone(), known.upper.clone(), known.least.clone(), list(known.reasons)
    lower[chosen], upper[chosen], least[chosen] = found.lower, found.upper, found.least
    for i, reason in zip(chosen, found.reasons, strict=True):
        reasons[i] = reason
    return Margins(lower, upper, tuple(reasons), least)

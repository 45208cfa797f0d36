"""Radii and margins piece by piece: branch and bound until all is proved, nothing is gained, or the time is out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from torch import Tensor

from ..core.branch import Branching, cuttable
from ..core.deadline import NEVER, Deadline, OutOfTime, while_there_is_room
from ..core.problem import Margins, Problem
from ..core.split import Split
from .bracket import Bracket
from .closing import Stage, again, farthest, reached, verify

BEYOND, NEAREST, FARTHEST = 1.5, 0.03, 0.2  # where balls are cut, past what was reached: times the last gain, between
FEW = 4  # pieces before planes are optimised, too
SAFE = 5e-4  # what is taken off the radius of a draft before it is proved
TUNING = 0.4  # of the time that is left that optimising planes may take, at most
FITS = 0.4  # of the time until that is kept, in which more cuts should fit
SMALL = 0.3  # of the time of the last cuts: with less nothing more is cut
RESERVED = 1.25  # times what proving the pieces should take is kept for it
PATIENCE = 2  # doublings that gain less than the tolerance after which an instance is left alone
LONG = 4  # the same in a given time


@dataclass
class Front:
    """How far the pieces of one instance reach by a draft, what the last cuts gained, and how often hardly anything."""

    near: float
    far: float  # beyond which nothing is looked for
    gain: float = FARTHEST
    idle: int = 0
    patience: int = PATIENCE
    goal: float = 0.0  # where pieces are cut; 0: nowhere

    @property
    def ahead(self) -> float:
        """Where to cut pieces: a little beyond what is reached, more where the last ones gained much; 0: nowhere."""
        if self.idle >= self.patience or self.near >= self.far:
            return 0.0
        return self.near * (1 + min(max(BEYOND * self.gain, NEAREST), FARTHEST))

    def moved(self, near: float, tolerance: float, *, most: bool) -> None:
        """The pieces, as many as there may be or not, reach so far now."""
        near = min(max(near, self.near), self.goal)
        self.gain, self.near = near / self.near - 1, near
        self.idle = self.idle + 1 if self.gain < tolerance else 0
        if most and near < self.goal:
            self.idle = self.patience


def divided(
    problem: Problem, nominal: list[float], radii: list[float], splits: int, stage: Stage, ended: list[str]
) -> list[float]:
    """Radii proved piece by piece, by at most so many pieces each; never less than those given, which are proved.

    The pieces become more and more, each time by cutting a little beyond the radius that those so far get to. Where
    time is limited, what was reached is proved now and then: when time is out, or memory, that is the answer, and
    which of them is put into `ended`.
    """
    if not cuttable(problem):
        return radii
    division = Division(problem, nominal, radii, splits, stage)
    if problem.deadline.limited:
        return division.in_time(ended)
    while division.goes_on:
        division.level()
    return again(division.branching.split(), nominal, radii, [f.near for f in division.fronts], stage)


@dataclass(eq=False)
class Division:
    """The balls of a problem cut into more and more pieces, and what is proved of them."""

    problem: Problem
    nominal: list[float]
    radii: list[float]  # proved
    splits: int
    stage: Stage
    took: float = 0.0  # seconds of the last level,
    made: int = 0  # and how many pieces more there were
    each: float = 0.0  # seconds that the last proof took, for each piece
    proved: int = 0  # how many pieces there were then

    def __post_init__(self) -> None:
        self.branching, self.place, self.began = Branching(self.problem), len(self.stage.ways), time.monotonic()
        patience, far = LONG if self.problem.deadline.limited else PATIENCE, farthest(self.problem)
        self.fronts = [Front(r, far, patience=patience) for r in self.radii]

    @property
    def goes_on(self) -> bool:
        """Whether there is anything left to cut."""
        return any(front.ahead for front in self.fronts)

    def level(self, until: Deadline = NEVER) -> None:
        """Cut what does not reach a little further, into up to twice as many pieces, and see how far they get; no
        evaluation begins after `until`."""
        began, fronts, branching = time.monotonic(), self.fronts, self.branching
        before = len(branching.leaves)
        branching.problem = replace(self.problem, deadline=until)
        goals = branching.nearer([f.ahead for f in fronts], [f.near for f in fronts])
        for front, goal in zip(fronts, goals, strict=True):
            front.goal = goal
        count = min(branching.most + min(branching.most, self._fitting(until)), self.splits)
        branching.grow(goals, count)
        _tune(branching, goals, count)
        split = branching.split()
        near = _reached(split, branching, fronts, self.nominal, self.stage)
        for i, front in enumerate(fronts):
            if front.goal > 0:
                front.moved(near[i], self.stage.tolerance, most=len(branching.of(i)) == self.splits)
        branching.learn(split)
        self.took, self.made = time.monotonic() - began, len(branching.leaves) - before
        share = _share(self.problem, self.began, branching.most / self.splits)
        self.stage.progress(int(len(self.radii) * share))

    def _fitting(self, until: Deadline) -> int:
        """How many more pieces of an instance there should be time for, as the last level went."""
        if not (until.limited and self.made):
            return self.splits
        active = sum(front.ahead > 0 for front in self.fronts)
        return max(1, int(FITS * until.left / self.took * self.made / active))

    def in_time(self, ended: list[str]) -> list[float]:
        """Radii proved until time is out: what is reached is proved when the pieces have doubled, and when there is
        as much time left as that should take."""
        with while_there_is_room() as out:
            while self.goes_on and not self._late(SMALL * self.took):
                with suppress(OutOfTime):
                    self.level(self._reserved())
                    while self.goes_on and len(self.branching.leaves) < 2 * self.proved:
                        self.level(self._reserved())
                self._prove()
        ended += out
        return self.radii

    def _reserved(self) -> Deadline:
        """When to begin to prove what is reached then."""
        return Deadline(self.problem.deadline.end - RESERVED * self.each * len(self.branching.leaves))

    def _late(self, seconds: float) -> bool:
        """Whether so much more cutting would leave too little time to prove what it reaches."""
        return Deadline(self._reserved().end - seconds).passed

    def _prove(self) -> None:
        """What drafts have reached; what is proved when time runs out stays."""
        began, asked, before = time.monotonic(), sum(self.stage.calls), self.radii
        self.branching.problem = self.problem
        split = self.branching.split()
        self.radii = _confirmed(split, self.nominal, self.radii, self.fronts, self.stage)
        if self.radii != before:
            self.stage.ways[self.place :] = [split]
        self.branching.learn(split)
        self.proved = len(split.owners)
        if sum(self.stage.calls) > asked:
            self.each = (time.monotonic() - began) / self.proved


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
    brackets = [Bracket(m, f.near, verified=r) for m, f, r in zip(nominal, fronts, radii, strict=True)]
    for bracket, front in zip(brackets, fronts, strict=True):
        bracket.low = front.near * (1 - SAFE)
    with suppress(OutOfTime):  # what is proved until then is in the brackets
        verify(split, brackets, stage.calls, stage.tolerance)
    return [bracket.verified for bracket in brackets]


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

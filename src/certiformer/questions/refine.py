"""Margins within given radii, refined as far as the options ask: by optimised planes, and piece by piece."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.branch import cuttable
from ..core.deadline import OUT_OF_TIME, Deadline, OutOfTime, while_there_is_room
from ..core.part import Known
from ..core.problem import Margins, Problem
from ..errors import InputError
from ..numbers import at_least
from ..options import Options
from .ladder import Climb, tighter
from .parts import Parting
from .parts import cuttable as parts_of
from .pieces import Cutting

Refuted = Callable[[], list[bool]]  # of which instances a counterexample is known


def margins_within(
    problem: Problem,
    eps: Tensor,
    options: Options,
    *,
    rounding: bool = True,
    until_proved: bool = False,
    refuted: Refuted | None = None,
    climb: Climb | None = None,
    ways: list[Problem] | None = None,
    by_entries: bool = False,
) -> Margins:
    """The best of what one pass, optimised planes and pieces prove within the time that the options allow.

    `climb` makes the problem by tighter bounds, for which there may be time. `until_proved` stops where nothing is left
    open; what is `refuted` is not cut. `ways` gets the problems that were tried. With `by_entries` sets are also cut
    across entries of nodes.
    """
    problem = replace(problem, deadline=Deadline.after(options.timeout).or_after(options.seconds))
    if by_entries and rounding and (options.steps or options.most_splits > 1):
        problem = replace(problem, known=Known(problem.compiled.graph, eps))
    ways = [] if ways is None else ways
    ways.append(problem)
    began = time.perf_counter()
    try:
        margins = problem.margins(eps, rounding=rounding)
    except OutOfTime:
        return _nothing(problem, OUT_OF_TIME)
    took = time.perf_counter() - began
    best = [margins]
    with while_there_is_room():
        for found in Refining(eps, options, rounding, until_proved, refuted, climb, ways).steps(margins, took):
            best.append(best[-1].better(found))
    return best[-1]


@dataclass(frozen=True)
class Refining:
    """How margins that one pass has proved are made better; the problems that do it join the ways."""

    eps: Tensor
    options: Options
    rounding: bool
    until_proved: bool
    refuted: Refuted | None
    climb: Climb | None
    ways: list[Problem]

    def steps(self, margins: Margins, took: float) -> Iterator[Margins]:
        """By tighter bounds that there is time for, then by optimised planes, then by pieces; one pass took so long."""
        eps, options, ways = self.eps, self.options, self.ways
        if self.climb is not None and not self._enough(margins):
            better = tighter(ways[-1], self.climb, seconds=took, evaluations=1.0)
            if better is not None:
                began = time.perf_counter()
                margins = yield from self._by(replace(better, known=ways[-1].known), margins)
                took = time.perf_counter() - began
        if options.steps > 0 and not self._enough(margins):
            margins = yield from self._by(ways[-1].tuned(eps, steps=options.steps), margins)
        if ways[-1].known is not None and parts_of(ways[-1]) and not self._enough(margins):
            margins = yield from self._by_entries(margins, took)
        few = ways[-1].known is None or not ways[-1].deadline.limited
        if options.most_splits > 1 and cuttable(ways[-1]) and few and not self._enough(margins):
            flipped = [False] * len(ways[-1]) if self.refuted is None else self.refuted()
            proved = [self.until_proved and m > 0 for m in margins.least.tolist()]
            chosen = [i for i, (a, b) in enumerate(zip(flipped, proved, strict=True)) if not a and not b]
            if chosen:
                cutting = Cutting(ways[-1], eps, options.most_splits, self.rounding, self.until_proved)
                yield from cutting.margins(margins, chosen, ways)

    def _by_entries(self, margins: Margins, took: float) -> Generator[Margins, None, Margins]:
        """By parts, across entries of nodes."""
        flipped = [False] * len(margins.reasons) if self.refuted is None else self.refuted()
        chosen = [i for i, least in enumerate(margins.least.tolist()) if not least > 0 and not flipped[i]]
        for found in Parting(self.ways[-1], self.eps, self.options, took).margins(margins, chosen):
            margins = margins.better(found)
            yield margins
        return margins

    def _by(self, problem: Problem, margins: Margins) -> Generator[Margins, None, Margins]:
        """One pass by another problem."""
        self.ways.append(problem)
        found = problem.margins(self.eps, rounding=self.rounding)
        yield found
        return margins.better(found)

    def _enough(self, margins: Margins) -> bool:
        """Whether nothing is left open, where that is all that is asked for."""
        return self.until_proved and bool((margins.least > 0).all())


def _nothing(problem: Problem, why: str) -> Margins:
    """No margins at all, and why."""
    open_end = problem.centre.new_full(problem.rows(list(range(len(problem)))).shape[:2], math.inf)
    return Margins(-open_end, open_end, (why,) * len(problem), -open_end[:, 0])


def not_less(values: Tensor, like: Tensor) -> Tensor:
    """Numbers in the precision of the bounds, none smaller than it was: that would be an easier question."""
    values = values.to(device=like.device, dtype=torch.float64)
    rounded = values.to(like.dtype)
    larger = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded.double() < values, larger, rounded)


def radii_of(eps: Sequence[float], like: Tensor) -> Tensor:
    """Radii in the precision of the bounds, none less than it is written as."""
    radii = not_less(torch.tensor([at_least(asked) for asked in eps], dtype=torch.float64), like)
    for asked, used in zip(eps, radii.tolist(), strict=True):
        if not 0 <= used < math.inf:
            raise InputError(f"eps={asked:g}: expected a finite radius of 0 or more")
    return radii

"""In a given time: first what is cheap, so that there is an answer, then the tightest bounds that fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.counting import work_of
from ..core.names import Method
from ..core.problem import Problem
from ..options import Options

FIRST: Method = "backward-forward"
SEARCHED = 6.0  # evaluations that a search by tighter bounds should take
SHARE = 0.6  # of the time left that they may take: the rest is for pieces

Climb = Callable[[], Problem]  # the problem by the tightest method, made when there is time for it


def climbs(options: Options) -> bool:
    """Whether a time is given and no method."""
    return options.timed and options.method == "auto" and options.relaxation == "tight"


def first_rung(options: Options) -> Options:
    """How to begin."""
    return replace(options, method=FIRST) if climbs(options) else options


def second_rung(options: Options) -> Options:
    """Where to go."""
    return replace(options, method="backward")


def tighter(problem: Problem, climb: Climb, *, seconds: float, evaluations: float) -> Problem | None:
    """The tightest that so many evaluations of fit into the time that is left, if any does; one of the problem itself
    took so many seconds."""
    full = climb()
    bare = replace(full, style=replace(full.style, sweep_differences=False))
    for other in (full, bare):
        predicted = seconds * work_of(other).flops / max(1.0, work_of(problem).flops)
        if evaluations * predicted <= SHARE * problem.deadline.left:
            return replace(other, deadline=problem.deadline)
    return None

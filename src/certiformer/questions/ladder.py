"""In a given time: first what is cheap, so that there is an answer, then the tightest bounds that fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.budget import CORE
from ..core.counting import work_of
from ..core.names import Method
from ..core.problem import Problem
from ..options import Options

FIRST: Method = "backward-forward"
COARSE = 0.2  # how close radii by the first bounds come before it is known whether tighter ones follow
SEARCHED = 2.0  # evaluations after which a search by tighter bounds has said most of what it will say
BUSY = 2e12  # operations a second of an evaluation that keeps a GPU busy, about
SHARE = 0.9  # of the time left that they may take: pieces by these gain less

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


def first(made: Callable[[Options], Problem], options: Options) -> Problem:
    """The problem to begin with: where every position varies, sweeps back to the input may be the cheaper ones."""
    problem = made(first_rung(options))
    if not climbs(options):
        return problem
    bare = _with(made(second_rung(options)), 0)
    return bare if work_of(bare).flops <= work_of(problem).flops else problem


def _with(problem: Problem, differences: int) -> Problem:
    """With sweeps for the differences of scores in the first so many layers."""
    return replace(problem, style=replace(problem.style, sweep_differences=differences))


def tighter(problem: Problem, climb: Climb, *, seconds: float, evaluations: float) -> Problem | None:
    """The tightest that so many evaluations of fit into the time that is left, if any does; one of the problem itself
    took so many seconds."""
    full = climb()
    layers = sum(n.op.simplex for n in full.compiled.graph.nodes)
    for other in (full, *(_with(full, k) for k in dict.fromkeys((layers // 2, 0)) if k < layers)):
        if (other.method, other.style) == (problem.method, problem.style):
            return None
        if evaluations * predicted(problem, other, seconds) <= SHARE * problem.deadline.left:
            return replace(other, deadline=problem.deadline)
    return None


def predicted(problem: Problem, other: Problem, seconds: float) -> float:
    """Seconds of an evaluation by another way, where one of the problem's own took so many: a CPU goes by all that is
    counted, a GPU by kernels, until each of them keeps it busy."""
    own, others = work_of(problem), work_of(other)
    if problem.compiled.cuda:
        return max(seconds * len(others.products) / max(1, len(own.products)), others.flops / BUSY)
    return seconds * CORE.seconds(others) / max(CORE.seconds(own), 1e-9)

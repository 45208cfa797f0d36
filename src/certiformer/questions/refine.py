"""Margins within given radii, refined as far as the options ask: by optimised planes, and piece by piece."""

from __future__ import annotations

from torch import Tensor

from ..core.problem import Margins, Problem
from ..core.split import divide
from ..options import Options


def margins_within(
    problem: Problem, eps: Tensor, options: Options, *, rounding: bool = True, until_proved: bool = False
) -> Margins:
    """The best of what one pass, optimised planes and pieces prove; `until_proved` stops where nothing is left open."""
    found = problem.margins(eps, rounding=rounding)

    def enough() -> bool:
        return until_proved and bool((found.lower > 0).all())

    if options.steps > 0 and not enough():
        problem = problem.tuned(eps, steps=options.steps)
        found = found.better(problem.margins(eps, rounding=rounding))
    if options.most_splits > 1 and not enough():
        found = found.better(divide(problem, eps, options.most_splits).margins(eps, rounding=rounding))
    return found

"""Margins within given radii, refined as far as the options ask: by optimised planes, and piece by piece."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core.deadline import Deadline, OutOfTime
from ..core.problem import Margins, Problem
from ..core.split import divide
from ..options import Options


def margins_within(
    problem: Problem,
    eps: Tensor,
    options: Options,
    *,
    rounding: bool = True,
    until_proved: bool = False,
    ways: list[Problem] | None = None,
) -> Margins:
    """The best of what one pass, optimised planes and pieces prove within the time that the options allow.

    `until_proved` stops where nothing is left open. `ways` gets the problems that were tried.
    """
    problem = replace(problem, deadline=Deadline.after(options.timeout))
    ways = [] if ways is None else ways
    ways.append(problem)
    try:
        margins = problem.margins(eps, rounding=rounding)
    except OutOfTime:
        return _nothing(problem, f"out of time after {options.timeout:g} s")
    try:
        return _refined(ways, eps, margins, options, rounding=rounding, until_proved=until_proved)
    except OutOfTime:
        return margins


def _refined(
    ways: list[Problem], eps: Tensor, margins: Margins, options: Options, *, rounding: bool, until_proved: bool
) -> Margins:
    """Margins that one pass has proved, made better by optimised planes and then by pieces, which join the ways."""

    def enough() -> bool:
        return until_proved and bool((margins.least > 0).all())

    if options.steps > 0 and not enough():
        ways.append(ways[-1].tuned(eps, steps=options.steps))
        margins = margins.better(ways[-1].margins(eps, rounding=rounding))
    if options.most_splits > 1 and not enough():
        ways.append(divide(ways[-1], eps, options.most_splits))
        margins = margins.better(ways[-1].margins(eps, rounding=rounding))
    return margins


def _nothing(problem: Problem, why: str) -> Margins:
    """No margins at all, and why."""
    open_end = problem.centre.new_full(problem.rows(list(range(len(problem)))).shape[:2], math.inf)
    return Margins(-open_end, open_end, (why,) * len(problem), -open_end[:, 0])


def radii_of(eps: Tensor, like: Tensor) -> Tensor:
    """Radii in the precision of the bounds, none smaller than asked for: that would be an easier question."""
    eps = eps.to(device=like.device, dtype=torch.float64)
    rounded = eps.to(like.dtype)
    return torch.where(rounded.double() < eps, torch.nextafter(rounded, torch.full_like(rounded, torch.inf)), rounded)

"""Radii part by part, in a given time: where sets are cut across entries of nodes rather than into pieces."""

from __future__ import annotations

from dataclasses import replace

from ..core.problem import Problem
from ..options import Options
from .closing import Stage
from .parts import cuttable, pays
from .refine import margins_within, radii_of

FIRST = 0.1  # by what part a radius is to grow at first
MORE, LESS = 1.5, 0.4  # of that, after what was proved and after what was not
SHARE = 0.5  # of the time left, that one try may take


def across(problem: Problem) -> bool:
    """Whether radii of a problem are to grow this way."""
    return problem.deadline.limited and pays(problem) and cuttable(problem)


def grown(problem: Problem, radii: list[float], options: Options, stage: Stage) -> list[float]:
    """Radii proved part by part, never less than those given, which are proved: a little further each time, less far
    where that was too much."""
    radii, further = list(radii), [FIRST] * len(radii)
    while not problem.deadline.passed:
        some = [i for i, r in enumerate(radii) if r > 0 and further[i] > options.tolerance]
        if not some:
            break
        aims = radii_of([r * (1 + further[i] * (i in some)) for i, r in enumerate(radii)], problem.centre)
        asked = replace(options, steps=0, timeout=SHARE * problem.deadline.left)
        found = margins_within(problem, aims, asked, until_proved=True, by_entries=True)
        for i in some:
            stage.calls[i] += 1
            holds = found.reasons[i] is None and float(found.least[i]) > 0
            radii[i] = max(radii[i], float(aims[i])) if holds else radii[i]
            further[i] *= MORE if holds else LESS
    return radii

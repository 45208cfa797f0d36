"""`bounds`: margins of one input under given radii."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ..errors import InputError, short
from ..options import BoundsQuestion, Options
from ..properties import Robust
from ..results import Bounds as Bounds
from ..sets import members
from .inputs import Inputs, prepare_exactly, prepare_for, problem_of
from .ladder import climbs, first_rung, second_rung
from .positions import position_sets
from .refine import margins_within, radii_of
from .regions import problem_of_regions, radii_in, regions_of
from .workspace import Workspace


def bounds(workspace: Workspace, inputs: Inputs, question: BoundsQuestion, options: Options) -> Bounds:
    """Margins of an input when the embeddings at each set of positions move by at most `eps`."""
    started = time.perf_counter()
    if question.within is not None:
        return _within(workspace, inputs, question, options, started)
    prepared = prepare_for(workspace, inputs, question.label, options)
    sets = position_sets(prepared, question)
    asked = _asked(question.eps, len(sets))
    questions = [(prepared, s) for s in sets]
    made = partial(problem_of, questions, p=question.p, joint=question.joint)
    climb = partial(made, second_rung(options)) if climbs(options) else None
    problem = made(first_rung(options))
    radii = radii_of(asked, problem.centre)
    margins = margins_within(problem, radii, options, rounding=question.rounding, climb=climb)
    return Bounds(
        lower=margins.lower,
        upper=margins.upper,
        label=prepared.label,
        positions=tuple(sets),
        eps=asked,
        norm=question.p,
        method=problem.method,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        reasons=margins.reasons,
        seconds=time.perf_counter() - started,
        tokens=prepared.tokens,
    )


def _within(workspace: Workspace, inputs: Inputs, question: BoundsQuestion, options: Options, started: float) -> Bounds:
    """What a property is about, or the margins, on sets of one kind; a radius of 1 is a box as wide as it is."""
    assert question.within is not None
    prepared = prepare_for(workspace, inputs, question.label, options, outputs=1)
    wanted = (question.property or Robust()).of(prepared.logits.shape[1], prepared.label)
    regions = regions_of(
        prepare_exactly(workspace, inputs, prepared.label, options, outputs=1),
        members(question.within),
    )
    if len({region.kind for region in regions}) > 1:
        raise InputError(f"within={short(question.within)}: sets of different kinds are bounded one by one")
    problem = problem_of_regions(prepared, regions, wanted.goal, options)
    asked = radii_in(regions)
    radii = radii_of(asked, problem.centre)
    margins = margins_within(problem, radii, options, rounding=question.rounding)
    return Bounds(
        lower=margins.lower,
        upper=margins.upper,
        label=prepared.label,
        positions=problem.positions if prepared.has_positions else ((0,),) * len(regions),
        eps=asked,
        norm=regions[0].p,
        method=problem.method,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        reasons=margins.reasons,
        seconds=time.perf_counter() - started,
        tokens=prepared.tokens,
    )


def _asked(eps: float | Sequence[float] | Tensor | None, count: int) -> tuple[float, ...]:
    """A radius for each instance."""
    if eps is None:
        raise InputError(f"eps={eps!r}: expected a number, or one for each of the {count} instances")
    try:
        asked = torch.as_tensor(eps, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"eps={eps!r}: expected a number, or one for each of the {count} instances") from None
    if asked.dim() == 0:
        asked = asked.expand(count)
    if asked.shape != (count,):
        raise InputError(
            f"eps has shape {list(asked.shape)}: expected one number, or one for each of {count} instances"
        )
    return tuple(asked.tolist())

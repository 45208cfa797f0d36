"""`radius` of sets: by how much a box may grow around its middle, or a ball around the input, while the label stays."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction
from functools import partial

from ..core.deadline import Deadline
from ..errors import InputError, short
from ..numbers import at_least
from ..options import Options, RadiusQuestion
from ..results import RadiusResult
from ..sets import members
from .inputs import Inputs, prepare_exactly, prepare_for
from .ladder import climbs, first_rung, second_rung
from .regions import looked_at, problem_of_regions, radii_in, regions_of
from .search import effort, search
from .workspace import Workspace


def scaled(workspace: Workspace, inputs: Inputs | None, question: RadiusQuestion, options: Options) -> RadiusResult:
    """Radii in units of each set: within the set times this number, around its middle, the label is proved to stay."""
    started = time.perf_counter()
    assert question.within is not None
    sets = members(question.within)
    given = looked_at(workspace.model, inputs, sets)
    prepared = prepare_for(workspace, given, question.label, options)
    regions = regions_of(prepare_exactly(workspace, given, prepared.label, options), sets)
    if len({region.kind for region in regions}) > 1:
        raise InputError(f"within={short(question.within)}: sets of different kinds are searched one by one")
    units = list(map(at_least, radii_in(regions)))
    if not all(units) or not all(bool((region.width > 0).any()) for region in regions):
        raise InputError(f"within={short(question.within)}: a set of one point does not grow")
    made = partial(problem_of_regions, prepared, regions, None)
    problem = replace(made(first_rung(options)), deadline=Deadline.after(options.timeout).or_after(options.seconds))
    nominal = problem.margins(problem.centre.new_zeros(len(regions))).least.tolist()
    climb = partial(made, second_rung(options)) if climbs(options) else None
    found = search(problem, nominal, options, climb=climb)
    radii = tuple(_in_units(radius, unit) for radius, unit in zip(found.radii, units, strict=True))
    return RadiusResult(
        positions=tuple(region.positions or (0,) for region in regions),
        radii=radii,
        normalized=radii,
        tokens=prepared.tokens,
        label=prepared.label,
        margin=min(nominal),
        norm=regions[0].p,
        method=found.problem.method,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        chosen=found.problem.described + effort(found.problem, options) + ", in units of the set",
        tolerance=options.tolerance,
        calls=sum(found.calls) / max(1, len(found.calls)),
        seconds=time.perf_counter() - started,
        complete=found.stopped is None,
        stopped=found.stopped,
    )


def _in_units(radius: float, unit: float) -> float:
    """The largest number, or one next to it, that times the unit is not above the radius."""
    near = radius / unit
    return near if Fraction(near) * Fraction(unit) <= Fraction(radius) else math.nextafter(near, 0.0)

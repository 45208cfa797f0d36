"""`verify`: does a property of the outputs hold on a union of sets? Attacked first, then bounded."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..attack.within import Found, find
from ..core.deadline import Deadline
from ..core.names import Method
from ..core.problem import Problem
from ..errors import InputError
from ..options import CertifyQuestion, Options, VerifyQuestion
from ..properties import Robust, TopK, Wanted
from ..results import CertifyResult, Counterexample, Status, Violation
from ..results import VerifyResult as VerifyResult
from ..sets import Words, members
from .inputs import Inputs, Prepared, checked_in, prepare_exactly, prepare_for
from .ladder import climbs, first, second_rung
from .refine import margins_within, radii_of
from .regions import Region, looked_at, problem_of_regions, radii_in, regions_of
from .verdict import certify, overall
from .workspace import Workspace

ATTACKING = 0.2  # the part of the time that an attack may take


@dataclass(frozen=True, eq=False)
class Proved:
    """What bounds say of a region: the least values of all half-spaces, what must be above 0, and why there is none."""

    margins: tuple[float, ...]
    least: float
    reason: str | None
    method: Method


def verify(workspace: Workspace, inputs: Inputs | None, question: VerifyQuestion, options: Options) -> VerifyResult:
    """Whether outputs that a property calls bad are never reached from a union of sets."""
    started, deadline = time.perf_counter(), Deadline.after(options.timeout)
    if question.within is None:
        raise InputError("within=None: expected a Box, a Ball, Words, or a list of them")
    sets = members(question.within)
    if any(isinstance(one, Words) for one in sets):
        return _words(workspace, inputs, sets, question, options)
    given = looked_at(workspace.model, inputs, sets)
    exact = prepare_exactly(workspace, given, question.label, options, outputs=1)
    wanted = (question.property or Robust()).of(exact.logits.shape[1], exact.label)
    regions = regions_of(exact, sets)
    soon = Deadline.after(None if options.timeout is None else ATTACKING * options.timeout)
    tries = question if question.attack else None
    found = find(exact, regions, wanted, tries, soon, dtype=checked_in(exact, options))
    proved: list[Proved] = []
    if found is None:
        prepared = prepare_for(workspace, given, exact.label, options, outputs=1)
        proved = _bounded(prepared, regions, wanted, options, deadline)
    return _result(exact, regions, wanted, found, proved, options, time.perf_counter() - started)


def _bounded(
    prepared: Prepared, regions: Sequence[Region], wanted: Wanted, options: Options, deadline: Deadline
) -> list[Proved]:
    """What bounds prove of every region: those of one kind together."""
    found: dict[int, Proved] = {}
    kinds: dict[tuple[float, bool, bool], list[int]] = {}
    for i, region in enumerate(regions):
        kinds.setdefault(region.kind, []).append(i)
    for chosen in kinds.values():
        part = [regions[i] for i in chosen]
        made = partial(problem_of_regions, prepared, part, wanted.goal)
        problem = first(made, options)
        climb = partial(made, second_rung(options)) if climbs(options) else None
        left = replace(options, timeout=deadline.left) if deadline.limited else options
        radii = radii_of(radii_in(part), problem.centre)
        ways: list[Problem] = []
        margins = margins_within(problem, radii, left, until_proved=True, climb=climb, ways=ways, by_entries=True)
        rows = zip(chosen, margins.lower.tolist(), margins.least.tolist(), margins.reasons, strict=True)
        for i, lower, least, reason in rows:
            sound = least if math.isfinite(least) and reason is None else -math.inf
            found[i] = Proved(tuple(lower), sound, reason, ways[-1].method)
    return [found[i] for i in range(len(regions))]


def _result(
    prepared: Prepared,
    regions: Sequence[Region],
    wanted: Wanted,
    found: Found | None,
    proved: Sequence[Proved],
    options: Options,
    seconds: float,
) -> VerifyResult:
    nothing = Proved((-math.inf,) * len(wanted.names), -math.inf, None, "backward")
    known = list(proved) or [nothing] * len(regions)
    statuses: list[Status] = ["certified" if p.least > 0 else "unknown" for p in known]
    violation = None
    if found is not None:
        statuses[found.region] = "refuted"
        violation = Violation(found.region, found.clause, found.point, found.outputs)
    return VerifyResult(
        status=overall(statuses),
        statuses=tuple(statuses),
        sets=tuple(r.name for r in regions),
        names=wanted.names,
        margins=tuple(p.margins for p in known),
        least=tuple(p.least for p in known),
        counterexample=violation,
        label=prepared.label,
        method=known[0].method,
        relaxation=options.relaxation,
        reason=next((p.reason for p in known if p.reason), None),
        seconds=seconds,
        tokens=prepared.tokens,
        arithmetic=options.arithmetic,
    )


def _words(
    workspace: Workspace, inputs: Inputs | None, sets: Sequence[object], question: VerifyQuestion, options: Options
) -> VerifyResult:
    """Substitutions: one set of them, and that the label stays."""
    (first, *others) = sets
    stays = question.property is None or isinstance(question.property, Robust) or question.property == TopK(1)
    if others or not isinstance(first, Words) or not stays or inputs is None:
        raise InputError("within=Words(...): substitutions are asked about alone, of a text or ids, and of its label")
    label = getattr(question.property, "label", None)
    asked = CertifyQuestion(
        substitutions=first.substitutions,
        label=question.label if label is None else label,
        attack=question.attack,
        progress=question.progress,
    )
    found = certify(workspace, inputs, asked, options)
    example = found.counterexample
    violation = None
    if example is not None:
        model = workspace.on(dtype="float64", device=options.device).model
        with torch.no_grad():
            outputs = model.module(example.point.to(torch.float64))[0].tolist()
        violation = Violation(0, 0, example.point, tuple(outputs), example.words)
    return VerifyResult(
        status=found.status,
        statuses=found.statuses,
        sets=("substitutions",),
        names=("label stays",),
        margins=((found.margin,),),
        least=(found.margin,),
        counterexample=violation,
        label=found.label,
        method=found.method,
        relaxation=found.relaxation,
        reason=found.reason,
        seconds=found.seconds,
        tokens=found.tokens,
        arithmetic=found.arithmetic,
    )


def certify_within(workspace: Workspace, inputs: Inputs, question: CertifyQuestion, options: Options) -> CertifyResult:
    """`certify` on sets: a verdict on each, found as `verify` does."""
    asked = VerifyQuestion(within=question.within, label=question.label, attack=question.attack)
    found = verify(workspace, inputs, asked, options)
    examples: list[Counterexample | None] = [None] * len(found.sets)
    example = found.counterexample
    if example is not None:
        centre = prepare_exactly(workspace, inputs, found.label, options).embeddings
        far = float((example.point - centre.to(example.point)).abs().max())
        flipped = max((c for c in range(len(example.outputs)) if c != found.label), key=lambda c: example.outputs[c])
        examples[example.member] = Counterexample((), far, flipped, example.point, example.words)
    return CertifyResult(
        status=found.status,
        statuses=found.statuses,
        positions=((),) * len(found.sets),
        margins=found.least,
        margin=min(found.least),
        counterexamples=tuple(examples),
        tokens=found.tokens,
        label=found.label,
        eps=None,
        norm=math.inf,
        method=found.method,
        relaxation=found.relaxation,
        reason=found.reason,
        seconds=found.seconds,
        arithmetic=found.arithmetic,
    )

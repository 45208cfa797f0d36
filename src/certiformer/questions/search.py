"""Certified radius: a batched bracketing root finder on the certified margin.

The margin as a function of the radius is smooth and falls, until the relaxation breaks down. Each step aims at the end
of the interpolation of what is known, a little past it toward the far end of the bracket, so that the bracket closes
from both sides; where that does not pay, it bisects. All instances advance together, and those that are done leave the
batch. `closing.py` has these steps; `pieces.py` goes on piece by piece.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from ..core.deadline import OUT_OF_MEMORY, OUT_OF_TIME, Deadline, while_there_is_room
from ..core.names import BoundOptions
from ..core.problem import Problem
from ..errors import InputError, short
from ..options import Options, RadiusQuestion
from ..results import RadiusResult as RadiusResult
from .bracket import Bracket
from .certificates import check_folder, checkable, write_radii
from .closing import Stage, again, like, linear, narrowed
from .growing import across, grown
from .inputs import Inputs, Prepared, prepare_for, problem_of
from .ladder import COARSE, SEARCHED, Climb, climbs, first_rung, second_rung, tighter
from .pieces import divided
from .positions import position_sets
from .workspace import Workspace

log = logging.getLogger(__name__)
AHEAD = 1.1  # where planes are optimised, in units of the radius reached without


def radii(
    workspace: Workspace, inputs: Sequence[Inputs], question: RadiusQuestion, options: Options
) -> tuple[RadiusResult, ...]:
    """The certified radius of every set of positions of every input; inputs of one length are searched together."""
    if isinstance(inputs, str):
        raise InputError(f"inputs={short(inputs)}: expected a list of inputs; for one, ask for its radius")
    prepared = [prepare_for(workspace, x, question.label, options) for x in inputs]
    sets = [position_sets(q, question) for q in prepared]
    total, done = sum(len(s) for s in sets), 0
    deadline = Deadline.after(options.timeout)
    results: dict[int, RadiusResult] = {}
    groups: dict[Hashable, list[int]] = {}
    for i, q in enumerate(prepared):
        groups.setdefault((tuple(q.embeddings.shape), q.constants), []).append(i)
    for members in groups.values():

        def report(finished: int, before: int = done) -> None:
            if question.progress is not None:
                question.progress(before + finished, total)

        seconds = None if options.seconds is None else options.seconds * len(members)
        group = [(i, prepared[i], sets[i]) for i in members]
        results |= _group(group, question, options, deadline.or_after(seconds), report)
        done += sum(len(sets[i]) for i in members)
    return tuple(results[i] for i in range(len(prepared)))


def _group(
    group: list[tuple[int, Prepared, list[tuple[int, ...]]]],
    question: RadiusQuestion,
    options: Options,
    deadline: Deadline,
    progress: Callable[[int], None],
) -> dict[int, RadiusResult]:
    """Inputs of one length, each by its number with its sets of positions."""
    started = time.perf_counter()
    questions = [(q, s) for _, q, sets in group for s in sets]

    def made(options: BoundOptions) -> Problem:
        problem = problem_of(questions, options, p=question.p, joint=question.joint)
        return problem if question.certificates is None else checkable(problem)

    problem = replace(made(first_rung(options)), deadline=deadline)
    folder = None if question.certificates is None else check_folder(question.certificates, problem)
    nominal = [q.margin for q, _ in questions]
    climb = partial(made, second_rung(options)) if climbs(options) else None
    found = search(problem, nominal, options, progress=progress, climb=climb, parts=question.certificates is None)
    problem, proved, calls = found.problem, found.radii, found.calls
    seconds = time.perf_counter() - started
    what = (len(questions), len(group), problem.described, sum(calls), seconds)
    log.info("searched the radii of %d sets of %d inputs: %s, %d evaluations of a set, %.2f s", *what)
    results: dict[int, RadiusResult] = {}
    k = 0
    for i, q, sets in group:
        part = slice(k, k + len(sets))
        share = seconds * len(sets) / len(questions)
        result = _result(q, sets, proved[part], calls[part], problem, options, share)
        result = replace(result, complete=found.stopped is None, stopped=found.stopped)
        results[i] = result if folder is None else write_radii(folder, q, result, found.ways, first=k)
        k += len(sets)
    return results


def _result(
    prepared: Prepared,
    sets: list[tuple[int, ...]],
    proved: list[float],
    calls: list[int],
    problem: Problem,
    options: Options,
    seconds: float,
) -> RadiusResult:
    p = problem.p
    norms = torch.linalg.vector_norm(prepared.blocks[0], ord=p, dim=-1).tolist()
    return RadiusResult(
        positions=tuple(sets),
        radii=tuple(proved),
        normalized=tuple(relative(r, min(norms[i] for i in s)) for r, s in zip(proved, sets, strict=True)),
        tokens=prepared.tokens,
        label=prepared.label,
        margin=prepared.margin,
        norm=p,
        method=problem.method,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        chosen=problem.described + effort(problem, options),
        tolerance=options.tolerance,
        calls=sum(calls) / max(1, len(calls)),
        seconds=seconds,
        complete=True,
    )


def effort(problem: Problem, options: Options) -> str:
    """What was done beyond one pass of bounds, in words."""
    if problem.method == "ibp":
        return ""
    steps, pieces = options.steps, options.most_splits
    cut = ", pieces as time allowed" if options.splits is None and options.timed else f", up to {pieces} pieces"
    return (f", {steps} steps" if steps else "") + (cut if pieces > 1 else "")


def relative(radius: float, norm: float) -> float:
    """A radius in units of an embedding's norm; inf for an embedding of zeros, such as a black patch."""
    return 0.0 if radius == 0 else radius / norm if norm > 0 else math.inf


class Searched(NamedTuple):
    """Verified radii of all instances, the evaluations spent on each, the problem that was asked last, those that
    proved the radii, and what was out before all was done but cutting further: time or memory."""

    radii: list[float]
    calls: list[int]
    problem: Problem
    ways: list[Problem]
    stopped: str | None


def search(
    problem: Problem,
    nominal: list[float],
    options: Options,
    *,
    progress: Callable[[int], None] | None = None,
    climb: Climb | None = None,
    parts: bool = True,
) -> Searched:
    """Verified radii of all instances, given their margins at radius 0.

    Each stage starts from what the one before has proved; where time is out, that is the answer. `climb` makes the
    problem by tighter bounds, for which there may be time. Without `parts` balls are cut into pieces and nothing else.
    """
    started = time.perf_counter()
    steps, splits = options.steps, options.most_splits
    calls = [0] * len(problem)
    ways: list[Problem] = []
    active = [i for i, m in enumerate(nominal) if m > 0]
    stages, reached = 1 + (steps > 0) + (splits > 1), [0]

    def stage(number: int) -> Stage:
        """A set counts a share when a stage is done with it, and whole after the last."""

        def told(k: int) -> None:
            if progress is not None:
                reached[0] = max(reached[0], (number * len(calls) + k) // stages)  # what is begun again is no step back
                progress(reached[0])

        return Stage(options.tolerance, calls, ways, told)

    brackets = [Bracket(m, r) for m, r in zip(nominal, linear(problem), strict=True)]
    coarse = options.tolerance if climb is None else max(COARSE, options.tolerance)
    ways.append(problem)
    brackets = narrowed(problem, brackets, active, replace(stage(0), tolerance=coarse))
    radii = [b.verified for b in brackets]
    complete = not problem.deadline.passed
    with while_there_is_room() as ended:  # the radii of the stages before hold
        if climb is not None and active and complete:
            each = (time.perf_counter() - started) * len(active) / max(1, sum(calls))  # of all at once
            better = tighter(problem, climb, seconds=each, evaluations=SEARCHED)
            if better is None:
                radii = [b.verified for b in narrowed(problem, brackets, active, stage(0))]
            else:
                radii = again(better, nominal, radii, [AHEAD * r for r in radii], stage(0))
                problem = better
        if steps > 0 and active:
            complete = False
            problem, radii = _tuned(problem, nominal, radii, steps, stage(1))
        if splits > 1 and active:
            complete = options.splits is None and not problem.deadline.passed
            if parts and across(problem):
                radii = grown(problem, radii, options, stage(stages - 1))
            else:
                radii = divided(problem, nominal, radii, splits, stage(stages - 1), ended)
        complete = complete or not problem.deadline.passed
    stopped = OUT_OF_MEMORY if OUT_OF_MEMORY in ended else None if complete else OUT_OF_TIME
    if progress is not None:
        progress(len(problem))
    return Searched(radii, calls, problem, ways, stopped)


def _tuned(
    problem: Problem, nominal: list[float], radii: list[float], steps: int, stage: Stage
) -> tuple[Problem, list[float]]:
    """The problem with planes optimised a little beyond what was reached without, and its radii where larger."""
    near = [AHEAD * r for r in radii]
    better = problem.tuned(like(near, problem), steps=steps)
    return better, again(better, nominal, radii, near, stage)

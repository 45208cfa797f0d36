"""Certified radius: a batched bracketing root finder on the certified margin.

The margin as a function of the radius is smooth and falls, until the relaxation breaks down. Each step aims at the end
of the interpolation of what is known, a little past it toward the far end of the bracket, so that the bracket closes
from both sides; where that does not pay, it bisects. All instances advance together, and those that are done leave the
batch. Most of the way is gone in single precision, which proves nothing but says where to look. Every radius that is
reported was verified itself, rounding included.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from ..core.deadline import Deadline, OutOfTime
from ..core.problem import Problem
from ..core.sets import Ball
from ..core.split import divide
from ..errors import InputError, short
from ..options import Options, RadiusQuestion
from ..results import RadiusResult as RadiusResult
from .bracket import Bracket
from .certificates import check_folder, write_radii
from .inputs import Inputs, Prepared, prepare_for, problem_of
from .positions import position_sets
from .workspace import Workspace

log = logging.getLogger(__name__)
MOST_STEPS, DRAFT_STEPS = 60, 20  # evaluations after which a search ends where it is
AHEAD = 1.1  # where planes are optimised, in units of the radius reached without
BEYOND = 1.2  # where balls are cut into pieces, likewise
WIDE = 1e-2  # relative width of what is only looked for to cut further
START = (0.1, 0.02, 0.004)  # where to begin, in units of the radius at which the linearised margin vanishes
SCOUTED, LEAST_SCOUTS = 4, 3  # one instance in so many goes ahead, but not fewer than that
SHRINK, SHRINK_GROWTH, SHRINK_MOST = 1 / 4, 4, 0.5  # steps down where a proof fails: of the tolerance, growing, at most
FAR = 1e6  # in units of the largest embedding norm: beyond this a radius is reported as it stands


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

        group = [(i, prepared[i], sets[i]) for i in members]
        results |= _group(group, question, options, deadline, report)
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
    problem = replace(problem_of(questions, options, p=question.p, joint=question.joint), deadline=deadline)
    folder = None if question.certificates is None else check_folder(question.certificates, problem)
    nominal = [q.margin for q, _ in questions]
    proved, calls, ways = search(problem, nominal, options, progress=progress)
    seconds = time.perf_counter() - started
    what = (len(questions), len(group), problem.described, sum(calls), seconds)
    log.info("searched the radii of %d sets of %d inputs: %s, %d evaluations of a set, %.2f s", *what)
    results: dict[int, RadiusResult] = {}
    k = 0
    for i, q, sets in group:
        part = slice(k, k + len(sets))
        share = seconds * len(sets) / len(questions)
        result = _result(q, sets, proved[part], calls[part], problem, options, share)
        result = replace(result, complete=not problem.deadline.passed)
        results[i] = result if folder is None else write_radii(folder, q, result, ways, first=k)
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
        chosen=problem.described + _effort(problem, options.steps, options.most_splits),
        tolerance=options.tolerance,
        calls=sum(calls) / max(1, len(calls)),
        seconds=seconds,
        complete=True,
    )


def _effort(problem: Problem, steps: int, pieces: int) -> str:
    """What was done beyond one pass of bounds, in words."""
    if problem.method == "ibp":
        return ""
    return (f", {steps} steps" if steps else "") + (f", up to {pieces} pieces" if pieces > 1 else "")


def relative(radius: float, norm: float) -> float:
    """A radius in units of an embedding's norm; inf for an embedding of zeros, such as a black patch."""
    return 0.0 if radius == 0 else radius / norm if norm > 0 else math.inf


@dataclass(frozen=True)
class Stage:
    """What the steps of a search share: how close to come, where evaluations are counted, what proves, who is told."""

    tolerance: float
    calls: list[int]  # of each instance
    ways: list[Problem]  # that radii are proved with, in the order in which they are tried
    progress: Callable[[int], None]  # called with how many instances are done


def search(
    problem: Problem, nominal: list[float], options: Options, *, progress: Callable[[int], None] | None = None
) -> tuple[list[float], list[int], list[Problem]]:
    """Verified radii of all instances, given their margins at radius 0; the evaluations spent on each; and the
    problems that proved them.

    Each stage starts from what the one before has proved; where time is out, that is the answer.
    """
    steps, splits = options.steps, options.most_splits
    calls = [0] * len(problem)
    ways: list[Problem] = []
    active = [i for i, m in enumerate(nominal) if m > 0]
    stages = 1 + (steps > 0) + (splits > 1)

    def stage(number: int) -> Stage:
        """A set counts a share when a stage is done with it, and whole after the last."""

        def told(k: int) -> None:
            if progress is not None:
                progress((number * len(calls) + k) // stages)

        return Stage(options.tolerance, calls, ways, told)

    brackets = [Bracket(m, r) for m, r in zip(nominal, _linear(problem), strict=True)]
    radii = _proved(problem, brackets, active, stage(0))
    with suppress(OutOfTime):  # the radii of the stages before hold
        if steps > 0 and active:
            problem, radii = _tuned(problem, nominal, radii, steps, stage(1))
        if splits > 1 and active:
            radii = _divided(problem, nominal, radii, splits, stage(stages - 1))
    if progress is not None:
        progress(len(problem))
    return radii, calls, ways


def _tuned(
    problem: Problem, nominal: list[float], radii: list[float], steps: int, stage: Stage
) -> tuple[Problem, list[float]]:
    """The problem with planes optimised a little beyond what was reached without, and its radii where larger."""
    near = [AHEAD * r for r in radii]
    better = problem.tuned(_like(near, problem), steps=steps)
    return better, _again(better, nominal, radii, near, stage)


def _divided(problem: Problem, nominal: list[float], radii: list[float], splits: int, stage: Stage) -> list[float]:
    """Radii proved piece by piece, after cutting into twice as many each time a little beyond what those reach."""
    near, count = radii, 1
    while count < splits:
        count = min(2 * count, splits)
        problem = divide(problem, _like([BEYOND * r for r in near], problem), count)
        near = [AHEAD * r for r in near]
        if count < splits:
            near = _reached(problem, nominal, near, stage.calls)
    return _again(problem, nominal, radii, near, stage)


def _like(values: list[float], problem: Problem) -> Tensor:
    return torch.tensor(values, dtype=problem.centre.dtype, device=problem.centre.device)


def _reached(problem: Problem, nominal: list[float], near: list[float], calls: list[int]) -> list[float]:
    """About how far a problem reaches, unproved, given about how far it should."""
    brackets = [Bracket(m, r, guess=r) for m, r in zip(nominal, near, strict=True)]
    active = [i for i, r in enumerate(near) if r > 0]
    _close(problem.draft() or problem, brackets, active, Stage(WIDE, calls, [], lambda _: None), draft=True)
    return [min(max(b.root() if b.seen else b.low, r / 2), 2 * r) for b, r in zip(brackets, near, strict=True)]


def _again(better: Problem, nominal: list[float], radii: list[float], near: list[float], stage: Stage) -> list[float]:
    """Radii by a tighter way of bounding, where they are larger than those before; `near` is where they should be."""
    brackets = [Bracket(m, r, guess=r) for m, r in zip(nominal, near, strict=True)]
    active = [i for i, r in enumerate(radii) if r > 0]
    better_radii = _proved(better, brackets, active, stage)
    return [max(a, b) for a, b in zip(radii, better_radii, strict=True)]


def _proved(problem: Problem, brackets: list[Bracket], active: list[int], stage: Stage) -> list[float]:
    """Close the brackets of some instances, first in single precision, and verify what was found.

    Where time is limited there is no draft: every evaluation is a proof, so that what is known at the end is proved.
    """
    stage.ways.append(problem)
    if problem.deadline.limited:
        with suppress(OutOfTime):
            _close(problem, brackets, active, stage, proving=True)
        return [b.verified for b in brackets]
    draft, before = problem.draft(), 0

    def halves(finished: int) -> None:  # a set counts half when it is drafted, and whole when it is proved
        stage.progress((before + finished) // 2 if draft is not None else finished)

    half = replace(stage, progress=halves)
    if draft is not None:
        _close(draft, brackets, active, half, draft=True)
        brackets, before = [b.followed(stage.tolerance) for b in brackets], len(brackets)
    _close(problem, brackets, active, half)
    return _verify(problem, brackets, stage.calls, stage.tolerance)


def _close(
    problem: Problem,
    brackets: list[Bracket],
    active: list[int],
    stage: Stage,
    *,
    draft: bool = False,
    proving: bool = False,
) -> None:
    """Narrow the brackets of some instances, together, until all are closed; or settled, where it is but a draft.

    A few go ahead, at different shares of their linearised radius; the others, and those that learn nothing there,
    follow what these found.
    """
    tolerance = stage.tolerance
    scale = float(torch.linalg.vector_norm(problem.centre, ord=problem.p, dim=-1).max()) or 1.0
    least = float(torch.finfo(problem.centre.dtype).tiny)
    hints = {i: START[k % len(START)] * brackets[i].linear for k, i in enumerate(active)}
    done = Bracket.settled if draft else Bracket.closed
    for step in range(DRAFT_STEPS if draft else MOST_STEPS):
        remaining = [i for i in active if not done(brackets[i], tolerance) and brackets[i].low < FAR * scale]
        stage.progress(len(brackets) - len(remaining))
        if step == 0 and draft and any(brackets[i].guess is None for i in remaining):
            remaining = remaining[:: max(1, min(SCOUTED, len(remaining) // LEAST_SCOUTS))]
        if not remaining:
            break
        eps = _representable(problem, [max(brackets[i].aim(tolerance, hints[i]), least) for i in remaining])
        ends = [brackets[i].final(e, tolerance) for i, e in zip(remaining, eps, strict=True)]
        last = proving or (not draft and all(ends))
        margins = _margin(problem, eps, remaining, rounding=last)
        for i, e, m in zip(remaining, eps, margins, strict=True):
            brackets[i].take(e, m, last)
            stage.calls[i] += 1
        shares = [b.root() / b.linear for b in (brackets[i] for i in active) if b.seen]
        if shares:
            hints = {i: median(shares) * brackets[i].linear for i in active}


def _verify(problem: Problem, brackets: list[Bracket], calls: list[int], tolerance: float) -> list[float]:
    """The radii that hold with rounding accounted for: what was found, or a little less."""
    radii = _representable(problem, [b.low for b in brackets])
    verified = [b.verified if b.verified == b.low else 0.0 for b in brackets]
    pending = [i for i, r in enumerate(radii) if r > 0 and verified[i] == 0.0]
    shrink = SHRINK * tolerance
    while pending:
        margins = _margin(problem, [radii[i] for i in pending], pending, rounding=True)
        for i, m in zip(pending, margins, strict=True):
            calls[i] += 1
            if m > 0:
                verified[i] = radii[i]
            else:
                radii[i] = _representable(problem, [radii[i] * (1 - shrink)])[0]
        pending = [i for i in pending if verified[i] == 0.0]
        shrink = min(SHRINK_MOST, shrink * SHRINK_GROWTH)
        if all(radii[i] < tolerance * brackets[i].low for i in pending):
            break
    return verified


def _representable(problem: Problem, eps: list[float]) -> list[float]:
    """Radii as numbers of the problem's precision: what is reported is what was evaluated."""
    rounded: list[float] = torch.tensor(eps, dtype=problem.centre.dtype).tolist()
    return rounded


def _margin(problem: Problem, eps: list[float], chosen: list[int], *, rounding: bool) -> list[float]:
    """The smallest lower bound over the other classes."""
    values = torch.tensor(eps, dtype=problem.centre.dtype, device=problem.centre.device)
    lower: list[float] = problem.margins(values, chosen, rounding=rounding).least.tolist()
    return lower


def _linear(problem: Problem) -> list[float]:
    """The radius at which the linearised margin vanishes: `margin / sum_k ||gradient_k||_q`."""
    graph = problem.compiled.graph
    chosen = list(range(len(problem)))
    guesses: list[float] = []
    step = problem.at_once(1)
    for k in range(0, len(chosen), step):
        part = chosen[k : k + step]
        ball: Ball = problem.ball(torch.ones(len(part)), part)
        x = ball.centre.clone().requires_grad_(True)
        with torch.enable_grad():
            margins = (problem.rows(part) * graph.values(x)[-1][:, None]).flatten(2).sum(dim=2).amin(dim=1)
            (gradient,) = torch.autograd.grad(margins.sum(), x)
        blocks = torch.einsum("zund,ztn->ztd", gradient, ball.hot)
        slope = ball.spread(blocks.flatten(1)[None, :, :, None])[0, :, 0]
        guesses += _ratio(margins.detach(), slope).tolist()
    return guesses


def _ratio(margin: Tensor, slope: Tensor) -> Tensor:
    safe = torch.where(slope > 0, slope, torch.ones_like(slope))
    return torch.where(slope > 0, margin / safe, torch.ones_like(margin)).clamp(min=torch.finfo(slope.dtype).tiny)

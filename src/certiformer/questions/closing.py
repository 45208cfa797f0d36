"""Closing brackets: the steps of a search for radii, each an evaluation of all instances that are not done.

Most of the way is gone in single precision, which proves nothing but says where to look. Every radius that is reported
was verified itself, rounding included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from ..core.deadline import OutOfTime
from ..core.problem import Problem
from ..core.sets import Ball
from .bracket import Bracket
from .curve import Curve

MOST_STEPS, DRAFT_STEPS = 60, 20  # evaluations after which a search ends where it is
START = (0.3, 0.1)  # where to begin: shares of where the linearised margin vanishes, or of the embedding if less
SCOUTED, SCOUTS = 8, 2  # one instance in so many goes ahead, but not fewer than that
SHRINK, SHRINK_GROWTH, SHRINK_MOST = 1 / 4, 4, 0.5  # steps down where a proof fails: of the tolerance, growing, at most
FAR = 1e6  # in units of the largest embedding norm: beyond this a radius is reported as it stands
NEAR = 1e-9  # in those units, or of the linearised radius if that is less: what is not proved by then is not proved
WIDE = 4e-3  # relative width of what is only looked for to cut further


@dataclass(frozen=True)
class Stage:
    """What the steps of a search share: how close to come, where evaluations are counted, what proves, who is told."""

    tolerance: float
    calls: list[int]  # of each instance
    ways: list[Problem]  # that radii are proved with, in the order in which they are tried
    progress: Callable[[int], None]  # called with how many instances are done


def again(better: Problem, nominal: list[float], radii: list[float], near: list[float], stage: Stage) -> list[float]:
    """Radii by a tighter way of bounding, where they are larger than those before; `near` is where they should be, 0
    where nothing was proved before."""
    brackets = [Bracket(m, r, guess=r) for m, r in zip(nominal, near, strict=True)]
    active = [i for i, r in enumerate(radii) if r > 0]
    better_radii = proved(better, brackets, active, stage)
    return [max(a, b) for a, b in zip(radii, better_radii, strict=True)]


def proved(problem: Problem, brackets: list[Bracket], active: list[int], stage: Stage) -> list[float]:
    """Radii of some instances, their brackets closed as far as there is time."""
    stage.ways.append(problem)
    return [b.verified for b in narrowed(problem, brackets, active, stage)]


def narrowed(problem: Problem, brackets: list[Bracket], active: list[int], stage: Stage) -> list[Bracket]:
    """Close the brackets of some instances, first by a draft, in single precision and without rounding, then by proofs.

    A few go ahead; the others begin with what these found: where ends are, how the loss grows, whether drafts help.
    Where time is limited there is no draft, so that what is known at the end is proved; else it changes nothing.
    """
    drafted = not problem.deadline.limited
    ahead = active[:: max(1, min(SCOUTED, len(active) // SCOUTS))]
    after = [i for i in active if i not in ahead]
    first = replace(stage, progress=lambda k: stage.progress(k - len(after)))
    with suppress(OutOfTime):  # what is proved until then is in the brackets
        brackets = _proved(problem, brackets, ahead, first, drafted=drafted)
        if after:
            scouts = [brackets[i] for i in ahead]
            curve = learned(scouts)
            brackets = [replace(b, curve=curve) if i in after else b for i, b in enumerate(brackets)]
            useless = 2 * sum(b.misled for b in scouts) > len(scouts)
            brackets = _proved(problem, brackets, after, stage, known=ahead, drafted=drafted and not useless)
    return brackets


def _proved(
    problem: Problem,
    brackets: list[Bracket],
    active: list[int],
    stage: Stage,
    *,
    drafted: bool,
    known: Sequence[int] = (),
) -> list[Bracket]:
    """The brackets, where those of some instances are closed; those that are `known` are closed already. Without a
    draft they are closed where they are."""
    draft, before = problem.draft() or (None if problem.method == "ibp" else problem), 0
    drafted = drafted and draft is not None

    def halves(finished: int) -> None:  # a set counts half when it is drafted, and whole when it is proved
        stage.progress((before + finished) // 2 if drafted else finished)

    half = replace(stage, progress=halves)
    if draft is not None and drafted:
        close(draft, brackets, active, half, known=known, draft=True, finished=Bracket.settled)
        brackets, before = [b.followed() if i in active else b for i, b in enumerate(brackets)], len(brackets)
    close(problem, brackets, active, half, known=known)
    return brackets


def learned(closed: Sequence[Bracket]) -> Curve:
    """How the loss grows, by instances whose end is known; what a draft saw that was wrong says nothing."""
    points: list[tuple[float, float]] = []
    for bracket in closed:
        if bracket.low > 0:
            end = math.log(min(max(bracket.root(), bracket.low), bracket.high) if bracket.telling else bracket.low)
            points += [(x.loss, x.radius - end) for x in bracket.history if x.proof or not bracket.misled]
    return Curve.through(points)


def close(
    problem: Problem,
    brackets: list[Bracket],
    active: list[int],
    stage: Stage,
    *,
    known: Sequence[int] = (),
    draft: bool = False,
    finished: Callable[[Bracket, float], bool] = Bracket.closed,
) -> None:
    """Narrow the brackets of some instances, together, until all are finished: closed, or settled, where a draft need
    not come closer.

    They begin at different shares of their linearised radius; those that learn nothing there follow what the others
    found. Where some are `known`, all begin with what those found.
    """
    tolerance = stage.tolerance
    scale, far = largest(problem), farthest(problem)
    least = float(torch.finfo(problem.centre.dtype).tiny)
    begin = [min(b.linear, scale) for b in brackets]
    found = [brackets[i].verified / begin[i] for i in known if brackets[i].verified > 0]
    hints = {i: (median(found) if found else START[k % len(START)]) * begin[i] for k, i in enumerate(active)}
    for _ in range(DRAFT_STEPS if draft else MOST_STEPS):
        remaining = [i for i in active if not finished(brackets[i], tolerance)]
        remaining = [i for i in remaining if brackets[i].low < far and brackets[i].high > NEAR * begin[i]]
        stage.progress(len(brackets) - len(remaining))
        if not remaining:
            break
        eps = representable(problem, [max(brackets[i].aim(tolerance, hints[i]), least) for i in remaining])
        margins = margin(problem, eps, remaining, rounding=not draft)
        for i, e, m in zip(remaining, eps, margins, strict=True):
            brackets[i].take(e, m, not draft)
            stage.calls[i] += 1
        shares = found + [brackets[i].root() / begin[i] for i in active if brackets[i].telling]
        if shares:
            hints = {i: median(shares) * begin[i] for i in active}


def verify(problem: Problem, brackets: list[Bracket], calls: list[int], tolerance: float) -> list[float]:
    """The radii that hold with rounding accounted for: what was found, or a little less. Each is in its bracket as soon
    as it is proved."""
    radii = representable(problem, [b.low for b in brackets])
    pending = [i for i, b in enumerate(brackets) if radii[i] > b.verified]
    shrink = SHRINK * tolerance
    while pending:
        margins = margin(problem, [radii[i] for i in pending], pending, rounding=True)
        for i, m in zip(pending, margins, strict=True):
            calls[i] += 1
            if m > 0:
                brackets[i].verified = radii[i]
            else:
                radii[i] = representable(problem, [radii[i] * (1 - shrink)])[0]
        pending = [i for i in pending if radii[i] > brackets[i].verified]
        shrink = min(SHRINK_MOST, shrink * SHRINK_GROWTH)
        if all(radii[i] < tolerance * brackets[i].low for i in pending):
            break
    return [b.verified for b in brackets]


def reached(problem: Problem, brackets: list[Bracket], calls: list[int]) -> list[float]:
    """About how far a problem reaches, as a draft finds, given brackets of what is known of that; those that have no
    guess are left as they are."""
    active, stage = [i for i, b in enumerate(brackets) if b.guess], Stage(WIDE, calls, [], lambda _: None)
    close(problem.draft() or problem, brackets, active, stage, draft=True)
    return [b.low for b in brackets]


def largest(problem: Problem) -> float:
    """The largest norm of an embedding: the unit of radii."""
    return float(torch.linalg.vector_norm(problem.centre, ord=problem.p, dim=-1).max()) or 1.0


def farthest(problem: Problem) -> float:
    """From where on a radius is reported as it stands."""
    return FAR * largest(problem)


def like(values: list[float], problem: Problem) -> Tensor:
    return torch.tensor(values, dtype=problem.centre.dtype, device=problem.centre.device)


def representable(problem: Problem, eps: list[float]) -> list[float]:
    """Radii as numbers of the problem's precision: what is reported is what was evaluated."""
    rounded: list[float] = torch.tensor(eps, dtype=problem.centre.dtype).tolist()
    return rounded


def margin(problem: Problem, eps: list[float], chosen: list[int], *, rounding: bool) -> list[float]:
    """The smallest lower bound over the other classes."""
    values = torch.tensor(eps, dtype=problem.centre.dtype, device=problem.centre.device)
    lower: list[float] = problem.margins(values, chosen, rounding=rounding).least.tolist()
    return lower


def linear(problem: Problem) -> list[float]:
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

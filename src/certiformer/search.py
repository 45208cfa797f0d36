"""Certified radius: a batched bracketing root finder on the certified margin.

The margin as a function of the radius is smooth and falls, until the relaxation breaks down. Each step aims at the end
of the interpolation of what is known, a little past it toward the far end of the bracket, so that the bracket closes
from both sides; where that does not pay, it bisects. All instances advance together, and
those that are done leave the batch. Every radius that is reported was verified itself, rounding included.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from .bounds.methods import Method, Relaxation
from .bounds.plan import AutoMethod, Budget
from .bounds.problem import Problem
from .bounds.split import divide
from .errors import InputError
from .inputs import Inputs, Positions, Prepared, norm_order, position_sets, prepare, unchanged
from .models.model import Model

MOST_STEPS = 60
AHEAD = 1.1  # where planes are optimised, in units of the radius reached without
BEYOND = 1.2  # where balls are cut into pieces, likewise
COARSE = 1e-2  # relative width of the search while there are still pieces to come
START = (0.1, 0.02, 0.004)  # where to begin, in units of the radius at which the linearised margin vanishes
POWER = 4.0  # of the radius with which the margin falls, before more is known
LEAST, MOST = 0.02, 3.5  # losses of the margin, in units of the margin at rest, that say where it ends
FAR = 1e6  # in units of the largest embedding norm: beyond this a radius is reported as it stands


@dataclass(frozen=True, eq=False)
class RadiusResult:
    """For each set of positions, a radius within which the prediction is proved not to change."""

    positions: tuple[tuple[int, ...], ...]
    radii: tuple[float, ...]
    normalized: tuple[float, ...]  # radius over the smallest norm of the embeddings it moves
    tokens: tuple[str, ...]
    label: int
    margin: float
    norm: float
    method: Method
    relaxation: Relaxation
    chosen: str  # method and relaxation in words, with what the budget allowed
    tolerance: float
    calls: float  # evaluations of the bounds, on average over the sets
    seconds: float

    @property
    def smallest(self) -> tuple[tuple[int, ...], float]:
        """The most fragile set of positions and its radius."""
        i = min(range(len(self.radii)), key=lambda k: self.radii[k])
        return self.positions[i], self.radii[i]


def radius(
    model: Model,
    inputs: Inputs,
    *,
    norm: float | str = 2,
    words: int = 1,
    positions: Positions | None = None,
    method: AutoMethod = "auto",
    relaxation: Relaxation = "tight",
    budget: Budget = "balanced",
    tolerance: float = 1e-3,
    steps: int = 0,
    splits: int = 0,
    label: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    max_memory: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RadiusResult:
    """The certified radius of every set of `words` positions (or of the given `positions`).

    method="auto" takes the tightest that `budget` allows; the result says what it was. `tolerance` is the relative
    width to which the search closes; `steps` of optimising the planes make every evaluation tighter, and so does
    cutting every ball into up to `splits` pieces.
    `progress(done, total)` is called as sets finish.
    """
    (result,) = radii(
        model,
        [inputs],
        norm=norm,
        words=words,
        positions=positions,
        method=method,
        relaxation=relaxation,
        budget=budget,
        tolerance=tolerance,
        steps=steps,
        splits=splits,
        label=label,
        dtype=dtype,
        device=device,
        max_memory=max_memory,
        progress=progress,
    )
    return result


def radii(
    model: Model,
    inputs: Sequence[Inputs],
    *,
    norm: float | str = 2,
    words: int = 1,
    positions: Positions | None = None,
    method: AutoMethod = "auto",
    relaxation: Relaxation = "tight",
    budget: Budget = "balanced",
    tolerance: float = 1e-3,
    steps: int = 0,
    splits: int = 0,
    label: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    max_memory: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RadiusResult, ...]:
    """As `radius`, for many inputs: those of one length are searched together."""
    if not (isinstance(tolerance, (int, float)) and 0 < tolerance < 1):
        raise InputError(f"tolerance={tolerance!r}: expected a number between 0 and 1")
    for name, count in (("steps", steps), ("splits", splits)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"{name}={count!r}: expected a whole number of 0 or more")
    p = norm_order(norm)
    with unchanged():
        prepared = [prepare(model, x, label=label, dtype=dtype, device=device) for x in inputs]
    sets = [position_sets(q, words, positions) for q in prepared]
    total = sum(len(s) for s in sets)
    results: list[RadiusResult | None] = [None] * len(prepared)
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, q in enumerate(prepared):
        groups.setdefault(tuple(q.embeddings.shape), []).append(i)
    done = 0
    for members in groups.values():
        started = time.perf_counter()
        questions = [(prepared[i], s) for i in members for s in sets[i]]
        problem = Problem.of(
            questions,
            p=p,
            method=method,
            relaxation=relaxation,
            budget=budget,
            max_memory=max_memory,
        )

        def report(finished: int, before: int = done) -> None:
            if progress is not None:
                progress(before + finished, total)

        found, calls = search(
            problem,
            [q.margin for q, _ in questions],
            tolerance=tolerance,
            steps=steps,
            splits=splits,
            progress=report,
        )
        seconds = time.perf_counter() - started
        k = 0
        for i in members:
            count = len(sets[i])
            results[i] = _result(
                prepared[i],
                sets[i],
                found[k : k + count],
                calls[k : k + count],
                problem,
                relaxation,
                tolerance,
                seconds * count / len(questions),
            )
            k += count
        done += len(questions)
    return tuple(r for r in results if r is not None)


def _result(
    prepared: Prepared,
    sets: list[tuple[int, ...]],
    found: list[float],
    calls: list[int],
    problem: Problem,
    relaxation: Relaxation,
    tolerance: float,
    seconds: float,
) -> RadiusResult:
    p = problem.p
    norms = torch.linalg.vector_norm(prepared.embeddings[0], ord=p, dim=-1).tolist()
    return RadiusResult(
        positions=tuple(sets),
        radii=tuple(found),
        normalized=tuple(_over(r, min(norms[i] for i in s)) for r, s in zip(found, sets, strict=True)),
        tokens=prepared.tokens,
        label=prepared.label,
        margin=prepared.margin,
        norm=p,
        method=problem.method,
        relaxation=relaxation,
        chosen=problem.described,
        tolerance=tolerance,
        calls=sum(calls) / max(1, len(calls)),
        seconds=seconds,
    )


def _over(radius: float, norm: float) -> float:
    """A radius in units of an embedding's norm; inf for an embedding of zeros, such as a black patch."""
    return 0.0 if radius == 0 else radius / norm if norm > 0 else math.inf


@dataclass
class Bracket:
    """What is known of one instance: proved at `low`, not proved at `high`, and what the margin lost on the way.

    The loss `1 - margin / rest` grows like a power of the radius, and is 1 where the margin ends: so it is interpolated
    on logarithmic scales, the radius as a function of the loss.
    """

    rest: float  # the margin at radius 0
    linear: float  # where it would end if it went on as it begins
    low: float = 0.0
    high: float = math.inf
    seen: list[tuple[float, float]] = field(default_factory=list)  # log loss, log radius, where the loss says something
    stalled: int = 0

    def take(self, eps: float, margin: float) -> None:
        """Enter an evaluation."""
        width = self.high - self.low
        if margin > 0:
            self.low = eps
        else:
            self.high = eps
        loss = 1 - margin / self.rest
        if LEAST < loss < MOST:  # less is the slope at rest alone; with more the relaxation has collapsed
            self.seen.append((math.log(loss), math.log(eps)))
        if math.isfinite(width):
            self.stalled = self.stalled + 1 if self.high - self.low > width / 2 else 0

    def closed(self, tolerance: float) -> bool:
        return math.isfinite(self.high) and self.high - self.low <= tolerance * self.high

    def aim(self, tolerance: float, hint: float) -> float:
        """Where to evaluate next; `hint` is a guess to start from."""
        if not self.seen:
            if self.low < hint < self.high:
                return hint
            if math.isinf(self.high):
                return 4 * self.low
            return math.sqrt(self.low * self.high) if self.low > 0 else self.high / 8
        root = self.root()
        if math.isinf(self.high):
            return min(max(root, self.low) * (1 + 0.35 * tolerance), 8 * self.low)
        if self.stalled >= 3 or not self.low < root < self.high:  # what was seen does not say: halve
            self.stalled = 0
            return math.sqrt(self.low * self.high) if self.low > 0 else self.high / 4
        nudge = 0.35 * tolerance * self.high
        below, above = self.high * (1 - 0.95 * tolerance), self.low / (1 - 0.95 * tolerance)
        if self.low < below and below + nudge / 3 < root:  # proved here, it would be closed
            return below
        if above < self.high and root + nudge / 3 < above:  # refused here, it would be closed
            return above
        root += nudge if root - self.low < self.high - root else -nudge
        return min(max(root, self.low + nudge, self.high / 16), self.high - nudge)

    def root(self) -> float:
        """Where the loss should be 1: by the two evaluations nearest to it, or the nearest on either side."""
        first, *others = sorted(self.seen, key=lambda x: abs(x[0]))
        if not others:
            return _crossing(first)
        root = _crossing(first, others[0])
        across = next((x for x in others if (x[0] > 0) != (first[0] > 0)), None)
        if across is not None and not self.low < root < self.high:
            root = _crossing(first, across)
        return root


def _crossing(a: tuple[float, float], b: tuple[float, float] | None = None) -> float:
    """The radius at which the logarithm of the loss is 0, on the line through two points or of the usual slope."""
    power = POWER if b is None or a[1] == b[1] else (b[0] - a[0]) / (b[1] - a[1])
    return math.exp(a[1] - a[0] / min(max(power, 1.0), 100.0))


def search(
    problem: Problem,
    rest: list[float],
    *,
    tolerance: float,
    steps: int = 0,
    splits: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[list[float], list[int]]:
    """Verified radii of all instances of a problem, given their margins at rest; and evaluations spent on each."""
    brackets = [Bracket(m, r) for m, r in zip(rest, _linear(problem), strict=True)]
    calls = [0] * len(problem)
    active = [i for i, m in enumerate(rest) if m > 0]
    _close(problem, brackets, calls, active, tolerance, progress)
    radii = _verify(problem, brackets, calls, tolerance)
    if steps > 0 and active:
        radii = _tuned(problem, rest, radii, calls, steps, tolerance)
    if splits > 1 and active:
        radii = _divided(problem, rest, radii, calls, splits, tolerance)
    return radii, calls


def _tuned(
    problem: Problem, rest: list[float], radii: list[float], calls: list[int], steps: int, tolerance: float
) -> list[float]:
    """Radii with planes optimised a little beyond what was reached without, where they are larger."""
    return _again(problem.tuned(_times(AHEAD, radii, problem), steps=steps), rest, radii, calls, tolerance)


def _divided(
    problem: Problem, rest: list[float], radii: list[float], calls: list[int], splits: int, tolerance: float
) -> list[float]:
    """Radii proved piece by piece, with twice as many pieces each time."""
    count = 1
    while count < splits:
        count = min(2 * count, splits)
        problem = divide(problem, _times(BEYOND, radii, problem), count)
        radii = _again(problem, rest, radii, calls, tolerance if count == splits else max(COARSE, tolerance))
    return radii


def _times(factor: float, radii: list[float], problem: Problem) -> Tensor:
    like = problem.centre
    return torch.tensor([factor * r for r in radii], dtype=like.dtype, device=like.device)


def _again(better: Problem, rest: list[float], radii: list[float], calls: list[int], tolerance: float) -> list[float]:
    """Radii by a tighter way of bounding, where they are larger than those reached before."""
    brackets = [Bracket(m, AHEAD * r / START[0], low=r) for m, r in zip(rest, radii, strict=True)]
    active = [i for i, r in enumerate(radii) if r > 0]
    _close(better, brackets, calls, active, tolerance, None)
    found = _verify(better, brackets, calls, tolerance)
    return [max(a, b) for a, b in zip(radii, found, strict=True)]


def _close(
    problem: Problem,
    brackets: list[Bracket],
    calls: list[int],
    active: list[int],
    tolerance: float,
    progress: Callable[[int], None] | None,
) -> None:
    """Narrow the brackets of some instances, together, until all are closed.

    They begin at different shares of their linearised radius; those that learn nothing there follow the others.
    """
    scale = float(torch.linalg.vector_norm(problem.centre, ord=problem.p, dim=-1).max()) or 1.0
    hints = {i: START[k % len(START)] * brackets[i].linear for k, i in enumerate(active)}

    def pending() -> list[int]:
        return [i for i in active if not brackets[i].closed(tolerance) and brackets[i].low < FAR * scale]

    for _ in range(MOST_STEPS):
        remaining = pending()
        if progress is not None:
            progress(len(brackets) - len(remaining))
        if not remaining:
            break
        eps = _representable(problem, [brackets[i].aim(tolerance, hints[i]) for i in remaining])
        found = _margin(problem, eps, remaining, rounding=False)
        for i, e, m in zip(remaining, eps, found, strict=True):
            brackets[i].take(e, m)
            calls[i] += 1
        shares = [b.root() / b.linear for b in (brackets[i] for i in active) if b.seen]
        if shares:
            hints = {i: median(shares) * brackets[i].linear for i in active}


def _verify(problem: Problem, brackets: list[Bracket], calls: list[int], tolerance: float) -> list[float]:
    """The radii that hold with rounding accounted for: what was found, or a little less."""
    radii = [b.low for b in brackets]
    verified = [0.0] * len(radii)
    radii = _representable(problem, radii)
    pending = [i for i, r in enumerate(radii) if r > 0]
    shrink = tolerance / 4
    while pending:
        found = _margin(problem, [radii[i] for i in pending], pending, rounding=True)
        for i, m in zip(pending, found, strict=True):
            calls[i] += 1
            if m > 0:
                verified[i] = radii[i]
            else:
                radii[i] = _representable(problem, [radii[i] * (1 - shrink)])[0]
        pending = [i for i in pending if verified[i] == 0.0]
        shrink = min(0.5, shrink * 4)
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
    lower: list[float] = problem.margins(values, chosen, rounding=rounding).lower.amin(dim=1).tolist()
    return lower


def _linear(problem: Problem) -> list[float]:
    """The radius at which the linearised margin vanishes: `margin / sum_k ||gradient_k||_q`."""
    from .sets.ball import Ball, dual, norm

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
        slope = norm(blocks, dual(problem.p), dim=-1).sum(dim=-1)
        guesses += _ratio(margins.detach(), slope).tolist()
    return guesses


def _ratio(margin: Tensor, slope: Tensor) -> Tensor:
    safe = torch.where(slope > 0, slope, torch.ones_like(slope))
    return torch.where(slope > 0, margin / safe, torch.ones_like(margin)).clamp(min=torch.finfo(slope.dtype).tiny)

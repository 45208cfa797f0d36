"""One case, measured: a run that warms up, the median of some more, its peak memory and its floor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from certiformer.api import Certifier
from certiformer.core.counting import work_of
from certiformer.core.problem import Problem
from certiformer.models import Model
from certiformer.options import Options, Question
from certiformer.questions.inputs import Inputs, prepare, problem_of
from certiformer.questions.positions import position_sets

from .cases import Case
from .machine import Rates, peak_memory, synchronized
from .models import inputs_of, model_of


@dataclass(frozen=True)
class Outcome:
    """What one run of a case found: to be the same whatever it took."""

    sets: int
    evaluations: float  # of each set, on average
    mean: float  # of the radii, or of the margins where it is one evaluation
    chosen: str


@dataclass(frozen=True)
class Measured:
    """A case with what it took."""

    case: Case
    model: str
    seconds: float
    all_seconds: tuple[float, ...]
    processor: float  # seconds that the CPU's cores were busy, all together
    first: float  # of the run that warmed up: capture included
    sets: int
    evaluations: float
    mean: float
    chosen: str
    memory: int | None
    flops: float  # that the method needs, by the count of `core/counting.py`
    floor: float  # seconds

    def to_json(self) -> dict[str, Any]:
        return {"key": self.case.key, **asdict(self)}


RECORDED = 5  # runs after which everything that comes again on a GPU has been recorded


def measure(
    case: Case,
    *,
    device: str,
    rates: Rates,
    dtype: torch.dtype = torch.float64,
    repeats: int = 3,
    patience: float = 60.0,
    tolerance: float = 1e-3,
    max_memory: int | None = None,
    folder: Path | None = None,
    texts: list[str] | None = None,
) -> Measured:
    """Run a case to warm up and then up to `repeats` times within `patience` seconds.

    A first run that took longer is the measurement itself. On a GPU a few more follow, until all is recorded.
    """
    model = model_of(case, folder)
    inputs = inputs_of(case, model, texts)
    options: dict[str, Any] = {"device": device, "dtype": dtype, "max_memory": max_memory}
    how = Options(method=case.method, relaxation=case.relaxation, budget=case.budget, tolerance=tolerance, **options)
    certifier = Certifier(model, how)
    work: Callable[[], Outcome] | None = None

    def once() -> Outcome:
        return work() if work is not None else _search(case, certifier, inputs)

    with peak_memory(device) as peak:
        start, used = synchronized(device), time.process_time()
        work = None if case.eps is None else _evaluation(case, model, inputs, options)
        outcome = once()
        first, busy = synchronized(device) - start, [time.process_time() - used]
    seconds, memory = [first], peak
    if first < patience:
        for _ in range(RECORDED if device.startswith("cuda") and first < patience / (RECORDED + 1) else 0):
            once()
        seconds, busy = [], []
        with peak_memory(device) as peak:
            while len(seconds) < repeats and (not seconds or sum(seconds) + seconds[-1] < patience):
                start, used = synchronized(device), time.process_time()
                outcome = once()
                seconds.append(synchronized(device) - start)
                busy.append(time.process_time() - used)
    flops, floor = _floor(case, model, inputs, outcome, rates, device=device, dtype=dtype)
    return Measured(
        case=case,
        model=model.name,
        seconds=median(seconds),
        all_seconds=tuple(seconds),
        processor=median(busy),
        first=first,
        sets=outcome.sets,
        evaluations=outcome.evaluations,
        mean=outcome.mean,
        chosen=outcome.chosen,
        # of the first run too: what a recording holds is not counted when it is replayed
        memory=None if peak.bytes is None else max(peak.bytes, memory.bytes or 0),
        flops=flops,
        floor=floor,
    )


def _search(case: Case, certifier: Certifier, inputs: Sequence[Inputs]) -> Outcome:
    found = certifier.radii(inputs, words=case.words)
    sets = sum(len(r.radii) for r in found)
    return Outcome(
        sets=sets,
        evaluations=sum(r.calls * len(r.radii) for r in found) / sets,
        mean=sum(sum(r.radii) for r in found) / sets,
        chosen="; ".join(dict.fromkeys(r.chosen for r in found)),
    )


def _evaluation(case: Case, model: Model, inputs: Sequence[Inputs], options: dict[str, Any]) -> Callable[[], Outcome]:
    """One evaluation of the bounds of all sets, as a search makes many of them."""
    problem = _problem(case, model, inputs, **options)
    scale = float(torch.linalg.vector_norm(problem.centre, dim=-1).max())
    eps = torch.full((len(problem),), (case.eps or 0.0) * scale, dtype=problem.centre.dtype)

    def work() -> Outcome:
        found = problem.margins(eps.to(problem.centre.device), rounding=False).lower.amin(dim=1)
        return Outcome(len(problem), 1.0, float(found.mean()), problem.described)

    return work


def _problem(
    case: Case,
    model: Model,
    inputs: Sequence[Inputs],
    *,
    device: str,
    dtype: torch.dtype,
    max_memory: int | None = None,
) -> Problem:
    prepared = [prepare(model, x, device=device, dtype=dtype) for x in inputs]
    questions = [(q, s) for q in prepared for s in _some(position_sets(q, Question(words=case.words)), case.instances)]
    return problem_of(
        questions,
        p=2.0,
        method=case.method,
        relaxation=case.relaxation,
        budget=case.budget,
        max_memory=max_memory,
    )


def _some(sets: list[tuple[int, ...]], most: int | None) -> list[tuple[int, ...]]:
    """At most so many of some sets, from all over the list."""
    return sets if most is None or len(sets) <= most else [sets[k * len(sets) // most] for k in range(most)]


def _floor(
    case: Case,
    model: Model,
    inputs: Sequence[Inputs],
    outcome: Outcome,
    rates: Rates,
    *,
    device: str,
    dtype: torch.dtype,
) -> tuple[float, float]:
    """Operations and seconds that all evaluations of a case need at least: lengths apart, as they are searched."""
    lengths: dict[int, list[Inputs]] = {}
    for x in inputs:
        lengths.setdefault(prepare(model, x, device=device, dtype=dtype).embeddings.shape[1], []).append(x)
    flops = seconds = 0.0
    for group in lengths.values():
        problem = _problem(case, model, group, device=device, dtype=dtype)
        count = work_of(problem)
        flops += outcome.evaluations * count.flops
        seconds += outcome.evaluations * count.seconds(rates)
    return flops, seconds

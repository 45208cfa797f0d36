"""How long an answer will take, before it is begun: counted from the shapes of the graph and the machine's speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..core.budget import EVALUATIONS
from ..core.counting import Rates, work_of
from ..core.names import METHODS
from ..core.problem import Problem
from ..options import Options, Question
from .inputs import Inputs, Prepared, prepare, problem_of
from .positions import position_sets
from .workspace import Workspace

# measured on the bundled models, one to three layers, by three methods: right within a factor of five
EFFICIENCY = 6.0  # how many times longer the products take than those of large matrices
LONG = 60.0  # seconds from which on it is worth saying what would be cheaper
TRIED = 3  # times that this is timed to know the machine
SIDE, ROW = 384, 1 << 21  # of the matrices in them, and of the row


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes that the radii of some inputs should take, and what another method would."""

    seconds: float
    memory: int
    sets: int
    chosen: str
    cheaper: tuple[tuple[str, float], ...]  # methods with their seconds, the tightest first
    method: str = ""  # what "auto" comes to

    def __str__(self) -> str:
        told = f"about {spoken(self.seconds)} for {self.sets} sets of words ({self.chosen}), {_gib(self.memory)}"
        others = "; ".join(f"{name}: {spoken(seconds)}" for name, seconds in self.cheaper)
        return f"{told}; cheaper: {others}" if others else told


def estimate(workspace: Workspace, inputs: Sequence[Inputs], question: Question, options: Options) -> Estimate:
    """What the radii of these inputs should take; one of each length is looked at."""
    prepared = [prepare(workspace, x, label=question.label, dtype=options.dtype, device=options.device) for x in inputs]
    groups: dict[int, list[Prepared]] = {}
    for q in prepared:
        groups.setdefault(q.embeddings.shape[1], []).append(q)
    rates = measured(prepared[0].embeddings)
    seconds, memory, sets, chosen, method = 0.0, 0, 0, "", ""
    cheaper = dict.fromkeys(METHODS, 0.0)
    for members in groups.values():
        first = members[0]
        asked = [(first, s) for s in position_sets(first, question)]
        problem = problem_of(asked, options, p=question.p, joint=question.joint, run=False)
        one = _seconds(problem, rates)
        seconds += one * len(members)
        memory = max(memory, _memory(problem))
        sets += len(asked) * len(members)
        chosen, method = problem.described, problem.method
        for name in METHODS if one * len(members) > LONG else ():
            other = problem_of(
                asked, replace(options, method=name, steps=0, splits=0), p=question.p, joint=question.joint, run=False
            )
            cheaper[name] += _seconds(other, rates) * len(members)
    less = sorted(((n, s) for n, s in cheaper.items() if 0 < s < seconds / 2), key=lambda item: -item[1])
    return Estimate(seconds, memory, sets, chosen, tuple(less), method)


def _seconds(problem: Problem, rates: Rates) -> float:
    work = work_of(problem)
    return EVALUATIONS * (EFFICIENCY * work.flops / rates.flops + work.width * work.carried / rates.bytes)


def _memory(problem: Problem) -> int:
    """Bytes: what is kept of all nodes of the instances that are bounded together, at most what it may take."""
    at_once = min(len(problem), problem.at_once(max(len(p) for p in problem.positions)))
    numbers = sum(torch.Size(n.shape).numel() for n in problem.compiled.graph.nodes)
    largest = max(torch.Size(n.shape).numel() for n in problem.compiled.graph.nodes)
    needed = problem.centre.element_size() * at_once * (8 * numbers + 4 * largest * largest)
    return min(needed, problem.memory)


def measured(like: torch.Tensor) -> Rates:
    """What this machine does now: products of matrices, and passes over a long row of numbers."""
    square = torch.ones(SIDE, SIDE, dtype=like.dtype, device=like.device)
    row = torch.ones(ROW, dtype=like.dtype, device=like.device)
    products, passes = [], []
    for _ in range(TRIED):
        started = time.perf_counter()
        float((square @ square)[0, 0])
        between = time.perf_counter()
        float((row.abs() * row)[0])
        products.append(between - started)
        passes.append(time.perf_counter() - between)
    bytes_a_second = ROW * row.element_size() / min(passes)
    return Rates(2 * SIDE**3 / min(products), bytes_a_second, "a product of matrices, and a pass over a row")


def spoken(seconds: float) -> str:
    """A time in the words of a person: 40 s, 3 min, 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{max(1, count // 2**20)} MiB"

"""The parts that sets are cut into across entries of nodes: the worst first, until all are proved or time is out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import combinations

import torch
from torch import Tensor

from .entries import Batch, Leaf, optimised, proofs, usual
from .ops.base import Parameters
from .part import bent
from .problem import Margins, Problem
from .sharpen import sharpen

FIRST = 20  # steps of optimising a whole set
STEPS = 8  # of optimising a part, which begins where the part that it was cut from has ended
TOGETHER = 32  # parts that are cut at once, at most
CASES = 256  # combinations of half-spaces that are looked at one by one, at most
HELD = 24.0  # numbers that an optimised sweep keeps for each entry of a node and each parameter


def cuttable(problem: Problem) -> bool:
    """Whether sets can be cut this way: sweeps go back to the input, and something bends on the way."""
    graph, fits = problem.compiled.graph, 2 * _size(problem) <= problem.memory
    same = problem.known is None or problem.known.graph is graph
    return problem.method == "backward" and bool(bent(graph)) and same and fits and bool(cases_of(problem))


def cases_of(problem: Problem) -> list[tuple[int, ...]]:
    """Sets of half-spaces that must not hold all at once, every one of them; none where they are too many."""
    if problem.goal is None:
        return [(h,) for h in range(problem.classes - 1)]
    clauses = problem.goal.clauses
    if sum(math.comb(len(c.halfspaces), c.count) for c in clauses) > CASES:
        return []
    return list(dict.fromkeys(case for c in clauses for case in combinations(c.halfspaces, c.count)))


def _size(problem: Problem) -> int:
    """Bytes that one part takes while it is optimised, about."""
    graph = problem.compiled.graph
    count = 0
    for node in graph.nodes:
        if node.perturbed:
            count += 2 * math.prod(node.shape)
            if not node.op.exact:
                inputs = [p.shape for p in graph.parents(node)]
                count += math.prod(node.shape) * (inputs[0][-1] if inputs and node.op.kink is None else 1)
    return int(count * HELD * 4)


@dataclass(eq=False)
class Tree:
    """What is open of some instances of a problem within their radii, and what is proved of them."""

    problem: Problem
    eps: Tensor
    margins: Margins  # of all instances
    chosen: list[int]
    leaves: list[Leaf] = field(init=False, default_factory=list)  # that are open
    proved: dict[tuple[int, tuple[int, ...]], float] = field(init=False, default_factory=dict)  # of what is closed
    first: dict[int, Parameters] = field(init=False, default_factory=dict)  # what each instance begins with
    parts: int = field(init=False, default=0)  # that were bounded

    def __post_init__(self) -> None:
        known = self.problem.known
        assert known is not None
        for i in self.chosen:
            for case in cases_of(self.problem) if i in known.boxes else ():
                before = float(self.margins.lower[i, list(case)].max())
                if not before > 0:
                    best = self.margins.lower[i, list(case)].argmax()
                    weights = tuple(1.0 if h == int(best) else 1 / len(case) for h in range(len(case)))
                    if i not in self.first:
                        self.first[i] = usual(self.problem, known.boxes[i], i)
                    self.leaves.append(Leaf(i, case, (), self.first[i], (), weights, proved=before))

    def _batch(self, problem: Problem, leaves: list[Leaf]) -> Batch:
        assert self.problem.known is not None
        return Batch(problem, self.eps, self.problem.known, leaves)

    def begin(self) -> None:
        """Optimise the last sweep of everything that is open, and prove what comes of it."""
        waiting = list(self.leaves)
        for k in range(0, len(waiting), self._at_once):
            now = waiting[k : k + self._at_once]
            self._replace(now, now, FIRST, every=True)

    def sharpen(self) -> None:
        """Better boxes of the entries that matter to what is open, before anything is cut."""
        assert self.problem.known is not None
        for i in self.chosen:
            own = [leaf for leaf in self.leaves if leaf.owner == i]
            if own:
                sharpen(self.problem, self.eps, self.problem.known, own, self._at_once)

    def cut(self) -> bool:
        """Cut the worst parts in two; whether there was anything to cut."""
        self.leaves.sort(key=lambda leaf: leaf.bound)
        now = [leaf for leaf in self.leaves if leaf.next is not None][: max(1, self._at_once // 2)]
        if not now:
            return False
        self._replace(now, [half for leaf in now for half in leaf.halves()], STEPS, every=False)
        return True

    @property
    def _at_once(self) -> int:
        return int(min(2 * TOGETHER, max(2, self.problem.memory // (2 * _size(self.problem)))))

    def _replace(self, old: list[Leaf], new: list[Leaf], steps: int, *, every: bool) -> None:
        """Put parts in the place of those that they cover, which stay open as they are if this is interrupted.

        What a draft finds positive is closed where it is proved, the rest is open.
        """
        rough = self.problem.draft() or self.problem
        found = optimised(self._batch(rough, new), steps)
        self.parts += len(found)
        asked = [k for k, leaf in enumerate(found) if every or leaf.bound > 0]
        values = proofs(self._batch(self.problem, [found[k] for k in asked])) if asked else []
        for k, value in zip(asked, values, strict=True):
            found[k] = replace(found[k], proved=max(value, found[k].proved), bound=min(value, found[k].bound))
        gone = set(map(id, old))
        self.leaves = [leaf for leaf in self.leaves if id(leaf) not in gone]
        for leaf in found:
            if leaf.proved > 0:
                key = leaf.owner, leaf.case
                self.proved[key] = min(self.proved.get(key, math.inf), leaf.proved)
            else:
                self.leaves.append(self._stored(leaf))

    def _stored(self, leaf: Leaf) -> Leaf:
        """A part with parameters of its own as long as there is room for them."""
        size = sum(p.numel() * p.element_size() for ps in leaf.parameters.values() for p in ps)
        if (len(self.leaves) + 1) * size <= self.problem.memory // 4:
            return leaf
        return replace(leaf, parameters=self.first[leaf.owner])

    def found(self) -> Margins:
        """The margins that are proved by now."""
        lower, least = self.margins.lower.clone(), self.margins.least.clone()
        worst = dict(self.proved)
        for leaf in self.leaves:
            key = leaf.owner, leaf.case
            worst[key] = min(worst.get(key, math.inf), leaf.proved)
        for i in self.chosen:
            values: list[float] = []
            for case in cases_of(self.problem):
                before = float(self.margins.lower[i, list(case)].max())
                value = max(before, worst.get((i, case), before))
                values.append(value)
                if len(case) == 1 and math.isfinite(value):
                    lower[i, case[0]] = value
            least[i] = torch.tensor(min(values), dtype=least.dtype)
        return Margins(lower, self.margins.upper, self.margins.reasons, torch.maximum(least, self.margins.least))

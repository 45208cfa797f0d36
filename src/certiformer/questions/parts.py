"""Margins by parts: the last sweep optimised by itself, bounds of all nodes optimised, then sets cut across entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from ..core.counting import work_of
from ..core.problem import Margins, Problem
from ..core.tree import Tree, cuttable
from ..options import Options

TUNING = 0.3  # of the time left, that optimising the bounds of all nodes may take
ROUNDS = (10, 100)  # steps of it, at most, each from the beginning
FEW = 5  # steps that are not worth beginning
KEPT = 3.0  # bytes that a gradient keeps for each that an evaluation moves
STEP = 1.2  # how much longer a step, a draft with its gradient, takes than an evaluation


def pays(problem: Problem) -> bool:
    """Whether to cut sets across entries rather than into pieces: where all of several positions move in the maximum
    norm, a piece would be cut along one of very many numbers."""
    n = problem.centre.shape[2]
    return n > 1 and math.isinf(problem.p) and all(len(positions) == n for positions in problem.positions)


@dataclass(frozen=True)
class Parting:
    """What is open of a problem, proved part by part within its time, or with at most so many parts of each case."""

    problem: Problem  # which keeps the boxes that it proves
    eps: Tensor
    options: Options
    seconds: float  # that an evaluation took

    def margins(self, known: Margins, chosen: list[int]) -> Iterator[Margins]:
        """Those known, where those of some instances get better and better."""
        tree = Tree(self.problem, self.eps, known, chosen)
        tree.begin()
        yield tree.found()
        for most in ROUNDS:
            left = [i for i in chosen if not tree.found().least[i] > 0]
            soon = self.problem.deadline.or_after(TUNING * self.problem.deadline.left)
            steps = min(most, self._steps(soon.left))
            if not left or steps < FEW:
                break
            better = self._begun(tree).tuned(self.eps, steps=steps, until=soon, until_proved=True)
            found = tree.found().better(better.margins(self.eps))
            tree = Tree(better, self.eps, found, left)
            tree.begin()
            yield found.better(tree.found())
        if tree.leaves and (self.problem.deadline.limited or self.options.most_splits > 1):
            tree.sharpen()
            tree.begin()
            yield tree.found()
        pieces = self.options.most_splits
        while tree.leaves and (len(tree.leaves) < pieces or self.problem.deadline.limited) and tree.cut():
            yield tree.found()

    def _begun(self, tree: Tree) -> Problem:
        """The problem with the planes that it has by default, which known boxes tell without an evaluation."""
        begun = None if self.problem.parameters else tree.first.get(0)
        if begun is None:
            return self.problem
        like = self.problem.centre
        return replace(self.problem, parameters={k: tuple(p.to(like) for p in own) for k, own in begun.items()})

    def _steps(self, seconds: float) -> int:
        """How many steps of optimising everything fit into a time, if what they keep fits into memory."""
        if not self.problem.deadline.limited or len(self.problem) > 1:
            return 0
        work = work_of(self.problem.draft() or self.problem)
        return int(seconds / (STEP * self.seconds)) if KEPT * work.bytes <= self.problem.memory else 0


__all__ = ["Parting", "cuttable", "pays"]

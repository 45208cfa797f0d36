"""Branch and bound on single entries of nodes: a set is cut into where an entry is at most, and at least, a number.

Boxes that were proved over the whole set are kept; of each part one sweep from the output is optimised: the planes in
it, the multipliers of what is assumed, and the weights of half-spaces that must hold together. Which entry is cut says
the gradient of the bound by the ends of boxes: about what halving each of them would gain.

What is chosen here, and how well it is optimised, decides how many parts it takes, never whether the answer is right:
`proofs` bounds every part once more, in the precision that proves, rounding included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from .combined import combined
from .joint import Sums
from .ops.base import Box, MeasuredBox, Parameters, Reach, entries
from .part import Known, Multipliers, Part, bent
from .problem import Problem
from .rounding import exact_products

RATE = 0.1  # of the first step; parameters live in [0, 1], multipliers in units of the gradient that chose them
LAST = 0.1  # of it, that of the last one
WORSE = 0.5  # how much the half that gains more counts in choosing a cut, where the other counts 1


class Assumption(NamedTuple):
    """Of one entry of a node that it is at least (`above`) or at most a number; multipliers are in units of `unit`."""

    node: int
    entry: int
    above: bool
    at: float
    unit: float


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the set of one instance, in which half-spaces are not to hold all at once."""

    owner: int
    case: tuple[int, ...]  # half-spaces
    assumptions: tuple[Assumption, ...]
    parameters: Parameters  # of the planes of its sweep, [1, ...] in half precision
    multipliers: tuple[float, ...]  # of the assumptions, in their units
    weights: tuple[float, ...]  # of the half-spaces
    bound: float = -math.inf  # by a draft
    proved: float = -math.inf  # of it, or of a part that it is a part of
    next: tuple[Assumption, Assumption] | None = None  # where to cut it

    def halves(self) -> list[Leaf]:
        """The two parts it is cut into."""
        assert self.next is not None
        return [
            replace(self, assumptions=(*self.assumptions, a), multipliers=(*self.multipliers, 0.0), next=None)
            for a in self.next
        ]


@dataclass(eq=False)
class Variables:
    """What is optimised for a batch of leaves: any values are sound."""

    parameters: dict[int, tuple[Tensor, ...]]
    multipliers: dict[int, tuple[Tensor, Tensor]]  # in units
    weights: Tensor  # [leaves, half-spaces of a case]

    def tensors(self) -> list[Tensor]:
        return [t for ts in (*self.parameters.values(), *self.multipliers.values()) for t in ts] + [self.weights]

    def copied(self, *, grad: bool) -> Variables:
        def own(t: Tensor) -> Tensor:
            return t.detach().clone().requires_grad_(grad)

        return Variables(
            {i: tuple(own(p) for p in ps) for i, ps in self.parameters.items()},
            {i: (own(a), own(b)) for i, (a, b) in self.multipliers.items()},
            own(self.weights),
        )

    def clamp(self) -> None:
        """Back to where they mean something."""
        for ps in self.parameters.values():
            for p in ps:
                p.clamp_(0, 1)
        for ms in self.multipliers.values():
            for m in ms:
                m.clamp_(min=0)
        self.weights.clamp_(1e-3, 1)


class Batch:
    """Leaves that are bounded together, in the precision of a problem."""

    def __init__(self, problem: Problem, eps: Tensor, known: Known, leaves: Sequence[Leaf]) -> None:
        self.problem, self.leaves = problem, leaves
        self.owners = [leaf.owner for leaf in leaves]
        like = problem.centre
        self.ball = problem.ball(eps[self.owners].to(like), self.owners)
        self.known = {
            i: _stacked([known.boxes[owner][i] for owner in self.owners], like) for i in known.boxes[self.owners[0]]
        }
        first = known.sums.get(self.owners[0], {})
        self.learnt = {
            i: Sums.joined([known.sums[owner][i] for owner in self.owners], like)
            for i in first
            if all(i in known.sums.get(owner, {}) for owner in self.owners)
        }
        self.units: dict[int, tuple[Tensor, Tensor]] = {}
        self.assumed: dict[int, Box] = {}
        for row, leaf in enumerate(leaves):
            for a in leaf.assumptions:
                self._enter(row, a)
        most = max(len(leaf.case) for leaf in leaves)
        table, limits = problem.rows(self.owners), limits_of(problem)
        self.rows = table.new_zeros(len(leaves), most, *table.shape[2:])
        self.limits = table.new_zeros(len(leaves), most)
        for row, leaf in enumerate(leaves):
            chosen = list(leaf.case)
            self.rows[row, : len(chosen)], self.limits[row, : len(chosen)] = table[row, chosen], limits[chosen].to(like)

    def _enter(self, row: int, a: Assumption) -> None:
        if a.node not in self.assumed:
            shape = (len(self.leaves), *self.problem.compiled.graph.nodes[a.node].shape)
            end = self.problem.centre.new_full(shape, math.inf)
            self.assumed[a.node] = Box(-end, end.clone())
            self.units[a.node] = torch.zeros_like(end), torch.zeros_like(end)
        ends, units = self.assumed[a.node], self.units[a.node]
        own = ends[0 if a.above else 1][row].view(-1)
        own[a.entry] = max(float(own[a.entry]), a.at) if a.above else min(float(own[a.entry]), a.at)
        units[0 if a.above else 1][row].view(-1)[a.entry] = a.unit

    def variables(self) -> Variables:
        """Those of the leaves, as they stand."""
        like = self.problem.centre
        parameters = {
            i: tuple(
                torch.cat(rows).to(like) for rows in zip(*(leaf.parameters[i] for leaf in self.leaves), strict=True)
            )
            for i in self.leaves[0].parameters
        }
        multipliers = {i: (torch.zeros_like(a), torch.zeros_like(b)) for i, (a, b) in self.units.items()}
        weights = like.new_zeros(self.limits.shape)
        for row, leaf in enumerate(self.leaves):
            weights[row, : len(leaf.case)] = like.new_tensor(leaf.weights)
            for a, m in zip(leaf.assumptions, leaf.multipliers, strict=True):
                multipliers[a.node][0 if a.above else 1][row].view(-1)[a.entry] = m
        return Variables(parameters, multipliers, weights)

    def multipliers(self, given: Multipliers) -> dict[int, tuple[Tensor, Tensor]]:
        """Those of variables in the units of the bound."""
        return {i: (low * self.units[i][0], high * self.units[i][1]) for i, (low, high) in given.items()}

    def engine(self, at: Variables, *, rounding: bool) -> Part:
        """The engine that bounds the leaves."""
        multipliers = self.multipliers(at.multipliers)
        kind = partial(Part, known=self.known, assumed=self.assumed, multipliers=multipliers, learnt=self.learnt)
        engine = self.problem.engine(self.ball, at.parameters, rounding=rounding, kind=kind)
        assert isinstance(engine, Part)
        return engine

    def bounds(self, engine: Part, at: Variables) -> Tensor:
        """Of the weighted half-spaces of each leaf, less their limits: `[leaves]`; above 0 they do not hold at once."""
        used = self.rows.flatten(2).any(dim=2) | (self.limits != 0)
        weights = torch.where(used, at.weights, 0)
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        rows = torch.einsum("zh,zh...->z...", weights, self.rows)[:, None]
        lower = engine.margins(rows).lower[:, 0] - (weights * self.limits).sum(dim=1)
        return torch.where(engine.void, math.inf, lower)


def optimised(batch: Batch, steps: int) -> list[Leaf]:
    """The leaves of a draft's batch with better variables, their bounds, and where to cut them next."""
    current, best = batch.variables().copied(grad=True), batch.variables().copied(grad=False)
    reached = batch.limits.new_full((len(batch.leaves),), -math.inf)
    optimizer = torch.optim.Adam(current.tensors(), lr=RATE)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - (1 - LAST) * step / steps)
        with torch.enable_grad():
            found = batch.bounds(batch.engine(current, rounding=False), current)
            optimizer.zero_grad()
            torch.where(torch.isfinite(found), -found, 0).sum().backward()  # type: ignore[no-untyped-call]
        found = found.detach().nan_to_num(nan=-math.inf, posinf=math.inf)
        better = found > reached
        reached = torch.maximum(reached, found)
        for kept, t in zip(best.tensors(), current.tensors(), strict=True):
            kept[better] = t.detach()[better]
            if t.grad is not None:
                t.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        if bool((reached > 0).all()):
            break
        optimizer.step()
        with torch.no_grad():
            current.clamp()
    cuts = _cuts(batch, best)
    return [_kept(leaf, row, best, float(reached[row]), cuts[row]) for row, leaf in enumerate(batch.leaves)]


def _kept(leaf: Leaf, row: int, at: Variables, bound: float, cut: tuple[Assumption, Assumption] | None) -> Leaf:
    multipliers = tuple(
        float(at.multipliers[a.node][0 if a.above else 1][row].reshape(-1)[a.entry]) for a in leaf.assumptions
    )
    parameters = {i: tuple(p[row : row + 1].half() for p in ps) for i, ps in at.parameters.items()}
    weights = tuple(at.weights[row, : len(leaf.case)].tolist())
    return replace(leaf, parameters=parameters, multipliers=multipliers, weights=weights, bound=bound, next=cut)


def slopes_of(batch: Batch, at: Variables) -> dict[int, tuple[Box, Tensor, Tensor]]:
    """Of every node whose box counts the box, and how the bounds of leaves change with its ends `[leaves, entries]`."""
    engine = batch.engine(at, rounding=False)
    with torch.enable_grad():
        for index, box in engine.boxes.items():
            if not isinstance(box, MeasuredBox):
                engine.boxes[index] = Box(*(end.detach().requires_grad_(True) for end in box))
        ends = {i: box for i, box in engine.boxes.items() if not isinstance(box, MeasuredBox)}
        found = batch.bounds(engine, at)
        flat = [end for box in ends.values() for end in box]
        slopes = iter(torch.autograd.grad(torch.where(torch.isfinite(found), found, 0).sum(), flat, allow_unused=True))
    found_of: dict[int, tuple[Box, Tensor, Tensor]] = {}
    for index, (lower, upper) in ends.items():
        down, up = _sizes(next(slopes), lower), _sizes(next(slopes), upper)
        found_of[index] = Box(lower.detach(), upper.detach()), down, up
    return found_of


def _cuts(batch: Batch, at: Variables) -> list[tuple[Assumption, Assumption] | None]:
    """For each leaf the entry whose halves promise most, by the gradient of the bound by the ends of boxes."""
    best: list[tuple[float, Assumption, Assumption] | None] = [None] * len(batch.leaves)
    graph = batch.problem.compiled.graph
    for index, (box, down, up) in slopes_of(batch, at).items():
        kinks = [n.op.kink for n in graph.nodes if index in n.inputs and n.op.kink is not None]
        lower, upper = entries(box.lower), entries(box.upper)
        at_kink = (lower < kinks[0]) & (upper > kinks[0]) if kinks else torch.zeros_like(lower, dtype=torch.bool)
        middle = torch.where(at_kink, kinks[0] if kinks else 0.0, lower / 2 + upper / 2)
        gains = down.clamp(min=0) * (middle - lower), (-up).clamp(min=0) * (upper - middle)
        score = torch.minimum(*gains) + WORSE * torch.maximum(*gains)
        score = torch.where((lower < middle) & (middle < upper) & torch.isfinite(score), score, 0)
        most, where = score.max(dim=1)
        for row, (value, entry) in enumerate(zip(most.tolist(), where.tolist(), strict=True)):
            known = best[row]
            if value > (0.0 if known is None else known[0]):
                unit = float(torch.maximum(down[row, entry].abs(), up[row, entry].abs()))
                cut = partial(Assumption, index, entry, at=float(middle[row, entry]), unit=unit)
                best[row] = value, cut(above=True), cut(above=False)
    return [None if found is None else found[1:] for found in best]


def _sizes(slope: Tensor | None, like: Tensor) -> Tensor:
    return entries(torch.zeros_like(like) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0))


def proofs(batch: Batch) -> list[float]:
    """What is proved of each leaf: above 0 its half-spaces never hold all at once."""
    problem, at = batch.problem, batch.variables()
    rows, ends = batch.rows[:, :1].clone(), limits_of(problem)
    limits = torch.zeros(len(batch.leaves), dtype=torch.float64, device=rows.device)
    for k, leaf in enumerate(batch.leaves):
        rows[k, 0], limits[k] = combined(batch.rows[k, : len(leaf.case)], ends[list(leaf.case)], leaf.weights)
    with torch.no_grad(), exact_products(problem.centre):
        engine = batch.engine(at, rounding=True)
        lower = engine.margins(rows).lower[:, 0].double()
    down = torch.full_like(lower, -math.inf)
    lower = torch.where(limits == 0, lower, torch.nextafter(lower - limits, down))
    failed = [why is not None for why in engine.reasons]
    return [
        -math.inf if bad or math.isnan(value) else math.inf if void else value
        for bad, void, value in zip(failed, engine.void.tolist(), lower.tolist(), strict=True)
    ]


def limits_of(problem: Problem) -> Tensor:
    """What the half-spaces are compared with: 0 where the label is to stay."""
    count = problem.rows([0]).shape[1]
    return torch.zeros(count, dtype=torch.float64) if problem.goal is None else problem.goal.limits


def usual(problem: Problem, known: Mapping[int, Box], owner: int) -> Parameters:
    """The parameters that the planes of one instance begin with: those of the problem, or the usual ones."""
    found: Parameters = {}
    for node in problem.compiled.graph.nodes:
        if not node.perturbed or node.op.exact:
            continue
        own = problem.parameters.get(node.index)
        start = tuple(p[owner : owner + 1] for p in own) if own is not None else _usual(problem, known, node.index)
        if start:
            found[node.index] = tuple(p.half() for p in start)
    return found


def _usual(problem: Problem, known: Mapping[int, Box], index: int) -> Iterable[Tensor]:
    graph = problem.compiled.graph
    parents = graph.parents(graph.nodes[index])
    values = graph.values(problem.centre[:1])
    boxes = (known.get(p.index) or Box(values[p.index], values[p.index]) for p in parents)
    return tuple(p.clone() for p in graph.nodes[index].op.parameters(*boxes))


def _stacked(boxes: Sequence[Box], like: Tensor) -> Box:
    """Boxes of instances `[1, *shape]` as one batch, in the precision of `like`."""
    lower, upper = (torch.cat([box[side].to(like) for box in boxes]) for side in (0, 1))
    if not all(isinstance(box, MeasuredBox) for box in boxes):
        return Box(lower, upper)
    distance, radial, middle = (torch.cat([own[k].to(like) for own in map(_reach, boxes)]) for k in range(3))
    return MeasuredBox(lower, upper, Reach(distance, radial, middle))


def _reach(box: Box) -> tuple[Tensor, Tensor, Tensor]:
    """Around a centre that is named."""
    assert isinstance(box, MeasuredBox)
    return box.reach.distance, box.reach.radial, box.centre


__all__ = ["Batch", "Leaf", "bent", "limits_of", "optimised", "proofs", "usual"]

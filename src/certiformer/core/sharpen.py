"""Boxes of the entries that matter, one by one: a sweep of its own for each end of a box, with planes of its own.

One pass bounds all entries of a node with the same planes. What the bound of the output gains from an end of a box says
its gradient; the ends that promise most are optimised as the last sweep is, in the order of the graph, so that later
ones use what became of the earlier. Each is proved before it is used, rounding included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .entries import Batch, Leaf, slopes_of
from .graph.graph import Node
from .ops.base import Box, MeasuredBox, entries
from .part import Known
from .problem import Problem
from .rounding import exact_products

MOST = 128  # ends of the boxes of one node
LEAST = 1e-3  # of the bound, that an end must promise
STEPS = 12
RATE = 0.1


def sharpen(problem: Problem, eps: Tensor, known: Known, leaves: Sequence[Leaf], together: int) -> None:
    """Better boxes of one instance for some of its leaves, which assume nothing; so many sweeps at a time."""
    owner, rough = leaves[0].owner, problem.draft() or problem
    assert all(leaf.owner == owner and not leaf.assumptions for leaf in leaves)
    promised: dict[int, Tensor] = {}
    for k in range(0, len(leaves), together):
        batch = Batch(rough, eps, known, leaves[k : k + together])
        for index, (box, down, up) in slopes_of(batch, batch.variables()).items():
            gain = torch.stack([down.abs(), up.abs()]) * entries(box.upper - box.lower)  # [end, leaf, entry]
            promised[index] = promised.get(index, 0) + gain.sum(dim=1)
    for index in sorted(promised):
        node, own = problem.compiled.graph.nodes[index], leaves[0].parameters
        box = known.boxes[owner][index]
        if isinstance(box, MeasuredBox) or node.op.simplex or not any(i < index for i in own):
            continue
        worth, order = promised[index].flatten().sort(descending=True)
        chosen = order[: min(MOST, int((worth > LEAST).sum()))].tolist()
        for k in range(0, len(chosen), together):
            _update(problem, eps, known, leaves[0], node, chosen[k : k + together])


def _update(problem: Problem, eps: Tensor, known: Known, leaf: Leaf, node: Node, chosen: list[int]) -> None:
    """Prove ends of the box of a node, by their numbers: those below first, then those above."""
    count, size = len(chosen), math.prod(node.shape)
    leaves = _optimised(Batch(problem.draft() or problem, eps, known, [leaf] * count), _rows(node, chosen), node)
    batch = Batch(problem, eps, known, leaves)
    with torch.no_grad(), exact_products(problem.centre):
        engine = batch.engine(batch.variables(), rounding=True)
        lower = engine.bounds_of(node, _rows(node, chosen).to(problem.centre)).lower[:, 0].tolist()
    box = known.boxes[leaf.owner][node.index]
    ends = Box(*(end.clone(memory_format=torch.contiguous_format) for end in box))
    for number, value, why in zip(chosen, lower, engine.reasons, strict=True):
        if why is not None or not math.isfinite(value):
            continue
        entry = number % size
        if number < size:
            ends.lower.view(-1)[entry] = max(value, float(ends.lower.view(-1)[entry]))
        else:
            ends.upper.view(-1)[entry] = min(-value, float(ends.upper.view(-1)[entry]))
    known.boxes[leaf.owner][node.index] = ends


def _rows(node: Node, chosen: list[int]) -> Tensor:
    """An entry of a node for each end of its box, negated where that is the upper one: `[ends, 1, *shape]`."""
    size = math.prod(node.shape)
    rows = torch.zeros(len(chosen), size)
    for k, number in enumerate(chosen):
        rows[k, number % size] = 1.0 if number < size else -1.0
    return rows.reshape(len(chosen), 1, *node.shape)


def _optimised(batch: Batch, rows: Tensor, node: Node) -> list[Leaf]:
    """The leaves of a draft, each with the parameters that make its row largest."""
    current, best = batch.variables().copied(grad=True), batch.variables().copied(grad=False)
    used = [i for i in current.parameters if i < node.index]
    tensors = [p for i in used for p in current.parameters[i]]
    kept = [p for i in used for p in best.parameters[i]]
    reached = batch.limits.new_full((len(batch.leaves),), -math.inf)
    optimizer = torch.optim.Adam(tensors, lr=RATE)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - 0.9 * step / STEPS)
        with torch.enable_grad():
            found = batch.engine(current, rounding=False).bounds_of(node, rows.to(batch.limits)).lower[:, 0]
            optimizer.zero_grad()
            (-found.sum()).backward()  # type: ignore[no-untyped-call]
        better = found.detach() > reached
        reached = torch.where(better, found.detach(), reached)
        for own, p in zip(kept, tensors, strict=True):
            own[better] = p.detach()[better]
            if p.grad is not None:
                p.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        optimizer.step()
        with torch.no_grad():
            current.clamp()
    return [
        replace(leaf, parameters={i: tuple(p[row : row + 1].half() for p in ps) for i, ps in best.parameters.items()})
        for row, leaf in enumerate(batch.leaves)
    ]

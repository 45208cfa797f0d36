"""Optimised planes: climb the certified margin over the choices that every op leaves open.

Any values of the parameters give sound planes, so every iterate is a bound. They are shares of the box they live in
(how much of which plane, where in the box to touch), so what was found at one radius serves at those near it. The
gradient goes through everything, the bounds of all nodes before included: that is where most of the gain is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .deadline import NEVER, Deadline
from .engine import Engine, Parameters

RATE = 0.08  # of the first step; parameters live in [0, 1]
ENOUGH = 0.01  # of the size of the first margin: above 0 by so much it will be proved
PATIENCE = 8  # steps without a gain anywhere after which it is over


def tune(
    build: Callable[[Parameters], Engine],
    rows: Tensor,
    least: Callable[[Tensor], Tensor],
    *,
    steps: int,
    start: Parameters,
    rate: float = RATE,
    until: Deadline = NEVER,
    until_proved: bool = False,
) -> Parameters:
    """The best parameters of each instance after at most this many steps, from some on, or from the usual ones where
    there are none; `build` makes an engine that uses some, and `least` says of lower bounds `[instances, rows]` what is
    to become large. No step begins after `until`, nor, with `until_proved`, after all of it is above 0."""
    with torch.no_grad():
        usual = build(start)
        reached = least(usual.margins(rows).lower)
        best: Parameters = {}
        for node in usual.graph.nodes:
            if node.perturbed and not node.op.exact:
                boxes = tuple(usual.box(p) for p in usual.graph.parents(node))
                own = start.get(node.index) or node.op.parameters(*boxes)
                if own:
                    best[node.index] = tuple(p.detach().clone() for p in own)
    scale = reached.abs().clamp(min=torch.finfo(reached.dtype).eps)
    current = {i: tuple(p.clone().requires_grad_(True) for p in ps) for i, ps in best.items()}
    leaves = [p for ps in current.values() for p in ps]
    if not leaves or not steps:
        return best
    optimizer = torch.optim.Adam(leaves, lr=rate)
    idle = 0
    for step in range(steps):
        if until.passed or (until_proved and bool((reached > ENOUGH * scale).all())):
            break
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        with torch.enable_grad():
            engine = build(current)
            lower = least(engine.margins(rows).lower)
            optimizer.zero_grad()
            (-(lower / scale).sum()).backward()  # type: ignore[no-untyped-call]
        found = torch.where(torch.isfinite(lower.detach()), lower.detach(), -torch.inf)
        found = torch.where(torch.tensor([r is None for r in engine.reasons], device=found.device), found, -torch.inf)
        better = found > reached
        idle = 0 if bool((found > reached + 1e-3 * scale).any()) else idle + 1
        reached = torch.maximum(reached, found)
        for i, ps in current.items():
            for kept, p in zip(best[i], ps, strict=True):
                kept[better] = p.detach()[better]
        if idle >= PATIENCE:
            break
        for p in leaves:
            if p.grad is not None:
                p.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        optimizer.step()
        with torch.no_grad():
            for p in leaves:
                p.clamp_(0, 1)
    return best

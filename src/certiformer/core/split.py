"""Splitting: a ball is cut into pieces, and each is bounded on its own.

In a piece that is thin along the direction in which the attention scores move, probabilities hardly vary, and their
products with the values are almost linear. The pieces cover the ball, so the least margin over them holds for all of
it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from torch import Tensor

from .problem import Margins, Problem
from .sets import Cuts

NORMALS = 2  # directions that may be cut across
DRAWS = 16  # random combinations of scores whose gradients say how the scores move


@dataclass(frozen=True, eq=False, kw_only=True)
class Split(Problem):
    """A problem whose balls are bounded piece by piece: `pieces` has them, `owners` the instance of each."""

    pieces: Problem
    owners: tuple[int, ...]

    def margins(self, eps: Tensor, instances: list[int] | None = None, *, rounding: bool = True) -> Margins:
        """The least and the greatest over the pieces of each instance."""
        chosen = list(range(len(self))) if instances is None else instances
        asked = [(k, j) for k, i in enumerate(chosen) for j, owner in enumerate(self.owners) if owner == i]
        margins = self.pieces.margins(eps[[k for k, _ in asked]], [j for _, j in asked], rounding=rounding)
        rows = [[r for r, (of, _) in enumerate(asked) if of == k] for k in range(len(chosen))]
        return Margins(
            torch.stack([margins.lower[r].amin(dim=0) for r in rows]),
            torch.stack([margins.upper[r].amax(dim=0) for r in rows]),
            tuple(next((margins.reasons[k] for k in r if margins.reasons[k]), None) for r in rows),
            torch.stack([margins.least[r].amin(dim=0) for r in rows]),
        )

    def draft(self) -> Split | None:
        rough, pieces = super().draft(), self.pieces.draft()
        return None if pieces is None else replace(cast(Split, rough), pieces=pieces)


def divide(problem: Problem, eps: Tensor, splits: int) -> Problem:
    """A problem with up to this many pieces for each ball: those that are not proved at its radius are halved."""
    bent = any(n.perturbed and not n.op.exact for n in problem.compiled.graph.nodes)
    if problem.method == "ibp" or splits < 2 or not bent:
        return problem
    split = problem if isinstance(problem, Split) else _whole(problem)
    owners, cuts = list(split.owners), split.pieces.cuts
    assert cuts is not None
    margins = _least(split.pieces, eps[owners])
    while True:
        chosen: list[int] = []
        for i in set(owners):
            own = [j for j, k in enumerate(owners) if k == i]
            unproved = sorted((j for j in own if not margins[j] > 0), key=lambda j: margins[j])
            chosen += unproved[: (splits - len(own) + 1) // 2]
        if not chosen:
            return replace(split, pieces=_pieces(problem, owners, cuts), owners=tuple(owners))
        of = [owners[j] for j in chosen]
        halves, theirs = _halves(problem, of, cuts.take(chosen), eps)
        kept = [j for j in range(len(owners)) if j not in set(chosen)]
        margins = [margins[j] for j in kept] + theirs
        owners = [owners[j] for j in kept] + of + of
        cuts = cuts.take(kept).joined(halves)


def _halves(problem: Problem, owners: list[int], cuts: Cuts, eps: Tensor) -> tuple[Cuts, list[float]]:
    """Pieces in halves, each across the normal with the best margins, and these: lower halves first, then upper."""
    tried = [cuts.halved(k) for k in range(cuts.low.shape[1])]
    twice = owners + owners
    every = tried[0]
    for halves in tried[1:]:
        every = every.joined(halves)
    margins = _least(_pieces(problem, twice * len(tried), every), eps[twice * len(tried)])
    table = torch.tensor(margins, dtype=torch.float64).reshape(len(tried), 2, len(owners))
    best: list[int] = table.amin(dim=1).argmax(dim=0).tolist()
    rows = [len(twice) * k + side * len(owners) + j for side in (0, 1) for j, k in enumerate(best)]
    return every.take(rows), [margins[r] for r in rows]


def _least(pieces: Problem, eps: Tensor) -> list[float]:
    rough = pieces.draft() or pieces  # where to cut needs no proof
    least: list[float] = rough.margins(eps, rounding=False).least.tolist()
    return least


def _pieces(problem: Problem, owners: list[int], cuts: Cuts) -> Problem:
    """Some pieces as a problem of their own."""
    own = {f.name: getattr(problem, f.name) for f in fields(Problem)}
    return replace(
        Problem(**own),
        centre=problem.centre[owners],
        positions=tuple(problem.positions[i] for i in owners),
        labels=problem.labels[owners],
        parameters={i: tuple(p[owners] for p in ps) for i, ps in problem.parameters.items()},
        cuts=cuts,
        width=None if problem.width is None else problem.width[owners],
    )


def _whole(problem: Problem) -> Split:
    """Every ball as one piece, and the directions in which it may be cut."""
    normal = _directions(problem)
    owners = list(range(len(problem)))
    ball = problem.ball(torch.ones(len(problem)), owners)
    extent = ball.spread(normal.flatten(2).mT[None])[0]
    open_end = torch.full_like(extent, torch.inf)
    return Split(
        **{f.name: getattr(problem, f.name) for f in fields(Problem)},
        pieces=_pieces(problem, owners, Cuts(normal, extent, -open_end, open_end)),
        owners=tuple(owners),
    )


def _directions(problem: Problem) -> Tensor:
    """Orthonormal directions `[instances, k, t, d]` in which the scores move most."""
    graph = problem.compiled.graph
    scores = [n.inputs[0] for n in graph.nodes if n.op.simplex and n.perturbed]
    inputs = [i for n in graph.nodes if n.perturbed and not n.op.exact for i in n.inputs if graph.nodes[i].perturbed]
    generator = torch.Generator().manual_seed(0)
    draws = [
        [(i, torch.randn(graph.nodes[i].shape, generator=generator, dtype=torch.float64)) for i in scores or inputs]
        for _ in range(DRAWS)
    ]
    normals = []
    t = max(len(p) for p in problem.positions)
    step = problem.at_once(1)
    for k in range(0, len(problem), step):
        part = list(range(k, min(k + step, len(problem))))
        ball = problem.ball(torch.ones(len(part)), part)
        x = ball.centre.clone().requires_grad_(True)
        with torch.enable_grad():
            values = graph.values(x)
            moves = []
            for draw in draws:
                total = torch.stack([(values[i] * z.to(x)).sum() for i, z in draw]).sum()
                (gradient,) = torch.autograd.grad(total, x, retain_graph=True)
                moves.append(torch.einsum("zund,ztn->ztd", gradient, ball.hot))
        gradients = torch.stack(moves, dim=1).nan_to_num(0.0, 0.0, 0.0)  # [instance, draw, t, d]
        gradients = torch.nn.functional.pad(gradients, (0, 0, 0, t - gradients.shape[2]))
        _, _, rows = torch.linalg.svd(gradients.flatten(2), full_matrices=False)
        normals.append(rows[:, :NORMALS].unflatten(2, gradients.shape[2:]))
    return torch.cat(normals)

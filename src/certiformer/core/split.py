"""Splitting: a ball is cut into pieces, and each is bounded on its own.

The pieces cover the ball, so the least margin over them holds for all of it. A piece of a ball is a part of the same
piece of a larger ball: what is proved of it there need not be proved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from .ops.base import Parameters
from .problem import Margins, Problem
from .sets import Cuts


class Found(NamedTuple):
    """Margins of one piece within a radius; they hold within every smaller one."""

    radius: float
    lower: Tensor
    upper: Tensor
    least: Tensor  # proved where it is above 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Split(Problem):
    """A problem whose balls are bounded piece by piece: `pieces` has them, `owners` the instance of each.

    `proved` and `drafted` say within which radius the margins of a piece are known to be above 0, with rounding
    accounted for or by a draft; such a piece is not bounded again within a smaller one.
    """

    pieces: Problem
    owners: tuple[int, ...]
    proved: dict[int, Found]
    drafted: dict[int, Found]

    @staticmethod
    def cut(problem: Problem, owners: Sequence[int], cuts: Cuts, parameters: Parameters | None = None) -> Split:
        """The pieces of a problem's balls, one for each of the owners, with planes of their own if given."""
        own = {f.name: getattr(problem, f.name) for f in fields(Problem)}
        pieces = pieces_of(problem, list(owners), cuts, parameters)
        return Split(**own, pieces=pieces, owners=tuple(owners), proved={}, drafted={})

    def margins(self, eps: Tensor, instances: list[int] | None = None, *, rounding: bool = True) -> Margins:
        """The least and the greatest over the pieces of each instance.

        A draft leaves out pieces that it has found positive within a larger radius: it is asked how margins change.
        """
        chosen = list(range(len(self))) if instances is None else instances
        proving = rounding and not self.rough
        known = self.proved if proving else self.drafted
        radii = eps.to(self.centre.dtype).tolist()  # as they are evaluated
        own = [[j for j, owner in enumerate(self.owners) if owner == i] for i in chosen]
        new = [(k, j) for k, js in enumerate(own) for j in js if j not in known or known[j].radius < radii[k]]
        asked = {k for k, _ in new}
        if not proving:
            new += [(k, min(js, key=lambda j: known[j].radius)) for k, js in enumerate(own) if k not in asked]
        rows: dict[tuple[int, int], Found] = {}
        reasons: list[str | None] = [None] * len(chosen)
        if new:
            found = self.pieces.margins(eps[[k for k, _ in new]], [j for _, j in new], rounding=rounding)
            parts = zip(new, found.lower, found.upper, found.least, found.reasons, strict=True)
            for (k, j), lower, upper, least, reason in parts:
                rows[k, j] = row = Found(radii[k], lower, upper, least)
                reasons[k] = reasons[k] or reason
                if reason is None and bool(least > 0) and (j not in known or known[j].radius < radii[k]):
                    known[j] = row
        if proving:
            rows = {(k, j): rows.get((k, j)) or known[j] for k, js in enumerate(own) for j in js}
        each = [[row for (of, _), row in rows.items() if of == k] for k in range(len(chosen))]
        return Margins(
            torch.stack([torch.stack([row.lower for row in part]).amin(dim=0) for part in each]),
            torch.stack([torch.stack([row.upper for row in part]).amax(dim=0) for part in each]),
            tuple(reasons),
            torch.stack([torch.stack([row.least for row in part]).amin(dim=0) for part in each]),
        )

    def alike(self, instance: int) -> Problem:
        """The pieces of one instance as a problem of their own, all with the same normals."""
        rows = [j for j, owner in enumerate(self.owners) if owner == instance]
        assert self.pieces.cuts is not None
        return pieces_of(self.pieces, rows, self.pieces.cuts.take(rows).unified())

    def draft(self) -> Split | None:
        """In single precision, with what drafts have found so far."""
        rough, pieces = super().draft(), self.pieces.draft()
        return None if pieces is None else replace(cast(Split, rough), pieces=pieces)


def pieces_of(problem: Problem, owners: list[int], cuts: Cuts, parameters: Parameters | None = None) -> Problem:
    """Some pieces as a problem of their own, each with the parameters of its ball if it is not given others."""
    own = {f.name: getattr(problem, f.name) for f in fields(Problem)}
    if parameters is None:
        parameters = {i: tuple(p[owners] for p in ps) for i, ps in problem.parameters.items()}
    return replace(
        Problem(**own),
        centre=problem.centre[owners],
        positions=tuple(problem.positions[i] for i in owners),
        labels=problem.labels[owners],
        parameters={i: tuple(p.to(problem.centre) for p in ps) for i, ps in parameters.items()},
        cuts=cuts,
        width=None if problem.width is None else problem.width[owners],
    )

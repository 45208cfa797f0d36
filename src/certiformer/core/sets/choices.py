"""Word substitutions: at each chosen position, any mixture of the embeddings of a few words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..ops.base import Box
from .ball import blocks_of, norm


@dataclass(frozen=True, eq=False)
class Choices:
    """One instance whose positions each range over the convex hull of some embeddings; of `most` positions at a time,
    whichever they are, if that is given: the others are then at rest.

    `centre` [1, 1, n, d]; `hot` [1, t, n] marks the positions; `moves` [1, t, choices, d] are the embeddings to choose
    from, minus that of the word itself (which is the choice 0, a zero move, and pads the shorter lists).
    """

    centre: Tensor
    hot: Tensor
    moves: Tensor
    most: int | None = None
    axis: int = 1
    symmetric: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    @staticmethod
    def of(centre: Tensor, moves: dict[int, Tensor], *, most: int | None = None) -> Choices:
        """`moves` gives for each position the changes `[choices, d]` that a substitute makes to its embedding."""
        t, longest = len(moves), max(m.shape[0] for m in moves.values())
        hot = centre.new_zeros(1, t, centre.shape[2])
        table = centre.new_zeros(1, t, longest + 1, centre.shape[3])
        for k, (position, move) in enumerate(moves.items()):
            hot[0, k, position] = 1
            table[0, k, 1 : 1 + move.shape[0]] = move
        return Choices(centre, hot, table, most)

    @property
    def dimension(self) -> int:
        return self.hot.shape[1] * self.moves.shape[3]

    @property
    def lengths(self) -> None:
        """Points are no ball."""
        return None

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest value: a linear function on a hull takes them at its vertices."""
        blocks = blocks_of(function, self.hot)  # [side, instance, t, d, *rows]
        values = torch.einsum("yztd...,ztcd->yztc...", blocks, self.moves)
        return -self._together(-values.amin(dim=3)), self._together(values.amax(dim=3))

    def magnitude(self, function: Tensor) -> Tensor:
        blocks = blocks_of(function, self.hot).abs()
        return self._together(torch.einsum("yztd...,ztd->yzt...", blocks, self.moves.abs().amax(dim=2)))

    def distance(self, function: Tensor) -> Tensor:
        """A bound on `|A delta|_2`: the largest over the vertices, added up over the positions."""
        blocks = blocks_of(function[None], self.hot)[0]  # [instance, t, d, *lead, rows]
        moved = torch.einsum("ztd...,ztcd->ztc...", blocks, self.moves)
        return self._together(norm(moved, 2.0, dim=-1).amax(dim=2)[None])[0]

    def _together(self, each: Tensor) -> Tensor:
        """What the positions that may move at a time reach together, of what each reaches `[side, instance, t, ...]`,
        which is never below 0: staying is a choice."""
        if self.most is None or self.most >= each.shape[2]:
            return each.sum(dim=2)
        return each.topk(self.most, dim=2).values.sum(dim=2)

    def grams(self, function: Tensor) -> tuple[Tensor, Tensor] | None:
        """None: points are no ball."""
        return None

    def box(self) -> Box:
        low = torch.einsum("ztd,ztn->znd", self.moves.amin(dim=2), self.hot)[:, None]
        high = torch.einsum("ztd,ztn->znd", self.moves.amax(dim=2), self.hot)[:, None]
        slack = (self.centre.abs() + low.abs() + high.abs()) * torch.finfo(low.dtype).eps
        return Box(self.centre + low - slack, self.centre + high + slack)

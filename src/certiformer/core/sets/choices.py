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
    """One instance whose positions each range over the convex hull of some embeddings.

    `centre` [1, 1, n, d]; `hot` [1, t, n] marks the positions; `moves` [1, t, choices, d] are the embeddings to choose
    from, minus that of the word itself (which is the choice 0, a zero move, and pads the shorter lists).
    """

    centre: Tensor
    hot: Tensor
    moves: Tensor
    axis: int = 1
    symmetric: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    @staticmethod
    def of(centre: Tensor, moves: dict[int, Tensor]) -> Choices:
        """`moves` gives for each position the changes `[choices, d]` that a substitute makes to its embedding."""
        t, most = len(moves), max(m.shape[0] for m in moves.values())
        hot = centre.new_zeros(1, t, centre.shape[2])
        table = centre.new_zeros(1, t, most + 1, centre.shape[3])
        for k, (position, move) in enumerate(moves.items()):
            hot[0, k, position] = 1
            table[0, k, 1 : 1 + move.shape[0]] = move
        return Choices(centre, hot, table)

    @property
    def dimension(self) -> int:
        return self.hot.shape[1] * self.moves.shape[3]

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest value: a linear function on a hull takes them at its vertices."""
        blocks = blocks_of(function, self.hot)  # [side, instance, t, d, *rows]
        values = torch.einsum("yztd...,ztcd->yztc...", blocks, self.moves)
        return values.amin(dim=3).sum(dim=2), values.amax(dim=3).sum(dim=2)

    def magnitude(self, function: Tensor) -> Tensor:
        blocks = blocks_of(function, self.hot).abs()
        return torch.einsum("yztd...,ztd->yz...", blocks, self.moves.abs().amax(dim=2))

    def distance(self, function: Tensor) -> Tensor:
        """A bound on `|A delta|_2`: the largest over the vertices, added up over the positions."""
        blocks = blocks_of(function[None], self.hot)[0]  # [instance, t, d, *lead, rows]
        moved = torch.einsum("ztd...,ztcd->ztc...", blocks, self.moves)
        return norm(moved, 2.0, dim=-1).amax(dim=2).sum(dim=1)

    def box(self) -> Box:
        low = torch.einsum("ztd,ztn->znd", self.moves.amin(dim=2), self.hot)[:, None]
        high = torch.einsum("ztd,ztn->znd", self.moves.amax(dim=2), self.hot)[:, None]
        slack = (self.centre.abs() + low.abs() + high.abs()) * torch.finfo(low.dtype).eps
        return Box(self.centre + low - slack, self.centre + high + slack)

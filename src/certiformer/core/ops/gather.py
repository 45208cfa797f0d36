"""Entries picked by constant indices, each at most once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import M, Narrowed, Op, Shape, register
from .movement import Movement


@register
@dataclass(frozen=True, eq=False)
class Gather(Movement):
    """`y[.., j, ..] = x[.., index[.., j, ..], ..]` along one axis, no entry of x used twice.

    `index` has the rank of the output and size 1 on axes it does not vary along.
    """

    name = "gather"
    summary = "exact; index, index_select, gather, flip, roll with constant indices"
    axis: int
    index: Tensor

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        shape = list(x[0].shape)
        shape[lead + self.axis] = self.index.shape[self.axis]
        return x[0].gather(lead + self.axis, self.index.expand(shape))

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        return (a.scatter(self.axis, self.index, shapes[0]),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        if axis == self.axis:
            return Gather(self.axis, self.index.narrow(axis, start, length)), (None,)
        if self.index.shape[axis] == 1:
            return self, (axis,)
        return Gather(self.axis, self.index.narrow(axis, start, length)), (axis,)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(1, torch.tensor([[2, 0, 3]])), ((3, 4),)
        yield cls(2, torch.tensor([[[0, 2], [3, 1], [1, 0]]])), ((2, 3, 4),)

"""Ops that put entries somewhere else. Bounds and linear functions go along with the entries, at no loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Box, M, Narrowed, Op, Shape, register, whole_axes


class Movement(Op):
    """A rearrangement. `move` acts behind any number of leading axes; `pull` undoes it on coefficients."""

    exact = True

    @abstractmethod
    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor: ...

    @abstractmethod
    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        """Coefficients on the output, as coefficients on each input (of the given shapes)."""
        ...

    def forward(self, *x: Tensor) -> Tensor:
        return self.move(x, 1)

    def floor(self, *floors: float) -> float:
        return min(floors)

    def interval(self, *boxes: Box) -> Box:
        return Box(self.forward(*(b.lower for b in boxes)), self.forward(*(b.upper for b in boxes)))


@register
@dataclass(frozen=True)
class Permute(Movement):
    """Axis `i` of the output is axis `order[i]` of the input."""

    name = "permute"
    summary = "exact"
    order: tuple[int, ...]

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].permute(*range(lead), *(lead + i for i in self.order))

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        inverse = tuple(self.order.index(i) for i in range(len(self.order)))
        return (a.permute(inverse),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return self, (self.order[axis],)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((2, 0, 1)), ((2, 3, 4),)


@register
@dataclass(frozen=True)
class Reshape(Movement):
    """The same entries in the same order under another shape."""

    name = "reshape"
    summary = "exact; view, squeeze, unsqueeze, flatten"
    shape: Shape

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].reshape(*x[0].shape[:lead], *self.shape)

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        return (a.reshape(self.shape, shapes[0]),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        carried = dict(whole_axes(self.shape, inputs[0]))
        if axis not in carried:
            return None
        return Reshape(self.shape[:axis] + (length,) + self.shape[axis + 1 :]), (carried[axis],)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((2, 6)), ((1, 2, 3, 2),)
        yield cls((3, 1, 4)), ((3, 4),)


@register
@dataclass(frozen=True)
class Slice(Movement):
    """Entries `start, start + 1, ..., start + length - 1` of one axis."""

    name = "slice"
    summary = "exact; slice, select, narrow, split, chunk"
    axis: int
    start: int
    length: int

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].narrow(lead + self.axis, self.start, self.length)

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        return (a.pad(self.axis, self.start, shapes[0][self.axis]),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis != self.axis else None

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(0, 1, 2), ((4, 3),)
        yield cls(1, 0, 1), ((2, 3),)


@register
@dataclass(frozen=True)
class Concat(Movement):
    """Tensors one after the other along an axis."""

    name = "concat"
    summary = "exact; cat, stack"
    axis: int

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        front = max((tuple(t.shape[:lead]) for t in x), key=lambda s: tuple(s))
        return torch.cat([t.expand(*front, *t.shape[lead:]) for t in x], dim=lead + self.axis)

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        parts, start = [], 0
        for shape in shapes:
            parts.append(a.narrow(self.axis, start, shape[self.axis]))
            start += shape[self.axis]
        return tuple(parts)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,) * len(inputs)) if axis != self.axis else None

    def pieces(self, start: int, length: int, inputs: tuple[Shape, ...]) -> list[tuple[int, int, int]]:
        """Input, start and length of what `length` entries from `start` on along its own axis are made of."""
        found, at = [], 0
        for k, shape in enumerate(inputs):
            low, high = max(start - at, 0), min(start + length - at, shape[self.axis])
            if low < high:
                found.append((k, low, high - low))
            at += shape[self.axis]
        return found

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(1), ((2, 3), (2, 1), (2, 2))


@register
@dataclass(frozen=True)
class Expand(Movement):
    """Copies along axes of size 1."""

    name = "expand"
    summary = "exact; expand, repeat along axes of size 1"
    shape: Shape

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].expand(*x[0].shape[:lead], *self.shape)

    def pull(self, a: M, shapes: tuple[Shape, ...]) -> tuple[M, ...]:
        for axis, (new, old) in enumerate(zip(self.shape, shapes[0], strict=True)):
            if new != old:
                a = a.collapse(axis)
        return (a,)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        op = Expand(self.shape[:axis] + (length,) + self.shape[axis + 1 :])
        return op, (axis if inputs[0][axis] == output[axis] else None,)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((2, 3, 4)), ((2, 1, 4),)

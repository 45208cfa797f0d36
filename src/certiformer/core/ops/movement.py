"""Ops that put entries somewhere else. Bounds and linear functions go along with the entries, at no loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from .base import Box, Narrowed, Op, Shape, register, whole_axes

C = TypeVar("C", bound="Movable")


class Movable(Protocol):
    """What a movement may do to coefficients on its output to get those on its input."""

    def permute(self: C, order: tuple[int, ...]) -> C: ...

    def reshape(self: C, old: Shape, new: Shape) -> C: ...

    def pad(self: C, axis: int, before: int, size: int) -> C: ...

    def narrow(self: C, axis: int, start: int, length: int) -> C: ...

    def collapse(self: C, axis: int) -> C: ...


class Movement(Op):
    """A rearrangement. `move` acts behind any number of leading axes; `pull` undoes it on coefficients."""

    exact = True

    @abstractmethod
    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor: ...

    @abstractmethod
    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
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
    targets = ("aten.permute.default", "aten.transpose.int", "aten.t.default")
    order: tuple[int, ...]

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].permute(*range(lead), *(lead + i for i in self.order))

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
        inverse = tuple(self.order.index(i) for i in range(len(self.order)))
        return (a.permute(inverse),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return self, (self.order[axis],)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, rank = args[0], len(build.shape(args[0]))
        if "permute" in build.target:
            order = [d % rank for d in args[1]]
        else:
            order = list(range(rank))
            i, j = (args[1] % rank, args[2] % rank) if "transpose" in build.target else (0, rank - 1)
            order[i], order[j] = order[j], order[i]
        return build.add(cls(tuple(order)), x)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((2, 0, 1)), ((2, 3, 4),)


@register
@dataclass(frozen=True)
class Reshape(Movement):
    """The same entries in the same order under another shape."""

    name = "reshape"
    summary = "exact; view, squeeze, unsqueeze, flatten"
    targets = (
        "aten.view.default",
        "aten.reshape.default",
        "aten._unsafe_view.default",
        "aten.unsqueeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.squeeze.default",
        "aten.flatten.using_ints",
        "aten.unflatten.int",
    )
    shape: Shape

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].reshape(*x[0].shape[:lead], *self.shape)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
        return (a.reshape(self.shape, shapes[0]),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        carried = dict(whole_axes(self.shape, inputs[0]))
        if axis not in carried:
            return None
        return Reshape(self.shape[:axis] + (length,) + self.shape[axis + 1 :]), (carried[axis],)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return build.add(cls(build.result_shape), args[0])

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
    targets = ("aten.slice.Tensor", "aten.select.int", "aten.narrow.default")
    axis: int
    start: int
    length: int

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].narrow(lead + self.axis, self.start, self.length)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
        return (a.pad(self.axis, self.start, shapes[0][self.axis]),)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis != self.axis else None

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = args[0]
        shape = build.shape(x)
        axis = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(shape)
        size = shape[axis]
        if "select" in build.target:
            return build.squeeze(build.add(cls(axis, args[2] % size, 1), x), (axis,))
        if "narrow" in build.target:
            return build.add(cls(axis, args[2] % size, args[3]), x)
        start = args[2] if len(args) > 2 and args[2] is not None else 0
        end = args[3] if len(args) > 3 and args[3] is not None else size
        step = args[4] if len(args) > 4 else 1
        start, end, _ = slice(start, end).indices(size)
        if step != 1:
            return build.unsupported("a slice with a step other than 1")
        return x if (start, end) == (0, size) else build.add(cls(axis, start, end - start), x)

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
    targets = ("aten.cat.default",)
    axis: int

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        front = max((tuple(t.shape[:lead]) for t in x), key=lambda s: tuple(s))
        return torch.cat([t.expand(*front, *t.shape[lead:]) for t in x], dim=lead + self.axis)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
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
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parts = args[0]
        axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        return build.add(cls(axis % len(build.result_shape)), *parts)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(1), ((2, 3), (2, 1), (2, 2))


@register
@dataclass(frozen=True)
class Expand(Movement):
    """Copies along axes of size 1."""

    name = "expand"
    summary = "exact; expand, repeat along axes of size 1"
    targets = ("aten.expand.default",)
    shape: Shape

    def move(self, x: tuple[Tensor, ...], lead: int) -> Tensor:
        return x[0].expand(*x[0].shape[:lead], *self.shape)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
        for axis, (new, old) in enumerate(zip(self.shape, shapes[0], strict=True)):
            if new != old:
                a = a.collapse(axis)
        return (a,)

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        op = Expand(self.shape[:axis] + (length,) + self.shape[axis + 1 :])
        return op, (axis if inputs[0][axis] == output[axis] else None,)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, target = args[0], build.result_shape
        shape = build.shape(x)
        if len(shape) < len(target):
            x = build.add(Reshape((1,) * (len(target) - len(shape)) + shape), x)
        return x if build.shape(x) == target else build.add(cls(target), x)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((2, 3, 4)), ((2, 1, 4),)

"""Entries picked by constant indices, and everything that cuts, stacks and repeats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .base import Narrowed, Op, Shape, register
from .composite import Rewrite, argument, rewrite
from .movement import C, Concat, Expand, Movement, Reshape, Slice


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

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...]:
        coefficients: Any = a
        for axis, size in enumerate(self.index.shape):
            if size != 1 or axis == self.axis:
                coefficients = coefficients.unlink(axis)
        lead, tensor = 2 + len(coefficients.rows), coefficients.tensor
        sizes = list(tensor.shape)
        for axis, size in enumerate(self.index.shape):  # stored in full wherever the index varies
            if size != 1 or axis == self.axis:
                sizes[lead + axis] = size
        tensor = tensor.expand(sizes)
        sizes[lead + self.axis] = shapes[0][self.axis]
        moved = tensor.new_zeros(sizes).scatter_(lead + self.axis, self.index.expand(tensor.shape), tensor)
        return (dataclasses.replace(coefficients, tensor=moved, node=shapes[0]),)

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


def take(build: Any, x: Any, axis: int, index: Tensor) -> Any:
    """`x` gathered along an axis by a constant index that broadcasts to the output; entries may be used again."""
    index = index.to(build.example.device)
    size = build.shape(x)[axis]
    index = torch.where(index < 0, index + size, index)
    for a in range(index.dim()):  # forget the axes along which the index is the same
        if a != axis and index.shape[a] > 1 and bool((index == index.narrow(a, 0, 1)).all()):
            index = index.narrow(a, 0, 1)
    line = index.flatten()
    if index.numel() == index.shape[axis] and bool((line[1:] == line[:-1] + 1).all()):
        first, count = int(line[0]), line.numel()
        return x if (first, count) == (0, size) else build.add(Slice(axis, first, count), x)
    # the k-th use of an entry takes its k-th copy
    along = index.movedim(axis, -1)
    copy = ((along[..., :, None] == along[..., None, :]).tril(-1)).sum(dim=-1).movedim(-1, axis)
    copies = int(copy.max()) + 1
    if copies > 1:
        shape = build.shape(x)
        x = build.add(Reshape(shape[: axis + 1] + (1,) + shape[axis + 1 :]), x)
        x = build.add(Expand(shape[: axis + 1] + (copies,) + shape[axis + 1 :]), x)
        x = build.add(Reshape(shape[:axis] + (size * copies,) + shape[axis + 1 :]), x)
    return build.add(Gather(axis, index * copies + copy), x)


@rewrite
class GatherCall(Rewrite):
    """`torch.gather` with a constant index."""

    targets = ("aten.gather.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, axis, index = args[:3]
        if build.is_node(index) or not build.is_node(x):
            return build.unsupported("a gather whose index depends on the embeddings")
        axis = axis % len(build.shape(x))
        for a, size in enumerate(index.shape):  # a gather may leave out the end of other axes
            if a != axis and size != build.shape(x)[a]:
                x = build.add(Slice(a, 0, size), x)
        return take(build, x, axis, index)


@rewrite
class Index(Rewrite):
    """`x[.., i, ..]` with constant integer tensors on neighbouring axes, `index_select`, flip, roll."""

    targets = ("aten.index.Tensor", "aten.index_select.default", "aten.flip.default", "aten.roll.default")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, shape = args[0], build.shape(args[0])
        if not build.is_node(x):
            return build.unsupported("an index that depends on the embeddings")
        if "index.Tensor" in build.target:
            return cls.advanced(build, x, args[1])
        if "index_select" in build.target:
            axis, index = args[1] % len(shape), args[2]
            return take(build, x, axis, _on_axis(index, axis, len(shape)))
        shifts = argument(args, kwargs, 1, "shifts", [])
        axes = shifts if "flip" in build.target else argument(args, kwargs, 2, "dims", [])
        if not axes:
            return build.unsupported("a roll of the flattened tensor")
        for k, a in enumerate(axes):
            axis = a % len(shape)
            places = torch.arange(shape[axis])
            places = places.flip(0) if "flip" in build.target else places.roll(shifts[k])
            x = take(build, x, axis, _on_axis(places, axis, len(shape)))
        return x

    @classmethod
    def advanced(cls, build: Any, x: Any, indices: Any) -> Any:
        shape = build.shape(x)
        given = [(a, i) for a, i in enumerate(indices) if i is not None]
        if any(build.is_node(i) for _, i in given):
            return build.unsupported("an index that depends on the embeddings")
        first, last = given[0][0], given[-1][0]
        if last - first + 1 != len(given):
            return build.unsupported("index tensors on axes that are not neighbours")
        if any(i.dtype == torch.bool for _, i in given):
            if len(given) > 1 or given[0][1].dim() != 1:
                return build.unsupported("a boolean index of more than one axis")
            given = [(first, given[0][1].nonzero()[:, 0])]
        flat = torch.zeros((), dtype=torch.long, device=given[0][1].device)
        for a, i in given:
            flat = flat * shape[a] + torch.where(i < 0, i + shape[a], i)
        size = math.prod(shape[first : last + 1])
        x = build.add(Reshape(shape[:first] + (size,) + shape[last + 1 :]), x)
        x = take(build, x, first, _on_axis(flat.flatten(), first, len(shape) - last + first))
        return build.add(Reshape(shape[:first] + tuple(flat.shape) + shape[last + 1 :]), x)


def _on_axis(index: Tensor, axis: int, rank: int) -> Tensor:
    """A list of places as an index of the given rank."""
    return index.reshape([-1 if a == axis else 1 for a in range(rank)])


@rewrite
class Split(Rewrite):
    """Consecutive pieces of an axis."""

    targets = ("aten.split_with_sizes.default", "aten.split.Tensor", "aten.chunk.default", "aten.unbind.int")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, shape = args[0], build.shape(args[0])
        if "unbind" in build.target:
            axis = argument(args, kwargs, 1, "dim", 0) % len(shape)
            return [build.squeeze(build.add(Slice(axis, k, 1), x), (axis,)) for k in range(shape[axis])]
        how, axis = args[1], argument(args, kwargs, 2, "dim", 0) % len(shape)
        if isinstance(how, int):
            step = math.ceil(shape[axis] / how) if "chunk" in build.target else how
            how = [min(step, shape[axis] - k) for k in range(0, shape[axis], step)]
        starts = [sum(how[:k]) for k in range(len(how))]
        return [build.add(Slice(axis, start, size), x) for start, size in zip(starts, how, strict=True)]


@rewrite
class Join(Rewrite):
    """Tensors one after the other along an axis; empty ones, as an empty cache of keys, are left out."""

    targets = Concat.targets

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parts = [part for part in args[0] if 0 not in build.shape(part)]
        axis = argument(args, kwargs, 1, "dim", 0)
        return parts[0] if len(parts) == 1 else Concat.lower(build, (parts, axis), {})


@rewrite
class Stack(Rewrite):
    """Tensors one after the other along a new axis."""

    targets = ("aten.stack.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parts = [build.node(part) for part in args[0]]
        shape = build.shape(parts[0])
        axis = argument(args, kwargs, 1, "dim", 0) % (len(shape) + 1)
        new = shape[:axis] + (1,) + shape[axis:]
        return build.add(Concat(axis), *(build.add(Reshape(new), part) for part in parts))


@rewrite
class Pad(Rewrite):
    """A constant around a tensor; a negative width cuts."""

    targets = ("aten.constant_pad_nd.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, widths, value = args[0], args[1], float(argument(args, kwargs, 2, "value", 0.0))
        for k in range(len(widths) // 2):  # pairs, from the last axis on
            axis = len(build.shape(x)) - 1 - k
            before, after = widths[2 * k : 2 * k + 2]
            if min(before, after) < 0:
                kept = build.shape(x)[axis] + min(before, 0) + min(after, 0)
                x = build.add(Slice(axis, max(0, -before), kept), x)
            front, back = (
                [build.example.new_full((*build.shape(x)[:axis], n, *build.shape(x)[axis + 1 :]), value)]
                if n > 0
                else []
                for n in (before, after)
            )
            x = build.add(Concat(axis), *front, x, *back) if front or back else x
        return x


@rewrite
class Repeat(Rewrite):
    """Copies: whole tensors one after the other (`repeat`), or each entry in place (`repeat_interleave`)."""

    targets = ("aten.repeat.default", "aten.repeat_interleave.self_int")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, shape, target = args[0], build.shape(args[0]), build.result_shape
        if "interleave" in build.target:
            axis = argument(args, kwargs, 2, "dim", None)
            if axis is None:
                shape, axis = (math.prod(shape),), 0
            return copies(build, build.add(Reshape(shape), x), axis % len(shape), args[1])
        shape = (1,) * (len(target) - len(shape)) + shape
        x = build.add(Reshape(shape), x)
        for axis, count in enumerate(args[1]):
            if count > 1:
                x = build.add(Reshape(shape[:axis] + (1,) + shape[axis:]), x)
                x = build.add(Expand(shape[:axis] + (count,) + shape[axis:]), x)
                shape = shape[:axis] + (count * shape[axis],) + shape[axis + 1 :]
                x = build.add(Reshape(shape), x)
        return x


def copies(build: Any, x: Any, axis: int, count: int) -> Any:
    """Every entry of an axis `count` times in a row."""
    shape = build.shape(x)
    if count == 1:
        return x
    x = build.add(Reshape(shape[: axis + 1] + (1,) + shape[axis + 1 :]), x)
    x = build.add(Expand(shape[: axis + 1] + (count,) + shape[axis + 1 :]), x)
    return build.add(Reshape(shape[:axis] + (shape[axis] * count,) + shape[axis + 1 :]), x)

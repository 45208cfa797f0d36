"""Axes renamed, cut, joined, padded and repeated: entries stay what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..ops.movement import Concat, Expand, Permute, Reshape, Slice
from .indexing import on_axis, take
from .moves import copies, expand, squeeze, swap
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten


@lowers(aten.permute.default, "self dims")
def permute(build: Build, x: Operand, dims: Sequence[int]) -> Ref:
    """The axes in another order."""
    return build.add(Permute(tuple(d % len(dims) for d in dims)), x)


@lowers(aten.transpose.int, "self dim0 dim1")
def transpose(build: Build, x: Operand, i: int, j: int) -> Ref:
    """Two axes exchanged."""
    rank = len(build.shape(x))
    return swap(build, x, i % rank, j % rank)


@lowers(aten.t.default, "self")
def transposed(build: Build, x: Operand) -> Ref:
    """A matrix transposed."""
    return swap(build, x, 0, len(build.shape(x)) - 1)


@lowers(aten.view.default, "self", unread="size")
@lowers(aten.reshape.default, "self", unread="shape")
@lowers(aten._unsafe_view.default, "self", unread="size")
@lowers(aten.unsqueeze.default, "self", unread="dim")
@lowers(aten.squeeze.dim, "self", unread="dim")
@lowers(aten.squeeze.dims, "self", unread="dim")
@lowers(aten.squeeze.default, "self")
@lowers(aten.flatten.using_ints, "self", unread="start_dim end_dim")
@lowers(aten.unflatten.int, "self", unread="dim sizes")
def reshape(build: Build, x: Operand) -> Ref:
    """The same entries in the same order, in the shape of the result."""
    return build.add(Reshape(build.result_shape), x)


@lowers(aten.expand.default, "self", unread="size implicit")
def expanded(build: Build, x: Operand) -> Ref:
    """Copies along axes of size 1."""
    return expand(build, x, build.result_shape)


@lowers(aten.slice.Tensor, "self dim start end step")
def cut(build: Build, x: Operand, dim: int, start: int | None, end: int | None, step: int) -> Ref:
    """A run of entries of an axis, or every `step`-th of them."""
    x, shape = build.node(x), build.shape(x)
    axis = dim % len(shape)
    places = range(*slice(start, end, step).indices(shape[axis]))
    if not places:
        raise Refused("a slice with nothing in it")
    if step != 1:
        return take(build, x, axis, on_axis(torch.tensor(places), axis, len(shape)))
    return x if len(places) == shape[axis] else build.add(Slice(axis, places[0], len(places)), x)


@lowers(aten.select.int, "self dim index")
def select(build: Build, x: Operand, dim: int, index: int) -> Ref:
    """One entry of an axis, which goes."""
    shape = build.shape(x)
    axis = dim % len(shape)
    return squeeze(build, build.add(Slice(axis, index % shape[axis], 1), x), (axis,))


@lowers(aten.narrow.default, "self dim start length")
def narrow(build: Build, x: Operand, dim: int, start: int, length: int) -> Ref:
    """A run of entries of an axis."""
    shape = build.shape(x)
    axis = dim % len(shape)
    return build.add(Slice(axis, start % shape[axis], length), x)


@lowers(aten.split_with_sizes.default, "self split_sizes dim")
def split(build: Build, x: Operand, sizes: Sequence[int], dim: int) -> list[Ref]:
    """Consecutive pieces of an axis."""
    axis = dim % len(build.shape(x))
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return [build.add(Slice(axis, start, size), x) for start, size in zip(starts, sizes, strict=True)]


@lowers(aten.split.Tensor, "self split_size dim")
def split_evenly(build: Build, x: Operand, step: int, dim: int) -> list[Ref]:
    """Pieces of one size; the last may be smaller."""
    size = build.shape(x)[dim]
    return split(build, x, [min(step, size - k) for k in range(0, size, step)], dim)


@lowers(aten.chunk.default, "self chunks dim")
def chunk(build: Build, x: Operand, count: int, dim: int) -> list[Ref]:
    """So many pieces, or fewer, of one size; the last may be smaller."""
    return split_evenly(build, x, math.ceil(build.shape(x)[dim] / count), dim)


@lowers(aten.unbind.int, "self dim")
def unbind(build: Build, x: Operand, dim: int) -> list[Ref]:
    """The entries of an axis one by one."""
    return [select(build, x, dim, k) for k in range(build.shape(x)[dim])]


@lowers(aten.cat.default, "tensors dim")
def join(build: Build, parts: Sequence[Operand], dim: int) -> Operand:
    """Tensors one after the other along an axis; empty ones, as an empty cache of keys, are left out."""
    parts = [part for part in parts if 0 not in build.shape(part)]
    return parts[0] if len(parts) == 1 else build.add(Concat(dim % len(build.shape(parts[0]))), *parts)


@lowers(aten.stack.default, "tensors dim")
def stack(build: Build, parts: Sequence[Operand], dim: int) -> Ref:
    """Tensors one after the other along a new axis."""
    shape = build.shape(parts[0])
    axis = dim % (len(shape) + 1)
    new = Reshape(shape[:axis] + (1,) + shape[axis:])
    return build.add(Concat(axis), *(build.add(new, part) for part in parts))


@lowers(aten.slice_scatter.default, "self src dim start end step")
def put(build: Build, x: Operand, part: Operand, dim: int, start: int | None, end: int | None, step: int) -> Ref:
    """A tensor with others in the place of a run of entries of an axis, or of every `step`-th of them."""
    shape = build.shape(x)
    axis = dim % len(shape)
    places = torch.arange(shape[axis])[slice(start, end, step)]
    index = torch.arange(shape[axis]).index_put((places,), shape[axis] + torch.arange(len(places)))
    return take(build, build.add(Concat(axis), x, part), axis, on_axis(index, axis, len(shape)))


@lowers(aten.select_scatter.default, "self src dim index")
def put_one(build: Build, x: Operand, part: Operand, dim: int, index: int) -> Ref:
    """A tensor with another in the place of one entry of an axis."""
    shape = build.shape(x)
    axis = dim % len(shape)
    part = build.add(Reshape((*shape[:axis], 1, *shape[axis + 1 :])), part)
    start = index % shape[axis]
    return put(build, x, part, axis, start, start + 1, 1)


@lowers(aten.constant_pad_nd.default, "self pad value")
def pad(build: Build, x: Operand, widths: Sequence[int], value: float) -> Ref:
    """A constant around a tensor; a negative width cuts."""
    x = build.node(x)
    for k in range(len(widths) // 2):  # pairs, from the last axis on
        axis = len(build.shape(x)) - 1 - k
        before, after = widths[2 * k : 2 * k + 2]
        if min(before, after) < 0:
            kept = build.shape(x)[axis] + min(before, 0) + min(after, 0)
            x = build.add(Slice(axis, max(0, -before), kept), x)
        shape = build.shape(x)
        front, back = (
            [build.like.new_full((*shape[:axis], n, *shape[axis + 1 :]), float(value))] if n > 0 else []
            for n in (before, after)
        )
        x = build.add(Concat(axis), *front, x, *back) if front or back else x
    return x


@lowers(aten.repeat.default, "self repeats")
def repeat(build: Build, x: Operand, counts: Sequence[int]) -> Ref:
    """Whole tensors one after the other."""
    shape = (1,) * (len(counts) - len(build.shape(x))) + build.shape(x)
    x = build.add(Reshape(shape), x)
    for axis, count in enumerate(counts):
        if count < 1:
            raise Refused("a tensor repeated no times")
        if count > 1:
            x = build.add(Reshape(shape[:axis] + (1,) + shape[axis:]), x)
            x = build.add(Expand(shape[:axis] + (count,) + shape[axis:]), x)
            shape = shape[:axis] + (count * shape[axis],) + shape[axis + 1 :]
            x = build.add(Reshape(shape), x)
    return x


@lowers(aten.repeat_interleave.self_int, "self repeats dim", unread="output_size")
def repeat_interleave(build: Build, x: Operand, count: int, dim: int | None) -> Ref:
    """Every entry so many times in a row."""
    shape = build.shape(x)
    if dim is None:
        shape, dim = (math.prod(shape),), 0
    return copies(build, build.add(Reshape(shape), x), dim % len(shape), count)

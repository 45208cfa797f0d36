"""Entries picked by constant indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops.gather import Gather
from ..ops.movement import Reshape, Slice
from .moves import copies
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten


def take(build: Build, x: Operand, axis: int, index: Tensor) -> Ref:
    """`x` gathered along an axis by a constant index that broadcasts to the output; entries may be used again."""
    x, index = build.node(x), index.to(build.like.device)
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
    most = int(copy.max()) + 1
    return build.add(Gather(axis, index * most + copy), copies(build, x, axis, most))


def on_axis(index: Tensor, axis: int, rank: int) -> Tensor:
    """A list of places as an index of the given rank."""
    return index.reshape([-1 if a == axis else 1 for a in range(rank)])


def _fixed(index: Operand) -> Tensor:
    """An index, which must be a constant."""
    if not isinstance(index, Tensor):
        raise Refused("an index that depends on the embeddings")
    return index


@lowers(aten.gather.default, "self dim index", unread="sparse_grad")
def gather(build: Build, x: Operand, dim: int, index: Operand) -> Ref:
    """`torch.gather` with a constant index."""
    x, index, axis = build.node(x), _fixed(index), dim % len(build.shape(x))
    for a, size in enumerate(index.shape):  # a gather may leave out the end of other axes
        if a != axis and size != build.shape(x)[a]:
            x = build.add(Slice(a, 0, size), x)
    return take(build, x, axis, index)


@lowers(aten.index_select.default, "self dim index")
def index_select(build: Build, x: Operand, dim: int, index: Operand) -> Ref:
    """Some entries of an axis, by a constant index."""
    rank = len(build.shape(x))
    return take(build, x, dim % rank, on_axis(_fixed(index), dim % rank, rank))


@lowers(aten.index.Tensor, "self indices")
def index(build: Build, x: Operand, indices: Sequence[Operand | None]) -> Ref:
    """`x[.., i, ..]` with constant integer tensors on neighbouring axes."""
    shape = build.shape(x)
    given = [(a, _fixed(i)) for a, i in enumerate(indices) if i is not None]
    first, last = given[0][0], given[-1][0]
    if last - first + 1 != len(given):
        raise Refused("index tensors on axes that are not neighbours")
    if any(i.dtype == torch.bool for _, i in given):
        if len(given) > 1 or given[0][1].dim() != 1:
            raise Refused("a boolean index of more than one axis")
        given = [(first, given[0][1].nonzero()[:, 0])]
    flat = torch.zeros((), dtype=torch.long, device=given[0][1].device)
    for a, i in given:
        flat = flat * shape[a] + torch.where(i < 0, i + shape[a], i)
    size = math.prod(shape[first : last + 1])
    x = build.add(Reshape(shape[:first] + (size,) + shape[last + 1 :]), x)
    x = take(build, x, first, on_axis(flat.flatten(), first, len(shape) - last + first))
    return build.add(Reshape(shape[:first] + tuple(flat.shape) + shape[last + 1 :]), x)


@lowers(aten.flip.default, "self dims")
def flip(build: Build, x: Operand, dims: Sequence[int]) -> Operand:
    """Axes the other way round."""
    shape = build.shape(x)
    for axis in (d % len(shape) for d in dims):
        x = take(build, x, axis, on_axis(torch.arange(shape[axis]).flip(0), axis, len(shape)))
    return x


@lowers(aten.roll.default, "self shifts dims")
def roll(build: Build, x: Operand, shifts: Sequence[int], dims: Sequence[int]) -> Operand:
    """Axes moved on, what leaves at the end comes in at the start."""
    shape = build.shape(x)
    if not dims:
        raise Refused("a roll of the flattened tensor")
    for d, shift in zip(dims, shifts, strict=True):
        axis = d % len(shape)
        x = take(build, x, axis, on_axis(torch.arange(shape[axis]).roll(shift), axis, len(shape)))
    return x

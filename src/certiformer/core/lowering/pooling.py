"""Windows side by side or overlapping: their means and their largest entries, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import torch

from ..ops.linear import Sum
from ..ops.movement import Concat, Reshape, Slice
from .activations import pair
from .indexing import on_axis, take
from .table import Build, Operand, Ref, lowers

aten = torch.ops.aten
Windows = Sequence[tuple[int, int]]  # where each begins, and behind which entry it ends


@lowers(aten.adaptive_avg_pool1d.default, "self output_size")
@lowers(aten.adaptive_avg_pool2d.default, "self output_size")
def to_size(build: Build, x: Operand, sizes: Sequence[int]) -> Ref:
    """Means of so many windows of the last axes, as even as can be."""
    behind = build.shape(x)[-len(sizes) :]
    return _means(
        build,
        x,
        [
            [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]
            for size, count in zip(behind, sizes, strict=True)
        ],
    )


@lowers(aten.avg_pool1d.default, "self kernel_size stride", rank=1)
@lowers(aten.avg_pool2d.default, "self kernel_size stride", rank=2)
def of_windows(build: Build, x: Operand, kernel: Sequence[int], stride: Sequence[int], *, rank: int) -> Ref:
    """Means of windows that stay inside."""
    sizes, steps = (tuple(given) * (rank // len(given)) for given in (kernel, stride or kernel))
    behind = build.shape(x)[-rank:]
    return _means(
        build,
        x,
        [
            [(k, k + size) for k in range(0, whole - size + 1, step)]
            for whole, size, step in zip(behind, sizes, steps, strict=True)
        ],
    )


@lowers(aten.max_pool1d.default, "self kernel_size stride padding dilation", rank=1)
@lowers(aten.max_pool2d.default, "self kernel_size stride padding dilation", rank=2)
def largest_of_windows(build: Build, x: Operand, *sizes: Sequence[int], rank: int) -> Ref:
    """The largest entries of windows, of what is inside of each."""
    kernel, stride, padding, dilation = sizes
    found, first = build.node(x), len(build.shape(x)) - rank
    for k in range(rank):
        own = (given[k % len(given)] for given in (kernel, stride or kernel, padding, dilation))
        found = _largest(build, found, first + k, *own)
    return found


def _means(build: Build, x: Operand, windows: Sequence[Windows]) -> Ref:
    """The means of windows of each of the last axes."""
    first = len(build.shape(x)) - len(windows)
    for axis, own in enumerate(windows, first):
        x = _along(build, build.node(x), axis, own)
    return build.node(x)


def _along(build: Build, x: Ref, axis: int, windows: Windows) -> Ref:
    """The means of windows of an axis: a reshape where they lie side by side, all of one size."""
    shape, size = build.shape(x), windows[0][1] - windows[0][0]
    if windows == [(k * size, (k + 1) * size) for k in range(len(windows))]:
        if len(windows) * size < shape[axis]:
            x = build.add(Slice(axis, 0, len(windows) * size), x)
        x = build.add(Reshape((*shape[:axis], len(windows), size, *shape[axis + 1 :])), x)
        return build.add(Reshape(_with(shape, axis, len(windows))), build.add(Sum((axis + 1,), mean=True), x))
    parts = [build.add(Slice(axis, start, end - start), x) for start, end in windows]
    return build.add(Concat(axis), *(build.add(Sum((axis,), mean=True), part) for part in parts))


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _largest(build: Build, x: Ref, axis: int, size: int, step: int, around: int, gap: int) -> Ref:
    """The largest entries of windows of an axis: one entry of each at a time, for one outside one inside."""
    shape = build.shape(x)
    starts = torch.arange(-around, shape[axis] + around - gap * (size - 1), step)
    places = starts[:, None] + gap * torch.arange(size)
    inside = (places >= 0) & (places < shape[axis])
    places = torch.where(inside, places, places.gather(1, inside.int().argmax(dim=1, keepdim=True)))
    return reduce(partial(pair, build), [take(build, x, axis, on_axis(own, axis, len(shape))) for own in places.T])

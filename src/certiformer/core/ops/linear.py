"""Affine ops: their planes coincide, and depend on nothing but the shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import OWN, Box, C, Narrowed, Op, Planes, Shape, Slope, broadcast, letters, outward, register, shared_axis


class Affine(Op):
    """`y = M x + b`, exactly."""

    exact = True


def shared_axes(shape: Shape, output: Shape) -> str:
    """Letters for an operand that broadcasts to `output`: shared where the sizes agree, else its own."""
    own = iter(OWN)
    start = len(output) - len(shape)
    names = letters(len(output))
    return "".join(names[start + i] if size == output[start + i] else next(own) for i, size in enumerate(shape))


def as_operand(value: Tensor, rank: int) -> tuple[Tensor, str]:
    """A constant as a coefficient tensor: axes of size 1 dropped, the others named, an instance axis in front."""
    names = letters(rank)[rank - value.dim() :]
    kept = [i for i, size in enumerate(value.shape) if size != 1]
    return value.reshape([value.shape[i] for i in kept])[None], "".join(names[i] for i in kept)


@register
@dataclass(frozen=True, eq=False)
class Linear(Affine):
    """`y = x W^T + b` on the last axis."""

    name = "linear"
    summary = "exact"
    weight: Tensor  # [out, in]
    bias: Tensor | None = None

    def forward(self, *x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x[0], self.weight, self.bias)

    def interval(self, *boxes: Box) -> Box:
        c, r = boxes[0].centre, boxes[0].radius
        middle = self.forward(c)
        spread = r @ self.weight.abs().T
        size = c.abs() @ self.weight.abs().T + spread
        if self.bias is not None:
            size = size + self.bias.abs()
        return Box(*outward(middle - spread, middle + spread, size, ulps=self.weight.shape[1] + 4))

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def planes(self, *boxes: Box) -> Planes:
        axes = letters(len(boxes[0].shape))
        weight = self.weight[None]
        slope = Slope(axes[:-1] + "z", axes[-1] + "z", weight, weight)
        bias = None
        if self.bias is not None:
            bias = self.bias.reshape((1,) * len(axes) + (-1,))
        return Planes(axes, (slope,), bias, bias)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        g = torch.Generator().manual_seed(0)
        w = torch.randn(5, 4, generator=g, dtype=torch.float64)
        yield cls(w, torch.randn(5, generator=g, dtype=torch.float64)), ((3, 4),)
        yield cls(w), ((2, 1, 4),)


@register
@dataclass(frozen=True)
class Add(Affine):
    """`x + sign y`, with broadcasting."""

    name = "add"
    summary = "exact"
    sign: float = 1.0

    def forward(self, *x: Tensor) -> Tensor:
        a, b = align(*x)
        return torch.add(a, b, alpha=self.sign)

    def interval(self, *boxes: Box) -> Box:
        a, b = boxes
        low, high = (b.lower, b.upper) if self.sign > 0 else (b.upper, b.lower)
        lower, upper = self.forward(a.lower, low), self.forward(a.upper, high)
        sizes = align(torch.maximum(a.lower.abs(), a.upper.abs()), torch.maximum(b.lower.abs(), b.upper.abs()))
        return Box(*outward(lower, upper, sizes[0] + abs(self.sign) * sizes[1], ulps=2))

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return self, tuple(shared_axis(axis, output, s) for s in inputs)

    def planes(self, *boxes: Box) -> Planes:
        a, b = boxes
        output = broadcast(a.shape, b.shape)
        one = a.lower.new_ones(1)
        return Planes(
            letters(len(output)),
            (
                Slope(shared_axes(a.shape, output), "", one, one),
                Slope(shared_axes(b.shape, output), "", one * self.sign, one * self.sign),
            ),
        )

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...] | None:
        if shapes[0] != shapes[1]:
            return None
        return a, a if self.sign == 1 else a.scaled(self.sign)

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4), (3, 4))
        yield cls(-1.0), ((2, 3, 4), (3, 1))


def narrowed_constant(value: Tensor, axis: int, start: int, length: int, output: Shape) -> Tensor:
    """What a constant that broadcasts to `output` is where one axis of the output is narrowed."""
    own = axis - len(output) + value.dim()
    return value.narrow(own, start, length) if own >= 0 and value.shape[own] != 1 else value


def align(*x: Tensor) -> tuple[Tensor, ...]:
    """Give operands of different rank the same, keeping the instance axis first."""
    rank = max(t.dim() for t in x)
    return tuple(t.reshape((t.shape[0],) + (1,) * (rank - t.dim()) + tuple(t.shape[1:])) for t in x)


@register
@dataclass(frozen=True, eq=False)
class Shift(Affine):
    """`x + c` for a constant tensor c that broadcasts to x."""

    name = "shift"
    summary = "exact"
    value: Tensor

    def forward(self, *x: Tensor) -> Tensor:
        return x[0] + self.value

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        value = narrowed_constant(self.value, axis, start, length, output)
        return type(self)(value), (shared_axis(axis, output, inputs[0]),)

    def floor(self, *floors: float) -> float:
        least = float(self.value.detach().min())
        return math.nextafter(floors[0] + least, -math.inf) if floors[0] else least

    def interval(self, *boxes: Box) -> Box:
        out = boxes[0].map(self.forward)
        return Box(*outward(out.lower, out.upper, torch.maximum(out.lower.abs(), out.upper.abs()), ulps=1))

    def planes(self, *boxes: Box) -> Planes:
        shape = boxes[0].shape
        output = broadcast(shape, tuple(self.value.shape))
        one = self.value.new_ones(1)
        offset = self.value.reshape((1,) * (1 + len(output) - self.value.dim()) + tuple(self.value.shape))
        return Planes(letters(len(output)), (Slope(shared_axes(shape, output), "", one, one),), offset, offset)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...] | None:
        return (a,) if broadcast(shapes[0], tuple(self.value.shape)) == shapes[0] else None

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        g = torch.Generator().manual_seed(1)
        yield cls(torch.randn(4, generator=g, dtype=torch.float64)), ((3, 4),)
        yield cls(torch.randn(3, 4, generator=g, dtype=torch.float64)), ((2, 3, 4),)


@register
@dataclass(frozen=True, eq=False)
class Scale(Affine):
    """`c x` for a constant tensor c that broadcasts to x."""

    name = "scale"
    summary = "exact"
    value: Tensor

    def forward(self, *x: Tensor) -> Tensor:
        return x[0] * self.value

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        value = narrowed_constant(self.value, axis, start, length, output)
        return type(self)(value), (shared_axis(axis, output, inputs[0]),)

    def interval(self, *boxes: Box) -> Box:
        a, b = boxes[0].map(self.forward)
        return Box(*outward(torch.minimum(a, b), torch.maximum(a, b), torch.maximum(a.abs(), b.abs()), ulps=4))

    def planes(self, *boxes: Box) -> Planes:
        shape = boxes[0].shape
        output = broadcast(shape, tuple(self.value.shape))
        value, axes = as_operand(self.value, len(output))
        return Planes(letters(len(output)), (Slope(shared_axes(shape, output), axes, value, value),))

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        g = torch.Generator().manual_seed(2)
        yield cls(torch.randn(4, generator=g, dtype=torch.float64)), ((3, 4),)
        yield cls(torch.tensor(-0.5, dtype=torch.float64)), ((2, 3),)
        yield cls(torch.randn(3, 1, generator=g, dtype=torch.float64)), ((2, 3, 4),)


@register
@dataclass(frozen=True)
class Sum(Affine):
    """The sum over some axes, or their mean; the axes stay, with size 1."""

    name = "sum"
    summary = "exact; mean is a sum divided by the count"
    axes: tuple[int, ...]
    mean: bool = False

    def forward(self, *x: Tensor) -> Tensor:
        dims = tuple(a + 1 for a in self.axes)
        return x[0].mean(dims, keepdim=True) if self.mean else x[0].sum(dims, keepdim=True)

    def floor(self, *floors: float) -> float:
        return floors[0] if self.mean else 0.0 if floors[0] >= 0 else -math.inf

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis not in self.axes else None

    def count(self, shape: Shape) -> int:
        count = 1
        for a in self.axes:
            count *= shape[a]
        return count

    def interval(self, *boxes: Box) -> Box:
        box = boxes[0]
        out = box.map(self.forward)
        size = self.forward(torch.maximum(box.lower.abs(), box.upper.abs()))
        return Box(*outward(out.lower, out.upper, size, ulps=self.count(box.shape) + 1))

    def planes(self, *boxes: Box) -> Planes:
        shape = boxes[0].shape
        outputs = letters(len(shape))
        own = dict(zip(self.axes, OWN, strict=False))
        inputs = "".join(own.get(a, letter) for a, letter in enumerate(outputs))
        value = 1 / self.count(shape) if self.mean else 1.0
        # [1, *summed axes]
        ones = boxes[0].lower.new_full((1, *(shape[a] for a in self.axes)), value)
        return Planes(outputs, (Slope(inputs, "".join(own[a] for a in self.axes), ones, ones),))

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls((1,)), ((3, 4),)
        yield cls((0, 2), mean=True), ((3, 2, 4),)


@register
@dataclass(frozen=True)
class Center(Affine):
    """`x - mean(x)` over the last axis, in one step: subtracting a separately bounded mean loses tightness."""

    name = "center"
    summary = "exact, in one step"

    def forward(self, *x: Tensor) -> Tensor:
        return x[0] - x[0].mean(dim=-1, keepdim=True)

    def interval(self, *boxes: Box) -> Box:
        c, r = boxes[0].centre, boxes[0].radius
        n = r.shape[-1]
        middle = self.forward(c)
        # row j of |I - 11'/n|: 1 - 1/n on the diagonal, 1/n elsewhere
        spread = r * ((n - 2) / n) + r.mean(dim=-1, keepdim=True) if n > 1 else torch.zeros_like(r)
        size = c.abs() + c.abs().mean(dim=-1, keepdim=True) + spread.abs() + r
        return Box(*outward(middle - spread, middle + spread, size, ulps=n + 4))

    def planes(self, *boxes: Box) -> Planes:
        axes = letters(len(boxes[0].shape))
        n = boxes[0].shape[-1]
        matrix = torch.eye(n, dtype=boxes[0].lower.dtype, device=boxes[0].lower.device)[None] - 1 / n
        return Planes(axes, (Slope(axes[:-1] + "z", axes[-1] + "z", matrix, matrix),))

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        return (self, (axis,)) if axis < len(output) - 1 else None

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...] | None:
        return (a.centered(),) if a.linked(len(shapes[0]) - 1) is None else None

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield cls(), ((3, 4),)
        yield cls(), ((2, 2),)

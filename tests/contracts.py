"""What the tests of ops share: every op of the registry, nasty boxes, points of them, and planes at points."""

from __future__ import annotations

import torch
from torch import Tensor

from certiformer.core.ops import REGISTRY, Box, Op
from certiformer.core.ops.base import Planes, Shape

CASES = [(name, k, op, shapes) for name, cls in REGISTRY.items() for k, (op, shapes) in enumerate(cls.examples())]
INSTANCES = 4
BOXES = ("zero width", "tiny", "thin", "just across", "ordinary", "one-sided", "negative", "huge", "far", "mixed")


def make_box(kind: str, shape: Shape, domain: tuple[float, float], generator: torch.Generator) -> Box:
    """Random and nasty boxes inside the op's domain."""
    full = (INSTANCES, *shape)

    def rand(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(full, generator=generator, dtype=torch.float64)

    centre, radius = rand(-2, 2), rand(0, 1.5)
    if kind == "zero width":
        radius = torch.zeros(full, dtype=torch.float64)
    elif kind == "tiny":
        radius = radius * 1e-14
    elif kind == "thin":
        radius = radius * 1e-7
    elif kind == "one-sided":
        centre = radius + rand(0, 1)
    elif kind == "negative":
        centre = -radius - rand(0, 1)
    elif kind == "huge":
        radius = rand(5, 40)
    elif kind == "far":
        centre, radius = centre * 30, radius
    elif kind == "mixed":
        radius = radius * (torch.rand(full, generator=generator, dtype=torch.float64) < 0.5)
    lower, upper = centre - radius, centre + radius
    if kind == "just across":
        tiny = 10.0 ** rand(-300, -10)
        lower, upper = (-tiny, rand(0, 2)) if torch.rand((), generator=generator) < 0.5 else (-rand(0, 2), tiny)
    if domain[0] == 0.0:  # defined for positive numbers only
        size = upper - lower
        lower = lower.abs().clamp(min=1e-3)
        upper = lower + size
    return Box(lower, upper)


def boxes_of(kind: str, op: Op, shapes: tuple[Shape, ...], generator: torch.Generator) -> list[Box]:
    """Such boxes for the inputs of an op; those that are constants of the instance have no width."""
    still = len(shapes) - op.constants
    kinds = [kind if k < still else "zero width" for k in range(len(shapes))]
    return [make_box(own, s, op.domain(), generator) for own, s in zip(kinds, shapes, strict=True)]


def points(boxes: list[Box], generator: torch.Generator) -> list[Tensor]:
    """Corners, the middle, and points between, for every box `[points, instances, *shape]`."""
    found = [[torch.lerp(b.lower, b.upper, fraction) for b in boxes] for fraction in (0.0, 1.0, 0.5)]
    for _ in range(40):
        out = []
        for b in boxes:
            t = torch.rand(b.lower.shape, generator=generator, dtype=torch.float64)
            if torch.rand((), generator=generator) < 0.5:
                t = t.round()  # a corner
            out.append(torch.minimum(torch.maximum(torch.lerp(b.lower, b.upper, t), b.lower), b.upper))
        found.append(out)
    return [torch.stack(x) for x in zip(*found, strict=True)]


def forward(op: Op, x: list[Tensor]) -> Tensor:
    """The op at points `[points, instances, *shape]`."""
    return op.forward(*(v.flatten(0, 1) for v in x)).unflatten(0, x[0].shape[:2])


def evaluate(planes: Planes, x: list[Tensor], shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Both planes at points `[..., instances, *shape]`, and the size of the terms that were added."""
    total = [torch.zeros((INSTANCES, *shape), dtype=torch.float64) for _ in range(3)]
    for slope, value in zip(planes.slopes, x, strict=False):  # others are constants
        for side, s in enumerate((slope.lower, slope.upper)):
            for k, (c, v) in enumerate(((s, value), (s.abs(), value.abs()))):
                which = side if k == 0 else 2
                total[which] = total[which] + apply(c, slope.axes, v, slope.inputs, planes.outputs, shape)
    for side, offset in enumerate((planes.lower, planes.upper)):
        if offset is not None:
            total[side] = total[side] + offset
            total[2] = total[2] + offset.abs()
    return total[0], total[1], total[2]


def apply(c: Tensor, axes: str, x: Tensor, inputs: str, outputs: str, shape: Shape) -> Tensor:
    present = "".join(l for l in outputs if l in axes or l in inputs)
    y = torch.einsum(f"Z{axes},...Z{inputs}->...Z{present}", c, x)
    lead = y.shape[: y.dim() - len(present)]
    for i, letter in enumerate(outputs):
        if letter not in present:
            y = y.unsqueeze(len(lead) + i)
    return y.expand(*lead, *shape)

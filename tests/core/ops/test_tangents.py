"""Planes of equal slopes, run over every op of the registry that has them: entry by entry, and as a vector."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from certiformer.core.ops import REGISTRY, Box, Op
from certiformer.core.ops.base import Planes, Shape
from contracts import BOXES, CASES, evaluate, forward, make_box, points

CURVED = [case for case in CASES if not case[2].exact]
HAVE = ("matmul", "relu", "softmax of differences", "tanh", "gelu", "silu", "softplus", "cube")


def tangent_of(op: Op, boxes: list[Box], share: float) -> tuple[Planes | None, list[Tensor]]:
    """The planes where inputs move by no more than a share of what their boxes allow, and what they may move by."""
    lengths = [share * torch.linalg.vector_norm(boxes[k].radius, dim=axis) * (1 + 1e-12) for k, axis in op.measures]
    return op.tangent(tuple(boxes), tuple(lengths)), lengths


def near(x: list[Tensor], boxes: list[Box], op: Op, lengths: list[Tensor]) -> list[Tensor]:
    """Points drawn towards the middle until no input is further from it than it may be."""
    moved = [value - box.centre for value, box in zip(x, boxes, strict=True)]
    for (k, axis), most in zip(op.measures, lengths, strict=True):
        size = torch.linalg.vector_norm(moved[k], dim=axis)
        share = torch.where(size > most, most / torch.where(size > 0, size, 1), 1) * (1 - 1e-9)
        moved[k] = moved[k] * share.unsqueeze(axis)
    return [
        torch.minimum(torch.maximum(box.centre + d, box.lower), box.upper) for box, d in zip(boxes, moved, strict=True)
    ]


@pytest.mark.parametrize(("name", "k", "op", "shapes"), CURVED, ids=[f"{c[0]}-{c[1]}" for c in CURVED])
@pytest.mark.parametrize("kind", BOXES)
def test_tangents(name: str, k: int, op: Op, shapes: tuple[Shape, ...], kind: str) -> None:
    generator = torch.Generator().manual_seed(sum(map(ord, name + kind)) + k)
    for share in (1.0, 0.4, math.inf, math.nan):
        boxes = [make_box(kind, s, op.domain(), generator) for s in shapes]
        planes, lengths = tangent_of(op, boxes, share)
        assert (planes is not None) or name not in HAVE
        if planes is None:
            continue
        assert all(slope.upper is slope.lower for slope in planes.slopes)
        x = near(points(boxes, generator), boxes, op, lengths)
        y = forward(op, x)
        lower, upper, _ = evaluate(planes, x, tuple(y.shape[2:]))
        assert torch.isfinite(lower).all()
        assert torch.isfinite(upper).all()
        assert (lower <= y).all(), f"{name}: the lower plane passes above by {(lower - y).max()}"
        assert (upper >= y).all(), f"{name}: the upper plane passes below by {(y - upper).max()}"
        if planes.remainder is not None:
            off = torch.linalg.vector_norm(y - (lower + upper) / 2, dim=-1)
            assert (off <= planes.remainder).all(), f"{name}: further from its middle plane than it says"


def test_the_remainder_of_a_product_is_less_as_a_vector() -> None:
    """Where the rows of the second factor move by less than their entries one by one."""
    op = REGISTRY["matmul"]()
    generator = torch.Generator().manual_seed(1)
    boxes = [make_box("ordinary", s, op.domain(), generator) for s in ((3, 5), (5, 40))]
    whole, _ = tangent_of(op, boxes, 1.0)
    less, _ = tangent_of(op, boxes, 0.2)
    assert whole is not None
    assert less is not None
    assert whole.remainder is not None
    assert less.remainder is not None
    assert (less.remainder < 0.25 * whole.remainder).all()

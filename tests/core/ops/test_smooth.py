"""Smooth activations: sound on every interval, and tight where that can be known."""

from __future__ import annotations

import math

import pytest
import torch

from certiformer.core.ops import REGISTRY, Box
from certiformer.core.ops.smooth import Smooth

NAMES = [name for name, cls in REGISTRY.items() if issubclass(cls, Smooth)]
MORE = [*NAMES, "rsqrt", "log"]


def boxes(positive: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes of every width, at every place, ends on inflections and flat points included."""
    special = [0.0, math.sqrt(2), -math.sqrt(2), -0.7517915246935645, 2.399357280515468, -2.399357280515468, -1.2784645]
    places = [*special, *torch.linspace(-12, 12, 49).tolist(), -1000.0, 1000.0]
    widths = [0.0, 1e-15, 1e-9, 1e-4, 0.1, 0.7, 2.0, 5.0, 30.0]
    l = torch.tensor([a for a in places for _ in widths], dtype=torch.float64)
    u = l + torch.tensor([w for _ in places for w in widths], dtype=torch.float64)
    if positive:
        l = l.abs().clamp(min=1e-6)
        u = l + torch.tensor([w for _ in places for w in widths], dtype=torch.float64)
    return l[None], u[None]


@pytest.mark.parametrize("name", MORE)
def test_no_point_of_a_fine_grid_leaves_the_planes(name: str) -> None:
    op, _ = next(REGISTRY[name].examples())
    l, u = boxes(positive=op.domain()[0] == 0)
    planes, interval = op.planes(Box(l, u)), op.interval(Box(l, u))
    (slope,) = planes.slopes
    assert planes.lower is not None
    assert planes.upper is not None
    for t in torch.linspace(0, 1, 1500, dtype=torch.float64):
        x = torch.minimum(torch.lerp(l, u, t), u)
        y = op.forward(x)
        assert (slope.lower * x + planes.lower <= y).all()
        assert (slope.upper * x + planes.upper >= y).all()
        assert (y >= interval.lower).all()
        assert (y <= interval.upper).all()
        assert (y >= op.floor(-math.inf)).all()


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_the_best_for_their_slopes(name: str) -> None:
    """Each line comes as close to the function as a line of its slope can."""
    op, _ = next(REGISTRY[name].examples())
    generator = torch.Generator().manual_seed(1)
    l = 4 * torch.randn(1, 300, generator=generator, dtype=torch.float64)
    u = l + 6 * torch.rand(1, 300, generator=generator, dtype=torch.float64)
    planes = op.planes(Box(l, u))
    (slope,) = planes.slopes
    assert planes.lower is not None
    assert planes.upper is not None
    x = torch.lerp(l, u, torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None])
    y = op.forward(x)
    under, over = (y - slope.lower * x).amin(dim=0) - planes.lower, planes.upper - (y - slope.upper * x).amax(dim=0)
    assert under.max() < 1e-5 * (1 + y.abs().max())
    assert over.max() < 1e-5 * (1 + y.abs().max())


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_close_to_the_best_in_the_middle(name: str) -> None:
    """The gap in the middle is within 2 % of that between the hulls of a fine grid."""
    op, _ = next(REGISTRY[name].examples())
    generator = torch.Generator().manual_seed(2)
    l = 3 * torch.randn(1, 60, generator=generator, dtype=torch.float64)
    u = l + 5 * torch.rand(1, 60, generator=generator, dtype=torch.float64)
    planes = op.planes(Box(l, u))
    (slope,) = planes.slopes
    assert planes.lower is not None
    assert planes.upper is not None
    m = l / 2 + u / 2
    gap = (slope.upper - slope.lower) * m + planes.upper - planes.lower
    t = torch.linspace(0, 1, 401, dtype=torch.float64)[:, None]
    left, right = torch.lerp(l, m, t[:-1])[:, None], torch.lerp(m, u, t[1:])[None]  # [400, 1, 1, 60], [1, 400, 1, 60]
    f_left, f_right = op.forward(left), op.forward(right)
    value = f_left + (f_right - f_left) * (m - left) / (right - left)
    f = op.forward(m)
    best = torch.maximum(value.amax(dim=(0, 1)), f) - torch.minimum(value.amin(dim=(0, 1)), f)
    assert ((gap - best) <= 0.02 * (gap.mean() + best)).all()
    assert gap.sum() <= 1.02 * best.sum()

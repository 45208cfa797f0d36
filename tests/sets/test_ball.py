"""Balls: dual norms that are never too small, distances, boxes, samples inside."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import certiformer as cf
from certiformer.sets import Ball, dual, norm
from conftest import IDS, random_model

NORMS = (1.0, 1.0005, 1.01, 1.5, 2.0, 3.0, 50.0, math.inf)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-15, 1e15])
def test_norms_do_not_underflow(p: float, dtype: torch.dtype, scale: float) -> None:
    x = scale * torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    found = norm(x, p, dim=1).double()
    largest = x.double().abs().amax(dim=1)
    exact = largest * torch.linalg.vector_norm(x.double() / largest[:, None], ord=p, dim=1)
    rtol, atol = (1e-5, 1e-18) if dtype == torch.float32 else (1e-12, 0.0)
    torch.testing.assert_close(found, exact, rtol=rtol, atol=atol)
    assert (found >= largest).all()


@pytest.mark.parametrize("p", NORMS)
def test_a_linear_function_stays_within_its_extremes(p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    centre = torch.randn(2, 1, 4, 3, generator=generator, dtype=torch.float64)
    ball = Ball.of(centre, [(1,), (0, 3)], torch.tensor([0.3, 0.7], dtype=torch.float64), p)
    function = torch.randn(1, 2, 6, 5, generator=generator, dtype=torch.float64)  # two blocks of 3
    low, high = ball.extremes(function)
    far, box = ball.distance(function[0]), ball.box()
    for boundary in (True, False):
        cloud = ball.sample(300, generator, boundary=boundary)
        delta = torch.einsum("zcnd,ztn->zctd", (cloud - centre[:, None])[:, :, 0], ball.hot).flatten(2)
        values = torch.einsum("zmr,zcm->zcr", function[0], delta)
        assert (values >= low[0][:, None] - 1e-12).all()
        assert (values <= high[0][:, None] + 1e-12).all()
        assert (torch.linalg.vector_norm(values, dim=-1) <= far[:, None] + 1e-12).all()
        assert (cloud >= box.lower[:, None] - 1e-12).all()
        assert (cloud <= box.upper[:, None] + 1e-12).all()


def test_the_dual_of_infinity_is_one() -> None:
    assert dual(math.inf) == 1.0
    assert dual(1.0) == math.inf
    assert dual(2.0) == 2.0


def test_a_norm_just_above_one_certifies_no_more_than_it_may() -> None:
    """A p-ball grows with p: the certified radius may only shrink."""
    model = random_model(seed=3)
    radii = [cf.radius(model, IDS, norm=p, positions=[1]).radii[0] for p in (1, 1.001, 1.01, 1.1)]
    assert all(a >= b * (1 - 3e-3) for a, b in itertools.pairwise(radii))
    point = cf.attack(model, IDS, norm=1, positions=[1])
    assert cf.certify(model, IDS, eps=point.radii[0], norm=1.001, positions=[1], attack=False).status != "certified"

"""Balls: dual norms that are never too small, distances, boxes, samples inside."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import certiformer as cf
from certiformer.core.sets import Ball, dual, norm
from certiformer.core.sets.ball import spectral
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


def matrices(kind: str, shape: tuple[int, int]) -> torch.Tensor:
    a = torch.randn(3, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left, _, right = torch.linalg.svd(a, full_matrices=False)
    orders = torch.arange(1, min(shape) + 1, dtype=torch.float64)
    return {
        "normal": a,
        "all equal": left @ right,
        "falling": (left / orders) @ right,
        "one": left[..., :1] @ right[..., :1, :],
        "small": 1e-30 * a,
        "zero": 0 * a,
    }[kind]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(64, 64), (64, 500), (500, 64), (1, 50), (50, 1)])
@pytest.mark.parametrize("kind", ["normal", "all equal", "falling", "one", "small", "zero"])
def test_spectral_norms_are_bounded_from_above_and_closely(
    dtype: torch.dtype, shape: tuple[int, int], kind: str
) -> None:
    a = matrices(kind, shape).to(dtype)
    exact, found = torch.linalg.matrix_norm(a.double(), 2), spectral(a).double()
    assert (found >= exact).all()
    if kind == "small" and dtype == torch.float32:  # its squares are no normal numbers
        assert (found <= 1e-16).all()
    else:
        worst = 64 ** (1 / 2**10)  # where all singular values are the same
        assert (found <= exact * worst * (1 + 1e-8 if dtype == torch.float64 else 1.1) + 1e-16).all()


@pytest.mark.parametrize("scale", [1e-170, 1e-200, 1e-305])
def test_spectral_norms_survive_underflow(scale: float) -> None:
    a = matrices("normal", (64, 70))
    assert (spectral(a * scale) >= torch.linalg.matrix_norm(a, 2) * scale).all()


def test_spectral_norms_of_what_is_not_finite() -> None:
    a = matrices("normal", (4, 5))
    a[0, 0, 0], a[1, 2, 3] = math.inf, math.nan
    assert not spectral(a)[:2].isfinite().any()
    assert spectral(a)[2].isfinite()


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

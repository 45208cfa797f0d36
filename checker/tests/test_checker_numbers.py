"""Enclosures against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from certiformer_checker.numbers import Span, Wrong, above, dot, length
from certiformer_checker.sets import Region, dual, spectral

FUNCTIONS = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "erf": mpmath.erf,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "normal": mpmath.ncdf,
    "sqrt": mpmath.sqrt,
    "inverse": lambda x: 1 / x,
}


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    spread = [rng.normal(size=60) * size for size in (1e-9, 1e-3, 1.0, 5.0, 40.0, 300.0)]
    return np.concatenate([*spread, [0.0, 1.0, -1.0, 6.0, -6.0, 6.1, 700.0, -745.0, 5e-324, 2.0**-1022]])


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_enclose_the_true_value_closely(name: str) -> None:
    x = samples()
    x = np.abs(x[np.abs(x) > 1e-300]) if name in ("log", "sqrt", "inverse") else x
    with np.errstate(all="ignore"):
        value = getattr(Span(x), name)()
    with mpmath.workprec(300):
        for at, low, high in zip(x, value.lo, value.hi, strict=True):
            true = FUNCTIONS[name](mpmath.mpf(float(at)))
            assert mpmath.mpf(float(low)) <= true <= mpmath.mpf(float(high))
            if math.isfinite(high):
                assert high - low <= 1e-12 * abs(float(true)) + 1e-13


def test_operations_enclose() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=200) * 10.0 ** rng.integers(-150, 150, 200) for _ in range(2))
    exact = [(Fraction(x), Fraction(y)) for x, y in zip(a, b, strict=True)]
    for made, true in (
        (Span(a) + b, [x + y for x, y in exact]),
        (Span(a) - b, [x - y for x, y in exact]),
        (Span(a) * b, [x * y for x, y in exact]),
        (Span(a) / b, [x / y for x, y in exact]),
    ):
        assert all(lo <= t <= hi for lo, t, hi in zip(made.lo, true, made.hi, strict=True))
    wide = Span(-1.0, 2.0) * Span(-3.0, 5.0)
    assert wide.lo <= -6 <= 10 <= wide.hi
    with pytest.raises(Wrong):
        Span(-1.0, 1.0).inverse()


def test_products_enclose_with_cancellation() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(5, 300)), rng.normal(size=(300, 4))
    a[:, 150:], b[150:] = a[:, :150], -b[:150] * (1 + 1e-15)
    made, sizes = dot(a, b), above(np.abs(a), np.abs(b))
    for i in range(5):
        for j in range(4):
            terms = [Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)]
            assert made.lo[i, j] <= sum(terms) <= made.hi[i, j]
            assert sizes[i, j] >= sum(abs(t) for t in terms)
    total = Span(a).sum()
    assert all(lo <= sum(map(Fraction, row)) <= hi for lo, row, hi in zip(total.lo, a, total.hi, strict=True))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_lengths_and_spectral_norms_are_upper_bounds(scale: float) -> None:
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (1, 9), (7, 3), (20, 60)):
        b = rng.normal(size=shape) * scale
        true = np.linalg.svd(b / scale, compute_uv=False)[0] * scale
        assert true * (1 - 1e-13) <= spectral(b) <= true * 1.01
        flat = sum((Fraction(x) ** 2 for x in b.reshape(-1)), Fraction(0))
        assert Fraction(float(length(b.reshape(-1)))) ** 2 >= flat
    assert spectral(np.zeros((3, 4))) < 1e-300
    assert math.isnan(spectral(np.array([[math.nan]]))) or spectral(np.array([[math.nan]])) == math.inf


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 10.0, math.inf])
def test_no_point_of_a_ball_or_piece_lies_below_the_least_value(p: float) -> None:
    rng = np.random.default_rng(4)
    x0, radius = rng.normal(size=(3, 5)), np.array([0.3, 0.7])
    normals, low, high = rng.normal(size=(2, 2, 5)), np.array([-0.1, -np.inf]), np.array([np.inf, 0.2])
    ball = Region(x0, [0, 2], p, radius)
    piece = Region(x0, [0, 2], p, radius, normals, low, high)
    rows = rng.normal(size=(6, 3, 5))
    step = rng.normal(size=(4000, 2, 5))
    size = np.abs(step).max(-1) if p == math.inf else (np.abs(step) ** p).sum(-1) ** (1 / p)
    step *= (radius / size)[..., None]
    values = np.einsum("rtd,std->rs", rows[:, [0, 2]], step)
    least = ball.least(rows)
    assert (least <= values.min(axis=1)).all()
    exact = -(dual(rows[:, [0, 2]], p) @ radius)
    assert np.allclose(least, exact, rtol=1e-9)
    place = np.einsum("ktd,std->ks", normals, step)
    inside = ((place >= low[:, None]) & (place <= high[:, None])).all(axis=0)
    assert inside.sum() > 100
    for cuts in (np.zeros((2, 6)), np.abs(rng.normal(size=(2, 6))) * [[1], [-1]], rng.normal(size=(2, 6))):
        assert (piece.least(rows, cuts) <= values[:, inside].min(axis=1)).all()
    assert (ball.longest(rows) >= np.linalg.norm(values, axis=0)).all()


def test_dual_norms_are_those_of_the_exponent_and_no_other() -> None:
    a = np.array([[3.0, -4.0]])
    assert dual(a, 1.0) == 4
    assert 5 <= dual(a, 2.0) <= 5 + 1e-12
    assert 7 <= dual(a, math.inf) <= 7 + 1e-12
    assert 91 ** (1 / 3) <= dual(a, 1.5) <= 91 ** (1 / 3) * (1 + 1e-12)


def test_a_hull_is_bounded_at_its_vertices() -> None:
    rng = np.random.default_rng(5)
    x0, vertices = rng.normal(size=(2, 4)), (rng.normal(size=(3, 4)), rng.normal(size=(1, 4)))
    hull = Region(x0, [0, 1], vertices=vertices)
    rows = rng.normal(size=(7, 2, 4))
    values = np.stack([np.einsum("rtd,td->r", rows, np.stack([v, vertices[1][0]]) - x0) for v in vertices[0]])
    least = hull.least(rows)
    assert (least <= values.min(axis=0)).all()
    assert np.allclose(least, values.min(axis=0), atol=1e-12)
    assert (hull.longest(rows) >= np.linalg.norm(values, axis=1)).all()
    assert (hull.box().lo <= x0 + 1e9).all()

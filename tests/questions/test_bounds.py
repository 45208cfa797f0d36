"""Margins within given radii."""

from __future__ import annotations

import pytest

import certiformer as cf
from conftest import IDS, random_model


@pytest.mark.parametrize("eps", [0.7, 0.1, 1e-50])
def test_no_radius_becomes_smaller_in_single_precision(eps: float) -> None:
    """0.7 is 0.69999999 there: an easier question."""
    found = cf.bounds(random_model(), IDS, eps=eps, dtype="float32")
    assert all(eps <= used <= eps * (1 + 2**-23) + 2**-149 for used in found.eps)


def test_radii_that_are_no_radii_are_refused() -> None:
    for eps in (-0.1, float("nan"), float("inf"), [0.1, 0.2], "far", None):
        with pytest.raises(cf.InputError, match="eps"):
            cf.bounds(random_model(), IDS, eps=eps)
    with pytest.raises(cf.InputError, match="eps=1e"):
        cf.bounds(random_model(), IDS, eps=1e39, dtype="float32")

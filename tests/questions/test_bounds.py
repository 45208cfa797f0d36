"""Margins within given radii."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core.problem import Margins, Problem
from conftest import IDS, random_model


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The radii within which margins are bounded."""
    found: list[float] = []
    plain = Problem.margins

    def margins(self: Problem, eps: torch.Tensor, *args: Any, **options: Any) -> Margins:
        found.extend(eps.tolist())
        return plain(self, eps, *args, **options)

    monkeypatch.setattr(Problem, "margins", margins)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("eps", [0.7, 0.1, 1e-50])
def test_no_radius_becomes_smaller_than_it_is_written(bounded: list[float], eps: float, dtype: Any) -> None:
    """The float 0.7 is a little less than 0.7, and 0.69999999 in single precision: an easier question."""
    model = random_model(scale=0.1)
    found = cf.bounds(model, IDS, eps=eps, dtype=dtype)
    verdict = cf.certify(model, IDS, eps=eps, dtype=dtype, attack=False)
    assert (verdict.eps, found.eps) == (eps, (eps,) * 3)
    assert f"eps={eps} in" in repr(verdict)
    assert f"eps {eps} in" in repr(found)
    assert len(bounded) == 6
    exact, unit = Decimal(repr(eps)), Decimal(2.0**-23 if dtype == "float32" else 2.0**-52)
    assert all(exact <= Decimal(used) <= exact * (1 + unit) + Decimal(2.0**-149) for used in bounded)


def test_radii_that_are_no_radii_are_refused() -> None:
    for eps in (-0.1, float("nan"), float("inf"), [0.1, 0.2], "far", None):
        with pytest.raises(cf.InputError, match="eps"):
            cf.bounds(random_model(), IDS, eps=eps)
    with pytest.raises(cf.InputError, match="eps=1e"):
        cf.bounds(random_model(), IDS, eps=1e39, dtype="float32")

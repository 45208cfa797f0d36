"""Margins within given radii."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

import certiformer as cf
from certiformer.core.problem import Margins, Problem
from certiformer.numbers import at_least, written
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


@pytest.mark.parametrize(
    ("chosen", "dtype"),
    [
        ({"positions": [[1]]}, "float64"),
        ({"where": True}, "float64"),
        ({"where": True}, "float32"),
        ({}, "float64"),
        ({}, "float32"),
    ],
)
def test_neither_does_that_of_a_ball(chosen: dict[str, Any], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At positions, at numbers that are chosen, or of an input that moves as a whole; it is told as it is written."""
    reach: list[float] = []
    plain = Problem.ball

    def ball(self: Problem, *args: Any) -> Any:
        found = plain(self, *args)
        reach.append(float(found.eps.max()) * (1.0 if found.width is None else float(found.width.max())))
        return found

    monkeypatch.setattr(Problem, "ball", ball)
    model, x = random_model(scale=0.1), IDS
    if "positions" not in chosen:
        model, x = cf.load(torch.nn.Linear(3, 2), shape=(3,)), torch.tensor([0.25, 0.5, -1.0])
    if "where" in chosen:
        chosen = {"where": torch.tensor([True, False, True])}
    found = cf.bounds(model, x, within=cf.Ball(0.7, **chosen), dtype=dtype)
    cf.verify(model, x, within=cf.Ball(0.7, **chosen), dtype=dtype, attack=False)
    assert found.eps == (1.0 if "where" in chosen else 0.7,)
    assert len(reach) >= 2
    assert all(Decimal("0.7") <= Decimal(used) < Decimal("0.7000003") for used in reach)


def test_numbers_of_other_libraries_are_told_alike() -> None:
    """A float64 of NumPy is a float that writes itself otherwise."""
    eps = np.float64(0.7)
    verdict = cf.certify(random_model(scale=0.1), IDS, eps=eps, attack=False)
    assert "eps=0.7 in" in repr(verdict)
    assert at_least(eps) == at_least("0.7")
    assert written(eps) == "0.7"


def test_radii_that_are_no_radii_are_refused() -> None:
    for eps in (-0.1, float("nan"), float("inf"), [0.1, 0.2], "far", None):
        with pytest.raises(cf.InputError, match="eps"):
            cf.bounds(random_model(), IDS, eps=eps)
    with pytest.raises(cf.InputError, match="eps=1e"):
        cf.bounds(random_model(), IDS, eps=1e39, dtype="float32")

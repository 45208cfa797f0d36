"""Rounding: what is taken off for it is never less than what it was, in either precision."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core.graph import Graph
from certiformer.core.problem import Problem
from certiformer.core.speed.memory import Footprints
from certiformer.questions.inputs import prepare, problem_of
from enclosure import cloud_of
from kinds import KINDS, PLANS, asked


def pair(kind: str, p: float, method: Any, relaxation: Any) -> tuple[Problem, Problem]:
    """The same questions in single and in double precision, about exactly the same numbers."""
    single, double = (asked(kind, p, method, relaxation, dtype) for dtype in (torch.float32, torch.float64))
    return single, replace(double, centre=single.centre.double(), labels=single.labels, style=single.style)


@pytest.mark.parametrize(("method", "relaxation"), PLANS)
@pytest.mark.parametrize("kind", KINDS[1:5])
def test_single_precision_bounds_enclose_those_of_double_precision(kind: str, method: str, relaxation: str) -> None:
    """From radii at which nothing but rounding is left to those at which it hardly matters."""
    for p, eps in ((1.0, 1e-2), (2.0, 1e-7), (2.0, 1e-4), (math.inf, 2e-3)):
        single, double = pair(kind, p, method, relaxation)
        radii = torch.full((len(single),), eps)
        low = single.margins(radii)
        assert low.lower.dtype == torch.float32
        exact = double.margins(radii.double(), rounding=False)
        wide = double.margins(radii.double())
        assert (wide.lower <= exact.lower).all()
        assert (wide.upper >= exact.upper).all()
        good = torch.tensor([r is None for r in low.reasons])
        assert exact.reasons == (None,) * len(single)
        assert (low.lower.double() <= exact.lower).all()
        assert (low.upper.double() >= exact.upper).all()
        if (method, relaxation) == ("backward", "tight"):
            assert good.all()
            assert (low.lower > -math.inf).all()


@pytest.mark.parametrize(("method", "relaxation"), PLANS)
def test_single_precision_bounds_hold_at_every_point_in_double_precision(method: str, relaxation: str) -> None:
    for kind, p, eps in (("random 2", 2.0, 1e-2), ("pre", math.inf, 2e-3), ("post", 1.0, 1e-6)):
        single, double = pair(kind, p, method, relaxation)
        radii = torch.full((len(single),), eps)
        found = single.margins(radii)
        chosen = list(range(len(single)))
        cloud = cloud_of(double, double.ball(radii.double(), chosen), samples=60)
        values = double.compiled.graph.values(cloud.flatten(0, 1), None)[-1].unflatten(0, cloud.shape[:2])
        margins = (double.rows(chosen)[:, None] * values[:, :, None]).flatten(3).sum(dim=3)
        assert (margins >= found.lower.double()[:, None]).all()
        assert (margins <= found.upper.double()[:, None]).all()


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_large_values_at_rest_are_allowed_for(size: float) -> None:
    """Deviations from rest are small differences of large numbers: what those lost must be in the bounds."""
    single, double = pair("random 2", 2.0, "backward-forward", "paper")
    moved = [replace(p, centre=p.centre * size) for p in (single, double)]
    radii = torch.full((len(single),), 1e-6)
    low, exact = moved[0].margins(radii), moved[1].margins(radii.double(), rounding=False)
    assert (low.lower.double() <= exact.lower).all()
    assert (low.upper.double() >= exact.upper).all()


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_without_what_is_taken_off_single_precision_would_be_wrong(method: str) -> None:
    """Where nothing bends, the bounds of a tiny ball differ by rounding alone, and it is all allowed for."""
    single, double = pair("affine", 2.0, method, "paper")
    assert single.compiled.local
    for local in (single.compiled.local, {}):
        single = replace(single, compiled=replace(single.compiled, local=local, footprints=Footprints()))
        radii = torch.full((len(single),), 1e-9)
        exact = double.margins(radii.double(), rounding=False)
        found, bare = single.margins(radii), single.margins(radii, rounding=False)
        assert (found.lower.double() <= exact.lower).all()
        assert (found.upper.double() >= exact.upper).all()
        assert (bare.lower.double() > exact.lower).any() or (bare.upper.double() < exact.upper).any()


@pytest.mark.parametrize("method", ["ibp", "backward"])
def test_products_are_exact_to_the_precision_whatever_was_set_before(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF32 or bfloat16 products, which a program may have asked torch for, have no place in a proof."""
    problem = asked(KINDS[0], 2.0, method, "paper", torch.float32)
    values, seen = Graph.values, []

    def spied(graph: Graph, *args: Any) -> list[torch.Tensor]:
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return values(graph, *args)

    monkeypatch.setattr(Graph, "values", spied)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        problem.margins(torch.full((len(problem),), 0.01))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {("highest", False)}


class Chain(torch.nn.Module):
    """Three linear layers, the first of them as large as the others are small."""

    def __init__(self, sizes: tuple[float, float, float]) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:, 0]
        for size in self.sizes:
            y = y @ (torch.eye(2, dtype=x.dtype, device=x.device) * size)
        return y


@pytest.mark.parametrize("method", ["ibp", "forward", "backward", "backward-forward"])
@pytest.mark.parametrize(
    ("dtype", "sizes"), [(torch.float64, (1e300, 1e-170, 1e-170)), (torch.float32, (1e36, 1e-25, 1e-25))]
)
def test_coefficients_that_vanish_are_not_forgotten(
    method: Any, dtype: torch.dtype, sizes: tuple[float, float, float]
) -> None:
    """The product of the small ones underflows before it meets the large one; the answer flips at 0.1 / sqrt(2)."""
    x = torch.tensor([[1.0, 0.9], [1.0, 1.0]], dtype=dtype)
    prepared = prepare(cf.Model(module=Chain(sizes)), x, dtype=dtype)
    problem = problem_of([(prepared, (0,))], p=2.0, method=method, relaxation="tight")
    assert not bool((problem.margins(torch.tensor([0.2], dtype=dtype)).lower > 0).any())

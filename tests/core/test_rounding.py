"""Rounding: what is taken off for it is never less than what it was, in either precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core import rounding
from certiformer.core.graph import Graph
from certiformer.core.problem import Problem
from certiformer.core.speed.memory import Footprints
from certiformer.questions.inputs import prepare, problem_of
from enclosure import cloud_of
from kinds import KINDS, PLANS, asked
from spread import spread


def pair(kind: str, p: float, method: Any, relaxation: Any) -> tuple[Problem, Problem]:
    """The same questions in single and in double precision, about exactly the same numbers."""
    single, double = (asked(kind, p, method, relaxation, dtype) for dtype in (torch.float32, torch.float64))
    return single, replace(double, centre=single.centre.double(), labels=single.labels, style=single.style)


# from radii at which nothing but rounding is left to those at which it hardly matters
RADII = ((1.0, 1e-2), (2.0, 1e-7), (2.0, 1e-4), (math.inf, 2e-3))


@pytest.mark.parametrize(("kind", "plan", "ball"), spread(KINDS[1:5], PLANS, RADII, times=2))
def test_single_precision_bounds_enclose_those_of_double_precision(
    kind: str, plan: tuple[str, str], ball: tuple[float, float]
) -> None:
    p, eps = ball
    single, double = pair(kind, p, *plan)
    radii = torch.full((len(single),), eps)
    low = single.margins(radii)
    assert low.lower.dtype == torch.float32
    exact = double.margins(radii.double(), rounding=False)
    wide = double.margins(radii.double())
    assert (wide.lower <= exact.lower).all()
    assert (wide.upper >= exact.upper).all()
    assert exact.reasons == (None,) * len(single)
    assert (low.lower.double() <= exact.lower).all()
    assert (low.upper.double() >= exact.upper).all()
    if plan == ("backward", "tight"):
        assert low.reasons == (None,) * len(single)
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
        single = replace(single, compiled=replace(single.compiled, local=local), footprints=Footprints())
        radii = torch.full((len(single),), 1e-9)
        exact = double.margins(radii.double(), rounding=False)
        found, bare = single.margins(radii), single.margins(radii, rounding=False)
        assert (found.lower.double() <= exact.lower).all()
        assert (found.upper.double() >= exact.upper).all()
        assert (bare.lower.double() > exact.lower).any() or (bare.upper.double() < exact.upper).any()


def less(setting: str) -> None:
    """Ask torch for products of less precision, in either of its ways."""
    if setting == "new":
        torch.backends.mkldnn.matmul.fp32_precision = "tf32"
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision(setting)


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    torch.backends.mkldnn.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("setting", ["medium", "high", "new"])
@pytest.mark.parametrize("method", ["ibp", "backward"])
def test_no_proof_in_single_precision_rests_on_products_of_less(method: str, setting: str) -> None:
    """TF32 or bfloat16 products, which a program may have asked torch for: refused before and during a proof."""
    single, double = (asked(KINDS[0], 2.0, method, "paper", dtype) for dtype in (torch.float32, torch.float64))
    eps = torch.full((len(single),), 0.01)
    before = double.margins(eps.double())
    single.margins(eps)
    less(setting)
    with pytest.raises(cf.InputError, match=r"fp32_precision='(tf32|bf16)'"):
        single.margins(eps)
    with pytest.raises(cf.InputError, match=r"dtype=torch\.float32"):
        asked(KINDS[0], 2.0, method, "paper", torch.float32)
    assert torch.backends.mkldnn.matmul.fp32_precision in ("tf32", "bf16")  # nothing of the program's is changed
    after = double.margins(eps.double())
    assert torch.equal(before.lower, after.lower)
    draft = asked(KINDS[0], 2.0, method, "paper").draft()
    assert (draft is None) == (method == "ibp")
    if draft is not None:
        draft.margins(eps)  # proves nothing


@pytest.mark.usefixtures("restored")
def test_a_setting_that_changes_during_a_proof_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    single, values = asked(KINDS[0], 2.0, "backward", "paper", torch.float32), Graph.values

    def changed(graph: Graph, *args: Any, **more: Any) -> list[torch.Tensor]:
        less("medium")
        return values(graph, *args, **more)

    monkeypatch.setattr(Graph, "values", changed)
    with pytest.raises(cf.InputError, match="bf16"):
        single.margins(torch.full((len(single),), 0.01))


@pytest.mark.parametrize("method", ["ibp", "forward", "backward"])
def test_more_terms_than_a_precision_can_add_up_are_the_reason_of_unknown(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    single, double = (asked(KINDS[0], 2.0, method, "tight", dtype) for dtype in (torch.float32, torch.float64))
    eps = torch.full((len(single),), 1e-4)
    monkeypatch.setattr(rounding, "ulp", lambda x: 1e-2 if x.dtype == torch.float32 else 1e-16)  # as of a large node
    found = single.margins(eps)
    assert all(reason is not None and "too many entries for torch.float32" in reason for reason in found.reasons)
    assert (found.lower == -math.inf).all()
    assert (found.upper == math.inf).all()
    assert double.margins(eps.double()).reasons == (None,) * len(double)


class Chain(torch.nn.Module):
    """Three linear layers, the first of them as large as the others are small, at one position or at all."""

    def __init__(self, sizes: tuple[float, float, float], *, first: bool) -> None:
        super().__init__()
        self.sizes, self.first = sizes, first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:, 0] if self.first else x
        for size in self.sizes:
            y = y @ (torch.eye(2, dtype=x.dtype, device=x.device) * size)
        return y if self.first else y[:, 0]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("method", ["ibp", "forward", "backward", "backward-forward"])
@pytest.mark.parametrize(
    ("dtype", "sizes"), [(torch.float64, (1e300, 1e-170, 1e-170)), (torch.float32, (1e36, 1e-25, 1e-25))]
)
def test_coefficients_that_vanish_are_not_forgotten(
    method: Any, dtype: torch.dtype, sizes: tuple[float, float, float], first: bool
) -> None:
    """The product of the small ones underflows before it meets the large one; the answer flips at 0.1 / sqrt(2)."""
    x = torch.tensor([[1.0, 0.9], [1.0, 1.0]], dtype=dtype)
    prepared = prepare(cf.Model(module=Chain(sizes, first=first)), x, dtype=dtype)
    problem = problem_of([(prepared, (0,))], p=2.0, method=method, relaxation="tight")
    assert not bool((problem.margins(torch.tensor([0.2], dtype=dtype)).lower > 0).any())


class Two(torch.nn.Module):
    """Two linear layers at one position, all of random entries."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0] @ self.first @ self.second


@pytest.mark.parametrize("method", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_taken_off_is_what_any_order_of_summation_may_lose(method: Any, dtype: torch.dtype) -> None:
    """`k u |A| |W| |x|` for each product of k terms, in whichever order: more than one order shows."""
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(8, n, generator=generator, dtype=dtype) for n in (8, 2))
    x = torch.randn(1, 8, generator=generator, dtype=dtype)
    prepared = prepare(cf.Model(module=Two(first, second)), x, dtype=dtype)
    problem = problem_of([(prepared, (0,))], p=2.0, method=method, relaxation="tight")
    eps = torch.tensor([1e-3], dtype=dtype)
    found, bare = problem.margins(eps), problem.margins(eps, rounding=False)
    row = (second[:, prepared.label] - second[:, 1 - prepared.label]).abs()
    lost = 8 * torch.finfo(dtype).eps / 2 * (row @ first.T.abs() @ x[0].abs())  # of each of the two products
    assert float(bare.lower - found.lower) >= 2 * float(lost)
    assert float(found.upper - bare.upper) >= 2 * float(lost)

"""Where a function stops being defined: nothing is certified that holds such a point."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.graph import capture
from certiformer.core.ops import Box
from certiformer.core.ops.normalize import LEAST_EPS, Normalize
from certiformer.models import Config
from certiformer.models.network import build

X = torch.tensor([[1.0, 0.8, 1.2, 0.9], [0.3, -1.0, 0.5, 2.0]], dtype=torch.float64)
WAYS: list[tuple[Any, Any]] = [
    ("ibp", "tight"),
    ("forward", "tight"),
    ("backward", "tight"),
    ("backward-forward", "paper"),
]
HEAD = torch.tensor([[2.0, -1.0], [0.5, 1.0], [-1.0, 0.5], [0.1, 0.2]], dtype=torch.float64)


class Norm(nn.Module):
    """A normalisation of the first position, and two logits that never meet."""

    def __init__(self, kind: str, eps: float) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps

    def forward(self, x: Tensor) -> Tensor:
        y = x[:, 0]
        if self.kind == "layer":
            y = F.layer_norm(y, [4], eps=self.eps)
        elif self.kind == "rms":
            y = F.rms_norm(y, [4], eps=self.eps)
        elif self.kind == "written out":
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        else:
            y = y / (y * y).mean(-1, keepdim=True).add(self.eps).sqrt()
        return torch.cat([0.01 * (y @ HEAD[:, :1]) + 5, 0.01 * (y @ HEAD[:, 1:])], dim=1)


def singular(kind: str) -> float:
    """How far the first position is from where it divides by zero."""
    return float((X[0] - X[0].mean()).norm() if kind == "layer" else X[0].norm())


@pytest.mark.parametrize("kind", ["layer", "rms", "written out", "by parts"])
@pytest.mark.parametrize(("method", "relaxation"), WAYS)
def test_no_ball_that_holds_zero_over_zero_is_certified(kind: str, method: Any, relaxation: Any) -> None:
    certifier = cf.Certifier(cf.load(Norm(kind, 0.0)), method=method, relaxation=relaxation)
    far = singular(kind)
    for eps in (far, 100 * far) if method == "backward" else (far,):
        found = certifier.bounds(X, eps=eps, positions=[[0]], label=0)
        assert (found.lower == -math.inf).all()
        assert "not defined on the whole range" in str(found.reasons[0])
    near = certifier.bounds(X, eps=1e-3 * far, positions=[[0]], label=0)
    assert torch.isfinite(near.lower).all()
    if method == "backward":
        assert 0 < certifier.radius(X, positions=[[0]]).radii[0] < far


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("eps", [-1e-5, -0.01])
def test_an_eps_below_zero_is_refused(kind: str, eps: float) -> None:
    with pytest.raises(cf.CertiformerError, match=f"eps={eps!r}"):
        cf.bounds(cf.load(Norm(kind, eps)), X, eps=1e-3, label=0)


@pytest.mark.parametrize("kind", ["written out", "by parts"])
def test_an_eps_below_zero_that_is_written_out_is_the_reason_of_unknown(kind: str) -> None:
    model = cf.load(Norm(kind, -0.5))
    spare = singular(kind) - math.sqrt(4 * 0.5)  # to where the root is of zero
    assert 0 < cf.radius(model, X, positions=[[0]]).radii[0] < spare
    found = cf.bounds(model, X, eps=1.01 * spare, positions=[[0]], label=0)
    assert (found.lower == -math.inf).all()


@pytest.mark.parametrize("eps", [0.0, 1e-12])
def test_the_packages_own_classifier_without_an_eps(eps: float) -> None:
    """All numbers of the first position alike: there LayerNorm divides by zero, unless there is an eps."""
    torch.manual_seed(0)
    config = Config(1, 10, hidden_size=8, intermediate_size=12, num_attention_heads=2, layer_norm="standard")
    _, module = build(Config(**{**vars(config), "layer_norm_eps": eps}))
    model = cf.load(module.double().eval(), num_labels=2)
    x = torch.randn(4, 8, dtype=torch.float64)
    far = float((x[0] - x[0].mean()).norm())
    found = cf.radius(model, x, positions=[[0]])
    assert 0 < found.radii[0] < (far if eps == 0 else math.inf)
    held = cf.bounds(model, x, eps=1.01 * far, positions=[[0]], label=0)
    assert (held.lower == -math.inf).all() or eps > 0
    with pytest.raises(cf.CertiformerError, match="layer_norm_eps"):
        Config(**{**vars(config), "layer_norm_eps": -1e-12})


def test_bounds_without_an_eps_hold_where_they_are_valid() -> None:
    op = Normalize(0.0)
    generator = torch.Generator().manual_seed(0)
    count = 0
    for width in (1e-9, 1e-3, 0.3, 1.0, 3.0):
        centre = torch.randn(200, 3, generator=generator, dtype=torch.float64)
        box = Box(centre - width, centre + width)
        valid = op.valid(box)
        assert valid is not None
        holds_zero = ((box.lower <= 0) & (box.upper >= 0)).all(dim=-1)
        assert not (valid & holds_zero).any()
        planes = op.planes(box)
        for side in (planes.slopes[0].lower, planes.lower, planes.upper):
            assert side is not None
            assert not torch.isnan(side).any()
        for _ in range(100):
            z = box.lower + (box.upper - box.lower) * torch.rand(centre.shape, generator=generator, dtype=torch.float64)
            y, range_ = op.forward(z), op.interval(box)
            assert (((y >= range_.lower) & (y <= range_.upper)).all(dim=-1) | ~valid).all()
        count += int(valid.sum())
    assert count > 300
    zero = torch.zeros(1, 3, dtype=torch.float64)
    assert not torch.isnan(op.planes(Box(zero, zero)).slopes[0].lower).any()


def test_an_eps_that_vanishes_in_rounding_counts_as_none() -> None:
    zero = torch.zeros(1, 3, dtype=torch.float64)
    for eps in (0.0, 1e-320, LEAST_EPS / 2):
        valid = Normalize(eps).valid(Box(zero, zero))
        assert valid is not None
        assert not bool(valid.any())
    assert Normalize(LEAST_EPS).valid(Box(zero, zero)) is None
    for eps in (-1e-5, math.nan, math.inf):
        with pytest.raises(ValueError, match="expected 0 or more"):
            Normalize(eps)


class Divided(nn.Module):
    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.divisor = divisor

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0, :2] / self.divisor


def test_a_division_by_zero_is_refused() -> None:
    with pytest.raises(cf.UnsupportedError, match="division by zero"):
        capture(Divided(0.0), X[None])


FUNCTIONS = {
    "sqrt": (torch.sqrt, 0.8),
    "rsqrt": (torch.rsqrt, 0.8),
    "log": (torch.log, 0.8),
    "reciprocal": (torch.reciprocal, 0.8),
    "half": (lambda x: x**0.5, 0.8),
    "inverse": (lambda x: x**-1, 0.8),
    "inverse square": (lambda x: x**-2, 0.8),
    "quotient": (lambda x: 1 / x, 0.8),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("method", "relaxation"), WAYS[::2])
def test_a_ball_that_reaches_the_border_of_a_function_has_no_bounds(name: str, method: Any, relaxation: Any) -> None:
    function, border = FUNCTIONS[name]  # the least entry of the first position is that far from zero

    class Outer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = function(x[:, 0])
            return torch.cat([0.001 * y.sum(dim=1, keepdim=True) + 3, 0 * y[:, :1]], dim=1)

    certifier = cf.Certifier(cf.load(Outer()), method=method, relaxation=relaxation)
    found = certifier.bounds(X, eps=border, positions=[[0]], norm=math.inf, label=0)
    assert (found.lower == -math.inf).all()
    assert "not defined on the whole range" in str(found.reasons[0])
    if method == "backward":
        assert 0 < certifier.radius(X, positions=[[0]], norm=math.inf).radii[0] < border

"""The error of a float32 evaluation of every op, against evaluations in many orders."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from certiformer.core.ops import REGISTRY, Box, Op
from certiformer.core.ops.base import Shape
from certiformer.core.ops.linear import Center, Linear, Sum
from certiformer.core.ops.movement import Movement
from certiformer.core.ops.normalize import Normalize
from certiformer.core.ops.product import MatMul
from certiformer.core.ops.rounded import ERRORS, MOST, Rounded, gamma, known, representable, rounds
from certiformer.core.ops.softmax import OfDifferences, Softmax
from deployed import ORDERS, evaluated

CASES = [
    (f"{name}-{k}", op, shapes)
    for name, cls in REGISTRY.items()
    for k, (op, shapes) in enumerate(cls.examples())
    if known(op) and rounds(op) and not isinstance(op, OfDifferences)
]
WIDE: list[tuple[str, Op, tuple[Shape, ...]]] = [
    ("linear-wide", Linear(torch.randn(3, 64, generator=torch.Generator().manual_seed(0))), ((64,),)),
    ("matmul-wide", MatMul(), ((2, 48), (48, 3))),
    ("sum-wide", Sum((1,)), ((2, 64),)),
    ("center-wide", Center(), ((2, 64),)),
    ("softmax-wide", Softmax(), ((2, 33),)),
    ("normalize-wide", Normalize(1e-12), ((2, 64),)),
]


def in_single(op: Op) -> Op:
    """The op with its numbers in float32 and, the same numbers, in float64."""
    from certiformer.core.graph.graph import _cast

    single: Op = _cast(op, torch.float32)
    return single


@pytest.mark.parametrize(("op", "shapes"), [c[1:] for c in CASES + WIDE], ids=[c[0] for c in CASES + WIDE])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1e-1, 1.0, 10.0, 1e3]), far=st.booleans())
def test_no_order_of_summation_leaves_the_error(
    op: Op, shapes: tuple[Shape, ...], seed: int, scale: float, far: bool
) -> None:
    from certiformer.core.graph.graph import _cast

    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x = [scale * torch.randn(4, *s, generator=g) + (7 * scale if far else 0) for s in shapes]
    if op.domain()[0] == 0:
        x = [v.abs() + 1e-3 * scale for v in x]
    single = in_single(op)
    double: Op = _cast(single, torch.float64)
    exact = [v.double() for v in x]
    truth = double.forward(*exact)
    error = Rounded(double).error(*(Box(v, v) for v in exact)).expand_as(truth)
    fits = torch.isfinite(error) & (error < MOST)
    for order in ORDERS:
        off = (evaluated(single, order, *x).double() - truth).abs()
        assert bool((off <= error)[fits].all()), (order, float((off / error)[fits].max()))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 1.0, 30.0]), n=st.integers(2, 80))
def test_layer_norm_by_any_algorithm(seed: int, offset: float, n: int) -> None:
    """Center and Normalize in one kernel: two passes, Welford's updates, or the mean of squares."""
    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    x = torch.randn(4, 3, n, generator=g) + offset
    op, exact = Normalize(1e-12), x.double()
    z = Center().forward(exact)
    truth = op.forward(z)
    error = Rounded(op).error(Box(z, z), Box(exact, exact)).expand_as(truth)
    fits = error < MOST
    assert bool(fits.all()) or offset > 1 or n < 8
    for order in ORDERS:
        off = (evaluated(op, order, z.float(), x).double() - truth).abs()
        assert bool((off <= error)[fits].all()), (order, float((off / error)[fits].max()))


def test_the_error_of_a_sum_is_reached() -> None:
    """1 + u + u + ... in float32 stays 1: no smaller bound holds for every order of summation."""
    k = 4096
    op = Linear(torch.ones(1, k + 1, dtype=torch.float64))
    x = torch.full((1, 1, k + 1), 2.0**-24)
    x[..., 0] = 1
    truth = float(op.forward(x.double()))
    (found,) = evaluated(in_single(op), "forward", x).flatten().tolist()
    error = float(Rounded(op).error(Box(x.double(), x.double())))
    assert found == 1.0
    assert 0.9 * error <= truth - found <= error


def test_of_differences_is_the_error_of_softmax() -> None:
    """In the differences of scores the same error as in the scores, or less."""
    g = torch.Generator().manual_seed(3)
    s = 4 * torch.randn(5, 2, 7, generator=g, dtype=torch.float64)
    z = s.unsqueeze(-2) - s.unsqueeze(-1)
    by_scores = Rounded(Softmax()).error(Box(s, s))
    by_differences = Rounded(OfDifferences()).error(Box(z, z))
    torch.testing.assert_close(by_scores, by_differences, rtol=1e-6, atol=0)


def test_every_op_has_an_error_or_is_refused() -> None:
    ops = {name: cls for name, cls in REGISTRY.items() if not cls.constants}  # others stand for some over balls alone
    without = {name for name, cls in ops.items() if cls not in ERRORS and not issubclass(cls, Movement)}
    assert without == {"relu", "logsumexp"}  # exact, and refused


def test_what_may_overflow_or_vanish_is_too_large() -> None:
    big, one = torch.full((1, 3), 1e20, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)

    def fails(op: Op, x: Tensor, *more: Tensor) -> bool:
        return not bool((Rounded(op).error(*(Box(v, v) for v in (x, *more))) < MOST).all())

    square, exp, reciprocal, log = (REGISTRY[n]() for n in ("square", "exp", "reciprocal", "log"))
    assert fails(square, big)
    assert not fails(square, one)
    assert fails(exp, 89 * one)
    assert not fails(exp, 20 * one)
    assert fails(reciprocal, 1e-40 * one)
    assert fails(log, 1e-40 * one)
    assert fails(Normalize(1e-5), big)
    assert fails(Normalize(1e-5), one - one.mean() + 1e-3, 1e6 * one)  # nothing is left of the variance
    assert fails(Softmax(), torch.tensor([[0.0, 1e9]], dtype=torch.float64))
    assert math.isinf(gamma(2.0**23))


def test_representable() -> None:
    assert representable(torch.tensor([0.5, 0.0, -3.0, 2.0**100], dtype=torch.float64))
    for wrong in (0.1, 1e300, 1e-44, math.inf, math.nan):
        assert not representable(torch.tensor([wrong], dtype=torch.float64))

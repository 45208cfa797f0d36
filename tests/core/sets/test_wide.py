"""Balls with a width for every number (boxes), and one norm over several positions: what a set promises, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from certiformer.core.goal import Clause, Goal
from certiformer.core.ops.base import Box
from certiformer.core.rounding import SLACK, gamma
from certiformer.core.sets import Ball, Cuts

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: 0.0 if abs(x) < 1e-30 else x)
widths = st.one_of(st.just(0.0), st.floats(1e-30, 1e12))
PLACES = ((0,), (0, 2), (0, 1, 2))


def made(places: tuple[int, ...], width: list[float], eps: float, p: float, *, joint: bool) -> Ball:
    centre = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    table = torch.tensor(width[: 2 * len(places)], dtype=torch.float64).reshape(1, len(places), 2)
    radius = torch.tensor([eps], dtype=torch.float64)
    return Ball.of(centre, [places], radius, p, width=table, joint=joint)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.lists(widths, min_size=6, max_size=6),
    st.lists(numbers, min_size=6, max_size=6),
    st.floats(1e-6, 1e6),
    st.sampled_from([1.0, 2.0, math.inf]),
    st.booleans(),
)
def test_extremes_are_those_of_exact_arithmetic(
    places: tuple[int, ...], width: list[float], row: list[float], eps: float, p: float, joint: bool
) -> None:
    ball = made(places, width, eps, p, joint=joint)
    m = ball.dimension
    function = torch.tensor(row[:m], dtype=torch.float64).reshape(1, 1, m, 1)
    found = float(ball.extremes(function)[1])
    scaled = [abs(Fraction(a) * Fraction(w)) for a, w in zip(row[:m], width[:m], strict=True)]
    blocks = [scaled] if joint else [scaled[k : k + 2] for k in range(0, m, 2)]
    if p == 2:  # of squares: compared one block at a time, where the root is of one number
        exact = [Fraction(eps) ** 2 * sum(x * x for x in block) for block in blocks]
        exact_sum = sum(Fraction(math.sqrt(float(e))) for e in exact)
        assert found >= float(exact_sum) * (1 - 1e-13)
    else:
        exact_sum = sum(Fraction(eps) * (max(block) if p == 1 else sum(block)) for block in blocks)
    room = Fraction(found) * Fraction(1 + gamma(function, m + SLACK))
    assert room >= exact_sum * (1 if p != 2 else Fraction(1 - 1e-15))
    assert found <= float(exact_sum) * (1 + 1e-9) + 1e-140  # and no wider than need be


@settings(max_examples=100, deadline=None)
@given(st.lists(widths, min_size=6, max_size=6), st.lists(numbers, min_size=6, max_size=6), st.floats(1e-200, 1e6))
def test_a_box_holds_its_set_exactly(width: list[float], at: list[float], eps: float) -> None:
    ball = made((0, 1, 2), width, eps, math.inf, joint=False)
    ball = Ball(
        torch.tensor(at, dtype=torch.float64).reshape(1, 1, 3, 2),
        ball.hot,
        ball.eps,
        ball.p,
        width=ball.width,
        whole=True,
    )
    box = ball.box()
    for x, w, low, high in zip(at, width, box.lower.flatten().tolist(), box.upper.flatten().tolist(), strict=True):
        away = Fraction(eps) * Fraction(w)
        assert Fraction(low) <= Fraction(x) - away
        assert Fraction(x) + away <= Fraction(high)
        assert w > 0 or low == x == high


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_points_stay_within_extremes_distance_and_box(p: float, joint: bool, wide: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    centre = torch.randn(2, 1, 4, 3, generator=generator, dtype=torch.float64)
    width = torch.rand(2, 2, 3, generator=generator, dtype=torch.float64) if wide else None
    ball = Ball.of(centre, [(1,), (0, 3)], torch.tensor([0.3, 0.7]).double(), p, width=width, joint=joint)
    function = torch.randn(1, 2, 6, 5, generator=generator, dtype=torch.float64)
    (low,), (high,) = ball.extremes(function)
    far, box = ball.distance(function[0]), ball.box()
    for boundary in (True, False):
        cloud = ball.sample(400, generator, boundary=boundary)
        delta = torch.einsum("zcnd,ztn->zctd", (cloud - centre[:, None])[:, :, 0], ball.hot)
        size = _lengths(ball, delta)
        assert (size <= ball.radii[:, None] * (1 + 1e-12)).all()
        values = torch.einsum("zmr,zcm->zcr", function[0], delta.flatten(2))
        assert (values >= low[:, None] - 1e-12).all()
        assert (values <= high[:, None] + 1e-12).all()
        assert (torch.linalg.vector_norm(values, dim=-1) <= far[:, None] + 1e-12).all()
        assert (cloud >= box.lower[:, None] - 1e-12).all()
        assert (cloud <= box.upper[:, None] + 1e-12).all()


def _lengths(ball: Ball, delta: Tensor) -> Tensor:
    if ball.width is not None:
        delta = delta / ball.width[:, None]
    delta = delta.flatten(2).unsqueeze(2) if ball.joint else delta
    return torch.linalg.vector_norm(delta, ord=ball.p, dim=-1)


def _times(ball: Ball, count: int) -> Ball:
    """The same ball several times."""
    assert ball.width is not None
    centre, hot, eps, width = (x.expand(count, *x.shape[1:]) for x in (ball.centre, ball.hot, ball.eps, ball.width))
    return Ball(centre, hot, eps, ball.p, width=width, joint=ball.joint)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("joint", [False, True])
def test_pieces_of_wide_and_joint_balls_bound_the_points_in_them(p: float, joint: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    centre = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    width = torch.tensor([[[1.0, 0.1], [0.0, 3.0]]], dtype=torch.float64)
    ball = Ball.of(centre, [(0, 2)], torch.tensor([0.5]).double(), p, width=width, joint=joint)
    normal = torch.linalg.qr(torch.randn(1, 4, 2, generator=generator, dtype=torch.float64))[0].mT
    halves = Cuts.none(1, normal.unflatten(2, (2, 2)))
    for k in (0, 1):
        across = normal.unflatten(2, (2, 2))[:, k].expand(len(halves), -1, -1)
        halves = Cuts.joined(halves.halved(across, halves.middle(across, _times(ball, len(halves)))))
    ball = _times(ball, 4)
    pieces = halves.of(ball)
    assert not pieces.empty().any()
    assert pieces.joint == joint
    assert pieces.width is not None
    cloud = ball.sample(500, generator)[0, :, 0]
    delta = torch.einsum("cnd,tn->ctd", cloud, ball.hot[0]).flatten(1)
    at = torch.einsum("cm,zkm->zck", delta, pieces.normal)
    inside = ((at >= pieces.low[:, None]) & (at <= pieces.high[:, None])).all(dim=2)
    assert inside.any(dim=0).all()  # the pieces cover it
    function = torch.randn(1, 4, 4, 6, generator=generator, dtype=torch.float64)
    low, high = pieces.extremes(function)
    values = torch.einsum("zmr,cm->zcr", function[0], delta)
    assert (values >= low[0][:, None] - 1e-12)[inside].all()
    assert (values <= high[0][:, None] + 1e-12)[inside].all()


def test_one_norm_over_two_positions_is_smaller_than_one_for_each() -> None:
    function = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    each, together = (made((0, 2), [1.0] * 4, 1.0, 2.0, joint=joint) for joint in (False, True))
    assert float(each.extremes(function)[1]) == pytest.approx(2 * math.sqrt(2))
    assert float(together.extremes(function)[1]) == pytest.approx(2.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=5), st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=5))
def test_a_goal_is_decided_as_sets_of_halfspaces_are(values: list[float], limits: list[float]) -> None:
    """Limits come off rounded outward, and what is left is bad exactly if too many half-spaces hold."""
    clauses = (Clause((0, 1, 2), 2), Clause((3,), 1), Clause((1, 4), 2))
    goal = Goal(torch.eye(5, dtype=torch.float64), torch.tensor(limits, dtype=torch.float64), clauses)
    value = torch.tensor([values], dtype=torch.float64)
    found = goal.beyond(Box(value, value))
    for v, limit, low, high in zip(values, limits, found.lower[0].tolist(), found.upper[0].tolist(), strict=True):
        assert Fraction(low) <= Fraction(v) - Fraction(limit) <= Fraction(high)
    held = [v <= limit for v, limit in zip(values, limits, strict=True)]
    bad = any(sum(held[h] for h in clause.halfspaces) >= clause.count for clause in clauses)
    if bad:
        assert not bool(goal.least(found.lower)[0] > 0)
    elif all(abs(v - limit) > 1e-9 for v, limit in zip(values, limits, strict=True)):
        assert bool(goal.least(found.lower)[0] > 0)


def test_what_is_not_a_number_is_never_beyond() -> None:
    goal = Goal(torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64), (Clause((0, 1), 2),))
    assert float(goal.least(torch.tensor([[math.nan, -1.0]], dtype=torch.float64))[0]) == -1.0
    assert not bool(goal.least(torch.tensor([[math.nan, math.nan]], dtype=torch.float64))[0] > 0)

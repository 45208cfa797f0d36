"""Rows of two positions: kept apart they cost less and bound the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from certiformer.core import scores
from certiformer.core.problem import Problem
from certiformer.core.scores import separate
from certiformer.questions.inputs import prepare, problem_of
from conftest import random_model


def asked(count: int) -> Problem:
    """Three layers, the last read at one position; all move, and no differences are swept."""
    model = random_model(layers=3, seed=3)
    prepared = prepare(model, [2, *([5, 6, 7, 8] * count)[:count], 3])
    problem = problem_of([(prepared, tuple(range(1, 1 + count)))], p=float("inf"), method="backward")
    return replace(problem, style=replace(problem.style, sweep_differences=0))


def swept(problem: Problem) -> tuple[Tensor, Tensor, int]:
    """The box of the scores of the second layer, and the most entries that their sweeps held at once."""
    with torch.no_grad():
        engine = problem.engine(problem.ball(torch.tensor([0.01]), [0]), {}, rounding=True)
        engine.margins(problem.rows([0]))
        (node,) = [n for n in problem.compiled.graph.nodes if scores.of_two_positions(problem.compiled.graph, n)][-1:]
        engine.most = 0
        box, _ = engine._rows(node, shift=True)
    return box.lower, box.upper, engine.most


def test_kept_apart_the_same_bounds_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "FROM", 4)
    lower, upper, few = swept(asked(10))
    problem = asked(10)
    problem.scheme.__dict__["apart"] = frozenset()
    low, high, many = swept(problem)
    assert bool((upper - lower > 0).all())
    assert torch.allclose(lower, low, rtol=0, atol=1e-9)
    assert torch.allclose(upper, high, rtol=0, atol=1e-9)
    assert few < many / 2


def test_the_diagonal_needs_a_sweep_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "FROM", 4)
    lower, _, _ = swept(asked(10))
    monkeypatch.setattr("certiformer.core.engine.with_diagonal", lambda box, own: box)
    without, _, _ = swept(asked(10))
    diagonal = torch.eye(lower.shape[-1], dtype=torch.bool).expand_as(lower)
    assert torch.equal(lower[~diagonal], without[~diagonal])
    assert bool((lower[diagonal] > without[diagonal]).any())


def test_what_shares_no_entries() -> None:
    assert separate([(None, 1, None), (None, 2, None)])
    assert not separate([(None, 1, None), (None, 1, None)])
    assert not separate([(None, 1, None), (None, 2, None), (None, None, None)])

"""Which bounds there is time for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import certiformer as cf
from certiformer.core.budget import CORE
from certiformer.core.counting import work_of
from certiformer.core.deadline import Deadline
from certiformer.core.problem import Problem
from certiformer.questions import closing, search
from certiformer.questions.inputs import prepare, problem_of
from certiformer.questions.ladder import BUSY, SHARE, Climb, predicted, tighter
from conftest import IDS, random_model


def problem(method: str, *, cuda: bool) -> Problem:
    made = problem_of([(prepare(random_model(layers=3), IDS), (1,))], p=2.0, method=method, relaxation="tight")
    return replace(made, compiled=replace(made.compiled, cuda=cuda))


@pytest.mark.parametrize("cuda", [False, True])
def test_a_cpu_goes_by_all_that_is_counted_and_a_gpu_by_kernels_until_these_keep_it_busy(cuda: bool) -> None:
    cheap, dear = (problem(m, cuda=cuda) for m in ("backward-forward", "backward"))
    own, others = work_of(cheap), work_of(dear)
    by_all, by_kernels = CORE.seconds(others) / CORE.seconds(own), len(others.products) / len(own.products)
    assert by_all > by_kernels > 1
    assert predicted(cheap, dear, 2.0) == pytest.approx(2 * (by_kernels if cuda else by_all))
    least = others.flops / BUSY
    assert predicted(cheap, dear, 1e-12) == (least if cuda else pytest.approx(1e-12 * by_all))


def test_tighter_bounds_are_taken_where_so_many_evaluations_fit_in_their_share_of_the_time() -> None:
    cheap, dear = (problem(m, cuda=False) for m in ("backward-forward", "backward"))
    each = predicted(cheap, dear, 1.0)
    enough = replace(cheap, deadline=Deadline.after(1.2 * 3 * each / SHARE))
    taken = tighter(enough, lambda: dear, seconds=1.0, evaluations=3.0)
    assert taken is not None
    assert (taken.method, taken.deadline) == ("backward", enough.deadline)
    little = replace(cheap, deadline=Deadline.after(1.0 / SHARE))
    assert tighter(little, lambda: dear, seconds=1.0, evaluations=3.0) is None


@pytest.mark.parametrize("climbing", [True, False])
def test_the_first_bounds_come_close_only_where_no_tighter_ones_follow(
    monkeypatch: pytest.MonkeyPatch, climbing: bool
) -> None:
    """... and then go on from what is known."""
    model = random_model(layers=2, scale=0.5, seed=2)
    whole = cf.radius(model, IDS, positions=[[1]], method="backward-forward", splits=0, timeout=1e6)
    asked: list[str] = []
    margin, found = closing.margin, list[int]()

    def counted(problem: Problem, *more: Any, **named: Any) -> Any:
        asked.append(problem.method)
        return margin(problem, *more, **named)

    def looked(problem: Problem, climb: Climb, **more: Any) -> Problem | None:
        found.append(len(asked))
        return replace(climb(), deadline=problem.deadline) if climbing else None

    monkeypatch.setattr(closing, "margin", counted)
    monkeypatch.setattr(search, "tighter", looked)
    result = cf.radius(model, IDS, positions=[[1]], splits=0, timeout=1e6)
    first = asked.count("backward-forward")
    assert 0 < found[0] < whole.calls
    assert result.method == ("backward" if climbing else "backward-forward")
    if climbing:
        assert first == found[0]
        assert result.radii[0] > whole.radii[0]
    else:
        assert found[0] < first <= whole.calls + 1
        assert result.radii[0] == pytest.approx(whole.radii[0], rel=2e-3)

"""Time: what was proved when it runs out stays proved, and what it will take is told before."""

from __future__ import annotations

import itertools

import pytest
import torch

import certiformer as cf
from certiformer.core import deadline
from certiformer.core.deadline import Deadline, OutOfTime
from certiformer.errors import InputError
from conftest import IDS, random_model


class Clock:
    """Time that passes by one second at every look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks = itertools.count()
        monkeypatch.setattr(deadline.time, "monotonic", lambda: float(next(self.ticks)))

    @property
    def looks(self) -> int:
        return next(self.ticks)


def test_a_radius_grows_with_the_time_and_is_proved_whenever_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    whole = cf.radius(model, IDS, method="backward-forward").radii
    clock = Clock(monkeypatch)
    before = (0.0,) * len(whole)
    reached = []
    for seconds in (1, 100, 1000, 2000, 4000, 10**7):
        found = cf.radius(model, IDS, method="backward-forward", splits=0, timeout=seconds).radii
        held = cf.bounds(model, IDS, eps=found, positions=[[i] for i in (1, 2, 3)], method="backward-forward")
        assert all(r == 0 or ok for r, ok in zip(found, held.certified, strict=True))
        assert all(a >= b for a, b in zip(found, before, strict=True))
        before = found
        reached.append(sum(found))
    assert reached[0] == 0
    assert 0 < reached[2] < reached[-1]
    assert before == pytest.approx(whole, rel=2e-3)
    assert clock.looks > 0


def test_pieces_go_on_until_the_time_is_out_and_every_radius_on_the_way_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    plain = cf.radius(model, IDS, positions=[[1]], method="backward").radii[0]
    attacked = cf.attack(model, IDS, positions=[[1]]).radii[0]
    Clock(monkeypatch)
    before, reached = 0.0, []
    for seconds in (1, 3000, 8000):
        (found,) = cf.radius(model, IDS, positions=[[1]], timeout=seconds).radii
        assert before <= found <= attacked
        before = found
        reached.append(found)
    assert reached[0] == 0
    assert reached[-1] > 1.01 * plain


def test_a_budget_of_seconds_begins_with_what_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    Clock(monkeypatch)
    cheap = cf.radius(model, IDS, positions=[[1]], budget="400s")
    assert cheap.method == "backward-forward"
    assert cheap.radii[0] > 0
    tight = cf.radius(model, IDS, positions=[[1]], budget="1000000s", splits=2)
    assert tight.method == "backward"
    assert tight.radii[0] > cheap.radii[0]


def test_a_verdict_by_pieces_in_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=1, scale=0.35, seed=3)
    radius, attacked = (f(model, IDS, positions=[2]).radii[0] for f in (cf.radius, cf.attack))
    eps = 1.02 * radius
    assert cf.certify(model, IDS, eps=eps, positions=[2], method="backward").status == "unknown"
    assert cf.certify(model, IDS, eps=eps, positions=[2], timeout=1000).status == "certified"
    assert cf.certify(model, IDS, eps=eps, positions=[2], budget="1000 s").status == "certified"

    def cut(*_: object, **__: object) -> None:
        raise AssertionError("what is refuted is not cut")

    monkeypatch.setattr("certiformer.questions.refine.Cutting.margins", cut)
    assert cf.certify(model, IDS, eps=1.05 * attacked, positions=[2], timeout=1000).status == "refuted"


@pytest.mark.parametrize("budget", ["0s", "-1s", "10", "s", "fats", "1e3s", 10, None])
def test_a_budget_that_is_none_is_refused(budget: object) -> None:
    with pytest.raises(InputError, match="budget="):
        cf.Options(budget=budget)  # type: ignore[arg-type]


def test_a_verdict_that_runs_out_of_time_is_unknown_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    Clock(monkeypatch)
    result = cf.certify(model, IDS, eps=1e-4, timeout=2, attack=False)
    assert result.status == "unknown"
    assert result.reason == "out of time"
    found = cf.bounds(model, IDS, eps=1e-4, timeout=2)
    assert not any(found.certified)
    assert set(found.reasons) == {"out of time"}


def test_a_pass_that_was_finished_counts_when_refining_runs_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    plain = cf.bounds(model, IDS, eps=0.05, positions=[[1]])
    refused = []

    def out_of_time(*_: object, **__: object) -> None:
        refused.append(1)
        raise OutOfTime

    monkeypatch.setattr("certiformer.questions.refine.Cutting.margins", out_of_time)
    found = cf.bounds(model, IDS, eps=0.05, positions=[[1]], splits=4, timeout=1e6)
    assert refused
    assert torch.equal(found.lower, plain.lower)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", True])
def test_a_time_that_is_none_is_refused(timeout: object) -> None:
    with pytest.raises(InputError, match="timeout="):
        cf.Options(timeout=timeout)  # type: ignore[arg-type]


def test_no_limit_is_never_reached() -> None:
    assert not Deadline.after(None).limited
    Deadline.after(None).check()


def test_an_estimate_grows_with_the_work_and_names_what_is_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    monkeypatch.setattr("certiformer.questions.estimate.LONG", 0.0)
    one = cf.Certifier(model, method="backward").estimate([IDS])
    many = cf.Certifier(model, method="backward").estimate([IDS] * 50)
    assert 0 < one.seconds < many.seconds
    assert (one.sets, many.sets) == (3, 150)
    assert one.memory > 0
    assert "backward" in str(many)
    assert all(seconds < many.seconds for _, seconds in many.cheaper)


def test_a_result_says_whether_the_time_was_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=1, scale=0.3, seed=3)
    assert cf.radius(model, IDS, method="backward-forward", splits=0, timeout=1e6).complete
    Clock(monkeypatch)
    assert not cf.radius(model, IDS, method="backward-forward", timeout=5).complete

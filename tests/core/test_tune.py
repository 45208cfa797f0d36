"""Optimised planes: never worse, still sound, the same each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core.deadline import Deadline
from certiformer.core.engine import Engine
from certiformer.core.problem import Problem
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model


@pytest.mark.parametrize("method", [pytest.param("backward", marks=pytest.mark.slow), "backward-forward"])
def test_steps_only_ever_gain_and_stay_below_the_attack(method: Any) -> None:
    model = random_model(layers=2, scale=0.35, seed=3)
    positions = [[1], [3]]
    plain, tuned, again = (
        cf.radius(model, IDS, positions=positions, method=method, steps=steps, tolerance=1e-2) for steps in (0, 6, 6)
    )
    attacked = cf.attack(model, IDS, positions=positions)
    assert tuned.radii == again.radii
    for before, after, upper in zip(plain.radii, tuned.radii, attacked.radii, strict=True):
        assert before <= after <= upper
    assert sum(tuned.radii) > sum(plain.radii)


@pytest.mark.parametrize("layer_norm", ["no_var", "standard"])
def test_tuned_bounds_hold_at_every_sample(layer_norm: str) -> None:
    prepared = prepare(random_model(layers=2, scale=0.35, seed=5, layer_norm=layer_norm), IDS)
    questions = [(prepared, (1,)), (prepared, (2, 3))]
    problem = problem_of(questions, p=2.0, method="backward-forward", relaxation="tight")
    eps = torch.tensor([0.05, 0.02], dtype=torch.float64)
    tuned = problem.tuned(eps, steps=3)
    margins, plain = tuned.margins(eps), problem.margins(eps)
    assert (margins.lower.amin(dim=1) >= plain.lower.amin(dim=1) - 1e-9).all()
    cloud = tuned.ball(eps, [0, 1]).sample(500, torch.Generator().manual_seed(1))
    values = tuned.compiled.graph.values(cloud.flatten(0, 1))[-1].unflatten(0, (2, 500))[:, :, None]
    margin = (tuned.rows([0, 1])[:, None] * values).flatten(3).sum(dim=3)
    assert (margin >= margins.lower[:, None]).all()
    assert (margin <= margins.upper[:, None]).all()


@pytest.mark.parametrize("steps", [-1, 1.5, True])
def test_bad_steps_are_named(steps: Any) -> None:
    with pytest.raises(cf.InputError, match="steps="):
        cf.radius(random_model(), IDS, steps=steps)


@pytest.mark.parametrize(
    ("eps", "until", "proved", "most"), [(0.05, 0.0, False, 1), (1e-4, None, True, 1), (0.05, None, False, 5)]
)
def test_tuning_ends_with_its_time_and_where_all_is_proved(
    eps: float, until: float | None, proved: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(random_model(layers=1, scale=0.35, seed=5), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="backward", relaxation="tight")
    own, made = Problem.engine, []

    def counted(self: Problem, *args: Any, **given: Any) -> Engine:
        made.append(own(self, *args, **given))
        return made[-1]

    monkeypatch.setattr(Problem, "engine", counted)
    radius = torch.tensor([eps], dtype=torch.float64)
    better, reached, steps = problem.climbed(radius, steps=4, until=Deadline.after(until), until_proved=proved)
    assert len(made) == most == steps + 1  # the usual planes, and one for each step
    assert reached == pytest.approx(better.draft().margins(radius, rounding=False).least.tolist(), abs=1e-4)  # type: ignore[union-attr]


def test_a_margin_that_fails_a_check_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a step as after it: a piece that looks proved would be cut no further."""
    prepared = prepare(random_model(layers=1, scale=0.35, seed=5), IDS)
    problem = problem_of([(prepared, (1,)), (prepared, (2,))], p=2.0, method="backward", relaxation="tight")
    plain = Engine.margins

    def margins(self: Engine, *args: Any) -> Any:
        found = plain(self, *args)
        self._note(torch.tensor([False, True]), "outside of its domain")
        return found

    monkeypatch.setattr(Engine, "margins", margins)
    for steps in (0, 2):
        _, reached, _ = problem.climbed(torch.full((2,), 1e-4, dtype=torch.float64), steps=steps, at_once=2)
        assert reached is not None
        assert reached[0] == -torch.inf
        assert reached[1] > 0

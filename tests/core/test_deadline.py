"""When time is out: seen within a sweep, and a little before the answer is due."""

from __future__ import annotations

import pytest
import torch

from certiformer.core.deadline import LEAST, Deadline, OutOfTime
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model


def test_a_sweep_ends_in_its_middle_when_time_is_out() -> None:
    """The deadline passes once the last sweep, from the output, has begun."""
    prepared = prepare(random_model(), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="backward")
    engine = problem.engine(problem.ball(torch.tensor([0.01]), [0]), {}, rounding=True)
    engine.margins(problem.rows([0]))
    asked = 0

    class Passing(Deadline):
        def check(self) -> None:
            nonlocal asked
            asked += 1
            if asked > 3:
                raise OutOfTime

    engine.deadline = Passing(0.0)
    with pytest.raises(OutOfTime):
        engine.margins(problem.rows([0]))


def test_some_time_is_kept_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    assert not Deadline.before(None).limited
    assert [Deadline.before(s).end - 1000 for s in (100.0, 10.0, 1.0)] == [98.0, 10 - LEAST, 0.75]

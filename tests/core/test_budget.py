"""What "auto" takes: the tightest bounds of which a search should end within the seconds that the budget stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from certiformer.core.budget import CORE, EVALUATIONS, GPU, SECONDS, Size, fits
from certiformer.core.counting import work_of
from certiformer.core.names import BoundOptions
from certiformer.core.problem import Problem
from certiformer.core.relaxation import Plan, choose
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model


def asked(layers: int, tokens: int, width: int, **more: object) -> Problem:
    """The radii of all words between the first token and the last."""
    settings = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": 4}
    model = random_model(layers=layers, scale=0.05, max_position_embeddings=32, **settings)
    prepared = prepare(model, [2, *[7] * (tokens - 2), 3])
    return problem_of([(prepared, (i,)) for i in range(1, tokens - 1)], p=2.0, **more)  # type: ignore[arg-type]


def plan(problem: Problem, budget: str, *, cuda: bool) -> Plan:
    """What would be chosen on such a machine."""
    compiled = replace(problem.compiled, cuda=cuda, counted={})
    size = Size(instances=len(problem), varying=1, each=problem.centre.shape[-1], width=8)
    options = BoundOptions(budget=budget)
    return choose(compiled.graph, options, lambda style: fits(options, style, compiled, size))


@pytest.mark.parametrize(
    ("layers", "tokens", "width", "core", "gpu"),
    [
        (1, 8, 256, "backward", "backward"),
        (1, 16, 256, "backward", "backward"),
        (2, 8, 256, "backward-forward", "backward"),  # a search takes more than a minute of a core
        (3, 8, 256, "backward-forward", "backward"),
        (2, 16, 256, "backward-forward", "backward"),
        (3, 16, 256, "backward-forward", "backward-forward"),  # a minute of a GPU
        (3, 8, 32, "backward", "backward"),
    ],
)
def test_balanced_takes_the_tightest_that_fits_in_ten_seconds(
    layers: int, tokens: int, width: int, core: str, gpu: str
) -> None:
    problem = asked(layers, tokens, width, method="backward", run=False)
    assert SECONDS["balanced"] == 10
    for cuda, expected, speed in ((False, core, CORE), (True, gpu, GPU)):
        found = plan(problem, "balanced", cuda=cuda)
        assert found.method == expected
        seconds = EVALUATIONS * speed.seconds(work_of(replace(problem, style=found.style)))
        assert found.method != "backward" or seconds <= SECONDS["balanced"]
        assert found.method == "backward" or seconds > SECONDS["balanced"]


def test_more_seconds_take_tighter_bounds() -> None:
    problem = asked(2, 8, 256, method="backward", run=False)
    found = [plan(problem, budget, cuda=False).method for budget in ("fast", "balanced", "100 s", "tight")]
    assert found == ["backward-forward", "backward-forward", "backward", "backward"]


def test_a_question_is_asked_as_the_budget_says_and_what_is_counted_is_kept() -> None:
    for layers, expected in ((1, "backward"), (2, "backward-forward")):
        problem = asked(layers, 8, 256, run=False)
        assert problem.method == expected
    prepared = prepare(random_model(layers=1), IDS)
    first, second = (problem_of([(prepared, (1,))], p=2.0) for _ in range(2))
    assert len(first.compiled.counted) == 1
    assert first.compiled is second.compiled
    margins = [p.margins(torch.tensor([0.01]).double()).lower for p in (first, second)]
    assert torch.equal(*margins)


def test_a_sentence_is_bounded_in_company_as_it_is_alone() -> None:
    """The budget is that of each sentence."""
    prepared = [prepare(random_model(layers=1, seed=1), [2, 7, token, 5, 3]) for token in range(4, 12)]
    alone = problem_of([(prepared[0], (1,))], p=2.0)
    together = problem_of([(q, (1,)) for q in prepared[:1]] * 8, p=2.0, examples=[q.embeddings for q in prepared])
    assert (alone.method, alone.style) == (together.method, together.style)
    assert list(together.compiled.counted) == [(Size(1, 1, 8, 8), alone.style)]

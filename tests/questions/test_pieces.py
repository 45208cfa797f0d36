"""Pieces within a time: what is reached is proved before it is out, and nothing that was proved is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core import branch, deadline
from certiformer.core.branch import Branching
from certiformer.core.deadline import OUT_OF_MEMORY, Deadline, OutOfTime
from certiformer.core.engine import Engine
from certiformer.core.problem import Problem
from certiformer.questions import pieces
from certiformer.questions.closing import FAR, Stage
from certiformer.questions.inputs import prepare, problem_of
from certiformer.questions.pieces import Division, Front
from conftest import IDS, random_model

DRAFT, PROOF = 1.0, 3.0  # seconds of the clock below for each piece
MODEL = random_model(layers=1, scale=0.5, seed=2)
AT = 0.34  # proved in one piece
NOMINAL = prepare(MODEL, IDS).margin


class Clock:
    """Time that passes with every piece that is bounded, and not otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, bounds = 0.0, Engine.margins
        monkeypatch.setattr(deadline.time, "monotonic", lambda: self.now)

        def margins(engine: Engine, rows: torch.Tensor) -> Any:
            self.now += len(rows) * (PROOF if engine.rounding else DRAFT)
            return bounds(engine, rows)

        monkeypatch.setattr(Engine, "margins", margins)


def problem(*positions: tuple[int, ...]) -> Problem:
    prepared = prepare(MODEL, IDS)
    return problem_of([(prepared, s) for s in positions], p=2.0, method="backward", relaxation="tight")


def begun(monkeypatch: pytest.MonkeyPatch, seconds: float, *positions: tuple[int, ...]) -> Division:
    """Pieces to come, of balls that are proved in one piece, and so much time."""
    asked = problem(*positions)
    assert bool((asked.margins(torch.full((len(asked),), AT).double()).least > 0).all())
    monkeypatch.setattr(Branching, "tuned_at_once", 0)
    Clock(monkeypatch)
    limited = replace(asked, deadline=Deadline.after(seconds))
    stage = Stage(1e-3, [0] * len(asked), [], lambda _: None)
    return Division(limited, [NOMINAL] * len(asked), [AT] * len(asked), 1 << 10, stage)


@pytest.mark.parametrize("seconds", [60, 150, 400])
def test_what_drafts_have_reached_is_proved_before_the_time_is_out(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    division = begun(monkeypatch, seconds, (1,))
    (radius,) = division.in_time([])
    (front,) = division.fronts
    assert radius > 1.02 * AT
    assert radius > (1 - 1e-2) * front.near
    assert [way.deadline for way in division.stage.ways] == [division.problem.deadline]  # it may be asked until then
    assert bool((problem((1,)).margins(torch.tensor([AT]).double()).least > 0).all())


def test_more_time_proves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [begun(monkeypatch, seconds, (1,)).in_time([])[0] for seconds in (2, 60, 150, 400)]
    assert found == sorted(found)
    assert found[0] == AT
    assert found[-1] > 1.05 * found[1]


def test_a_time_that_is_out_before_anything_is_cut_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (0, 1, 3):
        division = begun(monkeypatch, seconds, (1,))
        assert division.in_time([]) == [AT]
        assert division.stage.ways == []


def test_what_is_proved_in_a_proof_that_is_not_finished_stays() -> None:
    """The first instance is proved, the second refused; when that is asked for a little less, time is out."""
    asked: list[list[int]] = []

    def margins(eps: torch.Tensor, chosen: list[int], *, rounding: bool) -> Any:
        asked.append(chosen)
        if len(asked) > 1:
            raise OutOfTime
        assert rounding
        return SimpleNamespace(least=torch.tensor([1.0, -1.0]))

    split: Any = SimpleNamespace(centre=torch.ones(1, dtype=torch.float64), margins=margins)
    fronts, stage = [Front(0.5, 1.0), Front(0.5, 1.0)], Stage(1e-3, [0, 0], [], lambda _: None)
    found = pieces._confirmed(split, [1.0, 1.0], [0.4, 0.4], fronts, stage)
    assert asked == [[0, 1], [1]]
    assert found == [0.5 * (1 - pieces.SAFE), 0.4]


def test_what_is_proved_stays_when_memory_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    division = begun(monkeypatch, 1e6, (1,))
    grow, calls = Branching.grow, iter(range(100))

    def full(self: Branching, *more: Any) -> bool:
        if next(calls) == 3:
            raise MemoryError("out of memory")
        return grow(self, *more)

    monkeypatch.setattr(Branching, "grow", full)
    ended: list[str] = []
    assert division.in_time(ended)[0] > 1.02 * AT
    assert ended == [OUT_OF_MEMORY]


def stopped(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int) -> None:
    """Time is out when something is called for the n-th time."""
    function: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(10**6))

    def until(*args: Any, **more: Any) -> Any:
        if next(calls) == after:
            raise OutOfTime
        return function(*args, **more)

    monkeypatch.setattr(owner, name, until)


@pytest.mark.parametrize("after", range(6))
def test_pieces_cover_their_ball_wherever_cutting_is_stopped(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    branching = Branching(problem((1,), (2,)))
    with monkeypatch.context() as patched:
        stopped(patched, Branching, "_drafts", after)
        with pytest.raises(OutOfTime):
            branching.grow([1.5, 1.5], 4)
    split = branching.split()
    assert set(split.owners) == {0, 1}
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, 500, 8, generator=generator, dtype=torch.float64)
    for i in (0, 1):
        cuts = [leaf.cuts for leaf in branching.of(i)]
        at = [torch.einsum("zcd,zktd->zck", points, c.normal) for c in cuts]
        held = [((a >= c.low[:, None]) & (a <= c.high[:, None])).all(dim=2) for a, c in zip(at, cuts, strict=True)]
        assert torch.stack(held).any(dim=0).all()


def test_planes_are_of_all_pieces_or_of_none_wherever_optimising_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    branching = Branching(problem((1,), (2,)))
    branching.grow([1.5, 1.5], 4)
    branching.tuned_at_once = 2
    monkeypatch.setattr(branch, "STEPS", 1)
    stopped(monkeypatch, Branching, "_tuned", 1)  # some have planes of their own by then
    with pytest.raises(OutOfTime):
        branching.tune([1.5, 1.5], Deadline.after(1e6))
    assert not any(leaf.parameters for leaf in branching.leaves)
    assert len(branching.split().pieces) == len(branching.leaves)


def test_a_model_that_never_changes_its_answer_is_not_cut_on_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=1, scale=0.3, seed=3)
    with torch.no_grad():
        model.module.classifier.bias[0] += 100.0
    monkeypatch.setattr(Branching, "grow", lambda *_: pytest.fail("there is nothing to gain"))
    (radius,) = cf.radius(model, IDS, positions=[[1]], method="backward", splits=4).radii
    assert radius > FAR

"""What branch and bound chooses: how many pieces at a time, which cuts are tried, and when planes are optimised."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch

from certiformer.core import branch
from certiformer.core import directions as module
from certiformer.core.branch import Branching, Leaf
from certiformer.core.deadline import NEVER, Deadline
from certiformer.core.directions import Group, directions, groups
from certiformer.core.graph.graph import Graph
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball, Cuts
from certiformer.core.speed.batches import FEW, MOST, Batches, doubled
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model

WIDE = 1.5  # where nothing is proved of the model below


def problem() -> Problem:
    prepared = prepare(random_model(layers=2, scale=0.3, seed=2), IDS)
    return problem_of([(prepared, s) for s in ((1,), (2,))], p=2.0, method="backward", relaxation="tight")


@pytest.mark.parametrize(("flops", "few", "many"), [(1e6, FEW, MOST), (3e10, 32, 256), (2e11, 4, 32), (1e15, 1, 8)])
def test_batches_are_of_two_sizes(flops: float, few: int, many: int) -> None:
    batches = Batches.of(flops)
    assert batches == (few, many)
    assert [batches.next(left, 10**6) for left in (1, many // 2, many // 2 + 1, 10 * many)] == [few, few, many, many]
    assert batches.next(10 * many, 3) == 3  # no more than memory holds


def test_numbers_are_doubled_up() -> None:
    assert [doubled(k) for k in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]


def grown() -> Branching:
    branching = Branching(problem())
    branching.grow([WIDE, WIDE], 4)
    return branching


def test_cuts_that_won_are_tried_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "LEARNED", 2)
    branching = grown()
    assert branching.won.total() == 6  # three cuts of each ball
    kinds = list(branching.tried)
    best = max(kinds, key=lambda k: (branching.won[k] + 1) / (branching.tried[k] + 2))
    picked = branching._promising(kinds, [True] * len(kinds))
    assert kinds[picked[0]] == best
    assert len(picked) == branch.PICKED
    assert branching._promising(kinds, [False] * len(kinds)) == []


def clock(monkeypatch: pytest.MonkeyPatch, each: float) -> None:
    """Time passes when it is looked at."""
    ticks: Iterator[float] = (k * each for k in count())
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))


def test_planes_that_take_too_long_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    branching = grown()
    branching.tuned_at_once = 1
    clock(monkeypatch, 1.0)
    branching.tune([WIDE, WIDE], Deadline(12.0))
    assert branching.tuned_at_once == 0
    assert not any(leaf.parameters for leaf in branching.leaves)


def test_pieces_that_lost_their_planes_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looked proved with planes that are gone is cut further."""
    branching = grown()
    branching.tuned_at_once = 1

    def tuned(self: Branching, leaves: list[Leaf], *_: object) -> int:
        for leaf in leaves:
            leaf.margin, leaf.parameters = 1.0, {0: ()}
        return 0

    monkeypatch.setattr(Branching, "_tuned", tuned)
    clock(monkeypatch, 10.0)
    branching.tune([WIDE, WIDE], Deadline(12.0))
    assert max(leaf.margin for leaf in branching.leaves) == 1.0
    branching.grow([WIDE, WIDE], 4)
    assert max(leaf.margin for leaf in branching.leaves) < 0


@pytest.mark.slow
def test_planes_of_all_pieces_are_optimised_where_there_is_time() -> None:
    branching = grown()
    branching.tuned_at_once = 3  # of eight
    before = [leaf.margin for leaf in branching.leaves]
    branching.tune([WIDE, WIDE], NEVER)
    assert all(leaf.parameters for leaf in branching.leaves)
    after = [leaf.margin for leaf in branching.leaves]
    assert all(a > b - 1e-3 * abs(b) for a, b in zip(after, before, strict=True))
    assert torch.tensor(after).mean() > torch.tensor(before).mean() + 0.1  # the worst of them is past all help here


def test_where_bounds_have_broken_down_cuts_are_compared_within_less() -> None:
    branching = Branching(problem())
    branching.grow([WIDE, WIDE], 1)  # looks, and cuts nothing
    rough = branching.problem.draft() or branching.problem
    chosen = list(branching.leaves)
    assert all(leaf.at == WIDE and leaf.margin < 0 for leaf in chosen)
    branching._compared(rough, chosen)
    for leaf in chosen:
        assert 0 < leaf.near < WIDE
        assert leaf.seen > -branch.LOST * branching.rest[leaf.owner]  # ... where they say something
        (seen,) = branching._drafts(rough, [leaf], leaf.cuts, [leaf.near])
        assert float(seen.least) == pytest.approx(leaf.seen, rel=1e-4)
    small = branching.problem.margins(torch.tensor([1e-3, 1e-3]).double(), rounding=False).least.tolist()
    for leaf, margin in zip(chosen, small, strict=True):
        leaf.at, leaf.margin = 1e-3, margin
    branching._compared(rough, chosen)
    assert [leaf.near for leaf in chosen] == [1e-3, 1e-3]  # where nothing is lost, they are compared there


def test_margins_of_halves_are_those_within_the_radius_that_was_asked_for() -> None:
    branching = grown()
    rough = branching.problem.draft() or branching.problem
    for leaf in branching.leaves:
        (draft,) = branching._drafts(rough, [leaf], leaf.cuts, [WIDE])
        assert leaf.margin == pytest.approx(float(draft.least), rel=1e-3)


def test_goals_come_closer_where_bounds_have_broken_down() -> None:
    branching = Branching(problem())
    near = [0.01, 0.01]
    goals = branching.nearer([WIDE, 0.011], near)
    assert near[0] < goals[0] < WIDE  # nothing is proved there by far
    assert goals[1] == pytest.approx(0.011, rel=1e-6)
    assert goals == torch.tensor(goals, dtype=torch.float32).tolist()  # as drafts have them
    assert branching.nearer([0.0, 0.0], near) == [0.0, 0.0]


def test_margins_at_rest_are_those_within_nothing() -> None:
    asked = problem()
    within = asked.margins(torch.zeros(2).double(), rounding=False).least
    assert asked.at_rest() == pytest.approx(within.tolist(), rel=1e-9)


def test_pieces_with_much_to_spare_are_looked_at_once_for_several_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    branching, asked = Branching(problem()), list[int]()
    drafts = Branching._drafts

    def counted(self: Branching, rough: Problem, leaves: list[Leaf], *rest: object) -> object:
        asked.append(len(leaves))
        return drafts(self, rough, leaves, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Branching, "_drafts", counted)
    for radius, new in ((1e-3, 2), (1.01e-3, 2), (1.1e-3, 0)):  # the second time it is known what they have to spare
        asked.clear()
        branching.grow([radius] * 2, 1)
        assert sum(asked) == new
        assert all(leaf.margin > 0 for leaf in branching.leaves)


def test_a_piece_that_cannot_be_cut_is_not_taken_for_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> torch.Tensor:
        return torch.zeros(2, 1, 1, 8, dtype=torch.float64)

    branching = Branching(problem())
    monkeypatch.setattr(branch, "directions", nowhere)
    monkeypatch.setattr(branch, "groups", lambda _: [Group("all", (), 1)])
    assert branching.grow([WIDE, WIDE], 4) is False
    assert [leaf.whole for leaf in branching.leaves] == [True, True]
    assert all(leaf.margin < 0 for leaf in branching.leaves)
    assert branching.grow([WIDE, WIDE], 4) is False


def test_directions_that_nobody_asks_for_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = problem()
    graph, ball = asked.compiled.graph, asked.ball(torch.ones(2).double(), [0, 1])
    none, found = Cuts.none(2, ball.centre.new_zeros(1, 8)), groups(graph)
    every = directions(graph, ball, none, found, torch.tensor([100, 100]))
    looked, moves = list[str](), module._moves

    def counted(graph: Graph, ball: Ball, values: list[torch.Tensor], x: torch.Tensor, group: Group, *more: Any) -> Any:
        looked.append(group.name)
        return moves(graph, ball, values, x, group, *more)

    monkeypatch.setattr(module, "_moves", counted)
    few = directions(graph, ball, none, found, torch.tensor([2, 1]))
    assert looked == ["scores"]  # the first two are theirs
    assert few.flatten(2).any(dim=2).sum(dim=1).tolist() == [2, 1]
    assert torch.equal(few[0], every[0, :2])
    assert torch.equal(few[1, 0], every[1, 0])

"""The floor: counted by hand on a small case, never above what the engine does, and from the nodes it sweeps from."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import certiformer as cf
from certiformer.core.counting import Rows, work_of
from certiformer.core.engine import Engine
from certiformer.core.problem import Problem
from certiformer.questions.inputs import prepare, problem_of
from certiformer_reproduction.bench.machine import Rates
from certiformer_reproduction.bench.models import random_model


class Small(nn.Module):
    """Two positions of width 3, each through 3 -> 5 -> relu -> 4; their sum through 4 -> 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 5), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(torch.relu(self.first(x))).sum(dim=1))


def problem(model: cf.Model, inputs: object, method: str, relaxation: str = "paper", sets: int = 2) -> Problem:
    prepared = prepare(model, inputs)  # type: ignore[arg-type]
    questions = [(prepared, (i,)) for i in range(1, 1 + sets)]
    return problem_of(questions, p=2.0, method=method, relaxation=relaxation, budget="fast")  # type: ignore[arg-type]


def test_counted_by_hand() -> None:
    """Two instances, fully backward. The only node with a box is the first linear one [1, 2, 5]: from it, the identity
    times the weights is the weights themselves, no product. From the output, one row (label - other):

    last    [1 row] x [2 x 4], the same for both sides but one for each instance     2 * (1 * 2 * 4)
    sum     to two positions: copies, no product
    second  [1 row, 2 positions, 4] x [4 x 5]                                         2 * (2 * 4 * 5)
    relu    each alone; from here on the two sides differ
    first   the same at both positions: only the one that varies,
            [2 sides, 1 row, 1 position, 5] x [5 x 3]                                 2 * (2 * 1 * 5 * 3)
    """
    torch.manual_seed(0)
    model = cf.Model(module=Small())
    prepared = prepare(model, torch.randn(2, 3, dtype=torch.float64))
    asked = problem_of([(prepared, (0,)), (prepared, (1,))], p=2.0, method="backward", relaxation="paper")
    assert [s.node.shape for s in asked.scheme.steps if s.kind != "planes"] == [(1, 2, 5)]
    work = work_of(asked)
    instances = 2
    assert work.flops == instances * (2 * 1 * 2 * 4 + 2 * 2 * 4 * 5 + 2 * 2 * 1 * 5 * 3)
    moved = [
        instances * 2 + 2 * 4 + instances * 4,
        instances * 2 * 4 + 4 * 5 + instances * 2 * 5,
        2 * instances * 1 * 5 + 5 * 3 + 2 * instances * 1 * 3,
    ]
    assert work.bytes == 8 * sum(moved)
    assert work.seconds(Rates(1.0, float("inf"), "")) == work.flops
    assert work.seconds(Rates(float("inf"), 1.0, "")) == work.bytes


@pytest.mark.parametrize(
    ("method", "relaxation"),
    [
        ("backward-forward", "paper"),
        ("backward-forward", "tight"),
        ("backward", "paper"),
        ("backward", "tight"),
        ("forward", "paper"),
        ("forward", "tight"),
    ],
)
def test_sweeps_are_those_of_the_engine_and_products_no_more(
    method: str, relaxation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = problem(random_model(2, 16), [2, 5, 6, 7, 3], method, relaxation)
    seen: list[int] = []
    real = Engine.sweep

    def sweep(self, start, rows, **options):
        if rows.links != (None,):  # not the rows of the output
            seen.append(start.index)
        return real(self, start, rows, **options)

    monkeypatch.setattr(Engine, "sweep", sweep)
    with FlopCounterMode(display=False) as counter:
        asked.margins(torch.full((2,), 1e-3), rounding=False)
    expected = [(asked.scheme.pairs(s.node) or s.node).index for s in asked.scheme.steps if s.kind != "planes"]
    assert expected == seen
    assert 0.5 * counter.get_total_flops() < work_of(asked).flops <= counter.get_total_flops()


def test_rows_move_like_coefficients() -> None:
    rows = Rows.identity((1, 4, 6))
    assert (rows.free, rows.size) == (1, 1)
    assert rows.unlink(2).free == 6
    assert rows.permute((0, 2, 1)).linked == (None, 2, 1)
    split = rows.reshape((1, 4, 6), (1, 4, 2, 3))
    assert split.linked == (None, 1, None, None)
    assert split.size == 6 * 6
    assert (rows + rows.unlink(1)).linked == (None, None, 2)
    assert (rows.unlink(1).at(1, 3).size, rows.at(1, 3).size, rows.at(1, 9)) == (12, 1, rows)
    one = Rows.identity((1, 1, 6)).unlink(2).pad(1, 2, 4)  # a slice of one position: its zeros are not held
    assert (one.node, one.linked, one.size) == ((1, 4, 6), (None, 0, None), 36)
    assert [one.extent(axis) for axis in range(3)] == [1, 1, 6]
    assert Rows.dense(2, (1, 1, 6), 1).pad(1, 2, 4).size == 48

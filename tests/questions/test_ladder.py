"""Which bounds there is time for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from certiformer.core.counting import work_of
from certiformer.core.deadline import Deadline
from certiformer.core.problem import Problem
from certiformer.questions.inputs import prepare, problem_of
from certiformer.questions.ladder import BUSY, SHARE, predicted, tighter
from conftest import IDS, random_model


def problem(method: str, *, cuda: bool) -> Problem:
    made = problem_of([(prepare(random_model(layers=3), IDS), (1,))], p=2.0, method=method, relaxation="tight")
    return replace(made, compiled=replace(made.compiled, cuda=cuda))


@pytest.mark.parametrize("cuda", [False, True])
def test_a_cpu_goes_by_operations_and_a_gpu_by_kernels_until_these_keep_it_busy(cuda: bool) -> None:
    cheap, dear = (problem(m, cuda=cuda) for m in ("backward-forward", "backward"))
    own, others = work_of(cheap), work_of(dear)
    by_operations, by_kernels = others.flops / own.flops, len(others.products) / len(own.products)
    assert by_operations > by_kernels > 1
    assert predicted(cheap, dear, 2.0) == pytest.approx(2 * (by_kernels if cuda else by_operations))
    least = others.flops / BUSY
    assert predicted(cheap, dear, 1e-12) == (least if cuda else pytest.approx(1e-12 * by_operations))


def test_tighter_bounds_are_taken_where_so_many_evaluations_fit_in_their_share_of_the_time() -> None:
    cheap, dear = (problem(m, cuda=False) for m in ("backward-forward", "backward"))
    each = predicted(cheap, dear, 1.0)
    enough = replace(cheap, deadline=Deadline.after(1.2 * 3 * each / SHARE))
    taken = tighter(enough, lambda: dear, seconds=1.0, evaluations=3.0)
    assert taken is not None
    assert (taken.method, taken.deadline) == ("backward", enough.deadline)
    little = replace(cheap, deadline=Deadline.after(1.0 / SHARE))
    assert tighter(little, lambda: dear, seconds=1.0, evaluations=3.0) is None

"""A little of the fuzzing, the same every time, and what it is worth: operators are reached, and errors are found."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from certiformer.core.graph.build import Builder
from certiformer.core.lowering import TABLE
from certiformer.core.ops.base import Box
from certiformer.core.ops.elementwise import Tanh
from certiformer.core.ops.softmax import OfDifferences

from .blocks import BLOCKS
from .cases import EXTRAS, METHODS, Ask, Case, cases, check, counts
from .functions import exact
from .modules import Exact
from .programs import READERS, Step

TOGETHER = 7  # blocks in one model


@settings(max_examples=4, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(case=cases)
def test_nothing_leaves_its_bounds(case: Case) -> None:
    check(case)


def groups() -> list[tuple[Step, ...]]:
    names = sorted(BLOCKS)
    stride = -(-len(names) // TOGETHER)
    return [tuple(Step(name, seed=k, size=0.5) for name in names[k::stride]) for k in range(stride)]


@pytest.fixture(scope="module")
def reached() -> set[Any]:
    """The operators that models made of all blocks are lowered through; each of these models is checked on the way."""
    found: set[Any] = set()
    with pytest.MonkeyPatch.context() as patch:
        lowered = Builder.call

        def noted(self: Builder, operator: Any, *rest: Any) -> Any:
            found.add(operator)
            return lowered(self, operator, *rest)

        patch.setattr(Builder, "call", noted)
        for k, steps in enumerate(groups()):
            ask = Ask(
                method=METHODS[k % len(METHODS)],
                relaxation=("tight", "paper")[k % 2],
                norm=(1.0, 2.0, torch.inf)[k % 3],
                eps=1e-3,
                extra=EXTRAS[k % len(EXTRAS)],
                words=1 + k % 3,
                beside=bool(k % 2),
            )
            check(Case(steps=steps, asks=(ask,), reader=READERS[k % len(READERS)], seed=k, classes=3))
    return found


def test_every_operator_is_reached(reached: set[Any]) -> None:
    """But for those that torch.export takes apart, or takes out, before they are seen."""
    missing = {o for o in TABLE if o not in reached}
    assert {str(o) for o in missing if not o._can_decompose()} <= {"aten.lift_fresh_copy.default"}
    assert counts["values"] > 1000
    assert counts["sets with an answer"] > len(groups()) // 2


@pytest.mark.parametrize("steps", groups(), ids=lambda s: s[0].name)
def test_many_digits_agree_with_the_module(steps: tuple[Step, ...]) -> None:
    case = Case(steps=steps, asks=())
    with mp.workdps(50), torch.no_grad():
        found = Exact(case.module, case.x)(exact(case.x))
        expected = case.module(case.x)
    torch.testing.assert_close(torch.tensor(found.astype(float)), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("op", "name", "part"), [(Tanh, "tanh", 1e-9), (OfDifferences, "attention", 0.5)])
def test_what_is_wrong_is_found(op: Any, name: str, part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box that is too small by a part of its width."""
    honest = op.interval

    def narrow(self: Any, *boxes: Box) -> Box:
        box = honest(self, *boxes)
        return Box(box.lower + part * box.radius, box.upper - part * box.radius)

    monkeypatch.setattr(op, "interval", narrow)
    case = Case(steps=(Step(name),), asks=(Ask(relaxation="tight", norm=torch.inf),))
    with pytest.raises(AssertionError, match="is not in"):
        check(case)

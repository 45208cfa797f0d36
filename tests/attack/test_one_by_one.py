"""Modules that take no batches, or cut gradients off, are attacked all the same, and no proof is lost over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

import certiformer as cf
from certiformer.questions import verdict
from conftest import IDS, random_model


class OneByOne(nn.Module):
    """Takes one input at a time, as many modules written for one sentence do."""

    def __init__(self, module: nn.Module, *, says: bool) -> None:
        super().__init__()
        self.inner, self.says = module, says

    def forward(self, x: Tensor) -> Tensor:
        if self.says and len(x) != 1:
            raise NotImplementedError("one sentence at a time")
        logits: Tensor = self.inner(x[:1])
        return logits


class Detached(OneByOne):
    """Cuts gradients off."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.detach())  # type: ignore[no-any-return]


@pytest.mark.parametrize("says", [True, False])
def test_a_module_that_takes_one_input_at_a_time_is_attacked_all_the_same(says: bool) -> None:
    model = random_model()
    single = replace(model, module=OneByOne(model.module, says=says))
    expected, found = (cf.attack(m, IDS, positions=[[1], [3]]) for m in (model, single))
    assert found.radii == pytest.approx(expected.radii, rel=0.05)
    verdict = cf.certify(single, IDS, eps=2 * max(found.radii), positions=[[1], [3]])
    assert verdict.status == "refuted"


def test_a_module_without_gradients_keeps_its_proof() -> None:
    model = random_model()
    cut = replace(model, module=Detached(model.module, says=False))
    small = min(cf.radius(model, IDS, positions=[[1]]).radii) / 2
    assert cf.certify(cut, IDS, eps=small, positions=[[1]]).status == "certified"
    attacked = cf.attack(cut, IDS, positions=[[1]])
    assert attacked.radii[0] >= small


def test_a_proof_that_an_attack_contradicts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    far = 2 * max(cf.attack(model, IDS, positions=[[1], [3]]).radii)
    assert cf.certify(model, IDS, eps=far, positions=[[1], [3]]).status == "refuted"
    right = verdict.margins_within

    def wrong(*args: Any, **more: Any) -> Any:
        found = right(*args, **more)
        return replace(
            found, lower=found.lower.abs() + 1, least=found.least.abs() + 1, reasons=(None,) * len(found.reasons)
        )

    monkeypatch.setattr(verdict, "margins_within", wrong)
    result = cf.certify(model, IDS, eps=far, positions=[[1], [3]])
    assert (result.status, result.statuses) == ("error", ("error", "error"))
    assert result.counterexample is not None
    assert result.counterexample.radius <= far
    assert result.reason == verdict.CONTRADICTION

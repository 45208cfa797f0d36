"""Where there is less memory than it seemed: less is taken, and what is proved stays the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core.engine import Engine
from conftest import IDS, random_model

ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    MemoryError(),
)
SETS = [[1], [2], [3]]


class Little:
    """An engine runs out of memory where it may take more than there is, or bounds too many instances at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception, *, room: int, instances: int = 99) -> None:
        self.failed, plain = 0, Engine.margins

        def margins(engine: Engine, *args: Any) -> Any:
            if engine.memory > room // 2 or len(engine.ball.centre) > instances:
                self.failed += 1
                raise error
            return plain(engine, *args)

        monkeypatch.setattr(Engine, "margins", margins)


OPTIONS: dict[str, Any] = {"positions": SETS, "max_memory": 1 << 28}


@pytest.fixture(scope="module")
def plain() -> cf.RadiusResult:
    """With all the memory that there is."""
    return cf.radius(random_model(), IDS, **OPTIONS)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_out_of_memory_takes_less_and_goes_on(
    error: Exception, plain: cf.RadiusResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = Little(monkeypatch, error, room=1 << 24)
    found = cf.radius(random_model(), IDS, **OPTIONS)
    assert found.radii == pytest.approx(plain.radii, rel=1e-3)
    assert 0 < little.failed <= 2 * 4  # four halvings of the drafts and four of the proofs, not of every evaluation


def test_out_of_memory_together_is_bounded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(layers=2)
    plain = cf.bounds(model, IDS, eps=0.01, positions=SETS)
    little = Little(monkeypatch, ERRORS[0], room=1 << 60, instances=1)
    found = cf.bounds(model, IDS, eps=0.01, positions=SETS)
    assert torch.allclose(found.lower, plain.lower, rtol=1e-9)
    assert little.failed > 0


def test_what_never_fits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Little(monkeypatch, ERRORS[0], room=0)
    with pytest.raises(torch.OutOfMemoryError):
        cf.radius(random_model(), IDS)


def test_what_was_proved_is_the_answer_where_more_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def tuned(self: Any, *args: Any, **options: Any) -> Any:
        raise ERRORS[0]

    model = random_model()
    plain = cf.radius(model, IDS)
    monkeypatch.setattr("certiformer.core.problem.Problem.tuned", tuned)
    found = cf.radius(model, IDS, steps=2, splits=0)
    assert found.radii == plain.radii
    assert (found.complete, found.stopped) == (False, "out of memory")
    assert cf.certify(model, IDS, eps=min(plain.radii) / 2, steps=2).status == "certified"

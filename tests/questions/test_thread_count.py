"""Threads: a small model takes one, what somebody has chosen wins, and everything is as it was afterwards."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.questions import threads as deciding
from conftest import IDS, random_model


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that PyTorch is told, on a machine of four cores that nobody has configured."""
    told: list[int] = [4]
    monkeypatch.setattr(deciding.os, "cpu_count", lambda: 4)
    for name in deciding.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    return told


def test_a_small_model_takes_one_thread_and_gives_the_others_back(counted: list[int]) -> None:
    cf.radius(random_model(), IDS, method="ibp")
    assert counted == [4, 1, 4]


@pytest.mark.parametrize("name", ["sst-1", "sst-2", "sst-3"])
def test_the_bundled_models_are_small(counted: list[int], name: str) -> None:
    cf.bounds(name, "a film", eps=1e-3, method="ibp")
    assert counted == [4, 1, 4]


def test_they_are_given_back_when_a_question_fails(counted: list[int]) -> None:
    with pytest.raises(cf.InputError):
        cf.Certifier(random_model()).radius(IDS, positions=[[0]])
    assert counted == [4, 1, 4]


def test_a_wide_model_keeps_them(counted: list[int]) -> None:
    wide = random_model(hidden_size=deciding.SMALL + 2)
    cf.bounds(wide, IDS, eps=1e-3, method="ibp")
    assert counted == [4]


def test_what_is_asked_for_wins(counted: list[int]) -> None:
    cf.radius(random_model(), IDS, method="ibp", threads=3)
    assert counted == [4, 3, 4]


@pytest.mark.parametrize("name", deciding.VARIABLES)
def test_a_variable_of_the_environment_wins(counted: list[int], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "4")
    cf.radius(random_model(), IDS, method="ibp")
    assert counted == [4]


def test_a_number_set_in_the_program_wins(counted: list[int]) -> None:
    counted.append(1)
    cf.radius(random_model(), IDS, method="ibp")
    assert counted == [4, 1]


def test_two_threads_of_a_program_leave_its_number_alone() -> None:
    before = torch.get_num_threads()
    certifier = cf.Certifier(random_model(layers=2, seed=4), threads=1, tolerance=0.1)
    alone = certifier.radius(IDS)
    found: list[tuple[float, ...]] = []
    workers = [threading.Thread(target=lambda: found.append(certifier.radius(IDS).radii)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [alone.radii] * 3
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_mode_of_the_caller_reaches_an_answer(dtype: Any) -> None:
    """Autocast would compute the bounds themselves in bfloat16, and no attack finds its way in inference mode."""
    model = random_model()
    ask = cf.Certifier(model, dtype=dtype)
    expected = ask.bounds(IDS, eps=0.01)
    for mode in (torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode()):
        with mode:
            assert torch.equal(ask.bounds(IDS, eps=0.01).lower, expected.lower)
            assert torch.equal(cf.bounds(model, IDS, eps=0.01, dtype=dtype).lower, expected.lower)
            assert cf.certify(model, IDS, eps=1e-4, dtype=dtype).status == "certified"
            assert min(cf.radius(model, IDS, dtype=dtype, tolerance=0.1).radii) > 0
            assert cf.certify(model, torch.ones(4, 8), eps=100.0, dtype=dtype).status == "refuted"

"""Threads that certify at once, on one model and on two: the same bits as one after the other."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer import core
from certiformer.core.problem import Problem
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model
from spread import spread

ROUNDS = 4
SETS = ((1,), (2, 3))
EPS = torch.tensor([0.02, 0.01], dtype=torch.float64)


def problem(seed: int, method: Any, dtype: torch.dtype = torch.float64) -> Problem:
    prepared = prepare(random_model(layer_norm="standard", scale=0.3, seed=seed), IDS, dtype=dtype)
    return problem_of([(prepared, s) for s in SETS], p=2.0, method=method, relaxation="tight")


def at_once(*tasks: Callable[[], Any]) -> list[list[Any]]:
    """What each task gave in each round, all of them started together."""
    gate = threading.Barrier(len(tasks))

    def run(task: Callable[[], Any]) -> list[Any]:
        gate.wait()
        return [task() for _ in range(ROUNDS)]

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(run, task) for task in tasks]]


def bits(problem: Problem) -> tuple[list[float], list[float], tuple[str | None, ...]]:
    found = problem.margins(EPS.to(problem.centre))
    return found.lower.flatten().tolist(), found.upper.flatten().tolist(), found.reasons


@pytest.mark.parametrize(
    ("method", "dtype"), spread(["ibp", "backward-forward", "backward"], [torch.float64, torch.float32])
)
def test_threads_that_share_a_problem_or_not_find_the_same_bits(method: Any, dtype: torch.dtype) -> None:
    one, two = problem(1, method, dtype), problem(2, method, dtype)
    expected = {id(p): bits(p) for p in (one, two)}
    flags = torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    tasks = [one, one, two]
    for asked, rounds in zip(tasks, at_once(*(lambda p=p: bits(p) for p in tasks)), strict=True):
        assert all(found == expected[id(asked)] for found in rounds)
    assert flags == (torch.backends.mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision)


def test_tuned_planes_and_a_proof_at_once() -> None:
    asked = problem(3, "backward-forward")

    def tuned() -> list[float]:
        values: list[float] = asked.tuned(EPS, steps=1).margins(EPS).lower.flatten().tolist()
        return values

    expected = tuned(), bits(asked)
    found = at_once(tuned, lambda: bits(asked))
    assert all(r == expected[0] for r in found[0])
    assert all(r == expected[1] for r in found[1])


def kept() -> dict[tuple[str, str], list[str]]:
    """Everything at the level of a module of the core that could change, with what it holds."""
    found = {}
    for info in pkgutil.walk_packages(core.__path__, f"{core.__name__}."):
        if not info.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(info.name)).items():
                assert not hasattr(value, "cache_info"), f"{info.name}.{name} is a cache of its own"
                if not name.startswith("__") and isinstance(value, (dict, list, set, deque)):
                    found[info.name, name] = sorted(map(str, value))
    return found


def test_nothing_is_kept_at_the_level_of_a_module() -> None:
    """There are tables, which stay as they are."""
    before = kept()
    assert before
    model = random_model(layers=1, layer_norm="standard", seed=8)
    cf.radius(model, IDS, positions=[[1]], splits=2, tolerance=0.1)
    cf.radius(model, IDS[:-1], positions=[[2]], norm=1, method="backward-forward", relaxation="paper", tolerance=0.1)
    cf.certify(model, IDS, eps=0.01, positions=[[1]])
    assert kept() == before


def test_radii_of_one_model_at_once() -> None:
    """From the model on: threads capture it, search and prove at the same time."""
    model, other = random_model(layers=1, seed=5), random_model(layers=1, layer_norm="none", seed=6)
    asked: dict[str, Any] = {"positions": [[1], [3]], "tolerance": 1e-2}
    expected = {id(m): cf.radius(m, IDS, **asked).radii for m in (model, other)}
    tasks = [model, model, other]
    found = at_once(*(lambda m=m: cf.radius(m, IDS, **asked).radii for m in tasks))
    for m, rounds in zip(tasks, found, strict=True):
        assert all(radii == expected[id(m)] for radii in rounds)

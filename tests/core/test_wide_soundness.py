"""No point of a box, or of a ball with one norm over several positions, leaves the bounds of any node of the engine."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from certiformer.core.branch import divide
from certiformer.core.names import METHODS
from certiformer.core.problem import Problem
from certiformer.core.split import Split
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model
from enclosure import enclosed

KINDS = ("joint", "wide", "wide and joint", "all positions")
WAYS = [(method, relaxation) for method in METHODS for relaxation in ("paper", "tight")]
CASES = list(zip(WAYS, itertools.cycle(KINDS), itertools.cycle((1.0, 2.0, math.inf)), strict=False))


def made(kind: str, method: str, relaxation: str, p: float, dtype: torch.dtype = torch.float64) -> Problem:
    prepared = prepare(random_model(layer_norm="standard", scale=0.3), IDS, dtype=dtype)
    every = tuple(range(len(IDS)))
    sets = [every, every] if kind == "all positions" else [(1, 3), (2,)]
    questions = [(prepared, s) for s in sets]
    problem = problem_of(questions, p=p, joint="joint" in kind, method=method, relaxation=relaxation)
    t, d = max(len(s) for s in sets), problem.centre.shape[-1]
    width = torch.rand(2, t, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    width[:, :, 0] = 0  # a number that stays
    return dataclasses.replace(problem, width=width) if kind != "joint" else problem


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_point_leaves_the_bounds_of_any_node(case: tuple[tuple[str, str], str, float]) -> None:
    (method, relaxation), kind, p = case
    problem = made(kind, method, relaxation, p)
    eps = torch.tensor([0.02, 0.05], dtype=torch.float64) * (0.1 if method == "ibp" else 1)
    assert enclosed(problem, eps, samples=30) > 30


@pytest.mark.parametrize("kind", ["joint", "all positions"])
def test_in_single_precision_and_in_pieces(kind: str) -> None:
    eps = torch.tensor([0.02, 0.05])
    assert enclosed(made(kind, "backward", "tight", math.inf, torch.float32), eps, samples=30) > 30
    eps, problem, cheap = eps.double(), *(made(kind, m, "tight", 2.0) for m in ("backward", "backward-forward"))
    for _ in range(12):
        found = divide(cheap, eps, 4)  # where balls are cut makes no difference to what holds in the pieces
        if isinstance(found, Split) and len(found.owners) > len(found):
            assert found.pieces.cuts is not None
            assert enclosed(Split.cut(problem, list(found.owners), found.pieces.cuts), eps, samples=30) > 30
            return
        eps = 2 * eps
    raise AssertionError("nothing was cut")

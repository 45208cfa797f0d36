"""Nothing leaves its bounds: sampled and attacked points, every node, with the engine that answers questions.

Methods, relaxations, precisions, pieces and optimised planes all meet; norms, kinds of LayerNorm, numbers of layers and
sets of one to three words are spread over them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any

import pytest
import torch

from certiformer.core.branch import divide
from certiformer.core.coefficients import Coefficients
from certiformer.core.engine import Engine
from certiformer.core.form import Form, Substitution
from certiformer.core.ops.base import Box
from certiformer.core.ops.normalize import Normalize
from certiformer.core.ops.softmax import OfDifferences
from certiformer.core.problem import Problem
from certiformer.core.relaxation import Scheme, Style
from certiformer.core.sets import Cuts
from certiformer.core.split import Split
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model
from enclosure import WAYS, enclosed
from kinds import prepared as of_kind
from spread import spread

METHODS = ("forward", "backward", "backward-forward")
NORMS = (1.0, 2.0, math.inf, 1.5)
LAYER_NORMS = ("no_var", "standard", "none")
SETS = ([(1,), (3,)], [(1, 2), (3,)], [(1, 2, 3), (2,)])
RADII = {1.0: 0.2, 2.0: 0.1, math.inf: 0.03, 1.5: 0.15}
EXTRAS = ("", "float32", "splits", "steps", "splits and steps")


@dataclass(frozen=True)
class Case:
    """One way of asking."""

    method: Any
    relaxation: Any
    extra: str
    norm: float
    layer_norm: str
    layers: int
    sets: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        words = "+".join(str(len(s)) for s in self.sets)
        norm = f"l{self.norm:g}"
        return f"{self.method} {self.relaxation} {norm} {self.layer_norm} {self.layers} {words} {self.extra}".strip()

    def problem(self) -> tuple[Problem, torch.Tensor]:
        """The problem and its radii: where there are to be pieces, the first at which a ball is cut into some."""
        dtype = torch.float32 if self.extra == "float32" else torch.float64
        model = random_model(layers=self.layers, layer_norm=self.layer_norm, scale=0.3, seed=7 * self.layers)
        prepared = prepare(model, IDS, dtype=dtype)
        questions = [(prepared, s) for s in self.sets]
        whole = problem_of(questions, p=self.norm, method=self.method, relaxation=self.relaxation)
        eps = torch.tensor([1, 0.5], dtype=dtype) * RADII[self.norm] * (0.05 if self.method == "ibp" else 1)
        if "splits" not in self.extra:
            return self._tuned(whole, eps), eps
        owners, cuts, times = cut(self.norm, self.layer_norm, self.layers, self.sets)
        return Split.cut(self._tuned(whole, times * eps), owners, cuts), times * eps

    def _tuned(self, problem: Problem, eps: torch.Tensor) -> Problem:
        if "steps" not in self.extra:
            return problem
        problem = problem.tuned(eps, steps=1)
        assert problem.parameters
        return problem


@cache
def cut(norm: float, layer_norm: str, layers: int, sets: tuple[tuple[int, ...], ...]) -> tuple[list[int], Cuts, int]:
    """Pieces as a cheap method chooses them: where balls are cut makes no difference to what holds in the pieces."""
    case = Case("backward-forward", "tight", "", norm, layer_norm, layers, sets)
    problem, eps = case.problem()
    for doublings in range(10):
        found = divide(problem, 2**doublings * eps, 4)
        if isinstance(found, Split) and len(found.owners) > len(found):
            assert found.pieces.cuts is not None
            return list(found.owners), found.pieces.cuts, 2**doublings
    raise AssertionError("nothing was cut")


FEW_DEEP, MANY_DEEP = (1, 1, 1, 1, 2), (1, 2)


def cases(layers: tuple[int, ...] = FEW_DEEP) -> list[Case]:
    """Every way of asking in turn with the norms, kinds of LayerNorm and numbers of layers."""
    ways = [
        (method, relaxation, extra)
        for extra in EXTRAS
        for method, relaxation in WAYS
        if method != "ibp" or extra in ("", "float32")
    ]
    together = zip(ways, itertools.cycle(NORMS), itertools.cycle(LAYER_NORMS), itertools.cycle(layers), strict=False)
    return [
        Case(*way, norm, layer_norm, deep, tuple(SETS[(k // 2) % len(SETS)]))
        for k, (way, norm, layer_norm, deep) in enumerate(together)
    ]


DEEPER = [pytest.param(case, marks=pytest.mark.slow) for case in cases(MANY_DEEP) if case not in cases()]


@pytest.mark.parametrize("case", [*cases(), *DEEPER], ids=str)
def test_no_point_leaves_the_bounds_of_any_node(case: Case) -> None:
    problem, eps = case.problem()
    assert enclosed(problem, eps, samples=60) > 60


def test_every_norm_and_layer_norm_meets_every_extra() -> None:
    """What the spread is worth."""
    found = cases()
    for extra in EXTRAS:
        some = [c for c in found if c.extra == extra]
        assert {c.method for c in some} >= set(METHODS)
        assert {c.norm for c in some} == set(NORMS)
        assert {c.layer_norm for c in some} == set(LAYER_NORMS)
        assert {c.layers for c in some} == {1, 2}
        assert {len(s) for c in some for s in c.sets} == {1, 2, 3}


OTHER = ("post", "pre", "pre, one layer, read inside", "products")


@pytest.mark.parametrize(("way", "kind", "p"), spread(WAYS[2:], OTHER, NORMS[::-1], times=2))
def test_no_point_leaves_the_bounds_of_models_of_other_kinds(way: tuple[Any, Any], kind: str, p: float) -> None:
    questions = [(of_kind(kind), s) for s in ((2,), (1, 3))]
    problem = problem_of(questions, p=p, method=way[0], relaxation=way[1])
    eps = torch.tensor([RADII[p] / 2, RADII[p] / 8], dtype=torch.float64)
    assert enclosed(problem, eps, samples=60) > 60


@pytest.mark.parametrize("layer_norm", LAYER_NORMS)
def test_three_layers(layer_norm: str) -> None:
    for k, (method, relaxation) in enumerate((("backward", "tight"), ("backward-forward", "paper"))):
        case = Case(method, relaxation, "", NORMS[k + 1], layer_norm, 3, ((2,), (1, 3)))
        eps = torch.tensor([0.01, 0.002], dtype=torch.float64)
        assert enclosed(case.problem()[0], eps, samples=40) > 40


def test_nothing_that_a_bound_rests_on_has_a_default() -> None:
    for kind in (Engine, Scheme, Style, Problem, Split):
        given = [f for f in fields(kind) if f.init]
        assert given
        assert all(f.default is MISSING and f.default_factory is MISSING for f in given), kind
    assert not Form._field_defaults
    assert not Substitution._field_defaults


def narrower(box: Box) -> Box:
    return Box(box.lower / 2 + box.centre / 2, box.upper / 2 + box.centre / 2)


@pytest.fixture(scope="module")
def right() -> tuple[Problem, torch.Tensor]:
    """A problem with nothing wrong."""
    eps = torch.tensor([0.004, 0.002], dtype=torch.float64)
    problem, _ = Case("backward", "tight", "", 2.0, "standard", 2, ((1,), (1, 2))).problem()
    assert enclosed(problem, eps, samples=60) > 60
    return problem, eps


@pytest.mark.parametrize("broken", ["shift", "range", "probabilities", "local"])
def test_what_is_wrong_is_noticed(
    broken: str, right: tuple[Problem, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simplex shift, the intersection with the range of an op, probabilities and local nodes: each is checked."""
    problem, eps = right
    if broken == "shift":
        honest = Coefficients.shifted
        monkeypatch.setattr(Coefficients, "shifted", lambda self, w: (self.scaled(0), honest(self, w)[1]))
    elif broken == "local":
        plain = problem.compiled.plain
        local = {i: replace(known, block=known.block * 0.1) for i, known in plain.local.items()}
        problem = replace(problem, compiled=replace(plain, local=local))
    else:
        op = Normalize if broken == "range" else OfDifferences
        monkeypatch.setattr(op, "interval", lambda self, *boxes, f=op.interval: narrower(f(self, *boxes)))
    with pytest.raises(AssertionError, match="its bound"):
        enclosed(problem, eps, samples=60)


def test_zero_radius_gives_the_margin_itself() -> None:
    model = random_model(layers=2, scale=0.3, seed=2)
    prepared = prepare(model, IDS)
    exact = prepared.logits[0, prepared.label] - prepared.logits[0]
    expected = torch.cat([exact[: prepared.label], exact[prepared.label + 1 :]])
    for method, relaxation in WAYS:
        problem = problem_of([(prepared, (2,))], p=2.0, method=method, relaxation=relaxation)
        found = problem.margins(torch.zeros(1, dtype=torch.float64))
        torch.testing.assert_close(found.lower[0], expected, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(found.upper[0], expected, rtol=1e-7, atol=1e-7)

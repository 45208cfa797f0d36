"""A million points inside of certified balls, attacked and sampled: none may change the prediction."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import certiformer as cf
from certiformer.core.names import METHODS, RELAXATIONS
from certiformer.core.sets import Ball
from certiformer.models import BUNDLED, Model
from certiformer.models.network import Classifier
from certiformer.questions.inputs import margins, prepare
from conftest import IDS, random_model

STEPS, STARTS = 12, 320
WAYS = [("auto", "tight"), *itertools.product(METHODS, RELAXATIONS)]
NORMS = (1.0, 2.0, math.inf, 1.5)
EXTRAS: tuple[dict[str, Any], ...] = ({}, {"dtype": "float32"}, {"splits": 4}, {"steps": 1, "splits": 0}, {"steps": 1})
SENTENCES = ("a gripping , funny film with a great cast", "the plot is dull and the jokes are tired")
WANTED = 1_000_000


@dataclass(frozen=True)
class Case:
    """A model, an input, and a way of asking."""

    model: str
    method: str
    relaxation: str
    norm: float
    words: int
    extra: tuple[tuple[str, Any], ...]

    @property
    def options(self) -> dict[str, Any]:
        return {"method": self.method, "relaxation": self.relaxation, "tolerance": 0.01, **dict(self.extra)}

    def open(self) -> tuple[Model, Any]:
        if self.model in BUNDLED:
            return cf.load(self.model), SENTENCES[self.words % 2]
        layer_norm, layers = self.model.split()
        return random_model(layers=int(layers), layer_norm=layer_norm, scale=0.3, seed=self.words), IDS


def cases() -> list[Case]:
    """Every way meets every extra that it can take; models, norms and numbers of words are spread over them."""
    models = itertools.cycle(f"{kind} {layers}" for layers in (1, 2) for kind in ("no_var", "standard", "none"))
    norms, words = itertools.cycle(NORMS), itertools.cycle((1, 2, 3, 1, 2))
    found = [
        Case(next(models), method, relaxation, next(norms), next(words), tuple(extra.items()))
        for _ in range(3)
        for extra in EXTRAS
        for method, relaxation in WAYS
        if method != "ibp" or set(extra) <= {"dtype"}
    ]
    bundled = [
        Case(name, "auto", "tight", norm, 1, tuple(extra.items()))
        for name, norm, extra in zip(itertools.cycle(BUNDLED), NORMS, EXTRAS, strict=False)
    ]
    return found + bundled


def attacked(model: Any, ball: Ball, label: int, generator: torch.Generator) -> tuple[int, int]:
    """How many points of a ball were tried, and at how many of them the label is not the answer."""
    still = Ball(torch.zeros_like(ball.centre), ball.hot, ball.eps, ball.p)
    delta = torch.cat([still.sample(STARTS // 2, generator), still.sample(STARTS // 2, generator, boundary=False)], 1)
    radii = torch.einsum("zt,ztn->n", ball.eps, ball.hot)[:, None]
    delta, tried, flips = delta[0, :, 0], 0, 0
    for step in range(STEPS):
        points = (ball.centre[0] + within(delta, radii, ball.p)).requires_grad_(True)
        found = margins(model(points), label)
        tried, flips = tried + len(points), flips + int((found.detach() <= 0).sum())
        (gradient,) = torch.autograd.grad(found.sum(), points)
        delta = within(delta - radii * steepest(gradient, ball.p) * (0.5 if step % 2 else 0.1), radii, ball.p)
    return tried, flips


def steepest(g: Tensor, p: float) -> Tensor:
    """The direction of length 1 at each position along which `g` grows fastest (for p above 1 roughly so)."""
    if math.isinf(p):
        return g.sign()
    if p == 1:
        return g.sign() * (g.abs() >= g.abs().amax(dim=-1, keepdim=True))
    return g / torch.linalg.vector_norm(g, ord=p, dim=-1, keepdim=True).clamp(min=1e-300)


def within(delta: Tensor, radii: Tensor, p: float) -> Tensor:
    """Moves that are too long, cut down to just inside of the ball."""
    size = torch.linalg.vector_norm(delta, ord=p, dim=-1, keepdim=True).clamp(min=1e-300)
    return delta * (radii * (1 - 1e-9) / size).clamp(max=1)


def flips_of(case: Case, generator: torch.Generator) -> tuple[int, int, int]:
    """Balls that were certified, points tried in them, and flips."""
    model, text = case.open()
    found = cf.Certifier(model, **case.options).radius(text, norm=case.norm, words=case.words)
    prepared = prepare(model, text)
    assert isinstance(prepared.model.module, Classifier)
    balls = tried = flips = 0
    some = list(zip(found.positions, found.radii, strict=True))[:: max(1, len(found.radii) // 6)]
    for positions, radius in some:
        if radius > 0:
            ball = Ball.of(prepared.embeddings[None], [positions], torch.tensor([radius]).double(), case.norm)
            more = attacked(prepared.model.module, ball, found.label, generator)
            balls, tried, flips = balls + 1, tried + more[0], flips + more[1]
    return balls, tried, flips


@pytest.mark.slow
def test_a_million_points_in_certified_balls(capsys: pytest.CaptureFixture[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    balls = tried = flips = 0
    for case in cases():
        more = flips_of(case, generator)
        assert more[2] == 0, f"{more[2]} of {more[1]} points change the prediction: {case}"
        balls, tried, flips = balls + more[0], tried + more[1], flips + more[2]
    with capsys.disabled():
        print(f"\n{tried:,} points in {balls:,} certified balls of {len(cases())} ways of asking: {flips} flips")
    assert tried >= WANTED


def test_a_flip_is_counted() -> None:
    """What the million is worth: a ball that is too large holds flips, and they are found."""
    prepared = prepare(random_model(scale=0.5, seed=3), IDS)
    ball = Ball.of(prepared.embeddings[None], [(1, 2, 3)], torch.tensor([20.0]).double(), 2.0)
    tried, flips = attacked(prepared.model.module, ball, prepared.label, torch.Generator().manual_seed(0))
    assert tried == STEPS * STARTS
    assert flips > 0

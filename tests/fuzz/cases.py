"""A random model, an input and questions about it: how they are drawn, and what must hold."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mpmath as mp
import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import certiformer as cf
from certiformer.core.branch import divide
from certiformer.core.names import METHODS
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball, Piece
from certiformer.core.sets.ball import dual
from certiformer.core.split import Split
from certiformer.questions.inputs import prepare, problem_of
from enclosure import bounds_of, pushed

from . import graphs
from .blocks import BLOCKS
from .functions import Array, TooLarge, Undefined, exact
from .modules import Exact
from .programs import READERS, Program, Step

DIGITS = 80
SLACK = mp.mpf(10) ** -40
INPUTS = ("normal", "normal", "normal", "equal rows", "constant rows", "zeros", "one large")
EXTRAS = ("", "", "steps", "splits", "both")
counts: Counter[str] = Counter()


@dataclass(frozen=True)
class Ask:
    """One way of asking."""

    method: Any = "backward"
    relaxation: Any = "tight"
    norm: float = 2.0
    eps: float = 0.01  # in units of the size of the input
    words: int = 1
    extra: str = ""
    dtype: str = "float64"
    beside: bool = False  # whether another set of words is asked about at once

    @property
    def options(self) -> dict[str, Any]:
        refined = self.method != "ibp"
        steps = 1 if refined and self.extra in ("steps", "both") else 0
        splits = 3 if refined and self.extra in ("splits", "both") else 1
        return {
            "method": self.method,
            "relaxation": self.relaxation,
            "steps": steps,
            "splits": splits,
            "dtype": self.dtype,
        }


@dataclass(frozen=True)
class Case:
    """A model, an input and ways of asking about it."""

    steps: tuple[Step, ...]
    asks: tuple[Ask, ...]
    n: int = 3
    d: int = 3
    kind: str = "normal"
    size: float = 1.0
    seed: int = 0
    reader: str = "first"
    classes: int = 2
    head: float = 1.0

    @cached_property
    def x(self) -> Tensor:
        """The input [1, n, d]."""
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(1, self.n, self.d, generator=generator, dtype=torch.float64)
        if self.kind == "equal rows":
            x = x[:, :1].expand_as(x)
        elif self.kind == "constant rows":
            x = x[:, :, :1].expand_as(x)
        elif self.kind == "zeros":
            x = torch.zeros_like(x)
        elif self.kind == "one large":
            x = x * torch.where(torch.arange(self.n) == 1, 1000.0, 1.0)[:, None]
        return x * self.size

    @cached_property
    def module(self) -> Program:
        made = Program(self.steps, self.x, reader=self.reader, classes=self.classes, head=self.head)
        return made.double().eval()


# ---- how they are drawn --------------------------------------------------------------------------------------------

sizes = st.sampled_from([1.0, 0.3, 3.0, 0.1, 10.0, 0.01, 100.0, 1e-3, 1e3])
absurd = st.sampled_from([1e-30, 1e30, 1e-20, 1e20, 1e-38, 1e-160, 1e150, 1e-300])
seeds = st.integers(0, 9999)
any_size = st.integers(0, 19).flatmap(lambda k: absurd if k > 17 else sizes)
steps = st.builds(Step, name=st.sampled_from(sorted(BLOCKS)), seed=seeds, size=any_size, residual=st.booleans())
asks = st.builds(
    Ask,
    method=st.sampled_from(METHODS[::-1]),
    relaxation=st.sampled_from(("tight", "paper")),
    norm=st.sampled_from((2.0, 1.0, math.inf, 1.5, 3.0)),
    eps=st.sampled_from((0.01, 0.1, 1e-3, 1e-6, 1e-12, 0.0, 1e-30, 1.0)),
    words=st.integers(1, 3),
    extra=st.sampled_from(EXTRAS),
    dtype=st.sampled_from(("float64", "float64", "float32")),
    beside=st.booleans(),
)
cases = st.builds(
    Case,
    steps=st.lists(steps, min_size=1, max_size=4).map(tuple),
    asks=st.lists(asks, min_size=1, max_size=4).map(tuple),
    n=st.sampled_from((3, 2, 4, 1)),
    d=st.sampled_from((3, 2, 4, 1)),
    kind=st.sampled_from(INPUTS),
    size=any_size,
    seed=seeds,
    reader=st.sampled_from(READERS),
    classes=st.integers(2, 3),
    head=any_size,
)


# ---- what must hold ------------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """Nothing leaves its bounds, at any point that is tried, for any way of asking."""
    counts["models"] += 1
    with torch.no_grad():
        logits = case.module(case.x)
    if not bool(torch.isfinite(logits).all()):
        counts["models that overflow"] += 1
        return
    first = cf.Certifier(case.module)
    for ask in case.asks:
        counts["questions"] += 1
        certifier = cf.Certifier(first.model, **ask.options)
        certifier.workspace = first.workspace  # captured once
        try:
            Checked(case, ask, certifier).run()
        except cf.CertiformerError as refusal:
            counts[f"refused: {type(refusal).__name__}"] += 1


class Checked:
    """One question about one model, asked at the front door and node by node."""

    def __init__(self, case: Case, ask: Ask, certifier: cf.Certifier) -> None:
        self.case, self.ask = case, ask
        size = float(case.x.abs().mean()) or 1.0
        sets = [tuple(range(min(ask.words, case.n))), *([(case.n - 1,)] if ask.beside else [])]
        self.prepared = prepare(certifier.workspace, case.x, label=None, dtype=ask.dtype)
        self.radii = [ask.eps * size / 3**k for k in range(len(sets))]  # they may not become smaller
        self.asked = certifier.bounds(case.x, positions=[list(s) for s in sets], norm=ask.norm, eps=self.radii)
        self.eps = torch.tensor(self.asked.eps, dtype=self.prepared.embeddings.dtype)
        problem = problem_of([(self.prepared, s) for s in sets], certifier.options, p=ask.norm)
        if certifier.options.steps:
            problem = problem.tuned(self.eps, steps=certifier.options.steps)
        if certifier.options.most_splits > 1:
            problem = divide(problem, self.eps, certifier.options.most_splits)
        self.problem = problem
        self.module = Exact(self.prepared.model.module, self.prepared.embeddings)

    def run(self) -> None:
        every = list(range(len(self.problem)))
        ball = self.problem.ball(self.eps, every)
        with mp.workdps(DIGITS):
            deltas = self.points(ball)
            for i in every:
                self.front_door(i, deltas[i])
            if isinstance(self.problem, Split):
                owners, pieces = list(self.problem.owners), self.problem.pieces
                self.nodes(pieces, pieces.ball(self.eps[owners], list(range(len(pieces)))), owners, deltas)
            else:
                self.nodes(self.problem, ball, every, deltas)

    def points(self, ball: Ball) -> list[list[Array]]:
        """For each set moves of the input `[1, n, d]` within it, exactly: sampled, and to the ends of many nodes."""
        generator = torch.Generator().manual_seed(self.case.seed)
        rest = torch.zeros_like(ball.centre)
        moves = [rest, *replace(ball, centre=rest).sample(3, generator).unbind(1), *self.steepest(ball, generator)]
        target = torch.ones(self.problem.classes - 1).to(ball.centre)
        moves += pushed(self.problem, ball, torch.stack([target, -target]), steps=4) - ball.centre
        return [
            [projected(m[i], radius, ball.p) for m in moves if bool(torch.isfinite(m[i]).all())]
            for i, radius in enumerate(self.radii)
        ]

    def steepest(self, ball: Ball, generator: torch.Generator) -> list[Tensor]:
        """Where a margin and entries of random nodes are least and greatest, to first order."""
        graph = self.problem.compiled.graph
        moving = [n.index for n in graph.nodes if n.perturbed]
        x = ball.centre.clone().requires_grad_(True)
        with torch.enable_grad():
            values = graph.values(x)
            ends = [(self.problem.rows(list(range(len(x))))[:, 0, 0] * values[-1].flatten(1)).sum()]
            for k in torch.randint(len(moving), (4,), generator=generator).tolist():
                flat = values[moving[k]].reshape(len(x), -1)
                ends.append(flat[:, int(torch.randint(flat.shape[1], (), generator=generator))].sum())
            gradients = [torch.autograd.grad(end, x, retain_graph=True, allow_unused=True)[0] for end in ends]
        radii = torch.einsum("zt,ztn->zn", ball.eps, ball.hot)[:, None, :, None]
        found = [toward(gradient, ball.p) * radii for gradient in gradients if gradient is not None]
        return [sign * move for move in found for sign in (1, -1)]

    def front_door(self, i: int, deltas: list[Array]) -> None:
        """The margins that a user gets, against the module itself."""
        if self.asked.reasons[i] is not None:
            counts["sets without an answer"] += 1
            return
        counts["sets with an answer"] += 1
        low, high = exact(self.asked.lower[i]), exact(self.asked.upper[i])
        for delta in deltas:
            logits = self.at(lambda x: self.module(x).reshape(-1), exact(self.prepared.embeddings) + delta)
            if logits is not None:
                inside("margin at the front door", margins(logits, self.asked.label), low, high)

    def nodes(self, problem: Problem, ball: Ball, owners: list[int], deltas: list[list[Array]]) -> None:
        """Every node's box over every piece, or every set, against the graph."""
        boxes, _, answer, good = bounds_of(problem, ball)
        graph = problem.compiled.graph
        rest = graph.values(ball.centre, lengths=ball.lengths)
        held = {(o, k): False for o in owners for k in range(len(deltas[o]))}
        for i, owner in enumerate(owners):
            own = [v[min(i, len(v) - 1)][None] for v in rest]
            for k, delta in enumerate(deltas[owner]):
                if not in_piece(ball, i, delta):
                    continue
                held[owner, k] = True
                x = exact(ball.centre[i]) + delta
                values = self.at(lambda x, own=own: graphs.values(graph, x, own), x) if bool(good[i]) else None
                if values is None:
                    continue
                for index, box in boxes.items():
                    j = min(i, len(box.lower) - 1)
                    inside(str(graph.nodes[index]), values[index], exact(box.lower[j]), exact(box.upper[j]))
                found = margins(values[-1].reshape(-1), self.asked.label)
                inside("margin", found, exact(answer.lower[i]), exact(answer.upper[i]))
        assert all(held.values()), "a point is in no piece"

    def at(self, function: Any, x: Array) -> Any:
        counts["points"] += 1
        try:
            return function(x)
        except TooLarge:
            counts["points that are too large"] += 1
            return None
        except Undefined:
            raise AssertionError("the model is not defined at a point of a set that has bounds") from None


def margins(logits: Array, label: int) -> Array:
    return np.array([logits[label] - v for k, v in enumerate(logits) if k != label], dtype=object)


def inside(name: str, value: Array, low: Array, high: Array) -> None:
    """No value is outside of its bounds, by anything."""
    counts["values"] += value.size
    value, low, high = (np.atleast_1d(v) for v in (value, low, high))
    value = np.broadcast_to(value, low.shape)
    under, over = low - value, value - high
    worst = max(under.max(), over.max())
    if worst > SLACK * min(mp.mpf(1), abs(value).max()):
        k = int(np.argmax(np.maximum(under, over).reshape(-1)))
        v, l, u = (mp.nstr(a.reshape(-1)[k], 25) for a in (value, low, high))
        raise AssertionError(f"{name}: {v} is not in [{l}, {u}], by {mp.nstr(worst, 5)}")


def in_piece(ball: Ball, i: int, delta: Array) -> bool:
    """Whether a point of the ball is in the i-th piece, exactly."""
    if not isinstance(ball, Piece):
        return True
    moved = [delta[0, int(hot.argmax())] if bool(hot.any()) else 0 * delta[0, 0] for hot in ball.hot[i]]
    along = exact(ball.normal[i]) @ np.concatenate(moved)
    return bool(np.all(along >= exact(ball.low[i])) and np.all(along <= exact(ball.high[i])))


def toward(g: Tensor, p: float) -> Tensor:
    """The direction of length 1 at each position `[.., n, d]` along which `g` grows fastest."""
    if math.isinf(p):
        return g.sign()
    if p == 1:
        return g.sign() * (g.abs() >= g.abs().amax(dim=-1, keepdim=True))
    scaled = g / g.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(g.dtype).tiny)
    return scaled.sign() * scaled.abs() ** (dual(p) - 1)


def projected(move: Tensor, eps: float, p: float) -> Array:
    """A move `[1, n, d]`, made so long at each position that it moves at that it ends on the sphere or just inside."""
    out = exact(move)
    for k in range(out.shape[1]):
        row = out[0, k]
        size = length(row, p)
        if size > eps or size > mp.mpf(eps) * (1 - mp.mpf(10) ** -6):
            out[0, k] = row * (mp.mpf(eps) / size) * (1 - mp.mpf(10) ** -60) if size else row
        assert length(out[0, k], p) <= eps
    return out


def length(row: Array, p: float) -> Any:
    if math.isinf(p):
        return abs(row).max()
    if p == 1:
        return abs(row).sum()
    return (
        mp.root(sum(v**p for v in abs(row)), p)
        if p in (2, 3)
        else sum(v ** mp.mpf(p) for v in abs(row)) ** (1 / mp.mpf(p))
    )

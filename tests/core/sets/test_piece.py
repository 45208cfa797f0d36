"""Pieces of Euclidean balls: no point of them leaves what is known of it, wherever they are cut."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certiformer.core.sets import Ball, Piece

SETS = {False: [(1,), (3,), (0,)], True: [(1,), (0, 2), (1, 2, 3)]}  # of joint balls with several positions
WIDTHS, ROWS = (1, 2, 5, 12), (1, 4)


def ends(draw: random.Random, eps: float) -> tuple[float, float]:
    """Where a piece is cut across one normal: on one side, on both, a hyperplane, beyond the ball, not at all."""
    a, b = sorted([draw.uniform(-eps, eps), draw.uniform(-eps, eps)])
    inf = math.inf
    return draw.choice([(a, inf), (-inf, b), (a, b), (a, a), (a / 5, b / 5), (eps / 10, 1.5 * eps), (-inf, inf)])


def random_piece(draw: random.Random, joint: bool, skew: float) -> Piece:
    """Three instances with different numbers of cuts, one of them now and then of radius 0."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    d, most, sets = draw.choice(WIDTHS), draw.choice([1, 2, 4]), SETS[joint]
    eps = [draw.choice([1e-3, 0.3, 50.0, 0.0]) for _ in sets]
    ball = Ball.of(torch.zeros(3, 1, 4, d).double(), sets, torch.tensor(eps, dtype=torch.float64), 2.0, joint=joint)
    normal = torch.zeros(3, most, ball.dimension, dtype=torch.float64)
    low = torch.full((3, most), -math.inf, dtype=torch.float64)
    high = -low
    for i, own in enumerate(sets):
        m = len(own) * d
        count = draw.randint(1, min(most, m))
        found = torch.randn(2, m, count, generator=generator, dtype=torch.float64)
        normal[i, :count, :m] = torch.linalg.qr(found[0])[0].T + skew * found[1].T / math.sqrt(m)
        for k in range(count):
            low[i, k], high[i, k] = ends(draw, eps[i])
    return Piece(ball.centre, ball.hot, ball.eps, 2.0, joint=joint, normal=normal, low=low, high=high)


class Points:
    """Points of one instance of a piece, and how to get back into it: by projections on its cuts and its ball."""

    def __init__(self, piece: Piece, i: int, own: int) -> None:
        self.low, self.high, self.eps = piece.low[i], piece.high[i], float(piece.radii[i, 0])
        self.mask = torch.zeros(piece.dimension, dtype=torch.float64)
        self.mask[:own] = 1
        self.normal = piece.normal[i]
        self.back = torch.linalg.pinv(self.normal)

    def projected(self, delta: Tensor, times: int) -> Tensor:
        for _ in range(times):
            at = delta @ self.normal.T
            delta = delta + (torch.minimum(torch.maximum(at, self.low), self.high) - at) @ self.back.T
            size = torch.linalg.vector_norm(delta, dim=1, keepdim=True)
            delta = delta * (self.eps / size.clamp(min=1e-300)).clamp(max=1)
        return delta

    def farthest(self, function: Tensor, middle: Tensor, generator: torch.Generator) -> Tensor:
        """Those that gradient steps have taken far from a middle under a function, as far as they are in the piece."""
        delta = torch.randn(40, len(self.mask), generator=generator, dtype=torch.float64) * self.mask
        delta = self.projected(self.eps * delta / torch.linalg.vector_norm(delta, dim=1, keepdim=True), 100)
        for step in range(30):
            away = ((delta @ function - middle) @ function.T) * self.mask
            away = away / torch.linalg.vector_norm(away, dim=1, keepdim=True).clamp(min=1e-300)
            delta = self.projected(delta + self.eps * (0.5 if step < 15 else 0.1) * away, 20)
        delta, slack = self.projected(delta, 300), 1e-9 * self.eps
        at = delta @ self.normal.T
        return delta[((at >= self.low - slack) & (at <= self.high + slack)).all(dim=1)]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("skew", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 8), marks=pytest.mark.slow)], ids=str)
def test_no_point_of_a_piece_leaves_what_is_known_of_it(joint: bool, skew: float, seeds: range) -> None:
    """Nor do those that were sent there: how far functions get from a middle, every row of them, and lengths."""
    tried = 0
    for seed in seeds:
        draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        piece = random_piece(draw, joint, skew)
        d, rows = piece.centre.shape[-1], draw.choice(ROWS)
        function = torch.randn(3, piece.dimension, 2, rows, generator=generator, dtype=torch.float64)
        along = torch.randn(3, piece.normal.shape[1], rows, generator=generator, dtype=torch.float64)
        function += draw.choice([0, 3, 100]) * torch.einsum("zkm,zkr->zmr", piece.normal, along)[:, :, None]
        middle, far = piece.around(function)
        other, gram = piece.grams(function) or (middle, function)
        lengths = piece.lengths
        assert lengths is not None
        b = torch.randn(20, rows, generator=generator, dtype=torch.float64)
        for i, own in enumerate(SETS[joint]):
            points = Points(piece, i, d * len(own))
            for lead in range(2):
                matrix = function[i, :, lead] * points.mask[:, None]
                delta = points.farthest(matrix, middle[i, lead], generator)
                tried += len(delta)
                assert not (len(delta) and piece.empty()[i])
                slack, moved = 1e-7 * points.eps * torch.linalg.matrix_norm(matrix), delta @ matrix
                away = torch.linalg.vector_norm(moved - middle[i, lead], dim=1)
                assert (away <= far[i, lead] + slack).all(), (seed, i)
                bound = torch.einsum("rj,tjl,rl->tr", b, gram[:, i, lead], b).clamp(min=0).sqrt().sum(dim=0)
                row = ((moved - other[i, lead]) @ b.T).abs()
                assert (row <= bound + slack * torch.linalg.vector_norm(b, dim=1)).all(), (seed, i)
                size = torch.linalg.vector_norm(delta.unflatten(1, (-1, d)), dim=2)[:, : len(own)]
                assert (size <= lengths[i, 0, list(own), 0] + 1e-9 * points.eps).all()
                assert (size >= lengths[i, 0, list(own), 1] - 1e-8 * points.eps).all()
    assert tried > 60 * len(seeds)


def caps() -> list[tuple[float, float, float, float]]:
    """Radii, two cuts that leave next to nothing of a ball, and how far from their corner a point may be: exactly."""
    draw, found = random.Random(0), list[tuple[float, float, float, float]]()
    while len(found) < 300:
        eps = draw.uniform(0.1, 2)
        first = draw.uniform(0.2, 0.9) * eps
        second = math.sqrt(eps * eps - first * first)
        for _ in range(draw.randrange(3)):
            second = math.nextafter(second, 0)
        left = Fraction(eps) ** 2 - Fraction(first) ** 2 - Fraction(second) ** 2
        if left > 0:
            found.append((eps, first, second, math.sqrt(left) * (1 - 1e-6)))
    return found


def test_thin_caps_are_as_wide_as_they_are() -> None:
    """What is left of the square of a radius, where the squares of the cuts take nearly all of it, is no digit of the
    difference that is computed."""
    eps, first, second, left = (torch.tensor(x, dtype=torch.float64) for x in zip(*caps(), strict=True))
    ball = Ball.of(torch.zeros(len(eps), 1, 1, 3).double(), [(0,)] * len(eps), eps, 2.0)
    normal = torch.eye(3, dtype=torch.float64)[:2].expand(len(eps), -1, -1)
    low = torch.stack([first, second], dim=1)
    piece = Piece(ball.centre, ball.hot, ball.eps, 2.0, normal=normal, low=low, high=torch.full_like(low, math.inf))
    function = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).reshape(1, 3, 1).repeat(len(eps), 1, 1)
    middle, far = piece.around(function)  # the point at the cuts, and `left` across them, is in the piece
    assert (left - middle[:, 0] <= far).all()
    other, gram = piece.grams(function) or (middle, function)
    assert (left - other[:, 0] <= gram[0, :, 0, 0].sqrt()).all()
    assert (left <= piece.extremes(function[None])[1][0, :, 0]).all()

"""Products whose right factor is taken together: what is added to the planes never goes beyond what is lost by them."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core import joint as together
from certiformer.core import relaxation
from certiformer.core.coefficients import Coefficients
from certiformer.core.deadline import NEVER
from certiformer.core.form import Form
from certiformer.core.joint import KEPT, Joint, Meeting, Sums
from certiformer.core.sets import Ball, Piece
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model

NORMS = [1.0, 1.5, 2.0, 3.0, math.inf]


def ball(p: float, blocks: int, *, width: bool = False, joint: bool = False, d: int = 5) -> Ball:
    centre = torch.zeros(2, 1, 4, d, dtype=torch.float64)
    positions = [tuple(range(blocks)), tuple(range(1, blocks + 1))] if blocks < 4 else [(0, 1, 2, 3)] * 2
    wide = torch.rand(2, blocks, d, dtype=torch.float64) if width else None
    return Ball.of(centre, positions, torch.tensor([0.3, 0.7]), p, width=wide, joint=joint)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("width", [False, True])
def test_matrices_bound_every_row(p: float, blocks: int, joint: bool, width: bool) -> None:
    torch.manual_seed(int(10 * min(p, 9)) + blocks)
    own = ball(p, blocks, width=width, joint=joint)
    function = torch.randn(2, own.dimension, 3, 6, dtype=torch.float64)
    function[:, :, 0] = 0
    function[:, 1] *= 1e3
    _, gram = own.grams(function)
    for scale in (1.0, 1e-3):
        b = scale * torch.randn(40, 6, dtype=torch.float64) * (torch.rand(40, 6) < 0.5)
        most = own.spread(torch.einsum("rj,zmkj->zmkr", b, function)[None])[0]
        bound = torch.einsum("rj,tzkjl,rl->tzkr", b, gram, b).clamp(min=0).sqrt().sum(dim=0)
        assert bool((most <= bound * (1 + 1e-9) + 1e-12).all())
    if p == 2 and (joint or blocks <= 2):  # and exactly so
        assert torch.allclose(most, bound, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("p", [2.0, math.inf])
@pytest.mark.parametrize("joint", [False, True])
def test_matrices_of_pieces_know_their_cuts(p: float, joint: bool) -> None:
    """Points of thin pieces stay within them, around a middle that is not that of the ball."""
    torch.manual_seed(2)
    own = ball(p, 2 if joint else 1, joint=joint)
    dimension = own.dimension
    normal = torch.linalg.qr(torch.randn(2, dimension, 2, dtype=torch.float64)).Q.mT.contiguous()
    low = torch.tensor([[0.05, -math.inf], [0.2, -0.3]], dtype=torch.float64)
    high = torch.tensor([[0.1, math.inf], [0.3, math.inf]], dtype=torch.float64)
    piece = Piece(**{f.name: getattr(own, f.name) for f in fields(Ball)}, normal=normal, low=low, high=high)
    function = torch.randn(2, dimension, 3, 6, dtype=torch.float64)
    function += 8 * torch.einsum("zm,r->zmr", normal[:, 0], torch.ones(6).double())[:, :, None]  # what is cut matters
    middle, gram = piece.grams(function)
    assert gram.shape == (1, 2, 3, 6, 6)
    points = own.sample(20_000, torch.Generator().manual_seed(0), boundary=False)
    delta = torch.einsum("zcnd,ztn->zctd", (points - own.centre[:, None])[:, :, 0], own.hot).flatten(2)
    along = torch.einsum("zcm,zkm->zck", delta, normal)
    inside = ((along >= low[:, None]) & (along <= high[:, None])).all(dim=2)
    assert bool((inside.sum(dim=1) > 20).all())
    b = torch.randn(40, 6, dtype=torch.float64)
    bound = torch.einsum("rj,tzkjl,rl->tzkr", b, gram, b).sqrt().sum(dim=0)
    for z in range(2):
        moved = torch.einsum("cm,mkj->ckj", delta[z], function[z]) - middle[z]
        away = torch.einsum("ckj,rj->ckr", moved, b).abs()
        assert bool((away[inside[z]] <= bound[z] * (1 + 1e-9)).all())
        if p == 2:
            assert bool((middle[z] != 0).all())
            assert float(bound[z].mean()) < 0.7 * float(
                own.spread(torch.einsum("rj,zmkj->zmkr", b, function)[None])[0][z].mean()
            )


def ellipsoid(points: Tensor, gram: Tensor) -> Tensor:
    """Points of `{y: b y <= sqrt(b G b')}` for unit vectors."""
    values, vectors = torch.linalg.eigh(gram)
    return torch.einsum("...jl,...l,s...l->s...j", vectors, values.clamp(min=0).sqrt(), points)


@pytest.mark.parametrize("shares", [False, True])
def test_what_is_gained_is_lost_by_planes(shares: bool) -> None:
    """`x w` less McCormick's planes is at least what is added, for y anywhere in its box and its ellipsoid."""
    torch.manual_seed(5)
    heads, n, m, width = 2, 3, 4, 5
    factor = torch.randn(1, heads, m, width, width, dtype=torch.float64)
    gram = factor @ factor.mT
    radius = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    y0 = torch.randn(1, heads, m, width, dtype=torch.float64)
    low, high = (torch.rand(1, heads, n, m, dtype=torch.float64) + s for s in (-1, 0.5))
    x0 = (low + high) / 2
    joint = Joint(
        turn=torch.zeros_like(radius),
        gain=radius,
        gram=gram[None],
        sizes=radius[None],
        start=x0 - low,
        size=x0.abs(),
        terms=0.0,
    )
    part = Coefficients.matrix(torch.randn(1, 6, heads, n, width, dtype=torch.float64), (heads, n, width))
    share = tuple(torch.rand(1, heads, n, m, width, dtype=torch.float64) for _ in range(2)) if shares else None
    node = type("Node", (), {"shape": (heads, n, m)})()
    gain = Meeting(joint, part, NEVER).gain(node, share, room=50)  # in several windows
    more, offset = gain.coefficients.tensor, gain.offset
    assert bool((more[0] >= 0).all())
    assert bool((more[1] <= 0).all())
    assert float(more[0].max()) > 0.1
    a = part.tensor[0, 0]  # [rows, heads, i, j]
    directions = torch.nn.functional.normalize(torch.randn(300, 1, heads, m, width, dtype=torch.float64), dim=-1)
    worst = torch.inf
    for y in y0 + ellipsoid(directions, gram):
        for x in (low, high, x0, low + torch.rand_like(low) * (high - low)):
            value = torch.einsum("rhij,hik,hkj->r", a, x[0], y[0])
            for side, sign in ((0, 1.0), (1, -1.0)):
                planes = _planes(a, sign, x[0], y[0], low[0], high[0], y0[0] - radius[0], y0[0] + radius[0], share)
                added = (more[side, 0] * (x - x0)).sum(dim=(1, 2, 3)) + offset[side, 0]
                left = sign * (value - planes - added)
                worst = min(worst, float(left.min()))
    assert worst >= -1e-9


@pytest.mark.parametrize("shares", [False, True])
def test_between_two_functions_what_is_gained_is_lost_by_planes(shares: bool) -> None:
    """The same where every entry of y lies between two linear functions of a ball, anywhere."""
    torch.manual_seed(6)
    heads, n, m, width, d = 2, 3, 4, 5, 4
    low, high = torch.randn(2, heads, m, width, d, dtype=torch.float64)
    start, more = torch.randn(heads, m, width, dtype=torch.float64), 0.1
    rise = more + (high - low).norm(dim=-1)  # how far apart they are where nothing moves: they do not cross
    lower, upper = start - low.norm(dim=-1), start + rise + high.norm(dim=-1)
    function = torch.cat([low, -high], dim=2)
    zero = torch.zeros(1, heads, n, m, dtype=torch.float64)
    joint = Joint(
        turn=torch.cat([start - lower, upper - start - rise], dim=-1)[None],
        gain=torch.zeros(1, heads, m, 2 * width, dtype=torch.float64),
        gram=torch.einsum("hmjd,hmld->hmjl", function, function)[None, None],
        sizes=function.norm(dim=-1)[None, None],
        start=zero + 0.5,
        size=zero + 1,
        terms=0.0,
    )
    part = Coefficients.matrix(torch.randn(1, 6, heads, n, width, dtype=torch.float64), (heads, n, width))
    share = tuple(torch.rand(1, heads, n, m, width, dtype=torch.float64) for _ in range(2)) if shares else None
    node = type("Node", (), {"shape": (heads, n, m)})()
    gain = Meeting(joint, part, NEVER).gain(node, share, room=50)
    more_of, offset = gain.coefficients.tensor, gain.offset
    assert float(more_of[0].max()) > 0.1
    a, lx, ux = part.tensor[0, 0], zero[0] - 0.5, zero[0] + 0.5
    worst = torch.inf
    for delta in torch.nn.functional.normalize(torch.randn(200, d, dtype=torch.float64), dim=-1):
        ends = start + low @ delta, start + rise + high @ delta
        for y in (*ends, ends[0] + torch.rand_like(start).round() * (ends[1] - ends[0])):
            for x in (lx, ux, lx + torch.rand_like(lx).round()):
                value = torch.einsum("rhij,hik,hkj->r", a, x, y)
                for side, sign in ((0, 1.0), (1, -1.0)):
                    planes = _planes(a, sign, x, y, lx, ux, lower, upper, share)
                    added = (more_of[side, 0] * x).sum(dim=(1, 2, 3)) + offset[side, 0]
                    worst = min(worst, float((sign * (value - planes - added)).min()))
    assert worst >= -1e-9
    assert shares or worst < 0.05  # and all of it: the least of a sum is reached


def test_sums_of_what_lies_between_two_functions_are_as_good_as_these() -> None:
    """A row takes the function below where it is positive and the other where not: no more is lost."""
    torch.manual_seed(7)
    own = ball(2.0, 1)
    centre, gap = torch.randn(2, 2, own.dimension, 3, 6, dtype=torch.float64)
    offset, half = torch.randn(2, 3, 6, dtype=torch.float64), torch.rand(2, 3, 6, dtype=torch.float64)
    engine = type("Engine", (), {"ball": own, "slack": lambda *_: None})()
    found = together.sums_of(engine, None, Form(centre, gap, offset, half, None))  # type: ignore[arg-type]
    assert found is not None
    b = torch.randn(40, 6, dtype=torch.float64)
    below, above = b.clamp(min=0), b.clamp(max=0)
    functions = [torch.einsum("rj,zmkj->zmkr", x, centre + s * gap) for x, s in ((below, -1), (above, 1))]
    least = torch.einsum("rj,zkj->zkr", below, offset - half) + torch.einsum("rj,zkj->zkr", above, offset + half)
    least = least + own.extremes((functions[0] + functions[1])[None])[0][0]
    both = together.halved(b, found.offset.shape[-1])
    root = torch.einsum("rj,tzkjl,rl->tzkr", both, found.gram, both).clamp(min=0).sqrt().sum(dim=0)
    bound = torch.einsum("rj,zkj->zkr", both, found.offset) - root
    assert torch.allclose(bound, least, rtol=1e-9, atol=1e-9)


def _planes(
    a: Tensor, sign: float, x: Tensor, y: Tensor, lx: Tensor, ux: Tensor, ly: Tensor, uy: Tensor, share: object
) -> Tensor:
    """McCormick's planes of all terms, below (sign 1) or above, mixed by their shares."""
    x, lx, ux = (t.unsqueeze(-1) for t in (x, lx, ux))  # [h, i, k, 1]
    y, ly, uy = (t.unsqueeze(-3) for t in (y, ly, uy))  # [h, 1, k, j]
    lower = (ly * x + lx * y - lx * ly, uy * x + ux * y - ux * uy)
    upper = (uy * x + lx * y - lx * uy, ly * x + ux * y - ux * ly)
    s, t = (0.0, 0.0) if share is None else (share[0][0], share[1][0])  # type: ignore[index]
    below, above = (1 - s) * lower[0] + s * lower[1], (1 - t) * upper[0] + t * upper[1]
    a = a.unsqueeze(-2)  # [rows, h, i, 1, j]
    chosen = torch.where(a * sign >= 0, below, above)
    return (a * chosen).sum(dim=(1, 2, 3, 4))


def test_sums_in_another_precision_are_no_smaller() -> None:
    torch.manual_seed(1)
    one = Sums(
        *(torch.randn(1, 3, 4, dtype=torch.float64) for _ in range(2)), torch.rand(1, 1, 3, 4, 4, dtype=torch.float64)
    )
    one = one._replace(gap=one.gap.abs())
    found = Sums.joined([one, one], torch.zeros((), dtype=torch.float32))
    assert found.offset.shape == (2, 3, 4)
    assert found.gram.shape == (1, 2, 3, 4, 4)
    moved = (found.offset.double() - one.offset).abs()
    assert bool((found.gap.double() >= one.gap + moved).all())
    assert bool((found.gram.double() >= one.gram).all())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.q, self.k, self.v, self.o = (nn.Linear(6, 6) for _ in range(4))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        p = (self.q(x) @ self.k(x).mT).softmax(dim=-1)
        out: Tensor = self.head((x + self.o(p @ self.v(x))).relu().mean(dim=1))
        return out


@pytest.mark.parametrize("p", [2, math.inf])
def test_it_proves_more(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = (
        Attention().double().eval(),
        torch.randn(1, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    )
    asked = {"norm": p, "method": "backward", "positions": [[0, 1, 2, 3]]}
    now = cf.certify(model, x, eps=0.2, attack=False, **asked).margin
    monkeypatch.setitem(relaxation.STYLES, "tight", replace(relaxation.TIGHT, joint=False))  # type: ignore[arg-type]
    before = cf.certify(model, x, eps=0.2, attack=False, **asked).margin
    assert now > before


def test_what_is_proved_of_an_instance_does_not_depend_on_those_beside_it() -> None:
    prepared = prepare(random_model(layers=1, scale=0.35, seed=5), IDS)
    problem = problem_of([(prepared, (1,))] * 12, p=2.0, method="backward", relaxation="tight")
    entries = max(math.prod(node.shape) for node, _ in problem.scheme.products.values())
    form = 2 * problem.centre.shape[-1] * entries * problem.centre.element_size()
    small = replace(problem, memory=4 * KEPT * form)  # room for the form of one instance and a few more
    eps = torch.full((12,), 0.1, dtype=torch.float64)
    alone = small.margins(eps[:1], [0]).lower
    assert torch.allclose(small.margins(eps).lower, alone.expand(12, -1), rtol=1e-9)
    without = replace(problem, style=replace(problem.style, joint=False)).margins(eps[:1], [0]).lower
    assert bool((alone > without + 1e-6).all())


def test_rows_of_zeros_gain_nothing_and_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference of two scores reads three positions: margins are the same, of fewer rows."""
    q = prepare(random_model(layers=2), IDS)
    problem = problem_of([(q, (1,))], p=2.0, method="backward")
    eps, rows = torch.tensor([0.02], dtype=torch.float64), list[int]()
    worth = Meeting._worth

    def noted(self: Meeting, a: Tensor, *rest: str | slice, **more: bool) -> Tensor:
        rows.append(a.shape[-2])
        return worth(self, a, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Meeting, "_worth", noted)
    margins, fewer = problem.margins(eps).lower, sum(rows)
    rows.clear()
    monkeypatch.setattr(together, "_not_zero", lambda table: None)
    assert torch.equal(problem.margins(eps).lower, margins)
    assert fewer < 0.9 * sum(rows)

"""Pieces of balls: they cover the ball, each is bounded soundly, and splitting only ever gains."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import certiformer as cf
from certiformer.core.branch import Branching, divide
from certiformer.core.deadline import NEVER
from certiformer.core.problem import Problem
from certiformer.core.sets import Ball, Cuts, Piece
from certiformer.core.split import Split
from certiformer.errors import InputError
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model
from enclosure import enclosed
from kinds import asked
from spread import spread


def moves(piece: Ball, count: int, seed: int = 0) -> Tensor:
    """Perturbations inside the whole ball, `[instances, count, m]`: on its boundary, inside, and at the cuts."""
    generator = torch.Generator().manual_seed(seed)
    clouds = [piece.sample(count, generator, boundary=b) for b in (True, False)]
    cloud = torch.cat(clouds, dim=1) - piece.centre[:, None]
    delta = torch.einsum("zcnd,ztn->zctd", cloud[:, :, 0], piece.hot).flatten(2)
    if not isinstance(piece, Piece):
        return delta
    near = [delta]
    for cut in (piece.low, piece.high):  # shrunk, or moved between two points, to where the first normal is cut
        at = torch.einsum("zcm,zm->zc", delta, piece.normal[:, 0])
        share = torch.where(at * cut[:, :1] > 0, cut[:, :1] / at, 1.0).nan_to_num(1.0).clamp(0, 1)
        near.append(delta * share[:, :, None])
    return torch.cat(near, dim=1)


def inside(piece: Piece, delta: Tensor, slack: float = 0.0) -> Tensor:
    at = torch.einsum("zcm,zkm->zck", delta, piece.normal)
    return ((at >= piece.low[:, None] - slack) & (at <= piece.high[:, None] + slack)).all(dim=2)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("positions", [[(1,), (3,)], [(1,), (0, 3)]])
@pytest.mark.parametrize("ends", [(-math.inf, 0.1), (0.1, math.inf), (0.2, 0.5), (-0.3, -0.3), (0.8, 1.2)])
def test_a_linear_function_stays_within_its_extremes(
    p: float, positions: list[tuple[int, ...]], ends: tuple[float, float]
) -> None:
    generator = torch.Generator().manual_seed(1)
    centre = torch.randn(2, 1, 4, 3, generator=generator, dtype=torch.float64)
    ball = Ball.of(centre, positions, torch.tensor([0.3, 0.7], dtype=torch.float64), p)
    m = ball.dimension
    normal = torch.linalg.qr(torch.randn(2, m, 2, generator=generator, dtype=torch.float64))[0].mT
    extent = ball.spread(normal.mT[None])[0]
    low, high = torch.full_like(extent, -math.inf), torch.full_like(extent, math.inf)
    low[:, 0], high[:, 0] = ends[0] * extent[:, 0], ends[1] * extent[:, 0]
    high[1, 1] = 0.1 * extent[1, 1]
    piece = Piece(ball.centre, ball.hot, ball.eps, p, normal=normal, low=low, high=high)
    function = torch.randn(2, 2, m, 5, generator=generator, dtype=torch.float64)
    function[:, :, :, 0] = normal[:, 0]
    least, greatest = piece.extremes(function)
    whole, _ = ball.extremes(function)
    assert (least[0] >= whole[0]).all()
    delta = moves(piece, 2000)
    within = inside(piece, delta, 1e-12)
    low_values, high_values = torch.einsum("szmr,zcm->szcr", function, delta)
    assert (low_values >= least[0][:, None] - 1e-9)[within].all()
    assert (high_values <= greatest[0][:, None] + 1e-9)[within].all()
    middle, far = piece.around(function[0])
    assert (torch.linalg.vector_norm(low_values - middle[:, None], dim=-1) <= far[:, None] + 1e-9)[within].all()
    assert (far <= ball.distance(function[0])).all()


def test_one_cut_of_a_euclidean_ball_is_exact() -> None:
    centre = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    normal = torch.eye(4, dtype=torch.float64)[None, :1]
    ball = Ball.of(centre, [(1,)], torch.tensor([2.0], dtype=torch.float64), 2.0)
    cut = torch.tensor([[1.0]], dtype=torch.float64)
    piece = Piece(ball.centre, ball.hot, ball.eps, 2.0, normal=normal, low=cut, high=cut + 0.5)
    function = torch.tensor([1.0, 2.0, 0.0, -1.0], dtype=torch.float64).reshape(1, 1, 4)
    least, greatest = piece.extremes(function)
    assert float(least) == pytest.approx(1.0 - math.sqrt(3 * 5), rel=1e-6)
    assert float(greatest) == pytest.approx(1.0 + math.sqrt(3 * 5), rel=1e-6)


def test_a_piece_is_shorter_than_its_ball_where_it_is_cut_across_the_longest_direction() -> None:
    centre = torch.zeros(1, 1, 1, 3, dtype=torch.float64)
    ball = Ball.of(centre, [(0,)], torch.tensor([2.0], dtype=torch.float64), 2.0)
    normal, ends = torch.eye(3, dtype=torch.float64)[None, :1], torch.tensor([[[1.0]], [[1.5]]], dtype=torch.float64)
    piece = Piece(ball.centre, ball.hot, ball.eps, 2.0, normal=normal, low=ends[0], high=ends[1])
    function = torch.diag(torch.tensor([5.0, 1.0, 1.0], dtype=torch.float64))[None]
    middle, far = piece.around(function)
    assert middle[0].tolist() == pytest.approx([6.25, 0, 0])
    assert float(ball.distance(function)) == pytest.approx(10, rel=1e-2)
    assert math.hypot(1.25, math.sqrt(3)) < float(far) < 1.25 + math.sqrt(3) + 1e-2


def split(problem: Problem, eps: Tensor, pieces: int) -> Split:
    found = divide(problem, eps, pieces)
    assert isinstance(found, Split)
    return found


def beyond(problem: Problem, factor: float) -> Tensor:
    """Radii at which nothing is proved in one piece."""
    eps = torch.full((len(problem),), 0.05, dtype=torch.float64)
    for _ in range(40):
        proved = (problem.margins(eps).lower > 0).all(dim=1)
        if not proved.any():
            break
        eps = torch.where(proved, factor * eps, eps)
    return eps


@pytest.mark.parametrize(
    ("kind", "p"),
    spread(("random 1", "random 2", "pre, one layer, read inside", "products"), (1.0, 2.0, math.inf)),
)
def test_pieces_cover_the_ball_and_each_is_bounded(kind: str, p: float) -> None:
    problem = asked(kind, p, "backward", "tight")
    eps = beyond(problem, 1.25)
    found = split(problem, eps, 6)
    assert all(1 < found.owners.count(i) <= 6 for i in range(3))
    of = list(found.owners)
    piece = found.pieces.ball(eps[of], list(range(len(of))))
    assert isinstance(piece, Piece)
    margins, whole = found.pieces.margins(eps[of]), found.margins(eps)
    delta = torch.cat([moves(piece, 60)[of.index(i)][None] for i in range(3)])
    within = inside(piece, delta[of])
    for i in range(3):
        assert within[[j for j, k in enumerate(of) if k == i]].any(dim=0).all()
    moved = torch.einsum(
        "zctd,ztn->zcnd", delta.unflatten(2, (piece.hot.shape[1], -1)), problem.ball(eps, [0, 1, 2]).hot
    )
    points = problem.centre + moved
    values = problem.compiled.graph.values(points.flatten(0, 1)[:, None])[-1].unflatten(0, delta.shape[:2])[:, :, None]
    true = (problem.rows([0, 1, 2])[:, None] * values).flatten(3).sum(dim=3)
    for j, i in enumerate(of):
        assert (true[i][within[j]] >= margins.lower[j]).all()
        assert (true[i][within[j]] <= margins.upper[j]).all()
    assert (true >= whole.lower[:, None]).all()
    assert (true <= whole.upper[:, None]).all()


def test_halves_share_the_number_at_which_they_are_cut() -> None:
    problem = asked("random 1", 2.0, "backward", "tight")
    eps = torch.tensor([0.7, 0.7, 0.3], dtype=torch.float64)
    found = split(problem, eps, 4)
    cuts = found.pieces.cuts
    assert isinstance(cuts, Cuts)
    piece = found.pieces.ball(eps[list(found.owners)], list(range(len(found.owners))))
    assert isinstance(piece, Piece)
    for i in range(3):
        own = [j for j, k in enumerate(found.owners) if k == i]
        for ends in (cuts.low, cuts.high, piece.low, piece.high):
            assert not torch.isnan(ends[own]).any()
        inner = {float(x) for x in piece.low[own].flatten() if math.isfinite(x)}
        assert inner == {float(x) for x in piece.high[own].flatten() if math.isfinite(x)}


@pytest.mark.parametrize(("norm", "layers"), spread([1, 2, math.inf], [1, 2]))
def test_splits_only_ever_gain_and_stay_below_the_attack(norm: float, layers: int) -> None:
    model = random_model(layers=layers, scale=0.35, seed=3)
    asked: dict[str, Any] = {"norm": norm, "positions": [[1], [3]], "tolerance": 1e-2}
    plain = cf.radius(model, IDS, method="backward", **asked)
    pieces = cf.radius(model, IDS, method="backward", splits=4, **asked)
    attacked = cf.attack(model, IDS, norm=norm, positions=[[1], [3]])
    for before, after, upper in zip(plain.radii, pieces.radii, attacked.radii, strict=True):
        assert before <= after <= upper
    assert sum(pieces.radii) > sum(plain.radii)


@pytest.mark.parametrize(("method", "relaxation"), spread(["forward", "backward-forward"], ["paper", "tight"]))
def test_every_other_method_splits(method: Any, relaxation: Any) -> None:
    model = random_model(layers=1, scale=0.35, seed=3, layer_norm="standard")
    positions = [[1, 2], [1, 3]]
    how: dict[str, Any] = {"positions": positions, "method": method, "relaxation": relaxation, "tolerance": 1e-2}
    plain, pieces = cf.radius(model, IDS, **how), cf.radius(model, IDS, splits=3, **how)
    attacked = cf.attack(model, IDS, positions=positions)
    for before, after, upper in zip(plain.radii, pieces.radii, attacked.radii, strict=True):
        assert before <= after <= upper


@pytest.mark.parametrize("asked", [{"splits": 3}, {"steps": 2}])
def test_intervals_have_nothing_to_refine(asked: dict[str, int]) -> None:
    with pytest.raises(InputError, match="intervals have nothing to refine"):
        cf.radius(random_model(), IDS, method="ibp", **asked)


def test_no_splits_change_nothing_and_the_same_splits_give_the_same() -> None:
    model = random_model(layers=1, scale=0.35, seed=3)
    plain, none, one, some, again = (
        cf.radius(model, IDS, positions=[[1], [2]], **more) for more in ({}, *({"splits": k} for k in (0, 1, 3, 3)))
    )
    assert plain.radii == none.radii == one.radii
    assert some.radii == again.radii


def test_a_verdict_by_pieces() -> None:
    model = random_model(layers=1, scale=0.35, seed=3)
    plain = cf.radius(model, IDS, method="backward", positions=[2])
    eps = 1.02 * plain.radii[0]
    assert cf.certify(model, IDS, eps=eps, positions=[2], method="backward").status == "unknown"
    assert cf.certify(model, IDS, eps=eps, positions=[2], method="backward", splits=8).status == "certified"


def test_splits_with_float32_and_many_sentences() -> None:
    model = random_model(layers=1, scale=0.35, seed=3)
    for result in cf.radii(model, [IDS, [2, 9, 4, 12, 3]], splits=3, dtype=torch.float32, max_memory=1 << 22):
        attacked = cf.attack(model, IDS if result.tokens == prepare(model, IDS).tokens else [2, 9, 4, 12, 3])
        assert all(a <= b for a, b in zip(result.radii, attacked.radii, strict=True))


@pytest.mark.parametrize("splits", [-1, 1.5, True])
def test_bad_splits_are_named(splits: Any) -> None:
    with pytest.raises(cf.InputError, match="splits="):
        cf.radius(random_model(), IDS, splits=splits)
    with pytest.raises(cf.InputError, match="splits="):
        cf.certify(random_model(), IDS, eps=0.1, splits=splits)


def test_steps_come_with_pieces_and_the_result_says_so() -> None:
    model = random_model(layers=1, scale=0.3, seed=3)
    options: dict[str, Any] = {"method": "backward", "positions": [[1]], "steps": 3}
    plain, alone, both = (cf.radius(model, IDS, **{**options, **more}) for more in ({"steps": 0}, {"splits": 0}, {}))
    assert plain.radii[0] <= alone.radii[0] <= both.radii[0]
    assert "pieces" not in plain.chosen + alone.chosen
    assert both.chosen.endswith("3 steps, up to 4 pieces")


def test_what_is_affine_needs_no_cutting() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(40, 3)).eval()
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    for options in ({"splits": 2}, {"steps": 2}):
        whole, cut = (cf.radius(cf.Model(module), x, positions=[1], **more) for more in ({}, options))  # type: ignore[arg-type]
        assert cut.radii == pytest.approx(whole.radii, rel=1e-3)
    assert cf.certify(cf.Model(module), x, eps=100.0, positions=[1], splits=2).status == "refuted"


@cache
def pieces() -> Split:
    """Some of each ball of a model."""
    problem = asked("random 1", 2.0, "backward", "tight", torch.float64)
    return split(problem, torch.full((len(problem),), 0.7, dtype=torch.float64), 3)


def fresh() -> Split:
    """The same, of which nothing is known yet."""
    return replace(pieces(), proved={}, drafted={})


def test_an_instance_may_be_asked_twice() -> None:
    eps = torch.tensor([0.1, 0.2], dtype=torch.float64)
    both = fresh().margins(eps, [0, 0]).lower
    for k in (0, 1):
        torch.testing.assert_close(both[k], fresh().margins(eps[k : k + 1], [0]).lower[0])


def test_what_is_proved_of_a_piece_is_not_bounded_again_within_less(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fresh()
    eps = torch.full((len(found),), 1e-3, dtype=torch.float64)
    larger = found.margins(eps)
    assert (larger.least > 0).all()
    monkeypatch.setattr(Problem, "_bounded", None)  # whatever is asked now is known
    smaller = found.margins(eps / 2)
    assert torch.equal(smaller.lower, larger.lower)  # of the larger ball: it holds, and is no better
    with pytest.raises(TypeError):
        found.margins(eps * 2)
    with pytest.raises(TypeError):  # a draft and a proof do not share what they know
        found.margins(eps / 2, rounding=False)


def test_a_failure_is_never_taken_for_known() -> None:
    found = fresh()
    far = torch.full((len(found),), 1e3, dtype=torch.float64)
    assert not (found.margins(far).least > 0).any()
    assert not found.proved
    assert not (found.margins(far).least > 0).any()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_a_piece_is_called_empty_only_where_no_point_is_in_it(p: float) -> None:
    generator = torch.Generator().manual_seed(5)
    centre = torch.zeros(400, 1, 3, 3, dtype=torch.float64)
    ball = Ball.of(centre, [(1,)] * 200 + [(0, 2)] * 200, torch.full((400,), 0.5, dtype=torch.float64), p)
    normal = torch.linalg.qr(torch.randn(400, ball.dimension, 2, generator=generator, dtype=torch.float64))[0].mT
    normal[:200, :, 3:] = 0
    ends = torch.randn(400, 2, 2, generator=generator, dtype=torch.float64).sort(dim=2).values
    ends[:40, 1] = torch.tensor([-math.inf, math.inf], dtype=torch.float64)
    piece = Piece(ball.centre, ball.hot, ball.eps, p, normal=normal, low=ends[..., 0], high=ends[..., 1])
    empty = piece.empty()
    assert 20 < int(empty.sum()) < 380
    within = inside(piece, moves(piece, 500))
    assert not within[empty].any()
    extent = ball.spread(normal.mT[None])[0]
    beyond = ((piece.low > 1.001 * extent) | (piece.high < -1.001 * extent)).any(dim=1)
    alone = torch.isinf(piece.low[:, 1])
    assert empty[alone & beyond].all()
    assert not Piece(ball.centre, ball.hot, ball.eps, p, normal=normal, low=-extent, high=extent).empty().any()


@pytest.mark.parametrize(
    ("kind", "p"),
    [
        ("random 1", math.inf),
        ("post, one layer, read at the end", 2.0),
        ("products", 1.0),
        *(pytest.param(kind, 2.0, marks=pytest.mark.slow) for kind in ("random 2", "post", "products")),
    ],
)
def test_every_node_of_every_piece_is_enclosed(kind: str, p: float) -> None:
    problem = asked(kind, p, "backward", "tight")
    eps = beyond(problem, 1.6)
    branching = Branching(problem)
    branching.grow(eps.tolist(), 5)
    assert len({leaf.kinds for leaf in branching.leaves}) > 1
    assert enclosed(branching.split(), eps, samples=60) > 0
    for leaf in branching.leaves:  # one normal more or less orthonormal to the others
        own = leaf.cuts.normal[0].flatten(1)
        used = own.any(dim=1)
        torch.testing.assert_close(own[used] @ own[used].T, torch.eye(int(used.sum()), dtype=own.dtype))
    cuts = Cuts.joined([leaf.cuts for leaf in branching.leaves]).unified()
    unified = Split.cut(problem, [leaf.owner for leaf in branching.leaves], cuts)
    assert unified.pieces.cuts is not None
    assert (unified.pieces.cuts.normal == unified.pieces.cuts.normal[:1]).all()
    assert enclosed(unified, eps, samples=20) > 0


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_pieces_with_planes_of_their_own_prove_more_and_stay_sound(layers: int) -> None:
    model = random_model(layers=layers, scale=0.35, seed=5)
    asked = problem_of([(prepare(model, IDS), (1,)), (prepare(model, IDS), (2,))], p=2.0, method="backward")
    nominal = asked.margins(torch.zeros(2, dtype=torch.float64)).least
    eps = [float(r) for r in cf.radius(model, IDS, positions=[[1], [2]], method="backward").radii]
    eps = [1.2 * eps[0], 0.0]  # the second one is left alone
    branching = Branching(asked)
    branching.grow(eps, 4)
    before = [leaf.margin for leaf in branching.leaves]
    assert min(branching.of(0), key=lambda leaf: leaf.margin).margin < 0
    branching.tune(eps, NEVER)
    after = [leaf.margin for leaf in branching.leaves]
    assert all(b >= a - 1e-5 for a, b in zip(before, after, strict=True) if math.isfinite(a))
    assert max(b - a for a, b in zip(before, after, strict=True) if a < 0) > 1e-3 * float(nominal[0])
    branching.grow(eps, 6)  # halves have the planes of the whole
    split = branching.split()
    assert split.pieces.parameters
    radii = torch.tensor([eps[0], 0.5 * eps[0]], dtype=torch.float64)
    found = split.margins(radii)
    ball = asked.ball(radii, [0, 1])
    points = ball.sample(500, torch.Generator().manual_seed(0))
    for k in range(points.shape[1]):
        values = asked.compiled.graph.values(points[:, k])[-1]
        margins = (asked.rows([0, 1]) * values[:, None]).flatten(2).sum(dim=2)
        assert (margins >= found.lower).all()

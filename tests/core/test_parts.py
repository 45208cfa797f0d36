"""Sets cut across entries of nodes: bounds hold in every part whatever the multipliers, and parts leave nothing out."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.combined import combined
from certiformer.core.deadline import Deadline, OutOfTime
from certiformer.core.entries import Assumption, Batch, Leaf, optimised, proofs, usual
from certiformer.core.ops.base import Box
from certiformer.core.part import Known, Part, bent
from certiformer.core.problem import Problem
from certiformer.core.tree import Tree, cases_of, cuttable
from certiformer.options import Options
from certiformer.questions.inputs import prepare, problem_of
from certiformer.questions.regions import problem_of_regions, regions_of
from conftest import IDS, random_model


class Small(nn.Module):
    """Attention over three patches with two heads, ReLU, a mean: inputs `[batch, 6]`."""

    def __init__(self, *, layer_norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed, self.mix = nn.Linear(2, 4), nn.Linear(4, 12)
        self.up, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.norm = nn.LayerNorm(4) if layer_norm else nn.Identity()
        with torch.no_grad():
            for p in self.parameters():
                p *= 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x.reshape(-1, 3, 2))
        q, k, v = (z.unflatten(2, (2, 2)).transpose(1, 2) for z in self.mix(self.norm(y)).split(4, dim=-1))
        y = y + (torch.softmax(q @ k.transpose(2, 3), dim=-1) @ v).transpose(1, 2).flatten(2)
        found: Tensor = self.head(torch.relu(self.up(y)).mean(dim=1))
        return found


X = torch.tensor([0.3, -0.2, 0.5, 0.1, -0.4, 0.2], dtype=torch.float64)
UNIT = torch.ones(1, dtype=torch.float64)  # the radius of a box


def boxed(half: float, *, layer_norm: bool = False, arithmetic: Any = "real") -> tuple[Problem, Tensor]:
    """A problem on a box, with what one pass has proved of it."""
    model = cf.load(Small(layer_norm=layer_norm).eval(), shape=(6,))
    prepared = prepare(model, X)
    goal = cf.TopK(1).of(3, prepared.label).goal
    regions = regions_of(prepared, [cf.Box.around(X, half)])
    options = Options(method="backward", arithmetic=arithmetic)
    return _known(problem_of_regions(prepared, regions, goal, options), UNIT)


def balled() -> tuple[Problem, Tensor]:
    """The same of a Euclidean ball at two positions of a random Transformer with LayerNorm."""
    prepared = prepare(random_model(layers=1, scale=0.4, seed=4, layer_norm="standard"), IDS)
    problem = problem_of([(prepared, (1, 2))], p=2.0, method="backward", relaxation="tight")
    return _known(problem, torch.tensor([0.1], dtype=torch.float64))


def _known(problem: Problem, eps: Tensor) -> tuple[Problem, Tensor]:
    problem = replace(problem, known=Known(problem.compiled.graph, eps))
    problem.margins(eps)
    return problem, eps


def leaf_of(problem: Problem, *assumptions: Assumption, multipliers: float = 0.0, case: tuple[int, ...] = (0,)) -> Leaf:
    assert problem.known is not None
    start = usual(problem, problem.known.boxes[0], 0)
    return Leaf(0, case, assumptions, start, (multipliers,) * len(assumptions), (1.0,) * len(case))


def points(problem: Problem, eps: Tensor, count: int = 3000) -> list[Tensor]:
    """Values of all nodes at points of the set, half of them inside."""
    ball, draw = problem.ball(eps, [0]), torch.Generator().manual_seed(2)
    cloud = torch.cat([ball.sample(count // 2, draw, boundary=side)[0] for side in (True, False)])
    return problem.compiled.graph.values(cloud)


KINDS = ["box", "layer norm", "ball", "float32"]


def problem_named(kind: str) -> tuple[Problem, Tensor]:
    if kind == "ball":
        return balled()
    return boxed(0.2, layer_norm=kind == "layer norm", arithmetic="float32" if kind == "float32" else "real")


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_in_every_part_whatever_the_multipliers(kind: str) -> None:
    problem, eps = problem_named(kind)
    values, checked, tighter = points(problem, eps), 0, 0
    rows = problem.rows([0])[0, 0].flatten()
    outputs = (values[-1].flatten(1) * rows).sum(dim=1)
    random = torch.Generator().manual_seed(5)
    assert problem.known is not None
    plain = proofs(Batch(problem, eps, problem.known, [leaf_of(problem)]))[0]
    assert plain <= float(outputs.min())
    for _ in range(25):
        nodes = bent(problem.compiled.graph)
        node = nodes[int(torch.randint(len(nodes), (1,), generator=random))]
        entry = int(torch.randint(math.prod(node.shape), (1,), generator=random))
        seen = values[node.index].flatten(1)[:, entry]
        at = float(seen[int(torch.randint(len(seen), (1,), generator=random))])
        for above in (True, False):
            inside = seen >= at if above else seen <= at
            unit = float(10 ** (4 * torch.rand(1, generator=random) - 3))
            leaf = leaf_of(problem, Assumption(node.index, entry, above, at, unit), multipliers=1.0)
            (bound,) = proofs(Batch(problem, eps, problem.known, [leaf]))
            if bool(inside.any()):
                assert bound <= float(outputs[inside].min())
                checked += 1
            tighter += bound > plain
    assert checked > 40
    assert tighter > 0


class Above(nn.Module):
    """`x + 2` for x in [-1, 1.5], by a ReLU that never bends: every sweep is exact."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x + 2)
        return torch.cat([y, -y], dim=1)


@pytest.mark.parametrize("m", [-3.0, 0.0, 0.4, 1.0, 1.7, 40.0])
@pytest.mark.parametrize("above", [True, False])
def test_a_multiplier_does_what_duality_says(m: float, above: bool) -> None:
    """Where x >= 0, `x + 2 >= x + 2 - m x`, whose least value is at an end; where x <= 0, the same of `-(x + 2)`."""
    prepared = prepare(cf.load(Above(), shape=(1,)), torch.tensor([0.25], dtype=torch.float64))
    goal = cf.Property([([[1, 0]], [0]), ([[0, 1]], [0])]).of(2, 0).goal
    regions = regions_of(prepared, [cf.Box([-1.0], [1.5])])
    problem, eps = _known(problem_of_regions(prepared, regions, goal, Options(method="backward")), UNIT)
    (node,) = bent(problem.compiled.graph)
    leaf = leaf_of(problem, Assumption(node.index, 0, above, 2.0, 1.0), multipliers=m, case=(0 if above else 1,))
    assert problem.known is not None
    (found,) = proofs(Batch(problem, eps, problem.known, [leaf]))
    slope = (1 - max(m, 0.0)) * (1 if above else -1)
    wanted = (2 if above else -2) + min(-slope, 1.5 * slope)
    assert wanted - 1e-6 <= found <= wanted


def test_a_part_that_nothing_meets_is_void_and_one_that_failed_is_not() -> None:
    problem, eps = boxed(0.2)
    assert problem.known is not None
    node = bent(problem.compiled.graph)[0]
    top = float(problem.known.boxes[0][node.index].upper.flatten()[0])
    beyond = leaf_of(problem, Assumption(node.index, 0, True, top + 1e-6, 1.0))
    near = leaf_of(problem, Assumption(node.index, 0, True, top - 1e-6, 1.0))
    found = proofs(Batch(problem, eps, problem.known, [beyond, near]))
    assert found[0] == math.inf
    assert found[1] < math.inf
    bad = problem.known.boxes[0][node.index]
    problem.known.boxes[0][node.index] = Box(bad.lower * math.nan, bad.upper)
    assert proofs(Batch(problem, eps, problem.known, [beyond])) == [-math.inf]


def test_what_is_known_is_of_the_same_set_and_proved() -> None:
    problem, eps = boxed(0.2)
    known = Known(problem.compiled.graph, eps)
    draft = problem.draft()
    assert draft is not None
    assert draft.known is None
    replace(problem, known=known).margins(eps, rounding=False)
    assert not known.boxes  # without rounding nothing is proved
    replace(problem, known=known).margins(eps / 2)
    assert not known.boxes  # of a smaller set
    replace(problem, known=known).margins(eps)
    values = points(problem, eps)
    for index, box in known.boxes[0].items():
        assert bool((box.lower <= values[index]).all() and (values[index] <= box.upper).all())


def tree_of(half: float) -> Tree:
    problem, eps = boxed(half)
    return Tree(problem, eps, problem.margins(eps), [0])


def test_open_and_proved_parts_cover_the_set() -> None:
    tree = tree_of(0.35)
    values = points(tree.problem, tree.eps)
    tree.begin()
    closed: list[Leaf] = []
    for _ in range(3):
        before = list(tree.leaves)
        if not tree.cut():
            break
        closed += [half for leaf in before if leaf not in tree.leaves for half in leaf.halves()]
    assert tree.parts > 8
    parts = tree.leaves + closed
    for case in {leaf.case for leaf in parts}:
        covered = torch.zeros(len(values[0]), dtype=torch.bool)
        for leaf in parts:
            inside = torch.ones_like(covered)
            for a in leaf.assumptions:
                seen = values[a.node].flatten(1)[:, a.entry]
                inside &= seen >= a.at if a.above else seen <= a.at
            covered |= inside & (leaf.case == case)
        assert bool(covered.all())


def test_sharpened_boxes_hold_and_gain() -> None:
    tree = tree_of(0.35)
    tree.begin()
    before, values = tree.found(), points(tree.problem, tree.eps)
    known = tree.problem.known
    assert known is not None
    old = dict(known.boxes[0])
    tree.sharpen()
    narrower = 0.0
    for index, box in known.boxes[0].items():
        assert bool((box.lower <= values[index]).all() and (values[index] <= box.upper).all())
        assert bool((box.lower >= old[index].lower).all() and (box.upper <= old[index].upper).all())
        narrower += float((old[index].upper - old[index].lower - box.upper + box.lower).sum())
    assert narrower > 0.01
    tree.begin()
    assert float(tree.found().least[0]) > float(before.least[0])


def test_what_is_interrupted_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(0.35)
    tree.begin()
    assert tree.leaves
    before, margins = list(tree.leaves), tree.found()
    tree.problem = replace(tree.problem, deadline=Deadline.after(-1.0))
    with pytest.raises(OutOfTime):
        tree.cut()
    assert {id(leaf) for leaf in tree.leaves} == {id(leaf) for leaf in before}
    assert torch.equal(tree.found().least, margins.least)


def test_parts_prove_more_and_never_what_is_false() -> None:
    model = cf.load(Small().eval(), shape=(6,))
    box = cf.Box.around(X, 0.3)
    prepared = prepare(model, X)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(0)
        cloud = X + 0.3 * (2 * torch.rand(20000, 6, generator=draw, dtype=torch.float64) - 1).sign()
        least = float(prepared.model.module(cloud.double())[:, 0].min())
    one, many = {}, {}
    for splits, found in ((None, one), (24, many)):
        certifier = cf.Certifier(model, method="backward", splits=splits)  # which captures the model once
        for away in (-0.02, 0.1, 0.4, 1.6):
            wanted = cf.Property([([[1, 0, 0]], [least - away])])
            found[away] = certifier.verify(X, within=box, property=wanted, attack=False).status
    assert many[-0.02] != "certified"  # there is a point below
    assert all(many[away] == "certified" for away, status in one.items() if status == "certified")
    assert sum(s == "certified" for s in many.values()) > sum(s == "certified" for s in one.values())


def test_half_spaces_are_combined() -> None:
    """`y = (x, 1 - x)`: both at most 0.4 never happens, and neither is impossible."""

    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(x + 1) - 1
            return torch.cat([y, 1 - y], dim=1)

    model = cf.load(Both(), shape=(1,))
    box = cf.Box([0.0], [1.0])
    for limit, proved in ((0.4, True), (0.49, True), (0.501, False)):
        wanted = cf.Property([([[1, 0], [0, 1]], [limit, limit])])
        plain = cf.verify(model, None, within=box, property=wanted, attack=False)
        assert plain.status != "certified"
        found = cf.verify(model, None, within=box, property=wanted, attack=False, method="backward", steps=1, splits=0)
        assert (found.status == "certified") == proved


def test_combined_rows_are_exact_and_limits_not_below() -> None:
    rows = torch.tensor([[1.0, -1.0], [0.0, 3.0]], dtype=torch.float64)
    limits = torch.tensor([0.1, 0.7], dtype=torch.float64)
    rounded = 0
    for k in range(1, 30):
        weights = (k / 31, 0.7123)
        row, limit = combined(rows, limits, weights)
        shares = [Fraction(round(w * 4096), 4096) for w in weights]
        assert [Fraction(v) for v in row.tolist()] == [shares[0], -shares[0] + 3 * shares[1]]
        exact = shares[0] * Fraction(0.1) + shares[1] * Fraction(0.7)
        assert exact <= Fraction(limit) <= exact * (1 + Fraction(1, 2**50))
        rounded += float(exact) < exact
    assert rounded > 5
    odd = rows + torch.tensor([[2.0**-52, 0], [0.1, 0]], dtype=torch.float64)
    row, limit = combined(odd, limits, (0.3, 0.7123))  # would be rounded: one of the two, as it is
    assert row.tolist() == odd[1].tolist()
    assert limit == 0.7
    assert combined(rows, limits, (math.nan, 1.0))[0].tolist() == [0.0, 3.0]


def test_top_k_is_every_set_of_k_and_too_many_are_refused() -> None:
    problem, _ = boxed(0.2)
    assert problem.goal is not None
    two = cf.TopK(2).of(3, 0).goal
    assert cases_of(replace(problem, goal=two)) == [(0, 1)]
    assert cases_of(problem) == [(0,), (1,)]
    assert cuttable(problem)
    assert not cuttable(replace(problem, memory=1))
    assert not cuttable(replace(problem, method="forward"))
    other, _ = boxed(0.2)
    assert not cuttable(replace(problem, known=other.known))  # boxes of another graph


def test_a_part_cuts_no_measured_box() -> None:
    problem, eps = boxed(0.2, layer_norm=True)
    assert problem.known is not None
    batch = Batch(problem, eps, problem.known, [leaf_of(problem)])
    engine = batch.engine(batch.variables(), rounding=True)
    assert isinstance(engine, Part)
    measured = [i for i in problem.scheme.measured if i in engine.boxes]
    assert measured
    assert all(engine.boxes[i] is engine.known[i] for i in measured)
    (leaf,) = optimised(batch, 2)
    assert leaf.next is None or leaf.next[0].node not in measured

"""`verify`: boxes, balls and unions against properties of the outputs, for modules on tensors of any shape."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.names import Method
from certiformer.core.problem import Margins, Problem
from certiformer.questions import growing, parts, refine
from certiformer.questions.inputs import prepare
from certiformer.questions.regions import regions_of
from conftest import IDS, random_model


class Vision(nn.Module):
    """A small vision Transformer as the competition has them: patches, a class token, BatchNorm, ReLU."""

    def __init__(self, width: int = 8, *, layer_norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(2, width, 2, 2)
        self.patches.weight.data *= 4
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.norm: nn.Module = nn.LayerNorm(width) if layer_norm else nn.BatchNorm1d(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.head = nn.Linear(width, 12), nn.Linear(12, width), nn.Linear(width, 4)
        if isinstance(self.norm, nn.BatchNorm1d):
            self.norm.running_mean.normal_()  # type: ignore[union-attr]
            self.norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        y = self.norm(x) if isinstance(self.norm, nn.LayerNorm) else self.norm(x.transpose(1, 2)).transpose(1, 2)
        q, k, v = self.qkv(y).reshape(*y.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).flatten(2))
        x = x + self.down(torch.relu(self.up(x)))
        logits: Tensor = self.head(x[:, 0])
        return logits


class Flat(nn.Module):
    """Numbers in, one number out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


SHAPE = (2, 4, 4)
PICTURE = 0.9 * torch.rand(SHAPE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
VISION = cf.load(Vision(), shape=SHAPE)
NORMED = cf.load(Vision(layer_norm=True), shape=SHAPE)


CERTIFIERS = {id(model): cf.Certifier(model) for model in (VISION, NORMED)}


def verify(
    model: cf.Model, x: Any, *, within: Any, more: dict[str, Any] | None = None, **asked: Any
) -> cf.VerifyResult:
    """`cf.verify` with some options, on graphs that were captured once."""
    certifier = copy.copy(CERTIFIERS[id(model)])
    certifier.options = dataclasses.replace(certifier.options, **(more or {}))
    return certifier.verify(x, within=within, **asked)


def outputs(model: cf.Model, points: Tensor) -> Tensor:
    with torch.no_grad():
        return model.to(dtype=torch.float64).module(points)


def in_box(box: cf.Box, count: int = 300) -> Tensor:
    """Points of a box, many of them corners."""
    generator = torch.Generator().manual_seed(3)
    share = torch.rand(count, *box.lower.shape, generator=generator, dtype=torch.float64)
    share[: count // 2] = share[: count // 2].round()
    return torch.minimum(torch.maximum(box.lower + share * (box.upper - box.lower), box.lower), box.upper)


@pytest.mark.parametrize("model", [VISION, NORMED], ids=["batch norm", "layer norm"])
@pytest.mark.parametrize("method", ["ibp", "forward", "backward", "backward-forward"])
def test_no_point_of_a_box_goes_below_what_is_proved(model: cf.Model, method: Method) -> None:
    eps = torch.rand(SHAPE, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 0.05
    box = cf.Box.around(PICTURE, eps, least=0.0, most=0.9)
    for more in ({"relaxation": "paper"}, {}, {"dtype": "float32"}, {"arithmetic": "float32"}):
        found = verify(model, None, within=box, attack=False, more={"method": method, **more})
        assert found.reason is None
        y = outputs(model, in_box(box))
        label = int(found.label)
        true = y[:, [label]] - y[:, [c for c in range(4) if c != label]]
        assert (true.amin(dim=0) >= torch.tensor(found.margins[0])).all(), more


@pytest.mark.parametrize("norm", [1, 2, 3, math.inf])
@pytest.mark.parametrize("splits", [0, 4])
def test_no_point_of_a_joint_ball_goes_below_what_is_proved(norm: float, splits: int) -> None:
    chosen = torch.rand(SHAPE, generator=torch.Generator().manual_seed(5)) < 0.5
    whole, some = cf.Ball(0.2, norm=norm), cf.Ball(0.3, norm=norm, where=chosen)
    more = {"method": "backward", "splits": splits}
    found = verify(VISION, PICTURE, within=[whole, some], attack=False, more=more)
    generator = torch.Generator().manual_seed(6)
    for k, (eps, mask) in enumerate(((0.2, torch.ones(SHAPE)), (0.3, chosen.double()))):
        noise = torch.randn(400, *SHAPE, generator=generator, dtype=torch.float64) * mask
        noise = noise.sign() * mask if math.isinf(norm) else noise
        if norm == 1:
            noise = noise * (noise.abs() >= noise.abs().flatten(1).amax(dim=1)[:, None, None, None] * 0.8)
        size = torch.linalg.vector_norm(noise.flatten(1), ord=norm, dim=1)[:, None, None, None]
        y = outputs(VISION, PICTURE + eps * noise / size)
        true = y[:, [found.label]] - y[:, [c for c in range(4) if c != found.label]]
        assert (true.amin(dim=0) >= torch.tensor(found.margins[k]) - 1e-12).all()


def test_one_norm_over_the_picture_is_the_same_whole_or_by_patches() -> None:
    patched = cf.load(Vision(), shape=SHAPE, patch=2)
    whole = CERTIFIERS[id(VISION)].radius(PICTURE).radii
    certifier = cf.Certifier(patched)
    together = certifier.radius(PICTURE, positions=[[0, 1, 2, 3]], joint=True)
    apart = certifier.radius(PICTURE, positions=[[0, 1, 2, 3]])
    assert together.radii == pytest.approx(whole, rel=2e-3)
    assert apart.radii[0] < together.radii[0] < 2 * apart.radii[0] * 1.01  # four blocks: a factor of 2 at most
    hit = certifier.attack(PICTURE, positions=[[0, 1, 2, 3]], joint=True)
    point = hit.points[0]
    assert point is not None
    assert float((point - PICTURE_BLOCKS).norm()) == pytest.approx(hit.radii[0])
    assert hit.radii[0] >= together.radii[0]


PICTURE_BLOCKS = PICTURE.reshape(2, 2, 2, 2, 2).permute(1, 3, 0, 2, 4).reshape(1, 4, 8)


@pytest.mark.parametrize("arithmetic", ["real", "float32"])
def test_what_is_refuted_lies_in_the_set_and_is_bad(arithmetic: Any) -> None:
    box = cf.Box.around(PICTURE, 0.7, least=0.0, most=1.0)
    for within in (box, cf.Ball(3.0), cf.Ball(9.0, norm=1), cf.Ball(0.9, norm=math.inf), cf.Ball(3.0, norm=3)):
        found = verify(VISION, PICTURE, within=within, more={"arithmetic": arithmetic})
        assert found.status == "refuted", within
        assert found.counterexample is not None
        point = found.counterexample.point
        exact = prepare(VISION, PICTURE)
        assert regions_of(exact, [within])[0].holds(point)
        y = torch.tensor(found.counterexample.outputs, dtype=torch.float64)
        assert int(y.argmax()) != found.label
        module = VISION.to(dtype=torch.float64 if arithmetic == "real" else torch.float32).module
        assert torch.equal(module(point.to(next(module.parameters()).dtype))[0].double(), y)


def test_properties_of_classes() -> None:
    y = outputs(VISION, PICTURE[None])[0]
    order = y.argsort(descending=True).tolist()
    box = cf.Box.around(PICTURE, 1e-3)
    certifier = CERTIFIERS[id(VISION)]
    assert certifier.verify(PICTURE, within=box, property=cf.Robust(order[0])).status == "certified"
    assert certifier.verify(PICTURE, within=box, property=cf.Robust(order[1])).status == "refuted"
    assert certifier.verify(PICTURE, within=box, property=cf.TopK(2, order[1])).status == "certified"
    assert certifier.verify(PICTURE, within=box, property=cf.TopK(2, order[2])).status == "refuted"
    assert certifier.verify(PICTURE, within=box, property=cf.Never(order[3])).status == "certified"
    assert certifier.verify(PICTURE, within=box, property=cf.Never(order[0])).status == "refuted"
    assert certifier.verify(PICTURE, within=box, property=cf.Within(-10, 10)).status == "certified"
    found = certifier.verify(PICTURE, within=box, property=cf.Within(upper=float(y.max()) - 0.1))
    assert found.status == "refuted"
    assert found.names[order[0]].startswith(f"- y[{order[0]}]")


def test_a_polyhedron_is_left_out_by_any_of_its_half_spaces_and_a_union_by_one_of_each() -> None:
    y = outputs(VISION, PICTURE[None])[0]
    box = cf.Box.around(PICTURE, 1e-3)
    e = torch.eye(4, dtype=torch.float64)
    here, there = (e[:1], y[:1] + 1), (e[:1], y[:1] - 1)  # reached, and never
    both = (torch.cat([e[:1], e[:1]]), torch.stack([y[0] + 1, y[0] - 1]))
    certifier = CERTIFIERS[id(VISION)]
    assert certifier.verify(PICTURE, within=box, property=cf.Property([both])).status == "certified"
    assert certifier.verify(PICTURE, within=box, property=cf.Property([there, both])).status == "certified"
    refuted = certifier.verify(PICTURE, within=box, property=cf.Property([there, here]))
    assert refuted.status == "refuted"
    assert refuted.counterexample is not None
    assert refuted.counterexample.clause == 1
    wide = cf.Box.around(PICTURE, 0.5)
    unsure = certifier.verify(PICTURE, within=[box, wide], property=cf.Property([both]), attack=False)
    assert unsure.statuses[0] == "certified"
    assert unsure.status == unsure.statuses[1]


def test_a_union_is_certified_only_if_every_member_is() -> None:
    small, large = cf.Box.around(PICTURE, 1e-3), cf.Box.around(PICTURE, 0.15)
    found = verify(VISION, PICTURE, within=[small, large], attack=False, more={"method": "ibp"})
    assert found.statuses == ("certified", "unknown")
    assert found.status == "unknown"
    assert found.least[0] > 0 > found.least[1]


def test_one_output_and_flat_vectors() -> None:
    model = cf.load(Flat(), shape=(5,))
    x = torch.zeros(5, dtype=torch.float64)
    y = float(outputs(model, x[None]))
    box = cf.Box(x - 0.01, x + 0.01)
    assert cf.verify(model, None, within=box, property=cf.Within(y - 1, y + 1)).status == "certified"
    found = cf.verify(model, x, within=box, property=cf.Within(lower=y))
    assert found.status == "refuted"
    with pytest.raises(cf.InputError, match="single output"):
        cf.verify(model, x, within=box, property=cf.Never(0))
    with pytest.raises(cf.InputError, match="every one"):
        cf.verify(model, x, within=box)


def test_zero_width_and_text() -> None:
    model = random_model(scale=0.3)
    exact = prepare(model, IDS)
    x = exact.embeddings
    assert cf.verify(model, IDS, within=cf.Box(x, x)).status == "certified"
    point = cf.verify(model, IDS, within=cf.Ball(0.0, positions=[[1]]))
    assert point.status == "certified"
    lower, upper = x.clone(), x.clone()
    lower[0, 1] -= 0.01
    upper[0, 1] += 0.02
    box = cf.verify(model, IDS, within=cf.Box(lower, upper), method="backward")
    ball = cf.verify(model, IDS, within=cf.Ball(0.02, norm=math.inf, positions=[[1]]), method="backward")
    assert box.least[0] >= ball.least[0]  # it is inside


def test_timeouts_and_bad_calls_end_in_one_line() -> None:
    late = verify(VISION, PICTURE, within=cf.Box.around(PICTURE, 0.1), attack=False, more={"timeout": 1e-9})
    assert late.status == "unknown"
    assert "out of time" in str(late.reason)
    wrong: list[Any] = [
        (lambda: cf.Box(1.0, 0.0), "empty"),
        (lambda: cf.Box([0.0, 2.0], [1.0, 1.0]), "entry 1"),
        (lambda: cf.Box(0.0, math.inf), "finite"),
        (lambda: cf.Box(math.nan, 1.0), "finite"),
        (lambda: cf.Box([0.0, 0.0, 0.0], [1.0, 2.0]), "same shape"),
        (lambda: cf.Box.around(PICTURE, -1.0), "0 or more"),
        (lambda: cf.Ball(math.inf), "finite"),
        (lambda: cf.Ball(1.0, where=torch.ones(3)), "true or false"),
        (lambda: cf.Property([]), "at least one"),
        (lambda: cf.Property([([[1.0]], [1.0, 2.0])]), "expected"),
        (lambda: cf.TopK(0), "whole number"),
        (lambda: cf.verify(VISION, PICTURE, within=cf.Box(torch.zeros(3), torch.ones(3))), "expected a tensor"),
        (lambda: cf.verify(VISION, PICTURE[0], within=cf.Ball(0.1)), "expected a tensor"),
        (lambda: cf.verify(VISION, PICTURE, within=cf.Ball(0.1, positions="1")), "where="),
        (lambda: cf.verify(VISION, PICTURE), "within"),
        (lambda: cf.verify(VISION, None, within=cf.Ball(0.1)), "only a Box"),
        (lambda: cf.verify(VISION, PICTURE, within=cf.Ball(0.1), property=cf.Never(7)), "0 to 3"),
        (lambda: cf.verify(VISION, PICTURE, within=cf.Ball(0.1), property=cf.Property([([1.0], [0.0])])), "outputs"),
        (lambda: cf.load(Vision(), shape=(2, 5, 4), patch=2), "divide"),
        (lambda: cf.load(Vision(), patch=2), "shape"),
        (lambda: cf.verify(VISION, PICTURE, within=cf.Ball(0.1), dtype="float32"), "not made of"),
    ]
    for call, said in wrong:
        with pytest.raises(cf.InputError, match=said):
            call()


def test_coefficients_that_float32_would_round_are_refused_there() -> None:
    tenth = cf.Property([(torch.full((1, 4), 0.1, dtype=torch.float64), [-1e9])])
    box = cf.Box.around(PICTURE, 1e-3)
    assert verify(VISION, None, within=box, property=tenth, more={"method": "ibp"}).status == "certified"
    with pytest.raises(cf.InputError, match="coefficients"):
        verify(VISION, None, within=box, property=tenth, more={"method": "ibp", "dtype": "float32"})


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(0, 1e3))
def test_boxes_around_a_point_are_rounded_outward(x: float, eps: float) -> None:
    box = cf.Box.around([x], eps)
    assert Fraction(float(box.lower)) <= Fraction(x) - Fraction(eps)
    assert Fraction(float(box.upper)) >= Fraction(x) + Fraction(eps)
    assert float(box.lower) >= math.nextafter(x - eps, -math.inf)
    assert float(box.lower) <= float(box.middle) <= float(box.upper)


def test_certify_and_bounds_take_sets_too() -> None:
    certifier = CERTIFIERS[id(VISION)]
    small, large = cf.Box.around(PICTURE, 1e-3), cf.Box.around(PICTURE, 0.8, least=0, most=1)
    verdict = certifier.certify(PICTURE, within=[small, large])
    assert verdict.statuses[1] == verdict.status == "refuted"
    assert verdict.counterexamples[0] is None
    assert verdict.counterexample is not None
    assert int(outputs(VISION, verdict.counterexample.point).argmax()) == verdict.counterexample.label != verdict.label
    assert "given sets" in repr(verdict)
    alone = certifier.certify(PICTURE, within=small)
    bounds = certifier.bounds(PICTURE, within=small)
    assert bounds.certified == (True,)
    assert float(bounds.lower.min()) == alone.margin > 0
    values = certifier.bounds(PICTURE, within=small, property=cf.Within(lower=0))
    y = outputs(VISION, in_box(small))
    assert (values.lower <= y).all()
    assert (y <= values.upper).all()
    for wrong in ({"eps": 0.1}, {"positions": "0"}):
        with pytest.raises(cf.InputError, match="says itself"):
            certifier.bounds(PICTURE, within=small, **wrong)
    with pytest.raises(cf.InputError, match="one by one"):
        certifier.bounds(PICTURE, within=[small, cf.Ball(0.1)])


def test_results_are_plain_values_and_a_line() -> None:
    found = verify(VISION, PICTURE, within=cf.Ball(0.01), more={"method": "ibp"})
    assert found.to_dict()["names"] == list(found.names)
    assert found.rows() == [{"words": "ball 0", "status": found.status, "least": found.least[0]}]
    assert "half-spaces" in repr(found)
    assert "<div>" in found._repr_html_()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.status = "refuted"  # type: ignore[misc]


def test_the_radius_of_a_set_is_what_it_may_be_multiplied_by() -> None:
    model = cf.load(Vision().eval(), shape=(2, 4, 4), patch=2)
    x = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(4)).double()
    width = 0.001 * (1 + torch.arange(32).reshape(2, 4, 4) % 3)
    for within, larger in (
        (cf.Box.around(x, width), lambda r: cf.Box.around(x, width.double() * r)),
        (cf.Ball(0.01, norm=2, positions="1+2"), lambda r: cf.Ball(0.01 * r, norm=2, positions="1+2")),
        (cf.Ball(0.01, norm=1, where=width > 0.0015), lambda r: cf.Ball(0.01 * r, norm=1, where=width > 0.0015)),
    ):
        found = cf.radius(model, x, within=within, method="backward", tolerance=1e-2)
        (factor,) = found.radii
        assert factor > 0
        assert cf.verify(model, x, within=larger(factor * (1 - 1e-9)), method="backward").status == "certified"
        assert cf.verify(model, x, within=larger(factor * 1.03), method="backward", attack=False).status != "certified"
        assert "in units of the set" in str(found)


def test_radii_of_sets_that_make_no_sense_are_named() -> None:
    model = cf.load(Flat().eval(), shape=(5,))
    x = torch.ones(5)
    for within, said in (
        (cf.Box(1.0, 1.0), "does not grow"),
        (cf.Ball(0.0), "does not grow"),
        ([cf.Box(0.9, 1.1), cf.Ball(0.1)], "different kinds"),
        (cf.Words({"a": ["b"]}), "substitutions"),
    ):
        with pytest.raises(cf.InputError, match=said):
            cf.radius(cf.load(Vision().eval(), shape=(2, 4, 4)), torch.ones(2, 4, 4), within=within)
    with pytest.raises(cf.InputError, match="words"):
        cf.radius(model, x, within=cf.Box.around(x, 0.1), words=2)


def test_certify_cuts_across_entries_where_all_patches_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one patch moves, its ball is cut into pieces; so it is where nothing limits the time."""
    model, used = cf.load(Vision(), shape=SHAPE, patch=2), []

    class Recorded(refine.Parting):
        def margins(self, known: Margins, chosen: list[int]) -> Iterator[Margins]:
            used.append(len(self.problem.positions[0]))
            return super().margins(known, chosen)

    monkeypatch.setattr(refine, "Parting", Recorded)
    asked: dict[str, Any] = {"norm": "inf", "attack": False}
    every, one = [[0, 1, 2, 3]], [[0]]
    plain = cf.certify(model, PICTURE, eps=0.3, positions=every, splits=2, **asked)
    assert plain.status == "unknown"
    assert cf.certify(model, PICTURE, eps=5.0, positions=one, splits=2, timeout=1e4, **asked).status == "unknown"
    assert used == []
    found = cf.certify(model, PICTURE, eps=0.3, positions=every, splits=64, timeout=1e4, **asked)
    assert used == [4]
    assert (found.status, plain.margin < 0 < found.margin) == ("certified", True)


def test_a_radius_is_cut_across_entries_where_all_patches_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a given time, where `certify` does it too; and no radius is reported that was not proved."""
    model, used = cf.load(Vision(), shape=SHAPE, patch=2), []
    every: dict[str, Any] = {"norm": "inf", "positions": [[0, 1, 2, 3]], "tolerance": 0.09}
    plain = cf.radius(model, PICTURE, splits=0, **every).radii[0]

    def tried(problem: Any, eps: Any, options: Any, **more: Any) -> Any:
        used.append((float(eps[0]), more["by_entries"]))
        return refine.margins_within(problem, eps, options, **more)

    monkeypatch.setattr(growing, "margins_within", tried)
    monkeypatch.setattr(growing, "MORE", 0.5)  # one step is all
    grown = cf.radius(model, PICTURE, timeout=1e4, **every).radii[0]
    assert [by for _, by in used] == [True]
    assert grown == used[0][0] > plain
    used.clear()
    cf.radius(model, PICTURE, splits=2, **every)  # in any time
    cf.radius(model, PICTURE, timeout=1e4, splits=2, **{**every, "positions": [[0]]})  # where one patch moves
    assert used == []


def test_numbers_of_other_kinds_are_inputs_too() -> None:
    box = cf.Box.around(PICTURE, 0.01)
    wanted = verify(VISION, PICTURE, within=box).margins
    for numbers in (PICTURE.numpy(), PICTURE.tolist()):
        assert verify(VISION, numbers, within=box).margins == wanted
    with pytest.raises(cf.InputError, match="as many in each row") as error:
        verify(VISION, [[1.0], [1.0, 2.0]], within=box)
    assert "\n" not in str(error.value)
    with pytest.raises(cf.InputError) as error:
        cf.radius("sst-1", {"a": torch.rand(2, 60)})
    assert "\n" not in str(error.value)


def test_what_is_the_same_in_a_channel_is_said_once() -> None:
    channels, height, width = SHAPE
    least = torch.linspace(-2, -1, channels, dtype=torch.float64)[:, None, None]
    half = torch.linspace(0.01, 0.02, channels, dtype=torch.float64)[:, None, None]
    whole = cf.Box.around(PICTURE, half.expand(SHAPE), least=least.expand(SHAPE))
    found = verify(VISION, PICTURE, within=cf.Box.around(PICTURE, half, least=least))
    assert found.margins == verify(VISION, PICTURE, within=whole).margins
    box = cf.Box(least, least + half)
    full = cf.Box(box.lower.expand(SHAPE), box.upper.expand(SHAPE))
    assert verify(VISION, None, within=box).margins == verify(VISION, None, within=full).margins
    first = torch.arange(channels)[:, None, None] == 0
    ball = verify(VISION, PICTURE, within=cf.Ball(0.02, where=first))
    assert ball.margins == verify(VISION, PICTURE, within=cf.Ball(0.02, where=first.expand(SHAPE))).margins
    for wrong in (
        {"eps": torch.ones(channels + 1, 1, 1)},
        {"eps": 0.1, "most": torch.ones(channels, height + 1, width)},
    ):
        with pytest.raises(cf.InputError, match="in the place of some"):
            cf.Box.around(PICTURE, **wrong)


def test_optimising_begins_with_what_known_boxes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual planes follow from boxes that are proved: no evaluation is spent on them."""
    model, told = cf.load(Vision(), shape=SHAPE, patch=2), []
    tuned = Problem.tuned

    def noted(self: Problem, *rest: Any, **more: Any) -> Problem:
        told.append(set(self.parameters))
        return tuned(self, *rest, **more)

    monkeypatch.setattr(Problem, "tuned", noted)
    monkeypatch.setattr(parts.Parting, "_steps", lambda self, seconds: 5)
    monkeypatch.setattr("certiformer.core.problem.usual", lambda *rest: pytest.fail("an evaluation more"))
    asked: dict[str, Any] = {"norm": "inf", "attack": False, "positions": [[0, 1, 2, 3]]}
    assert cf.certify(model, PICTURE, eps=0.3, splits=64, timeout=1e4, **asked).status == "certified"
    assert told
    assert all(told)

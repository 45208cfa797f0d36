"""Bugs put into the engine on purpose: the second program refuses what they prove.

Each makes the engine claim more than follows. docs/certificates.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checking import checked
from torch import Tensor, nn

import certiformer as cf
from certiformer.certificate import writing
from certiformer.core import bounding, engine, recording, rounding, sweep
from certiformer.core.ops import elementwise, normalize, product, softmax
from certiformer.core.ops.base import Box, Planes
from certiformer.core.problem import Problem
from certiformer.core.sets import ball, piece
from conftest import REFERENCE

SMALL, STANDARD, TWO = (REFERENCE / name for name in ("sst_1_small", "sst_1_small_standard", "sst_2_tiny"))
Patch = pytest.MonkeyPatch
ASKED: dict[str, Any] = {"eps": 0.3, "positions": [2]}


def relu_without_offset(patch: Patch) -> None:
    """The chord above relu without its offset: a wrong sign would be worse, and is refused too."""
    true = elementwise.Relu.tuned

    def wrong(self: Any, parameters: Any, *boxes: Box) -> Planes:
        planes = true(self, parameters, *boxes)
        assert planes.upper is not None
        return planes._replace(upper=-planes.upper)

    patch.setattr(elementwise.Relu, "tuned", wrong)


def product_with_wrong_sign(patch: Patch) -> None:
    """`ly x + lx y + lx ly` below a product."""
    true = product.MatMul.planes

    def wrong(self: Any, *boxes: Box) -> Planes:
        planes = true(self, *boxes)
        assert planes.lower is not None
        return planes._replace(lower=planes.lower.abs(), upper=-planes.lower.abs())

    patch.setattr(product.MatMul, "planes", wrong)


def product_with_swapped_bounds(patch: Patch) -> None:
    """The upper plane of a product in the place of the lower one."""
    true = product.MatMul.planes

    def wrong(self: Any, *boxes: Box) -> Planes:
        planes = true(self, *boxes)
        x, y = planes.slopes
        return planes._replace(slopes=(x._replace(lower=x.upper, upper=x.lower), y))

    patch.setattr(product.MatMul, "planes", wrong)


def tanh_by_chord(patch: Patch) -> None:
    """The chord below tanh, also where tanh is convex."""

    def wrong(self: Any, slope: Tensor, l: Tensor, u: Tensor) -> Tensor:
        return torch.maximum(torch.tanh(l) - slope * l, torch.tanh(u) - slope * u) + 0.02

    patch.setattr(elementwise.Tanh, "least", wrong)


def softmax_above_at_one_end(patch: Patch) -> None:
    """The upper plane of softmax a tenth too low."""
    true = softmax.OfDifferences.tuned

    def wrong(self: Any, parameters: Any, *boxes: Box) -> Planes:
        planes = true(self, parameters, *boxes)
        assert planes.upper is not None
        return planes._replace(upper=planes.upper - 0.1 * planes.upper.abs())

    patch.setattr(softmax.OfDifferences, "tuned", wrong)


def dual_of_another_norm(patch: Patch) -> None:
    """q = 2 in the place of q = 1, the dual of p = inf."""
    patch.setattr(ball, "dual", lambda p: 2.0)


def path_dropped(patch: Patch) -> None:
    """Where two paths meet only the last counts: residual connections are lost."""
    patch.setattr(sweep.Visitor, "join", lambda self, parts, a: parts.__setitem__(slice(None), [a]))


def gap_forgotten(patch: Patch) -> None:
    """Only the middle of the planes counts, not how far they are apart."""
    true = bounding.applied

    def wrong(total: Any, a: Any, centre: Tensor, gap: Tensor | None, lead: str = "") -> Tensor:
        return true(total, a, centre, None if lead else gap if gap is None else 0.5 * gap, lead)

    patch.setattr(bounding, "applied", wrong)


def remainder_halved(patch: Patch) -> None:
    """Half of what the division by the standard deviation may be off its tangent plane."""
    true = normalize.curved
    patch.setattr(normalize, "curved", lambda t, a: true(t, a) / 2)


def spectral_norm_too_small(patch: Patch) -> None:
    """The largest entry in the place of a spectral norm."""
    patch.setattr(ball, "spectral", lambda a, times=9: a.abs().amax(dim=(-2, -1)))


def stale_boxes(patch: Patch) -> None:
    """Boxes of a smaller radius, as of an earlier recording of the evaluation."""
    true = Problem.ball

    def wrong(self: Problem, eps: Tensor, chosen: list[int]) -> Any:
        made = true(self, eps, chosen)
        return replace(made, eps=made.eps * 0.9)

    patch.setattr(Problem, "ball", wrong)
    said = writing._ball

    def told(recorded: Any) -> Any:
        words, numbers = said(recorded)
        return words, numbers | {"set.radius": numbers["set.radius"] / 0.9}

    patch.setattr(writing, "_ball", told)


def interval_too_narrow(patch: Patch) -> None:
    """The range of tanh from its middle."""
    true = recording.Recording._widened

    def wrong(self: Any, box: Box) -> Box:
        box = true(self, box)
        return Box(box.centre - 0.9 * box.radius, box.centre + 0.9 * box.radius)

    patch.setattr(recording.Recording, "_widened", wrong)


def pieces_with_a_hole(patch: Patch) -> None:
    """Halves that do not share the number at which they are cut."""
    true = piece.Cuts.halved

    def wrong(self: Any, normal: Tensor, at: Tensor) -> Any:
        return true(self, normal, at)[0], true(self, normal, at + 1e-3)[1]

    patch.setattr(piece.Cuts, "halved", wrong)


def other_weights(patch: Patch) -> None:
    """A graph captured of weights that have changed since."""
    true = writing.described

    def wrong(graph: Any) -> Any:
        nodes, numbers = true(graph)
        last = max((name for name in numbers if name.endswith(".bias")), key=lambda name: int(name.split(".")[1]))
        return nodes, numbers | {last: numbers[last] + torch.tensor([1e-3, -1e-3])}

    patch.setattr(writing, "described", wrong)


BUGS: dict[Callable[[Patch], None], tuple[Path, dict[str, Any]]] = {
    relu_without_offset: (SMALL, {"eps": 0.5}),
    product_with_wrong_sign: (SMALL, {}),
    product_with_swapped_bounds: (SMALL, {}),
    tanh_by_chord: (SMALL, {}),
    softmax_above_at_one_end: (SMALL, {}),
    dual_of_another_norm: (SMALL, {"norm": "inf", "eps": 0.01}),
    path_dropped: (TWO, {"eps": 0.05}),
    gap_forgotten: (TWO, {"eps": 0.05}),
    remainder_halved: (STANDARD, {"eps": 0.09}),
    spectral_norm_too_small: (STANDARD, {"eps": 0.09}),
    stale_boxes: (SMALL, {}),
    interval_too_narrow: (SMALL, {}),
    pieces_with_a_hole: (SMALL, {"norm": "inf", "eps": 0.0852, "positions": [1], "splits": 4}),
    other_weights: (SMALL, {}),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_what_a_bug_proves_is_refused(bug: Callable[[Patch], None], tmp_path: Path) -> None:
    folder, more = BUGS[bug]
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        result = cf.certify(
            folder, "the film is lame", **{**ASKED, **more}, attack=False, certificate=tmp_path / "it.cert"
        )
    assert result.certificate is not None  # the engine believes it
    code, line = checked(tmp_path / "it.cert", folder)
    assert code in (1, 2), line
    assert ("the folder" in line) == (bug is other_weights), line


class Cancelling(nn.Module):
    """`x` in real numbers; in float64 four digits of it are left."""

    def forward(self, x: Tensor) -> Tensor:
        y = ((x + 1e12) - 1e12).sum(dim=1)
        return torch.cat([y, -y], dim=-1)


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_rounding_term_is_refused(missing: bool, tmp_path: Path, monkeypatch: Patch) -> None:
    if missing:
        monkeypatch.setattr(rounding, "gamma", lambda like, terms: 0.0)
        monkeypatch.setattr(engine, "gamma", lambda like, terms: 0.0)
    x = torch.full((1, 2, 1), 1e-4)
    asked = {"eps": 1e-7, "positions": [1], "attack": False, "certificate": tmp_path / "it.cert"}
    result = cf.certify(Cancelling(), x, **asked)
    assert (result.status == "certified") == missing  # with its rounding terms the engine knows that it cannot tell
    if missing:
        code, line = checked(tmp_path / "it.cert")
        assert code == 1, line

"""Agreement with radii computed elsewhere. Each bound is asked just inside and just outside the stated radius."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import certiformer as cf

Radii = dict[tuple[str, int, float, str], dict[int, float]]
AGREEMENT = 2e-3

# model, sentence, p, method, how much larger ours may be: no more than the agreement where the method is the same
SLICE: list[tuple[str, int, float, Any, float]] = [
    ("sst_1_small", 0, 2.0, "backward-forward", AGREEMENT),
    ("sst_1_small", 1, 1.0, "backward-forward", AGREEMENT),
    ("sst_1_small", 0, math.inf, "backward-forward", AGREEMENT),
    ("sst_2_tiny", 0, 2.0, "backward-forward", AGREEMENT),
    ("sst_2_tiny", 1, math.inf, "backward-forward", AGREEMENT),
    ("sst_3_tiny", 0, 2.0, "backward-forward", AGREEMENT),
    ("sst_3_tiny", 1, 1.0, "backward-forward", AGREEMENT),
    ("sst_1_small", 0, 2.0, "backward", 4e-3),  # paths are added up before exp is relaxed: a little tighter
    ("sst_2_tiny", 0, 2.0, "backward", 4e-3),
    ("sst_2_tiny", 0, 2.0, "forward", math.inf),  # the mean of LayerNorm in one step: tighter
    ("sst_3_tiny", 1, math.inf, "forward", math.inf),
    ("sst_1_small", 1, 2.0, "ibp", math.inf),
    ("sst_3_tiny", 0, 1.0, "ibp", math.inf),
    ("sst_1_small_standard", 0, 2.0, "backward-forward", math.inf),  # only the first position of the last layer
    ("sst_1_small_standard", 1, 2.0, "forward", math.inf),
    ("sst_1_small_standard", 0, math.inf, "ibp", math.inf),
]


@pytest.mark.parametrize(("name", "sentence", "p", "method", "above"), SLICE)
def test_radii_agree(
    name: str,
    sentence: int,
    p: float,
    method: Any,
    above: float,
    reference: Path,
    reference_radii: Radii,
    reference_ids: list[list[int]],
) -> None:
    model = cf.load(reference / name)
    stated = reference_radii[name, sentence, p, method]
    sets = [[i] for i in stated]
    inside = [r * (1 - AGREEMENT) for r in stated.values()]
    same: dict[str, Any] = {"norm": p, "positions": sets, "method": method, "relaxation": "paper"}
    b = cf.bounds(model, reference_ids[sentence], eps=inside, **same)
    assert all(b.certified), f"smaller than the reference: {b.lower.flatten().tolist()}"
    if math.isfinite(above):
        outside = [r * (1 + above) for r in stated.values()]
        b = cf.bounds(model, reference_ids[sentence], eps=outside, **same)
        assert not any(b.certified), f"larger than the reference: {b.lower.flatten().tolist()}"


def test_no_radius_exceeds_an_attack(reference: Path, reference_radii: Radii, reference_ids: list[list[int]]) -> None:
    for name in ("sst_1_small", "sst_2_tiny", "sst_3_tiny"):
        model = cf.load(reference / name)
        attacked = reference_radii[name, 0, 2.0, "PGD upper bound"]
        for method in ("forward", "backward-forward"):
            b = cf.bounds(
                model,
                reference_ids[0],
                eps=list(attacked.values()),
                positions=[[i] for i in attacked],
                method=method,  # type: ignore[arg-type]
                relaxation="paper",
            )
            assert not any(b.certified)


def test_the_rounding_terms_are_small(reference: Path, reference_ids: list[list[int]]) -> None:
    model = cf.load(reference / "sst_2_tiny")
    args: dict[str, Any] = {"eps": 0.3, "positions": [[1], [4]], "method": "backward-forward", "relaxation": "paper"}
    with_terms = cf.bounds(model, reference_ids[0], **args)
    without = cf.bounds(model, reference_ids[0], rounding=False, **args)
    lost = without.lower - with_terms.lower
    assert (lost > 0).all()
    assert (lost < 1e-7).all()
    single = cf.bounds(model, reference_ids[0], dtype=torch.float32, **args)
    assert (single.lower.double() <= without.lower).all()

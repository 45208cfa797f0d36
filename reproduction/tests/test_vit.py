"""The benchmark of vision Transformers: what an instance says, and that making and running it works."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from certiformer.formats import parse_vnnlib
from certiformer_reproduction.command_line import main
from certiformer_reproduction.vit import make
from certiformer_reproduction.vit.network import Shape, VisionTransformer
from certiformer_reproduction.vit.pictures import MEAN, STD, held_out, normalised, pictures
from certiformer_reproduction.vit.run import FIELDS, table

TINY = {"tiny": Shape(layers=1, heads=1, patch=16, width=6)}


def test_an_instance_is_the_box_around_its_picture() -> None:
    x, y = pictures()
    query = parse_vnnlib(make.property_of(5, 2, 10))
    (case, *others) = query.cases
    assert len(others) == 8
    assert {len(c.rows) for c in query.cases} == {1}
    named = {v for c in query.cases for v in c.rows[0].linear.factors}
    assert ("Y", int(y[5])) in named
    pixel = Fraction(round(float(x[5].flatten()[100]) * 255), 255)
    for bound, moved in ((case.lower[100], pixel - Fraction(2, 255)), (case.upper[100], pixel + Fraction(2, 255))):
        wanted = (min(max(moved, Fraction(0)), Fraction(1)) - Fraction(MEAN)) / Fraction(STD)
        assert abs(bound - wanted) <= Fraction(1, 10**9)


def test_pictures_that_are_read_wrongly_are_left_out() -> None:
    torch.manual_seed(0)
    model = VisionTransformer(TINY["tiny"]).eval()
    making = make.Making(Path(), count=5)
    x, y = pictures()
    chosen = make.choose(model, making, (1,))
    assert len(chosen) == 5
    numbers = [k for k, _ in chosen]
    assert bool(held_out(len(y))[numbers].all())
    assert bool((model(normalised(x[numbers])).argmax(dim=1) == y[numbers]).all())


def test_the_table_counts_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    rows = [
        ("onnx/a.onnx", "1", "unsat", "2.0"),
        ("onnx/a.onnx", "2", "sat", "1.0"),
        ("onnx/a.onnx", "3", "timeout", "9"),
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([FIELDS, *rows])
    assert list(table(path))[-1] == "| `a` | 3 | 1 | 1 | 1 | 2.0 s | 9.0 s |"


@pytest.mark.slow
def test_it_is_made_and_run_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "SHAPES", TINY)
    monkeypatch.setattr(make, "STEPS", {"tiny": (1,)})
    assert main(["vit", "make", str(tmp_path), "--count", "2", "--epochs", "1"]) == 0
    assert main(["vit", "run", str(tmp_path), "--most", "1", "--timeout", "20"]) == 0
    assert main(["vit", "run", str(tmp_path), "--timeout", "20"]) == 0  # it goes on where it stopped
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert len(rows) == 2
    assert {row["verdict"] for row in rows} <= {"unsat", "sat", "unknown", "timeout"}

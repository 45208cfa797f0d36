"""The weight of the penalty chosen for the user: a front of accuracy and certified radius, its knee, and going on."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

import certiformer as cf
from calling import run
from certiformer.errors import InputError
from certiformer.training import Front, Point, Recipe, front
from certiformer.training.front import knee
from training.test_training import CONFIG, RECIPE

RECIPES = replace(RECIPE, epochs=8, learning_rate=1e-2)
SHAPE = replace(CONFIG, dropout=0.0)


@pytest.fixture(scope="module")
def found(tmp_path_factory, data) -> Front:
    return front(SHAPE, data, tmp_path_factory.mktemp("front") / "f", recipe=RECIPES, weights=[0.3], sentences=2)


def test_every_weight_is_trained_and_measured_and_the_chosen_model_opens(found):
    assert [p.weight for p in found.points] == [0.0, 0.3]
    plain, robust = found.points
    assert min(robust.of_length, plain.of_length) > 0
    assert found.chosen == knee(found.points, 0.02)
    model = cf.load(found.folder)
    assert model.facts["recipe"]["certify"] == found.chosen.weight
    assert model.facts["dev_accuracy"] == found.chosen.dev_accuracy
    with (found.folder / "front.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["weight"]) for row in rows] == [0.0, 0.3]
    assert [row["chosen"] for row in rows] == [str(p == found.chosen) for p in found.points]
    assert float(rows[1]["of_length"]) == robust.of_length
    pytest.importorskip("matplotlib")
    assert (found.folder / "front.png").read_bytes()[:4] == b"\x89PNG"


def test_what_is_measured_is_the_certified_radius_of_the_right_answer(found, data):
    from certiformer.training.front import _sample

    texts = _sample(data, 2)
    model = cf.load(found.folder / "weight-0.3")
    radii = []
    for example, word in texts:
        result = cf.radius(model, example.written, positions=[word + 1])
        radii.append(result.radii[0] if result.label == example.label else 0.0)
    assert found.points[1].certified == pytest.approx(sum(radii) / 2, rel=0.03)


def test_what_is_done_is_not_done_again_and_other_settings_are_refused(tmp_path, data):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.penalty and progress.evaluated:
            raise Stop

    given = {"recipe": RECIPES, "weights": [0.2], "sentences": 1}
    with pytest.raises(Stop):
        front(SHAPE, data, tmp_path / "f", progress=stop, **given)
    point = tmp_path / "f" / "weight-0" / "point.json"
    before = json.loads(point.read_text())
    again = front(SHAPE, data, tmp_path / "f", **given)
    assert json.loads(point.read_text()) == before
    assert again.points[1].certified > 0
    (tmp_path / "f" / "config.json").unlink()  # as if it had been killed before the last file
    with pytest.raises(InputError, match="other settings"):
        front(SHAPE, data, tmp_path / "f", recipe=replace(RECIPES, seed=1), weights=[0.2], sentences=1)
    assert front(SHAPE, data, tmp_path / "f", **given).points == again.points
    with pytest.raises(InputError, match="already holds a model"):
        front(SHAPE, data, tmp_path / "f", **given)


def points(*figures: tuple[float, float | None, float]) -> list[Point]:
    return [Point(w, dev, None, share, share, 1.0, 1.0, str(w)) for w, dev, share in figures]


def test_the_knee_is_the_least_weight_that_brings_most_within_what_may_be_lost():
    line = points((0.0, 0.8, 0.1), (0.1, 0.81, 0.2), (0.2, 0.79, 0.5), (0.5, 0.79, 0.52), (1.0, 0.7, 0.9))
    assert knee(line, 0.02).weight == 0.2
    assert knee(line, 0.2).weight == 1.0
    assert knee(line, 0.0).weight == 0.1
    assert knee(points((0.0, 0.8, 0.1), (0.1, None, 0.0)), 0.02).weight == 0.0  # the other collapsed


def test_a_weight_that_collapses_is_shown_and_not_chosen(tmp_path, data):
    gentle = replace(RECIPE, epochs=4, learning_rate=5e-3)
    found = front(SHAPE, data, tmp_path / "f", recipe=gentle, weights=[1e6], sentences=1)
    assert found.points[1].dev_accuracy is None
    assert found.chosen.weight == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": []}, "at least one weight above 0"),
        ({"weights": [-1.0]}, "certify=-1"),
        ({"sentences": 0}, "sentences=0"),
        ({"recipe": Recipe(certify=0.1)}, "weights of its own"),
    ],
)
def test_wrong_calls_are_one_line(tmp_path, data, change, message):
    with pytest.raises(InputError, match=message):
        front(SHAPE, data, tmp_path / "f", **change)


def test_on_the_command_line(tmp_path, data, capsys):
    for part in ("train", "dev"):
        rows = [f"{e.label}\t{e.written}" for e in getattr(data, part)]
        (tmp_path / f"{part}.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    small = ["--hidden", "16", "--heads", "2", "--epochs", "6", "--batch-size", "16", "--learning-rate", "0.01"]
    where = ["--data", str(tmp_path), "--out", str(tmp_path / "m"), "--quiet"]
    few = ["--weights", "0.1", "--sentences", "1", "--allowed-loss", "0.3"]
    code, out, err = run(capsys, "train", *where, *small, "--certify", "auto", *few)
    assert code == 0, err
    assert "of the length" in out
    assert "the knee within 30.0%" in out
    assert sorted(p.name for p in (tmp_path / "m").glob("weight-*")) == ["weight-0", "weight-0.1"]
    for written, said in (("often", "expected a number, or auto"), ("-1", "certify=-1")):
        code, _, err = run(capsys, "train", *where, "--certify", written)
        assert code != 0
        assert said in err

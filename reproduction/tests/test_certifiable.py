"""What training for certificates brought: what is measured, that it is kept, and that a kill loses a line at most."""

from __future__ import annotations

import json

import pytest

import certiformer as cf
from certiformer.errors import InputError
from certiformer_reproduction.command_line import main
from certiformer_reproduction.studies import certifiable
from certiformer_reproduction.studies.certifiable import Settings, study

TREES = [
    "(4 (2 the) (4 (4 good) (2 film)))",
    "(1 (2 the) (1 (1 bad) (2 plot)))",
    "(4 (4 good) (2 film))",
]


@pytest.fixture
def settings(tmp_path) -> Settings:
    (tmp_path / "phrases.train.tsv").write_text("label\tsentence\n1\tgood film\n0\tbad plot\n")
    for part in ("dev", "test"):
        (tmp_path / f"trees.{part}.txt").write_text("\n".join(TREES) + "\n")
    return Settings(("sst-1",), tmp_path / "out", data_dir=tmp_path, sentences=3)


def test_a_row_is_the_mean_of_what_is_right(settings):
    said: list[str] = []
    (row,) = study(settings, said.append)
    found = [json.loads(each) for each in (settings.out / "sst-1.jsonl").read_text().splitlines()]
    assert len(found) == row["sentences"] == 3
    right = [each for each in found if each["right"]]
    assert row["certified"] == pytest.approx(sum(each["certified"] for each in right) / len(right))
    assert all(0 < each["certified"] < each["attacked"] for each in right)
    one = right[0]
    radius = cf.radius("sst-1", one["text"], positions=[one["word"] + 1], tolerance=0.02)
    assert radius.radii[0] == pytest.approx(one["certified"])
    assert row["accuracies"][0] == sum(each["of_length"] >= 0.05 for each in right) / 3
    assert len(said) == 3
    assert said[-1].startswith("| sst-1 | 0.02 | ")


def test_what_is_measured_is_not_measured_again_but_a_cut_line_is(settings, monkeypatch):
    (first,) = study(settings)
    path = settings.out / "sst-1.jsonl"
    path.write_text(path.read_text()[:-5])
    calls = []
    before = certifiable.measured
    monkeypatch.setattr(certifiable, "measured", lambda *given: calls.append(given) or before(*given))
    (again,) = study(settings)
    assert len(calls) == 1
    assert again["certified"] == first["certified"]
    path.write_text(path.read_text().replace("the", "a"))
    with pytest.raises(InputError, match="other sentences"):
        study(settings)


def test_the_command_says_what_is_wrong_in_a_line(settings, capsys):
    assert main(["certifiable", "sst-1", "--data-dir", str(settings.data_dir), "--norm", "three"]) == 2
    assert "norm" in capsys.readouterr().err

"""The command line: train, eval and models, and its errors."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from calling import run
from certiformer.models import load
from certiformer.recipe import SHORT_NAMES, Config, Recipe
from certiformer.training import Trained

ROWS = "label\tsentence\n" + "".join(f"{i % 2}\tit's {('bad', 'good')[i % 2]} {i % 7}\n" for i in range(60))
SMALL = ["--hidden", "8", "--heads", "2", "--epochs", "2", "--batch-size", "16", "--device", "cpu"]


@pytest.fixture
def tables(tmp_path) -> Path:
    folder = tmp_path / "tables"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.tsv").write_text(ROWS)
    return folder


def test_train_eval_and_the_command_in_the_card(tmp_path, tables, capsys):
    call = ["train", "--data", tables, "--out", tmp_path / "m", "--layers", "2", "--layer-norm", "standard", *SMALL]
    code, out, err = run(capsys, *call)
    assert code == 0
    assert "dev " in out
    assert "\x1b" not in out + err
    assert err.count("epoch") == 4  # no live bar where there is no terminal, a line an evaluation
    model = load(tmp_path / "m")
    assert model.facts["num_hidden_layers"] == 2
    assert model.facts["layer_norm"] == "standard"
    assert model.facts["command"].startswith("certiformer train --data ")
    card = (tmp_path / "m" / "README.md").read_text()
    assert "certiformer train --data tables --out m --layers 2 --vocab-size" in card
    assert str(tmp_path) not in card + (tmp_path / "m" / "config.json").read_text()
    code, out, _ = run(capsys, "eval", tmp_path / "m", "--data", tables / "test.tsv", "--device", "cpu")
    assert code == 0
    assert f"{model.facts['test_accuracy']:.2%}" in out
    assert "of 60" in out
    code, out, _ = run(capsys, "eval", tmp_path / "m", "--data", tables, "--split", "dev", "--device", "cpu", "-q")
    assert abs(float(out) - model.facts["dev_accuracy"]) < 1e-9


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("--data sst --data-dir /home/me/data --out /tmp/runs/m/", "--data sst"),
        (
            "-o/tmp/runs/m --data-dir=d --data '/a b/my table.tsv' --label-column 2",
            "--data 'my table.tsv' --label-column 2",
        ),
        ("-qo ../runs/m --layers 2 --layer-norm none --float16 --labels-from 1", "--data sst --labels-from 1"),
    ],
)
def test_no_path_of_this_machine_goes_into_a_card(typed, kept, monkeypatch, capsys):
    told = []

    def record(config, data, out, *, source, **others):
        told.append(shlex.join(source))
        return Trained(out, config, 0.5, None, 1.0, ())

    monkeypatch.setattr("certiformer.training.train", record)
    monkeypatch.setattr("certiformer.data.load_data", lambda *_, **__: None)
    assert run(capsys, "train", *shlex.split(typed))[0] == 0
    assert told == [kept]


def test_the_command_of_a_card_trains_the_same_model_whatever_the_defaults_are(tmp_path, tables, capsys, monkeypatch):
    said = ["--layers", "2", "--layer-norm", "standard", "--float16", "--word-dropout", "0.1", *SMALL]
    assert run(capsys, "train", "--data", tables, "--out", tmp_path / "m", *said)[0] == 0
    first = load(tmp_path / "m")
    command = shlex.split(first.facts["command"])
    flags = set(command[2::2])
    told = {f"--{f.name.replace('_', '-')}" for f in fields(Recipe) if getattr(Recipe(), f.name) is not None}
    told |= {SHORT_NAMES.get(f.name, f"--{f.name.replace('_', '-')}") for f in fields(Config) if "help" in f.metadata}
    assert flags == told | {"--data", "--out", "--stored-as", "--device"}
    (tmp_path / "m").rename(tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *command[1:])[0] == 0
    again = load(tmp_path / "m")
    assert again.hashes() == first.hashes()
    assert again.facts["recipe"] == first.facts["recipe"]


def test_quiet_prints_the_result_only(tmp_path, tables, capsys):
    code, out, err = run(capsys, "train", "--data", tables, "--out", tmp_path / "m", *SMALL, "--quiet")
    assert (code, err, len(out.splitlines())) == (0, "", 1)


def test_wrong_calls_are_one_line_and_code_2(tmp_path, tables, capsys, monkeypatch):
    monkeypatch.delenv("CERTIFORMER_DATA", raising=False)
    (tables / "train.tsv").write_text("label\tsentence\n0\tfine\nbroken\n")
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    (tmp_path / "torn").mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (tmp_path / "torn" / name).write_text("{")
    out = tmp_path / "m"
    for call, message in (
        (["train", "--data", tables, "--out", out, *SMALL], "train.tsv, line 3: expected"),
        (["train", "--data", empty, "--out", out, *SMALL], "empty.tsv, line 1: expected"),
        (["train", "--data", "sst", "--data-dir", tmp_path / "no", "--out", out, *SMALL], "not a folder"),
        (["train", "--data", tables, "--out", out, "--heads", "3", "--hidden", "8"], "multiple of num_attention_heads"),
        (
            ["train", "--data", tables, "--out", out, "--epochs", "-1"],
            "epochs=-1: expected a whole number of 0 or more",
        ),
        (["eval", tmp_path / "torn"], "expected JSON"),
        (["eval", "sst-9"], "no model 'sst-9'"),
    ):
        code, _, err = run(capsys, *call)
        assert code == 2
        assert message in err
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1


def test_a_misspelt_option_is_an_error(tmp_path, capsys):
    code, _, err = run(capsys, "train", "--out", tmp_path / "m", "--layerz", "2")
    assert code == 2
    assert "--layerz" in err


def test_models_lists_what_is_bundled_or_says_so(capsys):
    code, out, err = run(capsys, "models")
    assert ("sst-1" in out and code == 0) or ("expected sst-1, sst-2, sst-3" in err and code == 2)


@pytest.mark.parametrize("command", ["train", "eval", "models"])
def test_every_help_has_an_example(capsys, command):
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"Example: certiformer {command}" in " ".join(out.split())

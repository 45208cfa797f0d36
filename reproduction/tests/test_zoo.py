"""The zoo: every model of the paper is in it, and the whole way runs at a tiny size."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from certiformer.cli import main
from certiformer.models import load
from certiformer.training import Recipe, Trained
from certiformer.training.card import command_of
from certiformer_reproduction import zoo
from certiformer_reproduction.command_line import main as beside

PHRASES = "label\tsentence\n" + "".join(f"{i % 2}\t{('bad', 'good')[i % 2]} film {i % 7}\n" for i in range(80))
TREES = "(4 (4 good) (2 film))\n(1 (1 bad) (2 film))\n(3 (3 fine) (2 .))\n(0 (0 dull) (2 .))\n"


@pytest.fixture
def data_dir(tmp_path) -> Path:
    for folder in ("sst", "yelp"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data/sst/phrases.train.tsv").write_text(PHRASES)
    for part in ("dev", "test"):
        (tmp_path / f"data/sst/trees.{part}.txt").write_text(TREES)
    for part in ("train", "dev", "test"):
        (tmp_path / f"data/yelp/sentences.{part}.tsv").write_text(PHRASES)
    return tmp_path / "data"


def test_holds_every_model_of_the_paper():
    names = [entry.name for entry in zoo.ZOO]
    assert len(set(names)) == len(names)
    for data in ("sst", "yelp"):
        for layers in (1, 2, 3):
            for norm in ("", "_standard", "_none"):
                assert f"{data}_{layers}{norm}" in names
        assert f"{data}_1_small" in names
    entries = {entry.name: entry for entry in zoo.ZOO}
    paper = entries["yelp_3_standard"].config
    assert (paper.hidden_size, paper.intermediate_size, paper.num_attention_heads) == (256, 512, 4)
    assert (paper.num_hidden_layers, paper.layer_norm) == (3, "standard")
    assert entries["sst_12_d128"].config.num_hidden_layers == 12
    for layers in (1, 2, 3):
        entry = entries[f"sst-{layers}"]
        assert entry.stored_as == "float16"
        assert (entry.config.num_hidden_layers, entry.config.layer_norm) == (layers, "no_var")


def test_trains_all_skips_finished_ones_and_is_plain_to_read(tmp_path, data_dir, capsys):
    names = "sst-1,sst_2_standard,yelp_1_small,sst_12_d128"
    call = ["--data-dir", str(data_dir), "--out", str(tmp_path / "out"), "--scale", "tiny", "--device", "cpu"]
    assert beside(["zoo", *call, "--only", names]) == 0
    printed = capsys.readouterr().out
    assert "[1/4] sst-1: done" in printed
    assert "\x1b" not in printed
    for name in names.split(","):
        model = load(tmp_path / "out" / name)
        assert model.facts["command"].startswith("certiformer train --data ")
        assert f" --out {name} --layers " in model.facts["command"]
        for file in ("README.md", "config.json"):
            assert str(tmp_path) not in (tmp_path / "out" / name / file).read_text()
    assert load(tmp_path / "out" / "sst_2_standard").facts["layer_norm"] == "standard"
    assert beside(["zoo", *call, "--only", "sst-1"]) == 0
    assert "already trained, skipped" in capsys.readouterr().out
    half = [*call[:2], "--out", str(tmp_path / "half"), *call[4:]]
    assert beside(["zoo", *half, "--only", "sst-1,sst_1_small", "--float16"]) == 0
    command = load(tmp_path / "half" / "sst_1_small").facts["command"]
    assert command.startswith("certiformer train --data sst --out sst_1_small ")
    assert " --stored-as float16" in command


def test_unknown_names_and_absent_data_are_one_line(tmp_path, capsys):
    assert beside(["zoo", "--only", "sst_99"]) == 2
    assert beside(["zoo", "--only", "sst-1", "--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: no model 'sst_99' in the zoo")
    assert "looked below" in second


def test_the_command_in_a_card_trains_that_very_model(monkeypatch, capsys):
    calls = []

    def record(config, data, out, *, recipe, stored_as, **others):
        calls.append((out.name, data, config, recipe, stored_as))
        return Trained(out, config, 0.5, 0.5, 1.0, ())

    monkeypatch.setattr("certiformer.training.train", record)
    monkeypatch.setattr("certiformer.data.load_data", lambda name, **_: name)
    other = Recipe(adversarial=0.5, embedding_noise=0.25, seed=3, precision="bfloat16")
    for entry in (*zoo.ZOO, replace(zoo.ZOO[0], recipe=other)):
        whole = {"out": Path(entry.name), "stored_as": entry.stored_as, "device": torch.device("cpu")}
        told = command_of(("--data", entry.data), entry.config, entry.recipe, **whole)
        with pytest.raises(SystemExit) as stopped:
            main(shlex.split(told)[1:])
        assert not stopped.value.code
        assert calls.pop() == (entry.name, entry.data, entry.config, entry.recipe, entry.stored_as)

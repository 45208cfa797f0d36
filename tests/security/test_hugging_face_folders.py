"""A folder for `transformers` from a stranger: no code of it is run, no pickle is opened, no weight is made up."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from certiformer.errors import ModelError
from certiformer.models import load
from security.test_model_folders import HUGE, Payload

transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = transformers.DistilBertConfig(
        vocab_size=20, dim=8, hidden_dim=12, n_layers=1, n_heads=2, max_position_embeddings=16
    )
    torch.manual_seed(0)
    transformers.DistilBertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def settings(folder: Path, **changed: Any) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **changed}))


def test_an_untouched_folder_opens(folder: Path) -> None:
    assert len(load(folder).labels) == 2


def test_code_in_the_folder_is_not_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither run nor asked about: a question on the terminal may be answered by mistake."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run the code"))
    (folder / "evil.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'run')!r})\n"
        "from transformers import DistilBertConfig as C, DistilBertForSequenceClassification as M\n"
    )
    classes = {
        "AutoConfig": "evil.C",
        "AutoModelForSequenceClassification": "evil.M",
        "AutoTokenizer": ["evil.T", None],
    }
    settings(folder, auto_map=classes, model_type="unheard-of")
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.T", None]}}))
    with pytest.raises(ModelError):
        load(folder)
    settings(folder, model_type="distilbert")
    with suppress(ModelError):
        load(folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_pickled_weights_are_not_opened(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "run")))
    if name.endswith("json"):
        (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": {"a": "pytorch_model.bin"}}))
    with pytest.raises(ModelError):
        load(folder)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_missing_are_not_made_up(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"such as classifier\.weight"):
        load(folder)


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"infinity or NaN in classifier\.weight"):
        load(folder)


@pytest.mark.parametrize("field", ["dim", "hidden_dim", "vocab_size", "max_position_embeddings"])
def test_sizes_that_the_file_does_not_hold_are_refused(field: str, folder: Path) -> None:
    """Before a byte is taken for them."""
    settings(folder, **{field: 10**9})
    with pytest.raises(ModelError, match="weights, the files have"):
        load(folder)
    settings(folder, **{field: HUGE})
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", '{"model_type": "distilbert", "n_layers": NaN}'])
def test_a_broken_config_is_one_line(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError) as refused:
        load(folder)
    assert len(str(refused.value).splitlines()) == 1

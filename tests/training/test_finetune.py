"""Hugging Face classifiers are trained on as they are, and saved as such."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import certiformer as cf
from calling import run
from certiformer.errors import InputError
from certiformer.training import FineTuned, FineTuning, Recipe, checkpoint, finetune, front, movement

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "a",
    "film",
    "was",
    "it",
    "so",
    "and",
    "bad",
    "dull",
    "good",
    "fine",
)
SIZES: dict[str, Any] = {"vocab_size": len(WORDS), "num_labels": 2, "pad_token_id": 0, "initializer_range": 0.2}
RECIPE = FineTuning(epochs=6, batch_size=16, learning_rate=1e-2)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def saved(folder: Path, kind: str = "bert", **more: Any) -> Path:
    torch.manual_seed(0)
    t = transformers
    if kind == "bert":
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        model = t.BertForSequenceClassification(t.BertConfig(**SIZES, **sizes, max_position_embeddings=16, **more))
    else:
        sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
        config = t.DistilBertConfig(**SIZES, **sizes, max_position_embeddings=16, **more)
        model = t.DistilBertForSequenceClassification(config)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def taught(folder: Path, kind: str, data) -> FineTuned:
    """A classifier that has learned the words."""
    source = saved(folder / "fresh", kind)
    return finetune(source, data, folder / "learned", recipe=replace(RECIPE, epochs=8), device="cpu")


@pytest.fixture(scope="module")
def learned(tmp_path_factory, data) -> FineTuned:
    """One that is not changed any more."""
    return taught(tmp_path_factory.mktemp("bert"), "bert", data)


@pytest.mark.parametrize("kind", ["bert", pytest.param("distilbert", marks=pytest.mark.slow)])
def test_a_classifier_learns_moves_less_and_opens_again(kind, tmp_path, data, request):
    learned = request.getfixturevalue("learned") if kind == "bert" else taught(tmp_path, kind, data)
    assert learned.dev_accuracy > 0.9 > learned.before
    assert learned.cut == 0
    assert not (learned.folder / checkpoint.FILE).exists()
    done = finetune(learned.folder, data, tmp_path / "m", recipe=replace(RECIPE, certify=0.5), device="cpu")
    assert done.before == learned.dev_accuracy
    assert done.dev_accuracy > 0.9
    moves = []
    for folder in (learned.folder, done.folder):
        model = cf.load(folder)
        ids = torch.tensor([model.tokenizer.encode("the film was good").ids] * 4)
        torch.manual_seed(0)
        moves.append(movement(model, model.embed(ids), positions=torch.arange(1, 5), power_steps=20).item())
    assert moves[1] < 0.7 * moves[0]
    right = sum(model.predict(" ".join(e.words)).label == e.label for e in data.test)
    assert right / len(data.test) == done.test_accuracy
    assert cf.certify(model, "the film was good", eps=1e-4, method="backward").status == "certified"


def test_a_killed_training_ends_with_the_same_weights(tmp_path, data, learned):
    source, recipe = learned.folder, replace(RECIPE, epochs=2, certify=0.1)

    def kill(progress):
        if progress.evaluated and progress.step < progress.steps:
            raise KeyboardInterrupt

    finetune(source, data, tmp_path / "whole", recipe=recipe, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        finetune(source, data, tmp_path / "killed", recipe=recipe, device="cpu", progress=kill)
    finetune(source, data, tmp_path / "killed", recipe=recipe, device="cpu")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_texts_that_are_too_long_are_cut_and_counted(tmp_path, data):
    source = saved(tmp_path / "before")
    long = replace(data.train[0], words=data.train[0].words * 9)
    done = finetune(source, replace(data, train=(long, *data.train)), tmp_path / "m", recipe=RECIPE, device="cpu")
    assert done.cut == 1


def test_a_part_of_the_texts_is_drawn_by_the_seed(tmp_path, data):
    source = saved(tmp_path / "before")
    seen: dict[str, int] = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        recipe = replace(RECIPE, epochs=1, train_texts=32, seed=seed)
        finetune(
            source, data, tmp_path / name, recipe=recipe, device="cpu", progress=lambda p: seen.update(steps=p.steps)
        )
        assert seen["steps"] == 2  # of 16 texts each
    first, again, other = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)
    assert json.loads((tmp_path / "a" / "training.json").read_text())["recipe"]["train_texts"] == 32
    finetune(
        source,
        data,
        tmp_path / "all",
        recipe=replace(RECIPE, epochs=1, train_texts=10**6),
        device="cpu",
        progress=lambda p: seen.update(steps=p.steps),
    )
    assert seen["steps"] == -(-len(data.train) // 16)
    with pytest.raises(InputError, match="train_texts"):
        FineTuning(train_texts=-1)


@pytest.mark.slow
def test_a_front_of_weights_is_measured_and_goes_on(tmp_path, data, learned):
    recipe, given = replace(RECIPE, epochs=2), {"weights": [0.1], "sentences": 2, "device": "cpu"}
    found = front(learned.folder, data, tmp_path / "f", recipe=recipe, **given)
    assert [p.weight for p in found.points] == [0.0, 0.1]
    assert all(p.of_length > 0 and p.dev_accuracy > 0.5 and p.seconds > 0 for p in found.points)
    facts = json.loads((found.folder / "training.json").read_text())
    assert facts["recipe"]["certify"] == found.chosen.weight
    assert facts["dev_accuracy"] == found.chosen.dev_accuracy
    (tmp_path / "f" / "config.json").unlink()  # as if it had been killed before the last file
    (tmp_path / "f" / "weight-0.1" / "point.json").unlink()  # and before the last measurement
    again = front(learned.folder, data, tmp_path / "f", recipe=recipe, **given)
    assert [replace(p, measuring=0.0) for p in again.points] == [replace(p, measuring=0.0) for p in found.points]
    with pytest.raises(InputError, match="FineTuning"):
        front(learned.folder, data, tmp_path / "g", recipe=Recipe(), **given)


def test_what_cannot_be_trained_is_one_line(tmp_path, data):
    source = saved(tmp_path / "before")
    for given, message in (
        ({"source": "sst-1"}, "certiformer train --start"),
        ({"data": replace(data, labels=("a", "b", "c"))}, "2 labels apart"),
        ({"recipe": replace(RECIPE, score_penalty=0.1)}, "score_penalty"),
        ({"recipe": replace(RECIPE, centring=0.2)}, "centring"),
        ({"data": replace(data, dev=())}, "dev part"),
        ({"out": source}, "already holds a model"),
    ):
        call = {"source": source, "data": data, "out": tmp_path / "m", "recipe": RECIPE, **given}
        with pytest.raises(InputError, match=message):
            finetune(call.pop("source"), call.pop("data"), call.pop("out"), device="cpu", **call)


def test_the_command(tmp_path, data, learned, capsys):
    folder = tmp_path / "data"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        rows = "".join(f"{e.label}\t{' '.join(e.words)}\n" for e in getattr(data, part))
        (folder / f"{part}.tsv").write_text("label\tsentence\n" + rows)
    flags = ["--epochs", "2", "--learning-rate", "1e-2", "--batch-size", "16", "--certify", "0.1", "--device", "cpu"]
    code, out, err = run(capsys, "finetune", learned.folder, "--data", folder, "--out", tmp_path / "m", *flags)
    assert code == 0
    assert "before" in out
    assert "now" in out
    assert "penalty" in err
    few = ["--weights", "0.05", "--sentences", "2", "--allowed-loss", "0.5", "--quiet"]
    flags[flags.index("--certify") + 1] = "auto"
    code, out, err = run(capsys, "finetune", learned.folder, "--data", folder, "--out", tmp_path / "f", *flags, *few)
    assert code == 0, err
    assert "the knee within 50.0%" in out
    assert sorted(p.name for p in (tmp_path / "f").glob("weight-*")) == ["weight-0", "weight-0.05"]
    assert cf.certify(cf.load(tmp_path / "f"), "the film was good", eps=1e-4).status == "certified"
    code, out, err = run(capsys, "finetune", tmp_path / "nothing", "--data", folder, "--out", tmp_path / "n")
    assert code == 2
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["--centring", "--synonyms", "--synonyms-shown", "--synonyms-tied", "--bound"])
def test_what_a_trained_model_is_not_trained_with_is_no_flag(flag, tmp_path, capsys):
    code, _, err = run(capsys, "finetune", tmp_path / "a", "--data", tmp_path, "--out", tmp_path / "m", flag, "1")
    assert code == 2
    assert "No such option" in err

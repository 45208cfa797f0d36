"""Model folders: what is written comes back; what is broken is refused in one clear line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from certiformer.errors import ModelError
from certiformer.models import BUNDLED, Config, Embeddings, bundled, load, read_folder, write_folder
from certiformer.models.network import LAYER_NORMS, build
from certiformer.models.tokenizer import SPECIAL_TOKENS

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
VOCABULARY = (*SPECIAL_TOKENS, "good", "bad", "film", "é")


@pytest.fixture
def parts():
    torch.manual_seed(1)
    config = Config(2, 8, hidden_size=8, intermediate_size=12, num_attention_heads=2, max_position_embeddings=9)
    return config, *build(config)


@pytest.fixture
def folder(tmp_path, parts):
    config, embed, classifier = parts
    path = tmp_path / "model"
    return write_folder(
        path, config=config, embed=embed, classifier=classifier, vocabulary=VOCABULARY, facts={"test_accuracy": 0.5}
    )


def test_what_is_written_comes_back(folder, parts):
    _, embed, classifier = parts
    model = load(folder)
    encoding = model.tokenizer.encode("Good é film!")
    assert encoding.ids == (2, 4, 7, 6, 1, 3)
    ids = torch.tensor([encoding.ids])
    assert torch.equal(model.module(model.embed(ids)), classifier.eval()(embed(ids)))
    assert isinstance(model.embed, Embeddings)
    assert model.special == {0, 2, 3}
    assert model.labels == ("negative", "positive")
    assert model.max_length == 9
    assert model.vocabulary == VOCABULARY
    assert model.facts["test_accuracy"] == 0.5
    assert model.facts["bytes"] == sum(f.stat().st_size for f in folder.iterdir())
    assert not model.module.training
    assert not any(p.requires_grad for p in model.module.parameters())


@pytest.mark.parametrize("norm", LAYER_NORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_layer_norm_and_precision(tmp_path, norm, dtype):
    config = Config(1, 8, hidden_size=8, intermediate_size=8, layer_norm=norm)
    embed, classifier = build(config)
    write_folder(tmp_path / "m", config=config, embed=embed, classifier=classifier, vocabulary=VOCABULARY, dtype=dtype)
    model = read_folder(tmp_path / "m")
    word = model.embed.word_embeddings.weight
    assert word.dtype == torch.float32
    stored = embed.word_embeddings.weight.to(getattr(torch, dtype)).float()
    assert torch.equal(word, stored)
    assert model.facts["layer_norm"] == norm


def test_buffers_of_older_hugging_face_files_are_ignored_and_standard_is_their_layer_norm(folder):
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"bert.embeddings.position_ids": torch.arange(9)[None]}, file)
    edit(folder, layer_norm=None, num_labels=None, id2label=None)
    model = load(folder)
    assert model.facts["layer_norm"] == "standard"
    assert model.labels == ("LABEL_0", "LABEL_1")


def test_unused_layer_norm_tensors_are_accepted_without_layer_norm(folder):
    edit(folder, layer_norm="none")
    assert load(folder).facts["layer_norm"] == "none"


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def retensor(folder: Path, **changes: torch.Tensor | None) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file) | {k.replace("__", "."): v for k, v in changes.items()}
    save_file({k: v for k, v in tensors.items() if v is not None}, file)


def cut(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BREAKS = {
    "truncated tensors": (lambda f: cut(f, "model.safetensors"), "expected a whole safetensors file"),
    "empty tensors": (lambda f: (f / "model.safetensors").write_bytes(b""), "expected a whole safetensors file"),
    "a pickle": (
        lambda f: torch.save({"a": torch.ones(1)}, f / "model.safetensors"),
        "expected a whole safetensors file",
    ),
    "truncated config": (lambda f: cut(f, "config.json"), "expected JSON"),
    "a list as config": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object, found a list"),
    "missing tensors": (lambda f: (f / "model.safetensors").unlink(), "found no model.safetensors"),
    "missing config": (lambda f: (f / "config.json").unlink(), "found no config.json"),
    "missing vocabulary": (lambda f: (f / "vocab.txt").unlink(), "found no vocab.txt"),
    "short vocabulary": (
        lambda f: (f / "vocab.txt").write_text("\n".join(VOCABULARY[:-1])),
        "expected 8 tokens .* found 7",
    ),
    "a word twice": (
        lambda f: (f / "vocab.txt").write_text("\n".join([*VOCABULARY[:-1], "good"])),
        "found 'good' again at line 8",
    ),
    "no special tokens": (lambda f: (f / "vocab.txt").write_text("a\nb\nc\nd\ne\nf\ng\nh"), r"\[PAD\].* not found"),
    "word pieces": (
        lambda f: (f / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "##a", "##b", "##c", "d"])),
        "WordPiece",
    ),
    "bytes as vocabulary": (lambda f: (f / "vocab.txt").write_bytes(b"\xff\xfe\n"), "expected UTF-8"),
    "another architecture": (lambda f: edit(f, model_type="roberta"), "expected model_type 'bert', found 'roberta'"),
    "a field missing": (lambda f: edit(f, hidden_size=None), "hidden_size not found"),
    "a field of the wrong kind": (lambda f: edit(f, hidden_size="big"), "hidden_size must be a whole number"),
    "huge": (lambda f: edit(f, num_hidden_layers=10**9), "num_hidden_layers must be a whole number"),
    "unknown layer norm": (lambda f: edit(f, layer_norm="rms"), "layer_norm must be one of"),
    "another width": (lambda f: edit(f, hidden_size=16), r"expected shape \[.*16\].*found"),
    "too many layers": (lambda f: edit(f, num_hidden_layers=3), "16 not found"),
    "too few layers": (lambda f: edit(f, num_hidden_layers=1), "found bert.encoder.layer.1"),
    "label names": (lambda f: edit(f, id2label={"0": "a", "2": "b"}), "id2label"),
    "foreign tensors": (
        lambda f: save_file({"transformer.h.0.weight": torch.ones(2)}, f / "model.safetensors"),
        "such as transformer.h.0.weight",
    ),
    "an integer tensor": (lambda f: retensor(f, classifier__bias=torch.ones(2, dtype=torch.int64)), "found I64"),
    "NaN": (
        lambda f: retensor(f, classifier__bias=torch.tensor([0.0, float("nan")])),
        "infinity or NaN in classifier.bias",
    ),
    "relative positions": (lambda f: edit(f, position_embedding_type="relative_key"), "expected absolute positions"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_folders_are_refused_in_one_line(folder, name):
    harm, message = BREAKS[name]
    harm(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_nothing_is_written_when_a_value_overflows_float16(tmp_path, parts):
    config, embed, classifier = parts
    with torch.no_grad():
        classifier.classifier.bias[0] = 1e6
    with pytest.raises(ModelError, match=r"classifier\.bias .* not finite in float16"):
        write_folder(
            tmp_path / "m", config=config, embed=embed, classifier=classifier, vocabulary=VOCABULARY, dtype="float16"
        )
    assert not (tmp_path / "m" / "config.json").exists()


def test_unknown_names_list_the_bundled_models(tmp_path):
    with pytest.raises(ModelError, match=r"no model 'sst-9'.*sst-1, sst-2, sst-3"):
        load("sst-9")
    with pytest.raises(ModelError, match="no model"):
        load(tmp_path / "absent")


def test_bundled_models_open_or_say_that_they_are_absent():
    installed = {model.name: model for model in bundled()}
    for name in BUNDLED:
        if name in installed:
            assert installed[name].facts["test_accuracy"] > 0.75
            assert installed[name].facts["layer_norm"] == ("standard" if "standard" in name else "no_var")
        else:
            with pytest.raises(ModelError, match=f"bundled model '{name}' is not part of this installation"):
                load(name)
    assert sum(model.facts["bytes"] for model in installed.values()) < 5 * 10**6


def test_reference_models_classify_the_reference_sentences():
    sentences = json.loads((REFERENCE / "sentences.json").read_text())
    folders = sorted(path for path in REFERENCE.iterdir() if path.is_dir())
    assert folders
    for path in folders:
        model = load(path)
        for sentence in sentences:
            encoding = model.tokenizer.encode(" ".join(sentence["tokens"][1:-1]))
            assert list(encoding.ids) == sentence["ids"]
            assert list(encoding.tokens) == sentence["tokens"]
            logits = model.module(model.embed(torch.tensor([sentence["ids"]])))
            assert int(logits.argmax()) == sentence["label"]


def test_a_truncated_reference_model_is_refused(tmp_path):
    source = next(path for path in sorted(REFERENCE.iterdir()) if path.is_dir())
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    (copy / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(ModelError, match="truncated"):
        load(copy)


def test_hugging_face_opens_a_standard_folder_and_the_other_way_round(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = Config(2, 8, hidden_size=8, intermediate_size=12, layer_norm="standard")
    torch.manual_seed(0)
    embed, classifier = build(config)
    path = write_folder(tmp_path / "a", config=config, embed=embed, classifier=classifier, vocabulary=VOCABULARY)
    theirs = transformers.BertForSequenceClassification.from_pretrained(path).eval()
    ids = torch.tensor([[2, 4, 5, 3]])
    with torch.no_grad():
        torch.testing.assert_close(theirs(input_ids=ids).logits, classifier.eval()(embed(ids)))
    theirs.save_pretrained(tmp_path / "b")
    shutil.copyfile(path / "vocab.txt", tmp_path / "b" / "vocab.txt")
    ours = load(tmp_path / "b")
    assert torch.equal(ours.module(ours.embed(ids)), classifier(embed(ids)))

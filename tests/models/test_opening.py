"""What people give to `cf.load`: it opens, or one line says what to do; and what a model says of itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import certiformer as cf
from conftest import random_model

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

import tiny  # noqa: E402

TEXTS = "ForSequenceClassification"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "dull", "great"]


def tokenizer() -> Any:
    return transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, do_lower_case=True)


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_pipeline_opens_and_agrees_with_itself() -> None:
    model = tiny.build("Bert" + TEXTS, id2label={0: "bad", 1: "fair", 2: "good"})
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer())
    opened = cf.load(pipeline)
    text = "a great film"
    best = max(pipeline(text, top_k=None), key=lambda found: found["score"])
    result = cf.bounds(opened, text, eps=1e-3, method="ibp")
    assert opened.labels[result.label] == best["label"]


def test_a_model_that_is_open_stays_as_it_is() -> None:
    model = random_model()
    assert cf.load(model) is model


def test_names_that_are_nothing_say_how_the_hub_is_written() -> None:
    with pytest.raises(cf.ModelError, match="'hf:distilbert-base-uncased'") as error:
        cf.load("distilbert-base-uncased")
    one_line(error)
    with pytest.raises(cf.InputError, match="expected a name, a folder, a module") as wrong:
        cf.load(3)
    one_line(wrong)


@pytest.mark.parametrize("name", ["Bert", "DistilBert", "Roberta", "GPT2", "Llama"])
def test_a_folder_without_a_tokenizer_has_none_made_up(tmp_path: Path, name: str) -> None:
    tiny.build(name + TEXTS).save_pretrained(tmp_path)
    model = cf.load(tmp_path)
    assert model.tokenizer is None
    with pytest.raises(cf.InputError, match="has no tokenizer") as error:
        cf.radius(model, "a great film")
    one_line(error)
    assert cf.bounds(model, [5, 7, 6], eps=0.1, method="ibp", positions=[[1]]).label in range(3)
    given = cf.load(tmp_path, tokenizer=tokenizer())
    assert given.tokenizer is not None


def test_a_broken_tokenizer_is_told(tmp_path: Path) -> None:
    tiny.build("DistilBert" + TEXTS).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{broken")
    with pytest.raises(cf.ModelError, match=r"could not read the tokenizer \(tokenizer.json\)") as error:
        cf.load(tmp_path)
    one_line(error)


def test_a_name_will_do_where_a_model_is_expected(tmp_path: Path) -> None:
    text = "a great film"
    assert cf.bounds("sst-1", text, eps=0.01, method="ibp").label == cf.load("sst-1").predict(text).label  # type: ignore[union-attr]
    with pytest.raises(cf.ModelError, match="no model 'sst-9'") as error:
        cf.radius("sst-9", text)
    one_line(error)


def test_bytes_are_no_ids() -> None:
    for wrong in (b"abc", bytearray(b"abc")):
        with pytest.raises(cf.InputError, match="expected a text, a list of token ids") as error:
            cf.radius(random_model(), wrong)
        one_line(error)


def test_a_model_is_written_in_one_line() -> None:
    for model in (random_model(), cf.load(tiny.build("Bert" + TEXTS), tokenizer=tokenizer()), cf.load(nn.Linear(2, 2))):
        assert "\n" not in repr(model)
        assert len(repr(model)) < 200


@pytest.mark.parametrize("name", ["Bert" + TEXTS, "Esm" + TEXTS, "ViTForImageClassification"])
def test_a_model_that_was_asked_can_be_pickled(name: str) -> None:
    model = cf.load(tiny.build(name), tokenizer=None if "ViT" in name else tokenizer())
    inputs = torch.randn(2, 8, 8) if "ViT" in name else [5, 7, 6]
    first = cf.bounds(model, inputs, eps=1e-3, method="ibp", positions=[[1]])
    again = cf.bounds(pickle.loads(pickle.dumps(model)), inputs, eps=1e-3, method="ibp", positions=[[1]])
    assert torch.equal(first.lower, again.lower)


def video() -> Any:
    sizes = {"image_size": 8, "patch_size": 4, "num_channels": 2, "num_frames": 2, "tubelet_size": 1}
    sizes |= {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    return transformers.VideoMAEForVideoClassification(transformers.VideoMAEConfig(**sizes))


def reformer() -> Any:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "attention_head_size": 4, "feed_forward_size": 12}
    sizes |= {"vocab_size": 40, "max_position_embeddings": 32, "local_attn_chunk_length": 4}
    axial = {"axial_pos_shape": (4, 8), "axial_pos_embds_dim": (4, 4), "attn_layers": ["local"], "is_decoder": False}
    return transformers.ReformerForSequenceClassification(transformers.ReformerConfig(**sizes, **axial))


@pytest.mark.parametrize(
    "build",
    [
        video,
        reformer,
        *(pytest.param(n, id=n) for n in ("Canine", "Mixtral", "Longformer")),
        *(pytest.param(n, id=n, marks=pytest.mark.slow) for n in ("Funnel", "JetMoe", "Xmod")),
    ],
)
def test_what_cannot_be_answered_says_so_in_our_own_words(build: Any) -> None:
    model = tiny.randomized(build() if callable(build) else tiny.build(build + TEXTS))
    ids = [5, 7, 11, 30] * 8 if build is reformer else [5, 7, 11, 30, 4]
    with pytest.raises((cf.ModelError, cf.UnsupportedError)):
        cf.bounds(cf.load(model), ids, eps=1e-3, method="ibp", positions=[[1]])


def test_hashes_tell_models_apart_and_nothing_else() -> None:
    model = random_model()
    before = model.hashes()
    assert set(before) == {"weights", "structure", "vocabulary"}
    assert all(len(h) == 64 for h in before.values())
    assert pickle.loads(pickle.dumps(model)).hashes() == before
    assert random_model().hashes() == before
    with torch.no_grad():
        next(model.module.parameters()).view(-1)[0] += 1e-6
    changed = model.hashes()
    assert changed["weights"] != before["weights"]
    assert changed["vocabulary"] == before["vocabulary"]


def test_hashes_see_embeddings_activations_and_words() -> None:
    model = random_model()
    before = model.hashes()
    assert isinstance(model.embed, nn.Module)
    with torch.no_grad():
        next(model.embed.parameters()).view(-1)[0] += 1e-6
    assert model.hashes()["weights"] != before["weights"]
    other = random_model(hidden_act="gelu")
    assert other.hashes()["weights"] == before["weights"]
    assert other.hashes()["structure"] != before["structure"]
    opened = cf.load(tiny.build("Bert" + TEXTS), tokenizer=tokenizer())
    upper = cf.load(
        tiny.build("Bert" + TEXTS),
        tokenizer=transformers.BertTokenizer(vocab={w: i for i, w in enumerate(WORDS)}, do_lower_case=False),
    )
    assert opened.hashes()["weights"] == upper.hashes()["weights"]
    assert opened.hashes()["vocabulary"] != upper.hashes()["vocabulary"]


def test_hashes_see_what_a_config_says_in_words() -> None:
    """The same weights and modules, of which the forward pass makes another model."""

    def opened(pooling: str) -> cf.Model:
        torch.manual_seed(0)
        return cf.load(tiny.build("ModernBert" + TEXTS, classifier_pooling=pooling))

    first, same, other = opened("cls").hashes(), opened("cls").hashes(), opened("mean").hashes()
    assert first == same
    assert first["weights"] == other["weights"]
    assert first["structure"] != other["structure"]


def test_hashes_see_words_tensors_and_objects_that_modules_hold() -> None:
    module = nn.Linear(4, 2)
    held: list[Any] = ["mean", {"k": 1.0}, torch.ones(2), SimpleNamespace(pool="mean")]
    changed: list[Any] = ["max", {"k": 2.0}, torch.zeros(2), SimpleNamespace(pool="max")]
    for before, after in zip(held, changed, strict=True):
        module.held = before
        first = cf.load(module).hashes()["structure"]
        assert cf.load(module).hashes()["structure"] == first
        module.held = after
        assert cf.load(module).hashes()["structure"] != first


def test_a_folder_has_the_same_hashes_wherever_it_lies(tmp_path: Path) -> None:
    found = []
    for name in ("here", "there"):
        tiny.build("DistilBert" + TEXTS).save_pretrained(tmp_path / name)
        tokenizer().save_pretrained(tmp_path / name)
        found.append(cf.load(tmp_path / name).hashes())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["Swin", "ResNet"])
def test_pictures_that_are_pooled_have_bounds(name: str) -> None:
    sizes: dict[str, Any] = {"num_channels": 1, "depths": [1], "num_labels": 3}
    sizes |= {
        "Swin": {"image_size": 8, "patch_size": 2, "embed_dim": 8, "num_heads": [2], "window_size": 2},
        "ResNet": {"embedding_size": 4, "hidden_sizes": [4], "layer_type": "basic", "downsample_in_first_stage": True},
    }[name]
    config = getattr(transformers, f"{name}Config")(**sizes)
    whole = tiny.randomized(getattr(transformers, f"{name}ForImageClassification")(config)).eval()
    picture = torch.rand(1, 8, 8)
    if name == "Swin":
        model = cf.load(whole)
    else:
        with pytest.raises(cf.ModelError, match="shape=") as error:
            cf.load(whole)
        one_line(error)
        model = cf.load(Logits(whole), shape=(1, 8, 8))
    found = cf.bounds(model, picture, within=cf.Ball(1e-6, "inf"), method="ibp")
    assert bool((found.lower <= found.upper).all())
    assert bool(torch.isfinite(found.lower).all())


class Logits(nn.Module):
    """What a Hugging Face model says of pictures."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(pixel_values=pictures).logits
        return found

"""Hugging Face models open as they are, their graphs compute what they compute, and nothing leaves its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.captured import Compiled
from certiformer.core.graph import by_differences, capture, narrowed
from certiformer.core.speed.replay import Store
from certiformer.models import Classifier, Config, Embeddings, write_folder
from certiformer.models.huggingface import FromPatches
from certiformer.questions.inputs import prepare, problem_of
from conftest import random_model
from enclosure import WAYS, hold

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()

from spread import spread  # noqa: E402
from tiny import randomized  # noqa: E402

COMMON: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 40,
    "max_position_embeddings": 20,
    "num_labels": 3,
}
NORMS = (2.0, math.inf, 1.0, 1.5)


def bert(attention: str, **more: Any) -> Any:
    t = transformers
    return t.BertForSequenceClassification(t.BertConfig(**{**COMMON, **more}, attn_implementation=attention))


def distilbert(attention: str) -> Any:
    t = transformers
    sizes = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "vocab_size": 40, "max_position_embeddings": 20}
    config = t.DistilBertConfig(**sizes, num_labels=3, attn_implementation=attention)
    return t.DistilBertForSequenceClassification(config)


def roberta(attention: str) -> Any:
    t = transformers
    return t.RobertaForSequenceClassification(t.RobertaConfig(**COMMON, attn_implementation=attention))


def electra(attention: str) -> Any:
    t = transformers
    config = t.ElectraConfig(**COMMON, embedding_size=6, attn_implementation=attention)
    return t.ElectraForSequenceClassification(config)


def albert(attention: str) -> Any:
    t = transformers
    config = t.AlbertConfig(**COMMON, embedding_size=6, attn_implementation=attention)
    return t.AlbertForSequenceClassification(config)


def deberta(attention: str) -> Any:
    t = transformers
    config = t.DebertaV2Config(
        **COMMON,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=4,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        type_vocab_size=0,
        position_biased_input=False,
        attn_implementation=attention,
    )
    return t.DebertaV2ForSequenceClassification(config)


def gpt2(attention: str) -> Any:
    t = transformers
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 12, "vocab_size": 40, "n_positions": 20}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = t.GPT2Config(**sizes, **ends, num_labels=3, attn_implementation=attention)
    return t.GPT2ForSequenceClassification(config)


def llama(attention: str) -> Any:
    t = transformers
    config = t.LlamaConfig(**COMMON, num_key_value_heads=1, attn_implementation=attention)
    return t.LlamaForSequenceClassification(config)


def bloom(attention: str) -> Any:
    t = transformers
    sizes = {"hidden_size": 8, "n_layer": 2, "n_head": 2, "vocab_size": 40}
    return t.BloomForSequenceClassification(t.BloomConfig(**sizes, num_labels=3, attn_implementation=attention))


TEXT: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "bert": (bert, ("eager", "sdpa")),
    "distilbert": (distilbert, ("eager", "sdpa")),
    "roberta": (roberta, ("eager", "sdpa")),
    "electra": (electra, ("eager", "sdpa")),
    "albert": (albert, ("eager", "sdpa")),
    "deberta": (deberta, ("eager",)),  # the only attention it has
    "gpt2": (gpt2, ("eager", "sdpa")),
    "llama": (llama, ("eager", "sdpa")),
    "bloom": (bloom, ("eager",)),  # biases of its own for every head
}
BOTH = ("bert", "llama")  # encoders are much alike, and decoders too: of the others one attention is for `make slow`
PAIRS = [
    pytest.param(name, mode, marks=() if name in BOTH or mode == modes[k % len(modes)] else pytest.mark.slow)
    for k, (name, (_, modes)) in enumerate(TEXT.items())
    for mode in modes
]
IDS = [3, 7, 11, 30, 4]


def vision(kind: str, attention: str) -> Any:
    t = transformers
    sizes = {k: v for k, v in COMMON.items() if k not in ("vocab_size", "max_position_embeddings")}
    config = getattr(t, f"{kind}Config")(
        **sizes, image_size=6, patch_size=3, num_channels=2, attn_implementation=attention
    )
    return getattr(t, f"{kind}ForImageClassification")(config)


def check(prepared: Any, *, ways: Any = WAYS) -> None:
    """The methods and relaxations asked for, each in another norm; backward must give bounds for every instance."""
    for k, (method, relaxation) in enumerate(ways):
        bounded = hold(prepared, method=method, relaxation=relaxation, eps=0.02, p=NORMS[k % len(NORMS)])
        assert bounded == 3 or method in ("ibp", "forward") or relaxation == "paper"


METHODS = tuple((method, relaxation) for method, relaxation in WAYS if relaxation == "tight")
THOROUGH = {"bert": WAYS, "llama": METHODS}
FEW = (("backward", "tight"), ("backward-forward", "paper"))


@pytest.mark.parametrize(("name", "attention"), PAIRS)
def test_text_models_open_and_nothing_leaves_its_bounds(name: str, attention: str) -> None:
    original = randomized(TEXT[name][0](attention))
    model = cf.load(original)
    prepared = prepare(model, IDS)
    with torch.no_grad():
        expected = original.double()(input_ids=torch.tensor([IDS])).logits
    torch.testing.assert_close(prepared.logits, expected, rtol=1e-6, atol=1e-6)
    graph = problem_of([(prepared, (0,))], p=2.0, method="backward", relaxation="tight").compiled.graph
    x = prepared.embeddings + 0.1 * torch.randn(4, 1, *prepared.embeddings.shape[1:], dtype=torch.float64)
    tolerance = 1e-5 if name == "llama" or attention == "eager" else 1e-9  # these compute parts in float32
    torch.testing.assert_close(
        graph.values(x)[-1][:, 0], prepared.model.module(x[:, 0]), rtol=tolerance, atol=tolerance
    )
    # many of the graphs are much the same: an encoder and a decoder go through every method
    few = FEW[list(TEXT).index(name) % 2 :][:1]
    check(prepared, ways=THOROUGH.get(name, few) if attention == TEXT[name][1][-1] else few)


@pytest.mark.parametrize(
    ("name", "attention"), [("gpt2", "sdpa"), pytest.param("llama", "eager", marks=pytest.mark.slow)]
)
def test_a_decoder_needs_its_last_layer_at_the_last_position_alone(name: str, attention: str) -> None:
    prepared = prepare(cf.load(randomized(TEXT[name][0](attention))), IDS)
    x = prepared.embeddings
    whole = capture(prepared.model.module, x)
    small = narrowed(whole, x[None])
    scores, mixed = [n for n in small.nodes if n.op.name == "matmul"][-2:]
    assert scores.shape == (1, 2, 1, len(IDS))
    assert mixed.shape == (1, 2, 1, 4)
    assert sum(n.op.name == "softmax" for n in small.nodes) == len(IDS) + 1
    last = [n for n in small.nodes if ".1.mlp" in n.path]
    assert last
    assert all(len(IDS) not in n.shape for n in last)
    problem = problem_of([(prepared, (1,)), (prepared, (4,))], p=2.0, method="backward", relaxation="tight")
    eps = torch.tensor([0.02, 0.01], dtype=torch.float64)
    cut, full = (
        replace(
            problem,
            compiled=Compiled.of(by_differences(g, x[None]), frozenset(), {}, cuda=False, store=Store()),
        ).margins(eps)
        for g in (small, whole)
    )
    assert (cut.lower >= full.lower - 1e-9).all()
    assert (cut.upper <= full.upper + 1e-9).all()


@pytest.mark.parametrize(("kind", "attention"), spread(["DeiT", "ViT"], ["eager", "sdpa"]))
def test_image_models_open_and_nothing_leaves_its_bounds(kind: str, attention: str) -> None:
    original = randomized(vision(kind, attention))
    model = cf.load(original)
    picture = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1))
    prepared = prepare(model, picture)
    assert prepared.embeddings.shape == (1, 4, 18)
    with torch.no_grad():
        expected = original.double()(pixel_values=picture[None].double()).logits
    torch.testing.assert_close(prepared.logits, expected, rtol=1e-9, atol=1e-9)
    check(prepared, ways=METHODS if (kind, attention) == ("ViT", "sdpa") else FEW[:1])
    everywhere = cf.bounds(model, picture, eps=1e-3, norm="inf", positions=[[0, 1, 2, 3]])
    assert everywhere.certified == (True,) or everywhere.lower.isfinite().all()
    with pytest.raises(cf.InputError, match="expected a picture"):
        prepare(model, picture[:, :5])


def test_patches_and_pictures_are_the_same_thing() -> None:
    module = FromPatches(nn.Identity(), channels=2, height=6, width=4, patch=(3, 2))
    picture = torch.randn(2, 6, 4)
    patches = module.patches(picture)
    assert patches.shape == (1, 4, 12)
    torch.testing.assert_close(patches[0, 1].reshape(2, 3, 2), picture[:, :3, 2:])
    torch.testing.assert_close(module.picture(patches)[0], picture)


class Encoder(nn.Module):
    """torch's own encoder with a mean over positions, and padding behind the sentence where asked for."""

    def __init__(self, *, norm_first: bool, batch_first: bool, activation: str = "gelu", padding: int = 0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, activation=activation, norm_first=norm_first, batch_first=batch_first, dropout=0.1
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.batch_first = batch_first
        self.padding = padding
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        batch, n, d = x.shape
        x = torch.cat([x, x.new_ones(batch, self.padding, d)], dim=1)
        mask = (torch.arange(n + self.padding) >= n).expand(batch, -1) if self.padding else None
        y = self.encoder(x if self.batch_first else x.transpose(0, 1), src_key_padding_mask=mask)
        y = (y if self.batch_first else y.transpose(0, 1))[:, :n]
        logits: Tensor = self.head(y.mean(dim=1))
        return logits


@pytest.mark.parametrize(("norm_first", "batch_first"), spread([False, True], [True, False]))
def test_the_encoder_of_torch(norm_first: bool, batch_first: bool) -> None:
    table = nn.Embedding(40, 8)
    activation = "relu" if norm_first else "gelu"
    module = randomized(Encoder(norm_first=norm_first, batch_first=batch_first, activation=activation))
    model = cf.load(module, embeddings=table, num_labels=3)
    check(prepare(model, IDS), ways=METHODS if batch_first else FEW)


class Headed(nn.Module):
    """A Hugging Face encoder with a mean over positions."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(inputs_embeds=x).last_hidden_state.mean(dim=1))
        return logits


def t5() -> Any:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
    return transformers.T5EncoderModel(transformers.T5Config(**sizes, feed_forward_proj="gated-gelu"))


def mamba() -> Any:
    sizes = {"hidden_size": 8, "state_size": 2, "num_hidden_layers": 1, "vocab_size": 40}
    return transformers.MambaModel(transformers.MambaConfig(**sizes))


@pytest.mark.parametrize("encoder", [t5, mamba])
def test_encoders_with_a_head_of_ones_own(encoder: Callable[[], Any]) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    prepared = prepare(cf.load(randomized(Headed(encoder()))), x)
    assert hold(prepared, method="backward", relaxation="tight", eps=0.02, p=2.0) == 3


def test_every_reason_of_a_model_that_cannot_be_bounded_is_told() -> None:
    t = transformers
    with pytest.raises(cf.UnsupportedError) as error:
        cf.bounds(cf.load(t.FNetForSequenceClassification(t.FNetConfig(**COMMON))), IDS, eps=0.1)
    for layer in (0, 1):
        assert f"_fft_c2c.default, at model.fnet.encoder.layer.{layer}.fourier" in str(error.value)


def same_bounds(
    first: cf.Model, second: cf.Model, x: Any, positions: list[list[int]], *, p: float = 2.0, ways: Any = METHODS
) -> None:
    """The same margins at one radius in every method: then the radii are the same too."""
    both, eps = [prepare(model, x) for model in (first, second)], torch.full((len(positions),), 0.01)
    for method, relaxation in ways:
        one, two = (
            problem_of([(q, tuple(s)) for s in positions], p=p, method=method, relaxation=relaxation).margins(eps)
            for q in both
        )
        assert one.reasons == two.reasons or method in ("ibp", "forward")
        torch.testing.assert_close(one.lower, two.lower, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(one.upper, two.upper, rtol=1e-5, atol=1e-7)


def test_padding_changes_no_bound() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
    plain, padded = (randomized(Encoder(norm_first=True, batch_first=True, padding=k)) for k in (0, 3))
    same_bounds(cf.load(plain), cf.load(padded), x, [[0], [2], [1, 2]])


class Masked(nn.Module):
    """A Hugging Face model on a padded batch of one sentence, with its attention mask."""

    def __init__(self, model: Any, padding: int) -> None:
        super().__init__()
        self.model, self.padding = model, padding

    def forward(self, x: Tensor) -> Tensor:
        batch, n, d = x.shape
        padded = torch.cat([x, x.new_zeros(batch, self.padding, d)], dim=1)
        mask = (torch.arange(n + self.padding) < n).long().expand(batch, -1)
        logits: Tensor = self.model(inputs_embeds=padded, attention_mask=mask).logits
        return logits


@pytest.mark.parametrize("attention", [pytest.param("eager", marks=pytest.mark.slow), "sdpa"])
def test_a_padded_sentence_with_its_mask_has_the_radius_it_has_alone(attention: str) -> None:
    original = randomized(bert(attention))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(5))
    alone, padded = cf.load(original), cf.load(Masked(original, 2))
    same_bounds(alone, padded, x, [[0], [3]], p=math.inf)
    # in l2 the first LayerNorm has variables of its own where the module is given nothing but what it normalises
    more, less = (cf.bounds(model, x, eps=0.01, method="backward", positions=[[0], [3]]) for model in (alone, padded))
    assert (more.lower > less.lower).all()


def test_a_folder_gives_the_same_radii_through_both_loaders(tmp_path: Path) -> None:
    own = random_model(layers=1, layer_norm="standard", hidden_act="gelu", scale=0.3)
    settings = Config(
        num_hidden_layers=1,
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_attention_heads=2,
        max_position_embeddings=12,
        num_labels=3,
        labels=("a", "b", "c"),
        layer_norm="standard",
        hidden_act="gelu",
    )
    assert isinstance(own.embed, Embeddings)
    assert isinstance(own.module, Classifier)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{i}" for i in range(16))]
    folder = write_folder(tmp_path / "m", config=settings, embed=own.embed, classifier=own.module, vocabulary=words)
    ours = cf.load(folder)
    theirs = cf.load(transformers.BertForSequenceClassification.from_pretrained(folder))
    ids = [2, 7, 11, 5, 3]
    same_bounds(ours, theirs, ids, [[1], [2], [3]], ways=WAYS)
    settings_of_both: Any = {"positions": [[1], [3]], "method": "backward-forward", "tolerance": 1e-3}
    first, second = (cf.radius(m, ids, **settings_of_both) for m in (ours, theirs))
    assert first.radii == pytest.approx(second.radii, rel=3e-3)
    assert min(first.radii) > 0


def word_pieces() -> Any:
    """A tiny WordPiece tokenizer, made here."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "grip", "##ping", "film", "dull", "great", ",", "movie"]
    vocabulary = {word: i for i, word in enumerate(words)}
    return transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True)


def test_text_goes_in_through_the_tokenizer() -> None:
    model = cf.load(randomized(bert("sdpa", id2label={0: "bad", 1: "good"}, num_labels=2)), tokenizer=word_pieces())
    prepared = prepare(model, "A gripping, great film")
    assert prepared.tokens == ("[CLS]", "a", "grip", "##ping", ",", "great", "film", "[SEP]")
    assert prepared.spans is not None
    assert [prepared.text[s[0] : s[1]] if s and prepared.text else None for s in prepared.spans] == [
        None,
        "A",
        "grip",
        "ping",
        ",",
        "great",
        "film",
        None,
    ]
    assert prepared.movable == (1, 2, 3, 4, 5, 6)
    assert prepared.label_name in ("bad", "good")
    result = cf.radius(model, "a great film", norm=2, tolerance=0.1)
    assert len(result.radii) == 3
    assert min(result.radii) > 0
    attacked = cf.attack(model, "a great film", norm=2)
    for proved, found in zip(result.radii, attacked.radii, strict=True):
        assert proved <= found
    with pytest.raises(cf.InputError, match="at most 20"):
        prepare(model, "film " * 30)


def test_saved_folders_open_from_python_and_from_the_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from certiformer.cli.commands import app

    folder = tmp_path / "saved"
    randomized(distilbert("sdpa")).save_pretrained(folder)
    word_pieces().save_pretrained(folder)
    model = cf.load(folder)
    assert model.name == "saved"
    text = "a dull movie"
    radii = cf.radius(model, text, method="ibp", tolerance=0.3).radii
    assert len(radii) == 3
    quick = ["--json", "--no-attack", "--method", "ibp", "--tolerance", "0.3"]
    result = CliRunner().invoke(app, ["radius", text, "--model", str(folder), *quick])
    assert result.exit_code == 0, result.output
    assert "dull" in result.output
    table = tmp_path / "t.csv"
    told = [model.labels[prepare(model, text).label], *model.labels]
    table.write_text(f"label,text\n{told[0]},{text}\n{told[1]},A GREAT film\n{told[2]},A GREAT film\n")
    result = CliRunner().invoke(app, ["eval", str(folder), "--data", str(table)])
    assert "66.67% (2 of 3)" in result.output, result.output


def test_a_regression_is_bounded_by_its_value() -> None:
    original = randomized(bert("sdpa", num_labels=1))
    model = cf.load(original, threshold=0.25)
    assert model.labels == ("above 0.25", "below 0.25")
    with torch.no_grad():
        value = float(original.double()(input_ids=torch.tensor([IDS])).logits)
    found = cf.bounds(model, IDS, eps=1e-3, positions=[1], label=0, method="backward")
    assert found.lower[0, 0] <= value - 0.25 <= found.upper[0, 0]
    assert found.upper[0, 0] - found.lower[0, 0] < 0.1
    x = prepare(model, IDS).embeddings
    noise = torch.randn(50, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = x.repeat(50, 1, 1)
    moved[:, 1] += 1e-3 * noise / noise.norm(dim=1, keepdim=True)
    values = original(inputs_embeds=moved).logits[:, 0] - 0.25
    assert (values >= found.lower[0, 0]).all()
    assert (values <= found.upper[0, 0]).all()
    assert cf.radius(model, IDS, positions=[1], tolerance=0.3).radii[0] > 0


def test_a_token_of_a_token_classifier() -> None:
    t = transformers
    original = randomized(t.BertForTokenClassification(t.BertConfig(**COMMON)))
    model = cf.load(original, token=2)
    with torch.no_grad():
        expected = original.double()(input_ids=torch.tensor([IDS])).logits[:, 2]
    prepared = prepare(model, IDS)
    torch.testing.assert_close(prepared.logits, expected)
    assert hold(prepared, method="backward", relaxation="tight", eps=0.01, p=2.0) == 3
    with pytest.raises(cf.ModelError, match="token=1"):
        prepare(cf.load(original), IDS)


def test_what_cannot_be_opened_says_why() -> None:
    t = transformers
    headless = t.BertModel(t.BertConfig(**COMMON))
    with pytest.raises(cf.ModelError, match="logits"):
        prepare(cf.load(headless), IDS)
    with pytest.raises(cf.InputError, match="go with a module"):
        cf.load("sst-2", num_labels=2)

"""The network: its formulas against plain ones, masks, parameter names, capture."""

from __future__ import annotations

import math

import pytest
import torch

from certiformer.errors import ModelError
from certiformer.models.network import LAYER_NORMS, Config, NoVarLayerNorm, build, expected_shapes, to_file_names


def small(**changes: object) -> Config:
    options = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "max_position_embeddings": 10}
    return Config(2, 20, **(options | changes))  # type: ignore[arg-type]


def built(config: Config):
    torch.manual_seed(0)
    embed, classifier = build(config)
    for parameter in (*embed.parameters(), *classifier.parameters()):
        torch.nn.init.normal_(parameter, std=0.5)
    return embed.double().eval(), classifier.double().eval()


def by_hand(config: Config, w: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """The classifier written again from the file names, one text and one head at a time."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        if config.layer_norm == "none":
            return x
        centred = x - x.mean(-1, keepdim=True)
        if config.layer_norm == "standard":
            centred = centred / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + config.layer_norm_eps)
        return centred * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    e = "bert.embeddings"
    x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][: len(ids)]
    x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
    size = config.hidden_size // config.num_attention_heads
    for i in range(config.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        heads = []
        for h in range(config.num_attention_heads):
            part = slice(h * size, (h + 1) * size)
            q, k, v = (dense(x, f"{layer}.attention.self.{name}")[:, part] for name in ("query", "key", "value"))
            heads.append(torch.softmax(q @ k.T / math.sqrt(size), -1) @ v)
        attended = dense(torch.cat(heads, -1), f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = dense(x, f"{layer}.intermediate.dense")
        inner = inner.clamp(min=0) if config.hidden_act == "relu" else inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return dense(torch.tanh(dense(x[0], "bert.pooler.dense")), "classifier")


@pytest.mark.parametrize("norm", LAYER_NORMS)
@pytest.mark.parametrize("act", ["relu", "gelu"])
def test_is_bert_written_by_hand(norm, act):
    config = small(layer_norm=norm, hidden_act=act, num_labels=3, labels=("a", "b", "c"))
    embed, classifier = built(config)
    ids = torch.tensor([2, 7, 9, 4, 3])
    logits = classifier(embed(ids[None]))[0]
    expected = by_hand(config, to_file_names(embed, classifier), ids)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)


def test_no_var_layer_norm_centres_and_does_not_scale():
    norm = NoVarLayerNorm(4)
    torch.testing.assert_close(norm(torch.tensor([1.0, 2.0, 3.0, 10.0])), torch.tensor([-3.0, -2.0, -1.0, 6.0]))


def test_padding_with_a_mask_changes_nothing():
    embed, classifier = built(small())
    short, padded = torch.tensor([[2, 7, 9, 3]]), torch.tensor([[2, 7, 9, 3, 0, 0], [2, 5, 6, 7, 8, 3]])
    mask = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    torch.testing.assert_close(classifier(embed(padded), mask)[:1], classifier(embed(short)))
    assert not torch.allclose(classifier(embed(padded))[:1], classifier(embed(short)))


def test_dropout_only_in_training():
    embed, classifier = built(small(dropout=0.5))
    x = embed(torch.tensor([[2, 7, 9, 3]]))
    assert torch.equal(classifier(x), classifier(x))
    classifier.train()
    assert not torch.equal(classifier(x), classifier(x))


def test_scores_are_handed_out_before_the_softmax():
    embed, classifier = built(small())
    seen: list[torch.Tensor] = []
    x = embed(torch.tensor([[2, 7, 9, 3]]))
    classifier(x, None, seen)
    assert [tuple(s.shape) for s in seen] == [(1, 2, 4, 4)] * 2
    assert not torch.allclose(seen[0].sum(-1), torch.ones(1, 2, 4, dtype=torch.float64))


@pytest.mark.parametrize("norm", LAYER_NORMS)
def test_exports_as_plain_tensor_ops(norm):
    embed, classifier = built(small(layer_norm=norm))
    x = embed(torch.tensor([[2, 7, 9, 3]])).detach()
    program = torch.export.export(classifier, (x,))
    ops = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    allowed = {
        "linear.default view.default transpose.int matmul.default div.Tensor softmax.int reshape.default relu.default",
        "add.Tensor tanh.default select.int",
    }
    if norm == "no_var":
        allowed.add("mean.dim sub.Tensor mul.Tensor")
    if norm == "standard":
        allowed.add("layer_norm.default")
    assert ops == {f"aten.{op}" for line in allowed for op in line.split()}
    torch.testing.assert_close(program.module()(x), classifier(x))


def test_parameter_names_are_hugging_faces():
    names = expected_shapes(small())
    assert names["bert.encoder.layer.1.attention.self.query.weight"] == (8, 8)
    assert names["bert.encoder.layer.0.intermediate.dense.weight"] == (12, 8)
    assert names["bert.embeddings.LayerNorm.bias"] == (8,)
    assert names["classifier.weight"] == (2, 8)
    assert not any("LayerNorm" in name for name in expected_shapes(small(layer_norm="none")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 10, "num_attention_heads": 4}, "multiple of num_attention_heads"),
        ({"hidden_act": "tanh"}, "hidden_act must be one of relu, gelu"),
        ({"layer_norm": "rms"}, "layer_norm must be one of"),
        ({"intermediate_size": -1}, "intermediate_size must be a whole number"),
        ({"intermediate_size": True}, "intermediate_size must be a whole number"),
        ({"intermediate_size": 1.5}, "intermediate_size must be a whole number"),
        ({"dropout": 1.0}, "dropout"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"num_labels": 3}, "label names"),
    ],
)
def test_impossible_configurations_are_named(change, message):
    with pytest.raises(ModelError, match=message):
        small(**change)

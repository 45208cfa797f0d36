"""The paper's Transformer classifier, split where it is perturbed: ids -> raw embeddings -> logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._device import DeviceContext

from ..recipe import LAYER_NORMS as LAYER_NORMS
from ..recipe import Config as Config

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}

# module of Layer -> its name in Hugging Face's BertLayer
_LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_CLASSIFIER_NAMES = {
    "embedding_norm": "bert.embeddings.LayerNorm",
    "pooler": "bert.pooler.dense",
    "classifier": "classifier",
}


class Embeddings(nn.Module):
    """ids [batch, n] -> word + position + type 0 embeddings [batch, n, d], before any LayerNorm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)

    def forward(self, ids: Tensor) -> Tensor:
        words: Tensor = self.word_embeddings(ids)  # [batch, n, d]
        return words + self.position_embeddings.weight[: ids.shape[-1]] + self.token_type_embeddings.weight[0]


class NoVarLayerNorm(nn.Module):
    """LayerNorm without the division by the standard deviation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x - x.mean(-1, keepdim=True)) + self.bias


def _norm(config: Config) -> nn.Module:
    if config.layer_norm == "none":
        return nn.Identity()
    if config.layer_norm == "standard":
        return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return NoVarLayerNorm(config.hidden_size)


class Layer(nn.Module):
    """Self-attention and feed-forward, each with a residual and then a LayerNorm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        d, f = config.hidden_size, config.intermediate_size
        self.heads, self.head_size = config.num_attention_heads, d // config.num_attention_heads
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = config.dropout
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.attention_output, self.attention_norm = nn.Linear(d, d), _norm(config)
        self.intermediate, self.output, self.output_norm = nn.Linear(d, f), nn.Linear(f, d), _norm(config)

    def forward(self, x: Tensor, mask: Tensor | None = None, scores_seen: list[Tensor] | None = None) -> Tensor:
        query, key, value = self._heads(self.query(x)), self._heads(self.key(x)), self._heads(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_size)  # [batch, heads, n, n]
        if scores_seen is not None:
            scores_seen.append(scores)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        weights = self._drop(scores.softmax(dim=-1))
        mixed = torch.matmul(weights, value)  # [batch, heads, n, head]
        mixed = mixed.transpose(1, 2).reshape(x.shape)  # [batch, n, d]
        x = self.attention_norm(x + self._drop(self.attention_output(mixed)))
        inner = self.activation(self.intermediate(x))
        y: Tensor = self.output_norm(x + self._drop(self.output(inner)))
        return y

    def _heads(self, x: Tensor) -> Tensor:
        batch, n, _ = x.shape
        return x.view(batch, n, self.heads, self.head_size).transpose(1, 2)  # [batch, heads, n, head]

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


class Classifier(nn.Module):
    """Raw embeddings [batch, n, d] -> logits [batch, classes].

    `mask` [batch, n] is True at real tokens; it is only needed for batches padded to one length.
    `scores_seen`, when given, receives every layer's attention scores before masking and softmax.
    """

    direct = True  # `forward` keeps to what graph/direct.py knows

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.embedding_norm = _norm(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self, embeddings: Tensor, mask: Tensor | None = None, scores_seen: list[Tensor] | None = None
    ) -> Tensor:
        x = self._drop(self.embedding_norm(embeddings))
        for layer in self.layers:
            x = layer(x, mask, scores_seen)
        pooled = torch.tanh(self.pooler(x[:, 0]))  # [batch, d]
        logits: Tensor = self.classifier(self._drop(pooled))
        return logits

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


def build(config: Config) -> tuple[Embeddings, Classifier]:
    """Both halves, freshly initialised as BERT is (normal 0.02, zero biases), from torch's current random state."""
    embed, classifier = Embeddings(config), Classifier(config)
    for module in (*embed.modules(), *classifier.modules()):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return embed, classifier


def file_name(half: Literal["embed", "classifier"], name: str) -> str:
    """The name in a model file of parameter `name` of one half."""
    if half == "embed":
        return f"bert.embeddings.{name}"
    head, _, rest = name.partition(".")
    if head == "layers":
        number, module, leaf = rest.split(".")
        return f"bert.encoder.layer.{number}.{_LAYER_NAMES[module]}.{leaf}"
    return f"{_CLASSIFIER_NAMES[head]}.{rest}"


def to_file_names(embed: Embeddings, classifier: Classifier) -> dict[str, Tensor]:
    """The parameters of both halves under the names of Hugging Face's `BertForSequenceClassification`."""
    named = {file_name("embed", k): v for k, v in embed.state_dict().items()}
    return named | {file_name("classifier", k): v for k, v in classifier.state_dict().items()}


class _Unfilled(DeviceContext):
    """A device on which modules are made without filling their weights; torch compiles that for the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def from_file_names(config: Config, tensors: Mapping[str, Tensor]) -> tuple[Embeddings, Classifier]:
    """Both halves in evaluation mode holding `tensors`, which must be complete and of the right shapes."""
    with _Unfilled("meta"):
        embed, classifier = Embeddings(config), Classifier(config)
    embed.load_state_dict({k: tensors[file_name("embed", k)] for k in embed.state_dict()}, assign=True)
    classifier.load_state_dict({k: tensors[file_name("classifier", k)] for k in classifier.state_dict()}, assign=True)
    return embed.eval().requires_grad_(False), classifier.eval().requires_grad_(False)


def expected_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor a model file of this configuration holds."""
    with _Unfilled("meta"):
        return {k: tuple(v.shape) for k, v in to_file_names(Embeddings(config), Classifier(config)).items()}

"""What the rest of the package needs to know about a model: embeddings in, logits out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import InputError, title
from .hashes import structure_hash, vocabulary_hash, weights_hash

if TYPE_CHECKING:
    from .predict import Prediction
    from .reading import Inputs

MOST_CHARACTERS = 10**6  # of a text: far more than any model takes


def check_characters(text: str) -> str:
    """The text, unless it is too long to be one."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"the text has {len(text):,} characters: expected at most {MOST_CHARACTERS:,}")
    return text


class Tokenizer(Protocol):
    """Text to ids and back to the characters a person typed."""

    def encode(self, text: str) -> Encoding: ...

    def decode(self, ids: list[int]) -> list[str]:
        """The token of each id."""
        ...


@dataclass(frozen=True)
class Encoding:
    """A tokenised text. `spans[i]` are the characters of token i in the text, or None for special tokens.

    `arguments` holds what a tokenizer returns besides ids, such as token types, as pairs of names and values.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int] | None, ...]
    special: tuple[bool, ...]
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Model:
    """A classifier split where it is perturbed.

    `embed` maps ids `[batch, n]` to raw embeddings `[batch, n, d]`; `module` maps embeddings to logits
    `[batch, classes]`. The perturbation moves the embeddings. `special` holds the ids that are never perturbed.
    """

    module: nn.Module
    embed: Callable[[Tensor], Tensor] | None = None
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    name: str = "model"
    special: frozenset[int] = frozenset()
    max_length: int | None = None
    vocabulary: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # what the folder says of itself: accuracy, data, command
    read: Callable[[Tensor], Tensor] | None = None  # a picture as positions `[1, n, d]`, where they are its patches
    shape: tuple[int, ...] | None = None  # of one input, where it is not embeddings `[n, d]` of any length

    def __repr__(self) -> str:
        size = sum(p.numel() for p in self.module.parameters())
        labels = ", ".join(self.labels[:4]) + (f" and {len(self.labels) - 4} more" if len(self.labels) > 4 else "")
        reads = "text" if self.tokenizer else "ids" if self.embed else "pictures" if self.read else "embeddings"
        kind = title(self.module)
        return f"Model({self.name!r}: {kind}, {size:,} parameters, {labels or 'no labels'}, reads {reads})"

    def predict(self, inputs: Inputs | Sequence[Inputs]) -> Prediction | tuple[Prediction, ...]:
        """The class, its name, the probabilities and the margin: of a text, ids or embeddings, or of each in a list."""
        from .predict import predict

        return predict(self, inputs)

    def hashes(self) -> dict[str, str]:
        """SHA-256 of the weights, of how the modules are put together, and of the vocabulary: what a model is."""
        return {
            "weights": weights_hash(self.module, self.embed),
            "structure": structure_hash(self.module, self.embed),
            "vocabulary": vocabulary_hash(self.vocabulary, self.special, self.tokenizer),
        }

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Model:
        """This model on another device or in another precision; the original is left alone.

        Both halves are copied together: an `embed` that is a method of the module is one of its copy. What cannot be
        copied, such as a plain function, stays the same object.
        """
        copied: dict[int, Any] = {}
        module, embed = copy.deepcopy(self.module, copied), self.embed
        with suppress(TypeError):
            embed = copy.deepcopy(embed, copied)
        for half in (module, getattr(embed, "__self__", embed)):
            if isinstance(half, nn.Module):
                half.to(device=device, dtype=dtype)
        return Model(
            module=module,
            embed=embed,
            tokenizer=self.tokenizer,
            labels=self.labels,
            name=self.name,
            special=self.special,
            max_length=self.max_length,
            vocabulary=self.vocabulary,
            facts=self.facts,
            read=self.read,
            shape=self.shape,
        )

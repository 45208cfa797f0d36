"""Training so that replaced words do not change the answer: the margin that intervals prove over all substitutes.

Substitutes come close to each other in training, so that intervals, the cheapest bounds, are good enough to learn from;
what is certified afterwards is bounded by linear functions, as always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.tables import read_json
from ..errors import InputError
from ..models.network import Embeddings
from .batches import UNKNOWN, Batch
from .bound import CertifiedMargin

BEGIN, FULL = 0.05, 0.4  # shares of the steps: words begin to be replaced, and are wholly


def read_synonyms(path: str) -> dict[str, list[str]]:
    """Word -> substitutes, from a JSON file, plain or gzip."""
    found = read_json(path, f"synonyms={path!r}")
    lists = found.values() if isinstance(found, dict) else [None]
    if not found or not all(isinstance(v, list) and all(isinstance(w, str) for w in v) for v in lists):
        raise InputError(f"synonyms={path!r}: expected a JSON object of lists of words")
    return dict(found)


def with_substitutes(vocabulary: Sequence[str], synonyms: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A vocabulary, and after it the substitutes of its words that it does not have."""
    return tuple(dict.fromkeys([*vocabulary, *(s for word in vocabulary for s in synonyms.get(word, ()))]))


def choices(vocabulary: Sequence[str], synonyms: Mapping[str, Sequence[str]]) -> Tensor:
    """For every word the ids of itself and its substitutes, `[words, choices]`; the word itself pads shorter lists."""
    number = {word: i for i, word in enumerate(vocabulary)}
    lists = [[i, *(number.get(s, UNKNOWN) for s in synonyms.get(word, ()))] for word, i in number.items()]
    most = max(map(len, lists))
    if most == 1:
        raise InputError("synonyms: no word of the training texts has a substitute")
    return torch.tensor([row + row[:1] * (most - len(row)) for row in lists])


def with_some_replaced(ids: Tensor, words: Tensor, table: Tensor, share: float) -> Tensor:
    """Ids `[batch, n]` with a share of the words as one of the columns of their row of the table, at random."""
    drawn = torch.randint(table.shape[1], ids.shape, device=ids.device)
    others = table[ids].gather(-1, drawn[..., None])[..., 0]
    return torch.where(words & (torch.rand(ids.shape, device=ids.device) < share), others, ids)


def reach(share: float) -> float:
    """How far towards its substitutes a word may go when a share of the steps is done."""
    return min(1.0, max(0.0, (share - BEGIN) / (FULL - BEGIN)))


class Substituting:
    """The loss of the worst of all substitutes, at most, of texts of a batch."""

    def __init__(self, embed: nn.Module, classifier: nn.Module, table: Tensor) -> None:
        assert isinstance(embed, Embeddings)
        self.embed, self.table = embed, table
        self.margin = CertifiedMargin(classifier, method="ibp")

    def __call__(self, ids: Tensor, batch: Batch, far: float) -> Tensor | None:
        """The mean of `softplus(-margin)` over the texts of the length that most have; None where there is none."""
        lengths = batch.mask.sum(dim=1)
        n = int(lengths.mode().values)
        rows = (lengths == n).nonzero()[:, 0]
        own = ids[rows, :n]
        words = self.embed.word_embeddings(self.table[own])  # [texts, n, choices, d]
        hot = batch.words[rows, :n, None, None].to(words)
        found = self.margin.over(self.embed(own), batch.labels[rows], far * hot * (words - words[:, :, :1]))
        found = found[torch.isfinite(found)]
        return F.softplus(-found).mean() if len(found) else None

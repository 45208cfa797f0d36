"""Words and substitutes that are one word to a model, so that replacing one by the other cannot change its answer.

Which ones may be, a linear model says that is trained for its worst substitutes: it gives every word a value for each
label. Words go into one group along the lists of substitutes, the closest first, as long as the values in a group
stay close, so that a group holds no good and bad words at once.
"""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.network import Embeddings
from ..models.tokenizer import SPECIAL_TOKENS
from ..recipe import Recipe
from .batches import UNKNOWN, Batch, Encoded, batches, epoch_order

EPOCHS, LEAST, SIZE = 3, 100, 256  # of the linear model: passes, steps at least, texts a step
RATE, DECAY, HIDDEN = 1e-2, 0.01, 0.2
WORST, DISTANCE = 0.8, 0.3  # parts of its loss: of the worst substitutes; of how far words are from their own


class Tied:
    """`of[word]` is the word that stands for its group, itself where it is alone; every group has one row to train.
    None where nothing is tied."""

    def __init__(self, of: Tensor | None) -> None:
        self.of = of

    def read(self, parts: dict[str, Encoded], table: Tensor | None) -> tuple[dict[str, Encoded], Tensor | None]:
        """Texts, and the table of substitutes, as they are trained on."""
        if self.of is None:
            return parts, table
        device = next(iter(parts.values())).ids.device
        of = self.of.to(device, torch.int32)
        read = {name: dataclasses.replace(part, ids=of[part.ids.long()]) for name, part in parts.items()}
        return read, None if table is None else self.of[table]

    @torch.no_grad()
    def write(self, embed: Embeddings) -> None:
        """Give all words of a group its row."""
        if self.of is not None:
            rows: Tensor = embed.word_embeddings.weight
            rows.copy_(rows[self.of.to(rows.device)])


def tied(texts: Encoded, labels: int, table: Tensor | None, recipe: Recipe) -> Tied:
    """The groups of words, and of their substitutes in `table` `[words, choices]`, that a recipe asks for."""
    if table is None or not recipe.synonyms_tied:
        return Tied(None)
    return Tied(groups(word_values(texts, labels, table, recipe.seed), table, recipe.synonyms_tied))


def word_values(texts: Encoded, labels: int, table: Tensor, seed: int) -> Tensor:
    """What each word says for each label `[words, labels]`, mean 0: a sum of these is trained as a classifier.

    The same on every device: the texts come to the CPU, where this takes seconds.
    """
    there = dataclasses.replace(texts, ids=texts.ids.cpu(), device_lengths=texts.lengths, labels=texts.labels.cpu())
    generator = torch.Generator().manual_seed(seed)
    values, shift = nn.Parameter(torch.zeros(len(table), labels)), nn.Parameter(torch.zeros(labels))
    optimizer = torch.optim.AdamW([values, shift], lr=RATE, weight_decay=DECAY)
    epochs = max(EPOCHS, math.ceil(LEAST * SIZE / len(there)))
    steps = [order for _ in range(epochs) for order in epoch_order(there.lengths, batch_size=SIZE, generator=generator)]
    counts = torch.bincount(there.ids.flatten().long(), minlength=len(table)).float()
    weights = (counts + 1).sqrt()  # of words in how far they are from their substitutes
    weights[: len(SPECIAL_TOKENS)] = 1
    for step, batch in enumerate(batches(there, steps)):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / len(steps))
        hidden = torch.rand(batch.ids.shape, generator=generator) < HIDDEN
        loss = _linear_loss(values, shift, batch, batch.ids.masked_fill(hidden & batch.words, UNKNOWN), table)
        distance = _spread(values[table].amax(1), values[table].amin(1))
        optimizer.zero_grad()
        (loss + DISTANCE * (weights * distance).sum() / weights.sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    found = values.detach()
    return found - found.mean(dim=1, keepdim=True)


def _linear_loss(values: Tensor, shift: Tensor, batch: Batch, ids: Tensor, table: Tensor) -> Tensor:
    """Cross-entropy of `sum of values + shift`, and the same at the worst substitutes against each other label."""
    own = F.one_hot(batch.labels, values.shape[1]).bool()  # [batch, labels]
    words = values[table[ids]]  # [batch, n, choices, labels]
    label = words.masked_fill(~own[:, None, None], 0).sum(-1, keepdim=True)
    ahead = (words - label).masked_fill(~batch.words[:, :, None, None], 0)  # of the label, for every other one
    shifted = shift - (shift * own).sum(-1, keepdim=True)
    clean = F.cross_entropy(ahead[:, :, 0].sum(1) + shifted, batch.labels)
    worst = F.cross_entropy(ahead.amax(2).sum(1) + shifted, batch.labels)
    return (1 - WORST) * clean + WORST * worst


def _spread(upper: Tensor, lower: Tensor) -> Tensor:
    """How far apart values are: with two labels, of mean 0, the distance of the differences of the two."""
    return (upper - lower).sum(-1)


def groups(values: Tensor, table: Tensor, within: float) -> Tensor:
    """For every word the word that stands for its group: pairs of word and substitute, the closest first, are put
    together where the spread of all values in the group stays `within`."""
    of = list(range(len(table)))
    least, most = values.clone(), values.clone()

    def root(i: int) -> int:
        while of[i] != i:
            of[i] = of[of[i]]
            i = of[i]
        return i

    word = torch.arange(len(table))[:, None].expand_as(table)
    first = len(SPECIAL_TOKENS)
    pairs = torch.stack([word, table], dim=-1)[(table != word) & (table >= first) & (word >= first)]  # [pairs, 2]
    apart = _spread(values[pairs].amax(1), values[pairs].amin(1))
    for k in apart.argsort(stable=True).tolist():
        a, b = sorted((root(int(pairs[k, 0])), root(int(pairs[k, 1]))))
        lower, upper = torch.minimum(least[a], least[b]), torch.maximum(most[a], most[b])
        if a != b and float(_spread(upper, lower)) <= within:
            of[b] = a
            least[a], most[a] = lower, upper
    return torch.tensor([root(i) for i in range(len(table))])

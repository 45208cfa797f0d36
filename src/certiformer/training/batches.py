"""Texts as padded tensors that stay on the device, and the order in which they are visited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data import Example
from ..errors import InputError
from ..models.tokenizer import SPECIAL_TOKENS, WordTokenizer

UNKNOWN = SPECIAL_TOKENS.index("[UNK]")


def build_vocabulary(examples: Sequence[Example], *, size: int) -> tuple[str, ...]:
    """The special tokens and then the most frequent words, at most `size` in all; ties in alphabetical order."""
    counts = Counter(word for example in examples for word in example.words)
    for token in SPECIAL_TOKENS:
        counts.pop(token, None)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return (*SPECIAL_TOKENS, *words[: max(0, size - len(SPECIAL_TOKENS))])


@dataclass(frozen=True, eq=False)
class Encoded:
    """Examples on a device. `lengths` stay on the CPU, where batches are cut."""

    ids: Tensor  # [examples, longest], padded with 0
    lengths: Tensor  # [examples], with [CLS] and [SEP]
    device_lengths: Tensor
    labels: Tensor  # [examples]
    special: tuple[int, ...]  # ids that are no words

    @staticmethod
    def of(
        rows: Sequence[Sequence[int]], labels: Sequence[int], *, special: Iterable[int], pad: int, device: torch.device
    ) -> Encoded:
        """Ids of texts, padded."""
        lengths = torch.tensor([len(row) for row in rows])
        longest = int(lengths.max())
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows], dtype=torch.int32).to(device)
        return Encoded(ids, lengths, lengths.to(device), torch.tensor(labels).to(device), tuple(sorted(special)))

    def __len__(self) -> int:
        return len(self.lengths)


def encode(examples: Sequence[Example], vocabulary: Sequence[str], *, max_length: int, device: torch.device) -> Encoded:
    """`[CLS] words [SEP]` of each example; texts that are too long for the model are cut."""
    if not examples:
        raise InputError("there are no examples to encode")
    tokenizer = WordTokenizer(vocabulary)
    first, last = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    rows = [[first, *tokenizer.word_ids(example.words[: max_length - 2]), last] for example in examples]
    pad = vocabulary.index("[PAD]")
    labels = [example.label for example in examples]
    return Encoded.of(rows, labels, special=(pad, first, last), pad=pad, device=device)


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch, cut to its longest text. `mask` is True at real tokens, `words` at those that are words."""

    ids: Tensor  # [batch, n]
    mask: Tensor  # [batch, n]
    words: Tensor  # [batch, n]
    labels: Tensor  # [batch]


def some_words(batch: Batch, count: int) -> Tensor:
    """Positions `[batch, count]` of words at random, different ones where there are enough; of tokens if no words."""
    words = torch.where(batch.words.any(dim=1, keepdim=True), batch.words, batch.mask)
    drawn = torch.rand(words.shape, device=words.device).masked_fill(~words, -1.0)
    least, places = drawn.topk(min(count, words.shape[1]), dim=1)
    return torch.where(least >= 0, places, places[:, :1])


def epoch_order(lengths: Tensor, *, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """A random order cut into batches of texts of similar length."""
    order = torch.randperm(len(lengths), generator=generator)
    pool = 50 * batch_size
    batches: list[Tensor] = []
    for start in range(0, len(order), pool):
        part = order[start : start + pool]
        part = part[torch.argsort(lengths[part], stable=True)]
        batches.extend(torch.split(part, batch_size))
    shuffled = torch.randperm(len(batches), generator=generator)
    return [batches[int(i)] for i in shuffled]


def batches(data: Encoded, order: Sequence[Tensor]) -> Iterator[Batch]:
    """The batches of `order`, whose indices travel to the device at once."""
    device = data.ids.device
    longest = [int(data.lengths[indices].max()) for indices in order]
    special = torch.tensor(data.special, device=device)
    moved = torch.split(torch.cat(list(order)).to(device), [len(indices) for indices in order])
    for indices, n in zip(moved, longest, strict=True):
        mask = torch.arange(n, device=device)[None, :] < data.device_lengths[indices][:, None]  # [batch, n]
        ids = data.ids[indices, :n].long()
        yield Batch(ids, mask, mask & ~torch.isin(ids, special), data.labels[indices])


@torch.no_grad()
def accuracy(embed: nn.Module, classifier: nn.Module, data: Encoded, *, batch_size: int = 512) -> float:
    """The share of examples classified rightly, in evaluation mode; the mode is put back afterwards."""
    modes = embed.training, classifier.training
    embed.eval(), classifier.eval()
    order = torch.split(torch.argsort(data.lengths, stable=True), batch_size)
    right = torch.zeros((), dtype=torch.long, device=data.ids.device)
    for batch in batches(data, order):
        right += (classifier(embed(batch.ids), batch.mask).argmax(-1) == batch.labels).sum()
    embed.train(modes[0]), classifier.train(modes[1])
    return int(right) / len(data)

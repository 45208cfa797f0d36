"""The paper's protocol: which sentences, which positions, and how their radii become one figure.

Sentences are drawn from the test part in a random order that depends on the seed alone, so that models of one dataset
meet the same ones; those that are too long or that the model gets wrong are passed over. Radii are reduced to the
minimum and the average over the positions of a sentence, then averaged over the sentences.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from certiformer.data import Example
from certiformer.errors import InputError
from certiformer.models import Model
from certiformer.models.tokenizer import WordTokenizer
from certiformer.questions.inputs import prepare

SEED = 0
PIECE = 512  # tokens in all sets of one cell together, for one layer: a minute or so of the slowest method on a GPU


@dataclass(frozen=True)
class Sentence:
    """A test sentence that the model gets right. `word_labels` are the treebank's, where the data has them."""

    index: int  # in the test part
    words: tuple[str, ...]
    ids: tuple[int, ...]  # with the special tokens at both ends
    label: int
    word_labels: tuple[int, ...] | None = None


def choose(
    model: Model, test: Sequence[Example], *, count: int, longest: int, shortest: int, device: str
) -> tuple[Sentence, ...]:
    """The first `count` sentences of the random order that fit and are classified correctly."""
    order = list(range(len(test)))
    random.Random(SEED).shuffle(order)
    chosen: list[Sentence] = []
    for index in order:
        example = test[index]
        if len(chosen) == count:
            break
        if not shortest <= len(example.words) <= longest:
            continue
        ids = encode(model, example.words)
        if prepare(model, ids, dtype=torch.float64, device=device).label == example.label:
            chosen.append(Sentence(index, example.words, ids, example.label, example.word_labels))
    if len(chosen) < count:
        raise InputError(
            f"model {model.name!r} gets {len(chosen)} test sentences of {shortest} to {longest} words right, "
            f"{count} were asked for: lower --sentences or raise --max-length"
        )
    return tuple(chosen)


def encode(model: Model, words: Sequence[str]) -> tuple[int, ...]:
    """`[CLS] words [SEP]` as ids; the words are split already."""
    tokenizer = model.tokenizer
    if not isinstance(tokenizer, WordTokenizer):
        raise InputError(f"model {model.name!r} is not one of this package's own classifiers")
    first, last = model.vocabulary.index("[CLS]"), model.vocabulary.index("[SEP]")
    return (first, *tokenizer.word_ids(words), last)


def pieces(sentence: Sentence, words: int, *, size: float) -> list[tuple[tuple[int, ...], ...]]:
    """All sets of `words` positions, cut into parts of about equal length, of `size` tokens in all sets at most."""
    sets = list(itertools.combinations(range(1, len(sentence.words) + 1), words))
    most = max(1, math.floor(min(size / len(sentence.ids), len(sets))))
    step = math.ceil(len(sets) / math.ceil(len(sets) / most))
    return [tuple(sets[i : i + step]) for i in range(0, len(sets), step)]


@dataclass(frozen=True)
class Spread:
    """Minimum and average over positions, averaged over sentences.

    `missing` counts positions without a radius (no word changes the answer there): they are left out, as is a sentence
    that has no other.
    """

    minimum: float
    average: float
    missing: int
    positions: int


def spread(radii: Sequence[Sequence[float | None]]) -> Spread:
    """Reduce the radii of some sentences, each a list over its positions."""
    found = [[r for r in sentence if r is not None] for sentence in radii]
    kept = [sentence for sentence in found if sentence]
    total = sum(len(sentence) for sentence in radii)
    missing = total - sum(len(sentence) for sentence in kept)
    if not kept:
        return Spread(math.inf, math.inf, missing, total)
    return Spread(
        minimum=mean([min(sentence) for sentence in kept]),
        average=mean([mean(sentence) for sentence in kept]),
        missing=missing,
        positions=total,
    )


def mean(values: Sequence[float]) -> float:
    """The average."""
    return math.fsum(values) / len(values)

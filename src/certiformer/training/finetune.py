"""Training a Hugging Face classifier on, whatever its architecture, with the penalty for certificates or without."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Dataset, Example
from ..errors import InputError
from ..models import load
from ..models.device import pick_device
from ..models.huggingface import without_bars
from ..models.model import Model
from ..models.wrapped import FromEmbeddings
from ..recipe import FineTuning, with_epochs
from . import checkpoint
from .batches import Encoded, accuracy
from .card import facts_of, write_facts
from .run import Progress, Run, own_randomness
from .start import fingerprint, may_begin, not_collapsed


@dataclass(frozen=True)
class FineTuned:
    """A finished training: accuracies of the weights as stored, and `before` of those that it began with (dev)."""

    folder: Path
    before: float
    dev_accuracy: float
    test_accuracy: float | None
    seconds: float
    history: tuple[tuple[float, float], ...]  # loss and dev accuracy at each evaluation
    halved: int  # how often the weight of the penalty for certificates was halved
    cut: int  # texts that were longer than the model takes


class _Words(nn.Module):
    """The model's own table of words. It belongs to the other half, so this one has no weights."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._table = [model.get_input_embeddings()]

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self._table[0](ids)
        return found


class _Logits(nn.Module):
    """Word embeddings and a mask of the real tokens to logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs_embeds=embeddings, attention_mask=mask.long()).logits
        return logits


def finetune(
    source: str | os.PathLike[str],
    data: Dataset,
    out: str | os.PathLike[str],
    *,
    recipe: FineTuning | None = None,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> FineTuned:
    """Train a Hugging Face classifier on, and save it as one. A folder with a checkpoint of this training is continued.

    `source` is a folder, or "hf:NAME". What `cf.load` opens and takes `inputs_embeds` with a mask can be trained.
    """
    recipe, folder, where = recipe or FineTuning(), Path(out), pick_device(device)
    data = _some_of(data, recipe)
    may_begin(data, folder)
    recipe = with_epochs(recipe, len(data.train))
    opened = load(source)
    model, tokenizer = _parts_of(opened, data, recipe)
    parts, cut = {}, 0
    for part, examples in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        if examples:
            parts[part], longer = _encoded(opened, tokenizer, examples, where)
            cut += longer
    folder.mkdir(parents=True, exist_ok=True)
    with own_randomness(where):
        words, logits = _Words(model), _Logits(model).requires_grad_(True).to(where)
        before = accuracy(words, logits, parts["dev"], batch_size=recipe.batch_size)
        shape = {"architecture": type(model).__name__, "weights": opened.hashes()["weights"]}
        settings = fingerprint(shape, recipe, opened.vocabulary, parts, {})
        run = Run((words, logits), recipe, parts, folder, progress, settings)
        state = run.finish()
    not_collapsed(recipe, state, data.dev)
    test = accuracy(words, logits, parts["test"], batch_size=recipe.batch_size) if "test" in parts else None
    model.eval().requires_grad_(False).cpu()
    with without_bars():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    facts = facts_of(data, recipe, dev=state.best_accuracy, test=test, seconds=state.seconds, device=where)
    write_facts(folder, facts)
    (folder / checkpoint.FILE).unlink(missing_ok=True)
    return FineTuned(folder, before, state.best_accuracy, test, state.seconds, state.history, run.rising.halved, cut)


def _some_of(data: Dataset, recipe: FineTuning) -> Dataset:
    """The data with as many training texts as the recipe takes, in the order that they had."""
    if not 0 < recipe.train_texts < len(data.train):
        return data
    drawn = sorted(random.Random(recipe.seed).sample(range(len(data.train)), recipe.train_texts))
    return replace(data, train=tuple(data.train[i] for i in drawn))


def _parts_of(opened: Model, data: Dataset, recipe: FineTuning) -> tuple[Any, Any]:
    """The Hugging Face model and tokenizer of an opened model that can be trained on this data."""
    name = opened.name
    tokenizer: Any = getattr(opened.tokenizer, "_tokenizer", None)
    if not isinstance(opened.module, FromEmbeddings) or tokenizer is None:
        raise InputError(
            f"{name}: expected a Hugging Face classifier of texts with its tokenizer; a model of this package is "
            "trained on with `certiformer train --start`"
        )
    if len(opened.labels) != len(data.labels):
        raise InputError(f"{name}: tells {len(opened.labels)} labels apart, data {data.name!r} has {len(data.labels)}")
    others = ("score_penalty", "word_dropout", "bound", "synonyms", "start", "centring")
    if any(getattr(recipe, name) for name in others):
        raise InputError(f"{', '.join(others)}: for models that are trained from scratch")
    if tokenizer.pad_token_id is None:
        raise InputError(f"{name}: the tokenizer has no padding token, so texts cannot be trained on in batches")
    return opened.module.model, tokenizer


def _encoded(opened: Model, tokenizer: Any, examples: Sequence[Example], device: torch.device) -> tuple[Encoded, int]:
    """The ids of texts, and how many texts were cut."""
    rows = [list(tokenizer(example.written)["input_ids"]) for example in examples]
    longest = opened.max_length
    cut = 0 if longest is None else sum(len(row) > longest for row in rows)
    if longest is not None:
        rows = [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
    labels = [example.label for example in examples]
    special = {*opened.special, tokenizer.pad_token_id}
    return Encoded.of(rows, labels, special=special, pad=tokenizer.pad_token_id, device=device), cut

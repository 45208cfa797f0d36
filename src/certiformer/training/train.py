"""Training the paper's classifier from scratch, or from a model of the same shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from ..data import Dataset, Example
from ..errors import InputError
from ..models.device import pick_device
from ..models.folder import write_folder
from ..models.model import Model
from ..models.network import Classifier, Embeddings, build
from ..recipe import Config, Recipe, with_epochs
from . import checkpoint
from .batches import Encoded, accuracy, encode
from .card import command_of, facts_of, model_card
from .run import Progress, Run, own_randomness
from .start import begin, fingerprint, load_weights, may_begin, not_collapsed
from .substituting import choices, read_synonyms
from .tying import tied


@dataclass(frozen=True)
class Trained:
    """A finished training. Accuracies are those of the weights as stored."""

    folder: Path
    config: Config
    dev_accuracy: float
    test_accuracy: float | None
    seconds: float
    history: tuple[tuple[float, float], ...]  # loss and dev accuracy at each evaluation
    halved: int = 0  # how often the weight of the penalty for certificates was halved


def train(
    config: Config,
    data: Dataset,
    out: str | os.PathLike[str],
    *,
    recipe: Recipe | None = None,
    vocabulary: Sequence[str] | None = None,
    device: str = "auto",
    stored_as: Literal["float32", "float16"] = "float32",
    name: str | None = None,
    source: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train a classifier and write its folder. A folder holding a checkpoint of this same training is continued.

    `config.vocab_size` is the most words to keep without a `vocabulary`. On the CPU a continued training ends with the
    same weights as one that was never stopped. `source` are words about the data, for the command of the card.
    """
    recipe, folder, asked = recipe or Recipe(), Path(out), config
    may_begin(data, folder)
    recipe = with_epochs(recipe, len(data.train))
    where = pick_device(device)
    words, start = begin(recipe, config, data, vocabulary)
    table = None if recipe.synonyms is None else choices(words, read_synonyms(recipe.synonyms))
    config = replace(config, vocab_size=len(words), num_labels=len(data.labels), labels=data.labels)
    parts = _encoded(data, words, config, where)
    groups = tied(parts["train"], len(data.labels), table, recipe)
    parts, table = groups.read(parts, table)
    folder.mkdir(parents=True, exist_ok=True)
    with own_randomness(where):
        torch.manual_seed(recipe.seed)
        embed, classifier = build(config)
        load_weights(embed, classifier, start)
        known = start if table is None else {**start, "synonyms": table}
        settings = fingerprint(asdict(config), recipe, words, parts, known)
        run = Run((embed, classifier), recipe, parts, folder, progress, settings, table)
        state = run.finish()
        groups.write(embed)
    not_collapsed(recipe, state, data.dev)
    if stored_as == "float16":
        embed.half().float(), classifier.half().float()
    dev = accuracy(embed, classifier, parts["dev"])
    test = accuracy(embed, classifier, parts["test"]) if "test" in parts else None
    facts = facts_of(data, recipe, dev=dev, test=test, seconds=state.seconds, device=where)
    facts["recipe"]["dropout"] = config.dropout
    command = command_of(source, asked, recipe, out=folder, stored_as=stored_as, device=where)
    facts |= {"stored_as": stored_as, "command": command}
    card = model_card(name or folder.resolve().name, config, facts | {"parameters": _size(embed) + _size(classifier)})
    write_folder(
        folder,
        config=config,
        embed=embed,
        classifier=classifier,
        vocabulary=words,
        facts=facts,
        card=card,
        dtype=stored_as,
    )
    (folder / checkpoint.FILE).unlink(missing_ok=True)
    return Trained(folder, config, dev, test, state.seconds, state.history, run.rising.halved)


def _encoded(data: Dataset, words: Sequence[str], config: Config, device: torch.device) -> dict[str, Encoded]:
    parts = {"train": data.train, "dev": data.dev, "test": data.test}
    length = config.max_position_embeddings
    return {name: encode(part, words, max_length=length, device=device) for name, part in parts.items() if part}


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def evaluate(model: Model, examples: Sequence[Example], *, device: str = "auto", batch_size: int = 512) -> float:
    """The accuracy of a model opened from a folder. Texts too long for it are cut."""
    if not isinstance(model.module, Classifier) or not isinstance(model.embed, Embeddings) or not model.max_length:
        raise InputError(f"model {model.name!r} is not one of this package's own classifiers")
    highest = max((example.label for example in examples), default=0)
    if highest >= len(model.labels):
        raise InputError(f"model {model.name!r} knows {len(model.labels)} labels, the data has label {highest}")
    where = pick_device(device)
    moved = model.to(device=where)
    assert isinstance(moved.module, Classifier)
    assert isinstance(moved.embed, Embeddings)
    encoded = encode(examples, model.vocabulary, max_length=model.max_length, device=where)
    return accuracy(moved.embed, moved.module, encoded, batch_size=batch_size)

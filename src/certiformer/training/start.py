"""Where a training begins: fresh weights, or those of a trained model; and where it must not end."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..data import Dataset, Example
from ..errors import InputError
from ..models.folder import CONFIG, read_folder
from ..models.network import Classifier, Config, Embeddings, expected_shapes, file_name
from ..recipe import Recipe
from . import checkpoint
from .batches import Encoded, build_vocabulary
from .substituting import read_synonyms, with_substitutes


class CollapsedError(InputError):
    """A training for certificates that ended with one answer for everything."""


Weights = dict[str, Tensor]  # of both halves, as `embed.` and `classifier.`


def may_begin(data: Dataset, folder: Path) -> None:
    """Errors that would only be seen after the training."""
    if (folder / CONFIG).exists() and not (folder / checkpoint.FILE).exists():
        raise InputError(f"{folder} already holds a model: name another folder, or remove that one")
    if not data.train or not data.dev:
        sizes = f"{len(data.train)} train, {len(data.dev)} dev and {len(data.test)} test examples"
        raise InputError(f"data {data.name!r} needs a train and a dev part to train on, found {sizes}")
    if len({example.label for example in data.train}) < 2:
        raise InputError(f"data {data.name!r}: all of its {len(data.train)} training examples have one label")


def weights_of(embed: nn.Module, classifier: nn.Module) -> Weights:
    """Copies of the weights of both halves."""
    halves = (("embed", embed), ("classifier", classifier))
    return {f"{half}.{k}": v.detach().clone() for half, module in halves for k, v in module.state_dict().items()}


def load_weights(embed: nn.Module, classifier: nn.Module, weights: Weights) -> None:
    """Put weights into both halves; nothing is done where there are none."""
    if weights:
        embed.load_state_dict(checkpoint.part(weights, "embed"))
        classifier.load_state_dict(checkpoint.part(weights, "classifier"))


def begin(
    recipe: Recipe, config: Config, data: Dataset, vocabulary: Sequence[str] | None
) -> tuple[tuple[str, ...], Weights]:
    """The words, and the weights of the model that a recipe goes on from; none for one that starts afresh."""
    if recipe.start is None:
        words = tuple(vocabulary or build_vocabulary(data.train, size=config.vocab_size))
        return words if recipe.synonyms is None else with_substitutes(words, read_synonyms(recipe.synonyms)), {}
    if vocabulary is not None:
        raise InputError(
            f"vocabulary=..., start={recipe.start!r}: that model has words of its own; give one of the two"
        )
    model = read_folder(recipe.start)
    assert isinstance(model.embed, Embeddings)
    assert isinstance(model.module, Classifier)
    weights = {name: value.float() for name, value in weights_of(model.embed, model.module).items()}
    wanted = expected_shapes(Config(**{**vars(config), "vocab_size": len(model.vocabulary)}))
    for half, module in (("embed", model.embed), ("classifier", model.module)):
        for name, value in module.state_dict().items():
            shape = wanted.get(file_name("embed" if half == "embed" else "classifier", name))
            if shape != tuple(value.shape):
                found = "nothing of the kind" if shape is None else str(list(shape))
                raise InputError(
                    f"start={recipe.start!r}: {name} has the shape {list(value.shape)} there, and {found} is asked for"
                )
    return model.vocabulary, weights


def not_collapsed(recipe: Recipe, state: checkpoint.State, dev: Sequence[Example]) -> None:
    """A training for certificates must end with more than one answer for everything."""
    most = max(Counter(example.label for example in dev).values())
    if (recipe.certify or recipe.bound) and most < len(dev) and state.best_accuracy <= most / len(dev):
        raise CollapsedError(
            f"certify={recipe.certify:g}: training collapsed, the dev accuracy of {state.best_accuracy:.1%} is that of "
            "one answer for all; use a smaller weight, more epochs, or start from a trained model"
        )


def fingerprint(
    shape: Mapping[str, Any], recipe: Recipe, vocabulary: Sequence[str], parts: Mapping[str, Encoded], start: Weights
) -> str:
    """What is being trained, how, on what and from where: a checkpoint of another training is refused by it."""
    digest = hashlib.sha256(json.dumps([shape, asdict(recipe), list(vocabulary)]).encode())
    for name, value in start.items():
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    for part in ("train", "dev"):
        for tensor in (parts[part].ids, parts[part].labels):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()

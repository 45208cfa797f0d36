"""What a folder says of its training: the facts, and the card of a model that was trained from scratch."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..data import Dataset
from ..errors import InputError
from ..models.folder import write_bytes
from ..models.network import Config
from ..recipe import SHORT_NAMES, Recipe

TRAINING = "training.json"  # the facts, in a folder of Hugging Face's

_NORMS = {"no_var": "without division by the standard deviation", "standard": "standard", "none": "none"}


def facts_of(
    data: Dataset, recipe: Recipe, *, dev: float, test: float | None, seconds: float, device: torch.device
) -> dict[str, Any]:
    """On what a model was trained, how, how long, and what came of it."""
    return {
        "data": data.name,
        "train_examples": len(data.train),
        "dev_accuracy": round(dev, 4),
        "test_accuracy": None if test is None else round(test, 4),
        "seed": recipe.seed,
        "recipe": {k: _named(v) for k, v in asdict(recipe).items() if k != "seed" and v is not None},
        "date": datetime.date.today().isoformat(),
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "certiformer": __version__,
        "torch": torch.__version__,
    }


def command_of(
    source: Sequence[str] | None, config: Config, recipe: Recipe, *, out: Path, stored_as: str, device: torch.device
) -> str:
    """The command that trains the same again: all that decides the training, also what is the default now.

    `source` are its words about the data; without, the training began in Python. Of folders and files it has the names
    alone.
    """
    if source is None:
        return "certiformer.training.train(...)"
    words = ["certiformer", "train", *source, "--out", out.resolve().name]
    for each in (config, recipe):
        said = {f.name: getattr(each, f.name) for f in fields(each) if "help" in f.metadata}
        for name, value in said.items():
            if value is not None:
                words += [SHORT_NAMES.get(name, f"--{name.replace('_', '-')}"), str(_named(value))]
    return shlex.join([*words, "--stored-as", stored_as, "--device", device.type])


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Beside a model whose own files have no place for them."""
    write_bytes(folder / TRAINING, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())


def read_facts(folder: Path) -> dict[str, Any]:
    """What `write_facts` wrote, nothing where it did not."""
    path = folder / TRAINING
    if not path.is_file():
        return {}
    try:
        facts: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: does not say how the model was trained ({error})") from None
    return facts


def _named(value: Any) -> Any:
    """A setting as a card shows it: of a folder or a file its name alone."""
    return Path(value).resolve().name if isinstance(value, str) and Path(value).exists() else value


def model_card(name: str, config: Config, facts: Mapping[str, Any]) -> str:
    """README.md of a model folder."""
    rows = {
        "data": facts["data"],
        "training examples": f"{facts['train_examples']:,}",
        "dev accuracy": f"{facts['dev_accuracy']:.2%}",
        "test accuracy": f"{facts['test_accuracy']:.2%}" if facts.get("test_accuracy") is not None else "no test part",
        "layers, heads": f"{config.num_hidden_layers}, {config.num_attention_heads}",
        "hidden, feed-forward": f"{config.hidden_size}, {config.intermediate_size} ({config.hidden_act})",
        "LayerNorm": _NORMS[config.layer_norm],
        "vocabulary": f"{config.vocab_size:,} words, lower case",
        "parameters": f"{facts['parameters']:,}, stored as {facts['stored_as']}",
        "seed": facts["seed"],
        "date": facts["date"],
        "trained in": f"{facts['seconds']:.0f} s on {facts['device']}",
        "trained by": f"certiformer {facts['certiformer']}, torch {facts['torch']}",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    recipe = ", ".join(f"{key} {value}" for key, value in facts["recipe"].items())
    labels = ", ".join(config.labels)
    return f"""# {name}

A {config.num_hidden_layers}-layer Transformer classifier ({labels}), trained from scratch by certiformer.

| | |
|---|---|
{table}

Recipe: {recipe}.

Command:

```
{facts["command"]}
```

Open it with `certiformer.load(path)`. The accuracies are those of the stored weights.
"""

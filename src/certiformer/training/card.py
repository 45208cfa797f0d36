"""The model card written beside a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..models.network import Config

_NORMS = {"no_var": "without division by the standard deviation", "standard": "standard", "none": "none"}


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

"""The models that are measured: trained ones where a folder holds them, else random weights of the same size."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import torch

from certiformer.models import BUNDLED, Config, Model, load
from certiformer.models.network import build
from certiformer.questions.inputs import Inputs

from .cases import Case

VOCABULARY = 200
CLS, SEP = 2, 3


def model_of(case: Case, folder: Path | None) -> Model:
    """A trained model of the size of a case (paper's Transformer, from `folder` or the package), or a random one."""
    if case.suite in ("gpu-table", "cpu-table", "throughput"):
        for path in sorted(p for p in folder.iterdir() if (p / "config.json").is_file()) if folder else ():
            if _fits(json.loads((path / "config.json").read_text()), case):
                return load(path)
        if case.width == 64 and case.layers <= len(BUNDLED):
            return load(BUNDLED[case.layers - 1])
    return random_model(case.layers, case.width, most=max(128, case.tokens))


def _fits(facts: dict[str, object], case: Case) -> bool:
    return (
        facts.get("num_hidden_layers") == case.layers
        and facts.get("hidden_size") == case.width
        and facts.get("layer_norm") == "no_var"
        and str(facts.get("data", "sst")).startswith("sst")
    )


def random_model(layers: int, width: int, *, most: int = 128, seed: int = 0) -> Model:
    """The paper's Transformer with random weights, scaled so that activations neither vanish nor blow up."""
    generator = torch.random.get_rng_state()
    torch.manual_seed(seed)
    config = Config(
        layers, VOCABULARY, hidden_size=width, intermediate_size=2 * width, max_position_embeddings=most, dropout=0.0
    )
    embed, classifier = build(config)
    torch.random.set_rng_state(generator)
    for parameter in classifier.parameters():
        if parameter.dim() > 1:
            parameter.data *= 0.5 / (0.02 * math.sqrt(width))
    for parameter in embed.parameters():
        parameter.data *= 0.25 / 0.02
    for half in (embed, classifier):
        half.eval().requires_grad_(False)
    return Model(
        module=classifier,
        embed=embed,
        labels=config.labels,
        name=f"random weights, N={layers} d={width}",
        special=frozenset({0, CLS, SEP}),
        max_length=most,
    )


def inputs_of(case: Case, model: Model, texts: list[str] | None = None) -> list[Inputs]:
    """The sentences of a case: its text, those given, or random ids; `tokens=0` is 8 to 24 tokens each."""
    if texts is not None:
        return list(texts)
    if case.text is not None and model.tokenizer is not None:
        return [case.text]
    chance = random.Random(0)
    size = len(model.vocabulary) or VOCABULARY
    lengths = [case.tokens or 8 + k % 17 for k in range(case.sentences)]
    return [[CLS, *(chance.randrange(4, size) for _ in range(n - 2)), SEP] for n in lengths]

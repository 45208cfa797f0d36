"""What a training recipe does to accuracy and to the certified radius: one row of a Markdown table for each model.

certiformer reproduce recipes --data-dir DATA sst-1 sst-2 path/to/folder ...

The radius is the mean over every word of ten test sentences of at most 16 tokens: of each class the first five that all
24 models of the first comparison classified correctly. A model that gets one wrong is measured on the others, and the
table says so. Attention scores are those of the first 300 dev sentences, layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import torch

import certiformer as cf
from certiformer.core.names import Relaxation
from certiformer.data import Dataset, Example, load_data
from certiformer.questions.inputs import prepare
from certiformer.training import evaluate

SCORED = 300  # dev sentences whose attention scores are looked at
SENTENCES = (
    (1, "offers that rare combination of entertainment and education ."),
    (1, "take care of my cat offers a refreshingly different slice of asian cinema ."),
    (1, "what really surprises about wisegirls is its low-key quality and genuine tenderness ."),
    (1, "one of the greatest family-oriented , fantasy-adventure movies ever ."),
    (1, "a masterpiece four years in the making ."),
    (0, "is this progress ?"),
    (0, "you might not buy the ideas ."),
    (0, "hey , who else needs a shower ?"),
    (0, "still , i 'm not quite sure what the point is ..."),
    (0, "do n't expect any surprises in this checklist of teamwork cliches ..."),
)


def right(model: cf.Model) -> list[str]:
    """The sentences that a model classifies correctly."""
    return [text for label, text in SENTENCES if prepare(model, text).label == label]


def scores(model: cf.Model, examples: Sequence[Example]) -> list[torch.Tensor]:
    """The sizes of the attention scores of each layer."""
    layers: list[list[torch.Tensor]] = []
    for example in examples:
        seen: list[torch.Tensor] = []
        ids = prepare(model, " ".join(example.words)).ids
        assert model.embed is not None
        with torch.no_grad():
            model.module(model.embed(torch.tensor([ids])), None, seen)
        layers = layers or [[] for _ in seen]
        for layer, values in zip(layers, seen, strict=True):
            layer.append(values.flatten().abs())
    return [torch.cat(layer) for layer in layers]


def row(model: cf.Model, name: str, data: Dataset, *, norm: str, relaxation: Relaxation) -> str:
    """One line of the table."""
    test = evaluate(model, data.test, device="cpu")
    sizes = scores(model, data.dev[:SCORED])
    chosen = right(model)
    found = cf.radii(model, chosen, norm=norm, relaxation=relaxation)
    radii = [r for result in found for r in result.radii]
    relative = [r for result in found for r in result.normalized]
    cells = [
        name if len(chosen) == len(SENTENCES) else f"{name} ({len(chosen)} sentences)",
        f"{test:.2%}",
        " ".join(f"{float(s.square().mean().sqrt()):.2f}" for s in sizes),
        " ".join(f"{float(s.max()):.2f}" for s in sizes),
        f"{fmean(result.margin for result in found):.2f}",
        f"{fmean(radii):.4f}",
        f"{fmean(relative):.3f}",
        f"{min(radii):.4f}",
    ]
    return f"| {' | '.join(cells)} |"


def table(models: Sequence[str], *, data_dir: Path | None, norm: str, relaxation: Relaxation) -> Iterator[str]:
    """The lines of the table, each as it is done; every model is opened before the first."""
    data = load_data("sst", data_dir=data_dir)
    opened = [(Path(name).name, cf.load(name)) for name in models]
    yield "| model | test | score rms | score max | margin | radius | relative | smallest |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, model in opened:
        yield row(model, name, data, norm=norm, relaxation=relaxation)

"""What a training recipe does to accuracy and to the certified radius: one row of a Markdown table for each model.

python benchmarks/recipes.py --data-dir DATA sst-1 sst-2 path/to/folder ...

The radius is the mean over every word of the same few test sentences: of each class the first of at most `--longest`
tokens that all of the given models classify correctly. Attention scores are those of the first 300 dev sentences, layer
by layer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch

import certiformer as cf
from certiformer.data import Dataset, load_data
from certiformer.data.readers import Example
from certiformer.inputs import prepare
from certiformer.training import evaluate

SCORED = 300


def ids_of(model: cf.Model, example: Example) -> list[int]:
    """The ids of an example, [CLS] and [SEP] included."""
    assert model.tokenizer is not None
    return list(model.tokenizer.encode(" ".join(example.words)).ids)


def common(models: Sequence[cf.Model], data: Dataset, *, count: int, longest: int) -> list[Example]:
    """Of each class the first examples that are short enough and that every model gets right."""
    chosen: list[Example] = []
    left = dict.fromkeys(range(len(data.labels)), count // len(data.labels))
    for example in data.test:
        if not left[example.label] or len(example.words) + 2 > longest:
            continue
        if all(prepare(model, ids_of(model, example)).label == example.label for model in models):
            chosen.append(example)
            left[example.label] -= 1
    return chosen


def scores(model: cf.Model, examples: Sequence[Example]) -> list[torch.Tensor]:
    """The sizes of the attention scores of each layer."""
    layers: list[list[torch.Tensor]] = []
    for example in examples:
        seen: list[torch.Tensor] = []
        assert model.embed is not None
        with torch.no_grad():
            model.module(model.embed(torch.tensor([ids_of(model, example)])), None, seen)
        layers = layers or [[] for _ in seen]
        for layer, values in zip(layers, seen, strict=True):
            layer.append(values.flatten().abs())
    return [torch.cat(layer) for layer in layers]


def row(model: cf.Model, name: str, data: Dataset, examples: Sequence[Example], *, norm: str, relaxation: str) -> str:
    """One line of the table."""
    test = evaluate(model, data.test, device="cpu")
    sizes = scores(model, data.dev[:SCORED])
    began = time.perf_counter()
    found = cf.radii(
        model,
        [ids_of(model, e) for e in examples],
        norm=norm,
        relaxation=relaxation,  # type: ignore[arg-type]
    )
    seconds = time.perf_counter() - began
    radii = [r for result in found for r in result.radii]
    relative = [r for result in found for r in result.normalized]
    cells = [
        name,
        f"{test:.2%}",
        " ".join(f"{float(s.square().mean().sqrt()):.2f}" for s in sizes),
        " ".join(f"{float(s.max()):.2f}" for s in sizes),
        f"{fmean(result.margin for result in found):.2f}",
        f"{fmean(radii):.4f}",
        f"{fmean(relative):.3f}",
        f"{min(radii):.4f}",
        f"{seconds:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Accuracy and certified radius of models, as a Markdown table.")
    parser.add_argument("models", nargs="+", help="bundled names or model folders")
    parser.add_argument("--data-dir", help="folder with the data; default: CERTIFORMER_DATA, else a download")
    parser.add_argument("--norm", default="2", help="1, 2 or inf")
    parser.add_argument("--relaxation", default="paper", help="paper or tight")
    parser.add_argument("--sentences", type=int, default=10, help="how many, half of each class")
    parser.add_argument("--longest", type=int, default=16, help="tokens, [CLS] and [SEP] included")
    options = parser.parse_args(arguments)
    try:
        data = load_data("sst", data_dir=options.data_dir)
        opened = [(Path(name).name, cf.load(name)) for name in options.models]
        examples = common([m for _, m in opened], data, count=options.sentences, longest=options.longest)
        for example in examples:
            print(f"<!-- {example.label} {' '.join(example.words)} -->")
        print("| model | test | score rms | score max | margin | radius | relative | smallest | time |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name, model in opened:
            print(row(model, name, data, examples, norm=options.norm, relaxation=options.relaxation), flush=True)
    except cf.CertiformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`certiformer eval`"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Data, DataDir, Device, LabelColumn, LabelsFrom, Quiet, TextColumn
from .terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..data import Example
    from ..models import Model

BATCH = 32


class Split(str, Enum):
    """A part of the data."""

    train = "train"
    dev = "dev"
    test = "test"


def evaluate(
    model: Annotated[str, typer.Argument(help="A model folder, or a bundled model such as sst-2.")],
    data: Data = "sst",
    data_dir: DataDir = None,
    split: Annotated[Split, typer.Option(help="Which part.")] = Split.test,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    labels_from: LabelsFrom = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the accuracy of a model.

    Example: [bold]certiformer eval runs/sst_2 --data sst[/bold]
    """
    from ..data import Tables, load_data
    from ..errors import InputError
    from ..models import load

    opened = load(model)
    loaded = load_data(data, data_dir=data_dir, tables=Tables(text_column, label_column, labels_from, opened.labels))
    examples = {"train": loaded.train, "dev": loaded.dev, "test": loaded.test}[split.value]
    if not examples:
        raise InputError(f"data {data!r} has no {split.value} part")
    result = _accuracy(opened, examples, device)
    if quiet:
        typer.echo(f"{result:.4f}")
    else:
        right = round(result * len(examples))
        typer.echo(f"{opened.name} on {loaded.name} {split.value}: {result:.2%} ({right} of {len(examples)})")


def _accuracy(model: Model, examples: Sequence[Example], device: str) -> float:
    """The share of examples that a model gets right, of this package or any other with a tokenizer."""
    from ..errors import InputError
    from ..models import Classifier
    from ..training import evaluate as own

    if isinstance(model.module, Classifier):
        return own(model, examples, device=device)
    if model.tokenizer is None or model.embed is None:
        raise InputError(f"model {model.name!r} has no tokenizer: it cannot be evaluated on texts")
    import torch

    from ..training import pick_device

    where = pick_device(device)
    moved = model.to(device=where)
    moved.module.eval()
    by_length: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    cut = 0
    for example in examples:
        ids = model.tokenizer.encode(example.written).ids
        if model.max_length is not None and len(ids) > model.max_length:
            ids, cut = (*ids[: model.max_length - 1], ids[-1]), cut + 1
        by_length.setdefault(len(ids), []).append((ids, example.label))
    if cut:
        say(f"{cut} texts were cut to the {model.max_length} tokens that the model takes")
    right = 0
    for same in by_length.values():
        for start in range(0, len(same), BATCH):
            batch = same[start : start + BATCH]
            ids_of = torch.tensor([ids for ids, _ in batch], device=where)  # [batch, n]
            assert moved.embed is not None
            with torch.no_grad():
                found = moved.module(moved.embed(ids_of)).argmax(dim=1).tolist()
            right += sum(int(a == label) for a, (_, label) in zip(found, batch, strict=True))
    return right / len(examples)

"""`certiformer eval`"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from ..core.names import option
from ..errors import InputError
from ..named import check_name
from ..options import Machine
from .flags import Given, command, one_argument
from .options import Labelled, Quiet
from .terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..data import Example
    from ..models import Model

BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Evaluation(Labelled, Quiet):
    """What is evaluated, and on what."""

    split: Literal["train", "dev", "test"] = option("test", "Which part.")


@command(
    Evaluation,
    Machine,
    argument=one_argument("model", "A model folder, or a bundled model such as sst-2."),
    without=("threads",),
)
def evaluate(given: Given) -> int:
    """Print the accuracy of a model.

    Example: [bold]certiformer eval runs/sst_2 --data sst[/bold]
    """
    check_name(given.values["model"])

    from ..data import Tables, load_data
    from ..models import load

    asked, opened = given(Evaluation), load(given.values["model"])
    tables = given(Tables, names=opened.labels)
    loaded = load_data(asked.data, data_dir=asked.data_dir, tables=tables)
    examples = {"train": loaded.train, "dev": loaded.dev, "test": loaded.test}[asked.split]
    if not examples:
        raise InputError(f"data {asked.data!r} has no {asked.split} part")
    result = _accuracy(opened, examples, given.device)
    if asked.quiet:
        typer.echo(f"{result:.4f}")
    else:
        right = round(result * len(examples))
        typer.echo(f"{opened.name} on {loaded.name} {asked.split}: {result:.2%} ({right} of {len(examples)})")
    return 0


def _accuracy(model: Model, examples: Sequence[Example], device: str) -> float:
    """The share of examples that a model gets right, of this package or any other with a tokenizer."""
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

"""`certiformer eval`"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from .options import Data, DataDir, Device, Quiet


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
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the accuracy of a model.

    Example: [bold]certiformer eval runs/sst_2 --data sst[/bold]
    """
    from ..data import load_data
    from ..errors import InputError
    from ..models import load
    from ..training import evaluate as run

    opened = load(model)
    loaded = load_data(data, data_dir=data_dir)
    examples = {"train": loaded.train, "dev": loaded.dev, "test": loaded.test}[split.value]
    if not examples:
        raise InputError(f"data {data!r} has no {split.value} part")
    result = run(opened, examples, device=device)
    if quiet:
        typer.echo(f"{result:.4f}")
    else:
        right = round(result * len(examples))
        typer.echo(f"{opened.name} on {loaded.name} {split.value}: {result:.2%} ({right} of {len(examples)})")

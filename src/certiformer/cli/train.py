"""`certiformer train`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..core.names import option
from ..numbers import NOTHING, down
from ..options import Machine
from ..recipe import SHORT_NAMES, Config, Recipe
from . import INTERRUPTED
from .flags import Given, command
from .options import Labelled, Quiet, Weighing
from .progress import progress_bar
from .terminal import console, say
from .view import table

if TYPE_CHECKING:
    from ..training import Front, Progress


@dataclass(frozen=True, kw_only=True)
class Training(Labelled, Weighing, Quiet):
    """What is trained on, and where the model goes."""

    out: Path = option(MISSING, "Folder to write the model to.")
    stored_as: Literal["float32", "float16"] = option("float32", "Number format of the stored weights.")
    float16: bool = option(False, "The same as --stored-as float16.")
    bfloat16: bool = option(False, "The same as --precision bfloat16.")


@command(Training, Config, Recipe, Machine, argument=(), without=("threads",), aliases=SHORT_NAMES)
def train(given: Given) -> int:
    """Train the paper's classifier, with --certify so that it can be certified; run it again to continue after a kill.

    Example: [bold]certiformer train --data sst --layers 2 --out runs/sst_2[/bold]
    """
    from ..data import Tables, load_data
    from ..training import front
    from ..training import train as run

    asked, config, weight = given(Training), given(Config), given(Training).weight()
    recipe = given(Recipe, certify=weight or 0.0)
    recipe = replace(recipe, precision="bfloat16") if asked.bfloat16 else recipe
    loaded = load_data(asked.data, data_dir=asked.data_dir, tables=given(Tables))
    stored: Literal["float32", "float16"] = "float16" if asked.float16 else asked.stored_as
    settings: dict[str, Any] = {"device": given.device, "stored_as": stored, "source": source_of(given)}
    try:
        with training_progress(quiet=asked.quiet) as progress:
            if weight is None:
                told: dict[str, Any] = {**settings, **asked.tried(), "progress": progress}
                return show_front(front(config, loaded, asked.out, recipe=recipe, **told))
            trained = run(config, loaded, asked.out, recipe=recipe, progress=progress, **settings)
    except KeyboardInterrupt:
        say(f"stopped; the same command continues from the last checkpoint in {asked.out}")
        return INTERRUPTED
    test = "no test part" if trained.test_accuracy is None else f"test {trained.test_accuracy:.2%}"
    typer.echo(f"{trained.folder}: dev {trained.dev_accuracy:.2%}, {test}, trained in {trained.seconds:.0f} s")
    return 0


def show_front(found: Front) -> int:
    """The front as a table, and what was chosen."""
    rows = table("weight", "dev", "test", "certified", "of the length", "training")
    for p in found.points:
        if p.dev_accuracy is None:
            rows.add_row(f"{p.weight:g}", "collapsed", "", "", "", "")
            continue
        test = NOTHING if p.test_accuracy is None else f"{p.test_accuracy:.2%}"
        mark = " *" if p == found.chosen else ""
        cells = (f"{p.weight:g}{mark}", f"{p.dev_accuracy:.2%}", test, down(p.certified), down(p.of_length))
        rows.add_row(*cells, f"{p.seconds:.0f} s")
    console().print(rows)
    typer.echo(
        f"{found.folder}: weight {found.chosen.weight:g}, the knee within {found.allowed_loss:.1%} of accuracy; "
        f"certified is the mean radius of one word in each of {found.sentences} dev texts; front.csv has the front"
    )
    return 0


def source_of(given: Given) -> list[str]:
    """Which data, as it goes into the command of a model card: of a path of this machine the last part."""
    asked = given(Labelled)
    words = ["--data", Path(asked.data).resolve().name]
    for name in ("text_column", "label_column", "labels_from"):
        if (value := getattr(asked, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@contextmanager
def training_progress(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback for training: a live bar on a terminal, a line an evaluation elsewhere, None when quiet."""
    with progress_bar("training", None, quiet=quiet) as bar:
        if quiet:
            yield None
        elif bar.live is None:
            yield lambda p: say(_line(p)) if p.evaluated else None
        else:
            yield lambda p: bar.advance(p.step, total=p.steps, told=_line(p))


def _line(p: Progress) -> str:
    accuracy = "" if p.dev_accuracy is None else f", dev {p.dev_accuracy:.2%} (best {p.best_accuracy:.2%})"
    halved = f" (halved {p.halved} times: it cost accuracy)" if p.halved else ""
    penalty = f", penalty {p.penalty:.3g}{halved}" if p.penalty else ""
    return f"epoch {p.epoch:.1f}, loss {p.loss:.4f}{accuracy}{penalty}"

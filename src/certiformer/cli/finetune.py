"""`certiformer finetune`"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import typer

from ..core.names import option
from ..named import check_name
from ..options import Machine
from ..recipe import FineTuning
from . import INTERRUPTED
from .flags import Given, command, one_argument
from .options import Labelled, Quiet, Weighing
from .terminal import say
from .train import show_front, training_progress


@dataclass(frozen=True, kw_only=True)
class Further(Labelled, Weighing, Quiet):
    """What is trained on, and where the model goes."""

    out: Path = option(MISSING, "Folder to write the model to.")


@command(
    Further,
    FineTuning,
    Machine,
    argument=one_argument("model", "A folder with a Hugging Face classifier, or hf:NAME."),
    without=(
        "threads",
        "centring",
        "word_dropout",
        "score_penalty",
        "start",
        "bound",
        "bound_radius",
        "bound_words",
        "synonyms",
        "synonyms_weight",
        "synonyms_shown",
        "synonyms_tied",
    ),
)
def finetune(given: Given) -> int:
    """Train a Hugging Face classifier on, with --certify so that it can be certified; run it again after a kill.

    Example: [bold]certiformer finetune path/to/folder --data sst --certify 0.1 --out runs/mine[/bold]
    """
    check_name(given.values["model"])

    from ..data import Tables, load_data
    from ..models import load
    from ..training import finetune as run
    from ..training import front

    asked, source, weight = given(Further), given.values["model"], given(Further).weight()
    tables = given(Tables, names=load(source).labels)
    loaded = load_data(asked.data, data_dir=asked.data_dir, tables=tables)
    try:
        with training_progress(quiet=asked.quiet) as progress:
            told: dict[str, Any] = {"device": given.device, "progress": progress}
            told["recipe"] = given(FineTuning, certify=weight or 0.0)
            if weight is None:
                return show_front(front(source, loaded, asked.out, **told, **asked.tried()))
            done = run(source, loaded, asked.out, **told)
    except KeyboardInterrupt:
        say(f"stopped; the same command continues from the last checkpoint in {asked.out}")
        return INTERRUPTED
    if done.cut:
        say(f"{done.cut} texts were cut to the number of tokens that the model takes")
    test = "no test part" if done.test_accuracy is None else f"test {done.test_accuracy:.2%}"
    dev = f"dev {done.before:.2%} before, {done.dev_accuracy:.2%} now"
    typer.echo(f"{done.folder}: {dev}, {test}, trained in {done.seconds:.0f} s")
    return 0

"""`certiformer card`"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from ..core.names import option
from ..errors import InputError
from .flags import Given, command, one_argument
from .options import Quiet
from .terminal import say


@dataclass(frozen=True, kw_only=True)
class Card(Quiet):
    """Where a card goes, and which benchmark of the hub it is for."""

    out: Path = option(MISSING, "Folder of the model: the section goes into its README.md.")
    model: str | None = option(None, "Which model of the sweep, where there are several.")
    dataset_id: str | None = option(None, "Benchmark on the Hugging Face hub: writes .eval_results too.")
    task_id: str | None = option(None, "Task of that benchmark for the plain accuracy.")
    certified_task_id: str | None = option(None, "Task of that benchmark for the certified accuracy.")
    at: float | None = option(None, "Radius of the certified accuracy, where the sweep has several.")
    source_url: str | None = option(None, "Where the measurement can be looked at.")


@command(Card, argument=one_argument("sweep", "Folder of a finished sweep (certiformer sweep --out)."))
def card(given: Given) -> int:
    """Write what a sweep measured into a model card, and as evaluation results for the Hugging Face hub.

    Example: [bold]certiformer card runs/sweep --out runs/sst_2[/bold]
    """
    asked, folder = given(Card), Path(given.values["sweep"])
    tasks = (asked.task_id, asked.certified_task_id, asked.at, asked.source_url)
    if asked.dataset_id is None and any(value is not None for value in tasks):
        raise InputError("--task-id, --certified-task-id, --at and --source-url go with --dataset-id")

    from ..sweep.card import Benchmark, Measured, write
    from ..sweep.result import read_result

    benchmark = None
    if asked.dataset_id is not None:
        benchmark = Benchmark(asked.dataset_id, asked.task_id, asked.certified_task_id, asked.at, asked.source_url)
    files = write(Measured.of(read_result(folder), asked.model), asked.out, benchmark)
    if not asked.quiet:
        say(f"written: {', '.join(map(str, files))}")
    return 0

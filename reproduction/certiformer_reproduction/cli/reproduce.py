"""`certiformer reproduce`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certiformer.cli.options import Budget, DataDir, Device, Dtype, Precision, Quiet

if TYPE_CHECKING:
    from ..paper import Progress


class Name(str, Enum):
    """A table of the paper."""

    main = "main"
    two_positions = "two-positions"
    ablation = "ablation"
    words = "words"
    layernorm = "layernorm"
    all = "all"
    plots = "plots"


def reproduce(
    table: Annotated[Name, typer.Argument(help="Which table; all of them; or the plots of what is there.")],
    data_dir: DataDir = None,
    models: Annotated[Path, typer.Option(help="Folder with one folder a model, as the zoo makes them.")] = Path("zoo"),
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables and finished cells.")] = Path("results"),
    device: Device = "auto",
    dtype: Dtype = Precision.float64,
    sentences: Annotated[
        int | None, typer.Option(help="How many a model; default: the paper's 10 (words: 100).", min=1)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most words of a sentence; default: the paper's 32 (pairs: 16).", min=1)
    ] = None,
    norms: Annotated[str | None, typer.Option(help="1, 2, inf or some of them with commas; default: all.")] = None,
    datasets: Annotated[str | None, typer.Option(help="sst, yelp or both with a comma; default: both.")] = None,
    only: Annotated[str | None, typer.Option(help="Models by name, with commas; default: all of the table.")] = None,
    methods: Annotated[str | None, typer.Option(help="Methods by name, with commas; default: all.")] = None,
    budget: Annotated[Budget, typer.Option(help="How much time our method may take.")] = Budget.balanced,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which no further cell is started; 0 only writes.", min=0)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run the paper's tables again, beside its own figures; after a kill the same call continues.

    Example: [bold]certiformer reproduce main --data-dir DATA --models zoo[/bold]
    """
    from ..paper import Settings
    from ..paper import reproduce as run
    from ..paper.options import names, norm_orders
    from ..paper.run import report

    settings = Settings(
        models=models,
        data_dir=data_dir,
        out=out,
        device=device,
        dtype=dtype.value,
        sentences=sentences,
        max_length=max_length,
        norms=norm_orders(norms),
        datasets=names(datasets),
        only=names(only),
        methods=names(methods),
        budget=budget.value,
        time_limit=time_limit,
    )
    with progress_bar(quiet=quiet) as on_progress:
        done = run(table.value, settings, on_progress=on_progress)
    for text in report(done):
        if not (quiet and text.startswith("written: ")):
            typer.echo(text, err=True)
    raise typer.Exit(done.code)


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A live bar on a terminal, a line a cell elsewhere, None when quiet."""
    from rich import progress as bars
    from rich.console import Console

    from ..paper.run import line

    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        yield lambda p: typer.echo(line(p), err=True)
    else:
        columns = (bars.BarColumn(), bars.TaskProgressColumn(), bars.TextColumn("{task.description}"))
        with bars.Progress(*columns, console=console, transient=True) as live:
            task = live.add_task("", total=None)
            yield lambda p: live.update(task, completed=p.done, total=p.total, description=line(p))

"""`certiformer bench`"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from certiformer.cli import options


class Suite(str, Enum):
    """What is measured."""

    gpu_table = "gpu-table"
    cpu_table = "cpu-table"
    scaling = "scaling"
    throughput = "throughput"
    all = "all"


def bench(
    suite: Annotated[Suite | None, typer.Argument(help="What to measure.")] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = options.Precision.float64,
    repeats: Annotated[int, typer.Option(help="Runs of each case after one that warms up.", min=1)] = 3,
    tolerance: options.Tolerance = 1e-3,
    only: Annotated[str | None, typer.Option(help="Only cases with this in their names.")] = None,
    models: Annotated[
        Path | None, typer.Option(help="Folder of model folders; else random weights of the same size.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Sentences for throughput, a line each.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write JSON here.")] = None,
    compare: Annotated[Path | None, typer.Option(help="JSON of an earlier run to compare with.")] = None,
    time_limit: Annotated[float, typer.Option(help="Start no case after so many seconds.")] = 1e9,
    patience: Annotated[float, typer.Option(help="Repeat a case no longer than so many seconds.")] = 60.0,
    max_memory: Annotated[float | None, typer.Option(help="GiB that the bounds may take.")] = None,
    threads: options.Threads = None,
    markdown: Annotated[
        list[Path] | None, typer.Option(help="Print the tables of this JSON and stop; may be given several times.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="With --markdown or --fill: write PNG files here.")] = None,
    fill: Annotated[
        Path | None, typer.Option(help="Renew the tables of this page from the JSON it names, stop.")
    ] = None,
) -> None:
    """Measure how long certified radii take on this machine, against what was asked and what could be.

    Example: [bold]certiformer bench cpu-table --out cpu.json[/bold]
    """
    from certiformer.errors import InputError

    from ..bench import Settings, run
    from ..bench.__main__ import prepared_device, show

    if markdown or fill:
        show(markdown or [], plots, fill)
        return
    if suite is None:
        raise InputError(f"expected what to measure: {', '.join(s.value for s in Suite)}")
    settings = Settings(
        suite=suite.value,
        device=prepared_device(None if device == "auto" else device, threads),
        dtype=dtype.value,
        repeats=repeats,
        tolerance=tolerance,
        only=only,
        models=models,
        file=file,
        out=out,
        compare=compare,
        time_limit=time_limit,
        patience=patience,
        max_memory=None if max_memory is None else int(max_memory * 2**30),
    )
    run(settings, say=typer.echo)

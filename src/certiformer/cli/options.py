"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str, typer.Option(help="sst, yelp, or a file or folder of label/sentence tables.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder that holds the data; default: CERTIFORMER_DATA, else a download.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]

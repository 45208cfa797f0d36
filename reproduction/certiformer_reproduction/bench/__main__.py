"""`python -m certiformer_reproduction.bench`: `certiformer bench` without typer and rich."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certiformer.errors import CertiformerError, InputError

from .cases import SUITES
from .run import Settings, read, run
from .tables import filled, markdown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="certiformer bench", description="Measure certified radii on this machine.")
    parser.add_argument("suite", nargs="?", choices=[*SUITES, "all"])
    parser.add_argument("--device", default=None, help="cpu, cuda, cuda:1, ...; default: a GPU where there is one")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative width to which a search closes")
    parser.add_argument("--only", help="only cases with this in their names")
    parser.add_argument("--models", type=Path, help="folder of model folders; else random weights of the same size")
    parser.add_argument("--file", type=Path, help="sentences for `throughput`, a line each")
    parser.add_argument("--out", type=Path, help="write JSON here")
    parser.add_argument("--compare", type=Path, help="JSON of an earlier run")
    parser.add_argument("--time-limit", type=float, default=1e9, help="start no case after so many seconds")
    parser.add_argument("--patience", type=float, default=60.0, help="repeat a case no longer than so many seconds")
    parser.add_argument("--max-memory", type=float, help="GiB that the bounds may take")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--markdown", type=Path, nargs="+", help="print the tables of these JSON files and stop")
    parser.add_argument("--plots", type=Path, help="with --markdown or --fill: write PNG files to this folder")
    parser.add_argument("--fill", type=Path, help="renew the tables of this page from the JSON files it names and stop")
    given = parser.parse_args(arguments)
    try:
        if given.markdown or given.fill:
            show(given.markdown or [], given.plots, given.fill)
            return 0
        if given.suite is None:
            raise InputError(f"expected a suite: {', '.join((*SUITES, 'all'))}")
        run(
            Settings(
                suite=given.suite,
                device=prepared_device(given.device, given.threads),
                dtype=given.dtype,
                repeats=given.repeats,
                tolerance=given.tolerance,
                only=given.only,
                models=given.models,
                file=given.file,
                out=given.out,
                compare=given.compare,
                time_limit=given.time_limit,
                patience=given.patience,
                max_memory=None if given.max_memory is None else int(given.max_memory * 2**30),
            ),
            say=lambda text: print(text, flush=True),
        )
    except CertiformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def prepared_device(device: str | None, threads: int | None) -> str:
    """The device to measure on, with the number of threads set."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def show(files: Sequence[Path], plots: Path | None, page: Path | None = None) -> None:
    """Print the Markdown of some documents, renew the tables of a page, and draw the plots of all of them."""
    documents = [read(file) for file in files]
    for document in documents:
        print(markdown(document))
    if page is not None:

        def named(file: str) -> dict[str, Any] | None:
            path = page.parent / file
            if not path.exists():
                return None
            documents.append(read(path))
            return documents[-1]

        page.write_text(filled(page.read_text(encoding="utf-8"), named), encoding="utf-8")
    if plots is not None:
        from .plots import draw

        for written in draw(documents, plots):
            print(f"written: {written}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

"""The paper's tables where the command line's libraries are not installed:

python -m certiformer_reproduction.paper main --data-dir DATA --models MODELS --out results --device cuda
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from certiformer.errors import CertiformerError

from .options import NORMS_HELP, names, norm_orders
from .run import NAMES, line, report, reproduce
from .study import Progress, Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; an error is one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m certiformer_reproduction.paper", description="The paper's tables.")
    parser.add_argument("table", choices=NAMES)
    parser.add_argument(
        "--data-dir", type=Path, help="folder with the data; default: CERTIFORMER_DATA, else a download"
    )
    parser.add_argument("--models", type=Path, default=Path("zoo"), help="folder with one folder a model")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the tables and finished cells")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument(
        "--dtype", default="float64", choices=("float64", "float32"), help="number format of the proofs"
    )
    parser.add_argument("--sentences", type=int, help="how many a model; default: the paper's 10 (words: 100)")
    parser.add_argument("--max-length", type=int, help="most words of a sentence; default: the paper's 32 (pairs: 16)")
    parser.add_argument("--norms", help=NORMS_HELP)
    parser.add_argument("--datasets", help="sst, yelp or both with a comma; default: both")
    parser.add_argument("--only", help="models by name, with commas; default: all of the table")
    parser.add_argument("--methods", help="methods by name, with commas; default: all of the table")
    parser.add_argument("--budget", default="balanced", choices=("fast", "balanced", "tight"), help="of our method")
    parser.add_argument(
        "--time-limit", type=float, help="seconds after which no further cell is started; 0: only write"
    )
    given = parser.parse_args(arguments)
    try:
        settings = Settings(
            models=given.models,
            data_dir=given.data_dir,
            out=given.out,
            device=given.device,
            dtype=given.dtype,
            sentences=given.sentences,
            max_length=given.max_length,
            norms=norm_orders(given.norms),
            datasets=names(given.datasets),
            only=names(given.only),
            methods=names(given.methods),
            budget=given.budget,
            time_limit=given.time_limit,
        )
        done = reproduce(given.table, settings, on_progress=_say)
    except CertiformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for text in report(done):
        print(text, file=sys.stderr, flush=True)
    return done.code


def _say(progress: Progress) -> None:
    print(line(progress), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The command line of everything beside the package; it needs neither typer nor rich.

python -m certiformer_reproduction COMMAND ...
certiformer reproduce COMMAND ...                  # the same, where this is installed
certiformer bench ...                              # certiformer reproduce bench ...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from certiformer.errors import CertiformerError, InputError

Given = argparse.Namespace
T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """One that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None, *, prog: str = "python -m certiformer_reproduction") -> int:
    """Run a command; an error is one line and exit code 2."""
    try:
        given = parser(prog).parse_args(arguments)
        run: Callable[[Given], int] = given.run
        return run(given)
    except CertiformerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def reproduce(arguments: Sequence[str]) -> int:
    """`certiformer reproduce ...`"""
    return main(arguments, prog="certiformer reproduce")


def bench(arguments: Sequence[str]) -> int:
    """`certiformer bench ...`"""
    return main(["bench", *arguments], prog="certiformer reproduce")


def parser(prog: str) -> Parser:
    """Every command with its options."""
    top = Parser(prog=prog, description="The paper's tables run again, the models they need, and benchmarks.")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_tables, _plots, _bench, _vit, _zoo, _recipes, _certifiable, _tightness, _results, _performance):
        add(commands)
    return top


def _command(commands: Any, name: str, run: Callable[[Given], int], about: str) -> Parser:
    made: Parser = commands.add_parser(name, help=about, description=about)
    made.set_defaults(run=run)
    return made


# options that several commands share


def _data_dir(command: Parser) -> None:
    command.add_argument(
        "--data-dir", type=Path, help="folder with the data; default: CERTIFORMER_DATA, else a download"
    )


def _of_bounds(command: Parser, *names: str) -> None:
    """Options that the package has: their defaults, choices and help are those of `certiformer.options`."""
    from certiformer.options import Options

    kinds = get_type_hints(Options)
    for f in (f for f in fields(Options) if f.name in names):
        kind, flag = kinds[f.name], f"--{f.name.replace('_', '-')}"
        choices = get_args(kind) if get_origin(kind) is Literal else None
        number = next((k for k in (int, float) if k in (kind, *get_args(kind))), str)
        command.add_argument(flag, default=f.default, type=number, choices=choices, help=f.metadata["help"])
    command.set_defaults(device="auto")


def _names(given: str) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(part.strip() for part in given.split(",") if part.strip())


def _norms(given: str) -> tuple[float, ...]:
    """Norms with commas between them."""
    from certiformer.norms import norm_order

    try:
        return tuple(norm_order(part) for part in _names(given))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ways(given: str) -> tuple[str, ...]:
    """A list with semicolons: the ways have commas in their names."""
    return tuple(part.strip() for part in given.split(";"))


def _settings(kind: Callable[..., T], given: Given) -> T:
    """The settings of a command: each field from the option of its name."""
    return kind(**{f.name: getattr(given, f.name) for f in fields(kind) if hasattr(given, f.name)})  # type: ignore[arg-type]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# the paper's tables


def _tables(commands: Any) -> None:
    from .paper.tables import TABLES

    command = _command(commands, "tables", _run_tables, "run a table of the paper again, beside its own figures")
    command.add_argument("table", choices=(*TABLES, "all"), help="after a kill the same call continues")
    _data_dir(command)
    _of_bounds(command, "device", "dtype", "budget")
    add = command.add_argument
    add("--models", type=Path, default=Path("zoo"), help="folder with one folder a model, as `zoo` makes them")
    add("--out", "-o", type=Path, default=Path("results"), help="folder for the tables and finished cells")
    add("--sentences", type=int, help="how many a model; default: the paper's 10 (words: 100)")
    add("--max-length", type=int, help="most words of a sentence; default: the paper's 32 (pairs: 16)")
    add("--norms", type=_norms, help="1, 2, inf or some of them with commas; default: all of the table")
    add("--datasets", type=_names, help="sst, yelp or both with a comma; default: both")
    add("--only", type=_names, help="models by name, with commas; default: all of the table")
    add("--methods", type=_names, help="methods by name, with commas; default: all of the table")
    add("--time-limit", type=float, help="seconds after which no further cell is started; 0: only write")
    add("--quiet", "-q", action="store_true", help="say only what went wrong")


def _run_tables(given: Given) -> int:
    from .paper.run import line, report, reproduce
    from .paper.study import Settings

    say = None if given.quiet else (lambda progress: _say(line(progress)))
    done = reproduce(given.table, _settings(Settings, given), progress=say)
    for text in report(done):
        if not (given.quiet and text.startswith("written: ")):
            _say(text)
    return done.code


def _plots(commands: Any) -> None:
    command = _command(commands, "plots", _run_plots, "draw the tables that there are")
    command.add_argument("--out", "-o", type=Path, default=Path("results"), help="folder that `tables` wrote to")


def _run_plots(given: Given) -> int:
    from .paper.plots import draw

    for path in draw(given.out):
        _say(f"written: {path}")
    return 0


# benchmarks


def _bench(commands: Any) -> None:
    from .bench.cases import SUITES

    command = _command(commands, "bench", _run_bench, "measure how long certified radii take on this machine")
    command.add_argument("suite", choices=(*SUITES, "all"))
    _of_bounds(command, "device", "dtype", "tolerance", "max_memory", "threads")
    add = command.add_argument
    add("--repeats", type=int, default=3, help="runs of each case after one that warms up")
    add("--only", help="only cases with this in their names")
    add("--models", type=Path, help="folder of model folders; else random weights of the same size")
    add("--file", type=Path, help="sentences for `throughput`, a line each")
    add("--out", "-o", type=Path, help="write JSON here")
    add("--compare", type=Path, help="JSON of an earlier run")
    add("--time-limit", type=float, default=1e9, help="start no case after so many seconds")
    add("--patience", type=float, default=60.0, help="repeat a case no longer than so many seconds")


def _run_bench(given: Given) -> int:
    import torch

    from .bench.run import Settings, run

    if given.threads is not None:
        torch.set_num_threads(given.threads)
    if given.device == "auto":
        given.device = "cuda" if torch.cuda.is_available() else "cpu"
    run(_settings(Settings, given), say=lambda text: print(text, flush=True))
    return 0


def _vit(commands: Any) -> None:
    about = "a benchmark of small vision Transformers as ONNX and VNN-LIB files: make it, or run it"
    command = _command(commands, "vit", _run_vit, about)
    add = command.add_argument
    add("what", choices=("make", "run"), help="after a kill `run` continues")
    add("folder", type=Path, help="folder of the benchmark")
    add("--results", type=Path, help="of `run`: a .csv file; default: results.csv in the folder")
    add("--count", type=int, default=50, help="of `make`: instances of each model")
    add("--epochs", type=int, default=40, help="of `make`: how long each model is trained")
    add("--most", type=int, help="of `run`: no more instances than this")
    _of_bounds(command, "device", "method", "relaxation", "steps", "splits", "timeout", "threads")


def _run_vit(given: Given) -> int:
    if given.what == "make":
        from .vit.make import Making, make

        make(Making(given.folder, count=given.count, epochs=given.epochs), _say)
        return 0
    from certiformer.models.device import pick_device
    from certiformer.options import Options

    from .vit.run import Running, run, table

    given.device = str(pick_device(given.device))
    results = given.results or given.folder / "results.csv"
    run(Running(given.folder, results, _settings(Options, given), given.most), _say)
    for line in table(results):
        print(line)
    return 0


# models


def _zoo(commands: Any) -> None:
    command = _command(commands, "zoo", _run_zoo, "train the paper's models and the bundled ones")
    _data_dir(command)
    _of_bounds(command, "device")
    add = command.add_argument
    add("--out", "-o", type=Path, default=Path("zoo"), help="folder to hold one folder a model")
    add("--only", type=_names, help="names with commas between them; default: all of them")
    add("--scale", choices=("full", "tiny"), default="full", help="tiny: seconds, to try the way")
    add("--float16", action="store_true", help="store the weights in half precision")
    add("--list", action="store_true", help="print the names and stop")


def _run_zoo(given: Given) -> int:
    from . import zoo

    entries = zoo.pick(given.only, stored_as="float16" if given.float16 else None)
    if given.list:
        for entry in entries:
            print(zoo.described(entry))
        return 0
    zoo.train_all(
        entries,
        given.out,
        data_dir=given.data_dir,
        device=given.device,
        scale=given.scale,
        say=lambda text: print(text, flush=True),
    )
    return 0


def _recipes(commands: Any) -> None:
    command = _command(commands, "recipes", _run_recipes, "accuracy and certified radius of models, in Markdown")
    command.add_argument("models", nargs="+", help="bundled names or model folders")
    _data_dir(command)
    command.add_argument("--norm", default="2", help="1, 2 or inf")
    _of_bounds(command, "relaxation")
    command.set_defaults(relaxation="paper")


def _run_recipes(given: Given) -> int:
    from .studies.recipes import table

    for text in table(given.models, data_dir=given.data_dir, norm=given.norm, relaxation=given.relaxation):
        print(text, flush=True)
    return 0


def _certifiable(commands: Any) -> None:
    command = _command(commands, "certifiable", _run_certifiable, "what training for certificates brought, in Markdown")
    _data_dir(command)
    _of_bounds(command, "device", "method", "relaxation", "budget", "steps", "splits", "tolerance", "threads")
    command.set_defaults(tolerance=0.02)
    add = command.add_argument
    add("models", nargs="+", help="bundled names or model folders")
    add("--data", default="sst", help="sst, yelp, or a table of your own")
    add("--out", "-o", type=Path, default=Path("results/certifiable"), help="folder for what is measured")
    add("--sentences", type=int, default=100, help="how many test sentences, drawn at random")
    add("--norm", default="2", help="1, 2 or inf")


def _run_certifiable(given: Given) -> int:
    from certiformer.norms import norm_order
    from certiformer.options import Options

    from .studies.certifiable import Settings, study

    given.options, given.norm = _settings(Options, given), norm_order(given.norm)
    study(_settings(Settings, given), say=lambda text: print(text, flush=True))
    return 0


def _tightness(commands: Any) -> None:
    command = _command(commands, "tightness", _run_tightness, "how far the methods certify, against an attack")
    _of_bounds(command, "device")
    add = command.add_argument
    add("models", nargs="+", help="bundled names or model folders")
    add("--out", "-o", type=Path, default=Path("results/tightness.json"), help="write JSON here")
    add("--norms", type=_norms, default=(2.0,), help="1, 2, inf or some of them with commas")
    add("--ways", type=_ways, default=argparse.SUPPRESS, help="with semicolons between them; `list` names them all")
    add("--text", dest="texts", action="append", help="a sentence instead of the two short ones; may come again")
    add("--time-limit", type=float, default=1e9, help="start no measurement after so many seconds")


def _run_tightness(given: Given) -> int:
    from .studies.tightness import Settings, study

    study(_settings(Settings, given), say=lambda text: print(text, flush=True))
    return 0


# pages


def _docs(command: Parser) -> None:
    command.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the documents")


def _results(commands: Any) -> None:
    command = _command(commands, "results", _run_results, "put tables and plots into the page of results")
    command.add_argument("--from", dest="folder", type=Path, default=Path("results"), help="what `tables` wrote")
    _docs(command)


def _run_results(given: Given) -> int:
    from .pages.results import renew

    _say(renew(given.docs / "notebook", given.folder))
    return 0


def _performance(commands: Any) -> None:
    command = _command(commands, "performance", _run_performance, "print measurements as Markdown, or renew a page")
    command.add_argument("files", nargs="*", type=Path, help="JSON that `bench --out` wrote, to be printed")
    command.add_argument("--page", type=Path, help="renew the tables of this page from the JSON files it names")
    command.add_argument("--plots", type=Path, help="write PNG files of all that was read to this folder")


def _run_performance(given: Given) -> int:
    from .pages.performance import show

    show(given.files, given.plots, given.page)
    return 0

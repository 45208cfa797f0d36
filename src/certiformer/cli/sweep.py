"""`certiformer sweep`"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..core.names import option
from ..errors import InputError
from ..named import DEFAULT, check_name
from ..numbers import written
from ..sweep.options import SweepCall
from . import CONTRADICTION, INTERRUPTED, UNKNOWN
from .flags import Given, command, many_arguments
from .options import Labelled, Quiet
from .terminal import console, say

if TYPE_CHECKING:
    from ..sweep.compare import Comparison
    from ..sweep.result import SweepResult

EVERY = 2.0  # seconds between two looks


@dataclass(frozen=True, kw_only=True)
class Sweeping(Labelled, Quiet):
    """Which models on which data, and what is done with a sweep that is there."""

    model: tuple[str, ...] = option((), "A bundled model such as sst-2 (the default), a folder or hf:NAME; or several.")
    compare: tuple[str, str] | None = option(None, "Two models of this sweep, or two folders of sweeps, side by side.")
    watch: bool = option(False, "Show how far the sweep in --out is, until it is done.")


@command(
    SweepCall,
    Sweeping,
    argument=many_arguments("also", "MODEL", "Further models, such as what a shell makes of --models zoo/*."),
    aliases={"model": "--models"},
)
def sweep(given: Given) -> int:
    """Certify a whole data set; the same command goes on after a kill.

    Example: [bold]certiformer sweep --model sst-2 --data sst --eps 0.01,0.05,0.1 --out runs/sweep[/bold]
    """
    asked = given(Sweeping)
    call = given(SweepCall)
    if asked.watch:
        return _watch(_folder(call))
    if asked.compare is not None and all(Path(name).is_dir() for name in asked.compare):
        return _across(asked.compare, given)
    names = _models(asked.model + tuple(given.values.get("also", ())))
    folder = _folder(call)

    from ..data import Tables, load_data
    from ..models import load
    from ..sweep.ask import named, prepare
    from ..sweep.written import write

    models = named([load(name) for name in names])
    _known(asked.compare, [model.name for model in models])
    data = load_data(asked.data, data_dir=asked.data_dir, tables=given(Tables, names=models[0].labels))
    with _told(quiet=asked.quiet) as progress:
        prepared = prepare(models, data, _with(call, progress))
        try:
            result = prepared.run()
        except KeyboardInterrupt:
            say("stopped; finished sentences are kept, the same command goes on")
            return INTERRUPTED
    compared = None if asked.compare is None else result.comparison(*asked.compare)
    files = write(result, folder, compared)
    _show(result, compared, quiet=asked.quiet)
    if not asked.quiet:
        say(f"written: {', '.join(path.name for path in files)} in {folder}")
    return _code(result, prepared.unfinished(result))


def _with(call: SweepCall, progress: Callable[[str], None] | None) -> SweepCall:
    return SweepCall(**{**{f.name: getattr(call, f.name) for f in fields(call)}, "progress": progress})


def _known(compare: tuple[str, str] | None, models: Sequence[str]) -> None:
    """Models that are to be compared must be there: said before the work is done."""
    missing = next((name for name in compare or () if name not in models), None)
    if missing is not None:
        raise InputError(
            f"--compare {missing}: neither a folder of a sweep nor a model of this one, which are {', '.join(models)}"
        )


def _folder(call: SweepCall) -> Path:
    if call.out is None:
        raise InputError("no folder was given for the results: --out FOLDER")
    folder = Path(call.out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: this is a file, expected a folder")
    return folder


def _models(given: tuple[str, ...]) -> list[str]:
    """The models that were named; a pattern stands for the folders that it matches."""
    found: list[str] = []
    for name in given or (DEFAULT,):
        matches = sorted(glob.glob(name)) if any(c in name for c in "*?[") else [name]
        if not matches:
            raise InputError(f"--models {name}: no folder is called like that")
        found += matches
    for name in found:
        check_name(name)
    return found


@contextmanager
def _told(*, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """Where lines of progress go: one that changes on a terminal, one after the other elsewhere."""
    errors = console(stderr=True)
    if quiet:
        yield None
    elif not errors.is_terminal:
        yield say
    else:
        with errors.status("planning") as status:
            yield status.update


def _watch(folder: Path) -> int:
    from ..sweep.progress import watched

    before = ""
    try:
        while True:
            tally = watched(folder)
            line = tally.line()
            if line != before:
                typer.echo(line)
            if tally.done >= tally.total:
                return 0
            before = line
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return 0


def _across(names: tuple[str, str], given: Given) -> int:
    """Two sweeps that are there already, side by side."""
    from ..models.folder import write_bytes
    from ..sweep.result import across
    from ..sweep.written import PAIRS, pairs_csv

    also = sorted(given.said - {"compare", "out", "quiet"})
    if also:
        raise InputError(f"--compare of two folders and --{also[0].replace('_', '-')} were both given: use one")
    found = across(Path(names[0]), Path(names[1]))
    _show_pairs(found)
    call = given(SweepCall)
    if call.out is not None:
        folder = _folder(call)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / PAIRS, pairs_csv(found))
        say(f"written: {folder / PAIRS}")
    return 0


def _show(result: SweepResult, compared: Comparison | None, *, quiet: bool) -> None:
    from .view import row, shown, table

    if quiet:
        for case in result.cases:
            for point in result.figures(case.number).whole.curve:
                row(case.model, case.norm, str(case.words), written(point.eps), repr(point.least), repr(point.most))
        return
    for case in result.cases:
        found = result.figures(case.number)
        right = f"accuracy {found.whole.accuracy:.2%} ({found.whole.right:,} of {found.whole.count:,})"
        failed = f", {found.errors:,} failed" if found.errors else ""
        console().print(shown(f"{case}: {right}{failed}", "bold"))
        made = table("radius", "certified", "not refuted", "between")
        for point in found.whole.curve:
            between = point.unknown + point.error
            made.add_row(written(point.eps), point.proved, point.open_to, f"{between:,}")
        console().print(made)
    if compared is not None:
        _show_pairs(compared)


def _show_pairs(found: Comparison) -> None:
    from .view import shown, table

    first, second = found.names
    title = f"{len(found.rows):,} sentences, {found.asked}, certified by {first} and by {second}"
    console().print(shown(title, "bold"))
    made = table("radius", "both", f"only {first}", f"only {second}", "neither", "by chance")
    for pair in found.pairs:
        counts = (f"{n:,}" for n in (pair.both, pair.first, pair.second, pair.neither))
        made.add_row(written(pair.eps), *counts, f"{pair.chance:.2g}")
    console().print(made)


def _code(result: SweepResult, left: int) -> int:
    failed = [row for row in result.table if row["status"] == "error"]
    if failed:
        say(f"{len(failed):,} sentences failed, such as number {failed[0]['sentence']}: {failed[0]['reason']}")
    if result.contradictions:
        return CONTRADICTION
    if left:
        say(f"out of time; {left:,} sentences are open, the same command goes on")
        return UNKNOWN
    if not result.complete:
        say(f"this part is done; {result.total - len(result.table):,} sentences of other parts are not here yet")
    return 0

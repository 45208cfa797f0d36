"""From a name to files: plan the tables, do what is not done, write what there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from certiformer.errors import InputError
from certiformer.sweep.runner import Progress

from .figures import Result, collect
from .store import Store
from .study import Bench, Outcome, Settings, plan, run
from .tables import TABLES
from .write import write

NAMES = (*TABLES, "all")


@dataclass(frozen=True)
class Reproduced:
    """What a call did."""

    results: tuple[Result, ...]
    files: tuple[Path, ...]
    outcome: Outcome
    interrupted: bool = False

    @property
    def code(self) -> int:
        """3: a lower bound above an upper bound. 130: stopped by Ctrl-C. 2: a cell failed. 0: all is well."""
        if any(result.contradictions for result in self.results):
            return 3
        return 130 if self.interrupted else 2 if self.outcome.failures else 0


def reproduce(name: str, settings: Settings, *, progress: Callable[[Progress], None] | None = None) -> Reproduced:
    """Run a table (or all of them) as far as the time limit allows, and write it."""
    if name not in NAMES:
        raise InputError(f"no table {name!r}: expected one of {', '.join(NAMES)}")
    bench, store = Bench(settings), Store(settings.out)
    chosen = list(TABLES.values()) if name == "all" else [TABLES[name]]
    studies = [study for study in (plan(table, bench) for table in chosen) if study.groups and study.ways]
    if not studies:
        raise InputError(f"nothing is left of {name!r}: no model, norm or method of it was asked for")
    cells = {cell.key: cell for study in studies for cell in study.cells}
    data = {group.subject.folder: group.subject.data for study in studies for group in study.groups}
    interrupted = False
    try:
        outcome = run(list(cells.values()), bench, store, data=data, progress=progress)
    except KeyboardInterrupt:
        interrupted = True
        outcome = Outcome(0, sum(key not in store for key in cells), ())
    results = tuple(collect(study, store) for study in studies)
    files = tuple(path for result in results for path in write(result, settings.out))
    return Reproduced(results, files, outcome, interrupted)


def report(done: Reproduced) -> list[str]:
    """What there is to say at the end, in lines."""
    lines = [f"error: {failure}" for failure in done.outcome.failures]
    for result in done.results:
        lines += [f"error: {c.model}, {c.method}, {c.relaxation}: {c.message}" for c in result.contradictions]
    if done.outcome.unfinished:
        why = "stopped" if done.interrupted else "the time limit was reached"
        lines.append(f"{why}; {done.outcome.unfinished} cells are open, the same call continues with them")
    lines += [f"written: {path}" for path in done.files]
    return lines


def line(progress: Progress) -> str:
    """A line of progress."""
    left = "" if progress.left is None else f", about {_duration(progress.left)} left"
    return f"[{progress.done + 1}/{progress.total}] {progress.title}{left}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""Run a benchmark: every instance of an instances.csv, one after the other, with what was found and how long it took.

certiformer reproduce vit run FOLDER --timeout 20

After a kill the same call goes on where it stopped: results.csv is written line by line.
"""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from certiformer.errors import CertiformerError, InputError
from certiformer.options import Options

FIELDS = ("model", "property", "verdict", "seconds", "margin", "reason")


@dataclass(frozen=True)
class Running:
    """What is run, and how."""

    folder: Path
    results: Path
    options: Options
    most: int | None = None  # instances


def run(running: Running, say: Callable[[str], None]) -> None:
    """Answer what has no answer yet."""
    done = {(row["model"], row["property"]) for row in read(running.results)} if running.results.exists() else set()
    waiting = [row for row in instances(running.folder) if row not in done][: running.most]
    new = not running.results.exists()
    with running.results.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        for k, (model, asked) in enumerate(waiting):
            row = answered(running, model, asked)
            writer.writerow(row)
            file.flush()
            say(f"{k + 1} of {len(waiting)}: {asked} {row['verdict']} {row['seconds']} s")


def answered(running: Running, model: str, asked: str) -> dict[str, str]:
    """One instance as a row; what goes wrong is a verdict as well."""
    from certiformer.formats import Instance

    began = time.perf_counter()
    margin, reason = "", ""
    try:
        answer = Instance(running.folder / model, running.folder / asked).answer(running.options)
        verdict, reason = str(answer.verdict), answer.reason or ""
        known = [m for m in answer.margins if m is not None]
        margin = f"{min(known):.6g}" if len(known) == answer.cases else ""
    except CertiformerError as error:
        verdict, reason = "error", str(error)
    seconds = f"{time.perf_counter() - began:.2f}"
    return dict(zip(FIELDS, (model, asked, verdict, seconds, margin, reason), strict=True))


def instances(folder: Path) -> list[tuple[str, str]]:
    """The pairs of files of a benchmark."""
    try:
        with (folder / "instances.csv").open(newline="", encoding="utf-8") as file:
            return [(row[0], row[1]) for row in csv.reader(file) if row]
    except (OSError, IndexError) as error:
        raise InputError(f"{folder}: expected a benchmark with an instances.csv: {error}") from None


def read(results: Path) -> list[dict[str, str]]:
    """The rows of a results.csv."""
    with results.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(results: Path) -> Iterator[str]:
    """Of each model: how many were proved, refuted and left open, and how long that took."""
    rows = read(results)
    yield "| model | instances | verified | refuted | open | median time | longest |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        count = Counter(row["verdict"] for row in own)
        left = len(own) - count["unsat"] - count["sat"]
        seconds = [float(row["seconds"]) for row in own]
        yield (
            f"| `{Path(name).stem}` | {len(own)} | {count['unsat']} | {count['sat']} | {left} | "
            f"{median(seconds):.1f} s | {max(seconds):.1f} s |"
        )

"""The result of a sweep: a row for every sentence and case, and what is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from ..colours import PROVED
from ..errors import InputError
from ..numbers import down, written
from ..questions.verdict import CONTRADICTION
from ..results import Row, Tabular, new_axes
from ..text import visible
from .compare import Comparison, compare
from .figures import Figures, figures, verdict
from .store import Record, Store, read_manifest

TIMES = ("key", "seconds", "at")  # of a record, not of a row: no two runs agree in them
COLOURS = (PROVED, "#bf4a16", "#1b6b3a", "#7a3fa0", "#5d5952", "#a3170c")


@dataclass(frozen=True)
class CaseName:
    """One case of a sweep: a model, a norm and a number of words."""

    number: int
    model: str
    norm: str
    words: int
    labels: tuple[str, ...]

    @property
    def asked(self) -> str:
        """The norm, and how many words move where it is not one."""
        return self.norm + ("" if self.words == 1 else f", {self.words} words")

    def __str__(self) -> str:
        return f"{self.model}, {self.asked}"


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Tabular):
    """Every sentence of a sweep that is finished. `manifest` has its question; no times are in it."""

    manifest: Record
    table: tuple[Record, ...]

    @cached_property
    def cases(self) -> tuple[CaseName, ...]:
        """The cases in their order."""
        about = self.manifest
        every = [(m, p, w) for m in about["models"] for p in about["norms"] for w in about["words"]]
        return tuple(CaseName(k, m["name"], p, w, tuple(m["labels"])) for k, (m, p, w) in enumerate(every))

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii that were asked for; none where they were searched."""
        return tuple(self.manifest["eps"])

    @property
    def total(self) -> int:
        """How many rows there are when all is done."""
        return len(self.cases) * int(self.manifest["data"]["sentences"])

    @property
    def complete(self) -> bool:
        return len(self.table) == self.total

    @property
    def contradictions(self) -> int:
        """Rows in which a proof and a counterexample exclude each other: none, or this program is wrong."""
        return sum(row.get("reason") == CONTRADICTION for row in self.table)

    def of(self, case: int) -> list[Record]:
        """The rows of a case."""
        return [row for row in self.table if row["case"] == case]

    def figures(self, case: int = 0) -> Figures:
        """Accuracy, curve, parts and what is most fragile, of a case."""
        return figures(self.of(case), self.radii, self.cases[case].labels)

    def comparison(self, first: str, second: str) -> Comparison:
        """Two models on the same sentences, in the first norm and number of words."""
        found = []
        for name in (first, second):
            case = next((c for c in self.cases if c.model == name), None)
            if case is None:
                known = ", ".join(dict.fromkeys(c.model for c in self.cases))
                raise InputError(f"compare {first} {second}: no model {name!r} here, there are {known}")
            found.append(self.of(case.number))
        return compare((first, second), self.cases[0].asked, found[0], found[1], self.radii)

    def rows(self) -> list[Row]:
        return [self._row(row) for row in self.table]

    def _row(self, row: Record) -> Row:
        case = self.cases[row["case"]]
        return {
            "model": case.model,
            "norm": case.norm,
            "words": case.words,
            "sentence": row["sentence"],
            "text": row["text"],
            "label": row["label"],
            "predicted": row.get("predicted"),
            "margin": row.get("margin"),
            "length": row["length"],
            **{f"eps {written(eps)}": verdict(row, eps) for eps in self.radii},
            "certified": row.get("certified"),
            "attacked": row.get("attacked"),
            "weakest": " + ".join(row.get("weakest", [])),
            "status": row["status"],
            "reason": row.get("reason"),
            "note": row.get("note"),
        }

    def plot(self, axes: Any = None) -> Any:
        """A curve for each case: certified as a line, and light up to what is neither wrong nor refuted."""
        axes = new_axes(6.4, 4.0) if axes is None else axes
        for case in self.cases:
            colour, curve = COLOURS[case.number % len(COLOURS)], self.figures(case.number).whole.curve
            at = [point.eps for point in curve]
            least, most = [point.least for point in curve], [point.most for point in curve]
            axes.plot(at, least, color=colour, marker="o", markersize=3, label=f"{case}: certified")
            axes.plot(at, most, color=colour, linestyle=":", linewidth=1, label=f"{case}: not refuted")
            axes.fill_between(at, least, most, color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel("how far each word may move")
        axes.set_ylabel("share of the sentences")
        axes.set_ylim(0, 1)
        axes.legend(fontsize="small")
        return axes

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(visible(line))}</li>" for line in self.lines())
        return f"<div>{escape(visible(repr(self)))}<ul>{lines}</ul></div>"

    def lines(self) -> list[str]:
        """A line for each case."""
        found = []
        for case in self.cases:
            every = self.figures(case.number)
            points = ", ".join(f"{point.proved} at {written(point.eps)}" for point in every.whole.curve)
            mean = f"mean radius {down(every.mean_radius)}"
            failed = f", {every.errors} failed" if every.errors else ""
            found.append(f"{case}: accuracy {every.whole.accuracy:.1%}, certified {points}, {mean}{failed}")
        return found

    def _line(self) -> str:
        data = self.manifest["data"]
        done = f"{len(self.table):,} of {self.total:,} sentences"
        return f"{data['name']} {data['split']}, {len(self.cases)} cases, {done}"


def read_result(folder: Path) -> SweepResult:
    """What the files of a folder hold, in the order of cases and sentences: the same whoever did what, and when."""
    manifest = read_manifest(folder)
    records = sorted(Store(folder).records(), key=lambda r: (r["case"], r["sentence"]))
    return SweepResult(manifest, tuple({k: v for k, v in r.items() if k not in TIMES} for r in records))


def across(first: Path, second: Path) -> Comparison:
    """The first cases of two sweeps that ask the same, on the sentences and radii that both have."""
    a, b = read_result(first), read_result(second)
    for one, folder in ((a, first), (b, second)):
        if not one.table:
            raise InputError(f"compare {first} {second}: {folder} holds no finished sentence")
    if a.radii and b.radii and not set(a.radii) & set(b.radii):
        raise InputError(f"compare {first} {second}: they have no radius in common")
    radii = [eps for eps in a.radii if eps in b.radii] if a.radii and b.radii else a.radii or b.radii
    alike = ((x, y) for x in a.cases for y in b.cases if x.asked == y.asked)
    cases = next(alike, None)
    if cases is None:
        said = ["; ".join(dict.fromkeys(case.asked for case in one.cases)) for one in (a, b)]
        raise InputError(f"compare {first} {second}: no norm and number of words in common: {said[0]} and {said[1]}")
    names = [case.model for case in cases]
    if names[0] == names[1]:
        names = [f"{name}, {folder.name}" for name, folder in zip(names, (first, second), strict=True)]
    return compare((names[0], names[1]), cases[0].asked, a.of(cases[0].number), b.of(cases[1].number), radii)

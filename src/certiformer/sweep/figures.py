"""What rows come to: accuracy, certified accuracy at every radius, by class and by length, and what is most fragile.

At a radius a sentence is *certified* (right, and proved to stay so), *refuted* (right, but an attack found a change
within the radius), *wrong* without any change, *unknown* (neither proved nor refuted), or an *error*, which counts as
unknown. So the accuracy under the worst changes lies between the share that is certified and the share that is neither
wrong nor refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal

from .store import Record

Verdict = Literal["certified", "refuted", "unknown", "wrong", "error"]
POINTS = 12  # radii of a curve where none were asked for
FRAGILE = 20  # sentences and words that are listed
MOST_BINS = 8


@dataclass(frozen=True)
class Point:
    """Sentences of each verdict at a radius."""

    eps: float
    certified: int
    refuted: int
    unknown: int
    wrong: int
    error: int

    @property
    def count(self) -> int:
        return self.certified + self.refuted + self.unknown + self.wrong + self.error

    @property
    def least(self) -> float:
        """The share that is certified."""
        return self.certified / max(1, self.count)

    @property
    def most(self) -> float:
        """The share that is neither wrong nor refuted."""
        return (self.certified + self.unknown + self.error) / max(1, self.count)

    @property
    def proved(self) -> str:
        """The share that is certified, in percent."""
        return percent(self.certified, self.count)

    @property
    def open_to(self) -> str:
        """The share that is neither wrong nor refuted, in percent."""
        return percent(self.certified + self.unknown + self.error, self.count, up=True)


@dataclass(frozen=True)
class Part:
    """Some of the sentences, such as those of a class: how many, how many right, and their curve."""

    name: str
    count: int
    right: int
    curve: tuple[Point, ...]

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.count)


@dataclass(frozen=True)
class Word:
    """A word by how often it is the weakest spot of its sentence, and by the smallest radius there."""

    word: str
    times: int
    radius: float


@dataclass(frozen=True)
class Figures:
    """What there is to say of one case of a sweep. Radii are over the sentences that are right; none proved is 0."""

    whole: Part
    errors: int
    mean_radius: float
    median_radius: float
    smallest_radius: float
    mean_attacked: float | None  # over those where a counterexample was found
    by_class: tuple[Part, ...]
    by_length: tuple[Part, ...]
    sentences: tuple[Record, ...]  # the most fragile first
    words: tuple[Word, ...]


def verdict(row: Record, eps: float) -> Verdict:
    """The verdict on a sentence at a radius."""
    if row["status"] in ("wrong", "error"):
        return "wrong" if row["status"] == "wrong" else "error"
    certified, attacked = row.get("certified"), row.get("attacked")
    if certified is not None and certified >= eps:
        return "certified"
    return "refuted" if attacked is not None and attacked <= eps else "unknown"


def figures(rows: Sequence[Record], radii: Sequence[float], labels: Sequence[str]) -> Figures:
    """Everything about the rows of one case."""
    at = tuple(radii) or steps(rows)
    decided = [row for row in rows if row["status"] == "decided"]
    proved = [row["certified"] or 0.0 for row in decided]
    reached = [row["attacked"] for row in decided if row["attacked"] is not None]
    return Figures(
        whole=part("all", rows, at),
        errors=sum(row["status"] == "error" for row in rows),
        mean_radius=mean(proved) if proved else 0.0,
        median_radius=median(proved) if proved else 0.0,
        smallest_radius=min(proved, default=0.0),
        mean_attacked=mean(reached) if reached else None,
        by_class=_parts(rows, at, lambda row: row["label"], lambda number: label(labels, number)),
        by_length=_by_length(rows, at),
        sentences=tuple(sorted(decided, key=_fragility)[:FRAGILE]),
        words=_words(decided),
    )


def part(name: str, rows: Sequence[Record], radii: Sequence[float]) -> Part:
    """Some rows with their curve."""
    return Part(name, len(rows), sum(row["status"] == "decided" for row in rows), curve(rows, radii))


def curve(rows: Sequence[Record], radii: Sequence[float]) -> tuple[Point, ...]:
    """How many sentences have which verdict at each radius."""
    points = []
    for eps in radii:
        found = [verdict(row, eps) for row in rows]
        counts = (found.count(v) for v in ("certified", "refuted", "unknown", "wrong", "error"))
        points.append(Point(eps, *counts))
    return tuple(points)


def steps(rows: Sequence[Record]) -> tuple[float, ...]:
    """Radii for a curve where none were asked for: even steps, of 1, 2 or 5 times a power of ten, from 0 on."""
    known = [v for row in rows for v in (row.get("certified"), row.get("attacked")) if v is not None]
    if not known:
        return (0.0,)
    most = sorted(known)[-(-len(known) * 9 // 10) - 1]
    unit = 10.0 ** math.floor(math.log10(max(most, 1e-12) / POINTS))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k * POINTS >= most)
    return tuple(round(step * k, 15) for k in range(POINTS + 1))


def label(labels: Sequence[str], number: int) -> str:
    """The name of a class, or its number."""
    return labels[number] if number < len(labels) else str(number)


def percent(some: int, count: int, *, digits: int = 2, up: bool = False) -> str:
    """A share in percent, rounded down as what is proved, or up as what was reached."""
    exact, scale = 100 * 10**digits * some, max(1, count)
    return f"{(-(-exact // scale) if up else exact // scale) / 10**digits:.{digits}f}%"


def _parts(
    rows: Sequence[Record], at: Sequence[float], key: Callable[[Record], int], name: Callable[[int], str]
) -> tuple[Part, ...]:
    groups: dict[int, list[Record]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return tuple(part(name(k), groups[k], at) for k in sorted(groups))


def _by_length(rows: Sequence[Record], at: Sequence[float]) -> tuple[Part, ...]:
    longest = max((row["length"] for row in rows), default=1)
    width = next(w for k in range(1, 10) for w in (5 * 10 ** (k - 1), 10**k) if longest <= w * MOST_BINS)
    return _parts(
        rows, at, lambda row: (max(1, row["length"]) - 1) // width, lambda k: f"{k * width + 1} to {(k + 1) * width}"
    )


def _fragility(row: Record) -> tuple[float, float, int]:
    attacked = row["attacked"] if row["attacked"] is not None else math.inf
    return attacked, row["certified"] or 0.0, row["sentence"]


def _words(decided: Sequence[Record]) -> tuple[Word, ...]:
    """The words that are most often the weakest of their sentence."""
    seen: dict[str, list[float]] = {}
    for row in decided:
        radius = row["attacked"] if row["attacked"] is not None else row["certified"] or 0.0
        seen.setdefault(" + ".join(row["weakest"]), []).append(radius)
    found = [Word(word, len(radii), min(radii)) for word, radii in seen.items()]
    return tuple(sorted(found, key=lambda w: (-w.times, w.radius, w.word))[:FRAGILE])

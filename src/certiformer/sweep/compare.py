"""Two models side by side, sentence by sentence: where one is certified and the other is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..errors import InputError
from .figures import steps, verdict
from .store import Record


@dataclass(frozen=True)
class Pair:
    """Sentences at a radius by where they are certified, and how likely so uneven a split is by chance alone."""

    eps: float
    both: int
    first: int  # only by the first
    second: int
    neither: int

    @property
    def chance(self) -> float:
        """Of a split at least as uneven as this between the sentences that tell the two apart (exact sign test)."""
        n, k = self.first + self.second, min(self.first, self.second)
        return min(1.0, float(Fraction(2 * sum(math.comb(n, i) for i in range(k + 1)), 2**n)))


@dataclass(frozen=True)
class Comparison:
    """Two cases on the same sentences."""

    names: tuple[str, str]
    asked: str  # the norm and the number of words
    pairs: tuple[Pair, ...]
    rows: tuple[tuple[Record, Record], ...]  # the same sentence, by both


def compare(
    names: tuple[str, str], asked: str, first: Sequence[Record], second: Sequence[Record], radii: Sequence[float]
) -> Comparison:
    """Pair two tables by their sentences; both must have been asked about some of the same."""
    others = {(row["sentence"], row["text"], row["label"]): row for row in second}
    rows = [(row, others[key]) for row in first if (key := (row["sentence"], row["text"], row["label"])) in others]
    if not rows:
        raise InputError(f"compare {names[0]} {names[1]}: they have no sentence in common")
    at = tuple(radii) or steps([row for pair in rows for row in pair])
    pairs = []
    for eps in at:
        good = [tuple(verdict(row, eps) == "certified" for row in pair) for pair in rows]
        counts = (good.count(k) for k in ((True, True), (True, False), (False, True), (False, False)))
        pairs.append(Pair(eps, *counts))
    return Comparison(names, asked, tuple(pairs), tuple(rows))

"""Colours on a fixed scale: each step of colour is half the radius, so that a few percent never look like much."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .records import Run
from .style import LEVELS


def relative(value: float | None) -> int | None:
    """The colour of a radius in units of the length of its embedding: 0 from one length on, one more for each half."""
    return None if value is None else _level(value, 1.0)


def absolute(value: float | None, largest: float) -> int | None:
    """The colour of a radius beside the largest one: 0 down to half of it, one more for each half."""
    return None if value is None else _level(2 * value, largest)


def _level(value: float, one: float) -> int:
    if value <= 0:
        return LEVELS - 1
    if not math.isfinite(value) or value >= one:
        return 0
    return min(LEVELS - 1, math.ceil(math.log2(one) - math.log2(value)))


def largest(runs: Iterable[Run]) -> float:
    """The largest radius of some runs, certified where they are."""
    return max((v for run in runs for p in run.places for v in [_radius(p.certified, p.attacked)] if v), default=0.0)


def levels(run: Run, *, most: float | None = None) -> dict[int, int]:
    """The colour of each position by its smallest radius; beside `most` where that is given, else by its length.

    Attacks have no lengths: their colours are always beside the largest.
    """
    if most is None and not any(place.normalized is not None for place in run.places):
        most = largest([run])
    found: dict[int, int] = {}
    for place in run.places:
        radius = _radius(place.certified, place.attacked)
        level = relative(place.normalized) if most is None else absolute(radius, most)
        if level is not None:
            for position in place.positions:
                found[position] = max(level, found.get(position, 0))
    return found


def _radius(certified: float | None, attacked: float | None) -> float | None:
    return attacked if certified is None else certified

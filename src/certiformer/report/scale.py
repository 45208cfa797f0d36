"""The colours of a run."""

from __future__ import annotations

from collections.abc import Iterable

from ..colours import absolute, relative
from .records import Run


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

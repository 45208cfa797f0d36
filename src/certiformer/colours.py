"""Colours of radii on a fixed scale: each step is half the radius, so that a few percent never look like much."""

from __future__ import annotations

import math

# background and ink, from the strongest word to the weakest
LIGHT = (
    ("#f3f1ec", "#1f1d1a"),
    ("#fbe6cf", "#1f1d1a"),
    ("#fbcf9f", "#1f1d1a"),
    ("#f6ad6b", "#1f1d1a"),
    ("#e98443", "#1f1d1a"),
    ("#bf4a16", "#ffffff"),
    ("#8f1f0c", "#ffffff"),
)
DARK = (
    ("#26272b", "#e9e7e2"),
    ("#3a2a20", "#f3e9df"),
    ("#553322", "#fbeee2"),
    ("#7a4022", "#fff4ea"),
    ("#a14e1f", "#ffffff"),
    ("#ee9350", "#1b1208"),
    ("#ffc38a", "#1b1208"),
)
LEVELS = len(LIGHT)
PROVED, REACHED = "#1d5fa8", "#a9c8ea"  # bars


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

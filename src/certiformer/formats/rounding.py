"""Exact numbers of a file as floating point, rounded so that a question never gets easier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import InputError
from .linear import Atom
from .query import Case

EXACT = 1 << 53  # whole numbers up to here are float64


def below(value: Fraction, kind: Any = numpy.float64) -> Any:
    """The largest float of a kind that is not above a number."""
    found = _nearest(value, kind)
    return found if _exact(found) <= value else numpy.nextafter(found, kind(-math.inf))


def above(value: Fraction, kind: Any = numpy.float64) -> Any:
    """The smallest float of a kind that is not below a number."""
    return -below(-value, kind)


def _nearest(value: Fraction, kind: Any) -> Any:
    try:
        with numpy.errstate(over="ignore"):
            found = kind(float(value))
    except OverflowError:
        found = kind(math.inf)
    if not numpy.isfinite(found):
        raise InputError(f"a number of size 1e{len(str(abs(int(value)))) - 1} is too large")
    return found


def _exact(value: Any) -> Fraction:
    return Fraction(float(value))


def box(case: Case) -> tuple[Tensor, Tensor]:
    """Bounds in float64 that hold those of the file, flat."""
    lower, upper = [below(v) for v in case.lower], [above(v) for v in case.upper]
    return torch.tensor(numpy.array(lower)), torch.tensor(numpy.array(upper))


def half_spaces(rows: Sequence[Atom], outputs: int) -> tuple[Tensor, Tensor]:
    """`A y <= b` for conditions on outputs: A exact, b rounded up, so that the set holds what the file describes.

    Without any condition every output is meant: `0 y <= 0`.
    """
    table = torch.zeros(max(len(rows), 1), outputs, dtype=torch.float64)
    limits = torch.zeros(max(len(rows), 1), dtype=torch.float64)
    for i, atom in enumerate(rows):
        factors = atom.linear.factors
        scale = Fraction(1)
        if any(_exact(_nearest(f, numpy.float64)) != f for f in factors.values()):
            scale = Fraction(math.lcm(*(f.denominator for f in factors.values())))
        for (_, k), factor in factors.items():
            scaled = factor * scale
            if _exact(_nearest(scaled, numpy.float64)) != scaled:
                raise InputError(f"the factor {float(factor)!r} of a condition has more digits than float64 holds")
            table[i, k] = float(scaled)
        limits[i] = float(above(-atom.linear.constant * scale))
    return table, limits


def inside(case: Case, kind: Any) -> tuple[Any, Any, Any]:
    """The least and the largest float of a kind within the bounds of each input, and where there is none.

    There, as where a bound of 0.1 holds one number that is no float, both are the float that is nearest.
    """
    low = numpy.array([above(v, kind) for v in case.lower])
    high = numpy.array([below(v, kind) for v in case.upper])
    none = low > high
    for k in numpy.flatnonzero(none):
        low[k] = high[k] = _nearest((case.lower[k] + case.upper[k]) / 2, kind)
    return low, high, none


def fractions(values: Any) -> list[Fraction]:
    """Floats as the numbers they are."""
    return [Fraction(float(v)) for v in numpy.asarray(values).reshape(-1)]

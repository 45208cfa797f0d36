"""How norms are read and written: one parser, one name."""

from __future__ import annotations

import math
import re

from .errors import InputError

_PREFIX = re.compile(r"^[lLℓ]_?")


def norm_order(norm: float | str) -> float:
    """The p of a norm given as 1, 2, inf, "l1", "L2", "linf", "ℓ∞" or any other number from 1 on."""
    try:
        p = float(_PREFIX.sub("", norm.strip()).replace("∞", "inf") if isinstance(norm, str) else norm)
    except (TypeError, ValueError):
        p = math.nan
    if isinstance(norm, bool) or not p >= 1:
        raise InputError(f"norm={norm!r}: expected 1, 2, inf (also l1, l2, linf) or another number from 1 on")
    return p


def norm_name(p: float) -> str:
    """How a norm is written: l1, l2, linf."""
    return f"l{p:g}" if float(f"{p:g}") == p else f"l{p!r}"

"""JSON that comes from outside, read with nothing left to chance."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(content: str | bytes) -> Any:
    """The value of a JSON text. NaN, numbers too large to be finite and nesting without end are ValueErrors too."""
    try:
        return json.loads(content, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("lists and objects are nested too deep") from None


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.40} is too large")
    return value

"""How numbers are written: what is proved is rounded down, what an attack reached is rounded up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from .errors import InputError

NOTHING = "–"


def down(value: float | None, digits: int = 3) -> str:
    """A number that is proved, such as a certified radius: never more than it is."""
    return NOTHING if value is None else _rounded(value, digits, ROUND_FLOOR)


def up(value: float | None, digits: int = 3) -> str:
    """A number that was reached, such as an attacked radius: never less than it is."""
    return NOTHING if value is None else _rounded(value, digits, ROUND_CEILING)


def share(certified: float | None, attacked: float | None) -> str:
    """What part of the way to the counterexample is proved, in percent: never more than it is."""
    if certified is None or not attacked or math.isinf(attacked):
        return NOTHING
    part = 100 * Decimal(certified) / Decimal(attacked)
    return f"{int(part)}%"


def at_least(written: str) -> float:
    """The smallest float that is not less than a number as it is written: what holds for it holds for the number."""
    try:
        exact, value = Decimal(written.strip()), float(written)
    except (ArithmeticError, ValueError):
        raise InputError(f"{written!r}: expected a number") from None
    if math.isfinite(value) and Decimal(value) < exact:
        value = math.nextafter(value, math.inf)
    return value


def at_most(value: float) -> str:
    """The shortest number, as it is written, that is not more than `value` and that `at_least` reads as `value`."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    for digits in range(1, 18):
        step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
        written = f"{exact.quantize(step, rounding=ROUND_FLOOR).normalize():f}"
        if at_least(written) == value:
            break
    short = f"{Decimal(written):.{digits - 1}e}"
    return written if 1e-5 <= abs(value) < 1e16 else short


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = Decimal(value)
    step = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(step, rounding=rounding)
    if Decimal("1e-4") <= abs(rounded) < 10**digits:
        places = max(0, digits - 1 - rounded.adjusted())
        return f"{rounded:.{places}f}"
    return f"{rounded:.{digits - 1}e}"

"""How numbers are written: what is proved is rounded down, what an attack reached is rounded up."""

from __future__ import annotations

import math
from decimal import Decimal

from .errors import InputError

NOTHING = "–"


def number(value: object) -> bool:
    """Whether a value is a number, and neither a truth value nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def down(value: float | None, digits: int = 3) -> str:
    """A number that is proved, such as a certified radius: never more than it is."""
    return NOTHING if value is None else _rounded(value, digits, up=False)


def up(value: float | None, digits: int = 3) -> str:
    """A number that was reached, such as an attacked radius: never less than it is."""
    return NOTHING if value is None else _rounded(value, digits, up=True)


def share(certified: float | None, attacked: float | None) -> str:
    """What part of the way to the counterexample is proved, in percent: never more than it is."""
    if certified is None or not attacked or math.isinf(attacked):
        return NOTHING
    part = 100 * Decimal(certified) / Decimal(attacked)
    return f"{int(part)}%"


def at_least(number: str | float) -> float:
    """The smallest float that is not less than a number as it is written: what holds for it holds for the number. A
    float is the number that it is written as: 0.7, and not the float itself, which is a little less."""
    try:
        value = float(number)
        if isinstance(number, str):
            number = number.strip()
        exact = Decimal(number if isinstance(number, (str, int)) else repr(value))  # of NumPy's floats what they are
    except (ArithmeticError, ValueError):
        raise InputError(f"{number!r}: expected a number") from None
    if math.isfinite(value) and Decimal(value) < exact:
        value = math.nextafter(value, math.inf)
    return value


def as_proved(value: float) -> float:
    """The largest float that as it is written is not above a radius that is proved: so it may be compared with others
    that were written."""
    return value if value <= 0 or at_least(value) == value else math.nextafter(value, 0.0)


def asked(text: str) -> float:
    """A number that was typed, as the float that is written like it; the next larger one where none is."""
    value = at_least(text)
    if not math.isfinite(value):
        return value
    near = (math.nextafter(value, -math.inf), value)
    fit = (x for x in near if Decimal(repr(x)) >= Decimal(text.strip()))
    return next(fit, math.nextafter(value, math.inf))


def written(value: float) -> str:
    """A number that was asked about, as short as it can be told from other floats; `at_least` has what is proved."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(repr(float(value))).normalize()
    return f"{exact:f}" if 1e-5 <= abs(value) < 1e16 else f"{exact:.{len(exact.as_tuple().digits) - 1}e}"


def _rounded(value: float, digits: int, *, up: bool) -> str:
    """`value` to some digits, up or down: the nearest, or one step on where that is the wrong side."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    sign, size = ("-" if value < 0 else ""), abs(value)
    up = up != (value < 0)
    nearest = f"{size:.{digits - 1}e}"
    head, _, tail = nearest.partition("e")
    mantissa, exponent = int(head.replace(".", "")), int(tail)
    written = float(nearest)
    above, below = written > size, written < size
    if written == size:  # they may still differ by less than floats can
        above, below = Decimal(nearest) > Decimal(size), Decimal(nearest) < Decimal(size)
    mantissa += int(below and up) - int(above and not up)
    if mantissa == 10**digits:
        mantissa, exponent = mantissa // 10, exponent + 1
    elif mantissa < 10 ** (digits - 1):
        mantissa, exponent = 10 * mantissa + 9, exponent - 1
    return sign + _placed(str(mantissa), exponent)


def _placed(digits: str, exponent: int) -> str:
    """Digits with their point: 0.387, 38.7, 3.87e+5."""
    if 0 <= exponent < len(digits):
        whole, rest = digits[: exponent + 1], digits[exponent + 1 :]
    elif -4 <= exponent < 0:
        whole, rest = "0", "0" * (-exponent - 1) + digits
    else:
        point = "." if digits[1:] else ""
        return f"{digits[0]}{point}{digits[1:]}e{exponent:+d}"
    return f"{whole}.{rest}" if rest else whole

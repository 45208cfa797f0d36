"""What is printed as proved is never more than what was proved, and what an attack reached never less."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from certiformer.errors import InputError
from certiformer.norms import norm_name, norm_order
from certiformer.numbers import as_proved, asked, at_least, down, share, up, written

FINITE = st.floats(allow_nan=False, allow_infinity=False)
RADII = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@given(FINITE, st.integers(1, 9))
@example(0.90689496, 6)
@example(0.3, 3)
@example(9.9999, 3)
def test_rounded_to_the_safe_side(value, digits):
    assert Decimal(down(value, digits)) <= Decimal(value) <= Decimal(up(value, digits))
    for shown in (down(value, digits), up(value, digits)):
        assert abs(Decimal(shown) - Decimal(value)) <= abs(Decimal(value)) * Decimal(10) ** (1 - digits)


@given(RADII)
@example(0.3)
@example(0.7)
@example(1e23)
@example(5e-324)
def test_an_asked_radius_is_echoed_and_never_more_than_what_is_proved(value):
    assert Decimal(written(value)) == Decimal(repr(value)) <= Decimal(at_least(value))
    assert at_least(value) <= math.nextafter(value, math.inf)
    assert asked(written(value)) == value


@given(st.decimals(min_value=0, max_value=10**6, places=8))
@example(Decimal("0.90689496"))
@example(Decimal("0.3"))
@example(Decimal("0.7"))
def test_what_is_typed_comes_back_as_it_was(number):
    assert Decimal(written(asked(str(number)))) == number
    assert asked(str(number)) == float(number)
    assert Decimal(at_least(asked(str(number)))) >= number


@given(st.decimals(min_value=0, max_value=10, places=24))
@example(Decimal("0.70000000000000001"))
@example(Decimal("1e-400"))
@example(Decimal("9.0386042928663011e-8"))
def test_what_no_float_is_written_as_is_asked_by_the_next_larger_one(number):
    assert Decimal(at_least(asked(str(number)))) >= Decimal(written(asked(str(number)))) >= number
    assert Decimal(repr(math.nextafter(asked(str(number)), -math.inf))) < number


@given(RADII, st.floats(min_value=1e-300, allow_nan=False, allow_infinity=False))
@example(0.9999, 1.0)
def test_a_share_is_rounded_down(certified, attacked):
    assert Decimal(share(certified, attacked).removesuffix("%")) <= 100 * Decimal(certified) / Decimal(attacked)


@given(st.integers(-(10**40), 10**40))
@example(2**53 + 1)
def test_a_whole_number_that_is_no_float_is_not_made_less(number):
    assert number <= Decimal(at_least(number)) <= math.nextafter(float(number), math.inf)


def test_what_is_not_there_is_a_dash():
    assert {down(None), up(None), share(None, 1.0), share(1.0, None), share(1.0, math.inf)} == {"–"}


@pytest.mark.parametrize("typed", ["", "much", "0,5"])
def test_what_is_no_number_is_said(typed):
    with pytest.raises(InputError, match="expected a number"):
        at_least(typed)
    with pytest.raises(InputError, match="expected a number"):
        asked(typed)


@pytest.mark.parametrize(
    ("typed", "p"),
    [
        (1, 1),
        ("1", 1),
        ("l1", 1),
        ("L2", 2),
        ("linf", math.inf),
        ("ℓ_∞", math.inf),
        ("inf", math.inf),
        (" l2 ", 2),
        (3, 3),
    ],
)
def test_norms_are_read_as_they_are_written(typed, p):
    assert norm_order(typed) == p
    assert norm_order(norm_name(p)) == p


@pytest.mark.parametrize("typed", ["zero", "l", "", True, 0.5, "ll2", None, math.nan])
def test_other_norms_are_refused(typed):
    with pytest.raises(InputError, match="norm="):
        norm_order(typed)


@given(st.floats(1e-300, 1e300))
@example(0.3)
@example(0.1)
def test_a_proved_radius_is_one_that_may_be_compared_with_what_is_written(value):
    found = as_proved(value)
    assert Decimal(repr(found)) <= Decimal(value)
    assert math.nextafter(value, 0.0) <= found <= value
    assert found == value or Decimal(repr(value)) > Decimal(value)

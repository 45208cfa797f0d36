"""What both command lines read from their options."""

from __future__ import annotations

from certiformer.questions.inputs import norm_order

NORMS_HELP = "1, 2, inf or some of them with commas; default: all of the table"


def names(given: str | None) -> tuple[str, ...] | None:
    """A list with commas."""
    return None if given is None else tuple(part.strip() for part in given.split(",") if part.strip())


def norm_orders(given: str | None) -> tuple[float, ...] | None:
    """Norms with commas between them."""
    listed = names(given)
    return None if listed is None else tuple(norm_order(part) for part in listed)

"""Linear inequalities in exact numbers, joined by and and or."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..errors import InputError
from .expressions import Index, Item, List, Word, wrong

NUMBER = re.compile(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?")
MOST_CASES = 100_000  # conjunctions that a property may come to
Variable = tuple[str, int]  # "X" or "Y", and which
Lookup = Callable[[str, Index | None, int], Variable]  # a name, the index behind it, and the line


@dataclass(frozen=True)
class Linear:
    """`sum of factor * variable, plus constant`."""

    factors: Mapping[Variable, Fraction]
    constant: Fraction

    def __add__(self, other: Linear) -> Linear:
        factors = dict(self.factors)
        for variable, factor in other.factors.items():
            factors[variable] = factors.get(variable, Fraction(0)) + factor
        return Linear({v: f for v, f in factors.items() if f}, self.constant + other.constant)

    def times(self, number: Fraction) -> Linear:
        """The same, multiplied by a number."""
        return Linear({v: f * number for v, f in self.factors.items() if number}, self.constant * number)


@dataclass(frozen=True)
class Atom:
    """`linear <= 0`, or `linear < 0` where it is strict."""

    linear: Linear
    strict: bool

    def holds(self, values: Mapping[str, Sequence[Fraction]]) -> bool:
        """At exact values of the variables."""
        total = self.linear.constant
        for (kind, k), factor in self.linear.factors.items():
            total += factor * values[kind][k]
        return total < 0 if self.strict else total <= 0

    @property
    def kinds(self) -> set[str]:
        """Of which variables it speaks."""
        return {kind for kind, _ in self.linear.factors}


@dataclass(frozen=True)
class Either:
    """One of several formulas holds."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Both:
    """All of several formulas hold."""

    parts: tuple[Formula, ...]


Formula = Atom | Either | Both
SIGNS = ("<=", ">=", "<", ">", "=", "==", "!=")


def formula(item: Item, lookup: Lookup, line: int) -> Formula:
    """A truth value as it is written."""
    if not isinstance(item, List):
        wrong(line, "expected a comparison, and or or")
    head, rest = item.head, item.items[1:]
    if head in ("and", "or"):
        if not rest:
            wrong(item.line, f"({head}) without anything in it")
        parts = tuple(formula(part, lookup, item.line) for part in rest)
        return parts[0] if len(parts) == 1 else (Both if head == "and" else Either)(parts)
    if head not in SIGNS:
        wrong(item.line, f"expected {', '.join(SIGNS)}, and or or, found {head[:30]!r}")
    sides = _terms(rest, lookup, item.line)
    if len(sides) != 2:
        wrong(item.line, f"{head} compares two numbers, found {len(sides)}")
    left, right = sides
    below, above = left + right.times(Fraction(-1)), right + left.times(Fraction(-1))
    if head in ("<=", "<"):
        return Atom(below, head == "<")
    if head in (">=", ">"):
        return Atom(above, head == ">")
    if head == "!=":
        return Either((Atom(below, True), Atom(above, True)))
    return Both((Atom(below, False), Atom(above, False)))


def _terms(items: Sequence[Item], lookup: Lookup, line: int) -> list[Linear]:
    """Numbers one after the other; an index belongs to the name before it."""
    found: list[Linear] = []
    k = 0
    while k < len(items):
        item, index = items[k], items[k + 1] if k + 1 < len(items) else None
        k += 1
        if isinstance(item, List):
            found.append(_calculated(item, lookup))
        elif isinstance(item, Word) and NUMBER.fullmatch(item.text):
            found.append(Linear({}, Fraction(item.text)))
        elif isinstance(item, Word):
            k += isinstance(index, Index)
            name = lookup(item.text, index if isinstance(index, Index) else None, line)
            found.append(Linear({name: Fraction(1)}, Fraction(0)))
        else:
            wrong(line, "expected a number or a variable")
    return found


def _calculated(item: List, lookup: Lookup) -> Linear:
    head, terms = item.head, _terms(item.items[1:], lookup, item.line)
    if head not in ("+", "-", "*") or not terms:
        wrong(item.line, f"expected +, - or * of numbers, found {head[:30]!r}")
    total = terms[0].times(Fraction(-1)) if head == "-" and len(terms) == 1 else terms[0]
    for term in terms[1:]:
        if head == "*":
            if total.factors and term.factors:
                wrong(item.line, "a product of variables: the conditions must be linear")
            total = total.times(term.constant) if total.factors else term.times(total.constant)
        else:
            total = total + (term if head == "+" else term.times(Fraction(-1)))
    return total


def cases(parts: Sequence[Formula]) -> Iterator[tuple[Atom, ...]]:
    """The conjunctions of atoms of which one must hold for all parts to hold."""
    found: list[tuple[Atom, ...]] = [()]
    for part in parts:
        options = [(part,)] if isinstance(part, Atom) else list(_options(part))
        if len(found) * len(options) > MOST_CASES:
            raise InputError(f"the conditions come to more than {MOST_CASES:,} cases")
        found = [case + option for case in found for option in options]
    yield from found


def _options(part: Formula) -> Iterator[tuple[Atom, ...]]:
    if isinstance(part, Atom):
        yield (part,)
    elif isinstance(part, Either):
        for one in part.parts:
            yield from _options(one)
    else:
        yield from cases(part.parts)

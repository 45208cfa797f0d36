"""A property of a network as a file states it: bounds of the inputs, and conditions that must never all hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from ..errors import InputError
from .linear import Atom


@dataclass(frozen=True)
class Declared:
    """A tensor that a file speaks of. In version 1.0 it has no shape of its own, and its entries are `X_0`, `X_1`..."""

    name: str
    kind: str  # Real, float32, ...
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Case:
    """Inputs between two bounds, and conditions; all numbers as they are written, exactly.

    `rows` are conditions on the outputs alone, `relations` those between inputs, or of inputs and outputs.
    """

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    rows: tuple[Atom, ...]
    relations: tuple[Atom, ...]

    def holds(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """Whether an input and its output are what this case asks for."""
        inside = all(low <= v <= high for low, v, high in zip(self.lower, x, self.upper, strict=True))
        return inside and self.true_of(x, y)

    def true_of(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """The conditions, whatever the bounds of the inputs."""
        return all(atom.holds({"X": x, "Y": y}) for atom in (*self.rows, *self.relations))


@dataclass(frozen=True)
class Query:
    """What is asked: is there an input in one of the cases whose output makes all conditions of that case true?"""

    version: str
    input: Declared
    output: Declared
    cases: tuple[Case, ...]
    empty: int = field(default=0)  # cases that were left out, because no input is within their bounds

    def check_sizes(self, inputs: int, outputs: int, where: str) -> None:
        """The property speaks of as many numbers as the model has."""
        for what, declared, has in (("inputs", self.input, inputs), ("outputs", self.output, outputs)):
            if declared.size != has:
                raise InputError(f"{where}: the property has {declared.size} {what}, the model has {has}")


def case_of(base: Bounds, own: Iterable[Atom]) -> Case | None:
    """The case of some conditions besides those that all cases share; None where no input is within the bounds."""
    atoms = list(own)
    bounds = base.copy()
    bounds.add(atoms)
    moved = base if bounds.moved == base.moved else bounds  # bounds that nobody changed are shared
    moved.check_complete()
    if moved.contradiction() is not None:
        return None
    lower, upper = moved.sides
    return Case(lower, upper, tuple(bounds.rows), tuple(bounds.relations))


class Bounds:
    """Bounds of the inputs, gathered condition by condition."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.moved = 0  # how often a bound was set
        self.lower: list[Fraction | None] = [None] * len(names)
        self.upper: list[Fraction | None] = [None] * len(names)
        self.rows: list[Atom] = []
        self.relations: list[Atom] = []

    def copy(self) -> Bounds:
        """The same, to go on from."""
        made = Bounds(self.names)
        made.lower, made.upper = list(self.lower), list(self.upper)
        made.rows, made.relations, made.moved = list(self.rows), list(self.relations), self.moved
        return made

    @cached_property
    def sides(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """The lower and the upper bounds, all of which are there."""
        lower, upper = (tuple(v for v in side if v is not None) for side in (self.lower, self.upper))
        return lower, upper

    def add(self, atoms: Iterable[Atom]) -> None:
        """Sort conditions into bounds, rows and relations."""
        for atom in atoms:
            if atom.kinds == {"Y"}:
                self.rows.append(atom)
            elif atom.kinds == {"X"} and len(atom.linear.factors) == 1:
                self._bound(atom)
            else:
                self.relations.append(atom)

    def _bound(self, atom: Atom) -> None:
        ((_, k), factor) = next(iter(atom.linear.factors.items()))
        self.moved += 1
        value = -atom.linear.constant / factor
        if factor > 0:
            known = self.upper[k]
            self.upper[k] = value if known is None else min(value, known)
        else:
            known = self.lower[k]
            self.lower[k] = value if known is None else max(value, known)
        if atom.strict:
            self.relations.append(atom)  # the bound itself does not count

    def check_complete(self) -> None:
        """Every input has both bounds."""
        for name, low, high in zip(self.names, self.lower, self.upper, strict=True):
            if low is None or high is None:
                raise InputError(f"{name} has no {'lower' if low is None else 'upper'} bound")

    def contradiction(self) -> str | None:
        """The first input whose bounds leave nothing, in words."""
        for name, low, high in zip(self.names, self.lower, self.upper, strict=True):
            if low is not None and high is not None and low > high:
                return f"{name} must be at least {_shown(low)} and at most {_shown(high)}"
        return None


def _shown(value: Fraction) -> str:
    """A number of any size, with a few digits."""
    return format(Decimal(value.numerator) / Decimal(value.denominator), ".6g")


def entries(declared: Declared, version: str) -> Iterator[str]:
    """The names of the entries of a tensor: `X_3`, or `X[0,3]`."""
    for k in range(declared.size):
        if version == "1.0":
            yield f"{declared.name}_{k}"
        else:
            place, left = [], k
            for size in reversed(declared.shape):
                left, here = divmod(left, size)
                place.append(str(here))
            yield f"{declared.name}[{','.join(reversed(place))}]"

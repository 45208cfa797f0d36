"""What is to be proved of the outputs: that they are never bad, where bad is a union of polyhedra `A y <= b`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from .core.goal import Clause, Goal
from .errors import InputError, short
from .sets import numbers

Polyhedron = tuple[Any, Any]  # A [rows, outputs] and b [rows]


@dataclass(frozen=True, eq=False)
class Wanted:
    """A property of the outputs of one model: the goal, and what its half-spaces are called."""

    goal: Goal
    names: tuple[str, ...]

    def violated(self, outputs: Tensor) -> int | None:
        """The number of a clause by which outputs [outputs] are bad, in exact arithmetic; None where they are good."""
        y = [Fraction(v) for v in outputs.double().tolist()]
        held: list[bool] = []
        for row, limit in zip(self.goal.rows.tolist(), self.goal.limits.tolist(), strict=True):
            total = sum((Fraction(a) * v for a, v in zip(row, y, strict=True) if a), start=Fraction(0))
            held.append(total <= Fraction(limit))
        for k, clause in enumerate(self.goal.clauses):
            if sum(held[h] for h in clause.halfspaces) >= clause.count:
                return k
        return None


class Property:
    """Outputs y are bad where `A y <= b` (every row of it) for any of the polyhedra (A, b): none may be reached."""

    def __init__(self, unsafe: Sequence[Polyhedron], names: Sequence[str] = ()) -> None:
        """`names` are those of the rows of all polyhedra, one after the other."""
        if not isinstance(unsafe, (list, tuple)) or not unsafe:
            raise InputError(f"Property({short(unsafe)}): expected polyhedra (A, b), at least one")
        tables: list[Tensor] = []
        limits: list[Tensor] = []
        for k, polyhedron in enumerate(unsafe):
            a, b = _polyhedron(k, polyhedron)
            tables.append(a)
            limits.append(b)
        if len({a.shape[1] for a in tables}) > 1:
            sizes = sorted({int(a.shape[1]) for a in tables})
            raise InputError(f"Property(...): polyhedra over different numbers of outputs: {sizes}")
        self.rows, self.limits = torch.cat(tables), torch.cat(limits)
        starts = [sum(len(b) for b in limits[:k]) for k in range(len(limits))]
        self.clauses = tuple(Clause(tuple(range(s, s + len(b))), len(b)) for s, b in zip(starts, limits, strict=True))
        self.names = tuple(names) if names else tuple(map(_named, self.rows, self.limits.tolist()))
        if len(self.names) != len(self.rows):
            raise InputError(f"Property(names={short(names)}): expected {len(self.rows)} names, one for each row")

    def __repr__(self) -> str:
        return f"Property({len(self.clauses)} polyhedra, {len(self.rows)} half-spaces)"

    def of(self, outputs: int, label: int) -> Wanted:
        """This property of a model with so many outputs, of which `label` is the largest."""
        if self.rows.shape[1] != outputs:
            raise InputError(f"{self!r} is about {self.rows.shape[1]} outputs, the model has {outputs}")
        return Wanted(Goal(self.rows, self.limits, self.clauses), self.names)


def _polyhedron(k: int, given: Polyhedron) -> tuple[Tensor, Tensor]:
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        raise InputError(f"Property: polyhedron {k} is {short(given)}: expected (A, b)")
    a, b = numbers(f"Property(A of polyhedron {k}", given[0]), numbers(f"Property(b of polyhedron {k}", given[1])
    a, b = (a[None] if a.dim() == 1 else a), b.reshape(-1)
    if a.dim() != 2 or len(a) != len(b) or not a.numel():
        raise InputError(f"Property: polyhedron {k} has A {list(a.shape)} and b {list(b.shape)}: expected [m, n], [m]")
    if not bool(torch.isfinite(a).all() and torch.isfinite(b).all()):
        raise InputError(f"Property: polyhedron {k}: expected finite numbers")
    return a, b


@dataclass(frozen=True)
class TopK:
    """The label stays among the `k` largest outputs; a tie counts as lost."""

    k: int
    label: int | None = None  # the predicted one by default

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InputError(f"TopK(k={self.k!r}): expected a whole number of 1 or more")

    def of(self, outputs: int, label: int) -> Wanted:
        """This property of a model with so many outputs."""
        own = _class(self.label, outputs, self, label)
        if outputs <= self.k:
            raise InputError(f"{self!r}: of {outputs} outputs every one is among the {self.k} largest")
        rows = torch.eye(outputs, dtype=torch.float64)
        others = [c for c in range(outputs) if c != own]
        differences = rows[own] - rows[others]
        limits = torch.zeros(len(others), dtype=torch.float64)
        goal = Goal(differences, limits, (Clause(tuple(range(len(others))), self.k),))
        return Wanted(goal, tuple(_named(row, 0.0) for row in differences))


@dataclass(frozen=True)
class Robust:
    """The label stays the largest output; a tie counts as lost."""

    label: int | None = None  # the predicted one by default

    def of(self, outputs: int, label: int) -> Wanted:
        """This property of a model with so many outputs."""
        return TopK(1, _class(self.label, outputs, self, label)).of(outputs, label)


@dataclass(frozen=True)
class Never:
    """This class is never the answer, not even in a tie."""

    label: int

    def of(self, outputs: int, label: int) -> Wanted:
        """This property of a model with so many outputs."""
        own = _class(self.label, outputs, self, label)
        rows = torch.eye(outputs, dtype=torch.float64)
        others = [c for c in range(outputs) if c != own]
        if not others:
            raise InputError(f"{self!r}: the model has a single output, which is always the largest")
        differences = rows[others] - rows[own]
        goal = Goal(differences, torch.zeros(len(others)).double(), (Clause(tuple(range(len(others))), len(others)),))
        return Wanted(goal, tuple(_named(row, 0.0) for row in differences))


@dataclass(frozen=True, eq=False)
class Within:
    """Every output stays strictly between two numbers, or each between two of its own; None is no bound."""

    lower: Any = None
    upper: Any = None

    def of(self, outputs: int, label: int) -> Wanted:
        """This property of a model with so many outputs."""
        rows: list[Tensor] = []
        limits: list[Tensor] = []
        for name, given, sign in (("lower", self.lower, 1.0), ("upper", self.upper, -1.0)):
            if given is None:
                continue
            bound = numbers(f"Within({name}", given)
            if not bool(torch.isfinite(bound).all()) or (bound.dim() and bound.shape != (outputs,)):
                raise InputError(
                    f"Within({name}={short(given)}): expected a number, or one for each of {outputs} outputs"
                )
            rows.append(sign * torch.eye(outputs, dtype=torch.float64))
            limits.append(sign * bound.expand(outputs))
        if not rows:
            raise InputError("Within(): expected a lower or an upper bound")
        table, ends = torch.cat(rows), torch.cat(limits)
        names = tuple(_named(row, float(limit)) for row, limit in zip(table, ends, strict=True))
        return Wanted(Goal(table, ends, (Clause(tuple(range(len(table))), 1),)), names)


AnyProperty = Property | Robust | TopK | Never | Within


def _class(label: int | None, outputs: int, asked: object, usual: int) -> int:
    label = usual if label is None else label
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < outputs:
        raise InputError(f"{asked!r}: expected a class from 0 to {outputs - 1}")
    return label


def _named(row: Tensor, limit: float) -> str:
    """`y[3] - y[1]`, less its limit."""
    terms = [(a, f"y[{i}]") for i, a in enumerate(row.tolist()) if a]
    written = " ".join(f"{'-' if a < 0 else '+'} {'' if abs(a) == 1 else f'{abs(a):g} '}{name}" for a, name in terms)
    written = written.removeprefix("+ ") or "0"
    return written if limit == 0 else f"{written} {'-' if limit > 0 else '+'} {abs(limit):g}"

"""VNN-LIB, versions 1.0 and 2.0: the property of a network as text.

Version 1.0 declares every number (`X_0`, `Y_0`, ...); version 2.0 declares a network with its input and its output.
Of version 2.0 what speaks of one network with one input and one output is read, with linear conditions.
"""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InputError
from ..models.packed import read_packed
from .expressions import Index, List, Quoted, Word, parse, wrong
from .linear import Both, Formula, Variable, cases, formula
from .query import Bounds, Declared, Query, case_of, entries

MOST = 1 << 28  # bytes of a property file, unpacked
MOST_ENTRIES = 1 << 24
OLD_NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
NEW_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
SAYS_NOTHING = ("set-logic", "set-info", "check-sat", "get-model", "exit")
TYPES = ("real", "float32", "float64")


def read_vnnlib(path: str | os.PathLike[str]) -> Query:
    """A property from a file, plain or gzip."""
    content = read_packed(path, "property", most=MOST)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"property {path}: expected text in UTF-8") from None
    try:
        return parse_vnnlib(text)
    except InputError as error:
        raise InputError(f"property {path}: {error}") from None


def parse_vnnlib(text: str) -> Query:
    """A property from text."""
    lists = parse(text)
    if not lists:
        raise InputError("holds no condition")
    new = any(item.head in ("vnnlib-version", "declare-network") for item in lists)
    reader: _Reader = _New() if new else _Old()
    for item in lists:
        reader.read(item)
    return _query(reader)


@dataclass
class _Reader(ABC):
    """What has been read so far."""

    version: str
    input: Declared | None = None
    output: Declared | None = None
    asserted: list[Formula] = field(default_factory=list)

    @abstractmethod
    def read(self, item: List) -> None:
        """One list of the file."""

    @abstractmethod
    def lookup(self, name: str, index: Index | None, line: int) -> Variable:
        """The variable of a name."""

    def assertion(self, item: List) -> None:
        """`(assert ...)`"""
        if len(item.items) != 2:
            wrong(item.line, f"assert takes one condition, found {len(item.items) - 1}")
        self.asserted.append(formula(item.items[1], self.lookup, item.line))

    def declared(self) -> tuple[Declared, Declared]:
        """The input and the output, both of which must be there."""
        if self.input is None or self.output is None:
            raise InputError(f"declares no {'input' if self.input is None else 'output'}")
        return self.input, self.output


class _Old(_Reader):
    """Version 1.0."""

    def __init__(self) -> None:
        super().__init__("1.0")
        self.counts: dict[str, set[int]] = {"X": set(), "Y": set()}

    def read(self, item: List) -> None:
        if item.head == "assert":
            self.assertion(item)
        elif item.head in ("declare-const", "declare-fun"):
            self._declaration(item)
        elif item.head not in SAYS_NOTHING:
            wrong(item.line, f"expected declare-const or assert, found {item.head[:30]!r}")

    def _declaration(self, item: List) -> None:
        words = [part for part in item.items[1:] if part != List((), item.line)]
        if len(words) != 2 or not all(isinstance(w, Word) for w in words):
            wrong(item.line, f"{item.head} takes a name and Real")
        name, kind = (w.text for w in words if isinstance(w, Word))
        match = OLD_NAME.fullmatch(name)
        if match is None:
            wrong(item.line, f"expected a name such as X_0 or Y_0, found {name[:30]!r}")
        if kind != "Real":
            wrong(item.line, f"{name} is declared as {kind[:30]!r}: expected Real")
        known, k = self.counts[match[1]], int(match[2])
        if k in known:
            wrong(item.line, f"{name} is declared twice")
        known.add(k)

    def lookup(self, name: str, index: Index | None, line: int) -> Variable:
        match = OLD_NAME.fullmatch(name)
        if match is None or index is not None or int(match[2]) not in self.counts[match[1]]:
            wrong(line, f"{name[:30]!r} is neither a number nor a variable that was declared")
        return match[1], int(match[2])

    def declared(self) -> tuple[Declared, Declared]:
        for name, known in self.counts.items():
            if not known:
                raise InputError(f"declares no {'input X_0' if name == 'X' else 'output Y_0'}")
            gap = next((k for k in range(len(known)) if k not in known), None)
            if gap is not None:
                raise InputError(f"declares {name}_{max(known)} but not {name}_{gap}")
        self.input, self.output = (Declared(n, "Real", (len(known),)) for n, known in self.counts.items())
        return super().declared()


class _New(_Reader):
    """Version 2.0, as far as one network with one input and one output goes."""

    def __init__(self) -> None:
        super().__init__("2.0")
        self.network: str | None = None

    def read(self, item: List) -> None:
        if item.head == "vnnlib-version":
            shown = item.items[1].text if len(item.items) == 2 and isinstance(item.items[1], Word) else ""
            if not re.fullmatch(r"<2\.\d+>", shown):
                wrong(item.line, f"version {shown[:20]!r}: expected <2.0>")
        elif item.head == "declare-network":
            self._network(item)
        elif item.head == "assert":
            self.assertion(item)
        else:
            wrong(item.line, f"expected declare-network or assert, found {item.head[:30]!r}")

    def _network(self, item: List) -> None:
        if self.network is not None:
            wrong(item.line, "a second network: questions about one network can be answered")
        name = item.items[1] if len(item.items) > 1 else None
        if not isinstance(name, Word) or not NEW_NAME.fullmatch(name.text):
            wrong(item.line, "declare-network takes a name first")
        self.network = name.text
        for part in item.items[2:]:
            if not isinstance(part, List) or part.head not in ("declare-input", "declare-output"):
                told = part.head if isinstance(part, List) else "something else"
                wrong(item.line, f"{told[:30]!r} in a network: one input and one output can be answered about")
            self._tensor(part)

    def _tensor(self, item: List) -> None:
        parts = item.items[1:]
        if len(parts) == 4 and isinstance(parts[3], Quoted):
            parts = parts[:3]  # its name in the model, which has one input and one output
        if len(parts) != 3 or not isinstance(parts[0], Word) or not isinstance(parts[1], Word):
            wrong(item.line, f"{item.head} takes a name, a type and a shape")
        name, kind, shape = parts[0].text, parts[1].text, parts[2]
        if not NEW_NAME.fullmatch(name) or not isinstance(shape, Index):
            wrong(item.line, f"{item.head} takes a name, a type and a shape in brackets")
        if kind.lower() not in TYPES:
            wrong(item.line, f"{name} is of type {kind[:30]!r}: expected {', '.join(TYPES)}")
        if 0 in shape.numbers or math.prod(shape.numbers) > MOST_ENTRIES:
            wrong(item.line, f"{name} has the shape {list(shape.numbers)}")
        made = Declared(name, kind, shape.numbers)
        which = "input" if item.head == "declare-input" else "output"
        if getattr(self, which) is not None:
            wrong(item.line, f"a second {which}: one can be answered about")
        if self.input is not None and self.input.name == name:
            wrong(item.line, f"{name} is declared twice")
        setattr(self, which, made)

    def lookup(self, name: str, index: Index | None, line: int) -> Variable:
        for kind, declared in (("X", self.input), ("Y", self.output)):
            if declared is not None and declared.name == name:
                return kind, _place(declared, index, line)
        wrong(line, f"{name[:30]!r} is neither a number nor a variable that was declared")


def _place(declared: Declared, index: Index | None, line: int) -> int:
    """Where in the row of all entries an index points to."""
    numbers = () if index is None else index.numbers
    inside = len(numbers) == len(declared.shape) and all(i < s for i, s in zip(numbers, declared.shape, strict=True))
    if not inside:
        wrong(line, f"{declared.name}{list(numbers)} is not in the shape {list(declared.shape)}")
    k = 0
    for i, size in zip(numbers, declared.shape, strict=True):
        k = k * size + i
    return k


def _query(reader: _Reader) -> Query:
    """All cases: what every one of them shares is looked at once."""
    given, output = reader.declared()
    if not reader.asserted:
        raise InputError("asserts nothing")
    base = Bounds(list(entries(given, reader.version)))
    choices: list[Formula] = []
    for part in _flat(reader.asserted):
        options = list(cases([part]))
        if len(options) == 1:
            base.add(options[0])
        else:
            choices.append(part)
    nothing = base.contradiction()
    if nothing is not None:
        raise InputError(f"no input is within the bounds: {nothing}")
    every = list(cases(choices))
    if sum("X" in atom.kinds for own in every for atom in own) and len(every) * given.size > MOST_ENTRIES:
        raise InputError(f"{len(every):,} cases with {given.size:,} inputs each are too many")
    found = [case_of(base, own) for own in every]
    kept = tuple(case for case in found if case is not None)
    if not kept:
        raise InputError("no input is within the bounds of any case")
    return Query(reader.version, given, output, kept, len(found) - len(kept))


def _flat(parts: Sequence[Formula]) -> list[Formula]:
    """Conditions that all must hold, one by one."""
    found: list[Formula] = []
    for part in parts:
        found += _flat(part.parts) if isinstance(part, Both) else [part]
    return found

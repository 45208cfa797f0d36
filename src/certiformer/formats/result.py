"""The answer to a file's question, and the file it is written to: as the competition of the field wants it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .query import Declared, Query, entries

Verdict = Literal["unsat", "sat", "timeout", "unknown"]


@dataclass(frozen=True, eq=False)
class Witness:
    """An input within the bounds, and what onnxruntime gives there: all conditions of a case hold.

    `rounded` inputs have bounds between which there is no number of the model's type: they are the nearest one.
    """

    x: Any  # flat, in the type of the model
    y: Any
    case: int
    rounded: int

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "x": [float(v) for v in self.x],
            "y": [float(v) for v in self.y],
            "case": self.case,
            "rounded": self.rounded,
        }


@dataclass(frozen=True, eq=False)
class FileAnswer:
    """What was found out about a model file and a property file.

    unsat: proved that no input within the bounds makes the conditions true. sat: `witness` does. `margins` are, for
    each case, the best that was proved of one of its conditions: above 0 it never holds.
    """

    verdict: Verdict
    witness: Witness | None
    cases: int
    margins: tuple[float | None, ...]
    reason: str | None
    method: str | None
    arithmetic: str
    difference: float  # from onnxruntime, of outputs, relative to the largest
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "witness": None if self.witness is None else self.witness.to_dict()}

    def __repr__(self) -> str:
        told = "" if self.reason is None else f", {self.reason}"
        return f"FileAnswer({self.verdict}, {self.cases} case{'s' * (self.cases != 1)}{told}, {self.seconds:.1f} s)"


def result_text(answer: FileAnswer, query: Query) -> str:
    """The text of a result file: the verdict, and behind `sat` the counterexample in the form of the property."""
    if answer.witness is None:
        return f"{answer.verdict}\n"
    witness = answer.witness
    given = ((query.input, witness.x), (query.output, witness.y))
    if query.version == "1.0":
        pairs = [f"({name} {float(v)!r})" for d, values in given for name, v in _named(d, values)]
        return "sat\n(" + "\n ".join(pairs) + ")\n"
    lines = ["sat"]
    for declared, values in given:
        shape = ",".join(map(str, declared.shape))
        lines += [f"{declared.name} {declared.kind} [{shape}]", *(repr(float(v)) for v in values)]
    return "\n".join(lines) + "\n"


def _named(declared: Declared, values: Any) -> Iterator[tuple[str, Any]]:
    yield from zip(entries(declared, "1.0"), values, strict=True)

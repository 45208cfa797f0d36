"""One family of results: frozen, and each knows itself as a dictionary, a table, a line, coloured words and a plot."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from .colours import LIGHT, PROVED, REACHED, absolute, relative
from .norms import norm_name
from .numbers import down, up, written
from .text import visible

if TYPE_CHECKING:
    from torch import Tensor

    from .core.names import Arithmetic, Method, Relaxation

Status = Literal["certified", "refuted", "unknown", "error"]
Row = dict[str, Any]


def frame(rows: list[Row]) -> Any:
    """A table as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas: pip install 'certiformer[report]'; rows() is a list") from None
    return pandas.DataFrame(rows)


class Tabular(ABC):
    """What all results can do."""

    def to_dict(self) -> Row:
        """All fields as plain values: tensors are lists, and numbers that are not finite None."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @abstractmethod
    def rows(self) -> list[Row]:
        """The table."""

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame(self.rows())

    @abstractmethod
    def plot(self, axes: Any = None) -> Any:
        """A picture on matplotlib axes, new ones where none are given; the axes come back."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._line()})"

    @abstractmethod
    def _line(self) -> str:
        """The result in a line."""


class Result(Tabular):
    """The result of a question about one input: its table has a row for each set of positions or word."""

    tokens: tuple[str, ...]

    def plot(self, axes: Any = None) -> Any:
        """Bars of the table on matplotlib axes, new ones where none are given; the axes come back."""
        series = self._series()
        if axes is None:
            height = 1 + 0.3 * max((len(values) for _, _, values in series), default=1)
            axes = new_axes(6, height)
        names = [str(row["words"]) for row in self.rows()]
        for name, colour, values in series:
            finite = [v if v is not None and math.isfinite(v) else 0.0 for v in values]
            axes.barh(range(len(names)), finite, color=colour, label=name)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(self._unit())
        axes.legend()
        return axes

    def _repr_html_(self) -> str:
        """The words coloured, the weaker the stronger, and a line."""
        return f"<div>{_coloured(self.tokens, self._levels())}<br><small>{escape(visible(repr(self)))}</small></div>"

    @abstractmethod
    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        """The name, colour and values of each row of bars."""

    @abstractmethod
    def _unit(self) -> str:
        """What the bars measure."""

    @abstractmethod
    def _levels(self) -> dict[int, int]:
        """The colour of each position."""


def new_axes(width: float, height: float) -> Any:
    """Axes of matplotlib, of some inches."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plot() needs matplotlib: pip install 'certiformer[report]'") from None
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


@dataclass(frozen=True, eq=False, repr=False)
class RadiusResult(Result):
    """For each set of positions, a radius within which the prediction is proved not to change."""

    positions: tuple[tuple[int, ...], ...]
    radii: tuple[float, ...]
    normalized: tuple[float, ...]  # radius over the smallest norm of the embeddings it moves
    tokens: tuple[str, ...]
    label: int
    margin: float
    norm: float
    method: Method
    relaxation: Relaxation
    chosen: str  # method and relaxation in words, with what the budget allowed
    tolerance: float
    calls: float  # evaluations of the bounds, on average over the sets
    seconds: float
    complete: bool  # False where time or memory was out: more may be provable
    arithmetic: Arithmetic = "real"  # what is proved: of the exact function, or of float32 evaluations
    certificates: tuple[str | None, ...] = ()  # the file of each set, where they were asked for
    unwritten: str | None = None  # why the file of a radius above 0 is missing, where one is
    stopped: str | None = None  # what was out where it is not complete

    @property
    def smallest(self) -> tuple[tuple[int, ...], float]:
        """The most fragile set of positions and its radius."""
        i = min(range(len(self.radii)), key=lambda k: self.radii[k])
        return self.positions[i], self.radii[i]

    def rows(self) -> list[Row]:
        return [
            {"positions": where, "words": _words(self.tokens, where), "certified": r, "normalized": n}
            for where, r, n in zip(self.positions, self.radii, self.normalized, strict=True)
        ]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        return [("certified", PROVED, list(self.radii))]

    def _unit(self) -> str:
        return f"certified radius, {norm_name(self.norm)}"

    def _levels(self) -> dict[int, int]:
        return _weakest(zip(self.positions, map(relative, self.normalized), strict=True))

    def _line(self) -> str:
        where, r = self.smallest
        smallest = f"smallest {down(r)} at {_at(where)} {_words(self.tokens, where)!r}"
        return f"{norm_name(self.norm)}, {len(self.radii):,} sets, {smallest}, {self.chosen}, {self.seconds:.1f} s"


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input inside the set with another answer, checked by a plain forward pass in float64, or float32 as asked."""

    positions: tuple[int, ...]
    radius: float
    label: int
    point: Tensor  # embeddings [1, n, d]
    words: tuple[str, ...] | None = None  # the substituted words, where words were substituted

    def __repr__(self) -> str:
        words = "" if self.words is None else f", words {' '.join(self.words)!r}"
        return f"Counterexample(label {self.label}, positions {_at(self.positions)}, radius {up(self.radius)}{words})"


@dataclass(frozen=True, eq=False, repr=False)
class CertifyResult(Result):
    """The verdict on a question, and on each of its parts (sets of positions, each on its own).

    `margin` is the least proved margin, -inf where nothing was proved. `method` says how it was proved: a bounding
    method, or "enumeration" where every substitution was tried.
    """

    status: Status
    statuses: tuple[Status, ...]
    positions: tuple[tuple[int, ...], ...]
    margins: tuple[float, ...]
    margin: float
    counterexamples: tuple[Counterexample | None, ...]  # of each part, where one was found
    tokens: tuple[str, ...]
    label: int
    eps: float | None
    norm: float
    method: Method | Literal["enumeration"]
    relaxation: Relaxation
    reason: str | None
    seconds: float
    arithmetic: Arithmetic = "real"  # what is proved: of the exact function, or of float32 evaluations
    certificate: str | None = None  # the file of the proof, where one was asked for and found
    replaced: int | None = None  # how many words were replaced at once at most, where that was limited

    @property
    def counterexample(self) -> Counterexample | None:
        """The closest of all."""
        found = [example for example in self.counterexamples if example is not None]
        return min(found, key=lambda example: example.radius, default=None)

    def rows(self) -> list[Row]:
        return [
            {"positions": where, "words": _words(self.tokens, where), "status": status, "margin": margin}
            for where, status, margin in zip(self.positions, self.statuses, self.margins, strict=True)
        ]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        return [("proved margin", PROVED, list(self.margins))]

    def _unit(self) -> str:
        return "proved margin, more than 0 where certified"

    def _levels(self) -> dict[int, int]:
        colours = {"certified": 0, "unknown": 3, "refuted": 5, "error": 6}
        return _weakest(zip(self.positions, (colours[s] for s in self.statuses), strict=True))

    def _line(self) -> str:
        how = "substitutions" if any(self.positions) else "given sets"
        how = how if self.replaced is None else f"{how} of at most {self.replaced} words at once"
        how = how if self.eps is None else f"eps={written(self.eps)} in {norm_name(self.norm)}"
        why = f", {self.reason}" if self.reason else ""
        return f"{self.status!r}, {how}, {len(self.statuses):,} sets, {self.method}, {self.seconds:.1f} s{why}"


@dataclass(frozen=True, eq=False)
class Violation:
    """An input of a set with bad outputs: it lies in the set exactly, and the model itself gives the outputs there."""

    member: int  # of the sets
    clause: int  # by which the outputs are bad: the number of a polyhedron
    point: Tensor  # [1, *shape] in float64, as the module takes it
    outputs: tuple[float, ...]
    words: tuple[str, ...] | None = None  # the substituted words, where words were substituted

    def __repr__(self) -> str:
        return f"Violation(in set {self.member}, outputs {[float(f'{y:.4g}') for y in self.outputs[:6]]})"


@dataclass(frozen=True, eq=False, repr=False)
class VerifyResult(Result):
    """Whether outputs are never bad on a union of sets: certified where that is proved of every one of them.

    `margins` has a row for each set: the least value that is proved of each half-space, `A y - b`; above 0 no output
    lies in it. `least` has what must be above 0 for each set to be certified.
    """

    status: Status
    statuses: tuple[Status, ...]
    sets: tuple[str, ...]
    names: tuple[str, ...]  # of the half-spaces
    margins: tuple[tuple[float, ...], ...]
    least: tuple[float, ...]
    counterexample: Violation | None
    label: int
    method: Method | Literal["enumeration"]
    relaxation: Relaxation
    reason: str | None
    seconds: float
    tokens: tuple[str, ...] = ()
    arithmetic: Arithmetic = "real"  # what is proved: of the exact function, or of float32 evaluations

    def rows(self) -> list[Row]:
        return [
            {"words": name, "status": status, "least": least}
            for name, status, least in zip(self.sets, self.statuses, self.least, strict=True)
        ]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        return [("proved", PROVED, list(self.least))]

    def _unit(self) -> str:
        return "distance from bad outputs, more than 0 where certified"

    def _levels(self) -> dict[int, int]:
        return {}

    def _line(self) -> str:
        why = f", {self.reason}" if self.reason else ""
        what = f"{len(self.sets):,} sets, {len(self.names):,} half-spaces"
        return f"{self.status!r}, {what}, {self.method}, {self.seconds:.1f} s{why}"


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult(Result):
    """For each set of positions the radius of a counterexample, inf where none was found.

    `points[i]` is the counterexample `[1, n, d]` in float64, `words[i]` the word put in place (enumeration only) and
    `flipped[i]` the label found there. Each was checked by a plain forward pass in float64. `radii[i]` is the largest
    p-norm of the perturbation of a position.
    """

    positions: tuple[tuple[int, ...], ...]
    radii: tuple[float, ...]
    points: tuple[Tensor | None, ...]
    words: tuple[str | None, ...]
    flipped: tuple[int | None, ...]
    tokens: tuple[str, ...]
    label: int
    margin: float
    norm: float
    method: Literal["gradient", "enumeration"]
    seconds: float
    note: str | None = None

    def rows(self) -> list[Row]:
        return [
            {"positions": where, "words": _words(self.tokens, where), "attacked": r, "replacement": word, "flipped": to}
            for where, r, word, to in zip(self.positions, self.radii, self.words, self.flipped, strict=True)
        ]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        return [("attacked", REACHED, list(self.radii))]

    def _unit(self) -> str:
        return f"attacked radius, {norm_name(self.norm)}"

    def _levels(self) -> dict[int, int]:
        largest = max((r for r in self.radii if math.isfinite(r)), default=0.0)
        return _weakest(zip(self.positions, (absolute(r, largest) for r in self.radii), strict=True))

    def _line(self) -> str:
        found = [(r, where) for r, where in zip(self.radii, self.positions, strict=True) if math.isfinite(r)]
        told = "none found"
        if found:
            r, where = min(found)
            told = f"smallest {up(r)} at {_at(where)} {_words(self.tokens, where)!r}"
        return f"{norm_name(self.norm)}, {len(self.radii):,} sets, {told}, {self.method}, {self.seconds:.1f} s"


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Result):
    """Bounds of the margins `logit[label] - logit[other]`, one row per set of positions, one column per other class.

    The prediction is proved unchanged where a whole row of `lower` is above 0. Where nothing could be proved the row is
    -inf, and `reasons` says why.
    """

    lower: Tensor
    upper: Tensor
    label: int
    positions: tuple[tuple[int, ...], ...]
    eps: tuple[float, ...]
    norm: float
    method: Method
    relaxation: Relaxation
    reasons: tuple[str | None, ...]
    seconds: float
    tokens: tuple[str, ...] = ()
    arithmetic: Arithmetic = "real"  # what is proved: of the exact function, or of float32 evaluations

    @property
    def certified(self) -> tuple[bool, ...]:
        """Per instance, whether the label is proved to stay."""
        return tuple(bool(row) for row in (self.lower > 0).all(dim=1))

    def rows(self) -> list[Row]:
        least, most = self.lower.amin(dim=1).tolist(), self.upper.amin(dim=1).tolist()
        return [
            {
                "positions": where,
                "words": _words(self.tokens, where),
                "eps": e,
                "lower": a,
                "upper": b,
                "certified": a > 0,
            }
            for where, e, a, b in zip(self.positions, self.eps, least, most, strict=True)
        ]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        rows = self.rows()
        names = (("upper", REACHED), ("lower", PROVED))
        return [(f"{name} bound of the margin", colour, [row[name] for row in rows]) for name, colour in names]

    def _unit(self) -> str:
        return "margin"

    def _levels(self) -> dict[int, int]:
        return _weakest(zip(self.positions, (0 if c else 5 for c in self.certified), strict=True))

    def _line(self) -> str:
        eps = ", ".join(written(e) for e in sorted(set(self.eps))[:3])
        proved = f"{sum(self.certified):,} of {len(self.eps):,} sets certified"
        return f"eps {eps} in {norm_name(self.norm)}, {proved}, {self.method} {self.relaxation}, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Ranked:
    """A word with its three ranks; 1 is the most important.

    `normalized` is the certified radius over the norm of the word's embedding (small is important), `gradient` the l2
    norm of the margin's gradient (large is important), `attacked` the distance of the closest word that changes the
    answer (small is important; None where there is none, which ranks last).
    """

    position: int
    word: str
    certified: float
    normalized: float
    rank: int
    gradient: float
    gradient_rank: int
    attacked: float | None = None
    attacked_normalized: float | None = None
    attacked_rank: int | None = None
    replacement: str | None = None


@dataclass(frozen=True, repr=False)
class ImportanceResult(Result):
    """The words, most important first."""

    words: tuple[Ranked, ...]
    label: int
    margin: float
    norm: float
    method: str
    relaxation: str
    seconds: float
    tokens: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        return [{"words": word.word, **dataclasses.asdict(word)} for word in self.words]

    def _series(self) -> list[tuple[str, str, list[float | None]]]:
        return [
            ("closest word / length", REACHED, [w.attacked_normalized for w in self.words]),
            ("certified / length", PROVED, [w.normalized for w in self.words]),
        ]

    def _unit(self) -> str:
        return f"radius over length of the embedding, {norm_name(self.norm)}"

    def _levels(self) -> dict[int, int]:
        return _weakest(((w.position,), relative(w.normalized)) for w in self.words)

    def _line(self) -> str:
        ranked = ", ".join(f"{w.word} {down(w.normalized)}" for w in self.words[:8])
        more = ", ..." if len(self.words) > 8 else ""
        return f"{norm_name(self.norm)}, radius over length: {ranked}{more}, {self.seconds:.1f} s"


def _words(tokens: tuple[str, ...], where: Iterable[int]) -> str:
    return " + ".join(tokens[i] if i < len(tokens) else f"#{i}" for i in where)


def _at(where: Iterable[int]) -> str:
    return "+".join(map(str, where))


def _weakest(found: Iterable[tuple[tuple[int, ...], int | None]]) -> dict[int, int]:
    """The strongest colour of each position."""
    colours: dict[int, int] = {}
    for where, level in found:
        if level is not None:
            colours |= {i: max(level, colours.get(i, 0)) for i in where}
    return colours


def _coloured(tokens: tuple[str, ...], levels: dict[int, int]) -> str:
    parts = []
    for i, token in enumerate(tokens):
        word = escape(visible(token))
        if i in levels:
            back, ink = LIGHT[levels[i]]
            word = f'<span style="background:{back};color:{ink};border-radius:.3em;padding:.1em .2em">{word}</span>'
        parts.append(word)
    return " ".join(parts)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

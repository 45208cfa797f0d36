"""Every option, once: its name, type, default and one line of help.

`Options` says how answers are found; a `Question` says what is asked of an input. The functions of the package, the
methods of a `Certifier` and the flags of the command line are all made from these fields. Nothing here needs torch.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, get_args

from .core.names import BoundOptions, Checked, one_of, option, whole
from .errors import InputError, short
from .norms import norm_order
from .numbers import number

PrecisionName = Literal["float64", "float32"]
if TYPE_CHECKING:
    import torch

    from .properties import AnyProperty
    from .sets import Union

    Precision = PrecisionName | torch.dtype
    Device = str | torch.device | None
else:
    AnyProperty = Union = object
    Precision = PrecisionName
    Device = str | None

AttackMethod = Literal["gradient", "enumeration"]
Place = int | str  # a position, or a word of the text
Positions = str | Sequence[Place | Sequence[Place]]
Substitutions = Mapping[str, Sequence[str]] | Mapping[int, Sequence[str]]  # of words, or of positions
Progress = Callable[[int, int], None]  # how much is done, and of how much

SPLITS_WITH_STEPS = 4
MOST_SPLITS = 1 << 14  # where time is the limit
P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Machine(Checked):
    """Where it is computed."""

    device: Device = option(None, "auto, cpu, cuda, cuda:1, ...")
    threads: int | None = option(None, "CPU threads; default: what PyTorch was told, else one for a small model.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads is not None:
            whole("threads", self.threads, least=1)


@dataclass(frozen=True, kw_only=True)
class Options(Machine, BoundOptions):
    """How answers are found."""

    steps: int = option(0, "Steps of optimising the bounds: tighter and slower.")
    splits: int | None = option(
        None, "Pieces each ball may be cut into: tighter and slower; by default 4 with steps, and any number in a time."
    )
    tolerance: float = option(1e-3, "Relative width to which a radius is searched.")
    timeout: float | None = option(None, "Seconds in which to prove as much as possible: bounds, then piece by piece.")
    dtype: Precision = option("float64", "Number format of the bounds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("steps", self.steps)
        if self.splits is not None:
            whole("splits", self.splits)
        if not (number(self.tolerance) and 0 < self.tolerance < 1):
            raise InputError(f"tolerance={self.tolerance!r}: expected a number between 0 and 1")
        if self.timeout is not None and not (number(self.timeout) and self.timeout > 0):
            raise InputError(f"timeout={self.timeout!r}: expected a number of seconds above 0")
        object.__setattr__(self, "dtype", precision_name("dtype", self.dtype))
        if self.method == "ibp" and (self.steps or (self.splits or 0) > 1):
            raise InputError(
                f"method='ibp', steps={self.steps}, splits={self.splits}: intervals have nothing to refine"
            )

    @property
    def most_splits(self) -> int:
        """Into how many pieces a ball may be split."""
        if self.splits is not None:
            return self.splits
        if self.timed and self.method != "ibp":
            return MOST_SPLITS
        return SPLITS_WITH_STEPS if self.steps else 0

    @property
    def timed(self) -> bool:
        """Whether a time is given in which to prove as much as possible."""
        return self.timeout is not None or self.seconds is not None


@dataclass(frozen=True, kw_only=True)
class Question(Checked):
    """Which words move, how that is measured, and which answer is defended."""

    norm: float | str = option(2, "1, 2, inf or another number from 1 on.")
    words: int | None = option(None, "Move every set of this many words at once; default: 1.")
    positions: Positions | None = option(
        None, "Only these, positions or words: 2,3 or great,film each alone, 2+3 or great+film together."
    )
    joint: bool = option(False, "One norm over all words that move together, instead of one for each.")
    label: int | None = option(None, "The class to defend; default: the predicted one.")
    progress: Progress | None = option(None, "Called with how much is done, and of how much.", flag=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "norm", norm_order(self.norm))
        if self.words is not None and self.positions is not None:
            raise InputError(
                f"words={self.words!r}, positions={short(self.positions)}: give one of the two; "
                'words that move together are written [[1, 2]] or "1+2"'
            )

    @property
    def p(self) -> float:
        """The norm as a number."""
        return float(self.norm)


@dataclass(frozen=True, kw_only=True)
class RadiusQuestion(Question):
    """How far the words may move."""

    certificates: str | Path | None = option(None, "Folder for the proofs, a file for each set of words.")
    within: Union | None = option(
        None, "Instead of words: a Box or a Ball, or a list of them; radii are in units of the set.", flag=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_set(self)


@dataclass(frozen=True, kw_only=True)
class BoundsQuestion(Question):
    """The margins within a radius."""

    eps: float | Sequence[float] | torch.Tensor | None = option(None, "How far each chosen word may move.")
    rounding: bool = option(True, "Account for floating point; without it nothing is proved.", flag=False)
    within: Union | None = option(None, "Instead of eps: a Box, a Ball, or a list of them.", flag=False)
    property: AnyProperty | None = option(None, "What is bounded; default: the margins.", flag=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_set(self)


@dataclass(frozen=True, kw_only=True)
class Beside(Checked):
    """What is done besides proofs."""

    attack: bool = option(True, "Search counterexamples beside the proofs.")


@dataclass(frozen=True, kw_only=True)
class CertifyQuestion(Beside, Question):
    """A verdict within a radius, or under substitutions."""

    eps: float | None = option(None, "How far each chosen word may move.")
    substitutions: Substitutions | None = option(None, "What may replace which words, any of them at once.", flag=False)
    replaced: int | None = option(
        None, "With substitutions: at most this many words at once; default: any.", flag=False
    )
    within: Union | None = option(None, "Instead: a Box, a Ball, Words, or a list of them.", flag=False)
    certificate: str | Path | None = option(None, "File for the proof, of one set of words or of substitutions.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_set(self)
        if self.within is None and (self.eps is None) == (self.substitutions is None):
            raise InputError(f"eps={self.eps!r}, substitutions={short(self.substitutions)}: give one of the two")
        if self.eps is not None and not (number(self.eps) and 0 <= self.eps < math.inf):
            raise InputError(f"eps={self.eps!r}: expected a finite radius of 0 or more")
        if self.replaced is not None:
            whole("replaced", self.replaced, least=1)
            if self.substitutions is None or self.certificate is not None:
                missing = "substitutions" if self.substitutions is None else "a proof as a file"
                raise InputError(
                    f"replaced={self.replaced}: {'needs' if self.substitutions is None else 'has no'} {missing}"
                )
        if self.substitutions is not None and (self.words is not None or self.positions is not None):
            raise InputError(
                f"substitutions={short(self.substitutions)}, words={self.words!r}, positions={short(self.positions)}: "
                "the substitutions say themselves which words change"
            )


@dataclass(frozen=True, kw_only=True)
class Tries(Checked):
    """How long an attack looks."""

    attack_steps: int = option(50, "Gradient steps of each start of the attack.")
    restarts: int = option(3, "Starts of the attack.")
    seed: int = option(0, "Seed of the attack's random starts.")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("attack_steps", self.attack_steps, least=1)
        whole("restarts", self.restarts, least=1)


@dataclass(frozen=True, kw_only=True)
class VerifyQuestion(Beside, Tries):
    """Whether a property of the outputs holds on a set of inputs."""

    within: Union | None = option(None, "A Box, a Ball, Words, or a list of them.", flag=False)
    property: AnyProperty | None = option(None, "What is to hold; default: the label stays.", flag=False)
    label: int | None = option(None, "The class that properties speak of; default: the predicted one.")
    progress: Progress | None = option(None, "Called with how much is done, and of how much.", flag=False)


@dataclass(frozen=True, kw_only=True)
class AttackOptions(Tries):
    """How counterexamples are searched."""

    attack_method: AttackMethod = option("gradient", "Move embeddings freely, or try every word of the vocabulary.")
    attack_dtype: Precision = option("float32", "Number format of the attack; what it finds is checked in float64.")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("attack_method", self.attack_method, get_args(AttackMethod))
        object.__setattr__(self, "attack_dtype", precision_name("attack_dtype", self.attack_dtype))


@dataclass(frozen=True, kw_only=True)
class AttackQuestion(AttackOptions, Question):
    """The smallest change that an attack finds."""


@dataclass(frozen=True, kw_only=True)
class ImportanceQuestion(Question):
    """Which words matter."""

    upper: bool = option(True, "Rank by the closest word that changes the answer, too.")


# what the functions of the package take: a question and how to answer it


@dataclass(frozen=True, kw_only=True)
class RadiusCall(Options, RadiusQuestion):
    """`cf.radius` and `cf.radii`."""


@dataclass(frozen=True, kw_only=True)
class BoundsCall(Options, BoundsQuestion):
    """`cf.bounds`."""


@dataclass(frozen=True, kw_only=True)
class CertifyCall(Options, CertifyQuestion):
    """`cf.certify`."""


@dataclass(frozen=True, kw_only=True)
class VerifyCall(Options, VerifyQuestion):
    """`cf.verify`."""


@dataclass(frozen=True, kw_only=True)
class AttackCall(Machine, AttackQuestion):
    """`cf.attack`."""


@dataclass(frozen=True, kw_only=True)
class ImportanceCall(Options, ImportanceQuestion):
    """`cf.importance`."""


def settings(*objects: Any, device: str, **more: Any) -> dict[str, Any]:
    """The settings of a document: what the flags of some objects say, in the order of the fields, as it goes into JSON.

    Norms are among `more`, by their names; how many threads there were says nothing about a result.
    """
    found: dict[str, Any] = {}
    for each in objects:
        for f in fields(each):
            if f.metadata.get("flag", "help" in f.metadata) and f.name not in ("norm", "threads"):
                found.setdefault(f.name, getattr(each, f.name))
    return {**more, **{name: _plain(value) for name, value in found.items()}, "device": device}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def _one_set(question: RadiusQuestion | BoundsQuestion | CertifyQuestion) -> None:
    """Refuse a set that is given beside a radius or what goes with one."""
    if question.within is None:
        return
    for name in ("eps", "substitutions", "words", "positions", "certificate", "certificates"):
        if getattr(question, name, None) is not None:
            raise InputError(f"within={short(question.within)}, {name}=...: the set says itself what varies")


def only(kind: type[R], given: Any) -> R:
    """The fields of one class, of an object that has them and more."""
    return kind(**{f.name: getattr(given, f.name) for f in fields(kind)})  # type: ignore[arg-type]


def keywords(
    kind: Callable[P, C], **aliases: str
) -> Callable[[Callable[[A, B, C], R]], Callable[Concatenate[A, B, P], R]]:
    """Lets a function `(model, inputs, call)` take the fields of `call` as keyword arguments, typed as there.

    `aliases` are names of before and what they are called now.
    """

    def decorate(function: Callable[[A, B, C], R]) -> Callable[Concatenate[A, B, P], R]:
        known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
        own = list(inspect.signature(function).parameters.values())[:2]
        signature = inspect.Signature([*own, *inspect.signature(kind).parameters.values()])

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> R:
            leading = {p.name: given.pop(p.name) for p in own if p.name in given}
            current = _current(function.__name__, known, aliases, given)
            bound = signature.bind(*args, **leading, **current).arguments
            return function(*(bound.pop(p.name) for p in own), kind(**bound))  # type: ignore[call-arg]

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Callable[Concatenate[A, B, P], R], called)

    return decorate


def _current(name: str, known: list[str], aliases: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments by the names of today; one that there is not is an error that names the nearest."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in aliases:
            warnings.warn(f"{name}({key}=...) is called {aliases[key]}= now", DeprecationWarning, stacklevel=3)
        now = aliases.get(key, key)
        if now not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}=?" if close else f"there are {', '.join(known)}"
            raise TypeError(f"{name}() has no option {key}=; {hint}")
        found[now] = value
    return found


def precision_name(name: str, value: Precision) -> str:
    """A number format by its name: `torch.float64` is "float64"."""
    named = str(value).removeprefix("torch.")
    if named not in get_args(PrecisionName):
        raise InputError(f"{name}={value!r}: expected {' or '.join(get_args(PrecisionName))}")
    return named

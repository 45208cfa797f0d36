"""The options of a sweep, once: what is asked of every sentence, which sentences, and where the work is done."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ..core.names import Checked, one_of, option, whole
from ..errors import InputError, short
from ..norms import norm_order
from ..numbers import asked, number
from ..options import AttackOptions, Beside, Options

Split = Literal["train", "dev", "test"]
Where = Literal["here", "ray"]
Numbers = float | str | Sequence[float | str]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SweepQuestion(Beside, AttackOptions):
    """What is asked of every sentence, for each norm and each number of words."""

    norm: Numbers = option(2, "1, 2, inf or another number from 1 on; several with commas between them.")
    words: Numbers = option(1, "Move every set of this many words at once; several with commas between them.")
    eps: Numbers | None = option(None, "Radii to decide, with commas between them; default: radii are searched.")
    quick: bool = option(True, "Bound by backward-forward first: what that proves is not asked again.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "norm", _several("norm", self.norm, norm_order))
        object.__setattr__(self, "words", _several("words", self.words, _count))
        eps = () if self.eps is None or self.eps == () else _several("eps", self.eps, _radius)
        object.__setattr__(self, "eps", tuple(sorted(eps)))

    @property
    def norms(self) -> tuple[float, ...]:
        """The norms as numbers."""
        return self.norm  # type: ignore[return-value]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many words move at once."""
        return self.words  # type: ignore[return-value]

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii to decide, smallest first; none where they are searched."""
        return self.eps  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Selection(Checked):
    """Which sentences of a data set."""

    split: Split = option("test", "Which part of the data.")
    sentences: int | None = option(None, "Take this many, drawn at random; default: all.")
    draw: int = option(0, "Seed of that choice.")
    max_length: int | None = option(None, "Leave out sentences of more words than this.")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("split", self.split, get_args(Split))
        whole("draw", self.draw)
        for name in ("sentences", "max_length"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1)


@dataclass(frozen=True, kw_only=True)
class Running(Checked):
    """Where the work is done, and in which parts."""

    out: Path | str | None = option(None, "Folder of the results; the same command goes on from what it holds.")
    workers: int | None = option(None, "Processes at work, each with a copy of the model; default: 1, on Ray all CPUs.")
    on: Where = option("here", "On this machine, or on Ray: the cluster of RAY_ADDRESS, else one started here.")
    num_gpus: float = option(0.0, "GPUs of each worker on Ray; 0.5 puts two on one.")
    shard: str | None = option(None, "Only part K of N, written K/N: N commands, on any machines, do all.")
    batch: int | None = option(None, "Sets of words to bound together; default: those of a sentence, 256 on a GPU.")
    retries: int = option(3, "How often work is tried again whose worker died.")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("on", self.on, get_args(Where))
        whole("retries", self.retries)
        for name in ("workers", "batch"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least=1)
        if not (number(self.num_gpus) and 0 <= self.num_gpus < math.inf):
            raise InputError(f"num_gpus={self.num_gpus!r}: expected a number of 0 or more")
        if self.num_gpus and self.on != "ray":
            raise InputError(f"num_gpus={self.num_gpus:g}, on={self.on!r}: GPUs are shared out on Ray; give on='ray'")
        self.part  # noqa: B018  (checked here)

    @property
    def part(self) -> tuple[int, int]:
        """Which part, from 1 on, of how many."""
        if self.shard is None:
            return 1, 1
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", str(self.shard))
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise InputError(f"shard={self.shard!r}: expected K/N with K from 1 to N, as in 3/8")
        return int(found[1]), int(found[2])


@dataclass(frozen=True, kw_only=True)
class SweepCall(Options, SweepQuestion, Selection, Running):
    """`cf.sweep`."""

    progress: Callable[[str], None] | None = option(None, "Called with a line now and then.", flag=False)


def _several(name: str, given: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """One value, several, or several with commas between them; each once."""
    written = given.split(",") if isinstance(given, str) else given
    values: Iterable[Any] = written if isinstance(written, (list, tuple)) else [written]
    found = tuple(dict.fromkeys(read(v.strip() if isinstance(v, str) else v) for v in values))
    if not found:
        raise InputError(f"{name}={short(given)}: expected a number, or several")
    return found


def _count(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7:
        value = int(value)
    whole("words", value, least=1)
    return int(value)


def _radius(value: Any) -> float:
    try:
        radius = asked(value) if isinstance(value, str) else value
    except InputError as error:
        raise InputError(f"eps: {error}") from None
    if not (number(radius) and 0 <= radius < math.inf):
        raise InputError(f"eps={value!r}: expected a finite radius of 0 or more")
    return float(radius)

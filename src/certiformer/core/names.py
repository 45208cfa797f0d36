"""What can be chosen of the core, by name. Nothing here needs torch, so that a command line can offer it at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import InputError

Method = Literal["ibp", "forward", "backward", "backward-forward"]
AutoMethod = Literal["auto", Method]
Relaxation = Literal["paper", "tight"]
Budget = Literal["fast", "balanced", "tight"]
SECONDS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?s")  # a budget in seconds
Arithmetic = Literal["real", "float32"]
METHODS: tuple[Method, ...] = get_args(Method)
RELAXATIONS: tuple[Relaxation, ...] = get_args(Relaxation)


def option(default: Any, help: str, *, flag: bool = True) -> Any:
    """A field with its help; without a flag it is for Python alone."""
    return field(default=default, metadata={"help": help, "flag": flag})


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse what is not among the known names."""
    if value not in known:
        raise InputError(f"{name}={value!r}: expected one of {', '.join(known)}")


def whole(name: str, value: object, *, least: int = 0) -> None:
    """Refuse anything but a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name}={value!r}: expected a whole number of {least} or more")


class Checked:
    """Fields are checked when the object is made, those of every base class by that class."""

    def __post_init__(self) -> None:
        """The end of the line."""


@dataclass(frozen=True, kw_only=True)
class BoundOptions(Checked):
    """How bounds are computed."""

    method: AutoMethod = option("auto", "How bounds are computed; auto takes the tightest that the budget allows.")
    relaxation: Relaxation = option("tight", "Which linear bounds of the operations.")
    arithmetic: Arithmetic = option(
        "real", "Of the model: its exact function, or as it runs in float32, whatever the order of its sums."
    )
    budget: Budget | str = option(
        "balanced", "Time that an input may take by auto: fast, balanced (10 s), tight, or seconds to use in full: 10s."
    )
    max_memory: int | None = option(None, "Bytes that the bounds may take; default: half of what is free.")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method", self.method, get_args(AutoMethod))
        one_of("relaxation", self.relaxation, RELAXATIONS)
        one_of("arithmetic", self.arithmetic, get_args(Arithmetic))
        if self.budget not in get_args(Budget) and not self.seconds:
            known = ", ".join(get_args(Budget))
            raise InputError(f"budget={self.budget!r}: expected one of {known}, or seconds above 0 such as 10s")
        if self.max_memory is not None:
            whole("max_memory", self.max_memory, least=1)

    @property
    def seconds(self) -> float | None:
        """What the budget is in seconds, where it is given so."""
        found = SECONDS.fullmatch(self.budget) if isinstance(self.budget, str) else None
        return None if found is None else float(found[1])

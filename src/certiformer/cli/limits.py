"""Time: how long a command should take, and what is left of what it may take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import CertiformerError
from ..options import Question, only
from .reading import Item
from .terminal import say

if TYPE_CHECKING:
    from ..api import Certifier

LONG = 60.0  # seconds from which on a command says so before it begins
LOOKED = 8  # sentences that are looked at to know how long all will take
LEAST = 1e-3  # seconds that a question gets however late it is


def tell_if_long(certifier: Certifier, items: Sequence[Item], question: Question, norms: int) -> None:
    """One line where certified radii should take more than a minute, with what would be cheaper."""
    from ..questions.estimate import spoken

    looked = [item.text for item in items[:: max(1, len(items) // LOOKED)][:LOOKED]]
    try:
        found = certifier.estimate(looked, **vars(only(Question, question)))
    except CertiformerError:
        return  # the sentence that is wrong is told when its turn comes
    times = norms * len(items) / len(looked)
    if found.seconds * times < LONG:
        return
    cheaper = ", ".join(f"--method {name} {spoken(seconds * times)}" for name, seconds in found.cheaper)
    told = f"; cheaper: {cheaper}" if cheaper else ""
    say(
        f"this should take about {spoken(found.seconds * times)} and {max(1, found.memory // 2**20):,} MiB "
        f"({found.chosen}){told}; --timeout ends it with what is proved by then"
    )


@dataclass(frozen=True)
class Clock:
    """The time of a whole command, from when it is made: `parts` questions share what is left at a sentence."""

    certifier: Certifier
    limit: float | None
    parts: int
    began: float

    @classmethod
    def of(cls, certifier: Certifier, parts: int = 1) -> Clock:
        return cls(certifier, certifier.options.timeout, parts, time.perf_counter())

    @property
    def left(self) -> float | None:
        return None if self.limit is None else self.limit - (time.perf_counter() - self.began)

    def over(self) -> bool:
        """Whether no time is left."""
        return self.left is not None and self.left <= 0

    def share(self) -> None:
        """Tell the certifier what the next sentences may take."""
        if self.left is not None:
            timeout = max(LEAST, self.left / self.parts)
            self.certifier.options = replace(self.certifier.options, timeout=timeout)

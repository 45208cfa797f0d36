"""Which radius of a list is proved for every set of words of a sentence, with few questions.

A sentence is no better than its weakest set, so nothing is asked of the others that it has already failed. The set with
the closest counterexample is asked about alone, at the largest radius that is not refuted and then by halves; the
others are asked about at the radius that it reached. Where some fail there, they are the weakest, and it goes on below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Level:
    """How many of the radii, the smallest first, are proved for each set; `most` are not refuted.

    `weakest` are the sets to begin with. `aim` says what to ask next, `take` is told the answers.
    """

    sets: int
    most: int
    weakest: list[int]
    proved: list[int] = field(init=False)
    high: int = field(init=False)  # no more than these can be proved of all sets

    def __post_init__(self) -> None:
        self.proved = [0] * self.sets
        self.high = self.most

    def again(self) -> None:
        """Another way of bounding may prove what was given up: what is proved stays."""
        self.high = self.most

    @property
    def aim(self) -> tuple[list[int], int] | None:
        """Sets, and how many of the radii they are to be proved for; None where all is known."""
        low = min((self.proved[k] for k in self.weakest), default=self.high)
        if low < self.high:
            # the largest first, then by halves
            at = self.high if self.high == self.most and not any(self.proved) else (low + self.high + 1) // 2
            return [k for k in self.weakest if self.proved[k] < at], at
        others = [k for k, reached in enumerate(self.proved) if reached < self.high]
        return (others, self.high) if others else None

    def take(self, asked: Sequence[int], at: int, good: Iterable[bool]) -> None:
        """What came of the question."""
        failed = []
        for k, proved in zip(asked, good, strict=True):
            if proved:
                self.proved[k] = at
            else:
                failed.append(k)
        if failed:
            self.high, self.weakest = at - 1, failed

    @property
    def reached(self) -> int:
        """How many of the radii are proved for every set."""
        return min(self.proved, default=0)

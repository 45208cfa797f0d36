"""The weight of a loss for certificates over a training: it rises when something is learned, and backs off where
accuracy is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..recipe import Recipe

BEGIN = 0.25  # share of the steps before which the weight is 0
RISING = 2 / 3  # of what is left then, until it is whole
LOST = 0.05  # accuracy below what may be lost: the weights before are taken up again
LEARNED = 0.05  # accuracy above that of one answer for all: before, there is nothing to lose


@dataclass(frozen=True)
class Rising:
    """How the weight goes: whole at the share `full` of the steps, after it began at `begin`."""

    recipe: Recipe
    history: Sequence[tuple[float, float]]  # loss and dev accuracy of the evaluations so far
    evaluations: int  # in all
    chance: float  # accuracy of one answer for all

    @property
    def begin(self) -> float:
        """Share of the steps at which it begins; 1 while nothing is learned."""
        learned = (k + 1 for k, (_, dev) in enumerate(self.history) if dev > self.chance + LEARNED)
        return max(BEGIN, next(learned, self.evaluations) / self.evaluations)

    @property
    def full(self) -> float:
        """Share of the steps at which the weight is whole."""
        return self.begin + RISING * (1 - self.begin)

    @property
    def _plain(self) -> list[float]:
        """Dev accuracies of the evaluations before it began."""
        return [dev for k, (_, dev) in enumerate(self.history) if k == 0 or (k + 1) / self.evaluations <= self.begin]

    def _below(self, dev: float, by: float = 0.0) -> bool:
        return dev < max(self._plain) - self.recipe.allowed_loss - by

    @property
    def within(self) -> bool:
        """Whether the last evaluation is as good as the best one without the penalty, less what may be lost."""
        return len(self.history) == len(self._plain) or not self._below(self.history[-1][1])

    @property
    def lost(self) -> bool:
        """Whether it lies so far below that there is no way back."""
        return not self.within and self._below(self.history[-1][1], LOST)

    @property
    def halved(self) -> int:
        """How often the weight was halved: at every evaluation that is lost, and for every two in a row, since the last
        time, that lie further below the best one without the penalty than is allowed."""
        count = low = 0
        for _, dev in self.history[len(self._plain) :]:
            low = low + 1 if self._below(dev) else 0
            if low == 2 or self._below(dev, LOST):
                count, low = count + 1, 0
        return count

    def part(self, share: float) -> float:
        """What part of its weight the loss has when a share of the steps is done."""
        if share <= self.begin:
            return 0.0
        return float(min(1.0, (share - self.begin) / (self.full - self.begin)) * 0.5**self.halved)

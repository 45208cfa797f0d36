"""At which share of the way to the end of a margin a part of it is usually gone, and where instances say otherwise.

The *loss* at a radius is the part of the margin that is gone there, and the *end* the radius at which all of it is. How
the loss grows is much the same for all words of a sentence, and often for all models: so what was found of a few
instances tells, by one loss of another, where its end is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median

# (loss, share of the way to the end), as it usually goes: measured on models of one to three layers. From a loss of a
# half on the same curve fits them all, smooth or steep, when the logarithm of the share is scaled; below, it fits less.
USUAL = (
    (0.002, 0.06), (0.02, 0.30), (0.05, 0.48), (0.09, 0.60), (0.18, 0.735), (0.26, 0.775), (0.36, 0.8334),
    (0.5, 0.8875), (0.6, 0.9166), (0.75, 0.9528), (0.9, 0.983), (1.0, 1.0), (1.1, 1.0154), (1.2, 1.0295), (1.3, 1.0422),
    (1.6, 1.0779), (1.9, 1.1105), (2.5, 1.1656),
)  # fmt: skip
LEAST, MOST = USUAL[0][0], USUAL[-1][0]  # less is the slope at 0 alone; with more the relaxation has collapsed
NOTHING = 1e-12  # a loss that rounding alone may be

TOO_NEAR = 0.01  # logarithm of a share: nearer to the end, how fast it was reached says little
ALIKE = 0.05  # losses as near as this are taken together


@dataclass(frozen=True)
class Curve:
    """The share of the way to the end by the loss: the usual one, reached faster or more slowly."""

    faster: tuple[tuple[float, float], ...] = ()  # losses, and logarithms of how much faster they come

    def share(self, loss: float) -> float:
        """The logarithm of the share at which this much is lost."""
        usual = usual_share(loss)
        return usual / math.exp(self._faster(loss)) if self.faster else usual

    def _faster(self, loss: float) -> float:
        k = bisect_right(self.faster, (loss, math.inf))
        if k in (0, len(self.faster)):
            return self.faster[min(k, len(self.faster) - 1)][1]
        (a, x), (b, y) = self.faster[k - 1], self.faster[k]
        return x + (y - x) * (loss - a) / (b - a)

    @staticmethod
    def through(points: Iterable[tuple[float, float]]) -> Curve:
        """By losses with the logarithms of the shares at which they were met."""
        known: list[tuple[float, float]] = []
        for loss, share in points:
            usual = usual_share(loss)
            if LEAST < loss < MOST and abs(share) > TOO_NEAR and usual * share > 0:
                known.append((loss, math.log(usual / share)))
        groups: list[list[tuple[float, float]]] = []
        for point in sorted(known):
            if groups and point[0] - groups[-1][0][0] < ALIKE:
                groups[-1].append(point)
            else:
                groups.append([point])
        return Curve(tuple((mean(loss for loss, _ in some), median(f for _, f in some)) for some in groups))


def usual_share(loss: float) -> float:
    """The logarithm of the share of the way to the end at which this much is usually lost."""
    loss = max(loss, NOTHING) if loss < MOST else MOST  # no number has collapsed too
    k = max(1, min(bisect_right(USUAL, (loss, 0.0)), len(USUAL) - 1))
    (a, x), (b, y) = USUAL[k - 1], USUAL[k]
    t = math.log(loss / a) / math.log(b / a)
    return (1 - t) * math.log(x) + t * math.log(y)

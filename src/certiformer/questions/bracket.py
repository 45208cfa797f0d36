"""What is known of one instance while its radius is searched, and where to look next.

The words used here: the *loss* at a radius is the part of the margin that is gone there, `1 - margin / nominal`; the
*end* is the radius at which it is 1. `USUAL` says at which share of the way to the end a loss is usually met. So every
evaluation says where the end should be, and two of them correct that for this instance (`root`). `docs/method.md` has
an example, step by step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

# (loss, share of the way to the end), as it usually goes: measured on models of one to three layers. The loss grows
# ever more steeply until the relaxation has nothing left to lose.
USUAL = (
    (0.02, 0.30), (0.05, 0.48), (0.09, 0.60), (0.18, 0.735), (0.26, 0.80), (0.36, 0.85), (0.5, 0.90), (0.6, 0.922),
    (0.75, 0.957), (1.0, 1.0), (1.13, 1.021), (1.33, 1.055), (1.55, 1.095), (1.8, 1.2), (2.0, 1.33), (2.2, 1.45),
    (2.5, 1.75), (2.8, 2.1), (3.5, 2.5),
)  # fmt: skip
LEAST, MOST = USUAL[0][0], USUAL[-1][0]  # less is the slope at 0 alone; with more the relaxation has collapsed
FLATTEST, STEEPEST = 0.05, 25.0  # powers of the usual growth that are believed
STRAIGHT = 3  # with one evaluation: the power with which a loss close to the gradient's speaks for a straight line

# how far from where the end should be, in units of the tolerance
COARSE = 4.0  # a draft may stop this far from it
INSIDE = 0.15  # before it: where a proof is tried
NUDGE = 0.35  # past it, toward the far side of the bracket, so that the bracket closes from both sides
CLOSING = 0.95  # from one side of the bracket: an answer there closes it
SURE = 3.0  # a side is aimed at where the end is beyond it by this part of a nudge

BIAS = 2e-4  # what a draft takes off the radius to be safe, as a share of it, where the loss grows as usual
PATIENCE = 3  # evaluations that do not halve the bracket before it is halved
UP, UP_MOST = 4.0, 8.0  # how many times farther to look while nothing has been refused: blindly, and at most
DOWN, DOWN_BLIND, DOWN_MOST = 1 / 4, 1 / 8, 1 / 16  # how far down to look while nothing has been proved
CLIFF_GROWTH, CLIFF_MOST = 4.0, 0.125  # steps down from a guess that was refused, each so much longer; and at most


class Seen(NamedTuple):
    """An evaluation: logarithms of the share of the way to the end, by its loss, and of the radius."""

    share: float
    radius: float


@dataclass
class Bracket:
    """What is known of one instance: proved at `low`, not proved at `high`, and what the margin lost on the way."""

    nominal: float  # the margin at radius 0
    linear: float  # where it would end if it went on as it begins
    low: float = 0.0
    high: float = math.inf
    guess: float | None = None  # where it should end, as a draft or a wider bound says
    limit: float = math.inf  # what the draft could not prove, if it fell off a cliff there
    power: float = 1.0  # of the usual growth with which the loss grows, as far as one evaluation alone has to say
    verified: float = 0.0  # the largest radius proved with rounding accounted for
    seen: list[Seen] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of those
    stalled: int = 0  # evaluations in a row that did not halve the bracket
    refused: int = 0  # evaluations that proved nothing

    def take(self, eps: float, margin: float, rounding: bool) -> None:
        """Enter an evaluation."""
        width = self.high - self.low
        if margin > 0:
            self.low = eps
            self.verified = eps if rounding else self.verified
        else:
            self.high = eps
            self.refused += 1
        loss = 1 - margin / self.nominal
        if LEAST < loss < MOST:
            self.seen.append(Seen(usual_share(loss), math.log(eps)))
            self.losses.append(loss)
        if math.isfinite(width):
            self.stalled = self.stalled + 1 if self.high - self.low > width / 2 else 0

    def closed(self, tolerance: float) -> bool:
        """Whether the end is known: between a proof and a refusal, or by a guess that a proof has come close to."""
        if math.isfinite(self.high) and self.high - self.low <= tolerance * self.high:
            return True
        near = self.guess is not None and self.verified == self.low > 0 and bool(self.seen)
        return near and all(self.low <= root <= self.low * (1 + tolerance) for root in self._roots())

    def settled(self, tolerance: float) -> bool:
        """Whether the end is known well enough to be a guess: so near to an evaluation that interpolating is exact."""
        nearest = min((abs(x.share) for x in self.seen), default=math.inf)
        return (len(self.seen) > 1 and nearest < COARSE * tolerance * self.steepness()) or self.closed(tolerance)

    def aim(self, tolerance: float, hint: float) -> float:
        """Where to evaluate next; `hint` is where to start without a guess."""
        if not self.seen:
            return self._blind(tolerance, hint)
        if math.isinf(self.high):
            return self._upward(tolerance)
        if self.stalled >= PATIENCE or not self.low < self.root() < self.high:  # what was seen does not say: halve
            self.stalled = 0
            return math.sqrt(self.low * self.high) if self.low > 0 else self.high * DOWN
        return self._between(tolerance)

    def _upward(self, tolerance: float) -> float:
        """Where to evaluate while nothing has been refused: past the end to close the bracket, or before to prove."""
        ahead = NUDGE if self.guess is None else -INSIDE
        most = self.limit if self.limit > self.low else UP_MOST * self.low
        return min(max(self.root() * (1 + ahead * tolerance), self.low * (1 + NUDGE * tolerance)), most)

    def _between(self, tolerance: float) -> float:
        """Where to evaluate between a proof and a refusal: where either answer closes most."""
        root, nudge = self.root(), NUDGE * tolerance * self.high
        below, above = self.high * (1 - CLOSING * tolerance), self.low / (1 - CLOSING * tolerance)
        if self.low < below and below + nudge / SURE < root:  # proved here, it would be closed
            return below
        if above < self.high and root + nudge / SURE < above:  # refused here, it would be closed
            return above
        root += nudge if root - self.low < self.high - root else -nudge
        return min(max(root, self.low + nudge, self.high * DOWN_MOST), self.high - nudge)

    def _first(self, tolerance: float) -> float:
        """Where the proof is tried first: a little before the guess, and behind it by what float32 was too careful."""
        assert self.guess is not None
        careful = min(BIAS / self.power, tolerance) if math.isinf(self.limit) else 0.0
        return self.guess * (1 - INSIDE * tolerance + careful)

    def _blind(self, tolerance: float, hint: float) -> float:
        """Where to evaluate while no margin has said anything."""
        if self.guess is not None:
            first = self._first(tolerance)
            if self.low < first < self.high:
                return first
            if self.low == 0:  # a cliff, and a little before the guess: down from there in growing steps
                return self.high * max(1 - CLOSING * tolerance * CLIFF_GROWTH ** (self.refused - 1), CLIFF_MOST)
        elif self.low < CLOSING * hint < CLOSING * CLOSING * self.high:
            return hint
        if math.isinf(self.high):
            return UP * self.low
        return math.sqrt(self.low * self.high) if self.low > 0 else self.high * DOWN_BLIND

    def root(self) -> float:
        """Where the margin should end: by the two evaluations nearest to it, or the nearest on either side."""
        return next((root for root in self._roots() if self.low < root < self.high), self._roots()[-1])

    def _roots(self) -> list[float]:
        """The same by the two nearest, then by the nearest on either side where those are on one: where the margin
        falls off a cliff they do not agree."""
        first, *others = sorted(self.seen, key=lambda x: abs(x.share))
        if not others:
            return [self._alone(first)]
        across = [x for x in others if (x.share > 0) != (first.share > 0)]
        pairs = dict.fromkeys([others[0], *across[:1]])
        return [_crossing(first, _power(first, other)) for other in pairs]

    def _alone(self, seen: Seen) -> float:
        """Where the margin should end by one evaluation: as usual, or, the straighter it fell so far, on a line."""
        usual = _crossing(seen, self.power)
        if self.guess is not None:
            return usual
        eps, loss = math.exp(seen.radius), self.losses[0]
        straight = min(eps / self.linear / loss, 1.0) ** STRAIGHT
        return math.exp((1 - straight) * math.log(usual) + straight * math.log(eps / loss))

    def steepness(self) -> float:
        """How much faster than usual the loss grows near its end."""
        near = sorted(self.seen, key=lambda x: abs(x.share))[:2]
        return _power(*near) if len(near) == 2 else self.power

    def followed(self, tolerance: float) -> Bracket:
        """The bracket to begin with where this one, of a draft, is settled."""
        start = Bracket(self.nominal, self.linear)
        if self.settled(tolerance):
            root = self.root() if self.seen else 0.0
            smooth = max(self.low, root / 2) < root < self.high
            start.guess = root if smooth else self.low
            start.limit = math.inf if smooth else self.high
            start.power = self.steepness()
        return start


def usual_share(loss: float) -> float:
    """The logarithm of the share of the way to the end at which this much is usually lost."""
    k = min(bisect_right(USUAL, (loss, 0.0)), len(USUAL) - 1)
    (a, x), (b, y) = USUAL[k - 1], USUAL[k]
    t = math.log(loss / a) / math.log(b / a)
    return (1 - t) * math.log(x) + t * math.log(y)


def _power(a: Seen, b: Seen) -> float:
    """How much faster than usual the loss grows between two evaluations."""
    if a.radius == b.radius:
        return 1.0
    return min(max((b.share - a.share) / (b.radius - a.radius), FLATTEST), STEEPEST)


def _crossing(a: Seen, power: float) -> float:
    """The radius of the end, from one evaluation on."""
    return math.exp(a.radius - a.share / power)

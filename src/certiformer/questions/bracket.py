"""What is known of one instance while its radius is searched, and where to look next.

The words used here: the *loss* at a radius is the part of the margin that is gone there, `1 - margin / nominal`; the
*end* is the radius at which it is 1. A curve (`curve.py`) says at which share of the way to the end a loss is met. So
every evaluation says where the end should be, and two of them correct that for this instance by a power. Between a
radius before the end and one past it the chord of the two and what lies beyond a third one are weighed (`root`). Where
the margin says nothing, off a cliff, what is left is to halve: what a draft left open, as long as no proof denies that.
`docs/method.md` has an example, step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .curve import LEAST, MOST, Curve, usual_share

FLATTEST, STEEPEST = 0.05, 100.0  # powers of the usual growth that are believed
STRAIGHT = 3  # with one evaluation: the power with which a loss close to the gradient's speaks for a straight line

# a draft may stop
SETTLED = 0.08  # this near to the end, in logarithms of radii,
GIVEN_UP = 3  # or after so many refusals where it has proved nothing: single precision may not see the end at all
KNOWN, ENOUGH = 0.05, 3  # two proofs this near to the end, in logarithms of shares, or so many, know more than drafts

# how far from where the end should be, in units of the tolerance
INSIDE = 0.25  # before it: where a proof is tried
NUDGE = 0.35  # past it, toward the far side of the bracket, so that the bracket closes from both sides
CLOSING = 0.95  # from one side of the bracket: an answer there closes it
ALONE = 0.6  # how far from the end a proof may be that has only drafts beside it
SURE = 3.0  # a side is aimed at where the end is beyond it by this part of a nudge

PATIENCE = 3  # evaluations that do not halve the bracket before it is halved
UP, UP_MOST = 4.0, 8.0  # how many times farther to look while nothing has been refused: blindly, and at most
DOWN, DOWN_BLIND, DOWN_MOST = 1 / 4, 1 / 5, 1 / 8  # how far down to look while nothing has been proved
CLIFF_GROWTH, CLIFF_MOST = 4.0, 0.125  # steps down from a guess that was refused, each so much longer; and at most


class Seen(NamedTuple):
    """An evaluation: logarithms of the share of the way to the end, by its loss, and of the radius."""

    share: float
    radius: float
    loss: float
    proof: bool

    @property
    def telling(self) -> bool:
        """Whether the loss says how far the end is."""
        return LEAST < self.loss < MOST

    def denies(self, other: Seen) -> bool:
        """Whether less is lost here, though farther away, or more, though nearer by."""
        return (self.radius - other.radius) * (self.share - other.share) <= 0


@dataclass
class Bracket:
    """What is known of one instance: proved at `low`, not proved at `high`, and what the margin lost on the way."""

    nominal: float  # the margin at radius 0
    linear: float  # where it would end if it went on as it begins
    low: float = 0.0
    high: float = math.inf
    guess: float | None = None  # where it should end, as a draft or a wider bound says
    begin: float | None = None  # where to look first where a draft never found the margin positive
    power: float = 1.0  # of the usual growth with which the loss grows, as far as one evaluation alone has to say
    verified: float = 0.0  # the largest radius proved with rounding accounted for
    curve: Curve = field(default_factory=Curve)
    seen: list[Seen] = field(default_factory=list)  # those of a draft as long as no proof denies them
    history: list[Seen] = field(default_factory=list)  # every evaluation
    held: tuple[float, ...] = ()  # where a draft found the margin positive,
    broke: tuple[float, ...] = ()  # and where not; both are empty from when a proof denied it
    strayed: int = 0  # since then, proofs in a row on the same side as that one: upward, or downward where negative
    misled: bool = False  # whether a draft was denied, or had nothing to say
    stalled: int = 0  # evaluations in a row that did not halve the bracket
    refused: int = 0  # evaluations that proved nothing

    def take(self, eps: float, margin: float, rounding: bool) -> None:
        """Enter an evaluation."""
        low, high = self.near
        width = high - low
        if margin > 0:
            self.low = eps
            self.verified = eps if rounding else self.verified
        else:
            self.high = eps
            self.refused += 1
        loss = 1 - margin / self.nominal
        entry = self._placed(Seen(self.curve.share(loss), math.log(eps), loss, rounding))
        self.history.append(entry)
        if rounding:
            self._correct(entry)
            self._stray(eps, 1 if margin > 0 else -1)
        else:
            self.seen.append(entry)
        low, high = self.near
        if math.isfinite(width) and low > 0:
            self.stalled = self.stalled + 1 if high - low > width / 2 else 0

    def _placed(self, entry: Seen) -> Seen:
        """As the curve has it; the usual one from where that says that less is lost farther away."""
        if self.curve.faster and any(entry.denies(x) for x in self.seen if x.proof == entry.proof):
            self.curve = Curve()
            self.seen = [x._replace(share=usual_share(x.loss)) for x in self.seen]
            return entry._replace(share=usual_share(entry.loss))
        return entry

    def _stray(self, eps: float, way: int) -> None:
        """Where a proof denies what a draft has left open, that is forgotten."""
        if any(x <= eps for x in self.broke) if way > 0 else any(x >= eps for x in self.held):
            self.held, self.broke, self.strayed, self.misled = (), (), way, True
        else:
            self.strayed = self.strayed + way if self.strayed * way > 0 else 0

    def _correct(self, proof: Seen) -> None:
        """Move what a draft has seen to where it agrees with a proof that denies it, and forget it where proofs say
        more."""
        proofs = [x for x in self.seen if x.proof] + [proof]
        drafts = [x for x in self.seen if not x.proof]
        both = len({x.share < 0 for x in proofs}) == 2
        if both or len(proofs) >= ENOUGH or sum(x.telling and abs(x.share) < KNOWN for x in proofs) > 1:
            drafts = []
        near = sorted((x for x in drafts if x.telling), key=lambda x: abs(x.share - proof.share))[:2]
        if near and proof.telling and any(proof.denies(x) for x in drafts):
            power = _power(*near) if len(near) == 2 else self.power
            moved = proof.radius - math.log(_crossing(near[0], power, proof.share))
            drafts = [x._replace(radius=x.radius + moved) for x in drafts]
        self.seen = proofs + [x for x in drafts if not any(p.denies(x) for p in proofs)]

    def closed(self, tolerance: float) -> bool:
        """Whether the end is known: between a proof and a refusal, or as proofs say that have come close to it."""
        if math.isfinite(self.high) and self.high - self.low <= tolerance * self.high:
            return True
        roots = self._roots() if self.verified == self.low > 0 else []
        near = tolerance if sum(x.proof for x in self.telling) > 1 else ALONE * tolerance
        return bool(roots) and all(self.low <= root <= self.low * (1 + near) for root in roots)

    def settled(self, tolerance: float) -> bool:
        """Whether a draft has done what it can: come near to the end, or proved nothing."""
        telling = self.telling
        if len(telling) > 1 or (telling and self.curve.faster):
            end = math.log(self.root())
            if min(abs(end - x.radius) for x in telling) < SETTLED:
                return True
        close = self.low > 0 and self.high <= self.low * math.exp(SETTLED)
        return (self.low == 0 and self.refused >= GIVEN_UP) or close

    @property
    def near(self) -> tuple[float, float]:
        """Between which radii the end should be, by a draft where no proof denies it."""
        high = min((x for x in self.broke if x > self.low), default=math.inf)
        low = max((x for x in self.held if x < min(high, self.high)), default=0.0)
        return max(low, self.low), min(high, self.high)

    def aim(self, tolerance: float, hint: float) -> float:
        """Where to evaluate next; `hint` is where to start without a guess."""
        low, high = self.near
        if low > 0 and low >= high * (1 - tolerance):
            return self._confirming(tolerance, low, high)
        if not self.telling:
            return self._blind(tolerance, hint)
        root, past, before = self.root(), high * (1 + NUDGE * tolerance), low * (1 - INSIDE * tolerance)
        if high <= root and past < self.high:  # a draft says otherwise: is it right?
            return past
        if self.low < before and root <= low:
            return before
        if math.isinf(self.high):
            return self._upward(tolerance)
        if self.stalled >= PATIENCE or not self.low < root < self.high:  # what was seen does not say: halve
            self.stalled = 0
            return math.sqrt(low * high) if low > 0 else high * DOWN
        return self._between(tolerance)

    def _confirming(self, tolerance: float, low: float, high: float) -> float:
        """Where to prove what a draft says: a little before the end, then past it."""
        if self.low < low * (1 - tolerance / 2):
            return low * (1 - INSIDE * tolerance)
        return min(self.low / (1 - CLOSING * tolerance), math.sqrt(self.low * self.high))

    def _upward(self, tolerance: float) -> float:
        """Where to evaluate while nothing has been refused: past the end to close the bracket, or before to prove."""
        low = self.low
        ahead = -INSIDE if self.guess is not None or self.verified > 0 else NUDGE
        most = UP_MOST * low if low else math.inf
        return min(max(self.root() * (1 + ahead * tolerance), low * (1 + NUDGE * tolerance)), most)

    def _between(self, tolerance: float) -> float:
        """Where to evaluate between a proof and a refusal: where either answer closes most."""
        low, high = self.low, self.high
        root, nudge = self.root(), NUDGE * tolerance * high
        below, above = high * (1 - CLOSING * tolerance), low / (1 - CLOSING * tolerance)
        if low < below and below + nudge / SURE < root:  # proved here, it would be closed
            return below
        if above < high and root + nudge / SURE < above:  # refused here, it would be closed
            return above
        root += nudge if root - low < high - root else -nudge
        return min(max(root, low + nudge, high * DOWN_MOST), high - nudge)

    def _blind(self, tolerance: float, hint: float) -> float:
        """Where to evaluate while no margin has said anything."""
        low, high = self.near
        if self.strayed:  # it is not far, mostly: in growing steps
            step = min(1 + CLOSING * tolerance * CLIFF_GROWTH ** abs(self.strayed), UP)
            if step * step < high / max(low, LEAST * high):
                return low * step if self.strayed > 0 else high / step
        hint = self.begin or hint
        if self.guess is not None:
            first = self.guess * (1 - INSIDE * tolerance)
            if low < first < high:
                return first
            if low == 0:  # a cliff, and a little before the guess: down from there in growing steps
                return high * max(1 - CLOSING * tolerance * CLIFF_GROWTH ** (self.refused - 1), CLIFF_MOST)
        elif low < CLOSING * hint < CLOSING * CLOSING * high:
            return hint
        if math.isinf(high):
            return UP * low
        return math.sqrt(low * high) if low > 0 else high * DOWN_BLIND

    @property
    def telling(self) -> list[Seen]:
        """What says how far the end is, the nearest to it first."""
        return sorted((x for x in self.seen if x.telling), key=lambda x: abs(x.share))

    def root(self) -> float:
        """Where the margin should end, by what was seen on both sides of it, or on one."""
        before = max((x for x in self.seen if x.share < 0), key=lambda x: x.radius, default=None)
        past = min((x for x in self.seen if x.share >= 0), key=lambda x: x.radius, default=None)
        if before is None or past is None:
            return self._beyond()
        if before.telling and past.telling:
            return self._inside(before, past)
        root, low, high = self._beyond(), math.exp(before.radius), math.exp(past.radius)
        return root if low < root < (low + high) / 2 else (low + high) / 2

    def _inside(self, before: Seen, past: Seen) -> float:
        """The end between two evaluations.

        It is mostly between their chord and where the line through a third one and the one beside it leads, since the
        curve bends one way there; the mean leans to whichever rests on what is nearer to the end. A line that leads out
        of the bracket says that a cliff is in it, anywhere.
        """
        chord = before.radius - before.share * (past.radius - before.radius) / (past.share - before.share)
        others = [x for x in self.telling if x not in (before, past)]
        if others:
            third = others[0]
            near, far = (before, past) if third.radius < before.radius else (past, before)
            power, doubt = _power(near, third), abs(third.share)
        elif before.proof and past.proof:
            return math.exp(chord)
        else:
            near, far = sorted((before, past), key=lambda x: abs(x.share))
            power, doubt = self.power, 2 * abs(near.share)
        beyond = math.log(_crossing(near, power))
        if not before.radius < beyond < past.radius:
            beyond = (before.radius + past.radius) / 2
        lean = abs(far.share) / (abs(far.share) + doubt) if doubt > 0 else 1.0
        return math.exp((1 - lean) * chord + lean * beyond)

    def _beyond(self) -> float:
        """Where the margin should end by the two evaluations nearest to it."""
        first, *others = self.telling
        return _crossing(first, _power(first, others[0])) if others else self._alone(first)

    def _roots(self) -> list[float]:
        """Where proofs say that it ends: by the two nearest, then by the nearest on either side where those are on one;
        where the margin falls off a cliff they do not agree. How others lost their margin says nothing here."""
        proofs, drafts = ([x for x in self.telling if x.proof == of] for of in (True, False))
        if len(proofs) < 2:  # it is near where a draft agrees
            if not proofs or not drafts:
                return []
            if not self.curve.faster:
                return [] if self.guess is None else [_crossing(x, self.power) for x in proofs]
            proofs.append(drafts[0])
        first, *others = [x._replace(share=usual_share(x.loss)) for x in proofs]
        across = [x for x in others if (x.share > 0) != (first.share > 0)]
        pairs = dict.fromkeys([others[0], *across[:1]])
        return [_crossing(first, _power(first, other)) for other in pairs]

    def _alone(self, seen: Seen) -> float:
        """Where the margin should end by one evaluation: as usual, or, the straighter it fell so far, on a line."""
        usual = _crossing(seen, self.power)
        if self.guess is not None or self.curve.faster:
            return usual
        eps, loss = math.exp(seen.radius), seen.loss
        straight = min(eps / self.linear / loss, 1.0) ** STRAIGHT
        return math.exp((1 - straight) * math.log(usual) + straight * math.log(eps / loss))

    def followed(self) -> Bracket:
        """The bracket to begin with where this one, of a draft, is settled."""
        start, telling = Bracket(self.nominal, self.linear, curve=self.curve, history=self.history), self.telling
        near = telling and abs(telling[0].share) < KNOWN
        if self.low == 0 and math.isfinite(self.high) and not near:  # what it saw may be its own precision
            start.begin, start.misled = self.high * DOWN, True
        else:
            start.seen = list(self.seen)
            start.guess = self.root() if telling else None
            start.power = _power(*telling[:2]) if len(telling) > 1 else self.power
            start.held = tuple(math.exp(x.radius) for x in self.seen if x.loss < 1)
            start.broke = tuple(math.exp(x.radius) for x in self.seen if not x.loss < 1)
        return start


def _power(a: Seen, b: Seen) -> float:
    """How much faster than usual the loss grows between two evaluations."""
    if a.radius == b.radius:
        return 1.0
    return min(max((b.share - a.share) / (b.radius - a.radius), FLATTEST), STEEPEST)


def _crossing(a: Seen, power: float, share: float = 0.0) -> float:
    """The radius of the end, or of another share of the way to it, from one evaluation on."""
    return math.exp(a.radius + (share - a.share) / power)

"""Branch and bound: pieces of balls that are not proved are cut in two, the worst first, each where it gains most.

What is chosen here decides how tight and how fast an answer is, never whether it is right: the pieces cover their ball
whatever the cuts are, and a proof bounds each of them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ..errors import out_of_memory
from .counting import work_of
from .deadline import Deadline
from .directions import directions, groups
from .ops.base import Parameters
from .problem import Problem
from .sets import Ball, Cuts
from .speed.batches import doubled
from .split import Found, Split, pieces_of

FEW = 2  # new directions that are tried of a piece that was cut before
LEARNED, PICKED = 16, 2  # cuts after which only so many candidates of a piece are tried
AHEAD, SPARED = 1.15, 0.5  # how far ahead those are looked at that have so much of the margin at rest left
STEPS, TUNED = 12, 0.2  # of optimising the planes of a piece, and their size
TOGETHER = 32  # pieces of which planes are optimised at once, at most
TRIED = 4  # of the time for it, one part in so many may go to the first batch; and of the pieces as many must be done
HELD = 5.0  # times the numbers that go through an evaluation that its gradient needs, about: 3.4 to 5.4 are kept
AGAIN = 2  # normals of its own, those of the last cuts, that a piece may be cut across again
LOST = 0.3  # of the margin at rest, as far below 0 a margin does not say how cuts compare
BROKEN, NEARER = 0.5, 3  # of the margin at rest, as far below 0 a goal is too far away, and how often it is taken back
BACK, STEPS_BACK = 0.92, 12  # by how much, and how often, a radius is made smaller until the margin says something


@dataclass(eq=False)
class Leaf:
    """A piece of the ball of one instance, and what is known of it: of itself, or of a piece that it is a part of."""

    owner: int
    cuts: Cuts  # of this piece alone
    proved: Found | None = None
    drafted: Found | None = None
    margin: float = math.nan  # the least that a draft found within the radius `at`
    at: float = 0.0
    near: float = 0.0  # within which its cuts are compared: `at`, or less where the margin there says nothing
    seen: float = math.nan  # the margin within that
    kinds: tuple[str, ...] = ()
    parameters: Parameters = field(default_factory=dict)  # of its planes, if they were optimised; of one instance
    whole: bool = False  # whether there is nowhere to cut it

    def half(self, cuts: Cuts, seen: Found, kind: str) -> Leaf:
        """One of its halves, with a draft of it where cuts were compared."""
        margin = float(seen.least) if self.near == self.at else math.nan
        drafted = seen if self.knows(seen) else self.drafted
        known = (self.proved, drafted, margin, self.at, self.near, float(seen.least))
        return Leaf(self.owner, cuts, *known, (*self.kinds, kind), self.parameters)

    def knows(self, draft: Found) -> bool:
        """Whether a draft of it, or of a half, finds it positive within more than those before."""
        return bool(draft.least > 0) and (self.drafted is None or self.drafted.radius < draft.radius)

    def note(self, draft: Found | None) -> None:
        """Take in a draft: within `at` the margin is what one found there, or one above 0 further out."""
        if draft is not None and self.knows(draft):
            self.drafted = draft
        if self.drafted is not None and self.drafted.radius >= self.at:
            self.margin = float(self.drafted.least)
        elif draft is not None and draft.radius == self.at:
            self.margin = float(draft.least)


@dataclass(eq=False)
class Branching:
    """The pieces of the balls of a problem: whole balls at first."""

    problem: Problem
    leaves: list[Leaf] = field(init=False)
    tried: Counter[str] = field(default_factory=Counter)  # how often each kind of cut was tried,
    won: Counter[str] = field(default_factory=Counter)  # and was the best

    def __post_init__(self) -> None:
        blocks = max(len(p) for p in self.problem.positions)
        like = self.problem.centre.new_zeros(blocks, self.problem.centre.shape[-1])
        self.leaves = [Leaf(i, Cuts.none(1, like)) for i in range(len(self.problem))]

    def of(self, owner: int) -> list[Leaf]:
        """The pieces of one instance."""
        return [leaf for leaf in self.leaves if leaf.owner == owner]

    @property
    def most(self) -> int:
        """How many pieces an instance has, at most."""
        return max(Counter(leaf.owner for leaf in self.leaves).values())

    def least(self, owner: int) -> float:
        """The least margin that a draft found of the pieces of an instance."""
        return min(leaf.margin for leaf in self.of(owner))

    # ---- pieces as a problem ------------------------------------------------------------------------------------

    def split(self) -> Split:
        """The pieces as a problem, with what is known of them."""
        owners, cuts = [leaf.owner for leaf in self.leaves], Cuts.joined([leaf.cuts for leaf in self.leaves])
        found = Split.cut(self.problem, owners, cuts, together(self.leaves))
        for j, leaf in enumerate(self.leaves):
            if leaf.proved is not None:
                found.proved[j] = leaf.proved
            if leaf.drafted is not None:
                found.drafted[j] = leaf.drafted
        return found

    def learn(self, split: Split) -> None:
        """Take over what was found of the pieces, which must be the same."""
        for j, leaf in enumerate(self.leaves):
            leaf.proved, leaf.drafted = split.proved.get(j), split.drafted.get(j)

    # ---- cutting ------------------------------------------------------------------------------------------------

    def grow(self, eps: list[float], most: int) -> bool:
        """Cut what a draft does not find positive within the radii of the instances, into at most so many pieces each;
        whether anything was cut. Instances of radius 0 are left alone."""
        rough = self.problem.draft() or self.problem
        eps = rounded(rough, eps)
        self._look(rough, eps)
        before = len(self.leaves)
        while chosen := self._worst(eps, most):
            self._cut(rough, chosen, eps)
        return len(self.leaves) > before

    def _worst(self, eps: list[float], most: int) -> list[Leaf]:
        """The pieces to cut next: of each instance up to half of those that are not positive, the worst ones."""
        chosen: list[Leaf] = []
        for i, radius in enumerate(eps):
            own = self.of(i) if radius > 0 else []
            failing = [leaf for leaf in own if not leaf.margin > 0 and not leaf.whole]
            failing.sort(key=lambda leaf: leaf.margin)
            chosen += failing[: max(0, min(most - len(own), -(-len(failing) // 2)))]
        return chosen

    def _look(self, rough: Problem, eps: list[float]) -> None:
        """A draft of the margin of every piece within the radius of its instance."""
        for leaf in self.leaves:
            if eps[leaf.owner] > 0 and leaf.at != eps[leaf.owner]:
                leaf.at, leaf.margin = eps[leaf.owner], math.nan
                leaf.note(leaf.drafted)
        self._fill(rough)

    def _fill(self, rough: Problem) -> None:
        """Drafts of the pieces whose margins are not known; of those that had much to spare within more than they are
        asked for, which is known the next time."""
        for spare in (AHEAD, 1.0):
            asked = [leaf for leaf in self.leaves if leaf.at > 0 and math.isnan(leaf.margin)]
            if asked:
                radii = [leaf.at * (spare if self._spares(leaf) else 1.0) for leaf in asked]
                drafts = self._drafts(rough, asked, Cuts.joined([leaf.cuts for leaf in asked]), radii)
                for leaf, draft in zip(asked, drafts, strict=True):
                    leaf.note(draft)

    def _spares(self, leaf: Leaf) -> bool:
        """Whether much of the margin of a piece was left where it was found positive last."""
        return leaf.drafted is not None and float(leaf.drafted.least) > SPARED * self.rest[leaf.owner]

    def _drafts(self, rough: Problem, leaves: list[Leaf], cuts: Cuts, radii: list[float]) -> list[Found]:
        """Of pieces of some leaves, which may be parts of those, each within a radius."""
        pieces = pieces_of(rough, [leaf.owner for leaf in leaves], cuts.to(rough.centre.dtype), together(leaves))
        eps = torch.tensor(radii).to(rough.centre)
        found = pieces.margins(eps, rounding=False)
        least = torch.where(torch.isnan(found.least), -torch.inf, found.least)
        return [Found(*row) for row in zip(eps.tolist(), found.lower, found.upper, least, strict=True)]

    @cached_property
    def rest(self) -> list[float]:
        """The margins where nothing moves."""
        return self.problem.at_rest()

    def nearer(self, goals: list[float], near: list[float]) -> list[float]:
        """Goals for the instances past what they reach, closer to that where bounds have broken down at those given."""
        rough = self.problem.draft() or self.problem
        goals = rounded(rough, goals)
        for _ in range(NEARER):
            self._look(rough, goals)
            broken = [i for i, goal in enumerate(goals) if goal > 0 and self._broken(i)]
            if not broken:
                break
            closer = [math.sqrt(goal * reached) for goal, reached in zip(goals, near, strict=True)]
            goals = rounded(rough, [closer[i] if i in broken else goal for i, goal in enumerate(goals)])
        return goals

    def _broken(self, owner: int) -> bool:
        """Whether the margin is so far below 0 that it does not say what is missing."""
        return not self.least(owner) > -BROKEN * self.rest[owner]

    def _lost(self, leaf: Leaf, margin: float) -> bool:
        """Whether a margin of a piece is too small to tell cuts by it; what is not a number is."""
        return not margin > -LOST * self.rest[leaf.owner]

    def _compared(self, rough: Problem, chosen: list[Leaf]) -> None:
        """Within which radius cuts of some pieces are compared: where bounds have broken down all cuts look alike."""
        for leaf in chosen:
            if not self._lost(leaf, leaf.margin):
                leaf.near, leaf.seen = leaf.at, leaf.margin
            elif leaf.seen > 0:  # it may say something further out by now
                leaf.near = min(leaf.near / BACK, leaf.at)
            else:
                leaf.near = min(leaf.near or leaf.at, leaf.at)
            if leaf.near < leaf.at and leaf.drafted is not None and leaf.drafted.radius > leaf.near:
                leaf.near, leaf.seen = leaf.drafted.radius, float(leaf.drafted.least)
        for _ in range(STEPS_BACK):
            lost = [leaf for leaf in chosen if self._lost(leaf, leaf.seen)]
            if not lost:
                return
            for leaf in lost:
                leaf.near *= BACK
            drafts = self._drafts(rough, lost, Cuts.joined([x.cuts for x in lost]), [x.near for x in lost])
            for leaf, draft in zip(lost, drafts, strict=True):
                leaf.seen = float(draft.least)

    # ---- planes of their own ------------------------------------------------------------------------------------

    @cached_property
    def tuned_at_once(self) -> int:
        """Of how many pieces planes can be optimised at once in the memory that there is."""
        rough = self.problem.draft() or self.problem
        each = work_of(replace(rough, centre=rough.centre[:1], positions=rough.positions[:1]))
        most = int(self.problem.memory // max(1.0, HELD * each.width * each.carried))
        return doubled(most + 1) // 2 if self.problem.compiled.cuda else most  # recordings are of such numbers

    def tune(self, eps: list[float], until: Deadline) -> None:
        """Optimise the planes of the pieces that a draft does not find positive within the radii of the instances, of
        the worst ones first and of as many as there is time for; no step begins after `until`. The others have planes
        of their own from then on, too, the usual ones."""
        failing = [leaf for leaf in self.leaves if eps[leaf.owner] > 0 and not leaf.margin > 0]
        failing.sort(key=lambda leaf: leaf.margin)
        try:
            while self.tuned_at_once and failing:
                try:
                    self._tuned_in_time(failing, eps, until)
                    break
                except (MemoryError, RuntimeError) as error:  # less was free than it seemed
                    if not out_of_memory(error):
                        raise
                self.problem.compiled.replays.store.forget_all()
                self.tuned_at_once //= 2
        finally:
            if not all(leaf.parameters for leaf in self.leaves):  # all have planes of their own, or none
                for leaf in self.leaves:
                    leaf.parameters, leaf.at = {}, 0.0  # what a draft found with planes of its own is found anew

    def _tuned_in_time(self, failing: list[Leaf], eps: list[float], until: Deadline) -> None:
        """One batch, and the others if what that took says that enough of them can be done."""
        at_once = min(self.tuned_at_once, TOGETHER)
        first, rest = failing[:at_once], failing[at_once:]
        bare = [leaf for leaf in self.leaves if not leaf.parameters]
        began = time.monotonic()
        tried = until.share(1 / TRIED) if rest else until
        steps = self._tuned(first, eps, at_once, STEPS, tried)
        if rest and tried.passed and steps < STEPS / 2:  # it would take too long
            self.tuned_at_once = 0
            return
        self._tuned([leaf for leaf in bare if not leaf.parameters], eps, TOGETHER, 0, until)
        batches = until.left / max(time.monotonic() - began, 1e-3)
        more = int(min(len(rest), at_once * batches))
        if more >= len(rest) / TRIED:
            self._tuned(rest[:more], eps, at_once, STEPS, until)

    def _tuned(self, leaves: list[Leaf], eps: list[float], at_once: int, steps: int, until: Deadline) -> int:
        """How many steps the last ones took."""
        if not leaves:
            return 0
        rough = self.problem.draft() or self.problem
        radii = torch.tensor([eps[leaf.owner] for leaf in leaves]).to(rough.centre)
        cuts = Cuts.joined([leaf.cuts for leaf in leaves]).to(rough.centre.dtype)
        pieces = pieces_of(rough, [leaf.owner for leaf in leaves], cuts, together(leaves))
        found = pieces.climbed(radii, steps=steps, rate=TUNED, at_once=at_once, until=until, until_proved=True)
        for k, leaf in enumerate(leaves):
            leaf.parameters = {i: tuple(p[k : k + 1] for p in ps) for i, ps in found.problem.parameters.items()}
            if found.margins is not None and steps:
                leaf.margin = found.margins[k]
        return found.steps

    def _cut(self, rough: Problem, chosen: list[Leaf], eps: list[float]) -> None:
        """Each piece in two, across the normal whose worse half is best."""
        self._compared(rough, chosen)
        owners, cuts = [leaf.owner for leaf in chosen], Cuts.joined([leaf.cuts for leaf in chosen])
        ball = self.problem.ball(torch.tensor([eps[i] for i in owners]).to(self.problem.centre), owners)
        kinds, normals = self._candidates(chosen, cuts, ball)
        at = torch.stack([cuts.middle(n, ball) for n in normals.unbind(dim=1)], dim=1)
        there = normals.flatten(2).any(dim=2).tolist()
        tried = [(r, c) for r, row in enumerate(there) for c in self._promising(kinds, row)]
        rows, which = [r for r, _ in tried], [c for _, c in tried]
        if tried:
            both = Cuts.joined(cuts.take(rows).halved(normals[rows, which], at[rows, which]))
            parents = [chosen[r] for r in rows] * 2
            drafts = self._drafts(rough, parents, both, [leaf.near for leaf in parents])
            margins = [float(draft.least) for draft in drafts]
        for r, leaf in enumerate(chosen):
            own = [k for k, row in enumerate(rows) if row == r]
            if not own:
                leaf.whole = True
                continue
            best = max(own, key=lambda k: sorted((margins[k], margins[len(rows) + k])))  # the worse half first
            self.tried.update(kinds[which[k]] for k in own)
            self.won[kinds[which[best]]] += 1
            self.leaves.remove(leaf)
            for k in (best, len(rows) + best):
                self.leaves.append(leaf.half(both.take([k]).trimmed(), drafts[k], kinds[which[best]]))
        self._fill(rough)

    def _promising(self, kinds: list[str], there: list[bool]) -> list[int]:
        """Which of the candidates that there are of a piece to try: all at first, then those that won most often."""
        own = [c for c, is_there in enumerate(there) if is_there]
        if self.won.total() < LEARNED:
            return own
        return sorted(own, key=lambda c: -(self.won[kinds[c]] + 1) / (self.tried[kinds[c]] + 2))[:PICKED]

    def _candidates(self, chosen: list[Leaf], cuts: Cuts, ball: Ball) -> tuple[list[str], Tensor]:
        """Names and normals `[pieces, candidates, t, d]`: zeros where a piece has fewer."""
        again = cuts.normal.new_zeros(len(chosen), AGAIN, *cuts.normal.shape[2:])
        for r, leaf in enumerate(chosen):
            own = leaf.cuts.normal[0, -AGAIN:]
            again[r, : own.shape[0]] = own
        looked = groups(self.problem.compiled.graph)
        every = sum(group.most for group in looked)
        most = torch.tensor([FEW if leaf.kinds else every for leaf in chosen], device=cuts.normal.device)
        new = directions(self.problem.compiled.graph, ball, cuts, looked, most)
        new = torch.nn.functional.pad(new, (0, 0, 0, cuts.normal.shape[2] - new.shape[2]))
        names = [f"again {k}" for k in range(AGAIN)] + [f"{g.name}.{k}" for g in looked for k in range(g.most)]
        return names, torch.cat([again, new], dim=1)


def rounded(rough: Problem, eps: list[float]) -> list[float]:
    """Radii as drafts have them."""
    found: list[float] = torch.tensor(eps, dtype=rough.centre.dtype).tolist()
    return found


def together(leaves: list[Leaf]) -> Parameters | None:
    """The parameters of leaves, one after the other; None where they have those of their balls."""
    if not any(leaf.parameters for leaf in leaves):
        return None
    each = [leaf.parameters for leaf in leaves]
    return {i: tuple(torch.cat(ps) for ps in zip(*(own[i] for own in each), strict=True)) for i in each[0]}


def cuttable(problem: Problem) -> bool:
    """Whether cutting can gain anything: not from intervals, nor where nothing bends."""
    return problem.method != "ibp" and bool(groups(problem.compiled.graph))


def divide(problem: Problem, eps: Tensor, splits: int) -> Problem:
    """A problem with up to this many pieces for each ball: what a draft does not prove within its radius is halved.

    The pieces of all balls have the same normals here, as a certificate wants them.
    """
    if splits < 2 or not cuttable(problem):
        return problem
    branching = Branching(problem)
    branching.grow(eps.tolist(), splits)
    cuts = Cuts.joined([leaf.cuts for leaf in branching.leaves]).unified()
    return Split.cut(problem, [leaf.owner for leaf in branching.leaves], cuts)

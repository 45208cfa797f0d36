"""What is decided of a sentence: the largest radius that is proved, and the smallest at which an attack succeeds.

A sentence is *certified* at a radius if its label is right and proved to stay whichever set of words moves by up to the
radius, each set alone, every word of a set by up to the radius. It is *refuted* there if a change of one set within it
gives another answer. Radii are decided as follows, and nothing is asked twice:

1. A sentence that the model gets wrong is not bounded at all.
2. The attack: from its smallest counterexample on, every radius is refuted, and is not bounded.
3. Bounds at the largest radius that is left, of all sets together; then by halves, of the sets that are open. What is
   proved at a radius is proved at the smaller ones, which are subsets.
4. With `quick`, this is done by `backward-forward` first, and what that leaves open is asked again as the options say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch

from ..attack import attack_sets
from ..core.names import BoundOptions
from ..options import AttackOptions, AttackQuestion, Options, RadiusQuestion
from ..questions.inputs import DEPLOYED, Prepared, prepare, prepare_for, problem_of
from ..questions.ladder import climbs, first_rung, second_rung
from ..questions.positions import position_sets
from ..questions.refine import margins_within, radii_of
from ..questions.search import radii as search_radii
from ..questions.workspace import Workspace
from .options import SweepQuestion

Place = tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """One question to a model about many sentences: a norm and a number of words, with how it is answered."""

    norm: float
    words: int
    question: SweepQuestion
    options: Options

    @property
    def plain(self) -> RadiusQuestion:
        """The same as it is asked of one sentence."""
        return RadiusQuestion(norm=self.norm, words=self.words)

    @property
    def attacking(self) -> AttackQuestion:
        own = {f.name: getattr(self.question, f.name) for f in fields(AttackOptions)}
        return AttackQuestion(norm=self.norm, words=self.words, **own)


@dataclass
class Decided:
    """What was found of a sentence: for each set of words, the proved and the attacked radius; None for none."""

    prepared: Prepared
    sets: list[Place]
    certified: list[float | None]
    attacked: list[float | None]

    @property
    def contradicted(self) -> bool:
        """Whether a proof and a counterexample exclude each other, which would be an error of this program."""
        pairs = zip(self.certified, self.attacked, strict=True)
        return any(c is not None and a is not None and c >= a for c, a in pairs)

    def weakest(self) -> tuple[float | None, float | None, Place, bool]:
        """The radius that is proved for all sets, that of the closest counterexample, and which set decides."""
        least = None if None in self.certified else min(c for c in self.certified if c is not None)
        found = [(a, where) for a, where in zip(self.attacked, self.sets, strict=True) if a is not None]
        if found:
            closest, where = min(found)
            return least, closest, where, True
        order = [(-1.0 if c is None else c, where) for c, where in zip(self.certified, self.sets, strict=True)]
        return least, None, min(order)[1], False


def decide(workspace: Workspace, prepared: Sequence[Prepared], texts: Sequence[str], asked: Asked) -> list[Decided]:
    """Decide sentences of one length, which the model gets right, together."""
    found = []
    for q in prepared:
        sets = position_sets(q, asked.plain)
        attacked: list[float | None] = [None] * len(sets)
        if asked.question.attack:
            tried = attack_sets(q, sets, asked.attacking, dtype=DEPLOYED[asked.options.arithmetic])
            attacked = [r if math.isfinite(r) else None for r in tried.radii]
        found.append(Decided(q, sets, [None] * len(sets), attacked))
    if asked.question.radii:
        _at_radii(workspace, found, texts, asked)
    else:
        _searched(workspace, found, texts, asked)
    return found


def _searched(workspace: Workspace, found: list[Decided], texts: Sequence[str], asked: Asked) -> None:
    """The radius of every set, by a search."""
    for one, result in zip(found, search_radii(workspace, texts, asked.plain, asked.options), strict=True):
        one.certified = [r if r > 0 else None for r in result.radii]


def _at_radii(workspace: Workspace, found: list[Decided], texts: Sequence[str], asked: Asked) -> None:
    """The largest of the radii asked for that is proved for every set."""
    radii = asked.question.radii
    closest = [min((a for a in one.attacked if a is not None), default=math.inf) for one in found]
    most = [sum(r < c for r in radii) for c in closest]  # how many of the radii are not refuted
    places = [(i, k) for i, one in enumerate(found) for k in range(len(one.sets))]
    proved = dict.fromkeys(places, 0)  # of each set, how many of the radii
    for options in stages(asked):
        left = [(i, k) for i, k in places if proved[i, k] < most[i]]
        if not left:
            break
        ready = {i: prepare_for(workspace, texts[i], found[i].prepared.label, options) for i in {i for i, _ in left}}
        high = {(i, k): most[i] for i, k in left}
        aim = dict(high)  # first the largest
        while aim:
            chosen = list(aim)
            instances = [(ready[i], found[i].sets[k]) for i, k in chosen]
            at = [radii[aim[place] - 1] for place in chosen]
            for place, good in zip(chosen, _proved(instances, at, asked.norm, options), strict=True):
                if good:
                    proved[place] = aim[place]
                else:
                    high[place] = aim[place] - 1
            aim = {p: (proved[p] + high[p] + 1) // 2 for p in chosen if proved[p] < high[p]}  # then by halves
    for i, k in places:
        found[i].certified[k] = radii[proved[i, k] - 1] if proved[i, k] else None


def _proved(instances: list[tuple[Prepared, Place]], at: list[float], p: float, options: Options) -> list[bool]:
    """Whether each label is proved to stay within its radius."""
    made = partial(problem_of, instances, p=p)
    problem = made(first_rung(options))
    radii = radii_of(torch.tensor(at, dtype=torch.float64), problem.centre)
    climb = partial(made, second_rung(options)) if climbs(options) else None
    margins = margins_within(problem, radii, options, until_proved=True, climb=climb)
    return [math.isfinite(m) and m > 0 for m in margins.least.tolist()]


def stages(asked: Asked) -> list[Options]:
    """How bounds are computed, the cheap way first; always in the precision asked for: another rounds constants."""
    options = asked.options
    tighter = options.method in ("auto", "backward", "backward-forward")
    if not (asked.question.quick and tighter and options.arithmetic == "real"):
        return [options]
    cheap: dict[str, Any] = {"method": "backward-forward", "steps": 0, "splits": 0, "budget": "balanced"}
    quick = replace(options, **cheap)
    plain = options if options.most_splits > 1 or options.timed else replace(options, splits=0, budget="balanced")
    return [options] if quick == plain else [quick, options]


def cost(workspace: Workspace, text: str, asked: Asked) -> float:
    """What one evaluation of a sentence multiplies at least: a unit of its own, the same on every machine."""
    from ..core.counting import work_of

    options = replace(stages(asked)[0], device="cpu")
    q = prepare(workspace, text, dtype=options.dtype, device=options.device)
    sets = position_sets(q, asked.plain)
    problem = problem_of([(q, sets[0])], only_bounds(options), p=asked.norm, run=False)
    return len(sets) * max(1.0, work_of(problem).flops)


def only_bounds(options: Options) -> BoundOptions:
    """The options that bounds depend on."""
    return BoundOptions(**{f.name: getattr(options, f.name) for f in fields(BoundOptions)})

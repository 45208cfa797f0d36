"""What is decided of a sentence: the largest radius that is proved, and the smallest at which an attack succeeds.

A sentence is *certified* at a radius if its label is right and proved to stay whichever set of words moves by up to the
radius, each set alone, every word of a set by up to the radius. It is *refuted* there if a change of one set within it
gives another answer. Radii are decided as follows, and nothing is asked twice:

1. A sentence that the model gets wrong is not bounded at all.
2. The attack: from its smallest counterexample on, every radius is refuted, and is not bounded.
3. Bounds of the set with that counterexample at the largest radius that is left, then by halves; of the others at
   what it reached (`levels.py`). What is proved at a radius is proved at the smaller ones, which are subsets.
4. With `quick`, this is done by `backward-forward` first, and what that leaves open is asked again as the options say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import Any

from ..attack import attack_sets
from ..core.names import BoundOptions
from ..numbers import as_proved
from ..options import AttackOptions, AttackQuestion, Options, RadiusQuestion
from ..questions.inputs import DEPLOYED, Prepared, prepare, prepare_for, problem_of
from ..questions.ladder import climbs, first_rung, second_rung
from ..questions.positions import position_sets
from ..questions.refine import margins_within, radii_of
from ..questions.search import radii as search_radii
from ..questions.workspace import Workspace
from .levels import Level
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
    weakest_first: Sequence[int] = ()  # of sets that are proved alike, those that were found to be the weakest

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
        order = [(-1.0 if c is None else c, k not in self.weakest_first, k) for k, c in enumerate(self.certified)]
        return least, None, self.sets[min(order)[2]], False


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
        one.certified = [as_proved(r) if r > 0 else None for r in result.radii]


def _at_radii(workspace: Workspace, found: list[Decided], texts: Sequence[str], asked: Asked) -> None:
    """The largest of the radii asked for that is proved for every set."""
    radii = asked.question.radii
    levels = [_level(one, radii) for one in found]
    for options in stages(asked):
        ready: dict[int, Prepared] = {}
        for level in levels:
            level.again()
        while aims := {i: aim for i, level in enumerate(levels) if (aim := level.aim) is not None}:
            for i in aims.keys() - ready.keys():
                ready[i] = prepare_for(workspace, texts[i], found[i].prepared.label, options)
            instances = [(ready[i], found[i].sets[k]) for i, (sets, _) in aims.items() for k in sets]
            at = [radii[count - 1] for sets, count in aims.values() for _ in sets]
            good = iter(_proved(instances, at, asked.norm, options))
            for i, (sets, count) in aims.items():
                levels[i].take(sets, count, islice(good, len(sets)))
    for one, level in zip(found, levels, strict=True):
        one.certified = [radii[count - 1] if count else None for count in level.proved]
        one.weakest_first = level.weakest


def _level(one: Decided, radii: Sequence[float]) -> Level:
    """Where a sentence stands before anything is bounded: radii from the closest counterexample on are refuted."""
    known = [(a, k) for k, a in enumerate(one.attacked) if a is not None]
    closest, weakest = min(known, default=(math.inf, None))
    every = list(range(len(one.sets)))
    return Level(len(one.sets), sum(r < closest for r in radii), every if weakest is None else [weakest])


def _proved(instances: list[tuple[Prepared, Place]], at: list[float], p: float, options: Options) -> list[bool]:
    """Whether each label is proved to stay within its radius."""
    made = partial(problem_of, instances, p=p)
    problem = made(first_rung(options))
    radii = radii_of(at, problem.centre)
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

"""A batch of questions about one model: (sentence, positions) pairs of one length, to be asked at many radii."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..errors import out_of_memory
from .budget import Size, fits
from .captured import Captured, Compiled
from .counting import work_of
from .deadline import NEVER, Deadline
from .engine import Engine, first_reasons
from .goal import Goal
from .interval import interval_margins
from .names import Arithmetic, BoundOptions, Method
from .ops.base import Box, Parameters
from .part import Known
from .relaxation import Scheme, Style, choose
from .rounding import exact_products, whole_products
from .sets import Ball, Cuts, Perturbation, Piece, everywhere
from .speed.batches import Batches, doubled
from .speed.memory import Footprints, default_budget
from .speed.replay import Asked, Evaluation
from .tune import RATE, Climb, Tuned, climb, tune, usual

log = logging.getLogger(__name__)
R = TypeVar("R")
NORMALS = 4  # across which pieces on a GPU are cut, at least: zeros where they are not


@dataclass(frozen=True, eq=False)
class Margins:
    """Bounds of `logit[label] - logit[other]` `[instances, classes - 1]`; -inf and inf where `reasons` says why."""

    lower: Tensor
    upper: Tensor
    reasons: tuple[str | None, ...]
    least: Tensor  # [instances]: what is asked about is proved where this is above 0

    def better(self, other: Margins) -> Margins:
        """Both hold: the better of the two."""
        pairs = zip(self.reasons, other.reasons, strict=True)
        return Margins(
            torch.maximum(self.lower, other.lower),
            torch.minimum(self.upper, other.upper),
            tuple(a and b for a, b in pairs),
            torch.maximum(self.least, other.least),
        )


class Instance(NamedTuple):
    """An input `[1, *shape]`, the positions that may move (all without), the class to defend, and how wide the set is
    in each of the numbers."""

    centre: Tensor
    positions: tuple[int, ...] | None
    label: int
    width: Tensor | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Instances of one length. Every evaluation takes a radius for each instance it is asked about."""

    compiled: Compiled
    centre: Tensor  # [instances, 1, n, d]
    positions: tuple[tuple[int, ...], ...]
    labels: Tensor  # [instances]
    p: float
    method: Method
    arithmetic: Arithmetic
    style: Style
    memory: int  # bytes that an evaluation may take
    footprints: Footprints  # what its sweeps took so far
    parameters: Parameters  # of optimised planes
    rough: bool  # whether matrix products may be of less precision than their entries: nothing is proved then
    cuts: Cuts | None  # where instances are pieces of their balls
    width: Tensor | None  # [instances, t, d]: of balls whose numbers are measured each in its own unit
    joint: bool  # whether one norm is taken over all positions that move
    goal: Goal | None  # what is to be proved of the outputs; without, that the label stays
    deadline: Deadline  # when to stop
    known: Known | None  # where boxes that are proved are kept, if they are

    @staticmethod
    def of(
        captured: Captured,
        instances: list[Instance],
        *,
        examples: list[Tensor],
        p: float,
        options: BoundOptions,
        joint: bool = False,
        goal: Goal | None = None,
    ) -> Problem:
        """From instances of one shape. The graph is compared with the module at and around each of the `examples`."""
        example, device = examples[0], examples[0].device
        if options.arithmetic == "float32":
            whole_products(example)
        with exact_products(example):  # the model's own matrices are multiplied here too
            graph = captured.graph(examples, options.relaxation, options.arithmetic)
            centre = torch.stack([captured.placed(i.centre) for i in instances])
            every = tuple(range(centre.shape[2]))
            where = tuple(every if i.positions is None else i.positions for i in instances)
            lengths = p == 2 and options.relaxation == "tight" and options.arithmetic == "real"
            lengths = lengths and options.method != "ibp" and all(i.width is None for i in instances)
            compiled = partial(captured.compiled, graph, example, options=options, lengths=lengths)
            size = Size(  # of one sentence, in company or not
                instances=-(-len(instances) // len(examples)),
                varying=max(map(len, where)),
                each=centre.shape[-1],
                width=centre.element_size(),
            )
            plan = choose(graph, options, lambda style: fits(options, style, compiled(method="backward"), size))
        widths = [None if i.width is None else captured.placed(i.width)[0] for i in instances]
        return Problem(
            compiled=compiled(method=plan.method),
            centre=centre,
            positions=where,
            labels=torch.tensor([i.label for i in instances], device=device),
            p=p,
            method=plan.method,
            arithmetic=options.arithmetic,
            style=plan.style,
            memory=options.max_memory or default_budget(device),
            footprints=Footprints(),
            parameters={},
            rough=False,
            cuts=None,
            deadline=NEVER,
            known=None,
            width=_widths(widths, where),
            joint=joint,
            goal=goal,
        )

    def draft(self) -> Problem | None:
        """This problem in single precision: half the work, and a good guess of the answer but no proof of it."""
        if self.centre.dtype != torch.float64 or self.method == "ibp":
            return None
        parameters = {i: tuple(p.float() for p in ps) for i, ps in self.parameters.items()}
        return replace(
            self,
            compiled=self.compiled.single,
            footprints=self.footprints.single,
            centre=self.centre.float(),
            parameters=parameters,
            cuts=None if self.cuts is None else self.cuts.to(torch.float32),
            width=None if self.width is None else self.width.float(),
            rough=True,
            known=None,
        )

    @property
    def described(self) -> str:
        """What was chosen, in words."""
        if self.method == "ibp":
            return "interval propagation"
        swept, softmaxes = self.style.sweep_differences, sum(n.op.simplex for n in self.compiled.graph.nodes)
        where = "" if swept >= softmaxes else " in the first layer" if swept == 1 else f" in the first {swept} layers"
        extras = [
            name
            for on, name in (
                (self.style.simplex, "tight"),
                (swept, f"differences of scores bounded one by one{where}"),
                (self.style.both, "with and without the simplex shift"),
            )
            if on
        ]
        return ", ".join([self.method, *(extras or ["the paper's relaxations"])])

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def classes(self) -> int:
        return self.compiled.graph.output.shape[-1]

    def margins(self, eps: Tensor, instances: list[int] | None = None, *, rounding: bool = True) -> Margins:
        """Margins of some instances, each within its radius, as many at a time as memory allows."""
        chosen = list(range(len(self))) if instances is None else instances
        most = self.at_once(max(len(self.positions[i]) for i in chosen))
        parts: list[tuple[Box, list[str | None]]] = []
        k = 0
        while k < len(chosen):
            self.deadline.check()
            step = self._batches.next(len(chosen) - k, most) if self._in_batches else most
            found = self._tried(partial(self._margins, eps[k : k + step], chosen[k : k + step], rounding, step), step)
            if found is None:  # fewer at a time
                most = -(-min(step, len(chosen)) // 2)
            else:
                parts.append(found)
                k += step
        lower, upper = torch.cat([b.lower for b, _ in parts]), torch.cat([b.upper for b, _ in parts])
        return Margins(lower, upper, tuple(r for _, reasons in parts for r in reasons), self.least(lower))

    def _tried(self, evaluate: Callable[[], R], count: int = 1) -> R | None:
        """An evaluation of so many instances; None where less memory was free than it seemed, which is remembered."""
        try:
            return evaluate()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or not (self.compiled.room.halve(self.memory) or count > 1):
                raise
            log.info("out of memory: it is tried again with less")
        self.compiled.replays.store.forget_all()  # what the error held is free by now
        return None

    @property
    def room(self) -> int:
        """Bytes that an evaluation may take, as far as is known."""
        return int(min(self.memory, self.compiled.room.bytes))

    def least(self, lower: Tensor) -> Tensor:
        """From lower bounds `[instances, half-spaces]` what must be above 0 for a proof."""
        return lower.amin(dim=1) if self.goal is None else self.goal.least(lower)

    def at_once(self, blocks: int) -> int:
        """How many instances fit: what is kept of each node, and its linear form where it is an anchor."""
        graph, numbers = self.compiled.graph, blocks * self.centre.shape[-1]
        kept = 0
        for node in graph.nodes:
            count = 1
            for s in node.shape:
                count *= s
            formed = node.index in self.compiled.anchors or node.index in self.scheme.formed
            kept += count * (8 + (2 * numbers if formed else 0))
        return max(1, self.room // (2 * self.centre.element_size() * kept))

    def at_rest(self) -> list[float]:
        """The margins where nothing moves, computed as they are: nothing is proved by them."""
        chosen = list(range(len(self)))
        ball = self.ball(self.centre.new_zeros(len(self)), chosen)
        output = self.compiled.graph.values(ball.centre, lengths=ball.lengths)[self.compiled.graph.output.index]
        value = torch.einsum("zkuc,zuc->zk", self.rows(chosen), output.reshape(len(self), 1, self.classes))
        least: list[float] = self.least(
            value if self.goal is None else self.goal.beyond(Box(value, value)).lower
        ).tolist()
        return least

    def ball(self, eps: Tensor, chosen: list[int]) -> Ball:
        width = None if self.width is None else self.width[chosen]
        where = [self.positions[i] for i in chosen]
        ball = Ball.of(self.centre[chosen], where, eps, self.p, width=width, joint=self.joint)
        return ball if self.cuts is None else self.cuts.take(chosen).padded(self._normals).of(ball)

    def rows(self, chosen: list[int]) -> Tensor:
        """`label - other` for every other class, or what the goal asks: `[instances, half-spaces, 1, classes]`."""
        if self.goal is not None:
            return self.goal.rows.to(self.centre)[None, :, None].expand(len(chosen), -1, -1, -1)
        k, labels = self.classes, self.labels[chosen]
        eye = torch.eye(k, dtype=self.centre.dtype, device=self.centre.device)
        others = torch.stack([torch.cat([eye[:c], eye[c + 1 :]]) for c in labels.tolist()])  # [instances, k - 1, k]
        return (eye[labels][:, None] - others)[:, :, None]

    def _margins(self, eps: Tensor, chosen: list[int], rounding: bool, most: int) -> tuple[Box, list[str | None]]:
        """Of some instances, all at once; where there is nothing in a piece of a ball, all that can be said holds."""
        (lower, upper), reasons = self._bounded(eps, chosen, rounding, most)
        ball = self.ball(eps.to(self.centre), chosen)
        if isinstance(ball, Piece):
            nothing = ball.empty()
            lower, upper = (torch.where(nothing[:, None], x, y) for x, y in ((torch.inf, lower), (-torch.inf, upper)))
            reasons = [None if void else why for void, why in zip(nothing.tolist(), reasons, strict=True)]
        return Box(lower, upper), reasons

    def _bounded(self, eps: Tensor, chosen: list[int], rounding: bool, most: int) -> tuple[Box, list[str | None]]:
        if self.known is not None and self.method != "ibp" and self.cuts is None:
            return self._answer(self._learned(self.known, eps.to(self.centre), chosen, rounding))
        if self.method == "ibp" or not self.compiled.cuda:
            return self._over(self.ball(eps.to(self.centre), chosen), chosen, rounding)
        # always the same numbers of instances, so that few recordings serve
        sizes = [size for size in (-(-min(most, len(self)) // k) for k in (4, 2, 1)) if size >= len(chosen)]
        key, asked = self._padded(eps, chosen, rounding, [most] if self._in_batches else sizes)
        if key in self.compiled.replays.refused:
            return self._over(self.ball(eps.to(self.centre), chosen), chosen, rounding)
        with torch.no_grad():
            evaluation = self.compiled.replays(key, lambda a: self._evaluated(a, rounding), asked)
        box, reasons = self._answer(evaluation)
        count = len(chosen)
        return Box(box.lower[:count], box.upper[:count]), reasons[:count]

    def _asked(self, eps: Tensor, chosen: list[int]) -> Asked:
        """What is asked about some instances."""
        parameters = {i: tuple(p[chosen] for p in ps) for i, ps in self.parameters.items()}
        return Asked(self.ball(eps.to(self.centre), chosen), self.rows(chosen), parameters)

    def _padded(self, eps: Tensor, chosen: list[int], what: Hashable, sizes: list[int]) -> tuple[Hashable, Asked]:
        """Of some instances, and the first again and again until there are as many as in a recording that there is, or
        may be: one of these sizes. With the key of that."""
        where = [self.positions[i] for i in chosen]  # in this batch: sets may be of different sizes
        blocks, whole = max(map(len, where)), everywhere(where, self.centre.shape[2])
        own = tuple(self.parameters)
        kind = (self.p, self.joint, self.width is not None, whole, self._normals, self.style, what, own)
        keys = [(size, blocks, kind, self.goal and len(self.goal.rows)) for size in sizes]
        fit = self.compiled.replays.fitting(keys)
        more = sizes[fit] - len(chosen)
        return keys[fit], self._asked(torch.cat([eps, eps[:1].expand(more)]), chosen + chosen[:1] * more)

    @property
    def _in_batches(self) -> bool:
        """Whether these are pieces on a GPU, more and more of them."""
        return self.cuts is not None and self.compiled.cuda

    @cached_property
    def _batches(self) -> Batches:
        """How many of them are bounded at once."""
        blocks = max(len(p) for p in self.positions)
        known, key = self.compiled.batches, (blocks, self.style)
        if key not in known:
            known[key] = Batches.of(work_of(self, instances=1).flops)
        return known[key]

    @property
    def _normals(self) -> int:
        """Across how many normals pieces are cut: on a GPU one of few numbers."""
        if self.cuts is None:
            return 0
        return doubled(max(self.cuts.low.shape[1], NORMALS)) if self._in_batches else self.cuts.low.shape[1]

    def over(self, ball: Perturbation, chosen: list[int], *, rounding: bool = True) -> tuple[Box, list[str | None]]:
        """Margins of some instances over any set of inputs, and why there are none."""
        while (found := self._tried(partial(self._over, ball, chosen, rounding))) is None:
            pass
        return found

    def _over(self, ball: Perturbation, chosen: list[int], rounding: bool) -> tuple[Box, list[str | None]]:
        graph = self.compiled.graph
        with torch.no_grad():
            if self.method == "ibp":
                with exact_products(ball.centre):
                    evaluation = interval_margins(graph, ball, graph.values(ball.centre), self.rows(chosen))
            else:
                parameters = {i: tuple(p[chosen] for p in ps) for i, ps in self.parameters.items()}
                evaluation = self._evaluated(Asked(ball, self.rows(chosen), parameters), rounding)
        return self._answer(evaluation)

    def _learned(self, known: Known, eps: Tensor, chosen: list[int], rounding: bool) -> Evaluation:
        """An evaluation whose boxes are kept."""
        asked = self._asked(eps, chosen)
        with torch.no_grad(), nullcontext() if self.rough else exact_products(self.centre):
            engine = self.engine(asked.ball, asked.parameters, rounding=rounding)
            box = engine.margins(asked.rows)
            if not self.rough:
                known.learn(engine, chosen, eps)
        good, whys = zip(*engine.failures, strict=True)
        return Evaluation(box, torch.stack(good), list(whys), engine.most)

    def _answer(self, evaluation: Evaluation) -> tuple[Box, list[str | None]]:
        """Bounds that say nothing where a check failed, and the first check that did."""
        box, good, whys, _ = evaluation
        box = box if self.goal is None else self.goal.beyond(box)
        failed = ~good.all(dim=0)[:, None]
        lower, upper = torch.where(failed, -torch.inf, box.lower), torch.where(failed, torch.inf, box.upper)
        return Box(lower, upper), first_reasons(good, whys)

    def _evaluated(self, asked: Asked, rounding: bool) -> Evaluation:
        with nullcontext() if self.rough else exact_products(asked.ball.centre):
            engine = self.engine(asked.ball, asked.parameters, rounding=rounding)
            box = engine.margins(asked.rows)
        good, whys = zip(*engine.failures, strict=True)
        return Evaluation(box, torch.stack(good), list(whys), engine.most)

    @cached_property
    def scheme(self) -> Scheme:
        """How each node is bounded."""
        known = self.compiled
        return Scheme(graph=known.graph, anchors=known.anchors, local=known.local, style=self.style)

    def engine(
        self, ball: Perturbation, parameters: Parameters, *, rounding: bool, kind: Callable[..., Engine] = Engine
    ) -> Engine:
        """The engine that bounds over a set of inputs: every bound of this package, "ibp" aside, is one of its bounds.

        `parameters` are those of the instances of the set. Another `kind` is an engine that keeps what it did.
        """
        local = self.compiled.local if ball.axis == 1 else {}  # they are local along that axis of the input
        return kind(
            scheme=self.scheme if local is self.compiled.local else replace(self.scheme, local=local),
            ball=ball,
            nominal=self.compiled.graph.values(ball.centre, lengths=ball.lengths),
            rounding=rounding,
            parameters=parameters,
            memory=self.room // 2,
            footprints=self.footprints,
            deadline=self.deadline,
        )

    def tuned(self, eps: Tensor, *, steps: int, until: Deadline = NEVER, until_proved: bool = False) -> Problem:
        """This problem with planes optimised for a radius of each instance, one by one, by at most so many steps from
        those that it has."""
        return self.climbed(eps, steps=steps, until=until, until_proved=until_proved).problem

    def climbed(
        self,
        eps: Tensor,
        *,
        steps: int,
        rate: float = RATE,
        at_once: int = 1,
        until: Deadline = NEVER,
        until_proved: bool = False,
    ) -> Climbed:
        """This problem with planes optimised; `at_once` instances together, since the gradient keeps numbers of every
        sweep."""
        if self.method == "ibp":
            return Climbed(self, None, 0)
        rough = self.draft() or self  # whatever is found there holds in any precision
        found: list[Tuned] = []
        for k in range(0, len(self), at_once):
            some = list(range(k, min(k + at_once, len(self))))
            start, step = rough._climbing(eps[some], some, at_once)
            better = tune(step, start, steps=steps, rate=rate, until=until, until_proved=until_proved)
            found.append(better.first(len(some)))
        names = found[0].parameters
        joined = {i: tuple(torch.cat(ps) for ps in zip(*(f.parameters[i] for f in found), strict=True)) for i in names}
        problem = replace(self, parameters={i: tuple(p.to(self.centre) for p in ps) for i, ps in joined.items()})
        reached = [f.reached for f in found if f.reached is not None]
        margins = torch.cat(reached).tolist() if len(reached) == len(found) else None
        return Climbed(problem, margins, found[-1].steps)

    def _climbing(self, eps: Tensor, chosen: list[int], most: int) -> tuple[Tuned, Callable[[Parameters], Climb]]:
        """Where optimising the planes of some instances begins, and its step."""
        goal = self.goal
        what = ("climb", goal and goal.clauses)
        key, asked = self._padded(eps, chosen, what, [most]) if self.compiled.cuda else (None, self._asked(eps, chosen))
        asked = asked if goal is None else asked._replace(limits=goal.limits.to(self.centre))

        def least(asked: Asked, lower: Tensor) -> Tensor:
            return lower.amin(dim=1) if goal is None or asked.limits is None else goal.least(lower - asked.limits)

        def engine(asked: Asked) -> Engine:
            return self.engine(asked.ball, asked.parameters, rounding=False)

        def climbed(asked: Asked) -> Climb:
            of = partial(least, asked)
            return climb(lambda own: engine(asked._replace(parameters=own)), asked.rows, of, asked.parameters)

        def step(parameters: Parameters) -> Climb:
            now = asked._replace(parameters=parameters)
            return climbed(now) if key is None else self.compiled.replays(key, climbed, now)

        return Tuned(asked.parameters, None) if asked.parameters else usual(
            engine(asked), asked.rows, partial(least, asked)
        ), step


class Climbed(NamedTuple):
    """A problem with planes of its own, what a draft found of each instance with them, and how many steps the last
    instances took."""

    problem: Problem
    margins: list[float] | None
    steps: int


def _widths(widths: list[Tensor | None], positions: tuple[tuple[int, ...], ...]) -> Tensor | None:
    """The widths of what moves `[instances, t, d]`, the positions of each instance in order; all instances or none."""
    first = widths[0]
    if first is None:
        return None
    table = first.new_zeros(len(widths), max(len(ps) for ps in positions), first.shape[-1])
    for k, (width, ps) in enumerate(zip(widths, positions, strict=True)):
        assert width is not None
        table[k, : len(ps)] = width[list(ps)]
    return table

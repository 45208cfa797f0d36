"""One question, one verdict: certified, refuted (with the counterexample), unknown or error."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..attack import attack_sets
from ..attack.forward import alone, logits_of
from ..attack.gradient import winner
from ..certificate import of_ball, of_hull
from ..core.names import BoundOptions, Method
from ..core.problem import Problem
from ..core.sets import Choices
from ..errors import InputError
from ..numbers import at_least
from ..options import AttackQuestion, CertifyQuestion, Options, Progress
from ..results import CertifyResult as CertifyResult
from ..results import Counterexample as Counterexample
from ..results import Status
from .certificates import check_file, checkable, of_combinations, subject, vertices, with_file
from .inputs import Inputs, Prepared, checked_in, embed_ids, margins, prepare_exactly, prepare_for, problem_of
from .ladder import climbs, first, first_rung, second_rung
from .parts import pays
from .positions import position_sets
from .refine import margins_within, radii_of
from .substitutes import Candidates, Combination, candidates
from .workspace import Workspace

MOST_COMBINATIONS = 20_000
MOST_AFTER = 2_000  # the same, where bounds were tried before
FEW = 256  # combinations that cost no more than bounds: these are not tried before
MOST_SWEPT = 32  # of those, how many are bounded with sweeps where intervals are too wide to tell
BATCH = 256
COMPARED = 64  # combinations of too many that are compared with the model's own forward pass
OTHERWISE = "the model's own forward pass on the ids of substitutes gives other logits than on their embeddings"
CONTRADICTION = "a proof and a counterexample contradict each other: this is a bug of certiformer, please report it"


def certify(workspace: Workspace, inputs: Inputs, question: CertifyQuestion, options: Options) -> CertifyResult:
    """Can the answer change when the embeddings at each set of positions move by at most `eps`?

    With `substitutions` (word -> substitutes) instead: can it change under any combination of substitutes? What is not
    proved is refined as the options say, and what is left is attacked, so that a false claim comes back refuted. What
    is proved is attacked too: a counterexample there is an error of this program, and is reported as such.
    """
    started = time.perf_counter()
    exact = prepare_exactly(workspace, inputs, question.label, options)
    if question.substitutions is not None:
        if options.arithmetic != "real":
            raise InputError(f"arithmetic={options.arithmetic!r}: with substitutions only 'real' is bounded")
        return _certify_words(exact, question, options, started)
    prepared = prepare_for(workspace, inputs, exact.label, options)
    assert question.eps is not None
    eps, sets = float(question.eps), position_sets(prepared, question)

    def made(options: BoundOptions) -> Problem:
        problem = problem_of([(prepared, s) for s in sets], options, p=question.p, joint=question.joint)
        return problem if question.certificate is None else checkable(problem)

    across = options.timed and question.certificate is None and pays(made(first_rung(options)))  # no certificate then
    problem = first(made, options) if across else made(first_rung(options))
    file = None if question.certificate is None else check_file(question.certificate, problem, len(sets))
    radii = radii_of([eps] * len(sets), problem.centre)
    ways: list[Problem] = []
    attacked = cache(partial(_attacked, exact, sets, question, checked_in(exact, options)))
    refuted = (lambda: [example is not None for example in attacked()]) if question.attack else None
    climb = partial(made, second_rung(options)) if climbs(options) else None
    refined = partial(margins_within, refuted=refuted, climb=climb, ways=ways, by_entries=across)
    within = refined(problem, radii, options, until_proved=True)
    proved = [m if math.isfinite(m) else -math.inf for m in within.least.tolist()]
    statuses: list[Status] = ["certified" if m > 0 else "unknown" for m in proved]
    reason = next((r for r in within.reasons if r), None)
    examples: list[Counterexample | None] = [None] * len(sets)
    if question.attack or exact.margin <= 0:
        examples = attacked()
        for i, example in enumerate(examples):  # what was proved cannot be refuted
            if example is not None:
                statuses[i] = "error" if statuses[i] == "certified" else "refuted"
    if "error" in statuses:
        reason = CONTRADICTION
    result = CertifyResult(
        status=overall(statuses),
        statuses=tuple(statuses),
        positions=tuple(sets),
        margins=tuple(proved),
        margin=min(proved),
        counterexamples=tuple(examples),
        tokens=prepared.tokens,
        label=prepared.label,
        eps=eps,
        norm=question.p,
        method=problem.method,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        reason=reason,
        seconds=time.perf_counter() - started,
    )
    return with_file(result, file, lambda: of_ball(subject(prepared), ways, 0, at_least(eps)))


def overall(statuses: Sequence[Status]) -> Status:
    """The worst of several verdicts."""
    for status in ("error", "refuted", "unknown"):
        if status in statuses:
            return status
    return "certified"


def _attacked(
    prepared: Prepared, sets: list[tuple[int, ...]], question: CertifyQuestion, dtype: torch.dtype
) -> list[Counterexample | None]:
    """Attack every set: a counterexample where there is one, by a forward pass in `dtype`."""
    assert question.eps is not None
    asked = AttackQuestion(norm=question.norm, joint=question.joint)
    found = attack_sets(prepared, sets, asked, dtype=dtype)
    return [
        Counterexample(s, r, flipped, x) if r <= question.eps and x is not None and flipped is not None else None
        for s, r, x, flipped in zip(sets, found.radii, found.points, found.flipped, strict=True)
    ]


def _certify_words(prepared: Prepared, question: CertifyQuestion, options: Options, started: float) -> CertifyResult:
    """Substitution of any number of words at once: every combination where they are few, else bounds on the hull."""
    assert question.substitutions is not None
    substitutes = candidates(prepared, question.substitutions, question.replaced)
    few = substitutes.count <= (MOST_COMBINATIONS if question.replaced is None else MOST_AFTER)
    file = None
    if question.certificate is not None:
        bounds = BoundOptions() if few else options
        file = check_file(question.certificate, problem_of([(prepared, tuple(substitutes.ids))], bounds, p=math.inf))
    status: Status
    example: Counterexample | None = None
    how: Method | Literal["enumeration"] = "enumeration"
    bounded = not few or (question.replaced is not None and substitutes.count > FEW)
    over = _hull(prepared, substitutes, options, check=file is not None) if bounded else None
    hull = _over_hull(prepared, substitutes, *over) if over is not None else None
    if few and (hull is None or (hull.reason != CONTRADICTION and not hull.proves)):
        margin, example, reason = _enumerate(prepared, substitutes, options, question.progress)
        status = "refuted" if example is not None else "certified" if margin > 0 and reason is None else "unknown"
    else:
        assert hull is not None
        how, margin, reason = hull
        sound = margin > 0 and reason is None
        status = "error" if reason == CONTRADICTION else "certified" if sound else "unknown"
    if substitutes.skipped and status == "certified":
        status, reason = "unknown", f"not tried, since it is not one token to the model: {_listed(substitutes.skipped)}"
    result = CertifyResult(
        status=status,
        statuses=(status,),
        positions=(tuple(substitutes.choices),),
        margins=(margin,),
        margin=margin,
        counterexamples=(example,),
        tokens=prepared.tokens,
        label=prepared.label,
        eps=None,
        norm=math.inf,
        method=how,
        relaxation=options.relaxation,
        arithmetic=options.arithmetic,
        reason=reason,
        seconds=time.perf_counter() - started,
        replaced=question.replaced,
    )

    def content() -> bytes:
        if few:
            return of_combinations(prepared, substitutes, problem_of([(prepared, (0,))], p=math.inf), margin)
        assert over is not None
        return of_hull(subject(prepared), *over, vertices(prepared, substitutes))

    return with_file(result, file, content)


def _hull(prepared: Prepared, substitutes: Candidates, options: Options, *, check: bool) -> tuple[Problem, Choices]:
    """All mixtures of the substitutes, and what is asked about them: by what a certificate can say, to `check` it."""
    assert prepared.ids is not None
    problem = problem_of([(prepared, tuple(substitutes.ids))], options, p=math.inf)
    moves = {
        i: _embedded(prepared, [_replaced(prepared.ids, {i: c}) for c in cs], i) for i, cs in substitutes.ids.items()
    }
    return checkable(problem) if check else problem, Choices.of(prepared.embeddings[None], moves, most=substitutes.most)


class _Hull(NamedTuple):
    """Bounds over all mixtures of the substitutes: by which method, the least margin, and why nothing is proved."""

    method: Method
    margin: float
    reason: str | None

    @property
    def proves(self) -> bool:
        return self.margin > 0 and self.reason is None


def _over_hull(prepared: Prepared, substitutes: Candidates, problem: Problem, choices: Choices) -> _Hull:
    """Bounds over all mixtures of the substitutes, of as many words at once as may be replaced."""
    box, reasons = problem.over(choices, [0])
    margin = float(box.lower.min())
    if reasons[0] is not None or not math.isfinite(margin):
        return _Hull(problem.method, -math.inf, reasons[0] or "no bound was found")
    if margin <= 0:
        return _Hull(problem.method, margin, "the bounds over all mixtures of the substitutes are too wide to tell")
    return _Hull(problem.method, margin, substitutes.read_apart() or _try_some(prepared, substitutes))


def _try_some(prepared: Prepared, substitutes: Candidates) -> str | None:
    """Why a proof over all mixtures does not stand, where it does not: each substitute alone, and some combinations,
    are run by the module, which must not contradict it, and by the model's own forward pass on their ids."""
    assert prepared.ids is not None
    rows = [_replaced(prepared.ids, {i: c}) for i, cs in substitutes.ids.items() for c in cs]
    draw = random.Random(0)
    for _ in range(COMPARED):
        every = list(substitutes.ids)
        some = every if substitutes.most is None else draw.sample(every, min(substitutes.most, len(every)))
        rows.append(_replaced(prepared.ids, {i: draw.choice([prepared.ids[i], *substitutes.ids[i]]) for i in some}))
    for start in range(0, len(rows), BATCH):
        table = torch.tensor(rows[start : start + BATCH], device=prepared.embeddings.device)
        embeddings = embed_ids(prepared.model, table, dtype=prepared.embeddings.dtype)
        with torch.no_grad():
            logits = logits_of(prepared.model.module, embeddings)
        if bool((margins(logits, prepared.label) <= 0).any()):
            return CONTRADICTION
        if not substitutes.faithful(table, embeddings, logits):
            return OTHERWISE
    return None


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def _replaced(ids: tuple[int, ...], change: Mapping[int, int]) -> list[int]:
    return [change.get(i, own) for i, own in enumerate(ids)]


def _embedded(prepared: Prepared, rows: list[list[int]], position: int) -> Tensor:
    """What substitutes change of the embedding at a position, `[choices, d]`."""
    table = torch.tensor(rows, device=prepared.embeddings.device)
    e = embed_ids(prepared.model, table, dtype=prepared.embeddings.dtype)
    return e[:, position] - prepared.embeddings[0, position]


def _enumerate(
    prepared: Prepared, candidates: Candidates, options: Options, progress: Progress | None
) -> tuple[float, Counterexample | None, str | None]:
    """Every combination of substitutes, as it is read: the least margin that is proved, the first that flips, and what
    is missing for a proof."""
    least, done, open_points = math.inf, 0, 0
    misread: list[str] = []
    for batch in _batches(candidates.combinations()):
        read = {combination: candidates.read(combination) for combination in batch}
        misread += [candidates.named(combination) for combination, row in read.items() if row is None]
        rows = list(dict.fromkeys(row for row in read.values() if row is not None))
        done += len(batch)
        if not rows:
            continue
        table = torch.tensor(rows, device=prepared.embeddings.device)
        embeddings = embed_ids(prepared.model, table, dtype=torch.float64)
        with torch.no_grad():
            logits = logits_of(prepared.model.module, embeddings)
        if not bool(torch.isfinite(logits).all()):
            return -math.inf, None, "the logits of a combination are not finite"
        if not candidates.faithful(table, embeddings, logits):
            return -math.inf, None, OTHERWISE
        for k in (margins(logits, prepared.label) <= 0).nonzero()[:, 0].tolist():
            example = _flipped(prepared, candidates, rows[k], embeddings[k : k + 1])
            if example is not None:
                return float(margins(logits, prepared.label)[k]), example, None
        proved = _at_points(prepared, embeddings, "ibp", options)
        left = (proved <= 0).nonzero()[:, 0]
        if 0 < len(left) <= MOST_SWEPT - open_points:
            proved[left] = _at_points(prepared, embeddings[left], "backward-forward", options)
        open_points += len(left)
        least = min(least, float(proved.min()))
        if progress is not None:
            progress(done, candidates.count)
    if misread:
        return least, None, f"read as other tokens together: {_listed(misread)}"
    reason = None if least > 0 else "no combination changes the answer, but rounding is not excluded for all of them"
    return least, None, reason


def _flipped(prepared: Prepared, candidates: Candidates, row: tuple[int, ...], point: Tensor) -> Counterexample | None:
    """A combination `[1, n, d]` that changes the answer when it is run alone; else none."""
    with torch.no_grad():
        logits = alone(prepared.model.module, point)
    if float(margins(logits, prepared.label)[0]) > 0:
        return None
    words = tuple(prepared.model.vocabulary[t] for t in row)
    distance = float(torch.linalg.vector_norm(point[0] - prepared.embeddings[0], ord=math.inf, dim=-1).max())
    return Counterexample(tuple(candidates.choices), distance, winner(logits, prepared.label), point, words)


def _at_points(prepared: Prepared, points: Tensor, method: Method, options: Options) -> Tensor:
    """Margins `[points]` at embeddings `[points, n, d]`, less what rounding may have changed: bounds at radius 0."""
    questions = [(replace(prepared, embeddings=point[None]), prepared.movable[:1]) for point in points]
    how_bounded = BoundOptions(method=method, max_memory=options.max_memory)
    problem = problem_of(questions, how_bounded, p=math.inf, examples=[prepared.embeddings])
    at_points = problem.margins(torch.zeros(len(points), dtype=torch.float64))
    return torch.nan_to_num(at_points.least, nan=-math.inf, posinf=-math.inf)


def _batches(items: Iterator[Combination]) -> Iterator[list[Combination]]:
    while part := list(itertools.islice(items, BATCH)):
        yield part

"""One question, one verdict: certified, refuted (with the counterexample), unknown or error."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ..attack import attack_prepared
from ..core.names import AutoMethod, Budget, Method, Relaxation
from ..core.sets import Choices
from ..core.split import divide
from ..errors import InputError, short
from ..models.model import Model
from .inputs import Inputs, Positions, Prepared, embed_ids, margins, norm_order, position_sets, prepare, problem_of
from .substitutes import Substitutions, candidates

Status = Literal["certified", "refuted", "unknown", "error"]
MOST_COMBINATIONS = 20_000
MOST_SWEPT = 32  # of those, how many are bounded with sweeps where intervals are too wide to tell
BATCH = 256


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input inside the set with another answer, checked by a plain forward pass in float64."""

    positions: tuple[int, ...]
    radius: float
    label: int
    point: Tensor  # embeddings [1, n, d]
    words: tuple[str, ...] | None = None  # the substituted words, where words were substituted


@dataclass(frozen=True, eq=False)
class CertifyResult:
    """The verdict on a question, and on each of its parts (sets of positions, each on its own).

    `margin` is the least proved margin, -inf where nothing was proved. `method` says how it was proved: a bounding
    method, or "enumeration" where every substitution was tried.
    """

    status: Status
    statuses: tuple[Status, ...]
    positions: tuple[tuple[int, ...], ...]
    margins: tuple[float, ...]
    margin: float
    counterexample: Counterexample | None
    tokens: tuple[str, ...]
    label: int
    eps: float | None
    norm: float
    method: Method | Literal["enumeration"]
    relaxation: Relaxation
    reason: str | None
    seconds: float


def certify(
    model: Model,
    inputs: Inputs,
    *,
    eps: float | None = None,
    norm: float | str = 2,
    positions: Positions | None = None,
    words: int = 1,
    substitutions: Substitutions | None = None,
    method: AutoMethod = "auto",
    relaxation: Relaxation = "tight",
    budget: Budget = "balanced",
    splits: int = 0,
    attack: bool = True,
    label: int | None = None,
    device: torch.device | str | None = None,
    max_memory: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> CertifyResult:
    """Can the answer change when the embeddings at each set of positions move by at most `eps`?

    With `substitutions` (word -> substitutes) instead of `eps`: can it change under any combination of substitutes?
    What is not proved is cut into up to `splits` pieces, each proved on its own, and what is left is attacked, so that
    a false claim comes back refuted. `on_progress` gets (combinations of substitutes tried, all of them).
    """
    started = time.perf_counter()
    prepared = prepare(model, inputs, label=label, device=device)
    if (eps is None) == (substitutions is None):
        raise InputError(f"eps={eps!r}, substitutions={short(substitutions)}: give one of the two")
    if substitutions is not None:
        return _certify_words(prepared, substitutions, method, relaxation, budget, max_memory, started, on_progress)
    assert eps is not None
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not (eps >= 0 and math.isfinite(eps)):
        raise InputError(f"eps={eps!r}: expected a finite radius of 0 or more")
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 0:
        raise InputError(f"splits={splits!r}: expected a whole number of 0 or more")
    p = norm_order(norm)
    sets = position_sets(prepared, words, positions)
    problem = problem_of(
        [(prepared, s) for s in sets],
        p=p,
        method=method,
        relaxation=relaxation,
        budget=budget,
        max_memory=max_memory,
    )
    radii = torch.full((len(sets),), float(eps), dtype=torch.float64)
    found = problem.margins(radii)
    if splits > 1 and prepared.margin > 0 and not bool((found.lower > 0).all()):
        found = found.better(divide(problem, radii, splits).margins(radii))
    proved = [m if math.isfinite(m) else -math.inf for m in found.lower.amin(dim=1).tolist()]
    statuses: list[Status] = ["certified" if m > 0 else "unknown" for m in proved]
    example, reason = None, next((r for r in found.reasons if r), None)
    if attack or prepared.margin <= 0:
        example = _refute(prepared, sets, statuses, float(eps), p)
    return CertifyResult(
        status=_overall(statuses),
        statuses=tuple(statuses),
        positions=tuple(sets),
        margins=tuple(proved),
        margin=min(proved),
        counterexample=example,
        tokens=prepared.tokens,
        label=prepared.label,
        eps=float(eps),
        norm=p,
        method=problem.method,
        relaxation=relaxation,
        reason=reason,
        seconds=time.perf_counter() - started,
    )


def _overall(statuses: Sequence[Status]) -> Status:
    """The worst of several verdicts."""
    for status in ("error", "refuted", "unknown"):
        if status in statuses:
            return status
    return "certified"


def _refute(
    prepared: Prepared, sets: list[tuple[int, ...]], statuses: list[Status], eps: float, p: float
) -> Counterexample | None:
    """Attack what was not proved; the closest counterexample, with `statuses` brought up to date."""
    open_sets = [s for s, status in zip(sets, statuses, strict=True) if status != "certified"]
    if not open_sets:
        return None
    attacked = attack_prepared(prepared, norm=p, positions=[list(s) for s in open_sets])
    best: Counterexample | None = None
    for s, r, x, flipped in zip(attacked.positions, attacked.radii, attacked.points, attacked.flipped, strict=True):
        if r <= eps and x is not None and flipped is not None:
            i = sets.index(s)
            statuses[i] = "refuted"
            if best is None or r < best.radius:
                best = Counterexample(s, r, flipped, x)
    return best


def _certify_words(
    prepared: Prepared,
    substitutions: Substitutions,
    method: AutoMethod,
    relaxation: Relaxation,
    budget: Budget,
    max_memory: int | None,
    started: float,
    on_progress: Callable[[int, int], None] | None,
) -> CertifyResult:
    """Substitution of any number of words at once: every combination where they are few, else bounds on the hull."""
    ids, skipped = candidates(prepared, substitutions)
    combinations = math.prod(1 + len(c) for c in ids.values())
    positions = tuple(ids)
    status: Status
    example: Counterexample | None = None
    reason: str | None = None
    how: Method | Literal["enumeration"]
    if combinations <= MOST_COMBINATIONS:
        how = "enumeration"
        margin, example, reason = _enumerate(prepared, ids, combinations, max_memory, on_progress)
        status = "refuted" if example is not None else "certified" if margin > 0 else "unknown"
    else:
        assert prepared.ids is not None
        problem = problem_of(
            [(prepared, positions)],
            p=math.inf,
            method=method,
            relaxation=relaxation,
            budget=budget,
            max_memory=max_memory,
        )
        how = problem.method
        moves = {i: _embedded(prepared, [_replaced(prepared.ids, {i: c}) for c in cs], i) for i, cs in ids.items()}
        box, reasons = problem.over(Choices.of(prepared.embeddings[None], moves), [0])
        margin, reason = float(box.lower.min()), reasons[0]
        margin = -math.inf if reason is not None or not math.isfinite(margin) else margin
        status = "certified" if margin > 0 else "unknown"
    if skipped and status == "certified":
        status, reason = "unknown", f"not tried, since it is not one token to the model: {_listed(skipped)}"
    return CertifyResult(
        status=status,
        statuses=(status,),
        positions=(positions,),
        margins=(margin,),
        margin=margin,
        counterexample=example,
        tokens=prepared.tokens,
        label=prepared.label,
        eps=None,
        norm=math.inf,
        method=how,
        relaxation=relaxation,
        reason=reason,
        seconds=time.perf_counter() - started,
    )


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
    prepared: Prepared,
    ids: dict[int, list[int]],
    combinations: int,
    max_memory: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[float, Counterexample | None, str | None]:
    """Every combination of substitutes: the least margin that is proved, the first that flips, and what is missing."""
    assert prepared.ids is not None
    own = prepared.ids
    choices = [[own[i], *c] for i, c in ids.items()]
    least, done, open_points = math.inf, 0, 0
    for batch in _batches(itertools.product(*choices)):
        rows = [_replaced(own, dict(zip(ids, combination, strict=True))) for combination in batch]
        table = torch.tensor(rows, device=prepared.embeddings.device)
        embeddings = embed_ids(prepared.model, table, dtype=torch.float64)
        with torch.no_grad():
            logits = prepared.model.module(embeddings)
        if not bool(torch.isfinite(logits).all()):
            return -math.inf, None, "the logits of a combination are not finite"
        found = margins(logits, prepared.label)
        k = int(found.argmin())
        if float(found[k]) <= 0:
            words = tuple(prepared.model.vocabulary[t] for t in rows[k])
            distance = float(
                torch.linalg.vector_norm(embeddings[k] - prepared.embeddings[0], ord=math.inf, dim=-1).max()
            )
            example = Counterexample(tuple(ids), distance, int(logits[k].argmax()), embeddings[k : k + 1], words)
            return float(found[k]), example, None
        proved = _at_points(prepared, embeddings, "ibp", max_memory)
        left = (proved <= 0).nonzero()[:, 0]
        if 0 < len(left) <= MOST_SWEPT - open_points:
            proved[left] = _at_points(prepared, embeddings[left], "backward-forward", max_memory)
        open_points += len(left)
        least, done = min(least, float(proved.min())), done + len(batch)
        if on_progress is not None:
            on_progress(done, combinations)
    reason = None if least > 0 else "no combination changes the answer, but rounding is not excluded for all of them"
    return least, None, reason


def _at_points(prepared: Prepared, points: Tensor, method: Method, max_memory: int | None) -> Tensor:
    """Margins `[points]` at embeddings `[points, n, d]`, less what rounding may have changed: bounds at radius 0."""
    questions = [(replace(prepared, embeddings=point[None]), prepared.words[:1]) for point in points]
    problem = problem_of(
        questions,
        p=math.inf,
        method=method,
        relaxation="tight",
        max_memory=max_memory,
        examples=[prepared.embeddings],
    )
    found = problem.margins(torch.zeros(len(points), dtype=torch.float64))
    return torch.nan_to_num(found.lower.amin(dim=1), nan=-math.inf, posinf=-math.inf)


def _batches(items: Iterator[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    while part := list(itertools.islice(items, BATCH)):
        yield part

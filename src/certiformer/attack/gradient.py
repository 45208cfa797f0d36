"""The smallest perturbation that changes the answer, by projected gradient steps.

Every row is one set of positions from one start. A row keeps a radius of its own: it shrinks after a success and grows
after a failure, by less and less; each step goes in the norm's steepest direction and back into the ball. The search
runs in the precision asked for; what it returns has been tightened along its ray and checked in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..options import AttackQuestion
from ..questions.inputs import Prepared, margins
from ..questions.workspace import precision
from .forward import alone, logits_of
from .norms import dual_lengths, into_ball, lengths, steepest

_ELEMENTS = 2**20  # numbers of input in one batch
_FARTHEST = 100.0  # how far to look, in lengths of an embedding
_ROUNDS = 3
_SETTLED = 14  # halvings of the last tenth of the ray


@dataclass(frozen=True, eq=False)
class Found:
    """For each set of positions the counterexample `[1, *shape]` in float64 and its radius, or None and inf."""

    points: tuple[Tensor | None, ...]
    radii: tuple[float, ...]
    labels: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A batch of perturbations: row r moves the blocks `[t, d]` of `columns[r]`; padded blocks have weight 0."""

    module: nn.Module
    centre: Tensor  # [1, n, d]
    columns: Tensor  # [rows, t]
    weight: Tensor  # [rows, t, 1]
    label: int
    given: Tensor  # the centre in float64
    shape: tuple[int, ...]  # of what the module takes, `[batch, *shape]`
    joint: bool  # whether one norm is taken over all blocks

    def take(self, index: Tensor | slice) -> _Rows:
        return replace(self, columns=self.columns[index], weight=self.weight[index])

    def points(self, delta: Tensor) -> Tensor:
        """`[rows, t, d]` -> `[rows, *shape]`"""
        rows, _, d = delta.shape
        index = self.columns[..., None].expand(-1, -1, d)
        moved = self.centre.expand(rows, -1, -1).scatter_add(1, index, delta * self.weight)
        return moved.reshape(rows, *self.shape)

    def blocks(self, delta: Tensor) -> Tensor:
        """What norms are taken of: `[rows, t, d]`, or all of it as one block."""
        return delta.flatten(1)[:, None] if self.joint else delta

    def sizes(self, delta: Tensor, p: float) -> Tensor:
        """The largest norm of each row."""
        return lengths(self.blocks(delta), p).amax(dim=1)

    def margins(self, delta: Tensor) -> Tensor:
        with torch.no_grad():
            return margins(logits_of(self.module, self.points(delta)), self.label)


def smallest(
    prepared: Prepared,
    sets: Sequence[tuple[int, ...]],
    question: AttackQuestion,
    *,
    dtype: torch.dtype = torch.float64,
) -> Found:
    """A counterexample of small radius for each set of positions, checked in `dtype`; progress counts sets."""
    p, restarts = question.p, question.restarts
    exact = _rows(prepared, sets, question, dtype=dtype)
    here = exact.centre.reshape(1, *exact.shape)
    logits = prepared.logits if dtype == torch.float64 else check(exact.module, here)
    if bool(margins(logits, prepared.label)[0] <= 0):
        here = here.to(torch.float64)
        return Found((here,) * len(sets), (0.0,) * len(sets), (winner(logits, prepared.label),) * len(sets))
    search = _rows(prepared, sets, question, dtype=precision(question.attack_dtype))
    scale = float(lengths(exact.centre, p).mean())
    generator = torch.Generator().manual_seed(question.seed)
    best = torch.full((*search.columns.shape, exact.centre.shape[2]), math.nan, device=exact.centre.device)
    best = best.to(search.centre)
    rows = max(1, _ELEMENTS // exact.centre.numel())
    for round_ in range(_ROUNDS):  # what is not found is searched again, farther and from more starts
        left = best.isnan().any(dim=2).any(dim=1).nonzero()[:, 0]
        starts = restarts * 3**round_
        for some in (left[i : i + max(1, rows // starts)] for i in range(0, len(left), max(1, rows // starts))):
            part = search.take(some)
            begin = _starts(part, p=p, count=starts, farthest=(0.5 + round_) * scale, generator=generator)
            best[some] = _search(part, begin, _rivals(prepared), p=p, steps=question.attack_steps, scale=scale)
            if question.progress is not None and round_ == 0:
                question.progress(int(some[-1]) + 1, len(sets))
    results: list[tuple[Tensor | None, float, int | None]] = []
    for first in range(0, len(sets), rows):
        cut = slice(first, first + rows)
        results += _settle(exact.take(cut), best[cut].to(dtype), p=p)
    return Found(tuple(r[0] for r in results), tuple(r[1] for r in results), tuple(r[2] for r in results))


def _rivals(prepared: Prepared) -> Tensor:
    """The other classes, the likeliest first."""
    ranked = prepared.logits[0].argsort(descending=True)
    return ranked[ranked != prepared.label]


def _rows(
    prepared: Prepared, sets: Sequence[tuple[int, ...]], question: AttackQuestion, *, dtype: torch.dtype
) -> _Rows:
    device = prepared.embeddings.device
    t = max(len(s) for s in sets)
    columns = torch.tensor([list(s) + [s[0]] * (t - len(s)) for s in sets], device=device)
    weight = torch.tensor([[1.0] * len(s) + [0.0] * (t - len(s)) for s in sets], device=device, dtype=dtype)
    module = prepared.cast(dtype).module
    given, shape = prepared.blocks.to(torch.float64), tuple(prepared.embeddings.shape[1:])
    return _Rows(module, given.to(dtype), columns, weight[..., None], prepared.label, given, shape, question.joint)


def _starts(rows: _Rows, *, p: float, count: int, farthest: float, generator: torch.Generator) -> Tensor:
    """The centre, then random points up to a distance: `[sets, count, t, d]`."""
    sets, t = rows.columns.shape
    d = rows.centre.shape[2]
    noise = torch.randn(sets, count, t, d, generator=generator, dtype=torch.float64)
    far = farthest * torch.rand(sets, count, 1, 1, generator=generator, dtype=torch.float64)
    far[:, 0] = 0
    blocks = rows.blocks(noise.reshape(sets * count, t, d))
    noise = (blocks / lengths(blocks, p)[..., None]).reshape(noise.shape)
    return (noise * far).to(rows.centre) * rows.weight[:, None]


def _search(rows: _Rows, starts: Tensor, ranked: Tensor, *, p: float, steps: int, scale: float) -> Tensor:
    """The best perturbation of each set, `[sets, t, d]`; NaN where no start found one."""
    sets, restarts, t, d = starts.shape
    device = starts.device
    every = rows.take(torch.arange(sets, device=device).repeat_interleave(restarts))
    start = torch.arange(restarts, device=device).repeat(sets)  # [rows]
    towards = ranked[(start - 1) % len(ranked)]  # the first start goes towards any class, the others to one each
    bold = torch.where(start % 2 == 0, 1.0, 0.5).to(starts)  # length of the first step, in radii
    delta = starts.reshape(sets * restarts, t, d)
    found = torch.full((sets * restarts,), math.inf, device=device, dtype=delta.dtype)
    best = torch.full_like(delta, math.nan)
    radius = every.sizes(delta, p)
    for step in range(steps + 1):
        margin, towards_margin, gradient = _slopes(every, delta, towards, start)
        size = every.sizes(delta, p)
        won = margin <= 0
        better = won & (size < found)
        found = torch.where(better, size, found)
        best = torch.where(better[:, None, None], delta, best)
        if step == steps:
            break
        left = 0.5 * (1 + math.cos(math.pi * step / steps))
        change = 0.2 * left + 0.001
        needed = size + towards_margin / dual_lengths(every.blocks(gradient), p).sum(dim=1)  # were the margin linear
        ahead = 2 * size + 0.1 * scale  # as far as one step may look
        needed = torch.minimum(torch.maximum(torch.nan_to_num(needed, nan=math.inf), size), ahead)
        lost = torch.where(found.isinf(), needed.clamp(max=_FARTHEST * scale), radius * (1 + change))
        radius = torch.where(won, torch.minimum(radius * (1 - change), found), lost)
        move = (bold * left + 0.01) * radius  # [rows]
        blocks = every.blocks(gradient)
        direction = steepest(blocks, p, _kept(start, step / steps, blocks.shape[2])).reshape(delta.shape)
        moved = every.blocks(delta - move[:, None, None] * direction * every.weight)
        delta = into_ball(moved, radius, p).reshape(delta.shape)
    by_set = found.view(sets, restarts).argmin(dim=1)  # [sets]
    return best.view(sets, restarts, t, d)[torch.arange(sets, device=device), by_set]


def _kept(start: Tensor, progress: float, d: int) -> Tensor:
    """How many coordinates a step in l1 moves, `[rows]`: all, fewer and fewer, or one, by start.

    One is the steepest, but a LayerNorm takes back what a single coordinate gains.
    """
    shares = torch.tensor([1.0, (1 - progress) ** 4, 0.0], device=start.device)
    return (shares[start % 3] * d).round().long().clamp(min=1)


def _slopes(rows: _Rows, delta: Tensor, towards: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The margin, the margin to the class a row goes towards, and the gradient of the latter."""
    moved = delta.detach().requires_grad_(True)
    logits = logits_of(rows.module, rows.points(moved))
    margin = margins(logits, rows.label)
    chosen = logits[:, rows.label] - logits.gather(1, towards[:, None])[:, 0]
    aimed = torch.where(start == 0, margin, chosen)
    if not aimed.requires_grad:  # a module that cuts gradients off: what is left are random starts
        return margin, aimed, torch.zeros_like(delta)
    (gradient,) = torch.autograd.grad(aimed.sum(), moved)
    return margin.detach(), aimed.detach(), torch.nan_to_num(gradient)


def _settle(rows: _Rows, delta: Tensor, *, p: float) -> list[tuple[Tensor | None, float, int | None]]:
    """Shrink each perturbation along its ray in float64 and check the point that is left by a plain forward pass."""
    known = delta.isfinite().all(dim=2).all(dim=1)
    delta = torch.nan_to_num(delta)
    high = torch.ones(len(delta), dtype=delta.dtype, device=delta.device)
    for growth in (1e-6, 1e-4, 1e-2):  # what lower precision found may miss by its rounding
        missed = rows.margins(delta * high[:, None, None]) > 0
        if not bool((missed & known).any()):
            break
        high = torch.where(missed, 1 + growth, high)
    low = torch.where(rows.margins(delta * (0.9 * high)[:, None, None]) > 0, 0.9 * high, torch.zeros_like(high))
    for _ in range(_SETTLED):
        middle = (low + high) / 2
        won = rows.margins(delta * middle[:, None, None]) <= 0
        high, low = torch.where(won, middle, high), torch.where(won, low, middle)
    return [
        _checked(rows.take(slice(i, i + 1)), delta[i : i + 1] * high[i], p=p) if known[i] else (None, math.inf, None)
        for i in range(len(delta))
    ]


def _checked(row: _Rows, delta: Tensor, *, p: float) -> tuple[Tensor | None, float, int | None]:
    """The point of one row if it really changes the answer when it is run alone, in float64."""
    for nudge in (0.0, 1e-12, 1e-9, 1e-6):  # a batch and a single input may round differently
        point = row.points(delta * (1 + nudge))  # [1, *shape]
        logits = check(row.module, point)
        if bool(margins(logits, row.label)[0] <= 0):
            point = point.to(torch.float64)
            moved = (point.reshape(row.given.shape) - row.given)[:, row.columns[0]] * (row.weight > 0)
            return point, float(row.sizes(moved, p).max()), winner(logits, row.label)
    return None, math.inf, None


def check(module: nn.Module, point: Tensor) -> Tensor:
    """The logits of one point, alone, as anyone would compute them."""
    with torch.no_grad():
        return alone(module, point)


def winner(logits: Tensor, label: int | None = None) -> int:
    """The class that wins against `label`, also in a tie."""
    others = logits[0].clone()
    if label is not None:
        others[label] = -math.inf
    return int(others.argmax())

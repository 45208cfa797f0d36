"""A penalty that makes a model certifiable: how far attention scores and LayerNorm's inputs move when a word does.

What a bound loses is of second order in how far things move, so that movement is what training should keep small. For a
word `t` of each text, and a small step `h = step |x_t|_p` in the direction u in which it is largest,

    M = sum over LayerNorms and positions i of |dz_i|^2 / |z_i|^2  +  sum over rows of scores of |ds - mean(ds)|^2
        + 0.1 |dy - mean(dy)|^2, y the logits,

and the penalty is `M / (step^2 layers)`, averaged over the texts. With `parts="logs"` every LayerNorm, every layer's
scores and the answer have an M of their own, and `sum of log(1 + M / step^2)` takes the place of `M / step^2`: in a
pretrained model the first layer's scores may move ten thousand times as much as all else, and yet all is to shrink.
Where it is seen: `watching.py`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch import Tensor, nn

from ..core.names import one_of
from ..errors import InputError
from ..models.model import Model
from ..norms import norm_order
from ..recipe import MovedParts
from .watching import Seen, Watch

MASKED = -1e9  # a score below this is a mask
ANSWER = 0.1  # what a movement of the answer counts: without it models get easier to bound, and easier to change


def movement(
    model: Model | Callable[..., Tensor],
    embeddings: Tensor,
    mask: Tensor | None = None,
    *,
    positions: Tensor | None = None,
    norm: float | str = 2,
    step: float = 0.02,
    power_steps: int = 2,
    parts: MovedParts = "sum",
) -> Tensor:
    """The penalty of a batch of embeddings `[batch, n, d]`, to be added to a loss: `loss + 0.1 * movement(...)`.

    `mask` [batch, n] is True at real tokens; a module that takes a second argument is called with it. `positions`
    [batch] or [batch, k] says which word of each text moves, or which ones together; by default one real token at
    random. `parts="logs"` is for pretrained models, whose parts differ by orders of magnitude. The module is run in
    evaluation mode, without dropout; a function is run as it is.
    """
    p = norm_order(norm)
    one_of("parts", parts, get_args(MovedParts))
    if not isinstance(power_steps, int) or power_steps < 0:
        raise InputError(f"power_steps={power_steps!r}: expected a whole number of 0 or more")
    if not 0 < step < 1:
        raise InputError(f"step={step!r}: expected a share of the embedding's length between 0 and 1")
    if embeddings.dim() != 3:
        raise InputError(f"embeddings of shape {list(embeddings.shape)}: expected [batch, n, d]")
    module = model.module if isinstance(model, Model) else model
    chosen = _marked(embeddings, mask, positions)  # [batch, n, 1]
    with still(module), torch.autocast(embeddings.device.type, enabled=False):
        x = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
        x = x if x.requires_grad else x.detach().requires_grad_(True)
        length = step * torch.linalg.vector_norm(x.detach(), ord=p, dim=-1, keepdim=True) * chosen
        at_rest = _seen(module, x, mask)
        resting = Seen(*([t.detach() for t in part] for part in at_rest))
        move = length * _unit(torch.randn_like(x) * chosen, p)
        for k in range(power_steps):
            with torch.no_grad():  # the first step begins with what is seen moving at random, not with a word
                moved = _shaken(resting) if k == 0 else _seen(module, x + move, mask)
            leaves = Seen(*([t.detach().requires_grad_(True) for t in part] for part in moved))
            far = _together(_moved(resting, leaves, mask, len(x)), step, parts)
            away = torch.autograd.grad(far.sum(), _all(leaves))
            # to first order the way back from the moved point is that from the point at rest, whose graph is there
            (gradient,) = torch.autograd.grad(_all(at_rest), x, away, retain_graph=True)
            move = length * _unit(torch.nan_to_num(gradient) * chosen, p)
        layers = max(1, len(at_rest.scores))
        moved_parts = _moved(at_rest, _seen(module, x + move.detach(), mask), mask, len(x))
        return _together(moved_parts, step, parts).mean() / layers


def _marked(x: Tensor, mask: Tensor | None, positions: Tensor | None) -> Tensor:
    """1 at the positions that move, `[batch, n, 1]`."""
    batch, n = x.shape[:2]
    if mask is not None and mask.shape != (batch, n):
        raise InputError(f"mask of shape {list(mask.shape)}: expected {[batch, n]}, as the embeddings")
    if positions is None:
        real = x.new_ones(batch, n) if mask is None else mask.to(x)
        if not bool((real.sum(dim=1) > 0).all()):
            raise InputError("mask: a text has no real token")
        positions = torch.multinomial(real, 1)
    places = positions.reshape(batch, -1) if positions.shape[:1] == (batch,) else positions
    if places.dim() != 2 or places.is_floating_point() or not bool(((places >= 0) & (places < n)).all()):
        raise InputError(f"positions of shape {list(positions.shape)}: expected {batch} rows of positions below {n}")
    return x.new_zeros(batch, n).scatter(1, places, 1.0)[:, :, None]


def _unit(g: Tensor, p: float) -> Tensor:
    """At every position the vector of p-norm 1 along which `g . x` grows fastest; 0 where g is."""
    tiny = torch.finfo(g.dtype).tiny
    if math.isinf(p):
        return g.sign()
    if p == 1:  # one coordinate
        return torch.where(g.abs() == g.abs().amax(dim=-1, keepdim=True), g.sign(), 0)
    along: Tensor = g.sign() * (g.abs() / g.abs().amax(dim=-1, keepdim=True).clamp(min=tiny)) ** (1 / (p - 1))
    unit: Tensor = along / torch.linalg.vector_norm(along, ord=p, dim=-1, keepdim=True).clamp(min=tiny)
    return unit


def _seen(module: Callable[..., Tensor], x: Tensor, mask: Tensor | None) -> Seen:
    watch = Watch()
    with watch:
        answer = module(x, mask) if mask is not None and _takes_two(module) else module(x)
    watch.seen.answers.append(answer)
    if not watch.seen.norms and not watch.seen.scores:
        raise InputError("the model has neither attention nor a normalisation: there is no movement to penalise")
    return watch.seen


def _shaken(seen: Seen) -> Seen:
    """What was seen, moved at random, each vector by as much as counts the same."""
    norms = [z + torch.randn_like(z) * torch.linalg.vector_norm(z, dim=-1, keepdim=True) for z in seen.norms]
    return Seen(norms, *([s + torch.randn_like(s) for s in part] for part in (seen.scores, seen.answers)))


def _all(seen: Seen) -> list[Tensor]:
    return [t for part in seen for t in part]


def _takes_two(module: Callable[..., Tensor]) -> bool:
    call = module.forward if isinstance(module, nn.Module) else module
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(a.kind in kinds for a in inspect.signature(call).parameters.values()) > 1


def _moved(before: Seen, after: Seen, mask: Tensor | None, batch: int) -> list[Tensor]:
    """M of each LayerNorm, of each layer's scores and of the answer, `[batch]`."""
    found = []
    for a, b in zip(before.norms, after.norms, strict=True):
        tiny = torch.finfo(a.dtype).tiny
        share = (b - a).square().sum(dim=-1) / a.square().sum(dim=-1).clamp(min=tiny)  # [batch, ...]
        if mask is not None and share.shape == mask.shape:
            share = share * mask
        found.append(share.reshape(batch, -1).sum(dim=1))
    for a, b in zip(before.scores, after.scores, strict=True):
        a, b = (s.reshape(batch, -1, *s.shape[-2:]) for s in (a, b))  # [batch, heads, q, k]
        real = a > MASKED
        if mask is not None and a.shape[-2] == mask.shape[1]:
            real = real & mask[:, None, :, None]
        move = torch.where(real, b, 0) - torch.where(real, a, 0)
        mean = move.sum(dim=-1, keepdim=True) / real.sum(dim=-1, keepdim=True).clamp(min=1)
        centred = torch.where(real, move - mean, 0)
        found.append(centred.square().reshape(batch, -1).sum(dim=1))
    for a, b in zip(before.answers, after.answers, strict=True):
        move = (b - a).reshape(batch, -1)
        move = move - move.mean(dim=1, keepdim=True) if move.shape[1] > 1 else move
        found.append(ANSWER * move.square().sum(dim=1))
    return found


def _together(moved: list[Tensor], step: float, parts: MovedParts) -> Tensor:
    """All M of each text, over the square of the step, `[batch]`: their sum, or that of `log(1 + M)`."""
    each = torch.stack(moved) / (step * step)  # [parts, batch]
    return (each.log1p() if parts == "logs" else each).sum(dim=0)


@contextmanager
def still(module: Callable[..., Tensor]) -> Iterator[None]:
    """A module in evaluation mode, its parts put back as they were."""
    parts = [(part, part.training) for part in module.modules()] if isinstance(module, nn.Module) else []
    for part, _ in parts:
        part.training = False
    try:
        yield
    finally:
        for part, was in parts:
            part.training = was

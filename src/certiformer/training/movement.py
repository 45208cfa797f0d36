"""A penalty that makes a model certifiable: how far attention scores and LayerNorm's inputs move when a word does.

What a bound loses is of second order in how far things move, so that movement is what training should keep small. For a
word `t` of each text, and a small step `h = step |x_t|_p` in the direction u in which it is largest,

    M = sum over LayerNorms and positions i of |dz_i|^2 / |z_i|^2  +  sum over rows of scores of |ds - mean(ds)|^2,

and the penalty is `M / (step^2 layers)`, averaged over the texts. It is seen at the calls of `layer_norm`, `rms_norm`,
`softmax` and `scaled_dot_product_attention`, whatever the architecture around them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..errors import InputError
from ..models.model import Model
from ..norms import norm_order

MASKED = -1e9  # a score below this is a mask
SOFTMAXES = (torch.softmax, Tensor.softmax, F.softmax)
NORMS = (F.layer_norm, torch.layer_norm)
ROOT_MEAN_SQUARES = (F.rms_norm, torch.rms_norm)


class Seen(NamedTuple):
    """What a forward pass showed: inputs of LayerNorms `[batch, ..., d]`, centred; scores `[batch, ..., q, k]`."""

    norms: list[Tensor]
    scores: list[Tensor]


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen([], [])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func in NORMS or func in ROOT_MEAN_SQUARES:
            x = args[0] if args else given["input"]
            self.seen.norms.append(x - x.mean(dim=-1, keepdim=True) if func in NORMS else x)
        elif func in SOFTMAXES:
            x = args[0] if args else given["input"]
            axis = args[1] if len(args) > 1 else given.get("dim")
            if x.dim() >= 3 and axis in (-1, x.dim() - 1):
                self.seen.scores.append(x)
        elif func is F.scaled_dot_product_attention:
            self.seen.scores.append(_scores(*args, **given))
        return func(*args, **given)


def movement(
    model: Model | Callable[..., Tensor],
    embeddings: Tensor,
    mask: Tensor | None = None,
    *,
    positions: Tensor | None = None,
    norm: float | str = 2,
    step: float = 0.02,
    power_steps: int = 2,
) -> Tensor:
    """The penalty of a batch of embeddings `[batch, n, d]`, to be added to a loss: `loss + 0.1 * movement(...)`.

    `mask` [batch, n] is True at real tokens; a module that takes a second argument is called with it. `positions`
    [batch] or [batch, k] says which word of each text moves, or which ones together; by default one real token at
    random. The module is run in evaluation mode, without dropout; a function is run as it is.
    """
    p = norm_order(norm)
    if not isinstance(power_steps, int) or power_steps < 0:
        raise InputError(f"power_steps={power_steps!r}: expected a whole number of 0 or more")
    if not 0 < step < 1:
        raise InputError(f"step={step!r}: expected a share of the embedding's length between 0 and 1")
    if embeddings.dim() != 3:
        raise InputError(f"embeddings of shape {list(embeddings.shape)}: expected [batch, n, d]")
    module = model.module if isinstance(model, Model) else model
    chosen = _marked(embeddings, mask, positions)  # [batch, n, 1]
    with _still(module), torch.autocast(embeddings.device.type, enabled=False):
        x = embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
        length = step * torch.linalg.vector_norm(x.detach(), ord=p, dim=-1, keepdim=True) * chosen
        at_rest = _seen(module, x, mask)
        still = Seen(*([t.detach() for t in part] for part in at_rest))
        move = length * _unit(torch.randn_like(x) * chosen, p)
        for _ in range(power_steps):
            move.requires_grad_(True)
            moved = _seen(module, x.detach() + move, mask)
            (gradient,) = torch.autograd.grad(_moved(still, moved, mask, len(x)).sum(), move)
            move = length * _unit(torch.nan_to_num(gradient) * chosen, p)
        layers = max(1, len(at_rest.scores))
        return _moved(at_rest, _seen(module, x + move.detach(), mask), mask, len(x)).mean() / (step * step * layers)


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
    watch = _Watch()
    with watch:
        module(x, mask) if mask is not None and _takes_two(module) else module(x)
    if not watch.seen.norms and not watch.seen.scores:
        raise InputError("the model calls neither softmax over scores nor LayerNorm: there is no movement to penalise")
    return watch.seen


def _takes_two(module: Callable[..., Tensor]) -> bool:
    call = module.forward if isinstance(module, nn.Module) else module
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(a.kind in kinds for a in inspect.signature(call).parameters.values()) > 1


def _moved(before: Seen, after: Seen, mask: Tensor | None, batch: int) -> Tensor:
    """M of each text, `[batch]`."""
    total = torch.zeros(
        batch, dtype=(before.norms or before.scores)[0].dtype, device=(before.norms or before.scores)[0].device
    )
    for a, b in zip(before.norms, after.norms, strict=True):
        tiny = torch.finfo(a.dtype).tiny
        share = (b - a).square().sum(dim=-1) / a.square().sum(dim=-1).clamp(min=tiny)  # [batch, ...]
        if mask is not None and share.shape == mask.shape:
            share = share * mask
        total = total + share.reshape(batch, -1).sum(dim=1)
    for a, b in zip(before.scores, after.scores, strict=True):
        real = a > MASKED
        if mask is not None and a.shape[-2] == mask.shape[1]:
            rows = mask.reshape(batch, *(1,) * (a.dim() - 3), -1, 1) if a.shape[0] == batch else None
            real = real if rows is None else real & rows
        move = torch.where(real, b, 0) - torch.where(real, a, 0)
        mean = move.sum(dim=-1, keepdim=True) / real.sum(dim=-1, keepdim=True).clamp(min=1)
        centred = torch.where(real, move - mean, 0)
        total = total + centred.square().reshape(batch, -1).sum(dim=1)
    return total


def _scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The scores that `scaled_dot_product_attention` takes its softmax of."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    s = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    if attn_mask is None:
        return s
    return s.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else s + attn_mask


@contextmanager
def _still(module: Callable[..., Tensor]) -> Iterator[None]:
    """A module in evaluation mode, its parts put back as they were."""
    parts = [(part, part.training) for part in module.modules()] if isinstance(module, nn.Module) else []
    for part, _ in parts:
        part.training = False
    try:
        yield
    finally:
        for part, was in parts:
            part.training = was

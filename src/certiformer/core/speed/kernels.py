"""The two steps that every sweep repeats entry by entry, on tensors `[side, ...]` with one pass over memory."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.base import broadcast


def with_sides(centre: Tensor, spread: Tensor) -> Tensor:
    """`[centre - spread, centre + spread]` on the side axis, each side with its own values where it has two."""
    if torch.is_grad_enabled():
        return torch.cat([centre[:1] - spread[:1], centre[-1:] + spread[-1:]], dim=0)
    out = centre.new_empty(broadcast((2, *centre.shape[1:]), (2, *spread.shape[1:])))
    torch.sub(centre[0], spread[0], out=out[0])
    torch.add(centre[-1], spread[-1], out=out[1])
    return out


def two_sided(a: Tensor, c: Tensor, g: Tensor) -> Tensor:
    """`a c ∓ |a| g`, the minus on the lower side."""
    if torch.is_grad_enabled():
        return with_sides(a * c, a.abs() * g)
    if a.is_cuda:
        from .fused import KERNEL

        if KERNEL is not None:
            signs = torch.arange(-1, 2, 2, dtype=a.dtype, device=a.device)  # -1 and 1
            return KERNEL(a, c, g, signs.reshape(2, *(1,) * (a.dim() - 1)))
    out = a.new_empty((2, *broadcast(tuple(a.shape[1:]), tuple(c.shape[1:]))))
    for one, sign, into in ((a[0], -1, out[0]), (a[-1], 1, out[1])):
        torch.mul(one, c[0], out=into)
        into.addcmul_(one.abs(), g[0], value=sign)
    return out

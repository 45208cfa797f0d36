"""The two steps that every sweep repeats entry by entry, on tensors `[side, ...]` with one pass over memory.

And the precision of the products between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from ..ops.base import broadcast

SOURCE = """
template <typename T> T two_sided(T a, T c, T g, T side) { return a * c + side * (a < T(0) ? -a : a) * g; }
"""


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
    fused = _fused() if a.is_cuda else None
    if fused is not None:
        return fused(a, c, g, _signs(a.dtype, a.device).reshape(2, *(1,) * (a.dim() - 1)))
    out = a.new_empty((2, *broadcast(tuple(a.shape[1:]), tuple(c.shape[1:]))))
    for one, sign, into in ((a[0], -1, out[0]), (a[-1], 1, out[1])):
        torch.mul(one, c[0], out=into)
        into.addcmul_(one.abs(), g[0], value=sign)
    return out


@contextmanager
def products(*, rough: bool) -> Iterator[None]:
    """Products of float32 matrices: to that precision, whatever was set before; less only where nothing is proved."""
    before, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if rough else "highest")
    torch.backends.cudnn.allow_tf32 = rough
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolutions


@cache
def _signs(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor([-1.0, 1.0], dtype=dtype, device=device)


@cache
def _fused() -> Callable[..., Tensor] | None:
    """The same as one kernel, compiled when it is first needed; None where there is no compiler for it."""
    try:
        kernel: Callable[..., Tensor] = torch.cuda.jiterator._create_jit_fn(SOURCE)
        x = torch.ones(1, dtype=torch.float64, device="cuda")
        assert float(kernel(-x, x, x, x)) == 0.0
    except Exception:  # whatever is missing: the plain way gives the same numbers
        return None
    return kernel

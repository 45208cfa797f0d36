"""Floating point: what the arithmetic of a sweep may have lost.

Substituting `y = sum_k c_k x_k + b` into coefficients `A` computes `fl(A c)`. In any order of summation the error is at
most `gamma |A| |c|`, and its effect on the bound at most `|A| (gamma (|c| |x|_max + |b|))`: one more gap on the offset
of the op. So rounding is a term of the planes, not a correction at the end. `|x|_max` comes from the boxes. Additions
of paths and of offsets are covered by counting them into gamma. Below the smallest normal number rounding is absolute:
`least` is added to every size for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..errors import InputError
from .graph.graph import Node
from .ops.base import INSTANCE_NAME, Planes, Shape, Slope, ulp

EXACT = ("none", "ieee")  # names of float32 products that round each entry once
SLACK = 24.0  # operations per entry besides the contraction itself: splitting slopes, joining paths
UNDERFLOW = 2.0**60  # products that may have been lost below the smallest normal number, each by less than that


def tiny(like: Tensor) -> float:
    """The smallest normal number of a precision."""
    return float(torch.finfo(like.dtype).tiny)


def least(like: Tensor) -> float:
    """What is added to the size of a sum, so that `gamma` times it also covers terms lost below the normal numbers.

    Each of k terms may lose `tiny` there, whatever its size, and later layers may make that large: `k tiny` is at most
    `gamma(k) tiny / u`.
    """
    return tiny(like) / ulp(like)


def rounded_down(x: float, like: Tensor) -> float:
    """The largest number of a precision that is not above x."""
    near = torch.tensor(x, dtype=like.dtype)
    down = near if float(near) <= x else torch.nextafter(near, torch.tensor(-math.inf, dtype=like.dtype))
    return float(down)


@contextmanager
def exact_products(like: Tensor) -> Iterator[None]:
    """Inside, products of matrices are as precise as their entries: refused where the program has set torch otherwise.

    float32 matrices may be multiplied in TF32 or bfloat16 (`torch.set_float32_matmul_precision`, or PyTorch's newer
    `torch.backends.*.fp32_precision`), for the whole process, all threads included. A proof neither changes that, nor
    can it rest on it: in single precision it ends with an `InputError` if less is set when it begins or when it ends.
    float64 is never affected, nor are drafts, which prove nothing: on a GPU they are faster with TF32 switched on.
    """
    _refuse_less(like)
    yield
    _refuse_less(like)


def _refuse_less(like: Tensor) -> None:
    if like.dtype != torch.float32:
        return
    if (found := _less(like)) is not None:
        raise InputError(f"dtype={like.dtype}: no proof can rest on {found}, or use dtype=torch.float64")


def whole_products(like: Tensor) -> None:
    """Refuse to say anything of a model in float32 where the program multiplies float32 matrices in less."""
    if (found := _less(like)) is not None:
        raise InputError(f"arithmetic='float32': the model would not run in float32 but with {found}")


def _less(like: Tensor) -> str | None:
    """What float32 matrices are multiplied in, in words, where that is less than float32."""
    cuda = like.is_cuda
    backend = torch.backends.cuda if cuda else torch.backends.mkldnn
    found: str = backend.matmul.fp32_precision  # whichever way it was set
    if found in EXACT:
        return None
    where = f"torch.backends.{'cuda' if cuda else 'mkldnn'}.matmul.fp32_precision"
    return f"products in {found}, which this program has set torch to ({where}={found!r}); set it to 'ieee'"


def too_many(like: Tensor, terms: float) -> bool:
    """Whether sums of so many terms may lose half of themselves in this precision: then nothing is said of them."""
    return terms * ulp(like) >= 0.5


def too_long(node: Node, like: Tensor) -> str:
    """That in words."""
    return f"{node} has too many entries for {like.dtype}: sums of them may lose all precision; use float64"


def gamma(like: Tensor, terms: float) -> float:
    """`k u / (1 - k u)`, doubled, since the error term is itself computed with rounding; infinite where too many."""
    if too_many(like, terms):
        return math.inf
    k = terms * ulp(like)
    return 2 * k / (1 - k)


def load(planes: Planes, k: int, x: Tensor, coefficients: Tensor | None = None) -> Tensor:
    """`sum_k c_k x_k` on the axes of the output, broadcastable to it; by default with the sizes of the slopes."""
    slope: Slope = planes.slopes[k]
    size = torch.maximum(slope.lower.abs(), slope.upper.abs()) if coefficients is None else coefficients
    present = "".join(l for l in planes.outputs if l in slope.axes or l in slope.inputs)
    z = INSTANCE_NAME
    total: Tensor = torch.einsum(f"{z}{slope.axes},{z}{slope.inputs}->{z}{present}", size, x)
    for axis, letter in enumerate(planes.outputs):
        if letter not in present:
            total = total.unsqueeze(1 + axis)
    return total


def terms(planes: Planes, shape: Shape) -> int:
    """The length of the longest contraction in pulling coefficients on a node of this shape through its planes."""
    longest = 1
    for slope in planes.slopes:
        longest = max(
            longest, math.prod(s for l, s in zip(planes.outputs, shape, strict=True) if l not in slope.inputs)
        )
    return longest

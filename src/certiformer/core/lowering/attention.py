"""Masks: constant choices between tensors, softmax over some of the columns, attention as a whole.

A masked score has probability exactly zero. A softmax with a mask becomes softmaxes over the columns that are kept,
one for every run of heads and of rows with the same mask, with zeros put back around them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops.base import Shape
from ..ops.linear import Add, Scale, Shift
from ..ops.movement import Concat, Slice
from ..ops.softmax import LogSumExp, Softmax
from .arithmetic import matmul
from .moves import copies, expand, squeeze, swap
from .table import Build, Operand, Ref, Refused, lowers

aten = torch.ops.aten
LOW = -1e30  # a constant this low, added to a score, masks it


@lowers(aten.where.self, "condition self other")
def where(build: Build, condition: Operand, x: Operand, y: Operand) -> Operand:
    """`where(c, x, y)` for a constant c."""
    if not isinstance(condition, Tensor):
        raise Refused("a choice that depends on the embeddings")
    chosen = condition.to(build.like.device).bool().expand(build.result_shape)
    parts = [_part(build, x, chosen), _part(build, y, ~chosen)]
    nodes = [p for p in parts if isinstance(p, Ref)]
    constants = [p for p in parts if isinstance(p, Tensor)]
    if not nodes:
        return sum(constants[1:], constants[0])
    out = build.add(Add(), *nodes) if len(nodes) == 2 else nodes[0]
    return build.add(Shift(constants[0]), out) if constants and bool(constants[0].any()) else out


@lowers(aten.masked_fill.Scalar, "self mask value")
@lowers(aten.masked_fill.Tensor, "self mask value")
def masked_fill(build: Build, x: Operand, mask: Operand, value: Operand) -> Operand:
    """`where(c, y, x)` for a constant c."""
    return where(build, mask, value, x)


def _part(build: Build, x: Operand, chosen: Tensor) -> Ref | Tensor | None:
    """`x` where chosen, zero elsewhere: a node, a constant, or None where it is never chosen."""
    if not bool(chosen.any()):
        return None
    if not isinstance(x, Ref):
        value = build.constant(x).expand(chosen.shape)
        return torch.where(chosen, value, torch.zeros_like(value))
    x = expand(build, x, tuple(chosen.shape))
    return x if bool(chosen.all()) else build.add(Scale(build.constant(chosen)), x)


@lowers(aten.softmax.int, "self dim", unread="dtype")
@lowers(aten._softmax.default, "self dim", unread="half_to_float")
def softmax(build: Build, x: Operand, dim: int) -> Ref:
    """Softmax over an axis; over the last, masked where a constant of `LOW` or less was added to the scores."""
    x, last = build.node(x), len(build.shape(x)) - 1
    axis = dim % (last + 1)
    if axis != last:
        return swap(build, build.add(Softmax(), swap(build, x, axis, last)), axis, last)
    return masked_softmax(build, *unmasked(build, x))


@lowers(aten.logsumexp.default, "self dim keepdim")
def logsumexp(build: Build, x: Operand, dims: Sequence[int], keepdim: bool) -> Ref:
    """`log sum exp(x)` over an axis."""
    if len(dims) != 1:
        raise Refused(f"a logsumexp over {len(dims)} axes")
    axis = dims[0] % len(build.shape(x))
    y = _logsumexp(build, x, axis)
    return y if keepdim else squeeze(build, y, (axis,))


@lowers(aten.log_softmax.int, "self dim", unread="dtype")
@lowers(aten._log_softmax.default, "self dim", unread="half_to_float")
def log_softmax(build: Build, x: Operand, dim: int) -> Ref:
    """`x - logsumexp(x)`: in a difference of two classes the second term cancels exactly."""
    return build.add(Add(-1.0), x, _logsumexp(build, x, dim % len(build.shape(x))))


def _logsumexp(build: Build, x: Operand, axis: int) -> Ref:
    """Over any axis, which stays with size 1."""
    last = len(build.shape(x)) - 1
    if axis == last:
        return build.add(LogSumExp(), x)
    return swap(build, build.add(LogSumExp(), swap(build, x, axis, last)), axis, last)


def unmasked(build: Build, x: Ref) -> tuple[Ref, Tensor | None]:
    """Scores without the constants that mask them, and which are kept (None: all)."""
    shape = build.shape(x)
    kept = torch.ones(shape, dtype=torch.bool, device=build.like.device)
    rest: list[Tensor] = []  # the last one first; each is added on its own, as the model does
    found = x
    while True:
        op = build.op(found)
        if isinstance(op, Shift):
            low = op.value <= LOW
            kept = kept & ~low
            rest.append(torch.where(low, torch.zeros_like(op.value), op.value))
        elif not (isinstance(op, Scale) and bool(((op.value == 1) | ~kept).all())):
            break  # a factor of 0 on masked scores does not matter
        (found,) = build.inputs(found)
    if bool(kept.all()):
        return x, None
    found = expand(build, found, shape)
    for value in reversed(rest):
        value = torch.where(kept, value, torch.zeros_like(value))
        found = build.add(Shift(value), found) if bool(value.any()) else found
    return found, kept


def masked_softmax(build: Build, x: Ref, kept: Tensor | None, *, empty: float | None = None) -> Ref:
    """Softmax over the kept columns, zero elsewhere. `empty`: the value of rows with nothing kept (1/n by default)."""
    if kept is None or bool(kept.all()):
        return build.add(Softmax(), x)
    shape = build.shape(x)
    kept = kept.expand(shape)
    for axis in range(len(shape) - 1):  # heads and rows with the same mask in a row go together
        slices = kept.unbind(axis)
        runs = [i for i in range(len(slices)) if i == 0 or not torch.equal(slices[i], slices[i - 1])]
        if len(runs) > 1:
            parts = [
                masked_softmax(build, build.add(Slice(axis, i, j - i), x), kept.narrow(axis, i, j - i), empty=empty)
                for i, j in zip(runs, [*runs[1:], len(slices)], strict=True)
            ]
            return build.add(Concat(axis), *parts)
    row = kept.reshape(-1, shape[-1])[0].tolist()
    return _columns(build, x, row, shape[:-1], 1 / len(row) if empty is None else empty)


def _columns(build: Build, x: Ref, row: list[bool], lead: Shape, blank: float) -> Ref:
    """Rows that share a mask."""
    if not any(row):
        return build.node(build.like.new_full((*lead, len(row)), blank))
    runs, start = [], 0  # (kept, start, length)
    for keep, group in itertools.groupby(row):
        length = len(list(group))
        runs.append((keep, start, length))
        start += length
    last = len(lead)
    pieces = [x if n == len(row) else build.add(Slice(last, s, n), x) for keep, s, n in runs if keep]
    p = build.add(Softmax(), pieces[0] if len(pieces) == 1 else build.add(Concat(last), *pieces))
    out, at = [], 0
    for keep, _, length in runs:
        if not keep:
            out.append(build.node(build.like.new_zeros((*lead, length))))
            continue
        out.append(p if len(pieces) == 1 else build.add(Slice(last, at, length), p))
        at += length
    return out[0] if len(out) == 1 else build.add(Concat(last), *out)


@lowers(aten.scaled_dot_product_attention.default, "query key value attn_mask is_causal scale enable_gqa")
def attention(
    build: Build,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Ref:
    """`softmax(scale q k^T + mask) v`, before it is taken apart."""
    q, k, v = (build.node(x) for x in (query, key, value))
    if isinstance(mask, Ref):
        raise Refused("an attention mask that depends on the embeddings")
    if grouped:
        heads, axis = build.shape(q)[-3], len(build.shape(k)) - 3
        k, v = (copies(build, x, axis, heads // build.shape(x)[axis]) for x in (k, v))
    rank = len(build.shape(k))
    scores = matmul(build, q, swap(build, k, rank - 2, rank - 1))
    factor = 1 / math.sqrt(build.shape(q)[-1]) if scale is None else float(scale)
    scores = build.add(Scale(build.constant(factor)), scores)
    kept, empty = None, 0.0
    if causal:
        n, m = build.shape(scores)[-2:]
        kept = torch.ones(n, m, dtype=torch.bool, device=build.like.device).tril()
    elif isinstance(mask, Tensor) and mask.dtype == torch.bool:
        kept = mask.to(build.like.device)
    elif isinstance(mask, Tensor):
        scores, kept = unmasked(build, build.add(Shift(build.constant(mask)), scores))
        empty = 0.0 if bool(torch.isneginf(mask).any()) else 1 / build.shape(scores)[-1]
    return matmul(build, masked_softmax(build, scores, kept, empty=empty), v)

"""Masks: constant choices between tensors, softmax over some of the columns, attention as a whole.

A masked score has probability exactly zero. A softmax with a mask becomes softmaxes over the columns that are kept,
one for every run of heads and of rows with the same mask, with zeros put back around them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from .composite import Rewrite, argument, rewrite
from .gather import copies
from .linear import Add, Scale, Shift
from .movement import Concat, Slice
from .softmax import Softmax

LOW = -1e30  # a constant this low, added to a score, masks it


@rewrite
class Where(Rewrite):
    """`where(c, x, y)`, `x.masked_fill(c, y)` for a constant c."""

    targets = ("aten.where.self", "aten.masked_fill.Scalar", "aten.masked_fill.Tensor")

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        chosen, x, y = args[:3]
        if "masked_fill" in build.target:
            chosen, x, y = args[1], args[2], args[0]
        if build.is_node(chosen):
            return build.unsupported("a choice that depends on the embeddings")
        chosen = chosen.to(build.example.device).bool().expand(build.result_shape)
        parts = [_part(build, x, chosen), _part(build, y, ~chosen)]
        nodes = [p for p in parts if build.is_node(p)]
        constants = [p for p in parts if isinstance(p, Tensor)]
        out = build.add(Add(), *nodes) if len(nodes) == 2 else nodes[0] if nodes else sum(constants)
        return build.add(Shift(constants[0]), out) if nodes and constants and bool(constants[0].any()) else out


def _part(build: Any, x: Any, chosen: Tensor) -> Any:
    """`x` where chosen, zero elsewhere: a node, a constant, or None where it is never chosen."""
    if not bool(chosen.any()):
        return None
    if not build.is_node(x):
        value = build.constant(x).expand(chosen.shape)
        return torch.where(chosen, value, torch.zeros_like(value))
    x = build.expand(x, tuple(chosen.shape))
    return x if bool(chosen.all()) else build.add(Scale(build.constant(chosen)), x)


@rewrite
class MaskedSoftmax(Rewrite):
    """Softmax over the last axis, masked where a constant of `LOW` or less was added to the scores."""

    targets = Softmax.targets

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, axis = args[0], argument(args, kwargs, 1, "dim", -1)
        if axis % len(build.shape(x)) != len(build.shape(x)) - 1:
            return Softmax.lower(build, args, kwargs)
        return masked_softmax(build, *unmasked(build, x))


def unmasked(build: Any, x: Any) -> tuple[Any, Tensor | None]:
    """Scores without the constants that mask them, and which are kept (None: all)."""
    shape = build.shape(x)
    kept = torch.ones(shape, dtype=torch.bool, device=build.example.device)
    rest = build.example.new_zeros(shape)
    found = x
    while True:
        node = build.nodes[found.index]
        if isinstance(node.op, Shift):
            low = node.op.value <= LOW
            kept = kept & ~low
            rest = rest + torch.where(low, torch.zeros_like(node.op.value), node.op.value)
        elif not (isinstance(node.op, Scale) and bool(((node.op.value == 1) | ~kept).all())):
            break  # a factor of 0 on masked scores does not matter
        found = build.at(node.inputs[0])
    if bool(kept.all()):
        return x, None
    found = build.expand(found, shape)
    rest = torch.where(kept, rest, torch.zeros_like(rest))
    return (build.add(Shift(rest), found) if bool(rest.any()) else found), kept


def masked_softmax(build: Any, x: Any, kept: Tensor | None, *, empty: float | None = None) -> Any:
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


def _columns(build: Any, x: Any, row: list[bool], lead: tuple[int, ...], blank: float) -> Any:
    """Rows that share a mask."""
    if not any(row):
        return build.node(build.example.new_full((*lead, len(row)), blank))
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
            out.append(build.node(build.example.new_zeros((*lead, length))))
            continue
        out.append(p if len(pieces) == 1 else build.add(Slice(last, at, length), p))
        at += length
    return out[0] if len(out) == 1 else build.add(Concat(last), *out)


@rewrite
class Attention(Rewrite):
    """`softmax(scale q k^T + mask) v`, before it is taken apart."""

    targets = ("aten.scaled_dot_product_attention.default",)

    @classmethod
    def lower(cls, build: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        q, k, v = (build.node(x) for x in args[:3])
        mask = argument(args, kwargs, 3, "attn_mask", None)
        causal = argument(args, kwargs, 5, "is_causal", False)
        scale = kwargs.get("scale")
        if mask is not None and build.is_node(mask):
            return build.unsupported("an attention mask that depends on the embeddings")
        if kwargs.get("enable_gqa", False):
            times = build.shape(q)[-3] // build.shape(k)[-3]
            axis = len(build.shape(k)) - 3
            k, v = copies(build, k, axis, times), copies(build, v, axis, times)
        rank = len(build.shape(k))
        scores = build.call("aten.matmul.default", q, build.transpose(k, rank - 2, rank - 1))
        factor = 1 / math.sqrt(build.shape(q)[-1]) if scale is None else float(scale)
        scores = build.add(Scale(build.constant(factor)), scores)
        kept: Tensor | None = None
        if causal:
            n, m = build.shape(scores)[-2:]
            kept = torch.ones(n, m, dtype=torch.bool, device=build.example.device).tril()
        elif mask is not None and mask.dtype == torch.bool:
            kept = mask.to(build.example.device)
        elif mask is not None:
            scores, kept = unmasked(build, build.add(Shift(build.constant(mask)), scores))
        probabilities = masked_softmax(build, scores, kept, empty=0.0)
        return build.call("aten.matmul.default", probabilities, v)

"""Float32 evaluations of ops and of whole graphs, in orders of summation that no library would choose."""

from __future__ import annotations

import itertools
import random

import torch
from torch import Tensor

from certiformer.core.graph.graph import Constant, Graph, Input
from certiformer.core.ops.base import Op
from certiformer.core.ops.linear import Add, Center, Linear, Sum, align
from certiformer.core.ops.normalize import Normalize
from certiformer.core.ops.product import MatMul, Multiply
from certiformer.core.ops.rounded import Rounded
from certiformer.core.ops.softmax import Softmax

ORDERS = ("torch", "forward", "reversed", "shuffled", "largest first", "pairwise", "blocks", "fused")


def total(a: Tensor, b: Tensor | None, order: str) -> Tensor:
    """The sum over the last axis of float32 numbers `a`, or of their products with `b`."""
    if order == "torch":
        return (a if b is None else a * b).sum(dim=-1)
    n = a.shape[-1]
    if order == "shuffled":
        turn = torch.randperm(n)
    elif order == "largest first":
        turn = (a if b is None else a * b).abs().flatten(0, -2).amax(dim=0).argsort(descending=True)
    else:
        turn = torch.arange(n).flip(0) if order == "reversed" else torch.arange(n)
    a, b = a[..., turn], None if b is None else b[..., turn]
    if order == "fused" and b is not None:  # a product of two float32 is exact in float64
        out = torch.zeros_like(a[..., 0] * b[..., 0])
        for k in range(n):
            out = (out.double() + a[..., k].double() * b[..., k].double()).float()
        return out
    terms = list((a if b is None else a * b).unbind(-1))
    if order == "pairwise":
        while len(terms) > 1:
            terms = [sum(pair[1:], pair[0]) for pair in itertools.zip_longest(terms[::2], terms[1::2], fillvalue=0)]
        return terms[0]
    if order == "blocks":
        parts = [terms[k : k + 4] for k in range(0, n, 4)]
        terms = [_one_by_one(part) for part in parts]
    return _one_by_one(terms)


def _one_by_one(terms: list[Tensor]) -> Tensor:
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out


def layer_norm(x: Tensor, eps: float, order: str, *, centred: bool) -> Tensor:
    """LayerNorm or RMSNorm without weights; how the variance is found goes with the order."""
    n = x.shape[-1]
    mean = total(x, None, order).unsqueeze(-1) / n if centred else torch.zeros_like(x[..., :1])
    if centred and order in ("forward", "blocks"):  # from the mean of squares
        variance = (total(x, x, order).unsqueeze(-1) / n - mean * mean).clamp(min=0)
    elif centred and order == "reversed":  # Welford
        mean, variance = torch.zeros_like(mean), torch.zeros_like(mean)
        for k in range(n):
            away = x[..., k : k + 1] - mean
            mean = mean + away / (k + 1)
            variance = variance + away * (x[..., k : k + 1] - mean)
        variance = variance / n
    else:
        z = x - mean
        variance = total(z, z, order).unsqueeze(-1) / n
    rate = torch.rsqrt(variance + eps) if order != "pairwise" else 1 / torch.sqrt(variance + eps)
    return x * rate + (-mean * rate) if order in ("fused", "shuffled") else (x - mean) * rate


def softmax(s: Tensor, order: str) -> Tensor:
    """Softmax over the last axis; in blocks, the largest score so far goes along."""
    if order == "torch":
        return s.softmax(dim=-1)
    if order == "blocks":
        top, mass = torch.full_like(s[..., :1], -torch.inf), torch.zeros_like(s[..., :1])
        for part in s.split(2, dim=-1):
            new = torch.maximum(top, part.amax(dim=-1, keepdim=True))
            mass = mass * torch.exp(top - new) + torch.exp(part - new).sum(dim=-1, keepdim=True)
            top = new
        return torch.exp(s - top) * (1 / mass)
    e = torch.exp(s - s.amax(dim=-1, keepdim=True))
    return e / total(e, None, order).unsqueeze(-1)


def evaluated(op: Op, order: str, *x: Tensor) -> Tensor:
    """An op at float32 inputs `[instances, ...]`, in float32."""
    if isinstance(op, Linear):
        out = total(x[0].unsqueeze(-2), op.weight, order)
        return out if op.bias is None else out + op.bias
    if isinstance(op, MatMul):
        return total(x[0].unsqueeze(-2), x[1].mT.unsqueeze(-3), order)
    if isinstance(op, Sum):
        axes = [a + 1 for a in op.axes]
        rest = [a for a in range(x[0].dim()) if a not in axes]
        flat = x[0].permute(*rest, *axes).flatten(len(rest))
        out = total(flat, None, order).reshape([1 if a in axes else s for a, s in enumerate(x[0].shape)])
        return out / op.count(tuple(x[0].shape[1:])) if op.mean else out
    if isinstance(op, Center):
        return x[0] - total(x[0], None, order).unsqueeze(-1) / x[0].shape[-1]
    if isinstance(op, Normalize):
        return layer_norm(x[-1], op.eps, order, centred=len(x) > 1)
    if isinstance(op, Softmax):
        return softmax(x[0], order)
    if isinstance(op, (Add, Multiply)):
        x = align(*x)
    return op.forward(*x)


def run(graph: Graph, x: Tensor, order: str) -> list[Tensor]:
    """Every node of a graph of `in_float32`, as float32 computes it at points `[instances, ...]`.

    "mixed" takes another order at every op. Nodes that are rounded later have their value at the rounded inputs.
    """
    values: list[Tensor] = []
    choice = random.Random(0)
    for node in graph.to(torch.float32).nodes:
        given = [values[i] for i in node.inputs]
        if isinstance(node.op, Input):
            value = x.float()
        elif isinstance(node.op, Constant):
            value = node.op.value[None]
        elif isinstance(node.op, Rounded):
            source = given[0]
            reads = [values[i] for i in node.reads]
            turn = choice.choice(ORDERS) if order == "mixed" else order
            value = source if node.op.op is None else evaluated(node.op.op, turn, *reads)
        else:
            value = node.op.forward(*given)
        values.append(value)
    return values

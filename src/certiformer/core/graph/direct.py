"""A module run on a symbol instead of a tensor: a graph without torch.export, which takes seconds to load.

For modules that say `direct = True`: their `forward` uses nothing but what `Symbol` knows. The graph is the same as
torch.export's, and checked against the module in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._ops import OpOverload

from ..lowering import Ref, arguments
from .build import Builder

_aten = torch.ops.aten


class Unknown(Exception):
    """A call that is not in `CALLS`."""


@dataclass(frozen=True)
class Trace:
    """One run of a module on symbols."""

    builder: Builder
    names: Mapping[nn.Module, str]
    own: Mapping[int, Tensor]  # the module's parameters and buffers

    def path(self) -> str:
        """The innermost part of the module whose code is running, as the stack of this thread has it."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            part = frame.f_locals.get("self")
            if isinstance(part, nn.Module) and part in self.names:
                return self.names[part]
            frame = frame.f_back
        return ""


class Symbol:
    """Stands for a node: calling torch's functions on it adds nodes."""

    def __init__(self, run: Trace, ref: Ref) -> None:
        self.run, self.ref = run, ref

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in CALLS:
            raise Unknown(getattr(func, "__name__", str(func)))
        kwargs = dict(kwargs or {})
        if kwargs.pop("inplace", False):
            raise Unknown("a call in place")
        return _call(CALLS[func], *args, **kwargs)

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.run.builder.shape(self.ref))

    def view(self, *sizes: int) -> Symbol:
        return _call(_aten.view.default, self, list(sizes))

    def reshape(self, sizes: torch.Size) -> Symbol:
        return _call(_aten.reshape.default, self, list(sizes))

    def transpose(self, i: int, j: int) -> Symbol:
        return _call(_aten.transpose.int, self, i, j)

    def mean(self, dim: int, keepdim: bool = False) -> Symbol:
        return _call(_aten.mean.dim, self, [dim], keepdim)

    def softmax(self, dim: int) -> Symbol:
        return _call(_aten.softmax.int, self, dim)

    def __add__(self, other: Symbol) -> Symbol:
        return _call(_aten.add.Tensor, self, other)

    def __sub__(self, other: Symbol) -> Symbol:
        return _call(_aten.sub.Tensor, self, other)

    def __truediv__(self, other: float) -> Symbol:
        return _call(_aten.div.Tensor, self, other)

    def __getitem__(self, index: tuple[slice, int]) -> Symbol:
        if not (isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None) and type(index[1]) is int):
            raise Unknown(f"indexing by {index!r}")
        return _call(_aten.select.int, self, 1, index[1])

    def __bool__(self) -> bool:
        raise Unknown("a branch on what is perturbed")


CALLS: dict[Callable[..., Tensor], OpOverload] = {
    F.linear: _aten.linear.default,
    F.relu: _aten.relu.default,
    F.gelu: _aten.gelu.default,
    F.layer_norm: _aten.layer_norm.default,
    torch.matmul: _aten.matmul.default,
    torch.tanh: _aten.tanh.default,
    Tensor.mul: _aten.mul.Tensor,
}


def _call(operator: OpOverload, *args: Any, **kwargs: Any) -> Symbol:
    """A call of an ATen operator, lowered as one that torch.export recorded."""
    try:
        given = arguments(operator, args, kwargs)
    except TypeError as error:
        raise Unknown(str(error)) from error
    run = next(a.run for a in given.values() if isinstance(a, Symbol))
    builder = run.builder
    builder.path = run.path()
    if any(isinstance(a, Tensor) and id(a) not in run.own for a in given.values()):
        raise Unknown("a tensor that was computed of others")
    values = {name: builder.values[a.ref.index][0] if isinstance(a, Symbol) else a for name, a in given.items()}
    refs = {name: a.ref if isinstance(a, Symbol) else a for name, a in given.items()}
    return Symbol(run, builder.call(operator, (), refs, operator(**values)))


def trace(module: nn.Module, builder: Builder) -> Ref | None:
    """The node of a module's output, or None where its `forward` calls something unknown."""
    own = {id(x): x for x in (*module.parameters(), *module.buffers())}
    run = Trace(builder, {part: name for name, part in module.named_modules()}, own)
    try:
        result = module(Symbol(run, Ref(0)))
    except Unknown:
        return None
    return result.ref if isinstance(result, Symbol) else None

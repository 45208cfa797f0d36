"""Building graphs: from ATen calls, with constants folded and the unsupported collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..lowering import TABLE, Ref, Refused, nearest
from ..lowering.table import Operand, arguments
from ..ops.base import Op, Shape
from ..ops.linear import Add, Center, Sum
from ..ops.movement import Permute, Reshape
from ..ops.rounded import Rounded
from .agreement import call_agrees
from .folding import same_in_float32
from .graph import AtRest, Constant, Graph, Input, Node


@dataclass
class Builder:
    """Collects nodes. Carries the values of examples along, which give shapes and check what is built."""

    example: Tensor  # [examples, *input shape]
    nodes: list[Node] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)  # calls among constants that another precision rounds otherwise
    target: str = ""
    path: str = ""
    result_shape: Shape = ()

    def __post_init__(self) -> None:
        self._append(Input(), (), self.example, perturbed=True)

    # ---- what rows use -----------------------------------------------------------------------------------------

    @property
    def like(self) -> Tensor:
        return self.example

    def shape(self, x: Operand) -> Shape:
        return self.nodes[x.index].shape if isinstance(x, Ref) else tuple(torch.as_tensor(x).shape)

    def constant(self, x: Operand) -> Tensor:
        if isinstance(x, Ref):
            raise Refused("what must be a constant depends on the embeddings")
        if isinstance(x, Tensor):
            return x.to(device=self.example.device, dtype=self.example.dtype)
        return torch.tensor(x, dtype=self.example.dtype, device=self.example.device)

    def node(self, x: Operand) -> Ref:
        return x if isinstance(x, Ref) else self._append(Constant(self.constant(x)), (), self.constant(x)[None], False)

    def add(self, op: Op, *inputs: Operand, reads: tuple[Ref, ...] = ()) -> Ref:
        refs = tuple(self.node(x) for x in inputs)
        op, refs = self._simplify(op, refs)
        if isinstance(op, (Reshape, Permute)) and _changes_nothing(op, self.shape(refs[0])):
            return refs[0]
        value = op.forward(*(self.values[r.index] for r in refs))
        perturbed = not isinstance(op, AtRest) and any(self.nodes[r.index].perturbed for r in refs)
        return self._append(
            op, tuple(r.index for r in refs), value, perturbed or isinstance(op, Rounded), tuple(r.index for r in reads)
        )

    def op(self, x: Ref) -> Op:
        return self.nodes[x.index].op

    def inputs(self, x: Ref) -> tuple[Ref, ...]:
        return tuple(Ref(i) for i in self.nodes[x.index].inputs)

    def unsupported(self, what: str) -> Ref:
        shapes = str(list(self.result_shape))
        self.problems.append(f"{what} ({self.target or 'no operator'}, at {self.path or 'the top'}, gives {shapes})")
        return self.standin(self.result_shape)

    # ---- what captures use -------------------------------------------------------------------------------------

    def standin(self, shape: Shape) -> Ref:
        """A node of some shape that depends on the input."""
        zeros = self.example.new_zeros((1, *shape))
        return self._append(Constant(zeros[0]), (), zeros, perturbed=True)

    def call(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
        """Lower a call of an ATen operator, `result` like what it gives. What does not touch the input is computed."""
        self.target = str(operator)
        self.result_shape = tuple(int(s) for s in result.shape) if isinstance(result, Tensor) else ()
        if not _touches((*args, *kwargs.values())):
            if _draws(operator, args, kwargs):
                return self.unsupported("random numbers")
            value = operator(*args, **kwargs)
            if not same_in_float32(operator, (*args, *kwargs.values()), value):
                self.folded.append(f"{operator} at {self.path or 'the top'}")
            return value
        if isinstance(result, Tensor) and result.dtype not in (torch.float32, torch.float64):
            return self.unsupported(f"a result of type {str(result.dtype).removeprefix('torch.')}")
        if operator not in TABLE:
            hint = nearest(str(operator), map(str, TABLE))
            return self.unsupported(f"not supported; {hint}" if hint else "not supported")
        found = TABLE[operator](self, args, kwargs)
        if not self.problems:
            call_agrees(operator, args, kwargs, found, self.values)
        return found

    # ---- inside ------------------------------------------------------------------------------------------------

    def _append(
        self, op: Op, inputs: tuple[int, ...], value: Tensor, perturbed: bool, reads: tuple[int, ...] = ()
    ) -> Ref:
        node = Node(len(self.nodes), op, inputs, tuple(value.shape[1:]), self.path, perturbed, reads)
        self.nodes.append(node)
        self.values.append(value)
        return Ref(node.index)

    def _simplify(self, op: Op, refs: tuple[Ref, ...]) -> tuple[Op, tuple[Ref, ...]]:
        """`x - mean(x)` over the last axis is one op, and so are two permutations; a reshape back is none."""
        if isinstance(op, (Reshape, Permute)):
            before = self.nodes[refs[0].index]
            if isinstance(before.op, Reshape) and op == Reshape(self.nodes[before.inputs[0]].shape):
                return op, (Ref(before.inputs[0]),)
            if isinstance(op, Permute) and isinstance(before.op, Permute):
                return Permute(tuple(before.op.order[i] for i in op.order)), (Ref(before.inputs[0]),)
        if isinstance(op, Add) and op.sign == -1.0:
            x, m = (self.nodes[r.index] for r in refs)
            last = (len(x.shape) - 1,)
            if isinstance(m.op, Sum) and m.op.mean and m.op.axes == last and m.inputs == (x.index,):
                return Center(), refs[:1]
        return op, refs

    def graph(self, output: Ref) -> Graph:
        """The nodes the output depends on, numbered anew."""
        needed, stack = set(), [output.index]
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack.extend((*self.nodes[i].inputs, *self.nodes[i].reads))
        needed.add(0)
        order = {old: new for new, old in enumerate(sorted(needed))}
        nodes = tuple(
            replace(n, index=order[n.index], inputs=_at(order, n.inputs), reads=_at(order, n.reads))
            for n in (self.nodes[i] for i in sorted(needed))
        )
        return Graph(nodes, tuple(dict.fromkeys(self.folded)))


def _changes_nothing(op: Reshape | Permute, shape: Shape) -> bool:
    return op.shape == shape if isinstance(op, Reshape) else op.order == tuple(range(len(shape)))


def _draws(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers: what drops some does so in training alone."""
    seeded = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
    return seeded and bool(arguments(operator, args, kwargs).get("train", True))


def _at(order: Mapping[int, int], indices: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order[i] for i in indices)


def _touches(x: Any) -> bool:
    """Whether there is a node in what an operator is called with."""
    return any(_touches(a) for a in x) if isinstance(x, (tuple, list)) else isinstance(x, Ref)

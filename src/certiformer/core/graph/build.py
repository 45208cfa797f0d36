"""Building graphs: from ATen calls, with constants folded and the unsupported collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..ops import REWRITES
from ..ops.base import REGISTRY, Op, Shape
from ..ops.linear import Add, Center, Sum
from ..ops.movement import Expand, Permute, Reshape
from ..ops.norm import COMPOSITES
from .graph import Constant, Graph, Input, Node, Peak


@dataclass(frozen=True)
class Ref:
    """A node under construction."""

    index: int


@dataclass
class Builder:
    """Collects nodes. Carries the values of an example along, which gives shapes and checks the result."""

    example: Tensor  # [1, *input shape]
    nodes: list[Node] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    target: str = ""
    path: str = ""
    result_shape: Shape = ()

    def __post_init__(self) -> None:
        self._append(Input(), (), self.example, perturbed=True)

    # ---- what ops use ------------------------------------------------------------------------------------------

    def is_node(self, x: Any) -> bool:
        return isinstance(x, Ref)

    def same(self, x: Any, y: Any) -> bool:
        return bool(x == y)

    def shape(self, x: Any) -> Shape:
        return self.nodes[x.index].shape if isinstance(x, Ref) else tuple(torch.as_tensor(x).shape)

    def constant(self, x: Any) -> Tensor:
        """A number or tensor as a constant in the model's precision."""
        like = self.example
        if isinstance(x, Tensor):
            return x.to(device=like.device, dtype=like.dtype)
        return torch.tensor(x, dtype=like.dtype, device=like.device)

    def node(self, x: Any) -> Ref:
        return x if isinstance(x, Ref) else self._append(Constant(self.constant(x)), (), self.constant(x)[None], False)

    def add(self, op: Op, *inputs: Any) -> Ref:
        refs = tuple(self.node(x) for x in inputs)
        op, refs = self._simplify(op, refs)
        value = op.forward(*(self.values[r.index] for r in refs))
        perturbed = not isinstance(op, Peak) and any(self.nodes[r.index].perturbed for r in refs)
        return self._append(op, tuple(r.index for r in refs), value, perturbed)

    def at(self, index: int) -> Ref:
        """The node of this index."""
        return Ref(index)

    def peak(self, x: Ref) -> Ref:
        return self.add(Peak(), x)

    def squeeze(self, x: Ref, axes: tuple[int, ...]) -> Ref:
        return self.add(Reshape(tuple(s for a, s in enumerate(self.shape(x)) if a not in axes)), x)

    def transpose(self, x: Ref, i: int, j: int) -> Ref:
        order = list(range(len(self.shape(x))))
        order[i], order[j] = order[j], order[i]
        return self.add(Permute(tuple(order)), x)

    def expand(self, x: Ref, shape: Shape) -> Ref:
        old = self.shape(x)
        if len(old) < len(shape):
            x = self.add(Reshape((1,) * (len(shape) - len(old)) + old), x)
        return x if self.shape(x) == shape else self.add(Expand(shape), x)

    def call(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """Lower a call of another ATen operator."""
        self.target = target
        return lowerings()[target].lower(self, args, kwargs)

    def unsupported(self, what: str) -> Ref:
        """Note what cannot be done and go on with a stand-in, so that everything is reported at once."""
        shapes = str(list(self.result_shape))
        self.problems.append(f"{what} ({self.target or 'no operator'}, at {self.path or 'the top'}, gives {shapes})")
        return self.standin()

    def standin(self) -> Ref:
        """A node of the shape of the current result that depends on the input."""
        zeros = self.example.new_zeros((1, *self.result_shape))
        return self._append(Constant(zeros[0]), (), zeros, perturbed=True)

    # ---- inside ------------------------------------------------------------------------------------------------

    def _append(self, op: Op, inputs: tuple[int, ...], value: Tensor, perturbed: bool) -> Ref:
        node = Node(len(self.nodes), op, inputs, tuple(value.shape[1:]), self.path, perturbed)
        self.nodes.append(node)
        self.values.append(value)
        return Ref(node.index)

    def _simplify(self, op: Op, refs: tuple[Ref, ...]) -> tuple[Op, tuple[Ref, ...]]:
        """`x - mean(x)` over the last axis is one op."""
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
                stack.extend(self.nodes[i].inputs)
        needed.add(0)
        order = {old: new for new, old in enumerate(sorted(needed))}
        nodes = tuple(
            Node(order[i], n.op, tuple(order[k] for k in n.inputs), n.shape, n.path, n.perturbed)
            for i in sorted(needed)
            for n in (self.nodes[i],)
        )
        return Graph(nodes)


def lowerings() -> dict[str, Any]:
    """ATen operator -> what lowers it: a rewrite where there is one, else a composite or an op of the registry."""
    table: dict[str, Any] = {}
    entries: list[Any] = [*REGISTRY.values(), *COMPOSITES]
    for op in entries:
        for target in op.targets:
            table[target] = op
    return {**table, **REWRITES}

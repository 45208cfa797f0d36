"""A graph in words and numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.graph.graph import Constant, Graph, Input, Node
from ..core.ops.elementwise import Relu, Tanh
from ..core.ops.linear import Add, Center, Linear, Scale, Shift, Sum
from ..core.ops.movement import Concat, Expand, Permute, Reshape, Slice
from ..core.ops.normalize import Normalize
from ..core.ops.product import MatMul, Multiply
from ..core.ops.smooth import Gelu, Sigmoid
from ..core.ops.softmax import OfDifferences
from ..errors import UnsupportedError

# the ops that a certificate may hold, by the names they have there, and their attributes that are words
OPS: dict[type, tuple[str, tuple[str, ...]]] = {
    Input: ("input", ()),
    Constant: ("constant", ()),
    Linear: ("linear", ()),
    Add: ("add", ("sign",)),
    Shift: ("shift", ()),
    Scale: ("scale", ()),
    Sum: ("sum", ("axes", "mean")),
    Center: ("center", ()),
    Permute: ("permute", ("order",)),
    Reshape: ("reshape", ()),
    Slice: ("slice", ("axis", "start", "length")),
    Concat: ("concat", ("axis",)),
    Expand: ("expand", ()),
    Relu: ("relu", ()),
    Tanh: ("tanh", ()),
    Sigmoid: ("sigmoid", ()),
    Gelu: ("gelu", ()),
    Multiply: ("multiply", ()),
    MatMul: ("matmul", ()),
    OfDifferences: ("softmax_of_differences", ()),
    Normalize: ("normalize", ("eps",)),
}


def described(graph: Graph) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """The nodes as JSON, and the constants by name."""
    nodes: list[dict[str, Any]] = []
    numbers: dict[str, Tensor] = {}
    for node in graph.nodes:
        nodes.append(_words(node))
        for name, value in vars(node.op).items():
            if isinstance(value, Tensor):
                numbers[f"graph.{node.index}.{name}"] = small(value)
    return nodes, numbers


def _words(node: Node) -> dict[str, Any]:
    if type(node.op) not in OPS or (isinstance(node.op, Add) and abs(node.op.sign) != 1):
        raise UnsupportedError(f"no certificate can be written: version 1 of the format has no place for {node}")
    name, attributes = OPS[type(node.op)]
    words: dict[str, Any] = {"op": name, "inputs": list(node.inputs), "shape": list(node.shape)}
    for attribute in attributes:
        value = getattr(node.op, attribute)
        words[attribute] = list(value) if isinstance(value, tuple) else int(value) if attribute == "sign" else value
    return words | ({"path": node.path} if node.path else {})


def small(value: Tensor) -> Tensor:
    """The same numbers in float32 where that holds them exactly."""
    if value.dtype != torch.float64:
        return value
    single = value.float()
    return single if torch.equal(single.double(), value) else value

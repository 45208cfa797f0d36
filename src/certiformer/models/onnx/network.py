"""The graph of an ONNX file as a module of PyTorch: what does not depend on the input is computed once, here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelError, short
from ..faithful import first_line
from . import arithmetic, moves  # noqa: F401  # they fill the table
from .file import OnnxFile
from .moves import FLOATS
from .table import ENTRIES, TABLE, Call, Refused

SHAPES = {"Shape", "Size"}  # of a tensor, whatever its values
Value = Tensor | None


@dataclass(frozen=True)
class Step:
    """A node that depends on the input: the operator, and for each input the name of a value or of a constant."""

    call: Call
    inputs: tuple[Any, ...]  # ("value", name), ("constant", name of a buffer), ("static", list) or ("absent", None)
    outputs: tuple[str, ...]


class Network(nn.Module):
    """Inputs `[batch, *shape]` -> outputs `[batch, outputs]` of an ONNX graph, in the order in which it stores them.

    Constants are kept as float64, so the module in double precision is the real-valued function of the stored weights.
    """

    def __init__(self, file: OnnxFile) -> None:
        super().__init__()
        self.title = f"the ONNX model {file.path.name}"
        self.inner, self.output = file.shape, file.output
        self.input = file.input
        self.shape = file.shape[1:] if file.batched else file.shape
        builder = _Builder(file)
        self.steps = builder.steps
        self.outputs = builder.outputs
        for name, value in builder.buffers.items():
            self.register_buffer(name, value)
        self.register_buffer("unit", torch.zeros((), dtype=torch.float64))  # says where and in which precision it is

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return self._run(x[0])[None]
        found: Tensor = torch.func.vmap(self._run)(x)
        return found

    def _run(self, x: Tensor) -> Tensor:
        """[*shape] -> [outputs]"""
        values: dict[str, Tensor] = {self.input: x.reshape(self.inner)}
        for step in self.steps:
            found = TABLE[step.call.name].function(step.call, *(self._input(i, values) for i in step.inputs))
            made = found if isinstance(found, list) else [found]
            values.update(zip(step.outputs, made, strict=True))
        return values[self.output].reshape(-1)

    def _input(self, place: tuple[str, Any], values: dict[str, Tensor]) -> Any:
        kind, what = place
        return values[what] if kind == "value" else getattr(self, what) if kind == "constant" else what

    def patch(self) -> tuple[int, int] | None:
        """The size of the patches that the first operation cuts a picture into, where there are such."""
        if len(self.shape) != 3:
            return None
        reads = [s for s in self.steps if ("value", self.input) in s.inputs]
        if len(reads) != 1 or reads[0].call.name != "Conv" or reads[0].inputs[1][0] != "constant":
            return None
        size = tuple(getattr(self, reads[0].inputs[1][1]).shape[2:])
        whole = len(size) == 2 and all(n % k == 0 for n, k in zip(self.shape[1:], size, strict=True))
        apart = tuple(reads[0].call.get("strides", ())) == size and not any(reads[0].call.get("pads", ()))
        return (int(size[0]), int(size[1])) if whole and apart else None


class _Builder:
    """Walks through the nodes once, on an example: folds what is constant, and notes the steps that are not."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.steps: list[Step] = []
        self.buffers: dict[str, Tensor] = {}
        self._names: dict[str, str] = {}
        self.example: dict[str, Tensor] = {file.input: torch.zeros(file.shape, dtype=torch.float64)}
        self.constants: dict[str, Tensor] = {"": torch.zeros(0)}
        self._check_operators()
        for tensor in file.graph.initializer:
            self.constants[tensor.name] = self._tensor(tensor)
        with torch.no_grad():
            for index, node in enumerate(file.graph.node):
                self._node(index, node)
        if file.output not in self.example:
            raise ModelError(f"{file.path}: the output does not depend on the input")
        self.outputs = self.example[file.output].numel()
        self.example, self.constants = {}, {}

    def _check_operators(self) -> None:
        """All that cannot be read, at once."""
        unknown = [n for n in self.file.graph.node if n.domain not in ("", "ai.onnx") or not _known(n.op_type)]
        if unknown or len(self.file.graph.sparse_initializer):
            named = [f"{_title(n)} (node {_name(n)})" for n in unknown[:20]]
            named += [f"{len(unknown) - 20} more"] if len(unknown) > 20 else []
            named += ["sparse weights"] if len(self.file.graph.sparse_initializer) else []
            raise ModelError(f"{self.file.path}: cannot be read, it uses {', '.join(named)}")

    def _node(self, index: int, node: Any) -> None:
        where = f"{self.file.path}: node {_name(node) if node.name or node.output else index} ({node.op_type})"
        try:
            self._entered(node)
        except Refused as error:
            raise ModelError(f"{where}: not supported: {error}") from None
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError, ZeroDivisionError) as error:
            raise ModelError(f"{where}: cannot be computed: {first_line(error)}") from None

    def _entered(self, node: Any) -> None:
        call = Call(node.op_type, {a.name: self._attribute(a) for a in node.attribute}, self.file.opset, 1)
        outputs = [name for name in node.output if name]
        call = Call(call.name, call.attributes, call.opset, len(outputs))
        if node.op_type in SHAPES:
            shape = self._value(node.input[0]).shape[call.get("start", 0) : call.get("end")]
            size = list(shape) if node.op_type == "Shape" else math.prod(shape)
            self.constants[outputs[0]] = torch.tensor(size, dtype=torch.int64)
            return
        entry = TABLE[node.op_type]
        varies = any(name in self.example for name in node.input)
        if varies and entry.constant:
            raise Refused("it depends on the input, and is read among constants alone")
        places = [self._place(k, name, entry.static, varies) for k, name in enumerate(node.input)]
        found = entry.function(call, *(self._at(place) for place in places))
        made: Sequence[Tensor] = found if isinstance(found, list) else [found]
        for name, value in zip(outputs, made, strict=True):
            if value.numel() > ENTRIES:
                raise Refused(f"a tensor of {value.numel():,} entries")
            if varies and not value.is_floating_point():
                raise Refused("whole numbers or truth values that depend on the input")
            (self.example if varies else self.constants)[name] = value
        if varies:
            self.steps.append(Step(call, tuple(places), tuple(outputs)))

    def _place(self, k: int, name: str, static: tuple[int, ...], varies: bool) -> tuple[str, Any]:
        """Where an input of a node comes from."""
        if not name:
            return ("absent", None)
        if name in self.example:
            if k in static:
                raise Refused(f"its input {k} depends on the input of the model")
            return ("value", name)
        value = self._value(name)
        if k in static:
            return ("static", value.tolist())
        if not varies:
            return ("folded", value)
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise Refused(f"infinity or NaN in the constant {name!r}")
        if name not in self._names:
            self._names[name] = f"c{len(self._names)}"
            self.buffers[self._names[name]] = value.contiguous()
        return ("constant", self._names[name])

    def _at(self, place: tuple[str, Any]) -> Any:
        kind, what = place
        return self.example[what] if kind == "value" else self.buffers[what] if kind == "constant" else what

    def _value(self, name: str) -> Tensor:
        if name in self.example:
            return self.example[name]
        if name not in self.constants:
            raise Refused(f"the value {name!r} is not there")
        return self.constants[name]

    def _attribute(self, attribute: Any) -> Any:
        from onnx import AttributeProto, helper

        if attribute.type == AttributeProto.TENSOR:
            return self._tensor(attribute.t)
        value = helper.get_attribute_value(attribute)
        return value.decode() if isinstance(value, bytes) else list(value) if hasattr(value, "__len__") else value

    def _tensor(self, tensor: Any) -> Tensor:
        """Real numbers as float64, others as they are."""
        from onnx import numpy_helper

        try:
            values = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        except Exception as error:  # sizes that do not fit, types that there are not
            raise ModelError(f"{self.file.path}: the weights {tensor.name!r}: {first_line(error)}") from None
        if tensor.data_type in FLOATS:
            return values.to(torch.float64)
        return values if values.dtype == torch.bool else values.to(torch.int64)


def _known(name: str) -> bool:
    return name in TABLE or name in SHAPES


def _title(node: Any) -> str:
    return short(f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type).strip("'")


def _name(node: Any) -> str:
    """What a node is called, or what its first output is."""
    return short(node.name or next(iter(node.output), ""))

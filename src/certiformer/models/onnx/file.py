"""An ONNX file, read as data: nothing in it is run, and nothing outside it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ..faithful import first_line
from ..packed import read_packed

MOST = 1 << 30  # bytes of a model file, unpacked
OLDEST = 7  # of the sets of operators: before, broadcasting was another
FLOATS = {1: "float", 11: "double"}


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A model as it is stored: its bytes, the parsed graph, and the one tensor in and the one out."""

    path: Path
    content: bytes
    graph: Any  # onnx.GraphProto
    opset: int
    input: str
    output: str
    shape: tuple[int, ...]  # of the input, as the graph declares it: the batch is 1
    double: bool  # the type of the input

    @property
    def batched(self) -> bool:
        """Whether the first axis of the input is a batch of one."""
        return len(self.shape) > 1 and self.shape[0] == 1


def packages(path: str | os.PathLike[str]) -> Any:
    """The package `onnx`, or an error that says how to get it."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError:
        raise ModelError(f"{path}: ONNX files need onnx and onnxruntime: pip install 'certiformer[onnx]'") from None
    return onnx


def read_file(path: str | os.PathLike[str]) -> OnnxFile:
    """Read and check a model file, plain or gzip."""
    onnx = packages(path)
    content = read_packed(path, "model", most=MOST)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # what protobuf may raise has no list
        raise ModelError(f"{path}: not an ONNX file: {first_line(error)}") from None
    graph = model.graph
    if not graph.node or not graph.output:
        raise ModelError(f"{path}: not an ONNX file: it holds no graph")
    _check_inside(graph, path)
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        raise ModelError(f"{path}: not a valid ONNX model: {first_line(error)[:300]}") from None
    opset = next((s.version for s in model.opset_import if s.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST:
        raise ModelError(f"{path}: uses operators of version {opset}: expected {OLDEST} or later")
    given = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in given]
    for what, found in (("input", inputs), ("output", list(graph.output))):
        if len(found) != 1:
            raise ModelError(f"{path}: has {len(found)} {what}s: expected one")
    kind = inputs[0].type.tensor_type.elem_type
    if kind not in FLOATS:
        names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
        raise ModelError(f"{path}: the input {inputs[0].name!r} is {names.get(kind, kind)}: expected float or double")
    shape = _shape(inputs[0], path)
    return OnnxFile(Path(path), content, graph, opset, inputs[0].name, graph.output[0].name, shape, kind == 11)


def _shape(value: Any, path: object) -> tuple[int, ...]:
    """The shape of the input, with 1 for a batch of any size."""
    sizes = [d.dim_value if d.HasField("dim_value") else 0 for d in value.type.tensor_type.shape.dim]
    if sizes and sizes[0] <= 0:
        sizes[0] = 1
    if not sizes or min(sizes) <= 0:
        shown = ", ".join(str(s) if s > 0 else "?" for s in sizes)
        raise ModelError(f"{path}: the input {value.name!r} has the shape [{shown}]: expected sizes that are known")
    return tuple(int(s) for s in sizes)


def _check_inside(graph: Any, path: object) -> None:
    """Weights are in the file itself: a path to another file is never followed."""
    for tensor in _tensors(graph):
        if tensor.data_location == 1 or len(tensor.external_data):
            where = {e.key: e.value for e in tensor.external_data}.get("location", "?")
            raise ModelError(
                f"{path}: the weights {tensor.name!r} are in another file ({where[:80]!r}), which is not opened: "
                "save the model as one file"
            )


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph and of the graphs inside it."""
    waiting = [graph]
    while waiting:
        inner = waiting.pop()
        yield from inner.initializer
        for sparse in inner.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in inner.node:
            for attribute in node.attribute:
                yield attribute.t
                yield from attribute.tensors
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                waiting += [g for g in (attribute.g, *attribute.graphs) if g.node or g.initializer]

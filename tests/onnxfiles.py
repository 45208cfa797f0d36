"""Small ONNX files, made by the tests themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: Sequence[Any],
    shape: Sequence[int | str],
    *,
    constants: dict[str, Any] | None = None,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> Any:
    """A model from `x` to `y`; real constants are float32."""
    stored = []
    for name, value in (constants or {}).items():
        array = numpy.asarray(value)
        stored.append(numpy_helper.from_array(array.astype("float32") if array.dtype == "float64" else array, name))
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info("y", kind, None)],
        stored,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    made = onnx.shape_inference.infer_shapes(made)
    if not made.graph.output[0].type.tensor_type.HasField("shape"):  # unknown to onnx: one axis of any size
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, ["any"]))
    return made


def node(kind: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), list(outputs), name=f"{kind}_{outputs[0]}", **attributes)


def save(made: Any, path: Path) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def relu_network(path: Path, *, opset: int = 17) -> Path:
    """`y = [relu(x0 - x1 + 2) - 2, relu(0) + 0.5]`: between 0 and 1 that is `[x0 - x1, 0.5]`."""
    nodes = [
        node("Gemm", ["x", "w", "a"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Add", ["r", "b"], ["y"]),
    ]
    constants = {
        "w": numpy.array([[1.0, 0.0], [-1.0, 0.0]]),
        "a": numpy.array([2.0, 0.0]),
        "b": numpy.array([-2.0, 0.5]),
    }
    return save(model(nodes, [1, 2], constants=constants, opset=opset), path)


__all__ = ["TensorProto", "helper", "model", "node", "numpy_helper", "onnx", "relu_network", "save"]

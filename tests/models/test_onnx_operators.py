"""Every operator that is read does what onnxruntime does, in every version that says it differently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from certiformer.errors import ModelError
from certiformer.models.onnx import Network, Runtime, check_agreement, read_file
from certiformer.models.onnx.table import TABLE, Operator
from onnxfiles import model, node, numpy_helper, save

A = numpy.random.default_rng(0)
LONG = numpy.int64


def one(kind: str, *constants: Any, shape: Any = (1, 3, 4), opset: int = 17, **attributes: Any) -> Any:
    """A model of one node: its first input is x, the others are constants; None is one that is absent."""
    names = ["x", *("" if c is None else f"c{i}" for i, c in enumerate(constants))]
    stored = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    return model([node(kind, names, **attributes)], shape, constants=stored, opset=opset)


def after(kind: str, first: str, **attributes: Any) -> Any:
    """A function on what is positive."""
    return model([node(first, ["x"], ["a"]), node(kind, ["a"], ["y"], **attributes)], (1, 5))


def ints(*values: int) -> Any:
    return numpy.array(values, dtype=LONG)


W = A.normal(size=(4, 3, 3, 3))
PICTURE: tuple[int, ...] = (1, 3, 8, 8)
MODELS: dict[str, Any] = {
    **{f"{k} 17": one(k) for k in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Abs", "Softplus", "Identity")},
    **{f"{k} of positive": after(k, "Exp") for k in ("Log", "Sqrt", "Reciprocal")},
    "Mish 18": one("Mish", opset=18),
    "Gelu 20": one("Gelu", opset=20),
    "Gelu tanh 20": one("Gelu", opset=20, approximate="tanh"),
    "LeakyRelu": one("LeakyRelu", alpha=0.2),
    "LeakyRelu default": one("LeakyRelu"),
    "PRelu": one("PRelu", A.normal(size=(4,))),
    "Elu": one("Elu"),
    "HardSigmoid": one("HardSigmoid"),
    "HardSwish": one("HardSwish"),
    "Dropout": one("Dropout"),
    **{k: one(k, A.normal(size=(3, 4))) for k in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mean")},
    "Pow": one("Pow", numpy.array(2.0)),
    "Gemm": one("Gemm", A.normal(size=(5, 4)), A.normal(size=(5,)), shape=(1, 4), transB=1, alpha=0.5, beta=2.0),
    "MatMul": one("MatMul", A.normal(size=(4, 5))),
    "Einsum": one("Einsum", A.normal(size=(4, 5)), equation="bij,jk->bik"),
    "Clip 17": one("Clip", numpy.array(-0.5), numpy.array(0.25)),
    "Clip 17 above": one("Clip", None, numpy.array(0.25)),
    "Clip 9": one("Clip", opset=9, min=-0.5, max=0.25),
    "Softmax 13": one("Softmax", axis=1),
    "Softmax 11, over the axes from 1 on": one("Softmax", opset=11),
    "LogSoftmax 11": one("LogSoftmax", opset=11, axis=1),
    "LogSoftmax 13": one("LogSoftmax", opset=13),
    **{k: one(k, opset=11, axes=[1], keepdims=0) for k in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")},
    "ReduceSum 13": one("ReduceSum", ints(-1), opset=13),
    "ReduceMean 18": one("ReduceMean", ints(1, 2), opset=18),
    "ReduceSum nothing": one("ReduceSum", opset=13, noop_with_empty_axes=1),
    "LayerNormalization": one("LayerNormalization", A.normal(size=(4,)), A.normal(size=(4,)), axis=-1),
    "LayerNormalization of two axes": one("LayerNormalization", A.normal(size=(3, 4)), axis=1),
    "RMSNormalization": one("RMSNormalization", A.normal(size=(4,)), opset=23),
    "BatchNormalization": one("BatchNormalization", *A.uniform(1, 2, size=(4, 3)), epsilon=0.01),
    "BatchNormalization 9": one("BatchNormalization", *A.uniform(1, 2, size=(4, 3)), opset=9),
    "Conv": one("Conv", W, A.normal(size=(4,)), shape=PICTURE, strides=[2, 2], pads=[1, 1, 1, 1]),
    "Conv asymmetric": one("Conv", W, shape=PICTURE, pads=[0, 1, 2, 0]),
    "Conv same upper": one("Conv", W, shape=PICTURE, strides=[2, 3], auto_pad="SAME_UPPER"),
    "Conv same lower": one("Conv", W, shape=PICTURE, strides=[3, 2], auto_pad="SAME_LOWER"),
    "Conv valid dilated": one("Conv", W, shape=PICTURE, dilations=[2, 2], auto_pad="VALID"),
    "Conv in groups": one("Conv", A.normal(size=(6, 1, 2, 2)), shape=PICTURE, group=3, strides=[2, 2]),
    "Conv of a line": one("Conv", A.normal(size=(2, 3, 2)), shape=(1, 3, 8)),
    "AveragePool": one("AveragePool", shape=PICTURE, kernel_shape=[3, 2], strides=[2, 2]),
    "MaxPool": one("MaxPool", shape=PICTURE, kernel_shape=[2, 3], strides=[1, 2]),
    "GlobalAveragePool": one("GlobalAveragePool", shape=PICTURE),
    "GlobalMaxPool": one("GlobalMaxPool", shape=PICTURE),
    "Reshape": one("Reshape", ints(0, -1, 2)),
    "Flatten": one("Flatten", axis=2),
    "Flatten default": one("Flatten"),
    "Transpose": one("Transpose", perm=[2, 0, 1]),
    "Transpose default": one("Transpose"),
    "Squeeze 11": one("Squeeze", opset=11, axes=[0]),
    "Squeeze 13": one("Squeeze", ints(0), opset=13),
    "Squeeze all": one("Squeeze", opset=13),
    "Unsqueeze 11": one("Unsqueeze", opset=11, axes=[0, 3]),
    "Unsqueeze 13": one("Unsqueeze", ints(-1), opset=13),
    "Slice 9": one("Slice", opset=9, starts=[1, -3], ends=[3, 1 << 40], axes=[1, 2]),
    "Slice 9 without axes": one("Slice", opset=9, starts=[0, 1], ends=[1, 3]),
    "Slice 17": one("Slice", ints(0, 1), ints(1 << 40, 4), ints(1, 2), ints(2, 1)),
    "Slice backwards": one("Slice", ints(-1), ints(-(1 << 40)), ints(2), ints(-2)),
    "Gather one": one("Gather", numpy.array(-1, dtype=LONG), axis=2),
    "Gather many": one("Gather", numpy.array([[0, 2], [1, -1]], dtype=LONG), axis=1),
    "Concat": one("Concat", A.normal(size=(1, 2, 4)), axis=1),
    "Expand": one("Expand", ints(2, 1, 4)),
    "Tile": one("Tile", ints(1, 2, 1)),
    "Pad 10": one("Pad", opset=10, pads=[0, 0, 1, 0, 2, 0], value=1.5),
    "Pad 17": one("Pad", ints(0, 1, 0, 0, 0, 2), numpy.array(0.5)),
    "Pad 18": one("Pad", ints(1, 2), None, ints(-1), opset=18),
    "Cast": one("Cast", to=1),
}
PARTS: dict[str, tuple[int, tuple[Any, ...], dict[str, Any]]] = {
    "Split 11": (11, (), {"axis": 2, "split": [1, 3]}),
    "Split 13": (13, (ints(3, 1),), {"axis": -1}),
    "Split even": (13, (), {"axis": 2}),
    "Split 18": (18, (), {"axis": 2, "num_outputs": 2}),
}


def read(made: Any, folder: Path) -> tuple[Network, Runtime]:
    file = read_file(save(made, folder / "a.onnx"))
    return Network(file), Runtime(file)


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_is_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    network, runtime = read(MODELS[name], tmp_path)
    assert check_agreement(runtime, network) < 1e-5
    several = torch.randn(3, *network.shape, dtype=torch.float64)
    alone = torch.cat([network(x[None]) for x in several])
    torch.testing.assert_close(network(several), alone)  # a batch is row after row


@pytest.mark.parametrize("name", PARTS)
def test_pieces_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    opset, constants, attributes = PARTS[name]
    names = ["x", *(f"c{i}" for i in range(len(constants)))]
    cut = node("Split", names, ["a", "b"], **attributes)
    joined = node("Concat", ["b", "a"], ["y"], axis=2)
    stored = {f"c{i}": c for i, c in enumerate(constants)}
    network, runtime = read(model([cut, joined], (1, 3, 4), constants=stored, opset=opset), tmp_path)
    assert check_agreement(runtime, network) < 1e-6


def test_what_is_computed_from_shapes_is_folded(tmp_path: Path) -> None:
    """As exporters write it: sizes read, computed with, and put together to a shape; a mask and positions."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "two"], ["d"], axis=0),
        node("Div", ["d", "two"], ["half"]),
        node("Unsqueeze", ["half", "zero"], ["h"]),
        node("Concat", ["one", "minus", "h"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["r"]),
        node("ConstantOfShape", ["h"], ["ones"], value=numpy_helper.from_array(numpy.ones(1, dtype="float32"))),
        node("Range", ["start", "half", "step"], ["range"]),
        node("Cast", ["range"], ["f"], to=1),
        node("Equal", ["range", "start"], ["first"]),
        node("Where", ["first", "ones", "f"], ["w"]),
        node("Sqrt", ["w"], ["q"]),
        node("Mul", ["r", "q"], ["y"]),
    ]
    constants = {"two": numpy.array(2, dtype=LONG), "zero": ints(0), "one": ints(1), "minus": ints(-1)}
    constants |= {"start": numpy.array(0, dtype=LONG), "step": numpy.array(1, dtype=LONG)}
    network, runtime = read(model(nodes, (1, 3, 4), constants=constants), tmp_path)
    assert [step.call.name for step in network.steps] == ["Reshape", "Mul"]
    assert check_agreement(runtime, network) < 1e-6


def test_every_operator_of_the_table_is_tested_here() -> None:
    among_constants = {name for name, entry in TABLE.items() if entry.constant}
    tested = {n.op_type for made in MODELS.values() for n in made.graph.node} | {"Split", "Where"}
    assert set(TABLE) - among_constants - tested - {"ReduceProd"} == set()


def test_weights_stay_the_numbers_they_are(tmp_path: Path) -> None:
    """A constant that was computed is exact in float64, also after the comparison in single precision."""
    nodes = [node("Div", ["a", "b"], ["c"]), node("Mul", ["x", "c"], ["y"])]
    made = model(nodes, (1, 2), constants={"a": numpy.array(1.0), "b": numpy.array(3.0)})
    network, runtime = read(made, tmp_path)
    check_agreement(runtime, network)
    assert float(network(torch.ones(1, 2, dtype=torch.float64))[0, 0]) == 1 / 3


def test_a_model_that_is_read_wrongly_is_not_answered_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, runtime = read(one("Relu"), tmp_path)
    monkeypatch.setitem(TABLE, "Relu", Operator(lambda call, x: x.abs(), (), False))
    with pytest.raises(ModelError, match="onnxruntime gives logits"):
        check_agreement(runtime, network)


def test_patches_are_seen_where_the_first_operation_cuts_them(tmp_path: Path) -> None:
    network, _ = read(one("Conv", A.normal(size=(4, 3, 4, 4)), shape=PICTURE, strides=[4, 4]), tmp_path)
    assert network.patch() == (4, 4)
    overlapping, _ = read(one("Conv", W, shape=PICTURE), tmp_path)
    assert overlapping.patch() is None

"""Model and property files from a stranger: data alone, nothing is run, nothing outside is opened, all in one line."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest

from certiformer.errors import CertiformerError
from certiformer.formats import read_vnnlib
from certiformer.models import packed
from certiformer.models.onnx import Network, read_file
from onnxfiles import TensorProto, helper, model, node, onnx, relu_network, save


def refused(made: Any, folder: Path) -> str:
    """What is said about a file, in one line."""
    path = folder / "bad.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    with pytest.raises(CertiformerError) as told:
        Network(read_file(path))
    assert "\n" not in str(told.value)
    return str(told.value)


def ints(*values: int) -> Any:
    return numpy.array(values, dtype=numpy.int64)


def test_weights_in_another_file_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\0" * 16)
    opened: list[str] = []
    plain = io.open_code

    def watched(path: Any, *args: Any) -> Any:
        opened.append(str(path))
        return plain(path, *args)

    monkeypatch.setattr(io, "open_code", watched)
    for location in ("../secret.bin", "/etc/passwd", "secret.bin"):
        made = onnx.load(relu_network(tmp_path / "a.onnx"))
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        folder = tmp_path / "inner"
        folder.mkdir(exist_ok=True)
        assert "in another file" in refused(made, folder)
    assert not any("secret" in name or "passwd" in name for name in opened)


def test_weights_in_another_file_are_found_inside_inner_graphs(tmp_path: Path) -> None:
    hidden = helper.make_tensor("w", TensorProto.FLOAT, [1], [0.0])
    hidden.ClearField("float_data")
    hidden.data_location = TensorProto.EXTERNAL
    hidden.external_data.add(key="location", value="/etc/passwd")
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])
    inner = helper.make_graph([helper.make_node("Identity", ["w"], ["z"])], "inner", [], [out], [hidden])
    made = onnx.load(relu_network(tmp_path / "a.onnx"))
    made.graph.node.append(helper.make_node("If", ["c"], ["q"], then_branch=inner, else_branch=inner))
    assert "in another file" in refused(made, tmp_path)


def test_all_unknown_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Det", ["a"], ["b"]), node("NonZero", ["b"], ["y"])]
    told = refused(model(nodes, (2, 2)), tmp_path)
    assert "Det (node 'Det_b'), NonZero (node 'NonZero_y')" in told
    foreign = model([node("Relu")], (1, 2))
    foreign.graph.node[0].CopyFrom(helper.make_node("Run", ["x"], ["y"], domain="evil.example"))
    foreign.opset_import.append(helper.make_opsetid("evil.example", 1))
    assert "evil.example.Run" in refused(foreign, tmp_path)


BROKEN = {
    "not an ONNX file": b"hello",
    "holds no graph": b"",
    "2 inputs": lambda: _two_inputs(),
    "expected float or double": lambda: model([node("Identity")], (1, 2), kind=TensorProto.INT64),
    "expected sizes that are known": lambda: model([node("Relu")], (1, "n")),
    "version 6": lambda: model([node("Relu")], (1, 2), opset=6),
    "cannot be computed": lambda: model([node("Mul", ["x", "w"])], (1, 2), constants={"w": numpy.ones(3)}),
    "(tensor name: w)": lambda: _with_wrong_sizes(),
    "entries": lambda: model([node("Expand", ["x", "s"])], (1, 1), constants={"s": ints(1 << 20, 1 << 20)}),
    "Range without end": lambda: _range(0),
    "infinity or NaN": lambda: model([node("Mul", ["x", "w"])], (1, 2), constants={"w": numpy.array([1.0, numpy.nan])}),
    "does not depend": lambda: model([node("Identity", ["w"])], (1, 2), constants={"w": numpy.ones(2)}),
    "depends on the input": lambda: model([node("Floor")], (1, 2)),
    "whole numbers or truth values": lambda: model([node("Cast", to=TensorProto.INT64)], (1, 2)),
}


def _two_inputs() -> Any:
    made = model([node("Add", ["x", "z"])], (1, 2), constants={"z": numpy.ones(2)})
    made.graph.input.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [1]))
    return made


def _range(step: int) -> Any:
    zero = numpy.array(0, dtype=numpy.int64)
    nodes = [node("Range", ["a", "a", "b"], ["r"]), node("Cast", ["r"], ["f"], to=1), node("Add", ["x", "f"])]
    return model(nodes, (1, 2), constants={"a": zero, "b": zero + step})


def _with_wrong_sizes() -> Any:
    made = model([node("MatMul", ["x", "w"])], (1, 2), constants={"w": numpy.ones((2, 2))})
    made.graph.initializer[0].dims[0] = 1 << 40
    return made


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_model_is_told_in_one_line(said: str, tmp_path: Path) -> None:
    made = BROKEN[said]
    assert said in refused(made() if callable(made) else made, tmp_path)


def test_every_cut_of_a_model_is_an_error_or_a_model(tmp_path: Path) -> None:
    """Bytes missing at the end, and bytes changed."""
    content = relu_network(tmp_path / "a.onnx").read_bytes()
    generator = numpy.random.default_rng(0)
    spoilt = [content[:k] for k in range(0, len(content), 7)]
    for _ in range(100):
        array = bytearray(content)
        array[int(generator.integers(len(array)))] = int(generator.integers(256))
        spoilt.append(bytes(array))
    refusals = 0
    for each in spoilt:
        path = tmp_path / "b.onnx"
        path.write_bytes(each)
        try:
            Network(read_file(path))
        except CertiformerError:
            refusals += 1
    assert refusals > len(content) // 14


def zipped(content: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("a.vnnlib", content)
    return target.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(gzip.compress(b"(assert)")), "a gzip archive inside a gzip file"),
        (gzip.compress(zipped(b"(assert)")), "a zip archive inside a gzip file"),
        (zipped(b"(assert)"), "found a zip archive"),
        (gzip.compress(b"(assert)")[:-9], "cannot be unpacked|ends too early"),
        (b"\x1f\x8bnonsense", "cannot be unpacked"),
        (b"\xff\xfe(\x00", "expected text in UTF-8"),
    ],
    ids=["gzip in gzip", "zip in gzip", "zip", "cut", "nonsense", "other letters"],
)
def test_archives_are_unpacked_once(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib.gz"
    path.write_bytes(content)
    with pytest.raises(CertiformerError, match=said):
        read_vnnlib(path)


def test_a_small_file_cannot_ask_for_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 24)))
    assert path.stat().st_size < 1 << 15
    with pytest.raises(CertiformerError, match="more than 1,048,576 bytes when unpacked"):
        packed.read_packed(path, "property", most=1 << 20)
    with pytest.raises(CertiformerError, match="more than 100 bytes"):
        packed.read_packed(path, "property", most=100)


def test_pipes_folders_and_what_is_not_there(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "cannot be read"), (tmp_path / "none", "cannot be read"), (os.devnull, "a device")):
        with pytest.raises(CertiformerError, match=said):
            read_vnnlib(path)


def test_a_good_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx.gz"
    path.write_bytes(gzip.compress(relu_network(tmp_path / "a.onnx").read_bytes()))
    assert Network(read_file(path)).outputs == 2
    assert save(onnx.load(tmp_path / "a.onnx"), tmp_path / "c.onnx").is_file()

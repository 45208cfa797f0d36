"""Pictures on the command line: a radius for every patch, a map, and the original beside what was found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from certiformer.cli import main
from certiformer.errors import InputError
from certiformer.models.images import read_picture
from certiformer.report.pictures import png, shown
from onnxfiles import model, node, save


def vision(path: Path) -> Path:
    """Four patches of 2 x 2 pixels, a layer with ReLU, two classes."""
    generator = numpy.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "cut"], ["p"], strides=[2, 2]),
        node("Relu", ["p"], ["r"]),
        node("Flatten", ["r"], ["f"]),
        node("Gemm", ["f", "w"], ["y"]),
    ]
    constants = {"cut": generator.normal(size=(3, 1, 2, 2)), "w": generator.normal(size=(12, 2))}
    return save(model(nodes, [1, 1, 4, 4], constants=constants), path)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "p.png"
    Image.fromarray((255 * numpy.random.default_rng(1).random((4, 4))).astype("uint8")).save(path)
    return path


def test_every_patch_has_its_radius(tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, page = vision(tmp_path / "m.onnx"), tmp_path / "page.html"
    assert run("image", network, picture, "--norm", "inf", "--json", "--out", page) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["grid"], found["patch"], len(found["certified"])) == ([2, 2], [2, 2], 4)
    assert all(0 < c <= a for c, a in zip(found["certified"], found["attacked"], strict=True) if a is not None)
    content = page.read_text()
    assert content.count('<img src="data:image/png;base64,') == 4  # original, worst, change, map
    assert "<script" not in content
    assert not re.search(r"(src|href)=\"(?!data:)", content)
    assert run("image", network, picture, "--norm", "inf") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("2 x 2 patches; the weakest" in line for line in lines)
    assert sum(len(line.rstrip("\n")) == 19 for line in lines[1:5]) == 4  # four rows of 2 x 4 characters, twice


def test_a_counterexample_is_shown_beside_the_original(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, asked, page = vision(tmp_path / "m.onnx"), tmp_path / "p.vnnlib", tmp_path / "page.html"
    lines = [f"(declare-const X_{k} Real)(assert (>= X_{k} -9))(assert (<= X_{k} 9))" for k in range(16)]
    asked.write_text("(declare-const Y_0 Real)(declare-const Y_1 Real)" + "".join(lines) + "(assert (<= Y_0 Y_1))")
    assert run("verify", network, asked, "--out", page) == 1
    assert page.read_text().count("<img") == 3
    assert "Refuted" in page.read_text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.png", b"nonsense", "cannot be read"),
        ("a.npy", b"nonsense", "picture"),
        ("none.png", None, "cannot be read"),
    ],
)
def test_bad_pictures_are_told_in_one_line(
    name: str, content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run("image", vision(tmp_path / "m.onnx"), tmp_path / name) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told


def test_arrays_with_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    numpy.save(path, numpy.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError):
        read_picture(path)


def test_channels_are_normalised(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    numpy.save(path, numpy.ones((3, 2, 2)))
    found = read_picture(path, mean=(0.5, 0.0, 1.0), std=(0.25,))
    assert found[:, 0, 0].tolist() == [2.0, 4.0, 0.0]
    with pytest.raises(InputError, match="one for each channel"):
        read_picture(path, mean=(0.5, 0.5))


def test_a_png_is_what_it_shows(tmp_path: Path) -> None:
    pixels = shown(torch.tensor([[[0.0, 0.5], [1.0, 2.0]]]), 0.0, 1.0)
    (tmp_path / "a.png").write_bytes(png(pixels))
    assert numpy.asarray(Image.open(tmp_path / "a.png"))[:, :, 0].tolist() == [[0, 128], [255, 255]]

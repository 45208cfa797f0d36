"""Pictures on the command line: a radius for every patch, a map, and the original beside what was found."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

import certiformer as cf
from certiformer.cli import main
from certiformer.errors import InputError
from certiformer.models.images import Scale, read_picture
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


def test_all_pixels_may_move_at_once(
    tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes are in pixels, before they are normalised, and clipped there; patches and norms choose other sets."""
    network, page = vision(tmp_path / "m.onnx"), tmp_path / "page.html"
    asked = ("image", network, picture, "--norm", "inf", "--mean", "0.5", "--std", "0.25", "--clip")
    assert run(*asked, "--eps", "1/255") == 0
    assert capsys.readouterr().out.startswith("certified: pixels move by 1/255 in linf, between 0 and 1")
    assert run(*asked, "--eps", "1", "--json", "--out", page) == 1
    found = json.loads(capsys.readouterr().out)
    point = torch.tensor(found["counterexample"]["point"])
    assert found["status"] == "refuted"
    assert -2 <= float(point.min()) <= float(point.max()) <= 2  # (0 - 0.5) / 0.25 to (1 - 0.5) / 0.25
    assert page.read_text().count("<img") == 3
    seen: list[Any] = []
    real = cf.Certifier.verify

    def recorded(self: cf.Certifier, inputs: Any, **more: Any) -> Any:
        seen.append((more["within"], more["property"]))
        return real(self, inputs, **more)

    monkeypatch.setattr(cf.Certifier, "verify", recorded)
    assert run(*asked, "--eps", "0.001", "--positions", "0,1+2", "--property", "within=-99:99", "-q") == 0
    (first, second), wanted = seen.pop()
    assert (wanted.lower, wanted.upper) == (-99, 99)
    assert [(box.upper > box.lower).sum().item() for box in (first, second)] == [4, 8]
    assert run("image", network, picture, "--eps", "0.001", "--std", "0.25", "--property", "top-1") == 0
    ((ball,), wanted) = seen.pop()
    assert (ball.eps, ball.p, ball.positions, ball.joint, wanted) == (0.004, 2, "0+1+2+3", True, cf.TopK(1))


def test_boxes_of_pixels_hold_what_pixels_may_become() -> None:
    pixels = torch.tensor([[[0.0, 0.3], [1.0, 0.7]], [[0.1, 0.2], [0.4, 0.9]]], dtype=torch.float64)
    scale, eps = Scale((0.1, 0.7), (0.3, 0.9)), Fraction(1, 255)
    for clip, c, i, j in itertools.product((False, True), *3 * (range(2),)):
        lower, upper = (float(end[c, i, j]) for end in scale.box(pixels, eps, clip=clip))
        ends = [Fraction(float(pixels[c, i, j])) + side * eps for side in (-1, 1)]
        ends = [min(max(e, Fraction(0)), Fraction(1)) for e in ends] if clip else ends
        low, high = ((e - Fraction(scale.mean[c])) / Fraction(scale.std[c]) for e in ends)
        assert Fraction(lower) <= low < Fraction(math.nextafter(lower, math.inf))
        assert Fraction(math.nextafter(upper, -math.inf)) < high <= Fraction(upper)
    with pytest.raises(InputError, match="channels differ"):
        scale.radius(eps)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--clip",), "go with --eps"),
        (("--eps", "x"), "expected a number such as"),
        (("--eps", "1/0"), "expected a number such as"),
        (("--eps", "-1"), "expected a number such as"),
        (("--eps", "1e400"), "expected a number such as"),
        (("--eps", "0.1", "--clip"), "a ball is not cut"),
        (("--eps", "0.1", "--property", "top"), "expected label, top-K"),
        (("--eps", "0.1", "--property", "within=1:2:3"), "expected label, top-K"),
        (("--eps", "0.1", "--property", "never-7"), "expected a class from 0 to 1"),
        (("--eps", "0.1", "--norm", "inf", "--positions", "9"), "out of range"),
    ],
)
def test_wrong_questions_about_pixels_are_one_line(
    flags: tuple[str, ...], said: str, tmp_path: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("image", vision(tmp_path / "m.onnx"), picture, *flags) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1

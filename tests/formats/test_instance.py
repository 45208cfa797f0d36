"""Model and property files: proved, refuted as onnxruntime sees it, or neither; through the command line too."""

from __future__ import annotations

import gzip
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from certiformer import cli
from certiformer.cli import main
from certiformer.errors import CertiformerError
from certiformer.formats import FileAnswer, Instance, result_text
from certiformer.formats.rounding import above, below, half_spaces, inside
from certiformer.formats.witness import Judge
from certiformer.options import Options
from onnxfiles import model, node, relu_network, save

HEAD = "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 0)) (assert (<= X_0 0.3)) (assert (>= X_1 0)) (assert (<= X_1 1))\n"
NEW = "(vnnlib-version <2.0>) (declare-network f (declare-input A float32 [1,2]) (declare-output B real [1,2]))\n"
NEW_BOX = "(assert (and (>= A[0,0] 0) (<= A[0,0] 0.3) (>= A[0,1] 0) (<= A[0,1] 1)))\n"


def ask(folder: Path, text: str, *, network: Path | None = None, **options: Any) -> tuple[FileAnswer, Instance]:
    """Y_0 is X_0 - X_1, Y_1 is 0.5."""
    path = folder / "p.vnnlib"
    path.write_text(text)
    instance = Instance(network or relu_network(folder / "m.onnx"), path)
    return instance.answer(Options(**options)), instance


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        ("(assert (>= Y_0 Y_1))", "unsat"),
        ("(assert (>= Y_0 0.3000001))", "unsat"),
        ("(assert (>= Y_0 0.29))", "sat"),
        ("(assert (<= Y_0 -0.99))", "sat"),
        ("(assert (<= (+ (* 3 Y_0) (* 0.1 Y_1)) -3))", "unsat"),
        ("(assert (and (>= Y_0 0.1) (<= Y_0 0.2)))", "sat"),
        ("(assert (or (>= Y_0 0.4) (<= Y_0 -1.1) (<= Y_1 0.4)))", "unsat"),
        ("(assert (or (>= Y_0 0.4) (<= Y_0 -0.9)))", "sat"),
        ("(assert (or (and (<= X_1 0.1) (>= Y_0 0.31)) (and (>= X_1 0.9) (>= Y_0 -0.5))))", "unsat"),
        ("(assert (or (and (<= X_1 0.1) (>= Y_0 0.31)) (and (>= X_1 0.9) (>= Y_0 -0.7))))", "sat"),
        ("(assert (< Y_1 0.5))", "unknown"),  # never true, but 0.5 is its border: what is proved is of <=
        ("(assert (<= X_0 X_1)) (assert (>= Y_0 0.1))", "unknown"),  # relations between inputs are only checked
    ],
)
def test_what_is_true_of_a_small_network(condition: str, verdict: str, tmp_path: Path) -> None:
    answer, instance = ask(tmp_path, HEAD + BOX + condition)
    assert answer.verdict == verdict
    assert (answer.witness is not None) == (verdict == "sat")
    if answer.witness is not None:
        case = instance.query.cases[answer.witness.case]
        x, y = ([Fraction(float(v)) for v in values] for values in (answer.witness.x, answer.witness.y))
        assert answer.witness.x.dtype == numpy.float32
        assert case.holds(x, y)
        assert instance.runtime(answer.witness.x).tolist() == answer.witness.y.tolist()
    if verdict == "unsat":
        assert all(m is not None and m > 0 for m in answer.margins)


def test_version_2_and_packed_files(tmp_path: Path) -> None:
    packed = tmp_path / "m.onnx.gz"
    packed.write_bytes(gzip.compress(relu_network(tmp_path / "m.onnx").read_bytes()))
    answer, instance = ask(tmp_path, NEW + NEW_BOX + "(assert (<= B[0,0] -0.9))", network=packed)
    lines = result_text(answer, instance.query).splitlines()
    assert (lines[0], lines[1], lines[4]) == ("sat", "A float32 [1,2]", "B real [1,2]")
    assert float(lines[5]) <= -0.9


def test_an_input_without_a_float32_value_is_the_nearest(tmp_path: Path) -> None:
    """X_0 is a tenth, exactly: no float is. The counterexample must hold in float64 at the tenth too."""
    bounds = BOX.replace("X_0 0)", "X_0 0.1)").replace("X_0 0.3)", "X_0 0.1)")
    answer, _ = ask(tmp_path, HEAD + bounds + "(assert (>= Y_0 0.05))")
    assert answer.verdict == "sat"
    assert answer.witness is not None
    assert answer.witness.rounded == 1
    assert answer.witness.x[0] == numpy.float32(0.1)


def test_a_counterexample_of_float64_alone_is_none(tmp_path: Path) -> None:
    """In float32 adding a billion and taking it away again gives multiples of 64: never what is asked for."""
    nodes = [node("Add", ["x", "big"], ["a"]), node("Sub", ["a", "big"], ["b"]), node("Mul", ["b", "w"], ["y"])]
    constants = {"big": numpy.array(1e9), "w": numpy.ones((1, 2))}
    path = save(model(nodes, [1, 2], constants=constants), tmp_path / "m.onnx")
    bounds = "".join(f"(assert (>= X_{k} 0)) (assert (<= X_{k} 1))" for k in range(2))
    text = HEAD + bounds + "(assert (and (>= Y_0 0.4) (<= Y_0 0.6)))"
    (tmp_path / "p.vnnlib").write_text(text)
    with pytest.raises(CertiformerError, match="nothing can be proved about it"):
        Instance(path, tmp_path / "p.vnnlib")


def test_the_judge_sees_what_onnxruntime_sees(tmp_path: Path) -> None:
    _, instance = ask(tmp_path, HEAD + BOX + "(assert (>= Y_0 0.25))")
    judge = Judge(instance.runtime, instance.network, instance.query.cases[0], 0)
    assert judge.confirmed(torch.tensor([0.3, 0.0])) is not None
    assert judge.confirmed(torch.tensor([0.2, 0.0])) is None
    deep = judge.deepened(torch.tensor([0.2, 0.0], dtype=torch.float64))
    assert deep is not None
    assert Fraction(float(deep.x[0])) <= Fraction(3, 10)  # the float nearest to 0.3 is above it
    instance.runtime.session = None  # whoever asks nobody gets no answer
    with pytest.raises(CertiformerError):
        judge.confirmed(torch.tensor([0.3, 0.0]))


def test_numbers_are_rounded_so_that_nothing_gets_easier() -> None:
    tenth = Fraction(1, 10)
    for kind in (numpy.float32, numpy.float64):
        assert Fraction(float(below(tenth, kind))) < tenth < Fraction(float(above(tenth, kind)))
        assert float(below(Fraction(1, 2), kind)) == float(above(Fraction(1, 2), kind)) == 0.5
    assert float(numpy.nextafter(below(tenth), numpy.float64(1))) == float(above(tenth))


def test_half_spaces_hold_what_is_written(tmp_path: Path) -> None:
    _, instance = ask(tmp_path, HEAD + BOX + "(assert (<= (+ (* 0.1 Y_0) (* 3 Y_1)) 0.7))")
    case = instance.query.cases[0]
    table, limits = half_spaces(case.rows, 2)
    assert table.tolist() == [[1.0, 30.0]]  # ten times as much, which is exact
    assert limits.tolist() == [7.0]
    low, high, none = inside(case, numpy.float32)
    assert not none.any()
    assert Fraction(float(high[0])) <= Fraction(3, 10) < Fraction(float(numpy.nextafter(high[0], numpy.float32(1))))
    assert low.tolist() == [0.0, 0.0]


def test_sizes_that_differ_are_told(tmp_path: Path) -> None:
    with pytest.raises(CertiformerError, match="the property has 3 inputs, the model has 2"):
        ask(tmp_path, HEAD + BOX + "(declare-const X_2 Real)(assert (and (<= X_2 0) (>= X_2 0) (<= Y_0 0)))")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return int(stopped.value.code or 0)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network, asked, out = relu_network(tmp_path / "m.onnx"), tmp_path / "p.vnnlib", tmp_path / "r.txt"
    asked.write_text(HEAD + BOX + "(assert (>= Y_0 Y_1))")
    assert run("verify", network, asked, "--timeout", 60, "--out", out) == 0
    assert capsys.readouterr().out.startswith("unsat\n")
    assert out.read_text() == "unsat\n"
    asked.write_text(HEAD + BOX + "(assert (<= Y_0 -0.9))")
    assert run("verify", network, asked, "--out", out, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "sat"
    assert told["witness"]["y"][0] <= -0.9
    assert re.match(r"sat\n\(\(X_0 [\d.e-]+\)\n \(X_1 ", out.read_text())


@pytest.mark.parametrize(
    ("which", "content", "said"),
    [
        ("p.vnnlib", b"(assert", "never closed"),
        (
            "p.vnnlib",
            (HEAD + BOX + "(assert (>= Y_0 1e999))").encode(),
            "p.vnnlib: a number of size 1e999 is too large",
        ),
        ("m.onnx", b"nonsense", "not an ONNX file"),
        ("p.vnnlib", gzip.compress(gzip.compress(b"", mtime=0), mtime=0), "a gzip archive inside"),
    ],
)
def test_bad_files_end_in_one_line(
    which: str, content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, asked = relu_network(tmp_path / "m.onnx"), tmp_path / "p.vnnlib"
    asked.write_text(HEAD + BOX + "(assert (>= Y_0 Y_1))")
    (tmp_path / which).write_bytes(content)
    assert run("verify", network, asked) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert said in told.err


def test_with_a_timeout_what_one_pass_leaves_open_is_tried_again(tmp_path: Path) -> None:
    """relu(a) - relu(-a) is a; one pass bounds both on their own, pieces of the box do not."""
    nodes = [
        node("Gemm", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Gemm", ["b", "v", "c"], ["y"]),
    ]
    constants = {
        "w": numpy.array([[1.0, -1.0], [-1.0, 1.0]]),
        "v": numpy.array([[1.0, 0.0], [-1.0, 0.0]]),
        "c": numpy.array([0.0, 0.5]),
    }
    network = save(model(nodes, [1, 2], constants=constants), tmp_path / "m.onnx")
    text = HEAD + BOX + "(assert (>= Y_0 Y_1))"
    once, _ = ask(tmp_path, text, network=network)
    assert once.verdict == "unknown"
    assert once.margins[0] is not None
    longer, _ = ask(tmp_path, text, network=network, timeout=60.0)
    assert longer.margins[0] is not None
    assert longer.margins[0] >= once.margins[0]
    pieces, _ = ask(tmp_path, text, network=network, splits=8)
    assert pieces.verdict == "unsat"


def test_what_onnxruntime_does_not_confirm_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "deepened", lambda self, point: None)
    answer, _ = ask(tmp_path, HEAD + BOX + "(assert (<= Y_0 -0.9))")
    assert (answer.verdict, answer.witness) == ("unknown", None)
    assert answer.reason == "a counterexample in float64 is none for onnxruntime"


def test_no_sample_contradicts_what_is_proved(tmp_path: Path) -> None:
    """Random networks, boxes and limits around what sampling reaches: below it sat, above it unsat or open."""
    verdicts = set()
    for seed in range(5):
        generator = numpy.random.default_rng(seed)
        constants = {
            "w": generator.normal(size=(2, 5)),
            "a": generator.normal(size=5),
            "v": generator.normal(size=(5, 2)),
        }
        nodes = [
            node("Gemm", ["x", "w", "a"], ["h"]),
            node("Relu" if seed % 2 else "Sigmoid", ["h"], ["r"]),
            node("MatMul", ["r", "v"], ["y"]),
        ]
        network = save(model(nodes, [1, 2], constants=constants), tmp_path / f"{seed}.onnx")
        middle, width = generator.normal(size=2), 0.05 + 0.3 * generator.random(2)
        bounds = [(f"{m - w:.6f}", f"{m + w:.6f}") for m, w in zip(middle, width, strict=True)]
        text = HEAD + "".join(f"(assert (and (>= X_{k} {a}) (<= X_{k} {b})))" for k, (a, b) in enumerate(bounds))
        _, instance = ask(tmp_path, text + "(assert (<= Y_0 0))", network=network)
        low, high = (numpy.array([float(b[i]) for b in bounds]) for i in (0, 1))
        reached = max(float(instance.runtime(low + (high - low) * p)[0]) for p in generator.random((300, 2)).round(1))
        for limit in (reached - 0.01, reached + 0.3):
            answer, _ = ask(tmp_path, text + f"(assert (>= Y_0 {limit:.9f}))", network=network)
            verdicts.add((limit < reached, answer.verdict))
    assert {verdict for below_, verdict in verdicts if below_} == {"sat"}
    assert (False, "unsat") in verdicts


def test_the_time_of_a_command_begins_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python needed before it came to us counts, and as much is kept for its end."""
    asked: list[float] = []
    real = Instance.answer

    def answer(self: Instance, options: Options, **more: Any) -> Any:
        asked.append(options.timeout or 0.0)
        return real(self, options, **more)

    monkeypatch.setattr(Instance, "answer", answer)
    monkeypatch.setattr(cli, "_age", lambda: 400.0)
    network, property = relu_network(tmp_path / "m.onnx"), tmp_path / "p.vnnlib"
    property.write_text(HEAD + BOX + "(assert (>= Y_0 Y_1))")
    call = ["verify", str(network), str(property), "--timeout", "1000", "--quiet"]
    monkeypatch.setattr("sys.argv", ["certiformer", *call])
    for arguments in (None, call):
        with pytest.raises(SystemExit):
            main(arguments)
    assert 0 < asked[0] <= 200 < 900 < asked[1] <= 1000


def test_a_process_knows_how_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cli._age()
    assert 0 <= before <= cli._age()

    def nothing(*args: Any, **more: Any) -> Any:
        raise OSError

    monkeypatch.setattr("builtins.open", nothing)
    assert cli._age() == 0

"""Questions of ours as files: what comes back from them is the same answer."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import certiformer as cf
from certiformer.cli import main
from certiformer.errors import CertiformerError
from certiformer.formats import Instance, parse_vnnlib, read_vnnlib
from certiformer.formats.export import Region, decimal, export, property_text, write_model
from certiformer.options import Options


def test_a_question_about_words_is_the_same_question_as_files(tmp_path: Path) -> None:
    """Proved and refuted alike, margins included, but for the order in which the exported model computes."""
    certifier = cf.Certifier("sst-1", method="backward-forward")
    for eps, verdict in ((0.01, "unsat"), (3.0, "sat")):
        ours = certifier.verify("a great film", within=cf.Ball(eps, norm="inf", positions="great"))
        folder = tmp_path / str(eps)
        files = export(certifier, "a great film", folder, within=cf.Ball(eps, norm="inf", positions="great"))
        assert [f.name for f in files] == ["model.onnx", "property_0.vnnlib", "instances.csv"]
        instance = Instance(folder / "model.onnx", folder / "property_0.vnnlib")
        answer = instance.answer(Options(method="backward-forward"))
        assert answer.verdict == verdict
        assert ours.status == {"unsat": "certified", "sat": "refuted"}[verdict]
        if verdict == "unsat":
            assert answer.margins[0] == pytest.approx(ours.least[0], rel=1e-3)


def test_numbers_are_written_out_in_full(tmp_path: Path) -> None:
    for value in (0.1, 1e-30, -123456.789, 5e-324, 1.0):
        assert Fraction(decimal(Fraction(value))) == Fraction(value)
    certifier = cf.Certifier("sst-1")
    export(certifier, "a film", tmp_path, within=cf.Ball(0.1, norm="inf", positions="1,2"))
    queries = [read_vnnlib(tmp_path / f"property_{k}.vnnlib") for k in range(2)]
    widths = [[b - a for a, b in zip(q.cases[0].lower, q.cases[0].upper, strict=True)] for q in queries]
    assert [sum(w > 0 for w in ws) for ws in widths] == [64, 64]
    assert all(w in (0, 2 * Fraction(0.1)) for ws in widths for w in ws)


@pytest.mark.parametrize(
    "wanted", [cf.Robust(), cf.TopK(2), cf.Never(1), cf.Within(-1.0, 2.5), cf.Property([([[0.5, 1.0, 0.0]], [0.25])])]
)
def test_every_property_says_the_same_in_a_file(wanted: Any) -> None:
    known = wanted.of(3, 2)  # three outputs, of which the last is the largest
    query = parse_vnnlib(property_text(Region((Fraction(0),) * 4, (Fraction(1),) * 4, "a box"), known.goal))
    seen = set()
    for y in 2 * torch.randn(200, 3, dtype=torch.float64):
        exact = [Fraction(v) for v in y.tolist()]
        bad = any(case.holds([Fraction(1, 2)] * 4, exact) for case in query.cases)
        assert bad == (known.violated(y) is not None)
        seen.add(bad)
    assert seen == {True, False}


def test_what_has_no_linear_bounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertiformerError, match="linear bounds alone"):
        export(cf.Certifier("sst-1"), "a film", tmp_path, within=cf.Ball(0.1, norm=2))


def test_an_export_that_computes_something_else_is_an_error(tmp_path: Path) -> None:
    class Strange(nn.Module):
        """Another function when it is written than when it is run."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x if torch.compiler.is_exporting() else x

    with pytest.raises(CertiformerError, match="the model itself"):
        write_model(Strange(), torch.ones(1, 3), tmp_path / "m.onnx")


def test_the_command_line_writes_files_that_the_command_line_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "q"
    call = ["export", "a great film", "--model", "sst-1", "--eps", "0.01", "--positions", "great", "--to", str(folder)]
    with pytest.raises(SystemExit) as stopped:
        main(call)
    assert not stopped.value.code
    assert str(folder / "model.onnx") in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["verify", str(folder / "model.onnx"), str(folder / "property_0.vnnlib"), "--quiet"])
    assert (stopped.value.code or 0, capsys.readouterr().out) == (0, "unsat\n")

"""The competition's scripts, called as the competition calls them, on small models made here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onnxfiles import relu_network

SCRIPTS = Path(__file__).resolve().parents[1] / "competition"
HEAD = "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 0)) (assert (<= X_0 0.3)) (assert (>= X_1 0)) (assert (<= X_1 1))\n"
PROPERTIES = {"unsat": "(assert (>= Y_0 Y_1))", "sat": "(assert (<= Y_0 -0.9))"}  # Y_0 is X_0 - X_1, Y_1 is 0.5


def call(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CERTIFORMER_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    command = ["bash", str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verdict", [pytest.param("unsat", marks=pytest.mark.slow), "sat"])
def test_an_instance_from_end_to_end(verdict: str, tmp_path: Path) -> None:
    model, asked, results = relu_network(tmp_path / "m.onnx"), tmp_path / "p.vnnlib", tmp_path / "results.txt"
    asked.write_text(HEAD + BOX + PROPERTIES[verdict])
    if verdict == "sat":
        prepared = call("prepare_instance.sh", "v1", "test", model, asked)
        assert prepared.returncode == 0, prepared.stderr
    done = call("run_instance.sh", "v1", "test", model, asked, results, 60)
    assert done.returncode == 0, done.stderr
    lines = results.read_text().splitlines()
    assert lines[0] == verdict
    if verdict == "sat":
        pairs = re.findall(r"\((\w+) ([^()]+)\)", "".join(lines[1:]))
        values = {name: float(value) for name, value in pairs}
        assert lines[1].startswith("((X_0 ")
        assert lines[-1].endswith("))")
        assert list(values) == ["X_0", "X_1", "Y_0", "Y_1"]
        assert 0 <= values["X_0"] <= 0.3
        assert values["Y_0"] <= -0.9


def test_what_goes_wrong_is_an_error_in_the_results(tmp_path: Path) -> None:
    model, results = relu_network(tmp_path / "m.onnx"), tmp_path / "results.txt"
    broken = tmp_path / "p.vnnlib"
    broken.write_text("(assert")
    done = call("run_instance.sh", "v1", "test", model, broken, results, 60)
    assert (done.returncode, results.read_text()) == (0, "error\n")
    assert "never closed" in done.stderr


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    """Nothing can be proved in a hundredth of a second, nor can Python start."""
    model, asked, results = relu_network(tmp_path / "m.onnx"), tmp_path / "p.vnnlib", tmp_path / "results.txt"
    asked.write_text(HEAD + BOX + PROPERTIES["unsat"])
    done = call("run_instance.sh", "v1", "test", model, asked, results, 0.01)
    assert (done.returncode, results.read_text()) == (0, "timeout\n")


@pytest.mark.parametrize("script", ["install_tool.sh", "prepare_instance.sh", "run_instance.sh"])
def test_another_version_of_the_rules_is_refused(script: str) -> None:
    done = call(script, "v2", "test", "a", "b", "c", 1)
    assert done.returncode == 1
    assert "expected the version v1" in done.stderr

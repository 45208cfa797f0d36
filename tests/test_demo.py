"""What `make demo` shows: the real command on a short sentence, the table, the explanation and the report."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demo_prints_both_radii_and_writes_the_report(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "demo" / "report.html"
    assert demo.main(["a", "great", "film"], report=report) == 0
    shown = capsys.readouterr().out
    for word in ("great", "film", "certified", "attacked", "Proved: no change of the word", report.as_uri()):
        assert word in shown
    ending = shown[shown.index(report.as_uri()) :]
    for command in ("certiformer app", "certiformer certify 'a great film' --eps 0.1", "--model path/to/your/folder"):
        assert command in ending  # what to do next
    page = report.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "great" in page


def test_the_demo_passes_on_what_the_command_says_of_a_bad_sentence(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([" "], report=tmp_path / "report.html") == 2
    assert "holds no word" in capsys.readouterr().err


def test_the_demo_has_a_sentence_of_its_own(demo: ModuleType) -> None:
    assert len(demo.SENTENCE.split()) > 3
    assert demo.REPORT == ROOT / "demo" / "report.html"

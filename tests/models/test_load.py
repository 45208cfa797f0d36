"""What `load` takes, with and without transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf


def test_transformers_is_not_imported_until_it_is_needed() -> None:
    code = "import certiformer, sys; assert not {'transformers', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_transformers_a_folder_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(cf.ModelError, match=r"pip install 'certiformer\[hf\]'"):
        cf.load(tmp_path)


class Bag(nn.Module):
    """The mean of the embeddings through two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.outer(nn.functional.gelu(self.inner(x.mean(dim=1))))
        return y


def test_any_module_on_embeddings() -> None:
    torch.manual_seed(0)
    table = torch.randn(9, 4)
    model = cf.load(Bag(), embeddings=lambda ids: table[ids], num_labels=2)
    assert model.labels == ("LABEL_0", "LABEL_1")
    assert model.name == "Bag"
    by_ids = cf.radius(model, [1, 5, 3], norm=2)
    by_embeddings = cf.radius(cf.load(model.module, labels=("no", "yes")), table[[1, 5, 3]])
    assert by_ids.radii == pytest.approx(by_embeddings.radii)
    assert min(by_ids.radii) > 0
    with pytest.raises(cf.InputError, match="3 labels"):
        cf.load(Bag(), num_labels=2, labels=("a", "b", "c"))
    with pytest.raises(cf.InputError, match="tokenizer"):
        cf.load(Bag(), tokenizer=3)
    with pytest.raises(cf.InputError, match="go with a module"):
        cf.load("sst-1", labels=("a", "b"))

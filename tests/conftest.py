"""What several tests need: models with radii that were computed elsewhere, and small random Transformers."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from certiformer.models import Classifier, Config, Embeddings, Model

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes at work: one thread each
    torch.set_num_threads(1)

gc.disable()  # until all is imported, of which nothing is garbage


def pytest_collection_finish() -> None:
    """What was imported is not looked through for garbage again and again, and what tests leave not so often."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"
DATA = Path(os.environ.get("CERTIFORMER_DATA") or HERE.parents[1] / "shared" / "data")  # SST and Yelp, in full
needs_data = pytest.mark.skipif(
    not (DATA / "sst").is_dir(), reason="SST and Yelp are not at hand: CERTIFORMER_DATA names a folder that holds them"
)


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference models and radii."""
    return REFERENCE


@pytest.fixture(scope="session")
def reference_radii(reference: Path) -> dict[tuple[str, int, float, str], dict[int, float]]:
    """(model, sentence, p, method) -> position -> radius; published figures first."""
    rows: dict[tuple[str, int, float, str], dict[int, float]] = {}
    for line in (reference / "radii.jsonl").read_text().splitlines():
        r = json.loads(line)
        rows.setdefault((r["model"], r["sentence"], float(r["p"]), r["method"]), {}).setdefault(
            r["position"], r["radius"]
        )
    return rows


@pytest.fixture(scope="session")
def reference_ids(reference: Path) -> list[list[int]]:
    return [s["ids"] for s in json.loads((reference / "sentences.json").read_text())]


def random_model(
    *, layers: int = 1, layer_norm: str = "no_var", scale: float = 0.3, seed: int = 0, **more: Any
) -> Model:
    """A small Transformer with random weights of a given size."""
    settings: dict[str, Any] = {
        "vocab_size": 20,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_attention_heads": 2,
        "max_position_embeddings": 12,
        "num_labels": 3,
        "labels": ("a", "b", "c"),
    }
    config = Config(num_hidden_layers=layers, layer_norm=layer_norm, **{**settings, **more})  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    embed, module = Embeddings(config), Classifier(config)
    with torch.no_grad():
        for half in (embed, module):
            for name, parameter in half.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator) * scale
                parameter.copy_(1 + noise / 4 if "norm.weight" in name else noise)
    module.eval().requires_grad_(False)
    embed.eval().requires_grad_(False)
    return Model(module=module, embed=embed, labels=config.labels, name="random", special=frozenset({0, 2, 3}))


IDS = [2, 7, 11, 5, 3]

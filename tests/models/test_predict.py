"""What a model says, for one input or many, is what its own forward pass says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.models.predict import Prediction
from certiformer.questions.inputs import prepare
from conftest import IDS, random_model


def one(found: Any) -> Prediction:
    assert isinstance(found, Prediction)
    return found


def test_ids_and_embeddings() -> None:
    model = random_model()
    found = one(model.predict(IDS))
    prepared = prepare(model, IDS)
    assert (found.label, found.name) == (prepared.label, prepared.label_name)
    assert found.margin == pytest.approx(prepared.margin)
    assert found.probabilities == pytest.approx(prepared.logits.softmax(dim=1)[0].tolist())
    assert sum(found.probabilities) == pytest.approx(1)
    assert one(model.predict(prepared.embeddings)) == found
    assert one(model.predict(torch.tensor(IDS))) == found
    assert str(found) == f"{found.name} ({found.probabilities[found.label]:.1%}, margin {found.margin:.4g})"
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.label = 1  # type: ignore[misc]


def test_texts_one_or_many() -> None:
    model = cf.load("sst-1")
    texts = ["a great film", "a dull, boring film"]
    found = model.predict(texts)
    assert isinstance(found, tuple)
    assert [p.name for p in found] == ["positive", "negative"]
    assert found[0] == model.predict(texts[0])
    assert model.predict([IDS, IDS[:3] + IDS[-1:]]) != model.predict([IDS, IDS])
    for wrong in ([], b"abc", "", [""]):
        with pytest.raises(cf.InputError):
            model.predict(wrong)  # type: ignore[arg-type]


def test_hugging_face_by_its_own_forward_pass() -> None:
    pytest.importorskip("transformers")
    import tiny

    model = tiny.build("EsmForSequenceClassification")
    with torch.no_grad():
        expected = model.double()(input_ids=torch.tensor([[5, 3, 7, 1]])).logits[0]
    found = one(cf.load(model.float()).predict([5, 3, 7, 1]))
    assert found.logits == pytest.approx(expected.tolist(), abs=1e-6)
    model.train()  # dropout is not part of an answer
    assert one(cf.load(model).predict([5, 3, 7, 1])) == found
    assert model.training

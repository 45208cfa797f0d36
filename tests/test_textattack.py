"""TextAttack's wrappers and attacks, by stand-ins that have what its documentation names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import certiformer as cf
from calling import tiny_folder
from certiformer.errors import InputError, ModelError
from certiformer.textattack import Wrapped, accuracies

WORDS = ("a", "great", "film", "dull")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny", WORDS)


@dataclass(frozen=True)
class Changed:
    """An AttackResult, as far as it is used."""

    text: str

    def perturbed_text(self) -> str:
        return self.text


class SwapsOneWord:
    """An Attack: every word in every place, until the wrapper changes its mind."""

    def __init__(self, wrapper: Any) -> None:
        self.wrapper = wrapper

    def attack(self, example: str, ground_truth_output: int) -> Changed:
        for k in range(len(example.split())):
            for word in WORDS:
                words = example.split()
                words[k] = word
                logits = torch.as_tensor(self.wrapper([" ".join(words)]))
                if int(logits.argmax()) != ground_truth_output:
                    return Changed(" ".join(words))
        return Changed(example)


TEXTS = ("a great film", "a dull film", "great great great film", "dull dull film")


def test_the_three_accuracies_stand_in_one_table() -> None:
    wrapper = Wrapped("sst-1")
    model = wrapper.opened
    labels = [model.predict(text).label for text in TEXTS]
    labels[-1] = 1 - labels[-1]  # one that the model gets wrong
    examples = [(OrderedDict(text=text), label) for text, label in zip(TEXTS, labels, strict=True)]
    found = accuracies(wrapper, examples, attacker=SwapsOneWord(wrapper), eps=1e-4)
    proved = [cf.certify(model, t, eps=1e-4, label=k).status for t, k in zip(TEXTS, labels, strict=True)]
    changed = [SwapsOneWord(wrapper).attack(t, k).text for t, k in zip(TEXTS[:-1], labels, strict=False)]
    kept = [model.predict(t).label == k for t, k in zip(changed, labels, strict=False)]
    assert (found.texts, found.clean) == (4, 3)
    assert found.certified == proved.count("certified") == 3
    assert found.attacked == sum(kept) < 3
    shown = str(found).splitlines()
    assert shown[0].split() == ["clean", "75.0%", "3", "of", "4"]
    assert shown[1].endswith("words changed by SwapsOneWord")
    assert shown[2].endswith("embeddings of any one word moved by up to 0.0001 in l2")
    assert list(found.to_pandas()["right"]) == [3, found.attacked, 3]
    assert "<pre>" in found._repr_html_()


def test_without_an_attack_there_is_no_attacked_accuracy(folder: Path) -> None:
    label = cf.load(folder).predict("great").label
    found = accuracies(folder, [("great", label)], eps=100.0)
    assert (found.attacked, found.certified, found.clean) == (None, 0, 1)
    assert "attacked" not in str(found)


def test_a_wrapper_that_is_another_model_is_refused(folder: Path) -> None:
    class Contrary(Wrapped):
        def __call__(self, texts: Sequence[str]) -> list[list[float]]:
            return [[-value for value in row] for row in super().__call__(texts)]

    with pytest.raises(ModelError, match="about another model"):
        accuracies(Contrary(folder), [("great", 0)], eps=0.1)


def test_a_wrapper_of_hugging_face_is_opened() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import tiny

    class HuggingFaceModelWrapper:
        def __init__(self, model: Any, tokenizer: Any) -> None:
            self.model, self.tokenizer = model, tokenizer

        def __call__(self, texts: Sequence[str]) -> Any:
            coded = self.tokenizer(list(texts), return_tensors="pt")
            with torch.no_grad():
                return self.model(**coded).logits

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    wrapper = HuggingFaceModelWrapper(tiny.build("BertForSequenceClassification"), tokenizer)
    label = int(wrapper(["a great film"]).argmax())
    found = accuracies(wrapper, [("a great film", label)], eps=1e-5, method="backward-forward")
    assert (found.clean, found.certified) == (1, 1)


@pytest.mark.parametrize("examples", [[], [("great",)], [("great", "good")], [(3, 1)], [({"a": "x", "b": "y"}, 1)]])
def test_examples_that_are_none_are_refused(folder: Path, examples: list[Any]) -> None:
    with pytest.raises(InputError, match="examples"):
        accuracies(folder, examples, eps=0.1)

"""Substitutes together are read as they stand together, and what is read as other tokens is not certified."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

import certiformer as cf
from certiformer.core.problem import Problem
from certiformer.models import Model, WordTokenizer
from certiformer.models.model import Encoding
from certiformer.models.subwords import PretrainedTokenizer, context_of
from certiformer.models.tokenizer import SPECIAL_TOKENS
from certiformer.questions import substitutes, verdict
from certiformer.questions.inputs import prepare
from certiformer.questions.substitutes import Candidates, candidates
from conftest import random_model

WORDS = (
    *SPECIAL_TOKENS,
    "great",
    "!",
    "mr",
    ".",
    "mr.",
    "b",
    "b.",
    "?",
    "film",
    "fine",
    "movie",
    "a",
    ",",
    "dull",
    "ok",
)


def model(scale: float = 0.05) -> Model:
    """A model that hardly looks at its words, so that only what is read decides."""
    known = random_model(vocab_size=len(WORDS), scale=scale)
    return replace(known, tokenizer=WordTokenizer(WORDS), vocabulary=WORDS)


MERGED: list[tuple[str, dict[str, list[str]], str]] = [
    ("great! film", {"great": ["mr"], "!": ["."]}, "mr ."),
    ("b! ?", {"!": ["."], "?": ["film"]}, ". film"),  # an initial only before a word
]


def found(text: str, substitutions: dict[str, list[str]], of: Model | None = None) -> Candidates:
    return candidates(prepare(of or model(), text), substitutions)


@pytest.mark.parametrize(("text", "substitutions", "named"), MERGED)
def test_two_that_are_read_as_one_are_not_certified(
    text: str, substitutions: dict[str, list[str]], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word, listed in substitutions.items():  # each alone is a substitute like any other
        assert cf.certify(model(), text, substitutions={word: listed}).status == "certified"
    result = cf.certify(model(), text, substitutions=substitutions)
    assert (result.status, result.method) == ("unknown", "enumeration")
    assert result.reason == f"read as other tokens together: {named}"
    monkeypatch.setattr(verdict, "MOST_COMBINATIONS", 1)
    over_hull = cf.certify(model(), text, substitutions=substitutions)
    assert (over_hull.status, over_hull.reason) == ("unknown", result.reason)
    assert over_hull.method != "enumeration"
    assert over_hull.margin > 0


def test_words_that_are_read_apart_are_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    text, substitutions = "a great film , ok", {"great": ["fine", "dull"], "film": ["movie"], "a": ["b"]}
    assert found(text, substitutions).read_apart() is None
    assert cf.certify(model(), text, substitutions=substitutions).status == "certified"
    monkeypatch.setattr(verdict, "MOST_COMBINATIONS", 1)
    assert cf.certify(model(), text, substitutions=substitutions).status == "certified"
    monkeypatch.setattr(substitutes, "MOST_READ", 1)
    result = cf.certify(model(), text, substitutions=substitutions)
    assert (result.status, result.reason is not None and "too many" in result.reason) == ("unknown", True)


class Secret:
    """A tokenizer that says nothing of how far it looks, and reads words otherwise at the end of a long text."""

    def __init__(self) -> None:
        self._inner = WordTokenizer(WORDS)

    def encode(self, text: str) -> Encoding:
        return self._inner.encode(text)

    def decode(self, ids: list[int]) -> list[str]:
        return self._inner.decode(ids)


def test_a_tokenizer_that_does_not_say_how_far_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = replace(model(), tokenizer=Secret())
    substitutions = {"great": ["fine"], "film": ["movie"]}
    assert cf.certify(secret, "a great film", substitutions=substitutions).status == "certified"  # all are read
    monkeypatch.setattr(verdict, "MOST_COMBINATIONS", 1)
    result = cf.certify(secret, "a great film", substitutions=substitutions)
    assert result.status == "unknown"
    assert result.reason is not None
    assert "not known how far" in result.reason


def test_what_is_said_of_windows_is_true_of_all_combinations() -> None:
    """Where neighbours are read apart, every combination is read word by word; and where not, some is not."""
    generator = torch.Generator().manual_seed(0)
    pieces = ["great", "!", "mr", ".", "b", "?", "film", "fine", ",", "a"]
    said = {True: 0, False: 0}
    for _ in range(150):
        chosen = [pieces[int(i)] for i in torch.randint(len(pieces), (4,), generator=generator)]
        spaces = [" " if int(i) else "" for i in torch.randint(2, (3,), generator=generator)]
        text = "".join(itertools.chain(*zip(chosen, [*spaces, ""], strict=True)))
        listed = {
            word: [pieces[int(i)] for i in torch.randint(len(pieces), (2,), generator=generator)] for word in chosen
        }
        try:
            candidate = found(text, listed)
        except cf.InputError:  # nothing to be replaced
            continue
        together = all(
            candidate.read(c)
            == tuple(
                dict(zip(candidate.choices, c, strict=True)).get(i, ("", own))[1]
                for i, own in enumerate(candidate.prepared.ids or ())
            )
            for c in candidate.combinations()
        )
        apart = candidate.read_apart() is None
        said[apart] += 1
        assert together or not apart
    assert min(said.values()) > 5


def test_a_proof_over_mixtures_that_a_combination_contradicts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    known = model(scale=1.5)
    every = {word: [w for w in WORDS[4:] if w not in ("mr.", "b.")] for word in ("a", "great", "film")}
    assert cf.certify(known, "a great film", substitutions=every).status == "refuted"
    monkeypatch.setattr(verdict, "MOST_COMBINATIONS", 1)
    right = Problem.over

    def wrong(self: Problem, *args: Any) -> Any:
        box, _ = right(self, *args)
        return box._replace(lower=torch.ones_like(box.lower)), [None]

    monkeypatch.setattr(Problem, "over", wrong)
    result = cf.certify(known, "a great film", substitutions=every)
    assert result.status == "error"
    assert result.reason == verdict.CONTRADICTION


def test_ids_are_read_as_they_are() -> None:
    ids = [2, *(WORDS.index(w) for w in ("great", "!", "film")), 3]
    result = cf.certify(model(), ids, substitutions={"great": ["mr"], "!": ["."]})
    assert result.status == "certified"


def test_a_combination_that_changes_the_answer_is_checked_alone() -> None:
    known = model(scale=1.5)
    every = {word: [w for w in WORDS[4:] if w not in ("mr.", "b.")] for word in ("a", "great", "film")}
    result = cf.certify(known, "a great film", substitutions=every)
    assert result.status == "refuted"
    assert result.counterexample is not None
    logits = known.to(dtype=torch.float64).module(result.counterexample.point)
    assert int(logits.argmax()) == result.counterexample.label != result.label


BERT = {
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece"},
    "added_tokens": [{"content": "[CLS]", "lstrip": False, "rstrip": False}],
}
LSTRIP = {"added_tokens": [{"content": "<mask>", "lstrip": True}]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0, 0)),
        (LSTRIP, (1, 1)),
        ({"added_tokens": [{"content": "new york"}]}, None),
        ({"pre_tokenizer": None}, None),
        ({"pre_tokenizer": {"type": "Metaspace", "split": False}}, None),
        ({"pre_tokenizer": {"type": "Metaspace"}}, (0, 0)),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a b"}}}, None),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits"}]}},
            (0, 0),
        ),
        ({"pre_tokenizer": {"type": "ByteLevel", "use_regex": False}}, None),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}, None),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": ".* "}, "content": ""}}, None),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Unheard"}]}}, None),
        ({"model": {"type": "BPE", "dropout": 0.1}}, None),
        ({"model": {"type": "Unheard"}}, None),
    ],
)
def test_how_far_a_tokenizer_looks(changes: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert context_of({**BERT, **changes}) == expected


def test_a_tokenizer_of_hugging_face_says_how_far_it_looks() -> None:
    transformers = pytest.importorskip("transformers")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "mr", "##.", "a"])}
    made = transformers.BertTokenizer(vocab=vocabulary)
    assert PretrainedTokenizer(made).context == (0, 0)

    class Own(transformers.BertTokenizer):  # type: ignore[misc, name-defined]
        pass

    assert PretrainedTokenizer(Own(vocab=vocabulary)).context is None

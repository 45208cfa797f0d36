"""Words replaced, at most so many at once: sets, verdicts and the accuracy of a file, against all combinations."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

import certiformer as cf
from calling import run, tiny_folder
from certiformer.core.sets import Choices
from certiformer.errors import InputError
from certiformer.questions import budgets, verdict
from certiformer.questions.budgets import replaced
from certiformer.sweep.synonyms import read_texts, synonyms
from certiformer.training.substituting import read_synonyms
from conftest import IDS
from questions.test_verdict import VOCABULARY, margin, model

__all__ = ["model"]  # a fixture
OTHERS = {1: [8, 9], 2: [10, 4], 3: [11]}  # position -> ids of substitutes


@pytest.mark.parametrize("most", [1, 2, 3, None])
def test_the_extremes_are_those_of_as_many_moves_as_there_may_be(most):
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1, 1, 5, 3, generator=generator, dtype=torch.float64)
    moves = {
        i: torch.randn(k, 3, generator=generator, dtype=torch.float64) for i, k in ((1, 2), (2, 1), (4, 2))
    }  # t is larger than any
    choices = Choices.of(centre, moves, most=most)
    function = torch.randn(2, 1, 9, 4, generator=generator, dtype=torch.float64)
    rest = [torch.cat([torch.zeros(1, 3, dtype=torch.float64), m]) for m in moves.values()]
    values = [
        torch.einsum("yzmr,m->yzr", function, torch.cat(point))
        for point in itertools.product(*rest)
        if most is None or sum(bool(p.any()) for p in point) <= most
    ]
    low, high = choices.extremes(function)
    every = torch.stack(values)
    assert torch.allclose(low, every.amin(dim=0), rtol=0, atol=1e-12)
    assert torch.allclose(high, every.amax(dim=0), rtol=0, atol=1e-12)
    assert (choices.magnitude(function) >= every.abs().amax(dim=0) - 1e-12).all()
    reached = max(float(torch.linalg.vector_norm(v[0, 0])) for v in values)
    assert float(choices.distance(function[0])) >= reached - 1e-12
    if most == 1:  # one at a time reaches less than all
        assert (high < Choices.of(centre, moves).extremes(function)[1]).any()


def least(model, ids, label, most):
    """The least margin of all texts with at most so many words replaced, and how many those are."""
    choices = [[i, *OTHERS.get(k, [])] for k, i in enumerate(ids)]
    rows = [r for r in itertools.product(*choices) if sum(a != b for a, b in zip(r, ids, strict=True)) <= most]
    return min(margin(model, model.embed(torch.tensor([row])), label) for row in rows), len(rows)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("few", [0, 2_000])
def test_a_verdict_agrees_with_every_combination(model, monkeypatch, most, few):
    monkeypatch.setattr(verdict, "MOST_AFTER", few)
    if not few:  # by bounds alone: words must be close to each other
        with torch.no_grad():
            for table in model.embed.parameters():
                table.copy_(table.mean(dim=0) + 0.1 * (table - table.mean(dim=0)))
    words = {i: [VOCABULARY[t] for t in others] for i, others in OTHERS.items()}
    statuses = set()
    for change in range(3):
        ids = [*IDS[:4], 4 + change, *IDS[5:]]
        result = cf.certify(model, ids, substitutions=words, replaced=most)
        exact, count = least(model, ids, result.label, most)
        statuses.add(result.status)
        assert result.replaced == most
        if result.status == "certified":
            assert 0 < result.margin <= exact + 1e-9
        if result.status == "refuted":
            assert exact <= 0
            replaced = sum(a != VOCABULARY[b] for a, b in zip(result.counterexample.words, ids, strict=True))
            assert replaced <= most
        if few and exact > 1e-6:
            assert result.status == "certified"
        assert count == verdict.candidates(*prepared_of(model, ids, words), most).count
    assert "certified" in statuses


def prepared_of(model, ids, words):
    from certiformer.options import Options
    from certiformer.questions.inputs import prepare_exactly
    from certiformer.questions.workspace import Workspace

    return prepare_exactly(Workspace(model), ids, None, Options()), words


def test_wrong_calls_are_one_line(model):
    words = {1: ["e"]}
    for change, message in (
        ({"replaced": 0}, "replaced=0"),
        ({"replaced": 1, "certificate": "x.cert"}, "has no a proof|has no"),
        ({"substitutions": {0: ["e"]}}, "position of a word"),
        ({"substitutions": {1: "e"}}, "expected a list"),
    ):
        with pytest.raises(InputError, match=message):
            cf.certify(model, IDS, **{"substitutions": words, **change})
    with pytest.raises(InputError, match="needs substitutions"):
        cf.certify(model, IDS, eps=0.1, replaced=1)


WORDS = ("good", "fine", "bad", "film", "movie", "a", "the")
TEXTS = [
    {"label": 0, "words": ["a", "good", "film"], "candidates": [[], ["good", "fine", "bad"], ["film", "movie", "zzz"]]},
    {"label": 1, "words": ["a", "good", "film"], "candidates": [[], ["good", "fine", "bad"], ["film", "movie", "zzz"]]},
    {
        "label": 1,
        "words": ["The", "bad", "movie"],
        "candidates": [["the"], ["bad", "good"], ["movie", "film", "movie"]],
    },
    {"label": 0, "words": ["the", "the"], "candidates": [[], []]},
    {"label": 0, "words": ["bad"] * 40, "candidates": [[]] * 40},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "m", WORDS)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "candidates.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TEXTS).encode()))
    return path


def test_the_accuracy_of_a_file_is_that_of_every_combination(folder, file):
    found = synonyms(folder, file, budgets=[2, 1])
    model = cf.load(folder)

    def answers(words):
        ids = [2, *model.tokenizer.word_ids(words), 3]
        return int(model.module(model.embed(torch.tensor([ids]))).argmax())

    for text, record in zip(TEXTS[:4], found.records, strict=False):
        choices = [[w, *c[1:]] for w, c in zip(text["words"], text["candidates"], strict=True)]
        for k, budget in enumerate(found.budgets):
            rows = [
                row
                for row in itertools.product(*choices)
                if sum(a != b for a, b in zip(row, text["words"], strict=True)) <= budget
            ]
            holds = all(answers(row) == text["label"] for row in rows)
            assert record["certified"][k] == holds  # so few combinations are all tried
            assert not (record["refuted"][k] and holds)
    assert found.records[0]["unknown"] == 1
    assert found.records[0]["substitutes"] == 4
    assert found.records[4]["certified"] == (False, False)
    assert found.records[4]["reason"] is not None  # longer than the model takes
    assert {r["right"] for r in found.records} == {True, False}
    assert any(found.records[i]["certified"][0] for i in range(4))
    assert found.clean == sum(r["right"] for r in found.records) / 5
    assert found.certified(2) <= found.certified(1) <= found.clean


def test_what_is_finished_is_kept(folder, file, tmp_path, monkeypatch):
    first = synonyms(folder, file, budgets=[1, 2], out=tmp_path / "out", texts=2)
    calls = []
    from certiformer.sweep import synonyms as module

    real = module.replaced
    monkeypatch.setattr(module, "replaced", lambda *given: calls.append(given[1]) or real(*given))
    whole = synonyms(folder, file, budgets=[1, 2], out=tmp_path / "out")
    assert len(calls) == 3
    assert whole.records[0]["certified"] == list(first.records[0]["certified"])
    assert len(synonyms(folder, file, budgets=[1], out=tmp_path / "out").records) == 5  # other budgets: asked again
    assert len(calls) == 8
    assert (tmp_path / "out" / "synonyms.csv").read_text().splitlines()[0] == "budget,certified,attacked"


def test_on_the_command_line(folder, file, tmp_path, capsys):
    code, out, err = run(capsys, "synonyms", file, "--model", folder, "--budgets", "1,2", "--out", tmp_path / "o")
    assert code == 0, err
    few, first, err = run(capsys, "synonyms", file, "--model", folder, "--texts", "2")
    assert few == 0, err
    assert "2 texts;" in first
    assert "at most 2" in out
    assert "unknown words" in out
    bad = tmp_path / "bad.json"
    bad.write_text('[{"label": 0, "words": ["a"], "candidates": []}]')
    for given, said in (
        ((file, "--budgets", "x"), "whole numbers"),
        ((file, "--budgets", "0"), "budget=0"),
        ((tmp_path / "none.json",), "cannot be read"),
        ((bad,), "text 1: expected"),
    ):
        code, _, err = run(capsys, "synonyms", *given, "--model", folder)
        assert code != 0
        assert said in err
    bad.write_text("{}")
    with pytest.raises(InputError, match="expected a list"):
        read_texts(bad)


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        ("the film will move you", {2: ["gonna", "would"], 3: ["bore", "wanna"]}),
        ("it will be dull and bad", {1: ["gonna"], 3: ["fine", "gimme"], 5: ["great"]}),
        ("a great film", {1: ["cannot"], 2: ["movie"]}),
    ],
)
def test_substitutes_in_several_tokens_are_put_into_the_text(words, candidates):
    """Against every combination, read by the model itself."""
    certifier = cf.Certifier("sst-1", method="backward-forward")
    text = words.split()
    others = [tuple(candidates.get(i, ())) for i in range(len(text))]
    label = certifier.model.predict(words).label
    found = replaced(certifier.workspace, text, others, label, [1, 2, 3], certifier.options)
    assert found.reason is None
    for k, budget in enumerate((1, 2, 3)):
        answers = {
            certifier.model.predict(" ".join(chosen)).label
            for chosen in itertools.product(*([w, *o] for w, o in zip(text, others, strict=True)))
            if sum(a != b for a, b in zip(chosen, text, strict=True)) <= budget
        }
        assert found.certified[k] == (answers == {label})
        assert found.refuted[k] == (answers != {label})


def test_too_many_substitutes_in_several_tokens_are_named(monkeypatch):
    monkeypatch.setattr(budgets, "MOST_LONGER", 0)
    certifier = cf.Certifier("sst-1", method="backward-forward")
    found = replaced(
        certifier.workspace, ["a", "great", "film"], [(), ("gonna",), ("movie",)], 1, [1], certifier.options
    )
    assert found.certified == (False,)
    assert found.reason == "not one token to the model: gonna"


def test_a_text_is_proved_as_it_is_too(monkeypatch):
    """With a substitute in several tokens the text that has it is a point of its own, not only a forward pass."""
    asked = []

    def refusing(workspace, text, question, options):
        asked.append((text, question.eps))
        return SimpleNamespace(status="unknown", reason="refused here")

    monkeypatch.setattr(budgets, "certify", refusing)
    certifier = cf.Certifier("sst-1", method="backward-forward")
    found = replaced(certifier.workspace, ["a", "great", "film"], [(), ("gonna",), ()], 1, [1], certifier.options)
    assert found.certified == (False,)
    assert ("a gonna film", 0.0) in asked
    assert ("a great film", 0.0) in asked


@pytest.mark.parametrize("tied", [False, True])
def test_substitutes_with_the_embedding_of_the_word_are_not_bounded(tmp_path, monkeypatch, tied):
    path = tiny_folder(tmp_path / "m", WORDS)
    rows = load_file(path / "model.safetensors")
    table, number = rows["bert.embeddings.word_embeddings.weight"], cf.load(path).vocabulary.index
    if tied:
        table[number("fine")] = table[number("good")]
        table[number("movie")] = table[number("film")]
        save_file(rows, path / "model.safetensors")
    certifier, asked = cf.Certifier(path), []
    real = budgets.certify

    def recorded(workspace, text, question, options):
        asked.append(question.substitutions)
        return real(workspace, text, question, options)

    monkeypatch.setattr(budgets, "certify", recorded)
    words, others = ["the", "good", "film"], [(), ("fine", "bad"), ("movie",)]
    label = certifier.model.predict("the good film").label
    found = replaced(certifier.workspace, words, others, label, [1, 2], certifier.options)
    texts = [" ".join(row) for row in itertools.product(["the"], ["good", "fine", "bad"], ["film", "movie"])]
    assert found.certified[1] == all(certifier.model.predict(text).label == label for text in texts)
    assert found.substitutes == 3
    assert found.certified[1]
    kept = [{i: list(w) for i, w in substitutions.items()} for substitutions in asked]
    assert kept == ([{2: ["bad"]}] if tied else [{2: ["fine", "bad"], 3: ["movie"]}])


@pytest.mark.parametrize("reader", [read_texts, lambda path: read_synonyms(str(path))])
def test_files_that_are_broken_are_one_line(tmp_path, reader):
    whole = gzip.compress(b"[" + b"1, " * 1000 + b"1]")
    for name, content in (
        ("cut.json.gz", whole[:40]),
        ("changed.json.gz", whole[:14] + bytes(b ^ 0xFF for b in whole[14:30]) + whole[30:]),
        ("none.json.gz", b"[]"),
        ("deep.json", b"[" * 100_000),
        ("bytes.json", b"\xff\xfe\x00"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            reader(tmp_path / name)

"""Words that share one embedding: which ones may, and that no answer depends on which of them is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import certiformer as cf
from certiformer.errors import InputError
from certiformer.models.tokenizer import SPECIAL_TOKENS
from certiformer.recipe import Recipe
from certiformer.training import build_vocabulary, train
from certiformer.training.batches import UNKNOWN, encode
from certiformer.training.substituting import choices, with_some_replaced, with_substitutes
from certiformer.training.tying import Tied, groups, word_values
from training.test_training import CONFIG, RECIPE

SYNONYMS = {"good": ["super"], "bad": ["awful"], "film": ["movie", "picture"]}
FIRST = len(SPECIAL_TOKENS)


def test_groups_follow_the_lists_and_never_spread_further_than_asked():
    z = torch.tensor([0.0] * FIRST + [0.0, 0.1, 0.2, 0.35, 0.0, 1.0])
    values = torch.stack([-z / 2, z / 2], dim=1)
    a, b, c, d, alone, far = range(FIRST, FIRST + 6)
    rows = {i: [i, i] for i in range(len(z))}
    rows |= {a: [a, b], b: [b, c], c: [c, d], far: [far, a], alone: [alone, UNKNOWN]}
    table = torch.tensor([rows[i] for i in range(len(z))])
    assert groups(values, table, 0.0).tolist() == list(range(len(z)))
    found = groups(values, table, 0.21)
    assert found[[a, b, c]].tolist() == [a, a, a]
    assert found[[d, alone, far]].tolist() == [d, alone, far]  # c is close to d, and a is not
    every = groups(values, table, 10.0)
    assert every[[a, b, c, d, far]].tolist() == [a] * 5
    assert every[[UNKNOWN, alone]].tolist() == [UNKNOWN, alone]  # no list leads from one to the other


def test_a_substitute_that_no_text_has_is_worth_what_its_words_are(data):
    words = with_substitutes(build_vocabulary(data.train, size=50), SYNONYMS)
    texts = encode(data.train, words, max_length=16, device=torch.device("cpu"))
    table = choices(words, SYNONYMS)
    state = torch.get_rng_state()
    values = word_values(texts, 2, table, seed=0)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(values, word_values(texts, 2, table, seed=0))
    assert torch.allclose(values.sum(1), torch.zeros(len(words)), atol=1e-6)
    positive = dict(zip(words, values[:, 1].tolist(), strict=True))
    assert positive["good"] > positive["bad"]
    assert positive["super"] > 0 > positive["awful"]
    assert abs(positive["movie"] - positive["film"]) < 0.1 * (positive["good"] - positive["bad"])


def test_tied_texts_have_one_word_of_each_group_and_tied_words_one_row(data):
    words = build_vocabulary(data.train, size=50)
    texts = encode(data.train, words, max_length=16, device=torch.device("cpu"))
    of = torch.arange(len(words))
    of[-1] = of[-2]
    parts, table = Tied(of).read({"train": texts}, torch.arange(len(words))[:, None])
    read = parts["train"]
    assert table is not None
    assert torch.equal(table[:, 0], of)
    assert len(words) - 1 in texts.ids
    assert len(words) - 1 not in read.ids
    assert torch.equal(read.ids, of[texts.ids.long()].int())


@pytest.mark.parametrize("norm", ["no_var", "standard"])
def test_what_is_tied_needs_no_other_training_to_stay(tmp_path, data, norm):
    path = tmp_path / "synonyms.json"
    path.write_text(json.dumps(SYNONYMS))
    recipe = replace(RECIPE, epochs=6, learning_rate=1e-2, synonyms=str(path), synonyms_weight=0.0, synonyms_shown=0.2)
    config = replace(CONFIG, layer_norm=norm, num_hidden_layers=2)
    stay = []
    for within in (0.0, 0.1):
        done = train(config, data, tmp_path / str(within), recipe=replace(recipe, synonyms_tied=within), device="cpu")
        model = cf.load(done.folder)
        rows = load_file(done.folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
        number = {word: i for i, word in enumerate(model.vocabulary)}
        stay.append(torch.equal(rows[number["film"]], rows[number["movie"]]))
        result = cf.certify(model, "the film was good", substitutions={"film": ["movie", "picture"]}, replaced=1)
        if within:
            assert result.status == "certified"
            assert done.dev_accuracy > 0.9
    assert stay == [False, True]


def test_shown_substitutes_are_of_the_word_and_in_the_place_of_words_only():
    table = torch.tensor([[i, i + 10, i + 20] for i in range(10)])
    ids = torch.arange(10).repeat(50, 1)
    words = ids >= 4
    torch.manual_seed(0)
    shown = with_some_replaced(ids, words, table, 0.5)
    assert torch.equal(shown % 10, ids)
    assert torch.equal(shown[~words], ids[~words])
    share = float((shown != ids)[words].float().mean())
    assert 0.2 < share < 0.45  # a third of the draws are the word itself
    assert torch.equal(with_some_replaced(ids, words, table, 0.0), ids)


def test_settings_that_ask_for_nothing_are_one_line():
    with pytest.raises(InputError, match="expected a file of synonyms"):
        Recipe(synonyms_tied=0.1)
    with pytest.raises(InputError, match="expected a file of synonyms"):
        Recipe(synonyms_shown=0.1)
    with pytest.raises(InputError, match="nothing is trained for synonyms"):
        Recipe(synonyms="a.json", synonyms_weight=0.0)
    with pytest.raises(InputError, match="synonyms_tied=-1"):
        Recipe(synonyms="a.json", synonyms_tied=-1)
    with pytest.raises(InputError, match="synonyms_shown=1"):
        Recipe(synonyms="a.json", synonyms_shown=1.0)

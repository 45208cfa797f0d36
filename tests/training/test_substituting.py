"""Training for replaced words: what intervals prove over all substitutes, and that training makes answers stay."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import certiformer as cf
from calling import run
from certiformer.data import Dataset
from certiformer.errors import InputError
from certiformer.models.network import build
from certiformer.recipe import Recipe
from certiformer.training import CertifiedMargin, train
from certiformer.training.substituting import choices, reach, read_synonyms, with_substitutes
from training.test_training import CONFIG, RECIPE

SYNONYMS = {"good": ["super"], "bad": ["awful"], "film": ["movie", "picture"], "absent": ["away"]}
RECIPES = replace(RECIPE, epochs=8, learning_rate=1e-2)


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "synonyms.json"
    path.write_text(json.dumps(SYNONYMS))
    return str(path)


def test_a_vocabulary_gets_the_substitutes_of_its_words_and_a_table_of_them():
    words = with_substitutes(["[PAD]", "[UNK]", "good", "film", "movie"], SYNONYMS)
    assert words == ("[PAD]", "[UNK]", "good", "film", "movie", "super", "picture")
    table = choices(words, SYNONYMS)
    assert table[2].tolist() == [2, 5, 2]
    assert table[3].tolist() == [3, 4, 6]
    assert table[0].tolist() == [0, 0, 0]
    assert choices(words[:5], SYNONYMS)[2].tolist() == [2, 1, 2]  # what is not known is read as unknown
    with pytest.raises(InputError, match="no word"):
        choices(["a"], SYNONYMS)
    assert [reach(s) for s in (0.0, 0.05, 0.225, 0.4, 1.0)] == [0, 0, pytest.approx(0.5), 1, 1]


@pytest.mark.parametrize("method", ["ibp", "backward-forward"])
@pytest.mark.parametrize("norm", ["no_var", "standard"])
def test_the_margin_over_substitutes_is_below_that_of_every_combination(method, norm):
    torch.manual_seed(0)
    embed, module = (half.double() for half in build(replace(CONFIG, layer_norm=norm)))
    ids = torch.randint(4, 50, (2, 4))
    e = embed.word_embeddings(torch.randint(4, 50, (2, 4, 3)))
    moves = 0.2 * (e - embed.word_embeddings(ids)[:, :, None])
    moves[:, :, 0] = 0
    moves[:, 0] = 0
    found = CertifiedMargin(module, method=method).over(embed(ids), [0, 1], moves)
    assert torch.isfinite(found).all()
    least = torch.full((2,), torch.inf, dtype=torch.float64)
    for which in itertools.product(range(3), repeat=3):
        x = embed(ids) + torch.stack([moves[:, 0, 0], *(moves[:, i + 1, c] for i, c in enumerate(which))], dim=1)
        logits = module.eval()(x)
        least = torch.minimum(least, torch.stack([logits[0, 0] - logits[0, 1], logits[1, 1] - logits[1, 0]]))
    assert (found <= least).all()
    assert (found > least - 1).all()
    gradients = torch.autograd.grad(
        found.sum(), [*module.parameters(), embed.word_embeddings.weight], allow_unused=True
    )
    assert all(g is None or bool(torch.isfinite(g).all()) for g in gradients)
    with pytest.raises(InputError, match="the word itself"):
        CertifiedMargin(module).over(embed(ids), [0, 1], moves + 1)
    with pytest.raises(InputError, match="moves of shape"):
        CertifiedMargin(module).over(embed(ids), [0, 1], moves[0])


def test_answers_stay_when_words_are_replaced_by_what_was_never_seen(tmp_path, data, file):
    stay = []
    for given in (None, file):
        recipe = replace(RECIPES, synonyms=given, weight_decay=0.0)
        vocabulary = None if given else with_substitutes(train_words(data), SYNONYMS)
        done = train(CONFIG, data, tmp_path / str(len(stay)), recipe=recipe, device="cpu", vocabulary=vocabulary)
        assert done.dev_accuracy > 0.9
        model = cf.load(done.folder)
        assert {"super", "awful"} <= set(model.vocabulary)
        asked = [("the film was good", 1), ("it was a bad film", 0), ("so good and good", 1), ("bad", 0)]
        results = [cf.certify(model, text, substitutions=SYNONYMS, label=label).status for text, label in asked]
        stay.append(results.count("certified"))
    assert stay[1] == 4
    assert stay[0] < 4
    assert str(tmp_path) not in (done.folder / "README.md").read_text()


def train_words(data: Dataset) -> tuple[str, ...]:
    from certiformer.training import build_vocabulary

    return build_vocabulary(data.train, size=50)


def test_a_killed_training_goes_on_and_other_substitutes_are_another_training(tmp_path, data, file):
    recipe = replace(RECIPE, synonyms=file, epochs=2)

    def kill(progress):
        if progress.evaluated and progress.step > progress.steps / 2:
            raise KeyboardInterrupt

    train(CONFIG, data, tmp_path / "whole", recipe=recipe, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu", progress=kill)
    other = json.dumps({**SYNONYMS, "was": ["is"]})
    kept = (tmp_path / "synonyms.json").read_text()
    (tmp_path / "synonyms.json").write_text(other)
    with pytest.raises(InputError, match="other settings"):
        train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu")
    (tmp_path / "synonyms.json").write_text(kept)
    train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_wrong_files_and_weights_are_one_line(tmp_path, capsys):
    with pytest.raises(InputError, match="cannot be read"):
        read_synonyms(str(tmp_path / "none.json"))
    (tmp_path / "wrong.json").write_text('{"a": "b"}')
    with pytest.raises(InputError, match="lists of words"):
        read_synonyms(str(tmp_path / "wrong.json"))
    with pytest.raises(InputError, match="synonyms_weight=2"):
        Recipe(synonyms_weight=2.0)
    (tmp_path / "train.tsv").write_text("label\ttext\n1\tgood film\n0\tbad film\n")
    (tmp_path / "dev.tsv").write_text("label\ttext\n1\tgood film\n0\tbad film\n")
    given = ["--data", tmp_path, "--out", tmp_path / "m", "--hidden", "8", "--heads", "2"]
    code, _, err = run(capsys, "train", *given, "--synonyms", tmp_path / "none.json")
    assert code != 0
    assert "cannot be read" in err

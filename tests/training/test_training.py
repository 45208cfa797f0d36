"""Training: it learns, it is reproducible, it continues after a kill, and it says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from certiformer._version import __version__
from certiformer.data import Example, load_data
from certiformer.errors import InputError
from certiformer.models import Config, load
from certiformer.recipe import with_epochs
from certiformer.training import Recipe, accuracy, build_vocabulary, checkpoint, encode, evaluate, pick_device, train
from certiformer.training.averaging import Average
from certiformer.training.batches import epoch_order
from conftest import DATA, needs_data

CONFIG = Config(1, 50, hidden_size=16, intermediate_size=16, num_attention_heads=2, dropout=0.1)
RECIPE = Recipe(epochs=3, batch_size=16, learning_rate=5e-3, weight_decay=0.01, word_dropout=0.0, score_penalty=0.0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, data):
    """The folder of a training with the recipe as it stands."""
    return train(CONFIG, data, tmp_path_factory.mktemp("plain") / "a", recipe=RECIPE, device="cpu").folder


@pytest.mark.parametrize("norm", ["no_var", "standard", "none"])
def test_learns_the_telling_words(tmp_path, data, norm):
    seen = []
    config = replace(CONFIG, layer_norm=norm)
    recipe = replace(RECIPE, epochs=8, learning_rate=1e-2)
    trained = train(config, data, tmp_path / "m", recipe=recipe, device="cpu", progress=seen.append)
    assert trained.dev_accuracy > 0.95
    assert seen[-1].step == seen[-1].steps == 8 * 13
    assert sum(p.evaluated for p in seen) == 16
    model = load(tmp_path / "m")
    assert evaluate(model, data.test, device="cpu") == trained.test_accuracy
    assert model.facts["test_accuracy"] == round(trained.test_accuracy, 4)
    assert not (tmp_path / "m" / checkpoint.FILE).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"score_penalty": 0.1},
        {"embedding_noise": 0.1},
        {"adversarial": 0.1},
        {"word_dropout": 0.2},
        {"label_smoothing": 0.1},
        {"precision": "bfloat16"},
        {"weight_decay": 1.0},
        {"averaging": 0.0},
    ],
)
def test_every_option_of_the_recipe_changes_the_outcome(tmp_path, data, plain, change):
    train(CONFIG, data, tmp_path / "b", recipe=replace(RECIPE, **change), device="cpu")
    a, b = (load_file(folder / "model.safetensors") for folder in (plain, tmp_path / "b"))
    assert any(not torch.equal(a[k], b[k]) for k in a)
    assert all(torch.isfinite(v).all() for v in b.values())


def test_adversarial_training_learns_though_its_step_is_longer_than_fresh_embeddings(tmp_path, data):
    recipe = replace(RECIPE, epochs=16, learning_rate=1e-2, adversarial=0.2)  # fresh ones are about 0.08 long
    trained = train(CONFIG, data, tmp_path / "m", recipe=recipe, device="cpu")
    assert trained.dev_accuracy > 0.95
    assert trained.dev_accuracy == max(dev for _, dev in trained.history[15:])  # the growing half ends at the 16th


def test_a_score_penalty_makes_scores_smaller(tmp_path, data):
    sizes = []
    for penalty in (0.0, 1.0):
        recipe = replace(RECIPE, epochs=8, learning_rate=1e-2, score_penalty=penalty)
        model = load(train(CONFIG, data, tmp_path / str(penalty), recipe=recipe, device="cpu").folder)
        scores: list[torch.Tensor] = []
        for example in data.dev:
            ids = torch.tensor([[2, *model.tokenizer.word_ids(example.words), 3]])
            model.module(model.embed(ids), None, scores)
        sizes.append(max(float(s.abs().max()) for s in scores))
    assert sizes[1] < 0.5 * sizes[0]


def test_same_seed_same_weights_and_the_callers_randomness_is_left_alone(tmp_path, data):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for name in "ab":
        train(CONFIG, data, tmp_path / name, recipe=RECIPE, device="cpu")
    assert torch.equal(torch.rand(3), expected)
    train(CONFIG, data, tmp_path / "c", recipe=replace(RECIPE, seed=1), device="cpu")
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert any(not torch.equal(a[k], c[k]) for k in a)


class Killed(Exception):
    pass


@pytest.mark.parametrize("evaluation", [1, 3])
@pytest.mark.parametrize("later", [False, True])
def test_a_killed_training_continues_to_the_same_weights(tmp_path, data, evaluation, later):
    """Killed right after an evaluation, or some steps into the next stretch, whose work is then done again."""
    recipe = replace(RECIPE, batch_size=4, word_dropout=0.1, averaging=0.9)
    whole = train(CONFIG, data, tmp_path / "whole", recipe=recipe, device="cpu")
    count = 0

    def kill(progress):
        nonlocal count
        count += progress.evaluated
        if count == evaluation and progress.evaluated is not later:
            raise Killed

    with pytest.raises(Killed):
        train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu", progress=kill)
    assert (tmp_path / "killed" / checkpoint.FILE).exists()
    assert not (tmp_path / "killed" / "config.json").exists()
    seen = []
    resumed = train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu", progress=seen.append)
    assert seen[0].resumed
    assert seen[0].step > 0
    assert sum(p.evaluated for p in seen) == 6 - evaluation
    assert resumed.history == whole.history
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_an_average_follows_the_weights_and_gives_them_back():
    weights = [torch.zeros(2), torch.ones(3, 3)]
    average, expected = Average(weights, 0.5), 0.0
    for step in range(1, 31):
        weights[0].fill_(step)
        average.follow()
        decay = min(0.5, step / (step + 10))
        expected = decay * expected + (1 - decay) * step
    with average.shown():
        assert torch.allclose(weights[0], torch.full((2,), expected))
        assert torch.equal(weights[1], torch.ones(3, 3))
    assert torch.equal(weights[0], torch.full((2,), 30.0))
    later = Average([torch.zeros(2), torch.zeros(3, 3)], 0.5)
    later.restore(average.to_tensors(), 30)
    assert all(map(torch.equal, later.mean, average.mean))


def test_without_averaging_the_weights_themselves_are_shown():
    weight = torch.ones(2)
    average = Average([weight], 0.0)
    weight.fill_(3.0)
    average.follow()
    with average.shown():
        assert torch.equal(weight, torch.full((2,), 3.0))


def test_the_best_weights_are_kept_not_the_last(tmp_path, data):
    trained = train(CONFIG, data, tmp_path / "m", recipe=replace(RECIPE, epochs=6, learning_rate=0.05), device="cpu")
    assert trained.dev_accuracy == max(accuracy for _, accuracy in trained.history)


def interrupted(tmp_path, data, recipe=RECIPE):
    def kill(progress):
        raise Killed

    with pytest.raises(Killed):
        train(CONFIG, data, tmp_path, recipe=replace(recipe), device="cpu", progress=kill)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, data):
    interrupted(tmp_path, data)
    with pytest.raises(InputError, match="other settings"):
        train(CONFIG, data, tmp_path, recipe=replace(RECIPE, learning_rate=1e-4), device="cpu")
    with pytest.raises(InputError, match="other settings"):
        train(CONFIG, replace(data, train=data.train[1:]), tmp_path, recipe=RECIPE, device="cpu")


def test_a_broken_checkpoint_is_refused(tmp_path, data):
    interrupted(tmp_path, data)
    path = tmp_path / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="not a training checkpoint"):
        train(CONFIG, data, tmp_path, recipe=RECIPE, device="cpu")


def test_a_finished_folder_is_not_overwritten(tmp_path, data):
    train(CONFIG, data, tmp_path / "m", recipe=replace(RECIPE, epochs=1), device="cpu")
    with pytest.raises(InputError, match="already holds a model"):
        train(CONFIG, data, tmp_path / "m", recipe=RECIPE, device="cpu")


def test_divergence_and_missing_parts_are_errors(tmp_path, data):
    with pytest.raises(InputError, match=r"needs a train and a dev part.*found 0 train"):
        train(CONFIG, replace(data, train=()), tmp_path / "a", recipe=RECIPE, device="cpu")
    with pytest.raises(InputError, match="diverged"):
        train(CONFIG, data, tmp_path / "b", recipe=replace(RECIPE, learning_rate=1e30, clip=1e30), device="cpu")


@pytest.mark.parametrize("change", [{"epochs": -1}, {"learning_rate": -1.0}, {"warmup": 1.0}, {"weight_decay": -1.0}])
def test_impossible_recipes_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        Recipe(**change)


def test_devices():
    assert pick_device("cpu").type == "cpu"
    with pytest.raises(InputError, match="device='toaster'"):
        pick_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            pick_device("cuda")


def test_vocabulary_is_by_frequency_and_then_by_letter():
    examples = [Example(0, ("b", "a", "c", "c", "[PAD]"))]
    assert build_vocabulary(examples, size=6) == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "c", "a")


def test_long_texts_are_cut_and_still_end_with_sep():
    encoded = encode(
        [Example(1, ("a",) * 9)], ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"), max_length=5, device=torch.device("cpu")
    )
    assert encoded.ids.tolist() == [[2, 4, 4, 4, 3]]


def test_an_epoch_visits_everything_once_in_batches_of_similar_length():
    lengths = torch.randint(3, 60, (1000,), generator=torch.Generator().manual_seed(0))
    order = epoch_order(lengths, batch_size=16, generator=torch.Generator().manual_seed(1))
    assert sorted(torch.cat(order).tolist()) == list(range(1000))
    spread = sum(float(lengths[b].max() - lengths[b].min()) for b in order) / len(order)
    assert spread < 5
    again = epoch_order(lengths, batch_size=16, generator=torch.Generator().manual_seed(2))
    assert [b.tolist() for b in order] != [b.tolist() for b in again]


def test_accuracy_does_not_depend_on_the_batch_and_restores_the_mode(tmp_path, data):
    folder = train(CONFIG, data, tmp_path / "m", recipe=RECIPE, device="cpu").folder
    model = load(folder)
    model.module.train()
    encoded = encode(data.dev, model.vocabulary, max_length=128, device=torch.device("cpu"))
    assert accuracy(model.embed, model.module, encoded, batch_size=1) == accuracy(model.embed, model.module, encoded)
    assert model.module.training


def test_evaluate_refuses_labels_the_model_does_not_have(tmp_path, data):
    folder = train(CONFIG, data, tmp_path / "m", recipe=replace(RECIPE, epochs=1), device="cpu").folder
    with pytest.raises(InputError, match="2 labels, the data has label 2"):
        evaluate(load(folder), [Example(2, ("a",))], device="cpu")


def test_the_card_says_what_was_done(tmp_path, data):
    source = ("--data", "the data")
    folder = train(CONFIG, data, tmp_path / "m", recipe=RECIPE, device="cpu", stored_as="float16", source=source).folder
    card = (folder / "README.md").read_text()
    for word in (
        "made-up",
        "certiformer train --data 'the data' --out m --layers",
        "float16",
        "200",
        "| seed | 0 |",
        f"certiformer {__version__}",
    ):
        assert word in card
    facts = load(folder).facts
    assert f"{facts['dev_accuracy']:.2%}" in card


@pytest.mark.slow
@needs_data
def test_a_tiny_sst_model_reaches_75_percent(tmp_path):
    data = load_data("sst", data_dir=DATA)
    config = Config(1, 5000, hidden_size=64, intermediate_size=128)
    recipe = Recipe(epochs=2, learning_rate=1e-3, weight_decay=0.01, word_dropout=0.0)
    trained = train(config, data, tmp_path / "m", recipe=recipe, device="cpu", stored_as="float16")
    print(f"dev {trained.dev_accuracy:.4f}, test {trained.test_accuracy:.4f} in {trained.seconds:.0f} s")
    assert trained.dev_accuracy > 0.75
    assert trained.seconds < 240


@pytest.mark.parametrize(
    ("change", "texts", "epochs"),
    [({}, 67_349, 2), ({"certify": 0.1}, 67_349, 4), ({}, 4_000, 32), ({}, 100, 50), ({"epochs": 7}, 67_349, 7)],
)
def test_how_often_the_texts_are_seen_goes_by_how_many_they_are(change, texts, epochs):
    assert with_epochs(Recipe(**change), texts).epochs == epochs

"""Embeddings without a part that all words share: what a step takes away, and what a training with it ends with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import certiformer as cf
from certiformer.errors import InputError
from certiformer.models.network import build
from certiformer.training import Recipe, train
from certiformer.training.batches import Batch
from certiformer.training.centring import centre
from training.test_training import CONFIG, RECIPE


def batch_of(ids, words):
    return Batch(ids, torch.ones_like(words), words, torch.zeros(len(ids), dtype=torch.long))


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_share_of_the_mean_at_each_place_goes_and_differences_stay(share):
    torch.manual_seed(0)
    embed, _ = build(CONFIG)
    ids, words = torch.randint(4, 50, (3, 5)), torch.tensor([[False, True, True, True, False]] * 3)
    before = embed(ids).detach()
    centre(embed, batch_of(ids, words), share)
    mean = before.mean(dim=0) * words[0, :, None]  # nothing where no words are
    torch.testing.assert_close(embed(ids).detach(), before - share * mean)


def test_a_place_that_few_texts_have_moves_less_and_without_words_nothing_does():
    embed, _ = build(CONFIG)
    before = embed.position_embeddings.weight.detach().clone()
    ids = torch.randint(4, 50, (4, 3))
    centre(embed, batch_of(ids, torch.zeros_like(ids, dtype=torch.bool)), 0.5)
    assert torch.equal(embed.position_embeddings.weight, before)
    words = torch.zeros_like(ids, dtype=torch.bool)
    words[0, 2] = True
    moved = embed(ids)[0, 2].detach() / 4
    centre(embed, batch_of(ids, words), 0.5)
    torch.testing.assert_close(before[2] - embed.position_embeddings.weight.detach()[2], 0.5 * moved)
    assert torch.equal(embed.position_embeddings.weight[:2], before[:2])


def test_the_penalty_lets_embeddings_share_much_and_centring_little(tmp_path, data):
    shared = {}
    for centring in (0.0, 0.2):
        recipe = replace(RECIPE, epochs=9, learning_rate=1e-2, certify=0.1, centring=centring)
        trained = train(replace(CONFIG, layer_norm="standard"), data, tmp_path / str(centring), recipe=recipe)
        assert trained.dev_accuracy > 0.9
        model = cf.load(trained.folder)
        ids = [torch.tensor([model.tokenizer.encode(example.written).ids]) for example in data.test]
        words = torch.cat([model.embed(row)[0, 1:-1] for row in ids])  # [words, d]
        shared[centring] = float(words.mean(dim=0).square().sum() / words.square().sum(dim=1).mean())
    assert shared[0.2] < 0.5 * shared[0.0]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(InputError, match="centring"):
        Recipe(certify=0.1, centring=share)

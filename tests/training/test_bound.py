"""The certified margin as a loss: what the engine proves, with the right gradients, and larger after training."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

import certiformer as cf
from certiformer.errors import InputError
from certiformer.models.network import build
from certiformer.training import CertifiedMargin, Recipe, train
from certiformer.training.batches import Batch
from certiformer.training.bound import of_short_texts
from training.test_training import CONFIG, RECIPE

D = 8


class Exported(nn.Module):
    """What torch.export must capture: attention and an RMSNorm by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(D, 2, batch_first=True)
        self.out = nn.Linear(D, 3)

    def forward(self, x):
        y = x + self.heads(x, x, x, need_weights=False)[0]
        return self.out(torch.tanh(y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5))[:, 0])


def halves(kind: str):
    torch.manual_seed(0)
    if kind == "exported":
        return nn.Embedding(50, D).double(), Exported().double()
    embed, classifier = build(replace(CONFIG, layer_norm=kind))
    for p in classifier.parameters():
        if p.dim() > 1:
            p.data.mul_(6)
    return embed.double(), classifier.double()


@pytest.mark.parametrize(
    ("kind", "norm"), [("no_var", 1), ("no_var", "inf"), ("standard", 2), ("standard", "inf"), ("exported", 2)]
)
def test_it_is_what_the_engine_proves_and_its_gradients_are_right(kind, norm):
    embed, module = halves(kind)
    ids, labels, radius = torch.randint(4, 50, (2, 5)), torch.tensor([0, 1]), 0.003
    margin = CertifiedMargin(module, norm=norm)

    def proved():
        return margin(embed(ids), labels, torch.tensor([[1, 2], [3, 3]]), radius)

    found = proved()
    assert torch.isfinite(found).all()
    for k, where in enumerate([(1, 2), (3,)]):
        x = embed(ids[k : k + 1]).detach()
        bounds = cf.bounds(
            module, x, eps=radius, norm=norm, positions=[where], label=int(labels[k]), method="backward-forward"
        )
        assert float(found[k].detach()) == pytest.approx(float(bounds.lower.min()), rel=1e-6, abs=1e-9)
    weights = [*module.parameters(), *embed.parameters()]
    gradients = torch.autograd.grad(found.sum(), weights, allow_unused=True)
    steps = [torch.randn_like(w) for w in weights]
    along = sum(float((g * s).sum()) for g, s in zip(gradients, steps, strict=True) if g is not None)
    assert along == pytest.approx(slope(proved, weights, steps), rel=1e-3, abs=1e-5)


def slope(value, weights, steps, small=1e-6):
    """How fast a value changes when all weights are changed along some steps."""
    found = []
    for length in (small, -2 * small, small):
        with torch.no_grad():
            for weight, step in zip(weights, steps, strict=True):
                weight.add_(step, alpha=length)
            found.append(float(value().sum()) if length != small or not found else 0.0)
    return (found[0] - found[1]) / (2 * small)


def test_a_change_of_the_weights_is_seen_and_modes_are_put_back():
    embed, module = halves("standard")
    module.train()
    margin, x, place = CertifiedMargin(module), embed(torch.randint(4, 50, (1, 4))), torch.tensor([1])
    before = float(margin(x, [0], place, 0.0).detach())
    with torch.no_grad():
        module.classifier.bias.add_(torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert float(margin(x, [0], place, 0.0).detach()) == pytest.approx(before + 1)
    assert all(part.training for part in module.modules())


def test_texts_that_are_too_long_are_left_out_and_one_length_is_taken():
    embed, module = halves("no_var")
    margin = CertifiedMargin(module)
    ids = torch.randint(4, 50, (4, 9))
    mask = torch.arange(9)[None] < torch.tensor([4, 9, 4, 9])[:, None]
    words = mask & (torch.arange(9) > 0)
    batch = Batch(ids, mask, words, torch.tensor([0, 1, 1, 0]))
    found = of_short_texts(margin, embed(ids), batch, share=0.05, words=2)
    assert float(found.detach()) > 0
    assert of_short_texts(margin, embed(ids), batch, share=0.05, words=1) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": torch.zeros(3, D)}, "expected \\[batch, n, d\\]"),
        ({"positions": torch.tensor([9, 9])}, "positions of shape"),
        ({"radius": -1.0}, "radius=-1"),
        ({"radius": float("nan")}, "radius=nan"),
        ({"labels": [0]}, "1 labels for 2 texts"),
    ],
)
def test_wrong_calls_are_one_line(change, message):
    embed, module = halves("no_var")
    given = {
        "embeddings": embed(torch.ones(2, 4, dtype=torch.long)),
        "labels": [0, 1],
        "positions": torch.tensor([1, 1]),
    }
    with pytest.raises(InputError, match=message):
        CertifiedMargin(module)(**{**given, "radius": 0.1, **change})
    with pytest.raises(InputError, match="method='none'"):
        CertifiedMargin(module, method="none")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a module"):
        CertifiedMargin(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bound_words=0"):
        Recipe(bound_words=0)


def test_steps_along_its_gradient_prove_more():
    embed, module = halves("standard")
    ids, labels, places = torch.randint(4, 50, (4, 4)), [0, 1, 0, 1], torch.ones(4, 1, dtype=torch.long)
    margin = CertifiedMargin(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    proved = []
    for _ in range(6):
        found = margin(embed(ids), labels, places, 0.01).mean()
        proved.append(float(found.detach()))
        optimizer.zero_grad()
        (-found).backward()
        optimizer.step()
    assert proved[-1] > proved[0] + 0.5


def test_it_is_a_setting_of_training(tmp_path, data):
    folders = []
    for bound in (0.0, 1.0):
        recipe = replace(RECIPE, epochs=1, batch_size=64, bound=bound, bound_words=3)
        with pytest.raises(InputError, match="collapsed") if bound else nullcontext():  # one epoch teaches nothing
            train(CONFIG, data, tmp_path / str(bound), recipe=recipe, device="cpu")
        folders.append(tmp_path / str(bound))
    assert (folders[1] / "checkpoint.safetensors").exists()


@pytest.mark.slow
def test_training_with_it_proves_more(tmp_path, data):
    shares = []
    for bound in (0.0, 2.0):
        recipe = replace(RECIPE, epochs=8, learning_rate=1e-2, bound=bound, bound_radius=0.5, bound_words=5)
        trained = train(CONFIG, data, tmp_path / str(bound), recipe=recipe, device="cpu")
        assert trained.dev_accuracy > 0.9
        shares.append(sum(cf.radius(trained.folder, "the film was good", tolerance=0.05).normalized))
    assert shares[1] > 1.05 * shares[0]

"""The penalty for certificates: the movement of what bounds lose by, in its worst direction; and training with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import certiformer as cf
from certiformer.errors import InputError
from certiformer.models.network import Config, build
from certiformer.training import Recipe, movement, train
from certiformer.training.batches import Batch, some_words
from certiformer.training.rising import Rising
from certiformer.training.watching import Watch
from training.test_training import CONFIG, RECIPE

BATCH, N, D = 3, 5, 8


class Attention(nn.Module):
    """Scores by hand or by torch's own attention, then a LayerNorm."""

    def __init__(self, fused: bool = False, norm: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k = nn.Linear(D, D).double(), nn.Linear(D, D).double()
        self.norm = nn.LayerNorm(D).double() if norm else nn.Identity()
        self.fused = fused

    def forward(self, x):
        if self.fused:
            mixed = F.scaled_dot_product_attention(self.q(x)[:, None], self.k(x)[:, None], x[:, None])[:, 0]
        else:
            mixed = torch.softmax(self.q(x) @ self.k(x).mT / D**0.5, dim=-1) @ x
        return self.norm(x + mixed).mean(dim=1)  # the answer: D logits


def inputs():
    torch.manual_seed(1)
    return torch.randn(BATCH, N, D, dtype=torch.float64)


def by_hand(module: Attention, x, position, u, step=1e-4):
    """The sums of the definition, from the Jacobians along one direction: scores, LayerNorm, answer."""
    move = torch.zeros_like(x)
    move[:, position] = step * x[:, position].norm(dim=-1, keepdim=True) * u / u.norm(dim=-1, keepdim=True)

    def parts(x):
        s = module.q(x) @ module.k(x).mT / D**0.5
        z = x + torch.softmax(s, dim=-1) @ x
        return s, z - z.mean(dim=-1, keepdim=True), module.norm(z).mean(dim=1)

    (s0, z0, y0), (s1, z1, y1) = parts(x), parts(x + move)
    ds, dz, dy = s1 - s0, z1 - z0, y1 - y0
    scores = (ds - ds.mean(dim=-1, keepdim=True)).square().sum(dim=(1, 2))
    norms = (dz.square().sum(dim=-1) / z0.square().sum(dim=-1)).sum(dim=1)
    answer = 0.1 * (dy - dy.mean(dim=-1, keepdim=True)).square().sum(dim=1)
    return torch.stack([scores, norms, answer]) / step**2


@pytest.mark.parametrize("fused", [False, True])
def test_it_is_the_movement_in_the_worst_direction(fused):
    module, x = Attention(fused), inputs()
    places = torch.full((BATCH,), 2)
    torch.manual_seed(3)
    found = float(movement(module, x, positions=places, step=1e-4, power_steps=60).detach())
    directions = torch.randn(200, BATCH, D, dtype=torch.float64)
    tried = torch.stack([by_hand(module, x, 2, u).sum(dim=0) for u in directions]).amax(dim=0).mean()
    assert found >= 0.999 * float(tried.detach())  # no direction moves more
    best = []
    for b in range(BATCH):  # the movement is a quadratic form of the direction: its largest eigenvalue
        basis = torch.eye(D, dtype=torch.float64)
        row = x[b : b + 1]
        single = [float(by_hand(module, row, 2, e[None]).sum().detach()) for e in basis]
        pairs = [[float(by_hand(module, row, 2, (a + c)[None]).sum().detach()) for c in basis] for a in basis]
        form = torch.tensor(
            [[p if i == j else p - (single[i] + single[j]) / 2 for j, p in enumerate(ps)] for i, ps in enumerate(pairs)]
        )
        best.append(float(torch.linalg.eigvalsh(form)[-1]))
    assert found == pytest.approx(sum(best) / BATCH, rel=5e-3)


def test_with_logarithms_every_part_counts_by_its_own():
    """No less than in any direction that is tried, and no more than if every part had its worst one to itself."""
    module, x = Attention(), inputs()
    with torch.no_grad():
        module.q.weight.mul_(1000)  # scores outdo all else
        directions = torch.randn(500, BATCH, D, dtype=torch.float64)
        each = torch.stack([by_hand(module, x, 2, u, step=1e-6) for u in directions])  # [directions, parts, batch]
    most = each.amax(dim=0)  # [parts, batch]
    assert float((most[0] / most[1:].sum(dim=0)).min()) > 100
    torch.manual_seed(3)
    given = {"positions": torch.full((BATCH,), 2), "step": 1e-6, "power_steps": 60}
    found = movement(module, x, parts="logs", **given)
    assert float(each.log1p().sum(dim=1).amax(dim=0).mean()) * 0.999 <= found.item()
    assert found.item() <= 1.1 * float(most.log1p().sum(dim=0).mean())
    assert movement(module, x, **given).item() == pytest.approx(float(most.sum(dim=0).mean()), rel=0.5)
    weights, share = [module.norm.weight, module.q.weight], {}
    for parts in ("logs", "sum"):  # what it asks of the LayerNorm beside what it asks of the scores
        norm, scores = torch.autograd.grad(movement(module, x, parts=parts, **given), weights)
        share[parts] = float(norm.norm() / (scores * module.q.weight.detach()).norm())
    assert share["logs"] > 10 * share["sum"]


def test_more_power_steps_find_no_less():
    module, x = Attention(), inputs()
    found = []
    for steps in (0, 2, 8, 40):
        torch.manual_seed(3)
        places = torch.ones(BATCH, dtype=torch.long)
        found.append(movement(module, x, positions=places, power_steps=steps).item())
    assert found == sorted(found)


@pytest.mark.parametrize("norm", [1, 2, 3, "inf"])
def test_all_norms_one_and_several_words_and_gradients_of_the_weights(norm):
    embed, classifier = build(replace(CONFIG, layer_norm="standard"))
    ids = torch.randint(4, 50, (4, 6))
    for positions in (None, torch.tensor([1, 2, 1, 3]), torch.tensor([[1, 2]] * 4)):
        found = movement(classifier, embed(ids), torch.ones(4, 6, dtype=torch.bool), positions=positions, norm=norm)
        assert found.item() > 0
        gradients = torch.autograd.grad(found, [classifier.layers[0].query.weight, embed.word_embeddings.weight])
        assert all(bool(torch.isfinite(g).all()) and float(g.abs().sum()) > 0 for g in gradients)


def test_what_is_padded_does_not_count_and_dropout_is_off():
    embed, classifier = build(replace(CONFIG, layer_norm="standard", dropout=0.5))
    classifier.train()
    ids, place = torch.randint(4, 50, (2, 4)), torch.tensor([1, 1])
    longer = torch.cat([ids, torch.randint(4, 50, (2, 3))], dim=1)
    mask = torch.tensor([[True] * 4 + [False] * 3] * 2)
    found = []
    for given, real in ((ids, mask[:, :4]), (longer, mask)):
        torch.manual_seed(0)
        found.append(float(movement(classifier, embed(given), real, positions=place, power_steps=60).detach()))
    assert found[0] == pytest.approx(found[1], rel=1e-2)
    assert classifier.training
    assert all(part.training for part in classifier.modules())


def test_a_function_and_a_model_serve_too():
    model = cf.load("sst-1")
    x = model.embed(torch.tensor([[2, 40, 41, 3]]))
    place = torch.tensor([1])
    torch.manual_seed(0)
    a = movement(model, x, positions=place, power_steps=30)
    torch.manual_seed(0)
    b = movement(lambda e: model.module(e), x, positions=place, power_steps=30)
    assert a.item() == pytest.approx(b.item())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": torch.zeros(3, 4)}, "expected \\[batch, n, d\\]"),
        ({"mask": torch.ones(3, 4, dtype=torch.bool)}, "mask of shape"),
        ({"mask": torch.zeros(BATCH, N, dtype=torch.bool)}, "no real token"),
        ({"positions": torch.full((BATCH,), N)}, "positions of shape"),
        ({"step": 0.0}, "step=0.0"),
        ({"power_steps": -1}, "power_steps=-1"),
        ({"norm": 0.5}, "norm"),
        ({"parts": "all"}, "parts"),
        ({"model": nn.Linear(D, D).double()}, "neither attention"),
    ],
)
def test_wrong_calls_are_errors_that_say_so(change, message):
    given = {"model": Attention(), "embeddings": inputs(), **change}
    with pytest.raises(InputError, match=message):
        movement(given.pop("model"), given.pop("embeddings"), given.pop("mask", None), **given)


def test_the_weight_rises_late_and_is_halved_where_accuracy_stays_low():
    recipe = Recipe(certify=0.2, allowed_loss=0.02)
    rising = Rising(recipe, [(1.0, 0.7)], 8, chance=0.5)
    assert [rising.part(s) for s in (0, 0.25, 0.5, 0.75, 1)] == pytest.approx([0, 0, 0.5, 1, 1])
    low, fine = (1.0, 0.75), (1.0, 0.79)
    before = [(1.0, 0.7), (1.0, 0.8)]  # two of eight evaluations are without
    for after, count in (
        ([fine] * 6, 0),
        ([low, fine] * 3, 0),
        ([fine, low, low], 1),
        ([low, low, fine, low], 1),
        ([low] * 5, 2),
        ([low] * 6, 3),
    ):
        rising = Rising(recipe, [*before, *after], 8, chance=0.5)
        assert rising.halved == count
        assert rising.part(1.0) == 0.5**count


def test_an_evaluation_far_below_halves_at_once_and_is_lost():
    recipe, before = Recipe(certify=0.2, allowed_loss=0.02), [(1.0, 0.8), (1.0, 0.79)]
    for after, lost, count in (
        ([], False, 0),
        ([(1.0, 0.74)], False, 0),
        ([(1.0, 0.72)], True, 1),
        ([(1.0, 0.72), (1.0, 0.6)], True, 2),
        ([(1.0, 0.72), (1.0, 0.8)], False, 1),
    ):
        rising = Rising(recipe, [*before, *after], 8, chance=0.5)
        assert (rising.lost, rising.halved) == (lost, count)
        assert rising.within == (not after or after[-1][1] >= 0.78)


def test_a_weight_that_costs_everything_is_taken_back(tmp_path, data):
    recipe = replace(RECIPE, epochs=12, learning_rate=1e-2, certify=1e3, evaluations=1)
    trained = train(replace(CONFIG, layer_norm="standard"), data, tmp_path / "m", recipe=recipe, device="cpu")
    assert trained.halved >= 1
    assert min(dev for _, dev in trained.history[4:]) < 0.7  # it was lost
    assert trained.dev_accuracy > 0.9


def test_the_weight_waits_until_something_is_learned():
    recipe, nothing = Recipe(certify=0.2), (0.7, 0.52)
    assert Rising(recipe, [nothing] * 7, 8, chance=0.5).part(0.99) == 0
    late = Rising(recipe, [nothing] * 3 + [(0.5, 0.8)], 8, chance=0.5)
    assert late.begin == 0.5
    assert [late.part(s) for s in (0.5, 2 / 3, 5 / 6, 1)] == pytest.approx([0, 0.5, 1, 1])
    assert Rising(recipe, [nothing] * 3 + [(0.5, 0.8), (0.5, 0.77), (0.5, 0.77)], 8, chance=0.5).halved == 1


def test_a_model_trained_with_the_penalty_moves_less_and_learns_as_well(tmp_path, data):
    config = replace(CONFIG, layer_norm="standard")
    recipe = replace(RECIPE, epochs=8, learning_rate=1e-2)
    moves = []
    for certify in (0.0, 0.3):
        trained = train(config, data, tmp_path / str(certify), recipe=replace(recipe, certify=certify), device="cpu")
        assert trained.dev_accuracy > 0.9
        model = cf.load(trained.folder)
        torch.manual_seed(0)
        ids = torch.tensor([[2, *model.tokenizer.word_ids(("the", "film", "was", "good")), 3]] * 4)
        moves.append(float(movement(model, model.embed(ids), positions=torch.arange(1, 5), power_steps=20)))
    assert moves[1] < 0.5 * moves[0]


def test_a_killed_training_with_the_penalty_ends_with_the_same_weights(tmp_path, data):
    recipe = replace(RECIPE, epochs=6, learning_rate=1e-2, certify=0.1)
    train(CONFIG, data, tmp_path / "whole", recipe=recipe, device="cpu")

    def kill(progress):
        if progress.evaluated and progress.step > progress.steps / 2:
            assert progress.penalty > 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu", progress=kill)
    train(CONFIG, data, tmp_path / "killed", recipe=recipe, device="cpu")
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_a_training_goes_on_from_a_trained_model(tmp_path, data):
    first = train(CONFIG, data, tmp_path / "a", recipe=replace(RECIPE, epochs=6, learning_rate=1e-2), device="cpu")
    gentle = replace(RECIPE, epochs=1, learning_rate=1e-6, start=str(first.folder))
    second = train(CONFIG, data, tmp_path / "b", recipe=gentle, device="cpu")
    assert second.history[0][1] == first.dev_accuracy
    assert str(tmp_path) not in (second.folder / "README.md").read_text()
    with pytest.raises(InputError, match="has the shape"):
        train(replace(CONFIG, hidden_size=8), data, tmp_path / "c", recipe=gentle, device="cpu")
    with pytest.raises(InputError, match="words of its own"):
        train(CONFIG, data, tmp_path / "d", recipe=gentle, device="cpu", vocabulary=["[PAD]"])


def test_a_collapse_and_one_class_are_one_line(tmp_path, data):
    hopeless = replace(RECIPE, epochs=2, learning_rate=1e-9, certify=0.1)
    with pytest.raises(InputError, match="collapsed"):
        train(replace(CONFIG, dropout=0.0), data, tmp_path / "a", recipe=hopeless, device="cpu")
    ones = tuple(example for example in data.train if example.label == 1)
    with pytest.raises(InputError, match="one label"):
        train(CONFIG, replace(data, train=ones), tmp_path / "b", recipe=RECIPE, device="cpu")
    with pytest.raises(InputError, match="certify=-1"):
        Recipe(certify=-1)


def test_no_var_models_are_penalised_by_their_scores():
    embed, classifier = build(Config(1, 50, hidden_size=16, num_attention_heads=2, layer_norm="no_var"))
    x = 30 * embed(torch.randint(4, 50, (2, 5)))
    assert float(movement(classifier, x)) > 0


class ByHand(nn.Module):
    """One normalisation of `x A` and one attention, each written in many ways."""

    def __init__(self, norm: str = "none", attention: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Linear(D, D).double()
        self.heads = nn.MultiheadAttention(D, 2, batch_first=True).double()
        self.kinds = norm, attention

    def forward(self, x):
        norm, attention = self.kinds
        return 0 * ATTENTIONS[attention](self, NORMALISATIONS[norm](self.mix(x))).flatten(1).sum(dim=1)


def standardised(z, spread):
    return (z - z.mean(-1, keepdim=True)) / spread


NORMALISATIONS = {
    "none": lambda z: z,
    "rms_norm": lambda z: F.rms_norm(z, (D,)),
    "rms_norm, rsqrt": lambda z: z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6),
    "rms_norm, products": lambda z: z / ((z * z).sum(dim=-1, keepdim=True) / D + 1e-6) ** 0.5,
    "rms_norm, cast": lambda z: z * z.double().square().mean(dim=-1, keepdim=True).to(z.dtype).rsqrt(),
    "rms_norm, length": lambda z: z / torch.linalg.vector_norm(z, dim=-1, keepdim=True),
    "rms_norm, old length": lambda z: z / z.norm(2, -1, True),
    "rms_norm, normalize": lambda z: F.normalize(z, dim=-1),
    "layer_norm": lambda z: F.layer_norm(z, (D,)),
    "layer_norm, var": lambda z: standardised(z, (z.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()),
    "layer_norm, std": lambda z: standardised(z, torch.std(z, dim=-1, keepdim=True) + 1e-6),
    "layer_norm, squares": lambda z: standardised(
        z, torch.sqrt(((z - z.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 1e-6)
    ),
}


def scores_of(module: ByHand, z):
    """The scores of every head, `[batch, heads, n, n]`."""
    q, k, _ = F.linear(z, module.heads.in_proj_weight, module.heads.in_proj_bias).chunk(3, dim=-1)
    q, k = (t.view(*z.shape[:2], 2, D // 2).transpose(1, 2) for t in (q, k))
    return q @ k.mT / (D // 2) ** 0.5


def softmax_by_hand(s):
    e = torch.exp(s - s.amax(dim=-1, keepdim=True))
    return e / e.sum(dim=-1, keepdim=True)


ATTENTIONS = {
    "none": lambda m, z: z,
    "softmax": lambda m, z: torch.softmax(scores_of(m, z), dim=-1),
    "exp": lambda m, z: softmax_by_hand(scores_of(m, z)),
    "MultiheadAttention": lambda m, z: m.heads(z, z, z, need_weights=False)[0],
    "MultiheadAttention, weights": lambda m, z: m.heads(z, z, z, need_weights=True)[0],
}


def moved(module, **given) -> float:
    torch.manual_seed(2)
    places = torch.full((BATCH,), 2)
    return float(movement(module, inputs(), positions=places, power_steps=40, **given).detach())


@pytest.mark.parametrize("way", [name for name in NORMALISATIONS if "," in name])
@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_a_normalisation_is_seen_however_it_is_written(way, norm):
    expected = moved(ByHand(norm=way.split(",")[0]), norm=norm)
    assert moved(ByHand(norm=way), norm=norm) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("way", ["exp", "MultiheadAttention", "MultiheadAttention, weights"])
def test_attention_is_seen_however_it_is_written(way):
    assert moved(ByHand(attention=way)) == pytest.approx(moved(ByHand(attention="softmax")), rel=1e-3)


def test_both_are_seen_together_and_a_mask_of_the_rows_is_kept():
    class Padded(ByHand):
        def forward(self, x, mask):
            z = self.mix(x)
            mixed = self.heads(z, z, z, key_padding_mask=~mask, need_weights=False)[0]
            return NORMALISATIONS["rms_norm, rsqrt"](z + mixed)[:, 0]

    module, x = Padded(), inputs()
    mask, places = torch.tensor([[True] * 4 + [False]] * BATCH), torch.ones(BATCH, dtype=torch.long)
    found = []
    for given, real in ((x[:, :4], mask[:, :4]), (x, mask)):
        torch.manual_seed(0)
        found.append(float(movement(module, given, real, positions=places, power_steps=60).detach()))
    assert found[0] == pytest.approx(found[1], rel=1e-2)
    gradient = torch.autograd.grad(movement(module, x, mask, positions=places), module.heads.in_proj_weight)[0]
    assert float(gradient.abs().sum()) > 0


def test_torchs_own_encoder_and_one_of_hugging_face_are_seen():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True).double()
    assert len(watched(layer, inputs()).norms) == 2
    assert [list(s.shape[-2:]) for s in watched(layer, inputs()).scores] == [[N, N]]
    sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.LlamaConfig(**sizes, intermediate_size=8, vocab_size=20, pad_token_id=0)
    llama = transformers.LlamaForSequenceClassification(config).double()
    seen = watched(lambda x: llama(inputs_embeds=x).logits, inputs())
    assert len(seen.norms) == 5  # two a layer and one at the end, written out by hand there
    assert len(seen.scores) == 2


def watched(module, x):
    with Watch() as watch:
        module(x.requires_grad_(True))
    return watch.seen


def test_what_is_neither_is_not_seen():
    x = inputs()
    with Watch() as watch:
        y = x.square().mean(dim=1)  # not over the last axis
        (y + 1).sqrt()
        (x * 2).sum(dim=-1).sqrt()  # not of a square
        x.exp().mean(dim=0)
        x.pow(2).sum(dim=-1)  # no root
        torch.linalg.vector_norm(x, ord=1, dim=-1)
        x.softmax(dim=1)
    assert watch.seen == ([], [], [])


def test_norm_and_number_of_the_words_that_move_are_settings(tmp_path, data):
    weights = []
    for change in ({}, {"certify_norm": "inf"}, {"certify_norm": "1"}, {"certify_words": 2}):
        recipe = replace(RECIPE, epochs=9, learning_rate=1e-2, certify=0.1, **change)
        folder = train(CONFIG, data, tmp_path / str(len(weights)), recipe=recipe, device="cpu").folder
        weights.append(load_file(folder / "model.safetensors"))
    first = weights[0]
    assert all(any(not torch.equal(first[k], w[k]) for k in first) for w in weights[1:])
    with pytest.raises(InputError, match="certify_norm='3'"):
        Recipe(certify_norm="3")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="certify_words=0"):
        Recipe(certify_words=0)


def test_words_that_move_are_words_and_differ_where_there_are_enough():
    words = torch.tensor([[False, True, True, True, False], [False, True, False, False, False], [False] * 5])
    batch = Batch(torch.zeros(3, 5), torch.ones(3, 5, dtype=torch.bool), words, torch.zeros(3))
    for _ in range(20):
        places = some_words(batch, 3)
        assert sorted(places[0].tolist()) == [1, 2, 3]
        assert places[1].tolist() == [1, 1, 1]
    assert some_words(batch, 9).shape == (3, 5)

"""Attacks: what they return really changes the answer, at the radius they state, and it is close to the smallest."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import conftest
from certiformer.api import attack
from certiformer.attack import ConsistencyError, check_consistency
from certiformer.attack.norms import dual_lengths, into_ball, lengths, steepest
from certiformer.errors import InputError, ModelError
from certiformer.models import Config, Model, WordTokenizer, load
from certiformer.models.network import build
from certiformer.models.tokenizer import SPECIAL_TOKENS
from certiformer.questions.inputs import margins, prepare
from certiformer.questions.workspace import Workspace

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
VOCABULARY = (*SPECIAL_TOKENS, *(f"word{i}" for i in range(60)))


def random_model(*, seed: int = 3, classes: int = 2, size: int = 8) -> Model:
    """A random classifier whose weights are large enough for its answer to change."""
    torch.manual_seed(seed)
    config = Config(
        2,
        len(VOCABULARY),
        hidden_size=size,
        intermediate_size=12,
        num_attention_heads=2,
        max_position_embeddings=16,
        num_labels=classes,
        labels=tuple(f"class {i}" for i in range(classes)),
    )
    embed, classifier = build(config)
    for parameter in (*embed.parameters(), *classifier.parameters()):
        parameter.data *= 30 if parameter.dim() > 1 else 1
    return Model(
        module=classifier.eval(),
        embed=embed.eval(),
        tokenizer=WordTokenizer(VOCABULARY, max_length=16),
        labels=config.labels,
        special=frozenset({0, 2, 3}),
        max_length=16,
        vocabulary=VOCABULARY,
    )


TEXT = "word1 word2 word3 word4 word5"


@pytest.mark.parametrize("norm", [1, 2, 3, "inf"])
@pytest.mark.parametrize(("words", "classes"), [(1, 2), (2, 4)])
def test_a_counterexample_changes_the_answer_and_lies_at_its_radius(norm, words, classes):
    model = random_model(classes=classes)
    centre = prepare(model, TEXT)
    result = attack(model, TEXT, norm=norm, words=words)
    assert result.positions == tuple(result.positions)
    assert len(result.positions) == math.comb(5, words)
    assert sum(math.isfinite(r) for r in result.radii) >= len(result.radii) // 2
    plain = Workspace(model).on(dtype=torch.float64).model
    for where, radius, point, flipped in zip(
        result.positions, result.radii, result.points, result.flipped, strict=True
    ):
        if point is None:
            assert radius == math.inf
            continue
        logits = plain.module(point)
        assert margins(logits, result.label)[0] <= 0
        assert flipped != result.label
        assert logits[0, flipped] >= logits[0, result.label]
        moved = point - centre.embeddings
        assert float(lengths(moved, float(norm)).max()) == radius
        still = [i for i in range(len(result.tokens)) if i not in where]
        assert not moved[0, still].any()


@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_the_smallest_change_of_a_linear_model_is_found(norm):
    torch.manual_seed(0)
    weight = torch.randn(2, 4 * 6, dtype=torch.float64)
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 2))
    linear[1].weight.data = weight.float()
    linear[1].bias.data = torch.tensor([3.0, -3.0])
    result = attack(Model(linear), 0.1 * torch.randn(4, 6), norm=norm, positions=[0, 3, (1, 2)])
    slopes = (linear[1].weight.double()[0] - linear[1].weight.double()[1]).detach().view(4, 6)
    for where, radius in zip(result.positions, result.radii, strict=True):
        exact = abs(result.margin) / float(dual_lengths(slopes[list(where)], float(norm)).sum())
        assert radius == pytest.approx(exact, rel=1e-3)
        assert radius >= exact * (1 - 1e-9)


@pytest.mark.parametrize("name", ["sst_1_small", "sst_2_tiny", "sst_3_tiny"])
def test_it_reaches_the_reference_attack(name):
    lines = [json.loads(line) for line in (REFERENCE / "radii.jsonl").read_text().splitlines()]
    expected = {
        (row["position"],): row["radius"]
        for row in lines
        if row["method"] == "PGD upper bound" and row["model"] == name and row["sentence"] == 0
    }
    ids = json.loads((REFERENCE / "sentences.json").read_text())[0]["ids"]
    result = attack(load(REFERENCE / name), ids)
    ratios = [r / expected[where] for where, r in zip(result.positions, result.radii, strict=True)]
    assert max(ratios) <= 1.002
    assert min(ratios) >= 0.9  # the reference is an attack as well, and a strong one


@pytest.mark.parametrize("norm", ["1", "2", "inf"])
def test_no_reference_certificate_is_contradicted(norm):
    rows = [json.loads(line) for line in (REFERENCE / "radii.jsonl").read_text().splitlines()]
    ids = json.loads((REFERENCE / "sentences.json").read_text())[1]["ids"]
    result = attack(load(REFERENCE / "sst_2_tiny"), ids, norm=norm)
    attacked = dict(zip(result.positions, result.radii, strict=True))
    found = [r for r in rows if (r["model"], r["sentence"], r["p"]) == ("sst_2_tiny", 1, norm)]
    assert found
    assert all(r["radius"] <= attacked[(r["position"],)] for r in found)


def test_the_same_seed_gives_the_same_result():
    model = random_model()
    one, two = attack(model, TEXT, seed=5), attack(model, TEXT, seed=5)
    assert one.radii == two.radii


def test_the_module_is_left_alone():
    model = random_model()
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    model.module.train()
    attack(model, TEXT)
    assert model.module.training
    assert all(torch.equal(v, before[k]) for k, v in model.module.state_dict().items())
    assert all(v.dtype == torch.float32 for v in model.module.parameters())


@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_enumeration_is_the_brute_force_loop(norm):
    model = random_model(seed=4)
    result = attack(model, TEXT, norm=norm, attack_method="enumeration")
    plain = Workspace(model).on(dtype=torch.float64).model
    ids = list(plain.tokenizer.encode(TEXT).ids)
    centre = plain.embed(torch.tensor([ids]))
    any_found = False
    for (position,), word, radius in zip(result.positions, result.words, result.radii, strict=True):
        best, name = math.inf, None
        for other in range(4, len(VOCABULARY)):
            changed = [*ids[:position], other, *ids[position + 1 :]]
            embedded = plain.embed(torch.tensor([changed]))
            gap = float(lengths(embedded - centre, float(norm)).max())
            if margins(plain.module(embedded), result.label)[0] <= 0 and gap < best:
                best, name = gap, VOCABULARY[other]
        assert (word, radius) == (name, pytest.approx(best))
        any_found |= name is not None
    assert any_found


def test_enumeration_never_beats_the_gradient_by_much():
    model = random_model(seed=4)
    free, bound = attack(model, TEXT), attack(model, TEXT, attack_method="enumeration")
    assert all(a <= b * 1.001 for a, b in zip(free.radii, bound.radii, strict=True))


@pytest.mark.parametrize("seed", [2, 3])
def test_with_layer_norm_a_change_in_l1_is_no_longer_than_that_in_l2(seed):
    """One coordinate at a time finds little there: the division takes it back."""
    size = {"layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    model = conftest.random_model(layer_norm="standard", scale=0.1, seed=seed, **size)
    centre = prepare(model, conftest.IDS).embeddings
    in_l2 = [float(lengths(point - centre, 1).max()) for point in attack(model, conftest.IDS, norm=2).points]
    assert all(a <= b for a, b in zip(attack(model, conftest.IDS, norm=1).radii, in_l2, strict=True))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_steepest_and_projection(p):
    torch.manual_seed(0)
    x = torch.randn(5, 2, 7, dtype=torch.float64) * 3
    direction = steepest(x, p)
    assert torch.allclose(lengths(direction, p), torch.ones(5, 2, dtype=torch.float64))
    assert torch.allclose((direction * x).sum(-1), dual_lengths(x, p))
    if p == 1:
        kept = torch.tensor([1, 2, 3, 6, 7])
        assert torch.equal((steepest(x, p, kept) != 0).sum(-1), kept[:, None].expand(-1, 2))
        assert torch.allclose(lengths(steepest(x, p, kept), p), torch.ones(5, 2, dtype=torch.float64))
    radius = torch.tensor([0.1, 1.0, 2.0, 5.0, 1e3], dtype=torch.float64)
    inside = into_ball(x, radius, p)
    assert (lengths(inside, p) <= radius[:, None] * (1 + 1e-12)).all()
    assert torch.equal(inside[4], x[4])
    if p in (1.0, 2.0, math.inf):  # the nearest point: moving to any other of the ball makes an obtuse angle
        other = into_ball(torch.randn(5, 2, 7, dtype=torch.float64), radius, p)
        assert (((x - inside) * (other - inside)).sum(-1) <= 1e-9).all()


def test_an_answer_that_is_wrong_already_needs_no_change():
    model = random_model()
    label = 1 - prepare(model, TEXT).label
    assert set(attack(model, TEXT, label=label).radii) == {0.0}


def test_wrong_calls_say_what_was_asked():
    model = random_model()
    for options, message in (
        ({"norm": 0.5}, "norm=0.5"),
        ({"norm": "two"}, "norm='two'"),
        ({"attack_method": "magic"}, "attack_method='magic'"),
        ({"attack_steps": 0}, "attack_steps=0"),
        ({"restarts": True}, "restarts=True"),
        ({"attack_method": "enumeration", "words": 2}, "one word at a time"),
        ({"positions": [0]}, "special token [CLS]"),
        ({"positions": [9]}, "out of range"),
        ({"positions": [(1, 1)]}, "twice"),
        ({"positions": []}, "positions=[]"),
        ({"words": 6}, "words=6"),
        ({"attack_dtype": torch.float16}, "float16"),
    ):
        with pytest.raises(InputError) as caught:
            attack(model, TEXT, **options)
        assert message in str(caught.value)
    with pytest.raises(InputError, match="instead of embeddings"):
        attack(model, prepare(model, TEXT).embeddings, attack_method="enumeration")


def test_wrong_inputs_are_refused():
    model = random_model()
    for inputs, message in (
        ("", "holds no word"),
        ("   ", "holds no word"),
        ("a " * 40, "at most 14"),
        ([2, 3], "no word is left"),
        ([2, 99, 3], "id 99"),
        ([2, 1.5, 3], "expected a text"),
        (torch.zeros(3, 5), "[1, 3, 5]"),
        (torch.zeros(2, 3, 8), "[2, 3, 8]"),
        (torch.full((3, 8), math.nan), "NaN"),
    ):
        with pytest.raises(InputError) as caught:
            prepare(model, inputs)
        assert message in str(caught.value)
    with pytest.raises(ModelError, match=r"\[1, 4, 8\]"):
        prepare(Model(torch.nn.Identity()), torch.zeros(4, 8))
    assert "knows none" in (prepare(model, "never seen").note or "")
    assert prepare(model, "never word1").note == "not in the model's vocabulary, read as [UNK]: never"


def test_a_contradiction_says_please_report():
    case = {"positions": [(1,), (2,)], "certified": [0.1, 0.5], "model": "m", "norm": "l2", "inputs": [2, 5, 3]}
    assert check_consistency(**case, attacked=[0.1, math.inf]) is None
    record = check_consistency(**case, attacked=[0.2, 0.4])
    assert record is not None
    assert "please report" in record.message
    written = json.loads(json.dumps(record.to_json()))
    assert written["positions"] == [[2]]
    assert written["status"] == "error"
    assert set(written["versions"]) == {"certiformer", "torch", "python"}
    with pytest.raises(ConsistencyError):
        check_consistency(**case, attacked=[math.nan, 1], raises=True)

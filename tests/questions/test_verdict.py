"""Verdicts: certified, refuted with a counterexample that holds, unknown; and substitutions of words."""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.sets import Choices
from certiformer.models import Model, WordTokenizer
from certiformer.models.model import Encoding
from certiformer.questions import verdict
from conftest import IDS, random_model

VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnop")


@pytest.fixture
def model() -> Model:
    made = random_model(layers=2, scale=0.4, seed=1)
    return Model(
        module=made.module,
        embed=made.embed,
        labels=made.labels,
        name="random",
        special=made.special,
        vocabulary=VOCABULARY,
    )


def margin(model: Model, x: Tensor, label: int) -> float:
    logits = model.module.double()(x.double())[0]
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return float(logits[label] - others.max())


def test_certified_refuted_and_unknown(model: Model) -> None:
    radius = cf.radius(model, IDS, positions=[2])
    attacked = cf.attack(model, IDS, positions=[2])
    certified = cf.certify(model, IDS, eps=0.99 * radius.radii[0], positions=[2])
    assert certified.status == "certified"
    assert certified.margin > 0
    assert certified.counterexample is None
    refuted = cf.certify(model, IDS, eps=1.05 * attacked.radii[0], positions=[2])
    assert refuted.status == "refuted"
    example = refuted.counterexample
    assert example is not None
    assert example.radius <= refuted.eps  # type: ignore[operator]
    assert margin(model, example.point, refuted.label) <= 0
    between = (radius.radii[0] * 1.01 + attacked.radii[0] * 0.99) / 2
    if radius.radii[0] * 1.01 < attacked.radii[0] * 0.99:
        assert cf.certify(model, IDS, eps=between, positions=[2]).status == "unknown"


def test_the_worst_set_decides(model: Model) -> None:
    result = cf.certify(model, IDS, eps=0.02)
    assert len(result.statuses) == 3
    assert result.status == ("certified" if set(result.statuses) == {"certified"} else result.status)
    assert cf.certify(model, IDS, eps=1e6, attack=False).status == "unknown"


@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf, True])
def test_bad_radii_are_named(model: Model, eps: float) -> None:
    with pytest.raises(cf.InputError, match="eps="):
        cf.certify(model, IDS, eps=eps)


def test_one_of_eps_and_substitutions(model: Model) -> None:
    with pytest.raises(cf.InputError, match="one of the two"):
        cf.certify(model, IDS)
    with pytest.raises(cf.InputError, match="no word of this text"):
        cf.certify(model, IDS, substitutions={"zebra": ["a"]})


def brute_force(model: Model, table: dict[int, list[int]]) -> float:
    label = cf.radius(model, IDS, positions=[1]).label
    least = math.inf
    for combination in itertools.product(*[[IDS[i], *c] for i, c in table.items()]):
        ids = list(IDS)
        for i, c in zip(table, combination, strict=True):
            ids[i] = c
        assert isinstance(model.embed, torch.nn.Module)
        least = min(least, margin(model, model.embed.double()(torch.tensor([ids])), label))
    return least


def test_substitutions_by_enumeration_are_exact(model: Model) -> None:
    words = {VOCABULARY[IDS[1]]: ["e", "f"], VOCABULARY[IDS[3]]: ["j", "k"]}
    exact = brute_force(model, {1: [8, 9], 3: [13, 14]})
    result = cf.certify(model, IDS, substitutions=words)
    assert result.method == "enumeration"
    assert result.status == ("certified" if exact > 0 else "refuted")
    if exact > 0:
        assert exact - 1e-9 < result.margin < exact  # less the rounding of the forward pass
    if result.counterexample is not None:
        assert result.counterexample.words is not None


class Mean(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act: torch.nn.Module = torch.nn.Tanh()
        self.shift = 0.0
        self.turn: Any = torch.abs

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(x).mean(dim=1)
        y = self.turn(y) - self.turn(-y) + y
        return torch.stack([y[:, 0] + self.shift, -y[:, 0]], dim=1)


@pytest.mark.parametrize(
    ("substitutions", "status"),
    [
        ({"good": ["fine"]}, "certified"),
        ({"good": ["fine", "awful"]}, "refuted"),
        ({"good": ["fine", "Awful"]}, "refuted"),  # read as awful
        ({"Good": ["AWFUL"], "film": ["fine"]}, "refuted"),
        ({"good": ["fine", "dreadful"]}, "refuted"),  # read as [UNK]
        ({"good": ["fine", "not bad"]}, "unknown"),  # two words
        ({"good": ["fine"], "nowhere": ["awful", "not bad"]}, "certified"),
        ({"good": ["fine"], "dreadful": ["awful"]}, "certified"),  # read as [UNK], like words that are not in the text
        ({"good": ["fine"], "film-": ["fine"]}, "certified"),
    ],
)
def test_substitutes_are_what_the_model_reads(substitutions: dict[str, list[str]], status: str) -> None:
    vocabulary = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "fine", "awful", "film")
    embed = torch.nn.Embedding(len(vocabulary), 2)
    with torch.no_grad():
        embed.weight.zero_()
        embed.weight[:, 0] = torch.tensor([0, -1, 0, 0, 1, 0.9, -1, 0])
    tokenizer = WordTokenizer(vocabulary)
    special = frozenset({0, 1, 2, 3})
    model = Model(module=Mean(), embed=embed, tokenizer=tokenizer, vocabulary=vocabulary, special=special)
    result = cf.certify(model, "Good film", substitutions=substitutions)
    assert result.status == status
    if status == "unknown":
        assert result.reason is not None
        assert "not bad" in result.reason


class Pieces:
    """Reads spaces as part of words and cuts long ones, as subword tokenizers do."""

    vocabulary = (
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "good",
        "_good",
        "_fine",
        "_awful",
        "_film",
        "won",
        "derful",
        "bad",
    )

    def encode(self, text: str) -> Encoding:
        found = re.finditer(r" ?won(?=derful)|(?<=won)derful| ?\w+", text)
        tokens = [(m.start(), m.end(), m[0].strip() if "won" in m[0] else m[0].replace(" ", "_")) for m in found]
        known = [self.vocabulary.index(t) if t in self.vocabulary else 1 for _, _, t in tokens]
        return Encoding(
            ids=(2, *known, 3),
            tokens=("[CLS]", *(self.vocabulary[i] for i in known), "[SEP]"),
            spans=(None, *((a, b) for a, b, _ in tokens), None),
            special=(True, *(False for _ in tokens), True),
        )

    def decode(self, ids: list[int]) -> list[str]:
        return [self.vocabulary[i] for i in ids]


@pytest.mark.parametrize(
    ("text", "substitutions", "status"),
    [
        ("a good film", {"good": ["fine"]}, "certified"),
        ("a good film", {"good": ["awful"]}, "refuted"),  # read as _awful behind a space
        ("a good film", {"good": ["wonderful"], "film": ["fine"]}, "unknown"),  # two tokens
        ("a wonderful film", {"wonderful": ["awful"], "film": ["fine"]}, "unknown"),  # stands there as two tokens
        ("a good thing", {"good": ["fine"], "stuff": ["awful"]}, "certified"),  # thing and stuff are both unknown
        ("a good thing", {"good": ["fine"], "Thing": ["awful"]}, "refuted"),
    ],
)
def test_substitutes_are_read_in_their_place(text: str, substitutions: dict[str, list[str]], status: str) -> None:
    tokenizer = Pieces()
    embed = torch.nn.Embedding(len(tokenizer.vocabulary), 2)
    with torch.no_grad():
        embed.weight.fill_(0.1)
        embed.weight[tokenizer.vocabulary.index("_awful")] = -9.0
    words = tokenizer.vocabulary
    model = Model(module=Mean(), embed=embed, tokenizer=tokenizer, vocabulary=words, special=frozenset({0, 2, 3}))
    result = cf.certify(model, text, substitutions=substitutions)
    assert result.status == status
    assert (result.reason is not None) == (status == "unknown")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("act", torch.nn.ReLU()),
        ("shift", -5.0),
        ("turn", torch.neg),
        ("turn", lambda y: y * y),
        ("extra", torch.ones(2)),
    ],
)
def test_a_module_that_was_changed_in_place_is_another(name: str, value: object) -> None:
    model, x = Model(module=Mean()), torch.tensor([[1.0, 0.2], [1.0, 1.0]], dtype=torch.float64)
    cf.certify(model, x, eps=0.1, positions=[0])
    setattr(model.module, name, value)
    found = cf.certify(model, x, eps=0.1, positions=[0])
    fresh = cf.certify(Model(module=model.module), x, eps=0.1, positions=[0])
    assert (found.status, found.label, found.margin) == (fresh.status, fresh.label, fresh.margin)


def _times(factor: float) -> Any:
    return lambda y: factor * y


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"_scale": 1.0}, {"_scale": -1.0}),
        ({"turn": _times(1.0)}, {"turn": _times(-4.0)}),
        ({"turn": functools.partial(torch.mul, torch.ones(2))}, {"turn": functools.partial(torch.mul, -torch.ones(2))}),
        ({"table": [torch.zeros(2000), torch.ones(2)]}, {"table": [torch.zeros(2000), -torch.ones(2)]}),
    ],
)
def test_what_a_module_holds_is_looked_into(before: dict[str, Any], after: dict[str, Any]) -> None:
    class Holder(Mean):
        _scale = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.table = [torch.ones(2)]

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * self._scale * self.table[-1].to(x))

    model, x = Model(module=Holder()), torch.tensor([[1.0, 0.2], [1.0, 1.0]], dtype=torch.float64)
    labels = []
    for change in (before, after):
        for name, value in change.items():
            setattr(model.module, name, value)
        found, fresh = (cf.certify(m, x, eps=0.01, positions=[0]) for m in (model, Model(module=model.module)))
        assert (found.label, found.margin) == (fresh.label, fresh.margin)
        labels.append(found.label)
    assert labels[0] != labels[1]


def test_a_hook_that_is_added_is_noticed() -> None:
    model, x = Model(module=Mean()), torch.tensor([[1.0, 0.2], [1.0, 1.0]], dtype=torch.float64)
    before = cf.certify(model, x, eps=0.01, positions=[0])
    model.module.register_forward_hook(lambda module, inputs, output: -output)
    assert cf.certify(model, x, eps=0.01, positions=[0]).label != before.label


def test_an_embedding_that_is_no_module_may_change_too() -> None:
    class Table:
        def __init__(self) -> None:
            self.rows = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(20, 2)

        def __call__(self, ids: Tensor) -> Tensor:
            return self.rows[ids]

    table = Table()
    model = Model(module=Mean(), embed=table, special=frozenset({0, 2, 3}))
    before = cf.certify(model, IDS, eps=0.01)
    table.rows = -table.rows
    after, fresh = (cf.certify(m, IDS, eps=0.01) for m in (model, Model(module=Mean(), embed=table)))
    assert after.label == fresh.label != before.label


def test_an_answer_that_rounding_gives_is_not_a_certificate() -> None:
    """The true margin is -9e-5; large numbers that come and go make it 1.2e-4 in float64."""

    class Rounds(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.mean(dim=1)
            shift = torch.tensor([1e12, 4e12], dtype=x.dtype, device=x.device)
            return (y + shift) - shift

    values = torch.tensor([0.1002, 0.10029], dtype=torch.float64)

    def embed(ids: Tensor) -> Tensor:
        return values.expand(*ids.shape, 2)

    model = Model(module=Rounds(), embed=embed, vocabulary=VOCABULARY, special=frozenset({0, 2, 3}))
    logits = Rounds()(embed(torch.tensor([IDS])))
    assert float(logits[0, 0] - logits[0, 1]) > 1e-4
    result = cf.certify(model, IDS, substitutions={VOCABULARY[IDS[1]]: [VOCABULARY[9]]})
    assert result.status == "unknown"
    assert result.reason is not None
    assert "rounding" in result.reason


def test_deep_models_are_swept_where_intervals_are_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(random_model(layers=6, scale=0.6, seed=1), vocabulary=VOCABULARY)
    words = {VOCABULARY[IDS[1]]: ["e"]}
    swept = cf.certify(model, IDS, substitutions=words)
    assert swept.status == "certified"
    monkeypatch.setattr(verdict, "MOST_SWEPT", 0)
    plain = cf.certify(model, IDS, substitutions=words)
    assert plain.status == "unknown"
    assert plain.margin < 0 < swept.margin


def test_substitutions_by_bounds_never_say_more_than_enumeration(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {VOCABULARY[IDS[1]]: ["e", "f"], VOCABULARY[IDS[2]]: ["g"]}
    exact = brute_force(model, {1: [8, 9], 2: [10]})
    monkeypatch.setattr(verdict, "MOST_COMBINATIONS", 1)
    result = cf.certify(model, IDS, substitutions=words)
    assert result.method != "enumeration"
    assert result.margin <= exact
    assert result.status in ("certified", "unknown")


def test_the_hull_of_choices_holds_its_mixtures() -> None:
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(1, 1, 4, 3, generator=generator, dtype=torch.float64)
    moves = {i: torch.randn(k, 3, generator=generator, dtype=torch.float64) for i, k in ((1, 2), (3, 5))}
    choices = Choices.of(centre, moves)
    function = torch.randn(2, 1, 6, 7, generator=generator, dtype=torch.float64)
    low, high = choices.extremes(function)
    far = choices.distance(function[0])
    box = choices.box()
    for _ in range(200):
        weights = [torch.rand(1 + m.shape[0], generator=generator, dtype=torch.float64) for m in moves.values()]
        deltas = [(w[1:, None] / w.sum() * m).sum(dim=0) for w, m in zip(weights, moves.values(), strict=True)]
        value = torch.einsum("yzmr,m->yzr", function, torch.cat(deltas))
        assert (value >= low - 1e-12).all()
        assert (value <= high + 1e-12).all()
        assert float(torch.linalg.vector_norm(value[0, 0])) <= float(far) + 1e-12
        x = centre.clone()
        for i, d in zip(moves, deltas, strict=True):
            x[0, 0, i] += d
        assert (x >= box.lower).all()
        assert (x <= box.upper).all()


def test_a_substitute_that_breaks_the_model_is_not_a_certificate(model: Model) -> None:
    class Breaks(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.mean(dim=1)[:, :2]
            return torch.where(x.amax() > 5, y / 0 * 0, y)

    def embed(ids: Tensor) -> Tensor:
        return torch.where(ids == 9, 9.0, 0.1 + ids / 100)[..., None].expand(*ids.shape, 4) * torch.tensor(
            [1.0, 0.5, 0, 0]
        )

    broken = Model(module=Breaks(), embed=embed, vocabulary=VOCABULARY, special=frozenset({0, 2, 3}))
    result = cf.certify(broken, IDS, substitutions={VOCABULARY[IDS[1]]: [VOCABULARY[9]]})
    assert result.status != "certified"


def test_weights_changed_in_place_are_noticed() -> None:
    changed = random_model(seed=3)
    before = cf.radius(changed, IDS, positions=[1])
    for p in changed.module.parameters():
        p.data.mul_(-0.3)
    after = cf.radius(changed, IDS, positions=[1])
    fresh = cf.radius(Model(module=changed.module, embed=changed.embed, special=changed.special), IDS, positions=[1])
    assert after.radii == fresh.radii != before.radii


def test_the_reported_radius_is_the_one_that_was_proved_in_single_precision() -> None:
    single = random_model(seed=3)
    result = cf.radius(single, IDS, dtype=torch.float32)
    assert all(r == float(torch.tensor(r, dtype=torch.float32)) for r in result.radii)
    assert all(
        cf.bounds(
            single,
            IDS,
            eps=result.radii,
            positions=[list(s) for s in result.positions],
            dtype=torch.float32,
            method=result.method,
            relaxation="tight",
        ).certified
    )


def test_weights_that_only_changed_places_are_noticed() -> None:
    changed = random_model(seed=3)
    before = cf.radius(changed, IDS, positions=[1])
    weight = changed.module.classifier.weight
    assert isinstance(weight, Tensor)
    weight.data.copy_(weight.data.flip(0))
    assert cf.radius(changed, IDS, positions=[1]).radii != before.radii


class Masked(torch.nn.Module):
    """Reads a buffer of every kind: a mask, strided weights, an expanded scale."""

    keep: Tensor
    every_other: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("keep", torch.tensor([True, True, False, False, True]))
        self.register_buffer("every_other", torch.rand(16)[::2])
        self.register_buffer("scale", torch.ones(1).expand(8))
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = x.masked_fill(~self.keep[None, :, None], 0.0)
        found: Tensor = self.head(torch.tanh(seen * self.every_other * self.scale).sum(dim=1))
        return found


def test_buffers_of_any_kind_are_noticed() -> None:
    net = Masked().eval()
    model = cf.Model(net)
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    before = cf.radius(model, x, positions=[3]).radii
    net.keep[:] = torch.tensor([False, False, False, True, True])
    after = cf.radius(model, x, positions=[3])
    assert after.radii != before
    assert after.radii == cf.radius(cf.Model(net), x, positions=[3]).radii


class Single(nn.Module):
    """Refuses everything but float32, as kernels of some models do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise RuntimeError(f"expected float32, got {x.dtype}")
        logits: torch.Tensor = self.head(torch.relu(x)).mean(dim=1)
        return logits


def test_a_model_that_runs_in_float32_alone_is_asked_about_in_it() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    near, far = (cf.certify(Single(), x, eps=eps, dtype="float32") for eps in (0.01, 50.0))
    assert (near.status, far.status) == ("certified", "refuted")
    assert cf.verify(Single(), x, within=cf.Ball(0.01, positions=[[0, 1]]), dtype="float32").status == "certified"
    with pytest.raises(cf.InputError, match="could not be run"):
        cf.certify(Single(), x, eps=0.01)

"""A model changed in place, wherever what it computes is kept, is answered for as it is now."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf

GLOBAL = {"scale": 1.0}
BIAS = torch.zeros(2)
QUICK: Any = {"tolerance": 0.1}  # another model has other radii all the same, to the last bit


@dataclass
class Held:
    """A tensor where no list of parameters finds it."""

    weight: Tensor


class Keeper(nn.Module):
    """Keeps numbers in all the places that a state_dict does not know."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 2)
        self.config = types.SimpleNamespace(gain=1.0)
        self.held = Held(torch.ones(6))
        self.space = types.SimpleNamespace(shift=torch.zeros(6))
        self.listed = [torch.ones(6)]
        self._hidden = {"power": 1.0}
        self.activation: Callable[[Tensor], Tensor] = torch.tanh

    def scaled(self, y: Tensor) -> Tensor:
        return y * self.factor

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.inner(x.mean(dim=1))) * self.held.weight * self.listed[0] + self.space.shift
        y = self.scaled(y) * self.config.gain * self._hidden["power"] * GLOBAL["scale"]
        logits: Tensor = self.outer(y) + BIAS
        return logits


def class_attribute(module: Keeper) -> None:
    type(module).factor = 3.0


def global_value(module: Keeper) -> None:
    GLOBAL["scale"] = 3.0


def global_tensor(module: Keeper) -> None:
    BIAS[0] += 1.0


def plain_config(module: Keeper) -> None:
    module.config.gain = 3.0


def dataclass_tensor(module: Keeper) -> None:
    module.held.weight.mul_(3)


def namespace_tensor(module: Keeper) -> None:
    module.space.shift.add_(0.5)


def listed_tensor(module: Keeper) -> None:
    module.listed[0].mul_(3)


def hidden_dictionary(module: Keeper) -> None:
    module._hidden["power"] = 3.0


def replaced_method(module: Keeper) -> None:
    module.scaled = lambda y: 3 * y  # type: ignore[method-assign]


def replaced_activation(module: Keeper) -> None:
    module.activation = torch.sigmoid


def replaced_module(module: Keeper) -> None:
    module.outer = nn.Linear(6, 2)


def data_of_a_weight(module: Keeper) -> None:
    module.outer.weight.data.mul_(3)


def hook(module: Keeper) -> None:
    module.inner.register_forward_hook(lambda m, args, out: 3 * out)


def class_method(module: Keeper) -> None:
    type(module).scaled = lambda self, y: 3 * y * self.factor  # type: ignore[method-assign]


CHANGES = [
    *(class_attribute, global_value, global_tensor, plain_config, dataclass_tensor, namespace_tensor, listed_tensor),
    *(hidden_dictionary, replaced_method, replaced_activation, replaced_module, data_of_a_weight, hook, class_method),
]
X = torch.tensor([[0.3, -0.2, 0.5, 0.1], [0.2, 0.4, -0.6, 0.3]])


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A keeper of a class of its own, with globals that are put back."""
    monkeypatch.setitem(GLOBAL, "scale", 1.0)
    monkeypatch.setattr(f"{__name__}.BIAS", torch.zeros(2))
    return type("Own", (Keeper,), {})().eval()


def fresh(module: Keeper, **options: Any) -> tuple[tuple[float, ...], int]:
    """The answer for a model that nobody has asked before."""
    found = cf.radius(cf.load(copy.deepcopy(module), num_labels=2), X, **options)
    return found.radii, found.label


@pytest.mark.parametrize("change", CHANGES)
def test_the_second_answer_is_the_new_models(module: Keeper, change: Callable[[Keeper], None]) -> None:
    model = cf.load(module, num_labels=2)
    first = cf.radius(model, X, **QUICK)
    before = module(X[None]).detach()
    change(module)
    assert not torch.allclose(before, module(X[None])), "the change changes nothing"
    second = cf.radius(model, X, **QUICK)
    assert (second.radii, second.label) == fresh(module, **QUICK)
    assert (second.radii, second.label) != (first.radii, first.label)


SHARED = (class_attribute, global_value, global_tensor, class_method)  # with every copy: code and what it refers to


@pytest.mark.parametrize("change", [c for c in CHANGES if c not in SHARED])
def test_a_certifier_answers_for_its_own_copy(module: Keeper, change: Callable[[Keeper], None]) -> None:
    certifier = cf.Certifier(cf.load(module, num_labels=2), **QUICK)
    first = certifier.radius(X)
    change(module)
    second = certifier.radius(X)
    assert (second.radii, second.label) == (first.radii, first.label)


@pytest.mark.parametrize("change", SHARED)
def test_a_certifier_whose_code_was_changed_says_so(module: Keeper, change: Callable[[Keeper], None]) -> None:
    certifier = cf.Certifier(cf.load(module, num_labels=2), **QUICK)
    certifier.radius(X)
    change(module)
    with pytest.raises(cf.ModelError, match="does not reproduce the module"):
        certifier.radius(X)


@pytest.mark.parametrize("ask", ["certify", "bounds", "attack"])
def test_every_question_is_asked_of_the_model_as_it_is(module: Keeper, ask: str) -> None:
    model = cf.load(module, num_labels=2)

    def answer() -> Any:
        if ask == "certify":
            return cf.certify(model, X, eps=0.05).margin
        if ask == "bounds":
            return cf.bounds(model, X, eps=0.05).lower.tolist()
        return cf.attack(model, X).radii

    first = answer()
    module.config.gain = 3.0
    module.outer.bias.data[0] += 0.2
    assert answer() != first


class Halves(nn.Module):
    """Looks its words up by a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.outer = nn.Embedding(10, 4), nn.Linear(4, 2)

    def words(self, ids: Tensor) -> Tensor:
        found: Tensor = self.table(ids)
        return found

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.outer(x.mean(dim=1))
        return logits


@pytest.mark.parametrize("wrapped", [False, True])
def test_both_halves_of_a_copy_are_of_one_time(wrapped: bool) -> None:
    """Words of today in a module of yesterday would be a model that nobody has."""
    module = Halves()
    embed = functools.partial(module.words) if wrapped else module.words
    model = cf.Model(module=module, embed=embed)
    certifier = cf.Certifier(model, **QUICK)
    before = certifier.radius([1, 2, 3])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(-3)
    assert certifier.radius([1, 2, 3]).radii == before.radii
    fresh = copy.deepcopy(module)
    expected = cf.radius(cf.Model(module=fresh, embed=fresh.words), [1, 2, 3], **QUICK)
    assert cf.radius(model, [1, 2, 3], **QUICK).radii == expected.radii != before.radii

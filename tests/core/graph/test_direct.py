"""A module run on a symbol gives the graph that torch.export gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from certiformer.core.graph import capture
from certiformer.core.graph.build import Builder
from certiformer.core.graph.direct import trace
from certiformer.models import Config
from certiformer.models.network import Classifier, build


@pytest.mark.parametrize("norm", ["no_var", "standard", "none"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_same_graph_as_exported(norm: str, activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = Config(
        2, 10, hidden_size=8, intermediate_size=12, num_attention_heads=2, layer_norm=norm, hidden_act=activation
    )
    _, module = build(config)
    module = module.double().eval().requires_grad_(False)
    example = torch.randn(1, 5, 8, dtype=torch.float64)
    direct = capture(module, example)
    monkeypatch.setattr(Classifier, "direct", False)
    exported = capture(module, example)
    assert [str(n) for n in direct.nodes] == [str(n) for n in exported.nodes]
    assert [n.inputs for n in direct.nodes] == [n.inputs for n in exported.nodes]
    x = torch.randn(3, *example.shape, dtype=torch.float64)
    assert torch.equal(direct.values(x)[-1], exported.values(x)[-1])


class Odd(nn.Module):
    direct = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x).sum(dim=1)


def test_what_a_symbol_does_not_know_is_left_to_the_exporter() -> None:
    assert trace(Odd(), Builder(torch.zeros(1, 1, 3, 2))) is None


class Watched(nn.Module):
    """Sees whether anything was hung on it, or on all modules of the program, while it is captured."""

    direct = True

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hooks = (nn.modules.module._global_forward_pre_hooks, nn.modules.module._global_forward_hooks)
        own = (self._forward_pre_hooks, self._forward_hooks, self.head._forward_pre_hooks, self.head._forward_hooks)
        self.seen.append(sum(len(h) for h in (*hooks, *own)))
        y: torch.Tensor = torch.tanh(self.head(x).mean(1))
        return y


def test_captures_leave_the_modules_of_other_threads_alone() -> None:
    module = Watched()
    graph = capture(module, torch.randn(1, 4, 2))
    assert set(module.seen) == {0}
    assert [n.path for n in graph.nodes if n.op.name == "linear"] == ["head"]
    assert [n.path for n in graph.nodes if n.op.name == "tanh"] == [""]

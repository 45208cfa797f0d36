"""A graph is the module, or it is refused: whatever the size of the logits, and whatever the precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from certiformer.core.graph import Graph, agree, agreement, capture
from certiformer.core.graph.agreement import DISTANCES, points
from certiformer.core.ops.linear import Linear, Scale, Shift
from certiformer.core.ops.normalize import Normalize
from certiformer.errors import ModelError
from conftest import random_model


class Head(nn.Module):
    """Two layers, and logits of any size."""

    def __init__(self, size: float, offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.size, self.offset = size, offset

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(torch.tanh(self.first(x)).mean(dim=1)) * self.size + self.offset
        return y


def example(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def changed(graph: Graph, kind: type, factor: float) -> Graph:
    """A graph in which the constants of one op are wrong."""
    nodes = list(graph.nodes)
    k = max(n.index for n in nodes if isinstance(n.op, kind))
    name = "weight" if kind is Linear else "value"
    op = replace(nodes[k].op, **{name: getattr(nodes[k].op, name) * factor})  # type: ignore[type-var]
    nodes[k] = replace(nodes[k], op=op)
    return Graph(tuple(nodes))


@pytest.mark.parametrize("size", [1e-170, 1e-12, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", [Linear, Scale])
def test_a_wrong_constant_is_found_however_small_the_logits(size: float, kind: type) -> None:
    module = Head(size).double()
    graph = capture(module, example())
    agree(graph, module, example())
    for factor in (0.5, 1 + 1e-6, 1 + 1e-10, 0.0):
        if size < 1e-38 and factor == 1 + 1e-10:
            continue  # single precision, which measures the rounding, does not reach that far down
        with pytest.raises(ModelError, match="does not reproduce the module"):
            agree(changed(graph, kind, factor), module, example())


def test_one_small_logit_beside_large_ones_is_compared_with_its_own_size() -> None:
    class Uneven(Head):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * torch.tensor([1e6, 1e-6, 1.0], dtype=x.dtype)

    module = Uneven(1.0).double()
    graph = capture(module, example())
    scale = max(n.index for n in graph.nodes if isinstance(n.op, Scale))
    nodes = list(graph.nodes)
    wrong = torch.tensor([1e6, 1.001e-6, 1.0], dtype=torch.float64)
    nodes[scale] = replace(nodes[scale], op=Scale(wrong))
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(Graph(tuple(nodes)), module, example())


def test_an_offset_of_all_logits_hides_no_difference() -> None:
    module = Head(1e-3, offset=1e6).double()
    graph = capture(module, example())
    agree(graph, module, example())
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(changed(graph, Scale, 1.001), module, example())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_single_precision_is_allowed_its_rounding_and_no_more(size: float) -> None:
    module = Head(size)
    graph = capture(module, example(torch.float32))
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(changed(graph, Linear, 1.002), module, example(torch.float32))


class Cancelling(nn.Module):
    """Large terms whose difference is what counts: in single precision much of it is rounding."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(x).sum(dim=1)
        large = (y[:, :2] + 1e4) * 1e3
        return large - 0.9999 * (y[:, 2:] + 1e4) * 1e3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_numbers_that_cancel_are_no_reason_to_refuse(dtype: torch.dtype) -> None:
    graph = capture(Cancelling(), example(dtype))
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(changed(graph, Shift, 1.01), Cancelling(), example(dtype))


def test_rounding_that_knows_no_bounds_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In single precision a graph may give anything; that is no reason to believe it."""
    module = Head(1.0).double()
    graph = capture(module, example())
    monkeypatch.setattr(agreement, "_rounding", lambda graph, x: torch.full((1, 3), 1e38, dtype=torch.float64))
    agree(changed(graph, Linear, 1 + 1e-6), module, example())
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(changed(graph, Linear, 1.1), module, example())


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("norm", ["standard", "no_var"])
def test_ordinary_models_with_large_logits_open_in_single_precision(scale: float, norm: str) -> None:
    model = random_model(layers=3, layer_norm=norm)
    for name, p in model.module.named_parameters():
        p.data *= scale if name.startswith("classifier") else 1.5
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(2))
    agree(capture(model.module, x), model.module, x)


class Casting(nn.Module):
    """Goes through single precision on its way, as many a LayerNorm does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        out: Tensor = self.head(y.to(x.dtype).mean(dim=1))
        return out


def test_a_module_that_rounds_on_its_way_is_compared_as_finely_as_it_computes() -> None:
    module = Casting().double()
    graph = capture(module, example())
    assert any(isinstance(n.op, Normalize) for n in graph.nodes)
    with pytest.raises(ModelError, match="does not reproduce"):
        agree(changed(graph, Linear, 1.001), module, example())


def test_the_points_compared_are_those_of_the_example() -> None:
    x = example()
    near = points(x, DISTANCES)
    assert torch.equal(near[0], x)
    assert torch.equal(near, points(x.clone(), DISTANCES))
    assert not torch.equal(near[1] - x, points(x + 1e-9, DISTANCES)[1] - x - 1e-9)


class Counted(Head):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def test_a_comparison_takes_four_forward_passes() -> None:
    module = Counted(1.0).double()
    graph = capture(module, example())
    module.calls = 0
    agree(graph, module, example())
    assert module.calls == len(DISTANCES) == 4


class Nothing(nn.Module):
    """A row of scores of which nothing is kept: 0 / 0."""

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ x.mT).masked_fill(torch.ones(3, 3, dtype=torch.bool), float("-inf"))
        return (scores.softmax(-1) @ x)[:, 0]


def test_attention_to_nothing_at_all_is_refused() -> None:
    with pytest.raises(ModelError, match="nan"):
        capture(Nothing(), example())

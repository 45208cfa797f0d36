"""Modules become graphs that compute the same; what cannot be bounded is reported all at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from certiformer.core.graph import by_parts, capture, narrowed
from certiformer.core.ops.linear import Center
from certiformer.errors import ModelError, UnsupportedError
from certiformer.questions.inputs import prepare, problem_of
from conftest import random_model


@pytest.mark.parametrize("layer_norm", ["no_var", "standard", "none"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_graphs_compute_what_the_module_computes(layer_norm: str, n: int) -> None:
    model = random_model(layers=2, layer_norm=layer_norm)
    module = model.module.double()
    example = torch.randn(1, n, 8, dtype=torch.float64)
    graph = capture(module, example)
    small = narrowed(graph, example[None])
    parts = by_parts(small, example[None])
    x = torch.randn(5, 1, n, 8, dtype=torch.float64)
    expected = module(x[:, 0])
    for g in (graph, small, parts):
        torch.testing.assert_close(g.values(x)[-1][:, 0], expected, rtol=1e-10, atol=1e-10)


def test_the_mean_is_subtracted_in_one_step_and_the_last_layer_is_cut() -> None:
    model = random_model(layers=1)
    example = torch.randn(1, 6, 8, dtype=torch.float64)
    graph = narrowed(capture(model.module.double(), example), example[None])
    names = [n.op.name for n in graph.nodes]
    assert sum(isinstance(n.op, Center) for n in graph.nodes) == 3
    assert "sum" not in names
    relu = next(n for n in graph.nodes if n.op.name == "relu")
    assert relu.shape == (1, 1, 12)  # the first position alone
    assert relu.path == "layers.0"


def test_everything_unsupported_is_reported_at_once() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.LogSigmoid())
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(torch.sin(self.inner(x))[:, 0])
            return y

    with pytest.raises(UnsupportedError) as error:
        capture(Odd(), torch.randn(1, 3, 4))
    text = str(error.value)
    assert "aten.log1p.default" in text
    assert "inner.1" in text
    assert "[1, 3, 4]" in text
    assert "aten.sin.default" in text


def test_an_output_that_ignores_the_input_is_an_error() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(1, 2)

    with pytest.raises(ModelError, match="does not depend"):
        capture(Constant(), torch.randn(1, 3, 4))


def test_a_length_is_captured_once() -> None:
    from certiformer.questions.workspace import Workspace

    model = random_model()
    own = Workspace(model)
    first, again = (
        problem_of([(prepare(own, ids), (1,))], p=2.0, method="backward", relaxation="paper").compiled
        for ids in ([2, 5, 6, 3], [2, 9, 8, 3])
    )
    assert first is again


def test_constants_fold_and_shapes_move() -> None:
    class Shapes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            n = x.shape[1]
            mask = (torch.arange(n) > 0).to(x.dtype)[None, :, None]
            y = torch.cat([x * mask, x.flip(0) if False else -x], dim=-1)
            y = y.transpose(1, 2).unsqueeze(1).expand(1, 2, 8, n).reshape(1, 16, n).sum(dim=-1)
            return y.view(1, 2, 8).mean(-1) / 3 - 1

    module, example = Shapes(), torch.randn(1, 3, 4, dtype=torch.float64)
    graph = capture(module, example)
    x = torch.randn(4, 1, 3, 4, dtype=torch.float64)
    expected = torch.stack([module(v) for v in x])
    torch.testing.assert_close(graph.values(x)[-1], expected)


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        whole = (x[:, 0, :1] * 0.4).to(torch.int64).to(x.dtype)
        z = torch.relu(0.9 - torch.relu(x[:, 0, :1] * 0.4 - whole))
        return torch.cat([z - 0.2, 0 * z], 1)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0, :2] + 1e-6 * torch.rand(1, 2, dtype=x.dtype)


class Hidden(nn.Module):
    """Depends on something besides its input."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x[:, 0, :2] * float(self.calls)


@pytest.mark.parametrize(("module", "says"), [(Cast(), "int64"), (Noise(), "random numbers")])
def test_what_only_looks_the_same_on_an_example_is_refused(module: nn.Module, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        capture(module, torch.full((1, 2, 2), 1e-5, dtype=torch.float64))


def test_a_module_with_a_memory_is_refused() -> None:
    with pytest.raises(ModelError, match="depend on more than its input"):
        capture(Hidden(), torch.ones(1, 2, 2, dtype=torch.float64))


class Plain(nn.Module):
    """Operators of the table alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.head = nn.LayerNorm(4), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(torch.softmax(self.inner(self.norm(x)), dim=-1)[:, 0])
        return y


class InPlace(Plain):
    """The same, and a step that changes what another name still means."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.norm(x))
        first = y[:, :1]
        y.mul_(2.0)
        return self.head(y + first)[:, 0]


class Apart(Plain):
    """An operator that has no row of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.addcmul(self.inner(x), self.inner(x), self.inner(x)))[:, 0]


@pytest.mark.parametrize(("kind", "apart"), [(Plain, 0), (InPlace, 1), (Apart, 1)])
def test_only_what_needs_it_is_taken_apart(kind: type[nn.Module], apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it makes no difference where it is not needed."""
    torch.manual_seed(0)
    module, x = kind().double().eval(), torch.randn(1, 3, 4, dtype=torch.float64)
    taken = []
    real = torch.export.ExportedProgram.run_decompositions

    def noted(self, table):
        taken.append(self)
        return real(self, table)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", noted)
    graph = capture(module, x)
    assert len(taken) == apart
    monkeypatch.setitem(capture.__globals__, "_known", lambda node: False)
    again = capture(module, x)
    assert len(taken) == apart + 1
    assert [(n.op.name, n.inputs, n.shape, n.path) for n in graph.nodes] == [
        (n.op.name, n.inputs, n.shape, n.path) for n in again.nodes
    ]
    points = torch.randn(6, 1, 3, 4, dtype=torch.float64)
    for found in (graph, again):
        torch.testing.assert_close(found.values(points)[-1][:, 0], module(points[:, 0]), rtol=1e-10, atol=1e-10)

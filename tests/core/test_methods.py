"""The methods against each other, against chunking, and against bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.budget import Size, fits
from certiformer.core.names import BoundOptions
from certiformer.core.ops.product import MatMul
from certiformer.core.relaxation import Style, anchors, choose
from certiformer.models import Model
from certiformer.questions.inputs import prepare, problem_of
from conftest import IDS, random_model


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_order_of_tightness_on_average(norm: float) -> None:
    """backward >= backward-forward >= forward >= ibp."""
    models = [random_model(layers=2, scale=0.35, seed=seed) for seed in range(2)]
    means: dict[str, float] = {}
    method: Any
    for method in ("backward", "backward-forward", "forward", "ibp"):
        eps = 0.02 if norm == math.inf else 0.05
        lowers = [cf.bounds(m, IDS, eps=eps, norm=norm, method=method, relaxation="paper").lower.mean() for m in models]
        means[method] = float(torch.stack(lowers).mean())
    assert means["backward"] >= means["backward-forward"] >= means["forward"] >= means["ibp"]
    assert means["backward"] > means["ibp"]


@pytest.mark.parametrize("method", ["forward", "backward", "backward-forward"])
def test_the_result_does_not_depend_on_chunking(method: Any) -> None:
    model = random_model(layers=1, scale=0.3, seed=1)
    sets = [[1], [2], [3], [1, 3]]
    whole = cf.bounds(model, IDS, eps=0.03, positions=sets, method=method, relaxation="paper")
    for budget in (20_000, 200_000):
        cut = cf.bounds(model, IDS, eps=0.03, positions=sets, method=method, relaxation="paper", max_memory=budget)
        torch.testing.assert_close(cut.lower, whole.lower, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(cut.upper, whole.upper, rtol=1e-9, atol=1e-9)


def test_a_batch_gives_what_each_instance_gives_alone() -> None:
    model = random_model(layers=2, scale=0.3, seed=3)
    sets, eps = [[1], [2, 3], [3]], [0.01, 0.02, 0.05]
    together = cf.bounds(model, IDS, eps=eps, positions=sets)
    for i, (s, e) in enumerate(zip(sets, eps, strict=True)):
        alone = cf.bounds(model, IDS, eps=e, positions=[s])
        torch.testing.assert_close(together.lower[i], alone.lower[0], rtol=1e-9, atol=1e-9)


def test_anchors_of_backward_forward_are_the_attention() -> None:
    prepared = prepare(random_model(layers=2), IDS)
    graph = problem_of([(prepared, (1,))], p=2.0, method="backward-forward", relaxation="paper").compiled.graph
    chosen = anchors(graph, "backward-forward")
    products = [n for n in graph.nodes if isinstance(n.op, MatMul)]
    assert len(products) == 4
    assert all(n.index in chosen for n in products)
    assert all(p.index in chosen for n in products for p in graph.parents(n))
    assert not any(n.op.name == "relu" for n in graph.nodes if n.index in chosen)
    assert anchors(graph, "backward") == frozenset()


@pytest.mark.parametrize("budget", ["fast", "balanced", "tight"])
def test_what_is_asked_for_by_name_is_done_in_full_whatever_it_costs(budget: Any) -> None:
    """Only "auto" leaves out what takes too long, and says what it chose."""
    prepared = prepare(random_model(layers=2), IDS)
    graph = problem_of([(prepared, (1,))], p=2.0, method="backward", relaxation="tight").compiled.graph
    cheap, dear = (
        {
            method: choose(graph, BoundOptions(method=method, budget=budget), lambda _, fits=fits: fits)
            for method in ("auto", "backward")
        }
        for fits in (True, False)
    )
    assert dear["backward"] == cheap["backward"] == cheap["auto"]
    assert dear["backward"].style.sweep_differences
    assert dear["backward"].style.both == (budget == "tight")
    assert dear["auto"].method == "backward-forward"
    named, auto = (
        problem_of([(prepared, (1,))], p=2.0, method=method, relaxation="tight", budget=budget)
        for method in ("backward", "auto")
    )
    assert "differences of scores bounded one by one" in named.described
    assert named.described == auto.described


def test_auto_bounds_differences_one_by_one_in_as_many_layers_as_it_can_afford() -> None:
    prepared = prepare(random_model(layers=2, scale=0.5), IDS)
    problem = problem_of([(prepared, (1,))], p=2.0, method="backward", relaxation="tight")
    graph = problem.compiled.graph
    size = Size(instances=1, varying=1, each=8, width=8)
    full = problem.style
    costs = [size.seconds(problem.compiled, replace(full, sweep_differences=k)) for k in range(3)]
    assert costs == sorted(costs)
    assert costs[0] < costs[1] < costs[2]
    assert costs[2] == size.seconds(problem.compiled, full)
    chosen = []
    for allowed in (costs[2], 0.5 * (costs[1] + costs[2]), 0.5 * (costs[0] + costs[1]), 0.5 * costs[0]):
        options = BoundOptions(method="auto", budget=f"{allowed:.12f}s")

        def affordable(style: Style, options: BoundOptions = options) -> bool:
            return fits(options, style, problem.compiled, size)

        plan = choose(graph, options, affordable)
        chosen.append((plan.method, plan.style.sweep_differences))
    assert chosen[1:] == [("backward", 1), ("backward", 0), ("backward-forward", 0)]
    eps = torch.tensor([0.05], dtype=torch.float64)
    mixed = [replace(problem, style=replace(problem.style, sweep_differences=k)) for k in (0, 1, 2)]
    assert "one by one in the first layer" in mixed[1].described
    assert mixed[2].described == problem.described
    margins = [float(m.margins(eps).least[0]) for m in mixed]
    assert margins[0] < margins[1] <= margins[2] == float(problem.margins(eps).least[0])
    u = torch.randn(2000, prepared.embeddings.shape[-1], dtype=torch.float64)
    x = prepared.embeddings.repeat(len(u), 1, 1)
    x[:, 1] += 0.05 * u / u.norm(dim=1, keepdim=True)
    logits = random_model(layers=2, scale=0.5).module.double()(x)
    others = [k for k in range(logits.shape[1]) if k != prepared.label]
    assert float((logits[:, prepared.label, None] - logits[:, others]).min()) >= margins[2]


def test_two_positions_have_a_norm_each() -> None:
    """For a linear model the bound is margin - eps (||w_1|| + ||w_2||), not one norm over both."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x.mean(dim=1))
            return out

    torch.manual_seed(0)
    module = Sum()
    x = torch.randn(3, 4, dtype=torch.float64)
    logits = module(x[None])[0]
    label = int(logits.argmax())
    w = (module.head.weight[label] - module.head.weight[1 - label]).detach() / 3
    margin = float((logits[label] - logits[1 - label]).detach())
    for p, q in ((1.0, math.inf), (2.0, 2.0), (math.inf, 1.0), (3.0, 1.5)):
        b = cf.bounds(Model(module), x, eps=0.1, norm=p, positions=[[0, 2]], method="backward")
        expected = margin - 0.1 * 2 * float(torch.linalg.vector_norm(w, ord=q))
        assert math.isclose(float(b.lower[0, 0]), expected, rel_tol=1e-9)
        assert math.isclose(float(b.upper[0, 0]), 2 * margin - expected, rel_tol=1e-9)


def test_a_relaxation_that_breaks_down_is_not_a_certificate() -> None:
    model = random_model(layers=2, scale=1.0, layer_norm="standard", seed=0)
    for method in ("ibp", "forward", "backward", "backward-forward"):
        for eps in (10.0, 1e4, 1e150):
            b = cf.bounds(model, IDS, eps=eps, positions=[[1], [1, 2, 3]], method=method, relaxation="paper")  # type: ignore[arg-type]
            assert not torch.isnan(b.lower).any()
            assert not torch.isnan(b.upper).any()
            assert b.certified == (False, False)
    assert any(r is not None and " at " in r for r in b.reasons)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eps": -0.1}, "eps=-0.1"),
        ({"eps": math.nan}, "eps=nan"),
        ({"eps": [0.1, 0.2]}, "one for each of 1"),
        ({"norm": 0.5}, "norm=0.5"),
        ({"norm": "two"}, "norm='two'"),
        ({"positions": [0]}, "position 0"),
        ({"positions": [9]}, "position 9"),
        ({"positions": [[1, 1]]}, "twice"),
        ({"method": "sideways"}, "method='sideways'"),
        ({"relaxation": "loose"}, "relaxation='loose'"),
        ({"max_memory": 0}, "max_memory=0"),
        ({"label": 7}, "label=7"),
        ({"dtype": torch.float16}, "dtype"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], says: str) -> None:
    call: dict[str, Any] = {"eps": 0.1, "positions": [1], **change}
    with pytest.raises(cf.InputError) as error:
        cf.bounds(random_model(), IDS, **call)
    assert says in str(error.value)


def test_outputs_that_are_not_classes_are_refused() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    with pytest.raises(cf.ModelError, match="classes"):
        cf.bounds(Model(Wrong()), torch.randn(3, 4), eps=0.1, positions=[0])


def test_a_nan_that_an_op_would_not_notice_ends_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """`nan < 0` and `nan > 0` are both false, which to a ReLU looks like a box on one side."""
    from certiformer.core.engine import Engine
    from certiformer.core.ops import Box

    prepared = prepare(random_model(layers=1, scale=0.3), IDS)
    problem = problem_of([(prepared, (1,)), (prepared, (2,))], p=2.0, method="backward", relaxation="tight")
    graph = problem.compiled.graph
    relu = next(n for n in graph.nodes if n.op.name == "relu")
    honest = Engine._box

    def broken(self: Engine, node: Any) -> Box:
        box = honest(self, node)
        if node.index == relu.inputs[0]:
            box.lower[0] = math.nan
        return box

    eps = torch.full((2,), 1e-6, dtype=torch.float64)
    assert (problem.margins(eps).lower > 0).all()
    monkeypatch.setattr(Engine, "_box", broken)
    found = problem.margins(eps)
    assert found.lower[0].tolist() == [-math.inf, -math.inf]
    assert found.reasons[0] is not None
    assert "not numbers" in found.reasons[0]
    assert (found.lower[1] > 0).all()

"""Bounds of what a model computes in float32, against float32 forward passes in good and bad orders of summation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.captured import Captured, Compiled
from certiformer.core.graph import capture, in_float32, narrowed
from certiformer.core.ops.rounded import Rounded
from certiformer.core.problem import Problem
from certiformer.core.relaxation import anchors
from certiformer.core.speed.replay import Store
from certiformer.models.network import Config, build
from certiformer.options import Question
from certiformer.questions.estimate import estimate
from certiformer.questions.inputs import prepare, problem_of
from deployed import ORDERS, run
from enclosure import pushed
from spread import spread

WAYS = [
    ("ibp", "tight"),
    ("forward", "tight"),
    ("backward", "tight"),
    ("backward-forward", "tight"),
    ("backward", "paper"),
    ("backward-forward", "paper"),
]


EPS = 0.01


class Modern(nn.Module):
    """RMSNorm, SiLU gates, fused attention with a causal mask, and a LayerNorm with weights."""

    def __init__(self, d: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.RMSNorm(d, eps=1e-6), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.gate, self.up, self.down = nn.Linear(d, 12), nn.Linear(d, 12), nn.Linear(12, d)
        self.head = nn.Linear(d, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).reshape(1, x.shape[1], 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        logits: Tensor = self.head(self.last(x).mean(dim=1))
        return logits


def own(kind: str, activation: str) -> nn.Module:
    config = Config(
        num_hidden_layers=2,
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_attention_heads=2,
        layer_norm=kind,  # type: ignore[arg-type]
        hidden_act=activation,
    )
    module = build(config)[1]
    for p in module.parameters():
        nn.init.normal_(p, std=0.4)
    return module.eval()


MODELS = {
    "no variance": lambda: own("no_var", "relu"),
    "standard": lambda: own("standard", "gelu"),
    "none": lambda: own("none", "relu"),
    "modern": Modern,
}


def case(name: str, seed: int = 0) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(seed)
    module = MODELS[name]().eval().requires_grad_(False)
    return module, torch.randn(1, 4, 8)


def rounded_problem(module: nn.Module, x: Tensor, p: float, method: Any) -> Problem:
    """The problem over the graph of rounded values itself, whose nodes an evaluation can be compared with."""
    prepared = prepare(cf.load(module), x)
    problem = problem_of([(prepared, (1,))], p=p, method=method, arithmetic="float32")
    exact = problem.centre
    graph = in_float32(narrowed(capture(prepared.model.module, exact[0]), exact), exact)
    if method == "ibp":
        known = Compiled.of(graph, frozenset(), {}, cuda=False, store=Store())
    else:
        known = Compiled.of(graph, anchors(graph, method), {}, cuda=False, store=Store())
    return replace(problem, compiled=known)


@pytest.mark.parametrize(("name", "method"), spread(list(MODELS), ["forward", "backward"]))
def test_no_evaluation_leaves_the_box_of_any_node(name: str, method: str) -> None:
    """Random and attacked float32 points, every order of summation, and a new order at every op."""
    module, x = case(name)
    for p, eps in ((float("inf"), 0.002), (1.0, 0.0)):
        problem = rounded_problem(module, x, p, method)
        graph = problem.compiled.graph
        ball = problem.ball(torch.tensor([eps], dtype=torch.float64), [0])
        with torch.no_grad():
            engine = problem.engine(ball, {}, rounding=True)
            engine.margins(problem.rows([0]))
            boxes = {n.index: engine.box(n) for n in graph.nodes if n.perturbed}
        assert engine.reasons == [None]
        cloud = ball.sample(6, torch.Generator().manual_seed(1))[0]
        (down,) = pushed(problem, ball, torch.ones(1, problem.classes - 1, dtype=torch.float64))
        points = torch.cat([ball.centre, cloud, down])
        for order in (*ORDERS, "mixed"):
            values = run(graph, points, order)
            for node in graph.nodes:
                if isinstance(node.op, Rounded):
                    value, box = values[node.index].double(), boxes[node.index]
                    assert bool((value >= box.lower).all()), (order, str(node))
                    assert bool((value <= box.upper).all()), (order, str(node))


@cache
def computed(name: str) -> tuple[Any, Tensor, Tensor]:
    """A model, its input, and margins at points around it `[orders and points, classes - 1]`, in float32."""
    module, x = case(name, seed=1)
    model = cf.load(module)
    prepared = prepare(model, x)
    problem = problem_of([(prepared, (1,))], p=2.0, arithmetic="float32")
    ball = problem.ball(torch.tensor([EPS], dtype=torch.float64), [0])
    graph = in_float32(narrowed(capture(prepared.model.module, x.double()), x.double()[None]), x.double()[None])
    points = torch.cat([ball.centre, ball.sample(8, torch.Generator().manual_seed(2))[0]]).float()
    rows = problem.rows([0])[0, :, 0]
    found = [run(graph, points, order)[-1].double().reshape(-1, problem.classes) @ rows.T for order in ORDERS]
    single = module.float()
    return model, x, torch.cat([*found, *((single(point)[0].double() @ rows.T)[None] for point in points)])


@pytest.mark.parametrize(("name", "way"), spread(list(MODELS), WAYS, times=2))
def test_margins_hold_for_every_order_and_are_never_above_the_real_ones(name: str, way: tuple[Any, Any]) -> None:
    (method, relaxation), (model, x, margins) = way, computed(name)
    asked: dict[str, Any] = {"norm": 2.0, "eps": EPS, "positions": [[1]], "method": method, "relaxation": relaxation}
    real = cf.bounds(model, x, **asked)
    found = cf.bounds(model, x, arithmetic="float32", **asked)
    if found.reasons != (None,):  # a box so wide that a variance may vanish in float32
        assert (name, method) == ("standard", "ibp")
        assert "normalize" in str(found.reasons)
        return
    assert bool((found.lower < real.lower).all())
    assert bool((found.upper > real.upper).all())
    if method.startswith("backward"):
        assert bool((real.lower - found.lower < 0.03 * (1 + real.lower.abs())).all())  # and not much below
    assert bool((margins >= found.lower[0]).all())
    assert bool((margins <= found.upper[0]).all())


class Cancels(nn.Module):
    """A large number is added and taken off again: nothing for a real function, much in float32."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset
        self.head = nn.Linear(4, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[1.0] * 4, [-1.0] * 4]))
            self.head.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head((x + self.offset - self.offset).mean(dim=1))
        return logits


class Ordered(nn.Module):
    """A sum that is 1 or 0, as the order goes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[1e9, 1.0, -1e9], [0.0, 0.0, 0.0]]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x[:, 0])
        return logits


@pytest.mark.parametrize("method", ["ibp", "backward", "backward-forward", "forward"])
def test_what_holds_for_real_numbers_alone_is_not_certified_in_float32(method: Any) -> None:
    x = torch.full((1, 2, 4), 0.25)
    asked: dict[str, Any] = {"eps": 0.01, "positions": [[0]], "label": 0, "method": method}
    assert cf.certify(Cancels(1e8), x, **asked).status == "certified"
    found = cf.certify(Cancels(1e8), x, arithmetic="float32", **asked)
    assert found.status == "refuted"
    assert found.counterexample is not None
    point = found.counterexample.point
    logits = Cancels(1e8)(point.float()).detach()
    assert float(logits[0, 0]) <= float(logits[0, 1])
    assert cf.certify(Cancels(16.0), x, arithmetic="float32", **asked).status == "certified"
    assert cf.certify(Cancels(1e6), x, arithmetic="float32", **asked).status in ("unknown", "refuted")

    ones: dict[str, Any] = {"eps": 1e-12, "positions": [[0]], "label": 0, "method": method}
    assert cf.certify(Ordered(), torch.ones(1, 1, 3), **ones).status == "certified"
    assert cf.certify(Ordered(), torch.ones(1, 1, 3), arithmetic="float32", **ones).status in ("unknown", "refuted")


def test_radii_in_float32_hold_where_float32_is_run() -> None:
    """No float32 forward pass inside of a radius certified in float32 gives another label."""
    text = "a great film with fun"
    real = cf.radius("sst-1", text, positions="great,fun")
    found = cf.radius("sst-1", text, positions="great,fun", arithmetic="float32")
    model = cf.load("sst-1")
    module = model.module.float()
    prepared = prepare(model, text, arithmetic="float32")
    for place, radius, without in zip(found.positions, found.radii, real.radii, strict=True):
        assert 0.99 * without < radius <= without * (1 + 1e-3)
        problem = problem_of([(prepared, place)], p=2.0, arithmetic="float32")
        ball = problem.ball(torch.tensor([radius * 0.999999]), [0])
        sampled, down = ball.sample(200, torch.Generator().manual_seed(0))[0], pushed(problem, ball, torch.ones(1, 1))
        points = torch.cat([sampled[:, 0], down[0, 0]])
        with torch.no_grad():
            assert bool((module(points.float()).argmax(dim=1) == found.label).all())


def test_overflow_is_unknown_with_a_reason() -> None:
    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = (x * 1e20).square().mean(dim=1)
            return torch.stack([y[:, 0], y[:, 1] * 0.5], dim=1)

    x = torch.ones(1, 2, 2)
    assert cf.certify(Squares(), x, eps=1e-3, positions=[[0]], attack=False).status == "certified"
    found = cf.certify(Squares(), x, eps=1e-3, positions=[[0]], attack=False, arithmetic="float32")
    assert found.status == "unknown"
    assert "overflow" in (found.reason or "")


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (lambda x: (x * torch.arange(3.0, dtype=x.dtype).cos()).sum(dim=1)[:, :2], "computes constants first"),
        (lambda x: x.logsumexp(dim=1)[:, :2], "is not known"),
        (lambda x: nn.functional.rms_norm(x, (3,)).mean(dim=1)[:, :2], "eps"),
        (lambda x: (x * 1e39).mean(dim=1)[:, :2], "beyond float32"),
    ],
)
def test_what_is_not_bounded_is_refused(forward: Any, why: str) -> None:
    class Any_(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = forward(x)
            return out

    x = torch.tensor([[[2.0, 1.0, 0.5], [1.0, 0.5, 0.25]]])
    assert cf.bounds(Any_(), x, eps=1e-3, positions=[[0]]).reasons == (None,)
    with pytest.raises(cf.UnsupportedError, match=why):
        cf.bounds(Any_(), x, eps=1e-3, positions=[[0]], arithmetic="float32")


def test_a_module_that_is_another_in_float32_is_found_out() -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.mean(dim=1)
            return y + (1.0 if x.dtype == torch.float32 else 0.0) * y.flip(1)

    with pytest.raises(cf.ModelError, match="float32"):
        cf.bounds(Other(), torch.tensor([[[2.0, 1.0]]]), eps=1e-3, positions=[[0]], arithmetic="float32")


def test_masks_that_are_added_one_after_the_other_keep_their_errors() -> None:
    """What is added to the scores beside a mask is not added up first."""

    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = torch.zeros(3, 3, dtype=x.dtype)
            mask[:, 2] = -torch.inf
            scores = x @ x.transpose(1, 2) + 1e8 + (-1e8) + mask
            return (scores.softmax(dim=-1) @ x).mean(dim=1)

    x = torch.tensor([[[2.0, 1.0], [1.0, 0.5], [0.1, 0.2]]])
    real = cf.bounds(Masked(), x, eps=1e-3, positions=[[0]])
    found = cf.bounds(Masked(), x, eps=1e-3, positions=[[0]], arithmetic="float32")
    assert float(real.lower - found.lower) > 0.05


def test_options_and_matrices() -> None:
    with pytest.raises(cf.InputError, match="arithmetic='float16'"):
        cf.radius("sst-1", "a great film", arithmetic="float16")  # type: ignore[arg-type]
    with pytest.raises(cf.InputError, match="substitutions"):
        cf.certify("sst-1", "a great film", substitutions={"great": ["good"]}, arithmetic="float32")
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with pytest.raises(cf.InputError, match="arithmetic='float32'"):
            cf.radius("sst-1", "a great film", arithmetic="float32")
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_graphs_of_both_kinds_are_kept_apart() -> None:
    module, x = case("none")
    captured = Captured(module.double())
    real = captured.graph([x.double()], "tight", "real")
    rounded = captured.graph([x.double()], "tight", "float32")
    assert not any(isinstance(n.op, Rounded) for n in real.nodes)
    assert any(isinstance(n.op, Rounded) for n in rounded.nodes)
    assert captured.graph([x.double()], "tight", "real") is real


def test_the_work_is_counted() -> None:
    """The estimate that comes before long runs, without one of its own."""
    certifier = cf.Certifier("sst-1", arithmetic="float32")
    found = estimate(certifier.workspace, ["a great film"], Question(), certifier.options)
    real = estimate(certifier.workspace, ["a great film"], Question(), replace(certifier.options, arithmetic="real"))
    assert 0.5 * real.seconds < found.seconds < 100 * real.seconds


def test_constants_computed_on_the_way_are_seen_in_modules_run_on_symbols() -> None:
    """A module that calls itself direct goes the long way round if it computes constants."""

    class Direct(nn.Module):
        direct = True

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 2))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = nn.functional.linear(x[:, 0], (self.first @ self.second).T)
            return out

    torch.manual_seed(0)
    module, x = Direct(), torch.randn(1, 2, 3)
    assert cf.bounds(module, x, eps=1e-3, positions=[[0]]).reasons == (None,)
    with pytest.raises(cf.UnsupportedError, match="computes constants first"):
        cf.bounds(module, x, eps=1e-3, positions=[[0]], arithmetic="float32")

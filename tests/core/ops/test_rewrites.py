"""Operators that become others: the graph computes what the module computes, and nothing leaves its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import certiformer as cf
from certiformer.questions.inputs import Prepared, prepare, problem_of
from enclosure import hold
from spread import spread

N, D = 4, 6
LATER = torch.ones(N, N).triu(1).bool()
HOLES = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]]).bool()
HEADS = torch.stack([HOLES, ~LATER])  # another mask for every head
SLOPES = torch.tensor([0.5, 0.25])[:, None, None] * (torch.arange(N) - torch.arange(N)[:, None])  # ALiBi: [heads, n, n]
BUCKETS = torch.tensor([[0, 1, 2, 2, 2], [5, 0, 1, 2, 2], [4, 5, 0, 1, 2], [4, 4, 5, 0, 1]])
ONCE = torch.tensor([[2, 0, 3], [1, 5, 0], [0, 1, 2], [5, 4, 3]])
ONES = torch.linspace(-1, 1, 2 * 9).reshape(2, 1, 3, 3)
X = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def heads(x: Tensor) -> Tensor:
    return x.view(x.shape[0], N, 2, 3).transpose(1, 2)  # [batch, heads, n, 3]


def scores(x: Tensor) -> Tensor:
    return heads(x) @ heads(x).transpose(-1, -2)


CASES: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "masked_fill": (lambda x: scores(x).masked_fill(LATER, -math.inf).softmax(-1) @ heads(x), ["softmax"]),
    "added mask": (lambda x: (scores(x) + LATER.to(x) * torch.finfo(x.dtype).min).softmax(-1) @ heads(x), ["softmax"]),
    "where, low": (lambda x: torch.where(HOLES, scores(x) + 0.5, -1e38).softmax(-1), ["softmax", "concat"]),
    "where, two": (lambda x: torch.where(HOLES, scores(x), scores(2 * x)), ["scale", "add"]),
    "where, constant": (lambda x: torch.where(HOLES, scores(x), 3.0), ["shift"]),
    "attention": (lambda x: F.scaled_dot_product_attention(heads(x), heads(x + 1), heads(x)), ["softmax"]),
    "attention, causal": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
        ["softmax", "concat"],
    ),
    "attention, mask": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), attn_mask=HOLES, scale=0.3),
        ["softmax", "concat"],
    ),
    "attention, a mask for every head": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), attn_mask=HEADS),
        ["softmax", "concat"],
    ),
    "a bias and a mask for every head": (
        lambda x: (scores(x) + SLOPES.to(x) + (~HEADS).to(x) * torch.finfo(x.dtype).min).softmax(-1) @ heads(x),
        ["softmax", "concat", "shift"],
    ),
    "attention, columns": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), attn_mask=HOLES[:1].expand(N, N)),
        ["softmax"],
    ),
    "attention, added": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), attn_mask=0.1 * BUCKETS[:, :4]),
        ["softmax"],
    ),
    "attention, grouped": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x)[:, :1], heads(x)[:, :1], enable_gqa=True),
        ["expand", "softmax"],
    ),
    "gather": (lambda x: x.gather(-1, BUCKETS.expand(x.shape[0], N, 5)), ["gather", "expand"]),
    "gather once": (lambda x: x.gather(-1, ONCE.expand(x.shape[0], N, 3)), ["gather"]),
    "index": (lambda x: x[:, torch.tensor([2, 0, 2])], ["gather"]),
    "two indices": (lambda x: x[:, torch.tensor([2, 0]), torch.tensor([1, 5])], ["gather"]),
    "flip": (lambda x: x.flip(1) * x, ["gather", "multiply"]),
    "roll": (lambda x: x.roll(1, 2) * x, ["gather", "multiply"]),
    "split": (lambda x: torch.stack([a * b for a, b in [x.split([2, 4], -1)[1].chunk(2, -1)]], 1), ["multiply"]),
    "unbind": (lambda x: torch.stack(x.unbind(1)[::-1], dim=2), ["concat"]),
    "repeat": (lambda x: x.repeat(1, 2, 1) * torch.linspace(0, 1, 2 * N)[:, None], ["expand"]),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, dim=1) * torch.linspace(0, 1, 3 * N)[:, None], ["expand"]),
    "clamp": (lambda x: x.clamp(-0.3, 0.4) + F.hardtanh(x) + x.clamp(min=0.1), ["relu"]),
    "leaky": (lambda x: F.leaky_relu(x, 0.2) + x.abs() + F.relu6(x), ["relu"]),
    "max": (lambda x: x.amax(1) + x.max(dim=1).values, ["relu"]),
    "pairs": (lambda x: torch.maximum(x, 0.5 * x - 0.1) + torch.minimum(x, x.flip(1)), ["relu"]),
    "softplus": (lambda x: F.softplus(x) + F.softplus(x - 0.2, beta=2.0), ["softplus"]),
    "mish": (lambda x: F.mish(2 * x), ["mish"]),
    "hard": (lambda x: F.hardswish(4 * x) + F.hardsigmoid(x), ["relu", "multiply"]),
    "log_softmax": (lambda x: F.log_softmax(x, dim=-1) + 0.1 * F.log_softmax(x, dim=1), ["logsumexp", "add"]),
    "logsumexp": (lambda x: x.logsumexp(dim=1) + x.logsumexp(dim=1, keepdim=True)[:, 0], ["logsumexp"]),
    "pad": (lambda x: F.pad(x, (1, -1, 2, 0), value=0.5) * torch.linspace(0, 1, D), ["concat", "slice"]),
    "powers": (lambda x: x**3 + (x**2 + 1) ** 0.5 + (x**2 + 1) ** -0.5 + 0.1 * x**4, ["cube", "sqrt", "rsqrt"]),
    "gelu by tanh": (
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3)))),
        ["gelu_tanh"],
    ),
    "gelu by erf": (lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), ["gelu"]),
    "quick gelu": (lambda x: x * torch.sigmoid(1.702 * x), ["silu"]),
    "rms": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), ["normalize"]),
    "rms_norm": (lambda x: F.rms_norm(x, [D], torch.linspace(0.5, 1, D).to(x), 1e-6), ["normalize"]),
    "activations": (lambda x: F.gelu(x) + F.silu(x) + torch.sigmoid(x) + F.elu(x) + torch.erf(x), ["gelu", "elu"]),
    "patches": (lambda x: F.conv2d(x[:, None], ONES[:, :, :2, :3].to(x), stride=(2, 3)), ["linear"]),
    "convolution": (lambda x: F.conv2d(x[:, None], ONES.to(x), ONES[:, 0, 0, 0].to(x), padding=1), ["linear"]),
    "cumsum": (lambda x: x.cumsum(1) * torch.linspace(0, 1, D) + x.cumsum(-1).tanh(), ["cumsum"]),
    "steps": (lambda x: x[:, ::2, 1::3].tanh() * x[:, 1::2, ::3], ["gather", "multiply"]),
    "least": (lambda x: x.amin(1) + x.min(dim=1).values + x.max() - 0.5 * x.min(), ["relu"]),
    "unit vectors": (lambda x: F.normalize(x, dim=-1) + torch.linalg.vector_norm(x, dim=1, keepdim=True), ["sqrt"]),
    "batch norm": (
        lambda x: F.batch_norm(x.mT, torch.linspace(-1, 1, D).to(x), torch.linspace(0.5, 2, D).to(x), eps=0.1),
        ["shift", "scale"],
    ),
    "shapes only": (lambda x: x * torch.full_like(x, 0.5) + torch.zeros_like(x), ["scale"]),
    "baddbmm": (lambda x: torch.baddbmm(torch.ones(1, N, N).to(x), x, x.mT, beta=0.5, alpha=0.3), ["matmul"]),
}


class Case(nn.Module):
    """One of the functions, all of its entries mixed into three logits."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        y = self.function(x).flatten(1)
        mix = torch.cos(torch.arange(3 * y.shape[1], dtype=y.dtype)).reshape(-1, 3)
        return y @ mix


@cache
def case(name: str) -> Prepared:
    x = 1.2 * torch.randn(N, D, generator=torch.Generator().manual_seed(len(name)), dtype=torch.float64)
    return prepare(cf.load(Case(CASES[name][0]), num_labels=3), x)


@pytest.mark.parametrize("name", CASES)
def test_rewrites(name: str) -> None:
    prepared, expected = case(name), CASES[name][1]
    graph = problem_of([(prepared, (0,))], p=2.0, method="backward", relaxation="tight").compiled.plain.graph
    names = {node.op.name.split()[0] for node in graph.nodes}
    assert set(expected) <= names
    moved = prepared.embeddings + 0.3 * torch.randn(5, 1, N, D, dtype=torch.float64)
    torch.testing.assert_close(graph.values(moved)[-1][:, 0], torch.cat([prepared.model.module(m) for m in moved]))
    assert hold(prepared, method="backward", relaxation="tight", eps=0.1, p=2.0) == 3


OTHER_WAYS = (("backward-forward", "paper", 0.1), ("forward", "tight", 0.1), ("ibp", "tight", 0.01))


@pytest.mark.parametrize(("name", "way"), spread(list(CASES), OTHER_WAYS))
def test_rewrites_hold_in_other_ways_too(name: str, way: tuple[str, str, float]) -> None:
    method, relaxation, eps = way
    assert hold(case(name), method=method, relaxation=relaxation, eps=eps, p=2.0) == 3


def test_margins_of_log_softmax_are_those_of_the_logits() -> None:
    class Logits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (torch.tanh(x) * torch.linspace(0.5, 1, N)[:, None]).sum(dim=1)[:, :3]

    models = (cf.load(Logits()), cf.load(nn.Sequential(Logits(), nn.LogSoftmax(dim=-1))))
    one, two = (cf.bounds(m, X, eps=0.3, positions=[1], label=0, method="backward") for m in models)
    assert (one.upper - one.lower).min() > 0.1
    torch.testing.assert_close(one.lower, two.lower, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.upper, two.upper, rtol=1e-12, atol=1e-12)


def test_a_mask_of_one_head_leaves_the_other_alone() -> None:
    """Head 0 may not look at position 2: nothing of it depends on it. Head 1 does."""
    seen = torch.ones(2, N, N).bool()
    seen[0, :, 2] = False

    def head(k: int) -> Callable[[Tensor], Tensor]:
        def mixed(x: Tensor) -> Tensor:
            q = heads(torch.ones_like(x))
            return F.scaled_dot_product_attention(q, heads(x), heads(x), attn_mask=seen)[:, k, 0]

        return mixed

    blind, seeing = (
        cf.bounds(cf.load(Case(head(k))), X, eps=0.5, positions=[2], label=0, method="backward") for k in (0, 1)
    )
    assert (blind.upper - blind.lower).max() < 1e-9
    assert (seeing.upper - seeing.lower).min() > 0.01


def test_masked_columns_have_probability_zero_and_no_slack() -> None:
    prepared = prepare(cf.load(Case(lambda x: scores(x).masked_fill(LATER, -math.inf).softmax(-1)[:, :, 1, 2:])), X)
    found = cf.bounds(prepared.model, X, eps=1.0, positions=[[0, 1, 2, 3]], method="backward")
    assert (found.lower.abs() < 1e-12).all()
    assert (found.upper.abs() < 1e-12).all()


def test_all_reasons_come_at_once_with_what_to_write_instead() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(D, D), nn.LogSigmoid())

        def forward(self, x: Tensor) -> Tensor:
            y = self.block(x)
            y = y[:, y.sum(-1).argsort(dim=1)[0]]
            return (y.sin() ** 5).flatten(1)

    with pytest.raises(cf.UnsupportedError) as error:
        cf.bounds(cf.load(Odd()), X, eps=0.1)
    text = str(error.value)
    for piece in ("block.1", "[1, 4, 6]", "sort", "jumps", "sines of constants fold", "a power of 5", "nn.Softplus"):
        assert piece in text, piece

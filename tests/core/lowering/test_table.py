"""The table of operators: calls are read through the schema, and every argument is read or guarded."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.core.graph.agreement import points
from certiformer.core.graph.build import Builder
from certiformer.core.lowering import TABLE, Ref, Row, arguments
from certiformer.core.lowering.table import lowers
from certiformer.errors import ModelError, UnsupportedError

aten = torch.ops.aten
X = Ref(0)  # [1, 3, 4]
EXAMPLE = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
C = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(1, 3, 4)
W = torch.cos(torch.arange(20, dtype=torch.float64)).reshape(5, 4)
V = torch.linspace(0.5, 2, 4, dtype=torch.float64)
MASK = torch.tensor([[True, False, True, True], [False, True, False, True], [True, True, True, True]])
FILTERS = torch.sin(torch.arange(12, dtype=torch.float64)).reshape(2, 3, 2)
SQUARES = torch.sin(torch.arange(24, dtype=torch.float64)).reshape(2, 3, 2, 2)
SHAPES = {
    aten.mm.default: (4, 4),
    aten.addmm.default: (3, 4),
    aten.t.default: (3, 4),
    aten.conv2d.default: (1, 3, 4, 4),
}
POSITIVE = {aten.log.default, aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default}

# arguments that need no reading, and why
IN_THE_SHAPE = {"size", "shape", "dim", "sizes", "start_dim", "end_dim", "implicit", "output_size"}
NO_NUMBER = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "half_to_float"}
NO_NUMBER |= {"cudnn_enable", "cudnn_enabled", "sparse_grad", "momentum", "stride"}
WITHOUT_A_VALUE = {"self", "other", "a", "p"}  # of a shape or a type alone; the rate of a dropout that never drops

# calls of every operator: by place, keyword-only arguments by name
SAMPLES: dict[Any, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    aten.add.Tensor: [((X, C), {"alpha": 3}), ((C, X), {"alpha": 3}), ((X, X), {"alpha": -2}), ((X, 2.0), {})],
    aten.sub.Tensor: [((X, C), {"alpha": 3}), ((C, X), {"alpha": 3}), ((X, X), {"alpha": -2})],
    aten.rsub.Scalar: [((X, 2.0, 3), {}), ((X, 2.0), {})],
    aten.rsub.Tensor: [((X, C), {"alpha": 3}), ((C, X), {"alpha": 3}), ((X, V), {})],
    aten.neg.default: [((X,), {})],
    aten.mul.Tensor: [((X, C), {}), ((C, X), {}), ((X, X), {})],
    aten.mul.Scalar: [((X, 2.5), {})],
    aten.div.Tensor: [((X, V), {}), ((X, C[..., 1:2] + 3), {})],
    aten.div.Scalar: [((X, -2.5), {})],
    aten.pow.Tensor_Scalar: [((X, p), {}) for p in (1, 2, 3, 4)],
    aten.sum.dim_IntList: [((X, [1], True), {}), ((X, [-1, 0]), {}), ((X, None), {}), ((X, []), {}), ((X, 1), {})],
    aten.mean.dim: [((X, [1], True), {}), ((X, [-1, 0]), {}), ((X, None), {})],
    aten.linear.default: [((X, W), {}), ((X, W, W[:, 0]), {})],
    aten.matmul.default: [((X, W.T), {}), ((C[0].T, X), {}), ((X, C.mT), {})],
    aten.bmm.default: [((X, C.mT), {}), ((C.mT, X), {})],
    aten.mm.default: [((X, C[0].T), {}), ((W, X), {})],
    aten.addmm.default: [((V[:3], X, C[0].T), {"beta": 0.5, "alpha": 3}), ((V[:3], X, C[0].T), {})],
    aten.baddbmm.default: [((C[..., :3], X, C.mT), {"beta": 0.5, "alpha": 3}), ((C[..., :3], X, C.mT), {"beta": 0})],
    aten.gelu.default: [((X,), {}), ((X,), {"approximate": "tanh"})],
    aten.softplus.default: [((X,), {}), ((X, 2.0), {}), ((X, 2.0, 20), {})],
    aten.clamp.default: [((X, -0.1, 0.3), {}), ((X, None, 0.3), {}), ((X, 0.1), {})],
    aten.clamp_min.default: [((X, 0.1), {})],
    aten.clamp_max.default: [((X, 0.1), {})],
    aten.hardtanh.default: [((X,), {}), ((X, -0.2, 0.4), {})],
    aten.leaky_relu.default: [((X,), {}), ((X, 0.3), {})],
    aten.maximum.default: [((X, C), {}), ((V, X), {})],
    aten.minimum.default: [((X, C), {}), ((V, X), {})],
    aten.amax.default: [((X, [1]), {}), ((X, [-1, 1], True), {}), ((X,), {})],
    aten.amin.default: [((X, [1]), {}), ((X, [-1, 1], True), {}), ((X,), {})],
    aten.max.dim: [((X, 1), {}), ((X, -1, True), {})],
    aten.min.dim: [((X, 1), {}), ((X, -1, True), {})],
    aten.permute.default: [((X, [2, 0, -2]), {})],
    aten.transpose.int: [((X, 1, -1), {}), ((X, 0, 1), {})],
    aten.view.default: [((X, [2, 6]), {})],
    aten.reshape.default: [((X, [4, -1]), {})],
    aten._unsafe_view.default: [((X, [12]), {})],
    aten.unsqueeze.default: [((X, 1), {})],
    aten.squeeze.dim: [((X, 0), {}), ((X, 1), {})],
    aten.squeeze.dims: [((X, [0, 1]), {})],
    aten.squeeze.default: [((X,), {})],
    aten.flatten.using_ints: [((X,), {}), ((X, 1), {})],
    aten.unflatten.int: [((X, 2, [2, 2]), {})],
    aten.expand.default: [((X, [2, 3, 4]), {}), ((X, [5, -1, -1, -1]), {})],
    aten.slice.Tensor: [
        ((X,), {}),
        ((X, 1, 1), {}),
        ((X, -1, 0, -1), {}),
        ((X, 2, 0, 9, 2), {}),
        ((X, 2, 1, None, 3), {}),
    ],
    aten.select.int: [((X, 1, -1), {}), ((X, -1, 2), {})],
    aten.narrow.default: [((X, 2, 1, 2), {}), ((X, -1, -2, 2), {})],
    aten.split_with_sizes.default: [((X, [1, 3], -1), {}), ((X, [1]), {})],
    aten.split.Tensor: [((X, 3, 2), {}), ((X, 1), {})],
    aten.chunk.default: [((X, 3, -1), {}), ((X, 2, 1), {})],
    aten.unbind.int: [((X, 1), {}), ((X, -1), {}), ((X,), {})],
    aten.cat.default: [(([X, C], 1), {}), (([X, C],), {}), (([C, X], -1), {})],
    aten.stack.default: [(([X, C], 1), {}), (([X, C],), {}), (([C, X], -1), {})],
    aten.slice_scatter.default: [
        ((X, C[:, 1:2], 1, 1, 2), {}),
        ((torch.cat([C, C], -1), X, -1, 1, None, 2), {}),
        ((X, C), {}),
    ],
    aten.select_scatter.default: [((X, C[:, 1], 1, -1), {}), ((torch.stack([C, C], 2), X, 2, 1), {})],
    aten.adaptive_avg_pool1d.default: [((X, [2]), {}), ((X, [3]), {}), ((X, [1]), {})],
    aten.adaptive_avg_pool2d.default: [((X, [1, 1]), {}), ((X, [2, 4]), {}), ((X, [3, 3]), {})],
    aten.max_pool1d.default: [((X, [2]), {}), ((X, [3], [2], [1], [2]), {}), ((X, [3], [1]), {})],
    aten.max_pool2d.default: [((X, [2, 2]), {}), ((X, [2], [1, 2], [1, 0], [2, 1]), {}), ((X, [3, 3], [1], [1]), {})],
    aten.avg_pool1d.default: [((X, [2]), {}), ((X, [3]), {}), ((X, [2], [1]), {})],
    aten.avg_pool2d.default: [((X, [2, 2]), {}), ((X, [2], [1, 2]), {}), ((X, [3, 1], []), {})],
    aten.constant_pad_nd.default: [((X, [1, 2]), {}), ((X, [1, -1, 0, 2], 0.5), {})],
    aten.repeat.default: [((X, [1, 2, 3]), {}), ((X, [2, 1, 1, 1]), {})],
    aten.repeat_interleave.self_int: [((X, 2), {}), ((X, 3, 1), {}), ((X, 2, -1), {})],
    aten.gather.default: [((X, 2, torch.tensor([[[3, 0], [1, 1], [0, 2]]])), {})],
    aten.index_select.default: [((X, -1, torch.tensor([3, 0, 0])), {})],
    aten.index.Tensor: [((X, [None, torch.tensor([2, -1])]), {}), ((X, [None, None, V > 1]), {})],
    aten.flip.default: [((X, [1, -1]), {})],
    aten.roll.default: [((X, [1, -1], [1, 2]), {}), ((X, [2], [1]), {})],
    aten.where.self: [((MASK, X, C), {}), ((MASK, C, X), {}), ((MASK, X, X), {})],
    aten.masked_fill.Scalar: [((X, MASK, 2.0), {})],
    aten.masked_fill.Tensor: [((X, MASK, V[0]), {})],
    aten.softmax.int: [((X, -1), {}), ((X, 1, torch.float64), {})],
    aten._softmax.default: [((X, -1, False), {}), ((X, 1, False), {})],
    aten.log_softmax.int: [((X, -1), {}), ((X, 1), {})],
    aten._log_softmax.default: [((X, -1, False), {}), ((X, 1, False), {})],
    aten.logsumexp.default: [((X, [-1]), {}), ((X, [1], True), {})],
    aten.scaled_dot_product_attention.default: [
        ((X, C, X), {}),
        ((X, X, C, MASK[:, :3]), {"scale": 0.3}),
        ((X, X, C, C[..., :3]), {}),
        ((X, X, X, None, 0.0, True), {"scale": 2.0}),
    ],
    aten.layer_norm.default: [((X, [4]), {}), ((X, [4], V, V + 1, 0.1), {}), ((X, [4], None, V), {})],
    aten.native_layer_norm.default: [((X, [4], V, V + 1, 0.1), {}), ((X, [4], None, None, 1e-3), {})],
    aten.rms_norm.default: [((X, [4]), {}), ((X, [4], V, 0.1), {})],
    aten.batch_norm.default: [
        ((X, V[:3], V[1:], V[:3] - 1, V[1:], False, 0.1, 0.3, True), {}),
        ((X, None, None, V[:3], V[1:], False, 0.1, 1e-5, True), {}),
    ],
    aten._native_batch_norm_legit_no_training.default: [((X, V[:3], V[1:], V[:3] - 1, V[1:], 0.1, 0.3), {})],
    aten.linalg_vector_norm.default: [((X,), {}), ((X, 2, [-1], True), {}), ((X, 2.0, [1, 2]), {})],
    aten.cumsum.default: [((X, -1), {}), ((X, 1), {})],
    aten.dropout.default: [((X, 0.5, False), {})],
    aten.feature_dropout.default: [((X, 0.5, False), {})],
    aten.alpha_dropout.default: [((X, 0.5, False), {})],
    aten._to_copy.default: [((X,), {"dtype": torch.float64})],
    aten.to.dtype: [((X, torch.float64), {})],
    aten.to.device: [((X, torch.device("cpu"), torch.float64), {})],
    aten.to.dtype_layout: [((X,), {"dtype": torch.float64})],
    aten.type_as.default: [((X, C), {})],
    aten.full_like.default: [((X, 2.5), {})],
    aten.new_full.default: [((X, [2, 2], 2.5), {})],
    aten.new_zeros.default: [((X, [2, 2]), {})],
    aten.new_ones.default: [((X, [2, 2]), {})],
    aten.conv1d.default: [
        ((X, FILTERS), {}),
        ((X, FILTERS, V[:2], [2]), {}),
        ((X, FILTERS[:, :1].repeat(3, 1, 1), None, [1], [1], [2], 3), {}),
    ],
    aten.conv2d.default: [
        ((X, SQUARES, V[:2], [2, 2]), {}),
        ((X, SQUARES[:, :1].repeat(3, 1, 1, 1), None, [1, 1], [1, 1], [2], 3), {}),
    ],
    aten.convolution.default: [
        ((X, FILTERS, V[:2], [2], [0], [1], False, [0], 1), {}),
        ((X, FILTERS, None, [1], [1], [2], False, [0], 1), {}),
        ((X, FILTERS.transpose(0, 1), None, [2], [0], [1], True, [1], 1), {}),
    ],
}


CALLS = [(op, args, kwargs) for op in TABLE for args, kwargs in SAMPLES.get(op, [((X,), {})])]


def lowered(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Builder]:
    """What a call becomes; the builder compares it with the operator itself."""
    shape = SHAPES.get(operator, (1, 3, 4))
    x = points(torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64), (0.0, 1.0))
    builder = Builder(x.abs() + 0.1 if operator in POSITIVE else x)

    def plain(a: Any) -> Any:
        return [plain(v) for v in a] if isinstance(a, list) else builder.example[0] if isinstance(a, Ref) else a

    result = operator(*map(plain, args), **{name: plain(a) for name, a in kwargs.items()})
    return builder.call(operator, args, kwargs, result), builder


def described(found: Any, builder: Builder) -> list[Any]:
    """The nodes that were made and which of them came out."""
    ends = [f for f in (found if isinstance(found, (list, tuple)) else [found]) if isinstance(f, Ref)]
    return [ends, *((str(n), n.inputs) for n in builder.nodes), *builder.values]


@pytest.mark.parametrize(("operator", "args", "kwargs"), CALLS, ids=[str(c[0]) for c in CALLS])
def test_calls_by_place_and_by_name_become_the_same_nodes(operator: Any, args: Any, kwargs: Any) -> None:
    places = [a.name for a in operator._schema.arguments]
    by_place = described(*lowered(operator, args, kwargs))
    by_name = described(*lowered(operator, (), {**dict(zip(places, args, strict=False)), **kwargs}))
    in_full = described(*lowered(operator, (), arguments(operator, args, kwargs)))
    for other in (by_name, in_full):
        for mine, theirs in zip(by_place, other, strict=True):
            assert torch.equal(mine, theirs) if isinstance(mine, Tensor) else mine == theirs
    assert not lowered(operator, args, kwargs)[1].problems


def test_every_argument_that_is_read_is_given_a_value_that_matters() -> None:
    """In the calls above, everything that a row reads and that has a default differs from it at least once."""
    missing = []
    for operator, row in TABLE.items():
        schema = {a.name: a for a in operator._schema.arguments}
        calls = [arguments(o, args, kwargs) for o, args, kwargs in CALLS if o is operator]
        missing += [
            f"{operator}: {name}"
            for name in row.reads
            if schema[name].has_default_value()
            and all(isinstance(c[name], type(None)) or str(c[name]) == str(schema[name].default_value) for c in calls)
        ]
    assert set(missing) <= {
        "aten.full_like.default: dtype",  # types that are not the model's are refused, or change no number
        "aten.softplus.default: threshold",  # any but the default is refused
        "aten.linalg_vector_norm.default: ord",
        *(f"aten.{n}.default: dtype" for n in ("zeros_like", "ones_like", "new_zeros", "new_ones", "new_full")),
        "aten.scaled_dot_product_attention.default: enable_gqa",  # needs heads: tests/core/ops/test_rewrites.py
    }


@pytest.mark.parametrize("row", TABLE.values(), ids=[str(op) for op in TABLE])
def test_every_argument_is_read_or_guarded(row: Row) -> None:
    schema = {a.name: a for a in row.operator._schema.arguments}
    assert {*row.reads, *row.unread, *row.guarded} == set(schema)
    assert len(row.reads) + len(row.unread) + len(row.guarded) == len(schema)
    assert all(schema[name].has_default_value() for name in row.guarded)
    assert row.unread <= IN_THE_SHAPE | NO_NUMBER | WITHOUT_A_VALUE
    inspect.signature(row.function).bind(None, *row.reads, **row.variant)


class Refusing:
    """Notes what was refused, and builds nothing."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def unsupported(self, what: str) -> Ref:
        self.said.append(what)
        return X


@pytest.mark.parametrize("row", [r for r in TABLE.values() if r.guarded], ids=lambda r: str(r.operator))
def test_what_is_not_read_must_have_its_default_value(row: Row) -> None:
    needed = {a.name: X for a in row.operator._schema.arguments if not a.has_default_value()}
    for name in row.guarded:
        for odd in (17.5, X, C):
            build: Any = Refusing()
            row(build, (), {**needed, name: odd})
            assert len(build.said) == 1
            assert name in build.said[0]


def test_a_second_row_for_an_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"two rows for aten\.add\.Tensor"):
        lowers(aten.add.Tensor, "self other alpha")
    with pytest.raises(ValueError, match="says nothing of dim"):
        lowers(aten.cumprod.default, "self")
    with pytest.raises(ValueError, match="no argument dims"):
        lowers(aten.cumprod.default, "self dims")


def test_calls_that_a_schema_does_not_know_are_errors() -> None:
    for args, kwargs in (((X, C, 3), {}), ((X,), {}), ((X, C), {"other": C}), ((X, C), {"beta": 1})):
        with pytest.raises(TypeError, match=r"aten\.add\.Tensor"):
            arguments(aten.add.Tensor, args, kwargs)


def test_nodes_that_are_not_what_the_operator_computes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TABLE[aten.rsub.Scalar]
    monkeypatch.setitem(
        TABLE, aten.rsub.Scalar, Row(row.operator, TABLE[aten.sub.Tensor].function, row.reads, row.unread, {})
    )
    with pytest.raises(ModelError, match=r"the nodes made of aten\.rsub\.Scalar do not compute what it does"):
        lowered(aten.rsub.Scalar, (X, 2.0, 3), {})


def test_large_numbers_that_mask_others_hide_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TABLE[aten.softmax.int]
    wrong = Row(row.operator, TABLE[aten.log_softmax.int].function, row.reads, row.unread, {})
    monkeypatch.setitem(TABLE, aten.softmax.int, wrong)
    x = points(EXAMPLE, (0.0, 1.0))
    x[..., 2] = torch.finfo(torch.float64).min
    builder = Builder(x)
    with pytest.raises(ModelError, match=r"the nodes made of aten\.softmax\.int"):
        builder.call(aten.softmax.int, (X, -1), {}, x[0])


class Small(nn.Module):
    """`2 - 3 x` by `torch.rsub` with its factor by place, and logits of 1e-6."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.rsub(x, 2.0, alpha=3)
        y = torch.tanh(y).sum(dim=1)
        return 1e-6 * torch.cat([y[:, :1] + 1.0, y[:, 1:2]], dim=1)


def test_a_factor_by_place_is_not_lost_however_small_the_logits() -> None:
    x = torch.tensor([[0.5, 1.2], [0.9, -0.4]], dtype=torch.float64)
    model = cf.load(Small())
    found = cf.radius(model, x, positions=[[0]], norm=2)
    graph_module = Small()(x[None])
    label = int(graph_module.argmax())
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(20_000, 2, generator=generator, dtype=torch.float64)
    steps = steps / steps.norm(dim=1, keepdim=True)
    for scale in (1.0, 0.8):
        moved = x.expand(len(steps), 2, 2).clone()
        moved[:, 0] += scale * found.radii[0] * steps
        assert (Small()(moved).argmax(dim=1) == label).all()
    assert 0 < found.radii[0] < 10


def test_constants_may_pass_a_dropout_that_drops_nothing() -> None:
    """As those of position embeddings do."""
    found, builder = lowered(aten.dropout.default, (C, 0.5, False), {})
    assert torch.equal(found, C)
    assert not builder.problems
    assert "random numbers" in str(lowered(aten.dropout.default, (C, 0.5, True), {})[1].problems)


class Dropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, training=True)[:, 0]


def test_a_dropout_that_drops_at_inference_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="dropout"):
        cf.bounds(cf.load(Dropping()), EXAMPLE[0], eps=0.1, label=0)

"""A module at one point, with many digits: what torch.export writes down, call by call, without the package's table."""

from __future__ import annotations

import itertools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import torch
from torch import Tensor, nn

from .functions import ENTRYWISE, Array, each, exact, logsumexp, normalize, softmax, total

CALLS: dict[str, Callable[..., Any]] = {}


def _axes(dims: Any, rank: int) -> tuple[int, ...]:
    dims = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return tuple(sorted(d % rank for d in dims))


def _sum(x: Array, dims: Any = None, keepdim: bool = False, *, mean: bool = False, **_: Any) -> Array:
    axes = _axes(dims, x.ndim)
    out = total(x, axes, mean=mean)
    return out if keepdim else out.squeeze(axes)


def _extreme(x: Array, dims: Any = None, keepdim: bool = False, *, of: Any) -> Array:
    return np.asarray(of(x, axis=_axes(dims, x.ndim), keepdims=keepdim), dtype=object)


def _along(function: Callable[[Array], Array], x: Array, dim: int) -> Array:
    return np.moveaxis(function(np.moveaxis(x, dim, -1)), -1, dim)


def _add(x: Any, y: Any, alpha: float = 1) -> Array:
    return exact(x) + mp.mpf(alpha) * exact(y)


def _addmm(b: Array, x: Array, y: Array, beta: float = 1, alpha: float = 1) -> Array:
    return mp.mpf(beta) * b + mp.mpf(alpha) * (x @ y)


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    y = x @ weight.T
    return y if bias is None else y + bias


def _clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    y = x if low is None else np.maximum(x, exact(low))
    return y if high is None else np.minimum(y, exact(high))


def _pow(x: Array, k: float) -> Array:
    if k == 0.5:
        return ENTRYWISE["sqrt"](x)
    if k == -0.5:
        return ENTRYWISE["rsqrt"](x)
    whole = each(lambda v: v ** int(abs(k)))(x)
    return ENTRYWISE["reciprocal"](whole) if k < 0 else whole


def _layer_norm(x: Array, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Array:
    y = normalize(x - total(x, (x.ndim - 1,), mean=True), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _batch_norm(
    x: Array, weight: Any, bias: Any, mean: Array, variance: Array, training: bool, momentum: float, eps: float, *_: Any
) -> Array:
    assert not training
    mean, variance, weight, bias = (
        None if v is None else v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (mean, variance, weight, bias)
    )
    y = (x - mean) * ENTRYWISE["rsqrt"](variance + mp.mpf(eps))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _where(condition: Any, x: Any, y: Any) -> Array:
    return np.asarray(np.where(np.asarray(condition), exact(x), exact(y)), dtype=object)


def _split(x: Array, sizes: Any, dim: int = 0) -> list[Array]:
    if isinstance(sizes, int):
        sizes = [min(sizes, x.shape[dim] - k) for k in range(0, x.shape[dim], sizes)]
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=dim)


def _cut(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _put(x: Array, part: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    x, part = exact(x).copy(), exact(part)
    x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)] = part
    return x


def _windows(x: Array, windows: Sequence[Sequence[tuple[int, int]]], of: Any) -> Array:
    """Of the last axes what windows from some entry up to another come to, one axis after the other."""
    for axis, own in enumerate(windows, x.ndim - len(windows)):
        x = np.stack([of(x.take(range(*w), axis=axis), axis) for w in own], axis=axis)
    return x


def _mean(x: Array, axis: int) -> Array:
    return x.sum(axis=axis) / mp.mpf(x.shape[axis])


def _pooled(x: Array, sizes: Sequence[int], steps: Sequence[int] = (), *, of: Any) -> Array:
    behind, steps = x.shape[-len(sizes) :], steps or sizes
    own = [[(k, k + n) for k in range(0, w - n + 1, s)] for w, n, s in zip(behind, sizes, steps, strict=True)]
    return _windows(x, own, of)


def _adaptive(x: Array, sizes: Sequence[int]) -> Array:
    behind = x.shape[-len(sizes) :]
    own = [[(k * w // n, -(-(k + 1) * w // n)) for k in range(n)] for w, n in zip(behind, sizes, strict=True)]
    return _windows(x, own, _mean)


def _pad(x: Array, widths: Sequence[int], value: float = 0.0) -> Array:
    for k in range(len(widths) // 2):
        axis, (before, after) = x.ndim - 1 - k, widths[2 * k : 2 * k + 2]
        x = x.take(range(max(0, -before), x.shape[axis] - max(0, -after)), axis=axis)
        more = [(0, 0)] * x.ndim
        more[axis] = (max(0, before), max(0, after))
        x = np.pad(x, more, constant_values=mp.mpf(value or 0.0))
    return x


def _index(x: Array, indices: Sequence[Any]) -> Array:
    return x[tuple(slice(None) if i is None else np.asarray(i) for i in indices)]


def _repeat(x: Array, counts: Sequence[int]) -> Array:
    return np.tile(x, counts)


def _interleave(x: Array, count: int, dim: int | None = None, **_: Any) -> Array:
    return np.repeat(x, count, axis=dim)


def _attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    factor = 1 / mp.sqrt(q.shape[-1]) if scale is None else mp.mpf(scale)
    scores = factor * (q @ k.swapaxes(-1, -2))
    if is_causal:
        mask = np.tril(np.ones(scores.shape[-2:], dtype=bool))
    if mask is not None:
        mask = np.asarray(mask)
        scores = np.where(mask, scores, -mp.inf) if mask.dtype == bool else scores + exact(mask)
    return softmax(scores) @ v


def _convolution(x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Array:
    rank = w.ndim - 2
    stride, padding, dilation = (list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation))
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=mp.mpf(0))
    kernel = w.shape[2:]
    sizes = [(s - d * (k - 1) - 1) // t + 1 for s, d, k, t in zip(x.shape[2:], dilation, kernel, stride, strict=True)]
    out = exact(np.zeros((1, w.shape[0], *sizes)))
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(d * o, d * o + t * (n - 1) + 1, t) for o, d, t, n in zip(place, dilation, stride, sizes, strict=True)
        )
        for o, i in itertools.product(range(w.shape[0]), range(each_in)):
            source = x[(0, (o // each_out) * each_in + i, *window)]
            out[0, o] = out[0, o] + w[(o, i, *place)] * source
    return out if b is None else out + b.reshape(-1, *(1,) * rank)


def _any_convolution(
    x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
) -> Array:
    if not transposed:
        return _convolution(x, w, b, stride, padding, dilation, groups)
    assert (list(stride), list(padding), groups) == ([1], [0], 1)
    turned = w.swapaxes(0, 1)[:, :, ::-1]
    return _convolution(x, turned, b, [1], [w.shape[2] - 1], dilation, 1)


def _plain(x: Array, *_: Any, **__: Any) -> Array:
    return x


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    assert threshold == 20
    return ENTRYWISE["softplus"](x * mp.mpf(beta)) / mp.mpf(beta)


def _hardsigmoid(x: Array) -> Array:
    return _clamp(x + 3, 0, 6) / mp.mpf(6)


CALLS |= {
    name: ENTRYWISE[name]
    for name in [
        "relu",
        "exp",
        "reciprocal",
        "square",
        "sqrt",
        "tanh",
        "silu",
        "sigmoid",
        "erf",
        "mish",
        "rsqrt",
        "log",
    ]
}
CALLS |= dict.fromkeys(
    ["clone", "contiguous", "alias", "detach", "lift_fresh_copy", "_to_copy", "to", "type_as", "dropout", "detach_"],
    _plain,
)
CALLS |= {
    "elu": lambda x, *_: ENTRYWISE["elu"](x),
    "gelu": lambda x, approximate="none": ENTRYWISE["gelu_tanh" if approximate == "tanh" else "gelu"](x),
    "softplus": _softplus,
    "clamp": _clamp,
    "hardtanh": _clamp,
    "relu6": lambda x: _clamp(x, 0, 6),
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "abs": lambda x: abs(x),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, x * mp.mpf(slope)),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "maximum": lambda x, y: np.maximum(exact(x), exact(y)),
    "minimum": lambda x, y: np.minimum(exact(x), exact(y)),
    "amax": lambda *a: _extreme(*a, of=np.max),
    "amin": lambda *a: _extreme(*a, of=np.min),
    "max": lambda x, *a: (_extreme(x, *a, of=np.max), None) if a else _extreme(x, of=np.max),
    "min": lambda x, *a: (_extreme(x, *a, of=np.min), None) if a else _extreme(x, of=np.min),
    "cumsum": lambda x, dim, **_: x.cumsum(axis=dim),
    "linalg_vector_norm": lambda x, order=2, *a, **k: ENTRYWISE["sqrt"](_sum(x * x, *a, **k)),
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": lambda *a: (_batch_norm(*a[:5], False, *a[5:]), None, None),
    "add": _add,
    "sub": lambda x, y, alpha=1: _add(x, y, -alpha),
    "rsub": lambda x, y, alpha=1: _add(y, x, -alpha),
    "neg": lambda x: -x,
    "mul": lambda x, y: exact(x) * exact(y),
    "div": lambda x, y: exact(x) * ENTRYWISE["reciprocal"](exact(y)),
    "pow": _pow,
    "sum": _sum,
    "mean": lambda *a, **k: _sum(*a, mean=True, **k),
    "linear": _linear,
    **dict.fromkeys(("matmul", "bmm", "mm"), lambda x, y: x @ y),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    "layer_norm": _layer_norm,
    "native_layer_norm": lambda *a: (_layer_norm(*a), None, None),
    "rms_norm": lambda x, shape, weight=None, eps=None: normalize(x, eps) * (1 if weight is None else weight),
    "where": _where,
    "masked_fill": lambda x, mask, value: _where(mask, value, x),
    **dict.fromkeys(("softmax", "_softmax"), lambda x, dim, *_: _along(softmax, x, dim)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), lambda x, dim, *_: x - _along(logsumexp, x, dim)),
    "logsumexp": lambda x, dims, keepdim=False: (
        _along(logsumexp, x, dims[0]) if keepdim else _along(logsumexp, x, dims[0]).squeeze(dims[0])
    ),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(
        ("conv1d", "conv2d"),
        lambda x, w, b=None, stride=(1,), padding=(0,), dilation=(1,), groups=1: _convolution(
            x, w, b, stride, padding, dilation, groups
        ),
    ),
    "convolution": _any_convolution,
    "gather": lambda x, dim, index, **_: np.take_along_axis(_shortened(x, index, dim), np.asarray(index), axis=dim),
    "index_select": lambda x, dim, index: x.take(np.asarray(index), axis=dim),
    "index": _index,
    "slice_scatter": _put,
    "select_scatter": lambda x, y, dim, i: _put(
        x, np.expand_dims(exact(y), dim), dim, i % x.shape[dim], i % x.shape[dim] + 1
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), lambda *a: _pooled(*a, of=_mean)),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), lambda *a: _pooled(*a, of=np.max)),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive),
    "flip": lambda x, dims: np.flip(x, dims),
    "roll": lambda x, shifts, dims: np.roll(x, shifts, dims),
    "permute": lambda x, dims: x.transpose(dims),
    "transpose": lambda x, i, j: x.swapaxes(i, j),
    "t": lambda x: x.T,
    "mT": lambda x: x.swapaxes(-1, -2),
    "slice": _cut,
    "select": lambda x, dim, index: x.take(index, axis=dim),
    "narrow": lambda x, dim, start, length: _cut(x, dim, start, start + length),
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "chunk": lambda x, count, dim=0: _split(x, math.ceil(x.shape[dim] / count), dim),
    "unbind": lambda x, dim=0: [x.take(k, axis=dim) for k in range(x.shape[dim])],
    "cat": lambda parts, dim=0: np.concatenate([exact(p) for p in parts], axis=dim),
    "stack": lambda parts, dim=0: np.stack([exact(p) for p in parts], axis=dim),
    **dict.fromkeys(("constant_pad_nd", "pad"), lambda x, w, *a: _pad(x, w, *(v for v in a if v != "constant"))),
    "repeat": _repeat,
    "repeat_interleave": _interleave,
}


def _shortened(x: Array, index: Any, dim: int) -> Array:
    """What a gather may reach: it leaves out the end of other axes."""
    return x[tuple(slice(None) if a == dim % x.ndim else slice(s) for a, s in enumerate(index.shape))]


SHAPED = frozenset(["view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "expand"])
FILLED = frozenset(["zeros_like", "ones_like", "new_zeros", "new_ones", "full_like", "new_full"])
CHECKS = frozenset({"_assert_tensor_metadata"})


class Exact:
    """What a module computes, as torch.export has it."""

    def __init__(self, module: nn.Module, example: Tensor) -> None:
        self.unit = float(torch.finfo(example.dtype).eps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.program = torch.export.export(module, (example,), strict=False)

    def __call__(self, x: Array) -> Array:
        """The output at a point of the shape of the input."""
        signature = self.program.graph_signature
        constants = {**self.program.state_dict, **self.program.constants}
        lifted = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        lifted.update(signature.inputs_to_lifted_tensor_constants)
        env: dict[Any, Any] = {}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                env[node] = constants[lifted[node.name]] if node.name in lifted else x
            elif node.op == "get_attr":
                env[node] = getattr(self.program.graph_module, node.target)
            elif node.op == "output":
                return env[node.args[0][0]]
            else:
                args = torch.fx.node.map_arg(node.args, env.__getitem__)
                kwargs = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
                env[node] = self.step(node, args, kwargs)
        raise AssertionError("no output")

    def step(self, node: Any, args: Any, kwargs: Any) -> Any:
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not _touches((*args, *kwargs.values())):
            return node.target(*args, **kwargs)
        name = node.target._schema.name.removeprefix("aten::")
        if name in CHECKS:
            return None
        shape = tuple(node.meta["val"].shape) if isinstance(node.meta["val"], Tensor) else ()
        if name in FILLED:
            like = torch.empty(args[0].shape, dtype=node.meta["val"].dtype)
            return node.target(like, *args[1:], **kwargs)
        if name in SHAPED:
            return np.broadcast_to(args[0], shape) if name == "expand" else args[0].reshape(shape)
        if name == "rms_norm" and (len(args) < 4 or args[3] is None):
            args = (*args[:2], args[2] if len(args) > 2 else None, self.unit)
        args = tuple(_read(a) for a in args)
        found = CALLS[name](*args, **{k: _read(v) for k, v in kwargs.items()})
        return np.asarray(found, dtype=object) if isinstance(node.meta["val"], Tensor) else found


def _read(x: Any) -> Any:
    """Constants of fractions as exact numbers, those of whole numbers and of choices as they are."""
    if isinstance(x, Tensor):
        return exact(x) if x.is_floating_point() else x.numpy()
    return [_read(v) for v in x] if isinstance(x, (list, tuple)) else x


def _touches(x: Any) -> bool:
    return any(_touches(a) for a in x) if isinstance(x, (tuple, list)) else isinstance(x, np.ndarray)

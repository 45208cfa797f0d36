"""Small pieces of models, one or more for every operator that can be bounded: `[1, n, d] -> [1, n', d']` each.

A block is a function of a tensor and of what it is `given`: constants and choices, which are drawn when the model is
made and are the same at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
Function = Callable[[Tensor, Any], Tensor]
BLOCKS: dict[str, Function] = {}


def block(function: Function) -> Function:
    """Enter a function into the table of blocks."""
    BLOCKS[function.__name__] = function
    return function


def apart(x: Tensor) -> Tensor:
    """Something positive."""
    return x * x + 0.5


# ---- affine --------------------------------------------------------------------------------------------------------


@block
def linear(x: Tensor, given: Any) -> Tensor:
    width = 2 + given.pick(5)
    return F.linear(x, given.matrix(width, x.shape[-1]), given.numbers(width) if given.pick(2) else None)


@block
def from_the_right(x: Tensor, given: Any) -> Tensor:
    return x @ given.matrix(x.shape[-1], x.shape[-1])


@block
def from_the_left(x: Tensor, given: Any) -> Tensor:
    return given.matrix(x.shape[1], x.shape[1]) @ x


@block
def small_matrices(x: Tensor, given: Any) -> Tensor:
    d = x.shape[-1]
    y = torch.mm(x[0], given.matrix(d, d))
    y = torch.addmm(given.numbers(d), y, given.matrix(d, d), beta=0.5 * given.pick(3), alpha=-1.5)
    y = torch.bmm(y[None], given.matrix(1, d, d))
    return torch.baddbmm(given.numbers(1, 1, d), y, given.matrix(1, d, d), beta=given.pick(2), alpha=2)


@block
def sums(x: Tensor, given: Any) -> Tensor:
    y = torch.add(x, given.numbers(x.shape[-1]), alpha=-0.3)
    y = torch.sub(given.numbers(x.shape[1], 1), y, alpha=2)
    y = torch.rsub(y, 2.0, alpha=3)
    y = torch.rsub(y, given.numbers(1), alpha=0.1)
    return torch.sub(torch.add(y, x, alpha=-2), x, alpha=0.7)


@block
def factors(x: Tensor, given: Any) -> Tensor:
    y = -x * given.numbers(x.shape[-1]) / (1 + given.numbers(x.shape[1], 1) ** 2)
    y = aten.mul.Scalar(y, (1.7, -0.1, 0.0, 1.0)[given.pick(4)])
    return aten.div.Scalar(y, (3.0, -0.1, 7.0)[given.pick(3)]) + y / 3 + 0.1 * x


@block
def zeros_among_factors(x: Tensor, given: Any) -> Tensor:
    return x * (given.numbers(x.shape[1], x.shape[2]) > 0).to(x.dtype)


@block
def over_axes(x: Tensor, given: Any) -> Tensor:
    y = x.sum(dim=1, keepdim=True) - x.mean(dim=-1, keepdim=True)
    return y + x - x.mean(dim=-1, keepdim=True) + x.sum(dim=(1, 2))[:, None, None] - x.mean(dim=2)[:, :, None]


@block
def running_sums(x: Tensor, given: Any) -> Tensor:
    return x.cumsum(dim=1 + given.pick(2)) - x.cumsum(dim=-1)


@block
def convolution_1d(x: Tensor, given: Any) -> Tensor:
    d, size = x.shape[-1], min(2, x.shape[1])
    y = F.conv1d(x.mT, given.matrix(d, d, size), given.numbers(d), stride=1 + given.pick(2), padding=given.pick(2))
    return F.conv1d(y, given.matrix(d, 1, 1), groups=d).mT


@block
def convolution_2d(x: Tensor, given: Any) -> Tensor:
    weight = given.matrix(2, 1, *(min(1 + given.pick(2), size) for size in x.shape[1:]))
    return F.conv2d(x[None], weight, padding=given.pick(2)).flatten(2).mT


@block
def patches(x: Tensor, given: Any) -> Tensor:
    y = F.pad(x, (0, x.shape[2] % 2, 0, x.shape[1] % 2))
    return F.conv2d(y[None], given.matrix(3, 1, 2, 2), given.numbers(3), stride=2).flatten(2).mT


@block
def transposed_convolution(x: Tensor, given: Any) -> Tensor:
    d = x.shape[-1]
    return aten.convolution.default(x.mT, given.matrix(d, 2, 2), None, [1], [0], [1], True, [0], 1).mT


@block
def windows(x: Tensor, given: Any) -> Tensor:
    size, step = [min(2, s) for s in x.shape[1:]], 1 + given.pick(2)
    y = F.avg_pool2d(x, size, step) + F.max_pool2d(x, size, step)
    z = F.avg_pool1d(x, size[1], step)[:, : y.shape[1]] - F.max_pool1d(x, size[1], step)[:, : y.shape[1]]
    return y + z + F.adaptive_avg_pool2d(x, y.shape[1:]) + F.adaptive_avg_pool1d(x, y.shape[2])[:, : y.shape[1]]


# ---- entries moved -------------------------------------------------------------------------------------------------


@block
def entries_put_in_place(x: Tensor, given: Any) -> Tensor:
    y = torch.slice_scatter(x, x[:, ::2].tanh(), 1, 0, None, 2)
    return torch.select_scatter(y, y[:, :, 0].relu(), 2, -1)


@block
def axes_exchanged(x: Tensor, given: Any) -> Tensor:
    y = x.transpose(1, 2) @ given.matrix(x.shape[1], x.shape[1])
    return y.permute(0, 2, 1).mT + aten.t.default(x[0])[None]


@block
def other_shapes(x: Tensor, given: Any) -> Tensor:
    n, d = x.shape[1:]
    y = x.reshape(1, d, n).contiguous().view(1, n * d).unsqueeze(1).squeeze(1).flatten(0)
    y = aten._unsafe_view.default(y, [1, n, 1, d]).squeeze(2).squeeze(dim=(0,)).unflatten(0, (n, 1))
    return y.permute(1, 0, 2).squeeze().reshape(1, n, d)


@block
def copied(x: Tensor, given: Any) -> Tensor:
    y = x[:, :1].expand(1, x.shape[1], x.shape[2]) + x
    y = y.repeat(1, 1, 1 + given.pick(2)) if x.shape[2] < 5 else y
    return y.repeat_interleave(1 + given.pick(2), dim=1) if x.shape[1] < 4 else y


@block
def cut(x: Tensor, given: Any) -> Tensor:
    y = x[:, :, :: 1 + given.pick(2)] if x.shape[2] > 2 else x
    y = y.narrow(1, given.pick(y.shape[1]), 1) + y[:, given.pick(y.shape[1])][:, None] + y
    return y[:, given.pick(y.shape[1]) :]


@block
def split_up(x: Tensor, given: Any) -> Tensor:
    d = x.shape[2]
    a, *rest = x.split([1, d - 1], dim=2)
    rows, pieces, pairs = x.unbind(1), [*x.chunk(2, dim=2), *(rest if d > 1 else [])], x.split(2, dim=2)
    row = rows[given.pick(len(rows))][:, None, :1] - pairs[given.pick(len(pairs))][:, :, :1]
    return torch.cat([a, pieces[given.pick(len(pieces))], torch.zeros_like(a)], dim=2) + row


@block
def stacked(x: Tensor, given: Any) -> Tensor:
    y = torch.stack([x, -x, torch.ones_like(x)], dim=1 + given.pick(3))
    return y.reshape(1, -1, x.shape[-1])[:, :5]


@block
def padded(x: Tensor, given: Any) -> Tensor:
    y = F.pad(x, (given.pick(2), -given.pick(2), 1, 0), value=(0.0, 1.5)[given.pick(2)])
    return F.pad(y, (0, 0, -1, given.pick(2)))


@block
def gathered(x: Tensor, given: Any) -> Tensor:
    n, d = x.shape[1:]
    index = torch.tensor([[[given.pick(n) for _ in range(d)] for _ in range(n)]])
    y = x.gather(1, index) + x.index_select(2, torch.tensor([given.pick(d) for _ in range(d)]))
    y = y + x[:, torch.tensor([given.pick(n) for _ in range(n)])]
    pairs = x[:, torch.tensor([given.pick(n), -1]), torch.tensor([given.pick(d), 0])]
    return y + pairs[:, 1:, None]


@block
def turned(x: Tensor, given: Any) -> Tensor:
    return x.flip(1 + given.pick(2)) + x.roll(1, 1) - x.roll((1, -1), (1, 2))


# ---- functions of one variable -------------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "erf": torch.erf,
    "elu": F.elu,
    "mish": F.mish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "exp": torch.exp,
    "square": torch.square,
    "absolute": torch.abs,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "relu6": aten.relu6.default,
    "hardtanh": lambda x: F.hardtanh(x, -0.7, 1.3),
    "at_least": lambda x: aten.clamp_min.default(x, -0.3),
    "at_most": lambda x: aten.clamp_max.default(x, 0.3),
    "clamped": lambda x: x.clamp(-0.5, 0.25),
    "softplus": F.softplus,
    "softplus_3": lambda x: F.softplus(x, beta=3.0),
    "root": lambda x: torch.sqrt(apart(x)),
    "logarithm": lambda x: torch.log(apart(x)),
    "reciprocal": lambda x: torch.reciprocal(apart(x)),
    "inverse_root": lambda x: torch.rsqrt(apart(x)),
    "of_exp": lambda x: torch.log(torch.exp(x)) + torch.sqrt(torch.exp(x)),
    "powers": lambda x: x**2 + x**3 - x**4 + x**1,
    "inverse_powers": lambda x: apart(x) ** 0.5 + apart(x) ** -0.5 - apart(x) ** -1 + apart(x) ** -2,
    "gelu_spelt": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh_spelt": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu_spelt": lambda x: x * torch.sigmoid(1.702 * x),
}


def _activation(name: str, function: Callable[[Tensor], Tensor]) -> None:
    def of(x: Tensor, given: Any) -> Tensor:
        return function(x)

    BLOCKS[name] = of


for _name, _function in ACTIVATIONS.items():
    _activation(_name, _function)


@block
def largest(x: Tensor, given: Any) -> Tensor:
    y = torch.maximum(x, x.flip(2)) - torch.minimum(x, given.numbers(x.shape[-1]))
    y = y + x.amax(dim=1, keepdim=True) - x.amin(dim=-1, keepdim=True)
    return y + x.max(dim=2, keepdim=True).values - x.min(dim=1).values[:, None] + x.max() - x.min()


# ---- products and quotients ----------------------------------------------------------------------------------------


@block
def gated(x: Tensor, given: Any) -> Tensor:
    d = x.shape[-1]
    return torch.sigmoid(x @ given.matrix(d, d)) * (x @ given.matrix(d, d))


@block
def products(x: Tensor, given: Any) -> Tensor:
    return x * x + x * x.mean(dim=1, keepdim=True) - (x[:, :1] * x[:, :, :1])


@block
def quotients(x: Tensor, given: Any) -> Tensor:
    return x / (1 + torch.exp(x)) + 1.5 / apart(x.mean(dim=-1, keepdim=True))


@block
def gram(x: Tensor, given: Any) -> Tensor:
    return (x @ x.mT) @ x if given.pick(2) else torch.bmm(x, x.mT)


# ---- norms ---------------------------------------------------------------------------------------------------------


@block
def layer_norm(x: Tensor, given: Any) -> Tensor:
    d, eps = x.shape[-1], (1e-5, 1e-12, 1e-3, 0.0)[given.pick(4)]
    return F.layer_norm(x, (d,), given.numbers(d), given.numbers(d), eps=eps)


@block
def native_layer_norm(x: Tensor, given: Any) -> Tensor:
    return aten.native_layer_norm.default(x, [x.shape[-1]], None, given.numbers(x.shape[-1]), 1e-5)[0]


@block
def rms_norm(x: Tensor, given: Any) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), given.numbers(x.shape[-1]), eps=(None, 1e-6, 1e-12)[given.pick(3)])


@block
def rms_norm_spelt(x: Tensor, given: Any) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * given.numbers(x.shape[-1])


@block
def batch_norm(x: Tensor, given: Any) -> Tensor:
    n, eps = x.shape[1], (1e-5, 1e-3)[given.pick(2)]
    mean, variance, weight = given.numbers(n), given.numbers(n) ** 2, given.numbers(n)
    y = F.batch_norm(x, mean, variance, weight, None if given.pick(2) else given.numbers(n), eps=eps)
    return aten._native_batch_norm_legit_no_training.default(y, None, None, mean, variance, 0.1, eps)[0]


@block
def lengths(x: Tensor, given: Any) -> Tensor:
    y = torch.cat([x, torch.ones_like(x[:, :, :1])], dim=2)
    return x / y.norm(dim=-1, keepdim=True) + torch.linalg.vector_norm(y, dim=2)[:, :, None]


@block
def centered_only(x: Tensor, given: Any) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) * given.numbers(x.shape[-1]) + given.numbers(x.shape[-1])


# ---- attention -----------------------------------------------------------------------------------------------------


@block
def softmax(x: Tensor, given: Any) -> Tensor:
    return torch.softmax(x, dim=1 + given.pick(2)) + aten._softmax.default(x, -1, False)


@block
def of_logarithms(x: Tensor, given: Any) -> Tensor:
    y = F.log_softmax(x, dim=1 + given.pick(2)) + torch.logsumexp(x, dim=1, keepdim=True)
    return aten._log_softmax.default(y, -1, False) - torch.logsumexp(x, dim=2)[:, :, None]


@block
def of_one_entry(x: Tensor, given: Any) -> Tensor:
    return x * torch.softmax(x[:, :, :1], dim=-1) + torch.softmax(x[:, :1], dim=1)


@block
def of_equal_scores(x: Tensor, given: Any) -> Tensor:
    scores = x[:, :, :1].expand(1, x.shape[1], x.shape[1])
    return torch.softmax(scores, dim=-1) @ x


@block
def attention(x: Tensor, given: Any) -> Tensor:
    d = x.shape[-1]
    q, k, v = (x @ given.matrix(d, d) for _ in range(3))
    return torch.softmax(q @ k.mT / math.sqrt(d), dim=-1) @ v


@block
def masked_attention(x: Tensor, given: Any) -> Tensor:
    n, d = x.shape[1:]
    # a row keeps something: one that does not is uniform in floating point alone, where the mask swallows the scores
    hidden = (given.numbers(n, n) > 0.3) & ~torch.eye(n, dtype=torch.bool)
    low = (-math.inf, -1e30, float(torch.finfo(x.dtype).min))[given.pick(3)]
    scores = x @ given.matrix(d, d) @ x.mT
    kind = given.pick(3)
    if kind == 0:
        scores = scores.masked_fill(hidden, low)
    elif kind == 1:
        scores = torch.where(hidden, torch.full_like(scores, low), scores)
    else:
        scores = scores + torch.zeros_like(scores).masked_fill(hidden, low)
    return torch.softmax(scores, dim=-1) @ x


@block
def heads(x: Tensor, given: Any) -> Tensor:
    n, d = x.shape[1:]
    q, k, v = (F.linear(x, given.matrix(4, d)).view(1, n, 2, 2).transpose(1, 2) for _ in range(3))
    kind = given.pick(5)
    if kind == 0:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    elif kind == 1:
        kept = (given.numbers(n, n) > 0) | torch.eye(n, dtype=torch.bool)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=kept, scale=0.3)
    elif kind == 2:
        low = torch.where(given.numbers(n, n) > 0.5, -math.inf, 0.0).masked_fill(torch.eye(n, dtype=torch.bool), 0.0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=(low + given.numbers(n, n)).to(x.dtype))
    elif kind == 3:
        y = F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)
    else:
        y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(1, n, 4)


@block
def chosen(x: Tensor, given: Any) -> Tensor:
    kept = given.numbers(x.shape[1], x.shape[2]) > 0
    y = torch.where(kept, x, x.flip(1)) + x.masked_fill(kept, 0.5)
    return torch.where(kept, y, torch.full_like(x, 2.0)) + x.masked_fill(~kept, torch.tensor(1.5, dtype=x.dtype))


# ---- what changes no number ----------------------------------------------------------------------------------------


@block
def the_same(x: Tensor, given: Any) -> Tensor:
    y = aten.alias.default(aten.detach.default(x.clone().contiguous()))
    y = aten._to_copy.default(F.dropout(y, 0.1, training=False)).to(x.dtype).type_as(x)
    ones = x.new_ones(x.shape[-1]) + x.new_zeros(x.shape[-1]) + x.new_full((x.shape[-1],), 0.5)
    return y * ones + aten.lift_fresh_copy.default(x)

"""For an operator that cannot be bounded: the nearest spelling that can."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

DECIDES = "an answer that jumps with the embeddings has no linear bounds; make it a constant of the input"
HINTS = {
    "log1p": "nn.Softplus, or -nn.Softplus(-x) for LogSigmoid",
    "selu": "nn.ELU",
    "celu": "nn.ELU",
    "cumprod": "products of two tensors at a time",
    "native_batch_norm": "model.eval(): the mean and the variance of training",
    "native_group_norm": "nn.LayerNorm over the last axis, or nn.RMSNorm",
    "sin": "sines of constants fold; of embeddings they have no bounds here",
    "cos": "cosines of constants fold; of embeddings they have no bounds here",
    "prod": "products of two tensors at a time",
    "pow": "a constant exponent: 1/2, 1, 2, 3, 4 or their inverses",
    "scatter": "torch.cat of slices, or a product with a constant mask",
    "scatter_add": "a matrix product with a constant matrix",
    "index_put": "torch.where with a constant mask",
    "var": "((x - x.mean(-1, keepdim=True)) ** 2).mean(-1)",
}
JUMPS = frozenset(
    {
        *("argmax", "argmin", "topk", "sort", "argsort", "eq", "ne", "lt"),
        *("le", "gt", "ge", "round", "floor", "ceil", "sign", "nonzero"),
        *("isnan", "isinf", "any", "all", "logical_not", "logical_and", "logical_or", "bitwise_not"),
    }
)


def nearest(target: str, known: Iterable[str]) -> str:
    """What to write instead of an ATen operator, or an empty string."""
    name = target.removeprefix("aten.").split(".")[0]
    if name in JUMPS:
        return DECIDES
    if name in HINTS:
        return f"nearest supported: {HINTS[name]}"
    names = {k.removeprefix("aten.").split(".")[0] for k in known}
    close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.75)
    return f"nearest supported: {close[0]}" if close else ""

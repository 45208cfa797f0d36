"""For an operator that cannot be bounded: the nearest spelling that can."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

DECIDES = "an answer that jumps with the embeddings has no linear bounds; make it a constant of the input"
HINTS = {
    "log1p": "nn.Softplus, or -nn.Softplus(-x) for LogSigmoid",
    "selu": "nn.ELU",
    "celu": "nn.ELU",
    "native_group_norm": "nn.LayerNorm over the last axis, or nn.RMSNorm",
    "native_batch_norm": "fold the running mean and variance into the layer before, as constants",
    "_native_batch_norm_legit_no_training": "fold the running mean and variance into the layer before, as constants",
    "cumsum": "a matrix product with a constant triangular matrix",
    "sin": "sines of constants fold; of embeddings they have no bounds here",
    "cos": "cosines of constants fold; of embeddings they have no bounds here",
    "max": "torch.amax over an axis",
    "min": "-torch.amax(-x) over an axis",
    "amin": "-torch.amax(-x) over an axis",
    "prod": "products of two tensors at a time",
    "avg_pool2d": "a convolution with constant weights",
    "pow": "a constant exponent: 1/2, 1, 2, 3, 4 or their inverses",
    "scatter": "torch.cat of slices, or a product with a constant mask",
    "scatter_add": "a matrix product with a constant matrix",
    "index_put": "torch.where with a constant mask",
    "slice_scatter": "torch.cat of slices",
    "select_scatter": "torch.cat of slices",
    "linalg_vector_norm": "(x ** 2).sum(-1).sqrt()",
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

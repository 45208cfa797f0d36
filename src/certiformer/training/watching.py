"""What a forward pass shows of normalisations and attention, whatever the architecture, seen at torch's functions.

LayerNorm, RMSNorm, softmax and attention are recognised by their calls. Written out by hand, they are recognised by
what they compute: a root of the mean square, the variance or the length of a vector along the last axis is a
normalisation of that vector; `exp` divided by its own sum is a softmax. What `torch.nn.functional` has in Python
(`multi_head_attention_forward`) is looked into.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Role = Literal[
    "layer norm",
    "rms norm",
    "softmax",
    "variance",
    "spread",
    "length",
    "square",
    "power",
    "product",
    "total",
    "kept",
    "root",
    "exponential",
]
ROLES: dict[Any, Role] = {
    **dict.fromkeys((F.layer_norm, torch.layer_norm), "layer norm"),
    **dict.fromkeys((F.rms_norm, torch.rms_norm), "rms norm"),
    **dict.fromkeys((torch.softmax, Tensor.softmax, F.softmax), "softmax"),
    **dict.fromkeys((torch.var, Tensor.var), "variance"),
    **dict.fromkeys((torch.std, Tensor.std), "spread"),
    **dict.fromkeys((torch.linalg.vector_norm, torch.linalg.norm, torch.norm, Tensor.norm), "length"),
    **dict.fromkeys((torch.square, Tensor.square), "square"),
    **dict.fromkeys((torch.pow, Tensor.pow, Tensor.__pow__), "power"),
    **dict.fromkeys((torch.mul, Tensor.mul, torch.multiply, Tensor.multiply), "product"),
    **dict.fromkeys((torch.mean, Tensor.mean, torch.sum, Tensor.sum), "total"),
    **dict.fromkeys((torch.add, Tensor.add, torch.clamp, Tensor.clamp, torch.clamp_min, Tensor.clamp_min), "kept"),
    **dict.fromkeys((torch.div, Tensor.div, Tensor.__truediv__, torch.true_divide, Tensor.true_divide), "kept"),
    **dict.fromkeys((torch.maximum, Tensor.maximum, Tensor.float, Tensor.double, Tensor.to, Tensor.type_as), "kept"),
    **dict.fromkeys((torch.sqrt, Tensor.sqrt, torch.rsqrt, Tensor.rsqrt), "root"),
    **dict.fromkeys((torch.exp, Tensor.exp), "exponential"),
}
_UNASKED = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

Kind = Literal["square", "mean square", "exponential"]


class Seen(NamedTuple):
    """What a forward pass showed: inputs of LayerNorms `[batch, ..., d]`, centred; scores `[batch, ..., q, k]`; and the
    answer `[batch, labels]`, as a list of one."""

    norms: list[Tensor]
    scores: list[Tensor]
    answers: list[Tensor]


class _Trace(NamedTuple):
    """That a tensor is a function of another, and both, so that neither's address is given to a third."""

    kind: Kind
    source: Tensor
    made: Tensor


class Watch(TorchFunctionMode):
    """Keeps the inputs of normalisations and softmaxes of what is run within it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen([], [], [])
        self._traces: dict[int, _Trace] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, role = kwargs or {}, ROLES.get(func)
        if func is F.scaled_dot_product_attention:
            self.seen.scores.append(_scores(*args, **given))
        elif role is None and isinstance(func, FunctionType) and func.__module__ == F.__name__:
            with self:
                return _looked_into(func)(*args, **given)
        found = func(*args, **given)
        if role is not None and isinstance(found, Tensor):
            x: Tensor = args[0] if args else given["input"]
            if isinstance(x, Tensor):
                self._called(role, x, args[1:], given, found)
        return found

    def _called(self, role: Role, x: Tensor, rest: Any, given: Mapping[str, Any], found: Tensor) -> None:
        """Keep what is normalised, and follow what may become a normalisation or a softmax that is written out."""
        before = self._traces.get(id(x))
        kind, source = (None, x) if before is None else (before.kind, before.source)
        if role in ("layer norm", "rms norm"):
            self.seen.norms.append(_centred(x) if role == "layer norm" else x)
        elif (
            role == "square" or (role == "power" and rest[:1] == (2,)) or (role == "product" and rest and rest[0] is x)
        ):
            self._note("square", x, found)
        elif kind == "mean square" and (role == "root" or (role == "power" and rest[:1] in ((0.5,), (-0.5,)))):
            self.seen.norms.append(source)
        elif kind == "mean square" and role in ("kept", "product"):
            self._note("mean square", source, found)
        elif role == "exponential":
            self._note("exponential", x, found)
        elif role in ("softmax", "variance", "spread", "length", "total") and _last(x, rest, given):
            self._over_vectors(role, kind, source, x, found) if role != "length" or _euclidean(rest, given) else None

    def _over_vectors(self, role: Role, kind: Kind | None, source: Tensor, x: Tensor, found: Tensor) -> None:
        """A call that takes the vectors along the last axis each as a whole."""
        if role == "softmax" or (role == "total" and kind == "exponential"):
            if x.dim() >= 3:
                self.seen.scores.append(x if role == "softmax" else source)
        elif role == "total" and kind == "square":
            self._note("mean square", source, found)
        elif role == "variance":
            self._note("mean square", _centred(x), found)
        elif role == "spread":
            self.seen.norms.append(_centred(x))
        elif role == "length":
            self.seen.norms.append(x)

    def _note(self, kind: Kind, source: Tensor, made: Tensor) -> None:
        self._traces[id(made)] = _Trace(kind, source, made)


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=-1, keepdim=True)


def _last(x: Tensor, rest: Any, given: Mapping[str, Any]) -> bool:
    """Whether a call reduces the last axis of x and no other: `dim` is the first whole number (or list of one)."""
    listed = (given.get("dim"), given.get("axis"), *rest)
    for value in listed:
        axes = value if isinstance(value, (tuple, list)) else (value,)
        if axes and all(isinstance(a, int) and not isinstance(a, bool) for a in axes):
            return tuple(axes) in ((-1,), (x.dim() - 1,)) and x.shape[-1] > 1
    return False


def _euclidean(rest: Any, given: Mapping[str, Any]) -> bool:
    order = given.get("ord", given.get("p", rest[0] if rest and not isinstance(rest[0], (tuple, list)) else 2))
    return order in (2, "fro", None)


def _looked_into(func: FunctionType) -> Callable[..., Any]:
    """A function of torch.nn.functional that does not ask whether somebody else wants to handle the call."""
    names = {**func.__globals__, **dict.fromkeys(_UNASKED, lambda *_: False)}
    inner = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    inner.__kwdefaults__ = func.__kwdefaults__
    return inner


def _scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The scores that `scaled_dot_product_attention` takes its softmax of."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    s = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    if attn_mask is None:
        return s
    return s.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else s + attn_mask

"""Functions of one variable and of a row, with many digits, on arrays of mpmath's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import torch

Array = Any  # numpy.ndarray of mpmath.mpf
LARGEST = mp.mpf(10) ** 400


class TooLarge(Exception):
    """A number whose exponential would fill the memory."""


class Undefined(Exception):
    """A quotient by zero, or the root or the logarithm of what has none."""


def exact(x: Any) -> Array:
    """A tensor, an array or a number, digit for digit."""
    if isinstance(x, torch.Tensor):
        x = x.detach().double().numpy() if x.is_floating_point() else x.numpy()
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x
    if isinstance(x, np.ndarray) and x.dtype == bool:
        return x
    return each(lambda v: mp.mpf(float(v)))(np.asarray(x))


def each(function: Callable[[Any], Any]) -> Callable[..., Array]:
    """A function of one number, applied to every entry."""
    whole = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(whole(np.asarray(x, dtype=object)), dtype=object)


def _exp(x: Any) -> Any:
    if abs(x) > LARGEST and not mp.isinf(x):
        raise TooLarge
    return mp.exp(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def _reciprocal(x: Any) -> Any:
    if x == 0:
        raise Undefined
    return 1 / x


def _sqrt(x: Any) -> Any:
    if x < 0:
        raise Undefined
    return mp.sqrt(x)


def _log(x: Any) -> Any:
    if x <= 0:
        raise Undefined
    return mp.log(x)


def _log1p_exp(x: Any) -> Any:
    return x + mp.log1p(_exp(-x)) if x > 0 else mp.log1p(_exp(x))


def _tanh(x: Any) -> Any:
    e = _exp(-2 * abs(x))
    return mp.sign(x) * -mp.expm1(-2 * abs(x)) / (1 + e) if x else x


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))


def _gelu(x: Any) -> Any:
    if abs(x) > LARGEST:
        raise TooLarge
    return x * mp.erfc(-x / mp.sqrt(2)) / 2 if x < 0 else x * (1 + mp.erf(x / mp.sqrt(2))) / 2


ENTRYWISE: dict[str, Callable[[Array], Array]] = {
    name: each(function)
    for name, function in {
        "relu": lambda x: max(x, mp.mpf(0)),
        "exp": _exp,
        "reciprocal": _reciprocal,
        "square": lambda x: x * x,
        "sqrt": _sqrt,
        "tanh": _tanh,
        "gelu": _gelu,
        "gelu_tanh": _gelu_tanh,
        "silu": lambda x: x * _sigmoid(x),
        "sigmoid": _sigmoid,
        "erf": mp.erf,
        "elu": lambda x: x if x > 0 else mp.expm1(x),
        "softplus": lambda x: x if x > 20 else _log1p_exp(x),
        "mish": lambda x: x * _tanh(_log1p_exp(x)),
        "rsqrt": lambda x: _reciprocal(_sqrt(x)),
        "log": _log,
        "cube": lambda x: x * x * x,
    }.items()
}


def total(x: Array, axes: tuple[int, ...], *, mean: bool = False) -> Array:
    """The sum or the mean over axes, which stay with size 1."""
    count = int(np.prod([x.shape[a] for a in axes]))
    out = np.asarray(x.sum(axis=axes, keepdims=True), dtype=object)
    return out / mp.mpf(count) if mean else out


def softmax(x: Array) -> Array:
    """Over the last axis."""
    e = ENTRYWISE["exp"](x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def logsumexp(x: Array) -> Array:
    """Over the last axis, which stays with size 1."""
    top = x.max(axis=-1, keepdims=True)
    return top + ENTRYWISE["log"](ENTRYWISE["exp"](x - top).sum(axis=-1, keepdims=True))


def normalize(x: Array, eps: float) -> Array:
    """Over the last axis."""
    return x * ENTRYWISE["rsqrt"](total(x * x, (x.ndim - 1,), mean=True) + mp.mpf(eps))


def of_differences(x: Array) -> Array:
    """`1 / sum_k exp(z_jk)`, zero on the diagonal."""
    own = np.eye(x.shape[-1], dtype=bool)
    z = np.where(own, mp.mpf(0), x)
    return softmax(z)[..., own.nonzero()[0], own.nonzero()[1]].reshape(x.shape[:-1])

"""What a float32 evaluation of an op may be off by.

A forward pass in float32 computes, at every op, the op's value at what it computed before, plus an error. `Rounded` is
the node of that error: any number within `error` of its input. A graph with such a node behind every op that rounds
encloses every float32 evaluation of the model, whatever the order of its sums: the ops themselves stay real functions.

Assumed of the evaluation (u = 2^-24):

- additions and products are rounded to nearest, or are part of a fused multiply-add; quotients, reciprocals and roots
  are within 4 u; numbers below 2^-126 may be flushed to zero;
- sums, of products or not, are computed term by term, in any order, grouping or blocking;
- exp within 20 ulp and `2 |x|` u, tanh, erf and the sigmoid within 8 u, log within 4 u of `1 + |log x|`;
- softmax takes the largest score off first (in blocks or at once), and LayerNorm finds mean and variance in one pass or
  two, by Welford's updates, or from the mean of squares;
- a tensor that is used twice was computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Box, C, Op, Planes, Shape, Slope, letters, outward
from .cumsum import CumSum
from .elementwise import Exp, Reciprocal, Relu, Sqrt, Square, Tanh
from .linear import Add, Center, Linear, Scale, Shift, Sum, align
from .movement import Movement
from .normalize import Normalize
from .product import MatMul, Multiply
from .smooth import Cube, Elu, Erf, Gelu, GeluTanh, Log, Mish, Rsqrt, Sigmoid, Silu, Softplus
from .softmax import OfDifferences, Softmax

UNIT = 2.0**-24  # of float32
TINY = 2.0**-126  # its smallest normal number
LEAST = (
    2.0**12 * TINY / UNIT
)  # added to sizes: `gamma(k) LEAST` covers thousands of numbers lost below that, and k times as many
MOST = 2.0**100  # an error this large may be an overflow: the numbers behind it are at most 2^24 times that
LARGEST = 2.0**127
Error = Callable[..., Tensor]


@dataclass(frozen=True)
class Rounded(Op):
    """Any number within the error of a float32 evaluation of `op` around the input; without an op, its nearest float32.

    The error depends on the boxes of the inputs of `op`, which the node *reads* without being a function of them.
    """

    name = "rounded"
    op: Op | None = None

    def forward(self, *x: Tensor) -> Tensor:
        return x[0]

    def error(self, *boxes: Box) -> Tensor:
        """A bound on the error, entry by entry, for what `op` is given in these boxes."""
        return gamma(2) * magnitude(boxes[0]) if self.op is None else ERRORS[type(self.op)](self.op, *boxes)

    def reason(self, path: str) -> str:
        """Why nothing is proved where the error is too large."""
        what = "the input" if self.op is None else self.op.name
        return f"a float32 evaluation of {what}{f' at {path}' if path else ''} may overflow or lose its precision"

    def interval(self, *boxes: Box) -> Box:
        raise TypeError("the range of a rounded value depends on what it reads")

    def widened(self, box: Box, error: Tensor) -> Box:
        """The box of the rounded value."""
        lower, upper = box.lower - error, box.upper + error
        return Box(*outward(lower, upper, torch.maximum(lower.abs(), upper.abs()), ulps=2))

    def around(self, error: Tensor, shape: Shape) -> Planes:
        """Planes at a distance of the error below and above the input."""
        axes, one = letters(len(shape)), error.new_ones(1)
        error = error.expand(error.shape[0], *shape)
        return Planes(axes, (Slope(axes, "", one, one),), -error, error)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...] | None:
        return (a,)

    def floor(self, *floors: float) -> float:
        """What is never negative is not rounded to a negative number."""
        return 0.0 if floors[0] >= 0 else -math.inf

    @classmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        yield from ()


def rounds(op: Op) -> bool:
    """Whether a float32 evaluation of an op may round at all."""
    if isinstance(op, Scale):
        return not bool(((op.value == 0) | (op.value.abs() == 1)).all())
    return not isinstance(op, (Movement, Relu))


def known(op: Op) -> bool:
    """Whether the error of an op is known."""
    return type(op) in ERRORS


def representable(x: Tensor) -> bool:
    """Whether numbers are float32 numbers, and normal ones or zero."""
    near = x.float()
    return bool(((near.to(x.dtype) == x) & ((x == 0) | (x.abs() >= TINY)) & torch.isfinite(near)).all())


def gamma(terms: float) -> float:
    """`k u / (1 - k u)`, and a little for the rounding of the bound itself; infinite where sums may lose everything."""
    k = terms * UNIT
    return math.inf if k >= 0.25 else 1.01 * k / (1 - 3 * k)


def magnitude(box: Box) -> Tensor:
    """The largest size of every entry, with what may be flushed to zero."""
    return torch.maximum(box.lower.abs(), box.upper.abs()) + LEAST


# ---- the errors ----------------------------------------------------------------------------------------------------


def _linear(op: Linear, x: Box) -> Tensor:
    weight = op.weight.abs() + LEAST
    size = magnitude(x) @ weight.T + LEAST
    return gamma(weight.shape[1] + 8) * (size if op.bias is None else size + op.bias.abs())


def _add(op: Add, x: Box, y: Box) -> Tensor:
    a, b = align(magnitude(x), magnitude(y))
    return gamma(4) * (a + abs(op.sign) * b)


def _shift(op: Shift, x: Box) -> Tensor:
    return gamma(4) * (magnitude(x) + op.value.abs())


def _scale(op: Scale, x: Box) -> Tensor:
    return gamma(6) * (magnitude(x) * (op.value.abs() + LEAST) + LEAST)


def _sum(op: Sum, x: Box) -> Tensor:
    return gamma(op.count(x.shape) + 4) * op.forward(magnitude(x))


def _cumsum(op: CumSum, x: Box) -> Tensor:
    return gamma(x.shape[-1] + 4) * op.forward(magnitude(x))


def _center(op: Center, x: Box) -> Tensor:
    size = magnitude(x)
    return 2 * gamma(x.shape[-1] + 8) * size.mean(dim=-1, keepdim=True) + gamma(8) * size


def _multiply(op: Multiply, x: Box, y: Box) -> Tensor:
    a, b = align(magnitude(x), magnitude(y))
    return gamma(4) * (a * b + LEAST)


def _matmul(op: MatMul, x: Box, y: Box) -> Tensor:
    return gamma(x.shape[-1] + 16) * (magnitude(x) @ magnitude(y) + LEAST)


def _softmax(op: Softmax, x: Box) -> Tensor:
    """Every probability to within its share: of n exponentials, each of a difference of at most `width`."""
    width = x.upper.amax(dim=-1, keepdim=True) - x.lower.amin(dim=-1, keepdim=True)
    return _probabilities(op.interval(x).upper, width)


def _of_differences(op: OfDifferences, z: Box) -> Tensor:
    width = torch.maximum(z.lower.abs(), z.upper.abs()).amax(dim=(-2, -1)).unsqueeze(-1)
    return _probabilities(op.interval(z).upper, width)


def _probabilities(most: Tensor, width: Tensor) -> Tensor:
    share = gamma(4 * most.shape[-1] + 160) + 16 * UNIT * width
    return torch.where(share < 0.25, 1.5 * share * (most + LEAST), math.inf)


def _normalize(op: Normalize, z: Box, x: Box | None = None) -> Tensor:
    """`y = z / sigma`; with x, where `z = x - mean(x)` is part of the same LayerNorm.

    The mean is off by `gamma mean|x|`, and `sigma^2` by `gamma (sigma^2 + mean(x^2))` however the variance is found.
    """
    n = z.shape[-1]
    _, low, _ = op.lengths(z)
    sigma = low / math.sqrt(n) * (1 - 2.0**-20)
    sigma = torch.where(sigma > 0, sigma, math.nan)
    size = magnitude(z if x is None else x)
    squares = (size * size).mean(dim=-1, keepdim=True)
    share = 8 * gamma(2 * n + 16) * (1 + (0.0 if x is None else squares / (sigma * sigma))) + 4 * TINY / (sigma * sigma)
    found = magnitude(op.interval(z)) * (share + gamma(16))
    if x is not None:
        found = found + (2 * gamma(n + 8) * size.mean(dim=-1, keepdim=True) + gamma(8) * size) / sigma
    return torch.where((share < 0.25) & (n * squares < LARGEST / 4), 2 * found, math.inf)


def _of_value(units: float, value: Callable[[Tensor, Box], Tensor]) -> Error:
    """`gamma(units)` of a function of the sizes of the input and its box."""
    return lambda op, x: gamma(units) * value(magnitude(x), x)


def _above(x: Box) -> Tensor:
    """The lower end of a box of positive numbers; not a number where it may be flushed to zero."""
    return torch.where(x.lower >= TINY, x.lower, math.nan)


ERRORS: dict[type[Op], Error] = {
    Linear: _linear,
    Add: _add,
    Shift: _shift,
    Scale: _scale,
    Sum: _sum,
    CumSum: _cumsum,
    Center: _center,
    Multiply: _multiply,
    MatMul: _matmul,
    Softmax: _softmax,
    OfDifferences: _of_differences,
    Normalize: _normalize,
    Exp: _of_value(48, lambda m, x: (1 + m) * x.upper.exp() + LEAST),
    Reciprocal: _of_value(8, lambda m, x: 1 / _above(x) + LEAST),
    Rsqrt: _of_value(8, lambda m, x: 1 / _above(x).sqrt()),
    Sqrt: _of_value(8, lambda m, x: m.sqrt() + 2.0**-40),  # the root of what is flushed to zero
    Square: _of_value(8, lambda m, x: m * m + LEAST),
    Cube: _of_value(16, lambda m, x: m * m * m + LEAST),
    Log: _of_value(16, lambda m, x: 1 + torch.maximum(_above(x).log().abs(), x.upper.log().abs())),
    Tanh: _of_value(16, lambda m, x: torch.ones_like(m)),
    Sigmoid: _of_value(16, lambda m, x: torch.ones_like(m)),
    Erf: _of_value(16, lambda m, x: torch.ones_like(m)),
    Elu: _of_value(48, lambda m, x: torch.ones_like(m)),
    Softplus: _of_value(48, lambda m, x: 1 + m),
    Gelu: _of_value(32, lambda m, x: m),
    GeluTanh: _of_value(32, lambda m, x: m),
    Silu: _of_value(48, lambda m, x: m),
    Mish: _of_value(64, lambda m, x: m),
}

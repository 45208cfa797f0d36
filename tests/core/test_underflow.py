"""Numbers below the smallest normal one: what is lost there is in the bounds, however large later layers make it."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import pytest
import torch
from torch import Tensor, nn

import certiformer as cf
from certiformer.questions.inputs import prepare, problem_of
from enclosure import WAYS

Matrix = list[list[Any]]
DIGITS = 60


class Scaled(nn.Module):
    """Two linear maps, a normalisation, and a head, each of its own size: `[batch, n, 4] -> [batch, 3]`."""

    def __init__(self, kind: str, sizes: tuple[float, float, float], eps: float, *, relu: bool) -> None:
        super().__init__()
        self.kind, self.eps, self.relu = kind, eps, relu
        first, second, head = (
            torch.randn(4, k, dtype=torch.float64) * s for k, s in zip((4, 4, 3), sizes, strict=True)
        )
        self.register_buffer("first", first)
        self.register_buffer("second", second)
        self.register_buffer("head", head)

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.first @ self.second
        z = torch.relu(z) if self.relu else z
        norm = nn.functional.layer_norm if self.kind == "layer" else nn.functional.rms_norm
        out: Tensor = norm(z, (4,), eps=self.eps).sum(1) @ self.head
        return out

    def exact(self, x: Tensor) -> list[Any]:
        """The same with many digits."""
        z = _product(_product(_matrix(x), _matrix(self.first)), _matrix(self.second))
        if self.relu:
            z = [[max(v, mp.mpf(0)) for v in row] for row in z]
        total = [mp.mpf(0)] * 4
        for row in z:
            if self.kind == "layer":
                mean = sum(row) / 4
                row = [v - mean for v in row]
            sigma = mp.sqrt(sum(v * v for v in row) / 4 + mp.mpf(self.eps))
            total = [t + v / sigma for t, v in zip(total, row, strict=True)]
        return _product([total], _matrix(self.head))[0]


def _matrix(x: Any) -> Matrix:
    return [[mp.mpf(v) for v in row] for row in x.tolist()]


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(
    ("size", "sizes", "eps", "relu"),
    [
        (1e-170, (1e-150, 1e150, 1.0), 1e-12, False),  # the first product loses digits, the second brings them back
        (1e-170, (1e-150, 1e200, 1e-100), 1e-12, True),
        (1.0, (1e-310, 1e150, 1.0), 1e-5, False),
        (1e-310, (1.0, 1e140, 1e-166), 1e-12, False),
        (1.0, (1e-310, 1e100, 1e-166), 1e-320, True),  # the squares of the coefficients vanish too
        (1.0, (1.0, 1.0, 1e-200), 1e-5, True),
    ],
)
def test_exact_values_are_within_the_bounds(
    kind: str, size: float, sizes: tuple[float, float, float], eps: float, relu: bool
) -> None:
    torch.manual_seed(0)
    module, x = Scaled(kind, sizes, eps, relu=relu), torch.randn(3, 4, dtype=torch.float64) * size
    prepared = prepare(cf.Model(module=module.eval()), x)
    with mp.workdps(DIGITS):
        logits = module.exact(x)
        margins = [logits[prepared.label] - v for k, v in enumerate(logits) if k != prepared.label]
        for method, relaxation in WAYS:
            problem = problem_of([(prepared, (1,))] * 2, p=2.0, method=method, relaxation=relaxation)
            found = problem.margins(torch.tensor([0.0, size / 100], dtype=torch.float64))
            for lower, upper in zip(found.lower.tolist(), found.upper.tolist(), strict=True):
                for low, exact, high in zip(lower, margins, upper, strict=True):
                    assert mp.mpf(low) <= exact <= mp.mpf(high), (method, relaxation)

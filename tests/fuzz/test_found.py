"""What was found, one by one."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch
from torch import Tensor, nn

import certiformer as cf

from .cases import margins
from .functions import exact
from .modules import Exact


class Cancelling(nn.Module):
    """`x - 0.3 c` where x is 0.3 c but for its last digit, made large; c is a tensor or a number."""

    def __init__(self, c: Tensor | float) -> None:
        super().__init__()
        self.c = c

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(x, self.c, alpha=-0.3) if isinstance(self.c, Tensor) else torch.sub(x, self.c, alpha=0.3)
        weight = torch.tensor([[1.0, 2.0], [-3.0, 1.0]], dtype=torch.float64)
        return (y[:, 0] @ weight) * 1e10


@pytest.mark.parametrize("c", [torch.tensor([[0.7, -1.3]], dtype=torch.float64), 0.7], ids=["tensor", "number"])
@pytest.mark.parametrize("method", ["ibp", "forward", "backward"])
def test_no_product_of_constants_is_rounded_away(c: Tensor | float, method: str) -> None:
    """The box of `x - fl(0.3 c)` has no room for the rounding of the product."""
    x = torch.as_tensor(c, dtype=torch.float64).expand(1, 1, 2) * 0.3
    module = Cancelling(c).eval()
    with mp.workdps(60):
        found = cf.bounds(module, x, positions=[[0]], eps=0.0, method=method)
        value = margins(Exact(module, x)(exact(x)).reshape(-1), found.label)[0]
        assert float(found.lower) <= value <= float(found.upper)

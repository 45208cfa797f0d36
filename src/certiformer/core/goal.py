"""What is to be proved of the outputs: that they never lie in too many of some half-spaces at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .ops.base import Box


@dataclass(frozen=True)
class Clause:
    """Outputs are bad that lie in at least `count` of these half-spaces at once: in all of a polyhedron, in any of a
    union, in k of those where a class must stay among the first k."""

    halfspaces: tuple[int, ...]
    count: int


@dataclass(frozen=True, eq=False)
class Goal:
    """No output y is bad by any clause. Half-space h is `rows[h] y <= limits[h]`, in float64."""

    rows: Tensor  # [half-spaces, outputs]
    limits: Tensor  # [half-spaces]
    clauses: tuple[Clause, ...]

    def beyond(self, box: Box) -> Box:
        """From bounds of `rows y` those of `rows y - limits`, rounded outward: above 0 is never in that half-space."""
        limits = self.limits.to(box.lower.device)
        down, up = torch.full_like(limits, -math.inf), torch.full_like(limits, math.inf)
        lower, upper = box.lower.double(), box.upper.double()
        return Box(
            torch.where(limits == 0, lower, torch.nextafter(lower - limits, down)),
            torch.where(limits == 0, upper, torch.nextafter(upper - limits, up)),
        )

    def least(self, values: Tensor) -> Tensor:
        """From values `[..., half-spaces]` of `rows y - limits` what must be above 0: `[...]`.

        Of a clause that needs `count` of its half-spaces all but `count - 1` must be left out: the count-th smallest.
        """
        values = torch.where(torch.isnan(values), -math.inf, values)  # which would count as large
        found = [
            values[..., list(clause.halfspaces)].kthvalue(clause.count, dim=-1).values
            if clause.count > 1
            else values[..., list(clause.halfspaces)].amin(dim=-1)
            for clause in self.clauses
        ]
        return torch.stack(found).amin(dim=0)

    def exact_in(self, dtype: torch.dtype) -> bool:
        """Whether the rows are numbers of a precision: rounding them would be another question."""
        return bool((self.rows.to(dtype).double() == self.rows).all())

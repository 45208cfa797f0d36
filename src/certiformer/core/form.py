"""What the engine keeps of a node: a linear form in the perturbation, and what a sweep puts in its place."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .coefficients import SplitSlope
from .graph.graph import Node
from .ops.base import Planes
from .ops.movement import Movement


class Form(NamedTuple):
    """A node, less its nominal value, between two linear functions of the perturbation: `centre ± gap`.

    Coefficients are `[instance, m, *shape]` over the m numbers that may vary, offsets `[instance, *shape]`.
    """

    centre: Tensor
    gap: Tensor | None
    offset: Tensor
    offset_gap: Tensor | None
    size: Tensor | None  # a bound on what is added up when it is evaluated, where rounding is accounted for

    def map(self, node: Node) -> Form:
        """The form of a rearrangement of this node."""
        op = node.op
        assert isinstance(op, Movement)
        return Form(
            op.move((self.centre,), 2),
            None if self.gap is None else op.move((self.gap,), 2),
            op.move((self.offset,), 1),
            None if self.offset_gap is None else op.move((self.offset_gap,), 1),
            None if self.size is None else op.move((self.size,), 1),
        )


class Substitution(NamedTuple):
    """What a sweep puts in the place of a node: its op's planes, with slopes and offsets as centre and gap.

    Offsets are those of deviations from the nominal value:
    `f(x) - f(x0) = sum_k c_k (x_k - x0_k) + offset`: an affine op has none.
    """

    planes: Planes
    sources: tuple[Node, ...]  # what the planes are functions of
    slopes: tuple[SplitSlope, ...]
    offset: Tensor | None
    offset_gap: Tensor | None
    slack: Tensor | None  # the part of the gap that is rounding, not counted in it
    whole: Planes  # the op's planes in its own inputs, before differences of scores were folded


def halves(lower: Tensor | None, upper: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Two offsets as centre and half gap."""
    if lower is None or upper is None:
        return None, None
    return (lower, None) if lower is upper else ((lower + upper) / 2, (upper - lower) / 2)

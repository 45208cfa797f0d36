"""What may vary."""

from typing import Protocol

from torch import Tensor

from ..ops.base import Box
from .ball import Ball, dual, everywhere, norm
from .choices import Choices
from .piece import Cuts, Piece


class Perturbation(Protocol):
    """A set of inputs around `centre` [instances, *shape]: t blocks of d numbers that vary, at positions `hot`."""

    @property
    def centre(self) -> Tensor: ...

    @property
    def hot(self) -> Tensor: ...

    @property
    def whole(self) -> bool:
        """Whether every position varies, in order."""
        ...

    @property
    def axis(self) -> int: ...

    @property
    def symmetric(self) -> bool:
        """Whether the least and the greatest value of a linear function differ in sign alone, and are its magnitude."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def lengths(self) -> Tensor | None:
        """How far each position is from rest at most, `[instances, 1, n, 1]`, where that is all that the set is made
        of: with a point it holds all those whose positions are no further from rest. None of other sets."""
        ...

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]: ...

    def magnitude(self, function: Tensor) -> Tensor: ...

    def distance(self, function: Tensor) -> Tensor: ...

    def grams(self, function: Tensor) -> tuple[Tensor, Tensor] | None: ...

    def box(self) -> Box: ...


__all__ = ["Ball", "Choices", "Cuts", "Perturbation", "Piece", "dual", "everywhere", "norm"]

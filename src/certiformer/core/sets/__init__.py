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
        """How far each position is from rest at most and at least, `[instances, 1, n, 2]`, of sets made of that alone:
        with a point they hold all those whose positions are no further from rest, and of pieces of such sets. None of
        others."""
        ...

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]: ...

    def magnitude(self, function: Tensor) -> Tensor: ...

    def distance(self, function: Tensor) -> Tensor: ...

    def grams(self, function: Tensor) -> tuple[Tensor, Tensor] | None: ...

    def box(self) -> Box: ...


__all__ = ["Ball", "Choices", "Cuts", "Perturbation", "Piece", "dual", "everywhere", "norm"]

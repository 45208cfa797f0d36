"""What may vary, as a caller says it: a box, a ball around the input, substitutes of words; a list is their union."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .errors import InputError, short
from .norms import norm_order
from .numbers import number

Numbers = Any  # a number, a tensor, an array, or nested lists of numbers


@dataclass(frozen=True, eq=False)
class Box:
    """All inputs between two, number by number: arrays of the input's shape, or a number for all of them."""

    lower: Tensor
    upper: Tensor

    def __init__(self, lower: Numbers, upper: Numbers) -> None:
        low, high = numbers("Box(lower", lower), numbers("Box(upper", upper)
        if low.shape != high.shape and low.dim() and high.dim():
            try:
                shape = (low + high).shape
                low, high = low.expand(shape).clone(), high.expand(shape).clone()
            except RuntimeError:
                told = f"Box(lower {list(low.shape)}, upper {list(high.shape)})"
                raise InputError(f"{told}: expected the same shape, or one that repeats to the other") from None
        for name, bound in (("lower", low), ("upper", high)):
            if not bool(torch.isfinite(bound).all()):
                raise InputError(f"Box({name}={short(bound.flatten()[:4].tolist())}): expected finite numbers")
        empty = (low > high).flatten()
        if bool(empty.any()):
            k = int(empty.nonzero()[0])
            ends = [float(x.flatten()[k if x.dim() else 0]) for x in (low, high)]
            raise InputError(f"Box(lower, upper): the set is empty: entry {k} from {ends[0]} to {ends[1]}")
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    @staticmethod
    def around(x: Numbers, eps: Numbers, *, least: Numbers = None, most: Numbers = None) -> Box:
        """All inputs within `eps` of x, number by number, cut to what lies from `least` to `most`: rounded outward."""
        middle, far = numbers("Box.around(x", x), numbers("Box.around(eps", eps)
        if not bool(((far >= 0) & torch.isfinite(far)).all()):
            raise InputError(f"Box.around(eps={short(eps)}): expected finite numbers of 0 or more")
        far = repeated("Box.around(eps", far, middle.shape)
        lower, upper = added(middle, -far, -math.inf), added(middle, far, math.inf)
        if least is not None:
            lower = torch.maximum(lower, repeated("Box.around(least", numbers("Box.around(least", least), lower.shape))
        if most is not None:
            upper = torch.minimum(upper, repeated("Box.around(most", numbers("Box.around(most", most), upper.shape))
        return Box(lower, upper)

    @property
    def middle(self) -> Tensor:
        """The middle of the box, which is in it."""
        half = self.lower / 2 + self.upper / 2
        return torch.minimum(torch.maximum(half, self.lower), self.upper)

    def __repr__(self) -> str:
        shape = list((self.lower + self.upper).shape)
        return f"Box({shape or 'everywhere'}, {float(self.lower.min()):g} to {float(self.upper.max()):g})"


@dataclass(frozen=True, eq=False)
class Ball:
    """All inputs within `eps` of the one asked about, in a norm.

    Each of the `positions` that move together has a ball of its own, or, `joint`, all of them one. `where` (true or
    false for every number of the input) chooses numbers instead, under one norm. An input that has no positions moves
    as a whole.
    """

    eps: float
    norm: float | str = 2
    positions: str | Sequence[Any] | None = None  # as everywhere: "2,3" each alone, "2+3" together
    joint: bool = False
    where: Tensor | None = field(default=None)

    def __post_init__(self) -> None:
        if not (number(self.eps) and 0 <= self.eps < math.inf):
            raise InputError(f"Ball(eps={self.eps!r}): expected a finite radius of 0 or more")
        object.__setattr__(self, "norm", norm_order(self.norm))
        if self.where is not None:
            if self.positions is not None:
                raise InputError("Ball(positions=..., where=...): give one of the two")
            chosen = torch.as_tensor(self.where)
            if chosen.dtype != torch.bool:
                raise InputError(
                    f"Ball(where={short(self.where)}): expected true or false for every number of the input"
                )
            if not bool(chosen.any()):
                raise InputError("Ball(where=...): no number of the input is chosen")
            object.__setattr__(self, "where", chosen)

    @property
    def p(self) -> float:
        """The norm as a number."""
        return float(self.norm)


@dataclass(frozen=True)
class Words:
    """All texts in which some words are replaced by any of their substitutes, any number of them at once."""

    substitutions: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        if not isinstance(self.substitutions, Mapping) or not self.substitutions:
            raise InputError(f"Words({short(self.substitutions)}): expected words with their substitutes")


Set = Box | Ball | Words
Union = Set | Sequence[Set]


def members(given: Union, asked: str = "within") -> tuple[Set, ...]:
    """The sets of a union, at least one."""
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not found or not all(isinstance(one, (Box, Ball, Words)) for one in found):
        raise InputError(f"{asked}={short(given)}: expected a Box, a Ball, Words, or a list of them")
    return found


def numbers(asked: str, value: Numbers) -> Tensor:
    """Numbers as a tensor of float64, of which no one can change what was given."""
    try:
        found = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{asked}={short(value)}): expected numbers") from None
    return found.detach().clone().cpu()


def repeated(asked: str, value: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers for all of a shape: one for each, or one for all along an axis, such as the pixels of a channel."""
    try:
        return value.expand(tuple(shape))
    except RuntimeError:
        raise InputError(
            f"{asked} of shape {list(value.shape)}): expected {list(shape)}, or 1 in the place of some of them"
        ) from None


def added(x: Tensor, y: Tensor, towards: float) -> Tensor:
    """`x + y`, one step on towards an infinity where rounding went the other way."""
    total = x + y
    back = total - x
    lost = (x - (total - back)) + (y - back)  # exactly what rounding left out
    wrong = lost > 0 if towards > 0 else lost < 0
    return torch.where(wrong, torch.nextafter(total, torch.full_like(total, towards)), total)

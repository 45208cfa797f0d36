"""What an op is: a function, its interval extension, and linear functions below and above it.

Every tensor an op sees has one leading axis for instances; everything after it has the shape the node has in the
model. Axes are named by letters, so that one contraction rule serves every op (see `core/coefficients.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

Shape = tuple[int, ...]
Parameters = dict[int, tuple[Tensor, ...]]  # node -> what its op's planes are chosen by, [instances, ...]
Narrowed = tuple["Op", tuple["int | None", ...]] | None
LETTERS = "abcdefghijkl"  # the axes of an op's output, in order
OWN = "zyxwvutsrq"  # axes that only an input has
INSTANCE_NAME = "Z"  # the axis of instances, in front of all others
M = TypeVar("M", bound="Movable")
C = TypeVar("C", bound="Pullable")


class Movable(Protocol):
    """Coefficients on the output of an op that only rearranges entries, as they become those on its inputs."""

    def permute(self: M, order: tuple[int, ...]) -> M: ...

    def reshape(self: M, old: Shape, new: Shape) -> M: ...

    def pad(self: M, axis: int, before: int, size: int) -> M: ...

    def narrow(self: M, axis: int, start: int, length: int) -> M: ...

    def collapse(self: M, axis: int) -> M: ...

    def scatter(self: M, axis: int, index: Tensor, node: Shape) -> M: ...


class Pullable(Movable, Protocol):
    """Coefficients on the output of any op."""

    def linked(self, axis: int) -> int | None: ...

    def scaled(self: C, factor: float) -> C: ...

    def centered(self: C) -> C: ...


class Box(NamedTuple):
    """Elementwise bounds `lower <= x <= upper`, each `[instances, *shape]`."""

    lower: Tensor
    upper: Tensor

    @property
    def distance(self) -> Tensor | None:
        """A bound on `|x - centre|_2` along the last axis, where one is known."""
        return None

    @property
    def radial(self) -> Tensor | None:
        """A bound on `|e' (x - centre)|`, e the direction of the centre along the last axis, where one is known."""
        return None

    @property
    def shape(self) -> Shape:
        """The shape of one instance."""
        return tuple(self.lower.shape[1:])

    @property
    def centre(self) -> Tensor:
        return self.lower / 2 + self.upper / 2

    @property
    def radius(self) -> Tensor:
        return self.upper / 2 - self.lower / 2

    def map(self, f: Callable[[Tensor], Tensor]) -> Box:
        """The box of a rearrangement or another increasing exact function of its entries."""
        return Box(f(self.lower), f(self.upper))

    def met(self, other: Box) -> Box:
        """The better of two boxes that both hold, entry by entry."""
        return Box(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    @staticmethod
    def blank(shape: Shape, like: Tensor) -> Box:
        """A box that carries a shape and no numbers, for ops whose planes do not depend on them."""
        empty = like.new_zeros(()).expand((1, *shape))
        return Box(empty, empty)


class Reach(NamedTuple):
    """How far points get from a centre along an axis: at all, and in the direction of the centre.

    The centre is that of a box, or else `middle`, in the shape of the points.
    """

    distance: Tensor
    radial: Tensor
    middle: Tensor | None = None

    def least(self, other: Reach) -> Reach:
        """The better of two bounds around the same centre."""
        distance, radial = (torch.minimum(a, b) for a, b in zip(self[:2], other[:2], strict=True))
        return Reach(distance, radial, self.middle)

    def times(self, factor: float) -> Reach:
        return self._replace(distance=self.distance * factor, radial=self.radial * factor)


class MeasuredBox(Box):
    """A box that knows how far its points are from its centre along the last axis: `[instances, *shape[:-1]]`.

    Its centre may be another point than half way between its ends; its radius is the distance to the farther one.
    """

    reach: Reach

    def __new__(cls, lower: Tensor, upper: Tensor, reach: Reach) -> MeasuredBox:
        box = super().__new__(cls, lower, upper)
        box.reach = reach
        return box

    @property
    def centre(self) -> Tensor:
        return super().centre if self.reach.middle is None else self.reach.middle

    @property
    def radius(self) -> Tensor:
        middle = self.reach.middle
        return super().radius if middle is None else torch.maximum(self.upper - middle, middle - self.lower)

    @property
    def distance(self) -> Tensor:
        return self.reach.distance

    @property
    def radial(self) -> Tensor:
        return self.reach.radial


class Slope(NamedTuple):
    """The coefficients of one input in an op's planes.

    `inputs` names the axes of that input and `axes` those of the coefficient tensors (after the instance axis), with
    the letters of `Planes.outputs` where an axis is shared. `upper is lower` when the op is exact in this input.
    """

    inputs: str
    axes: str
    lower: Tensor
    upper: Tensor


class Bend(NamedTuple):
    """What the planes of a function of one variable leave out next to the middle m of a box, entry by entry.

    With `u = x - m`, `below (1 - u^2 / near)_+` may be added to the lower plane and `above (1 - u^2 / far)_+` taken off
    the upper one. Along the last axis u is no longer than `length`: few entries can be far away at once.
    """

    below: Tensor  # [instances, *shape], none of them negative
    above: Tensor
    near: Tensor
    far: Tensor
    length: Tensor  # [instances, *shape[:-1]]


class Planes(NamedTuple):
    """`sum_k lower_k x_k + offset[0] <= f(x) <= sum_k upper_k x_k + offset[1]` for every x in the box.

    Slopes are those of the first inputs: others are constants of the instance, which the planes were made with.
    `remainder`, where given, bounds the distance of f along the last axis from the plane half way between the two, as
    a vector in the Euclidean norm: less than its entries one by one. `bend`, where given, says how much nearer f is.
    """

    outputs: str
    slopes: tuple[Slope, ...]
    lower: Tensor | None = None  # offsets [instances | 1, *output shape]; None is zero
    upper: Tensor | None = None
    remainder: Tensor | None = None  # [instances, *output shape[:-1]]
    bend: Bend | None = None

    def parallel(self) -> Planes:
        """These planes, whose slopes below and above are equal, as such."""
        return self._replace(slopes=tuple(s._replace(upper=s.lower) for s in self.slopes))


class Op(ABC):
    """One operation. Subclasses are frozen dataclasses whose fields are the attributes of the operation.

    `forward(*x)` is the function itself, `interval(*boxes)` encloses its range, `planes(*boxes)` encloses it between
    affine functions. `exact` ops are affine: their planes coincide and depend on the shapes alone. Ops that only
    rearrange entries derive from `Movement` and say where each entry came from instead.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False
    constants: ClassVar[int] = 0  # inputs at the end that are constants of the instance: planes have no slopes for them
    distances: ClassVar[bool] = False  # whether its planes gain from `Box.distance`
    measures: ClassVar[tuple[tuple[int, int], ...]] = ()  # inputs and axes along which `tangent` asks for lengths
    bends: ClassVar[bool] = False  # whether `tangent` gains from the length of its input along the last axis
    simplex: ClassVar[bool] = False  # whether the entries along the last axis of the output sum to 1
    checked: ClassVar[int | None] = None  # how many of its first parameters certificates know; None: all
    kink: ClassVar[float | None] = None  # where a function of one variable bends all at once
    summary: ClassVar[str] = ""

    @abstractmethod
    def forward(self, *x: Tensor) -> Tensor: ...

    @abstractmethod
    def interval(self, *boxes: Box) -> Box: ...

    def planes(self, *boxes: Box) -> Planes:
        raise TypeError(f"{self.name} rearranges entries and has no planes")

    def tangent(self, boxes: tuple[Box, ...], lengths: tuple[Tensor, ...]) -> Planes | None:
        """Planes with the same slopes below and above, whose remainder is small as a vector; None: the usual ones.

        `lengths` are what the op `measures`: for each (input, axis) how far the input may be from the middle of its box
        as a vector along that axis, `[instances, *shape without the axis]`, infinite where it is not known.
        """
        return None

    def parameters(self, *boxes: Box) -> tuple[Tensor, ...]:
        """Numbers in [0, 1] that choose among the op's sound planes, `[instances, ...]`, at their usual values."""
        return ()

    def tuned(self, parameters: tuple[Tensor, ...], *boxes: Box) -> Planes:
        """The planes that these parameters choose: sound whatever they are."""
        return self.planes(*boxes)

    def pull(self, a: C, shapes: tuple[Shape, ...]) -> tuple[C, ...] | None:
        """A quicker way than `planes` to take coefficients on the output to the inputs, or None."""
        return None

    @classmethod
    @abstractmethod
    def examples(cls) -> Iterator[tuple[Op, tuple[Shape, ...]]]:
        """Instances with input shapes, for the contract test that runs over every op."""
        ...

    def narrowed(self, axis: int, start: int, length: int, output: Shape, inputs: tuple[Shape, ...]) -> Narrowed:
        """The op that gives only `length` entries from `start` on of an axis of the output.

        With the axis of each input that is cut the same way (None: that input stays whole), or None if there is none.
        """
        return None

    def floor(self, *floors: float) -> float:
        """A number that no entry of the output goes below, given such numbers for the inputs."""
        return -math.inf

    @classmethod
    def domain(cls) -> tuple[float, float]:
        """The open interval on which the op is defined."""
        return (-math.inf, math.inf)

    def valid(self, *boxes: Box) -> Tensor | None:
        """Whether the op is defined on the whole box, by instance; where it is not, its bounds mean nothing.

        None for an op that is defined everywhere.
        """
        low, high = self.domain()
        if low == -math.inf and high == math.inf:
            return None
        inside = [entries((b.lower > low) & (b.upper < high)).all(dim=1) for b in boxes]
        return torch.stack(inside).all(dim=0)


REGISTRY: dict[str, type[Op]] = {}


def register(cls: type[Op]) -> type[Op]:
    """Enter an op into the one table of ops."""
    if cls.name in REGISTRY:
        raise ValueError(f"two ops are called {cls.name!r}")
    REGISTRY[cls.name] = cls
    return cls


def entries(x: Tensor) -> Tensor:
    """The entries of every instance in a row: `[instances, entries]`, of a single number too."""
    return x.reshape(x.shape[0], -1)


def broadcast(*shapes: Shape) -> Shape:
    """The shape that operands of these shapes broadcast to."""
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


def shared_axis(axis: int, output: Shape, shape: Shape) -> int | None:
    """The axis of a broadcast operand that runs along an axis of the output, if it has one."""
    own = axis - len(output) + len(shape)
    return own if own >= 0 and shape[own] == output[axis] else None


def letters(rank: int) -> str:
    return LETTERS[:rank]


def ulp(x: Tensor) -> float:
    """The unit roundoff of a tensor's precision."""
    return float(torch.finfo(x.dtype).eps) / 2


def root_of(x: Tensor) -> Tensor:
    """`sqrt(x)`, with the gradient 0 where x is 0: its own is infinite there, and times 0 no number."""
    if not torch.is_grad_enabled():
        return x.sqrt()
    return torch.where(x != 0, torch.where(x != 0, x, 1).sqrt(), 0)


def outward(lower: Tensor, upper: Tensor, magnitude: Tensor, ulps: float = 4.0) -> tuple[Tensor, Tensor]:
    """Move two bounds apart by the rounding of a few operations on numbers of the given magnitude."""
    tiny = torch.finfo(magnitude.dtype).tiny
    slack = magnitude * (2 * ulps * ulp(magnitude)) + tiny
    return lower - slack, upper + slack


def whole_axes(old: Shape, new: Shape) -> list[tuple[int, int]]:
    """Pairs of axes that a reshape carries over unbroken (sizes above 1)."""
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        si, sj, p, q = i + 1, j + 1, old[i], new[j]
        while p != q:
            if p < q:
                p *= old[si]
                si += 1
            else:
                q *= new[sj]
                sj += 1
        a = [x for x in range(i, si) if old[x] != 1]
        b = [x for x in range(j, sj) if new[x] != 1]
        if len(a) == 1 and len(b) == 1:
            pairs.append((a[0], b[0]))
        i, j = si, sj
    return pairs

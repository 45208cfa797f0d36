"""Operators of ONNX by name, each a function on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from torch import Tensor

Function = Callable[..., Any]
ENTRIES = 1 << 28  # of a tensor that a file asks for


class Refused(Exception):
    """Why a node cannot be read."""


@dataclass(frozen=True)
class Operator:
    """A function of a node and its inputs. Inputs named `static` are lists of numbers, not tensors, and constants."""

    function: Function
    static: tuple[int, ...]
    constant: bool  # among constants alone


@dataclass(frozen=True)
class Call:
    """A node as its operator sees it."""

    name: str
    attributes: Mapping[str, Any]
    opset: int
    outputs: int

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default, which is a float32 as the stored ones are."""
        return self.attributes.get(name, float(numpy.float32(default)) if isinstance(default, float) else default)

    def refuse_unless(self, name: str, *allowed: Any) -> None:
        """An attribute that is there must have one of some values."""
        if name in self.attributes and self.attributes[name] not in allowed:
            raise Refused(f"{name}={self.attributes[name]!r}")


TABLE: dict[str, Operator] = {}


def operator(*names: str, static: tuple[int, ...] = (), constant: bool = False) -> Callable[[Function], Function]:
    """Puts a function into the table."""

    def enter(function: Function) -> Function:
        TABLE.update({name: Operator(function, static, constant) for name in names})
        return function

    return enter


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise Refused(f"axis {axis} of a tensor of {rank} axes")
    return axis % max(rank, 1)


def fits(*sizes: int) -> None:
    """Refuse a tensor that is larger than any model needs."""
    count = 1
    for size in sizes:
        count *= max(int(size), 0)
    if count > ENTRIES:
        raise Refused(f"a tensor of {count:,} entries")


def whole(values: Any) -> list[int]:
    """A list of whole numbers, from a static input of one axis or none."""
    flat = values if isinstance(values, list) else [values]
    if any(isinstance(v, (list, bool)) or int(v) != v for v in flat):
        raise Refused(f"{str(values)[:40]} where whole numbers are expected")
    return [int(v) for v in flat]


def scalar(value: Any, default: float | None = None) -> float | None:
    """The one number of a static input, which may be absent."""
    while isinstance(value, list):
        if len(value) != 1:
            raise Refused("several numbers where one is expected")
        value = value[0]
    return default if value is None else float(value)


def is_float(x: object) -> bool:
    """Whether something is a tensor of real numbers."""
    return isinstance(x, Tensor) and x.is_floating_point()

"""The one table of what ATen operators become, and how their calls are read.

A row names an operator, the arguments of its schema that it reads, and the function that makes nodes of them. Calls
are read through the schema alone, so it makes no difference whether an argument was given by place, by name or not at
all. An argument that a row does not read must have its default value; any other is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..ops.base import Op, Shape


@dataclass(frozen=True)
class Ref:
    """A node under construction."""

    index: int


Operand = Ref | Tensor | float  # a node, a constant tensor, or a number
Result = Operand | Sequence[Operand | None]


class Refused(Exception):
    """A call that no bounds are known for; the message says what it is, for a person."""


class Build(Protocol):
    """What makes nodes."""

    @property
    def like(self) -> Tensor:
        """A tensor in the precision and on the device of the model."""
        ...

    @property
    def result_shape(self) -> Shape:
        """The shape of what the operator that is being lowered gives."""
        ...

    def add(self, op: Op, *inputs: Operand) -> Ref:
        """A node that applies an op."""
        ...

    def node(self, x: Operand) -> Ref:
        """A constant as a node; a node as it is."""
        ...

    def constant(self, x: Operand) -> Tensor:
        """A number or tensor in the model's precision; refuses a node."""
        ...

    def shape(self, x: Operand) -> Shape: ...

    def op(self, x: Ref) -> Op:
        """The op that gave a node."""
        ...

    def inputs(self, x: Ref) -> tuple[Ref, ...]:
        """The nodes it was applied to."""
        ...

    def unsupported(self, what: str) -> Ref:
        """Note what cannot be done and go on with a stand-in, so that everything is reported at once."""
        ...


@dataclass(frozen=True)
class Row:
    """How one operator is lowered."""

    operator: OpOverload
    function: Callable[..., Result]
    reads: tuple[str, ...]  # arguments of the schema, in the order in which the function takes them
    unread: frozenset[str]  # arguments that need no reading: the result's shape tells them, or they change no number
    variant: Mapping[str, Any]  # what the function is told besides

    @property
    def guarded(self) -> tuple[str, ...]:
        """The arguments that must have their default value."""
        names = (a.name for a in self.operator._schema.arguments)
        return tuple(name for name in names if name not in self.reads and name not in self.unread)

    def __call__(self, build: Build, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
        given = arguments(self.operator, args, kwargs)
        defaults = {a.name: a.default_value for a in self.operator._schema.arguments}
        try:
            for name in self.guarded:
                if not _same(given[name], defaults[name]):
                    raise Refused(f"{name}={given[name]!r}: not supported")
            return self.function(build, *(given[name] for name in self.reads), **self.variant)
        except Refused as refusal:
            return build.unsupported(str(refusal))


TABLE: dict[OpOverload, Row] = {}
Function = TypeVar("Function", bound=Callable[..., Result])


def lowers(operator: OpOverload, reads: str, *, unread: str = "", **variant: Any) -> Callable[[Function], Function]:
    """Enter a function as what lowers an operator: `reads` are the arguments that it takes, by their schema names."""
    names = {a.name: a.has_default_value() for a in operator._schema.arguments}
    if operator in TABLE:
        raise ValueError(f"two rows for {operator}")
    if unknown := set(f"{reads} {unread}".split()) - set(names):
        raise ValueError(f"{operator} has no argument {', '.join(sorted(unknown))}")
    if left := [n for n, has_default in names.items() if not has_default and n not in f"{reads} {unread}".split()]:
        raise ValueError(f"the row of {operator} says nothing of {', '.join(left)}")

    def enter(function: Function) -> Function:
        TABLE[operator] = Row(operator, function, tuple(reads.split()), frozenset(unread.split()), variant)
        return function

    return enter


def arguments(operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name: those given by place or by name, and the defaults of the others."""
    schema = operator._schema.arguments
    places = [a.name for a in schema if not a.kwarg_only]
    if len(args) > len(places):
        raise TypeError(f"{operator} takes {len(places)} arguments by place, found {len(args)}")
    given = {**dict(zip(places, args, strict=False)), **kwargs}
    if len(given) < len(args) + len(kwargs) or not set(given) <= {a.name for a in schema}:
        raise TypeError(f"{operator} called with {sorted(kwargs)} besides {len(args)} arguments by place")
    found: dict[str, Any] = {}
    for a in schema:
        if a.name not in given and not a.has_default_value():
            raise TypeError(f"{operator} called without {a.name}")
        value = given.get(a.name, a.default_value)
        found[a.name] = [value] if _is_list(a.type) and isinstance(value, int) else value
    return found


def _is_list(kind: Any) -> bool:
    """Whether an argument is a list, or none."""
    if isinstance(kind, torch.OptionalType):
        kind = kind.getElementType()
    return isinstance(kind, torch.ListType)


def _same(value: Any, default: Any) -> bool:
    """Whether an argument has its default value; tensors and nodes never do."""
    if isinstance(value, (Tensor, Ref)) or isinstance(default, Tensor):
        return False
    return bool(value == default)

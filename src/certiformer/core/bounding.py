"""Bounds by a sweep: rows on a node as two linear functions of the perturbation, one below and one above."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .coefficients import Chosen, Coefficients
from .form import Substitution
from .graph.graph import Input, Node
from .joint import Meeting
from .ops.base import LETTERS, Bend
from .ops.movement import Expand, Movement
from .ops.product import MatMul
from .rounding import SLACK, gamma
from .scores import separate
from .speed.kernels import with_sides
from .speed.memory import TEMPORARIES, room_of
from .sweep import Visitor, merged

if TYPE_CHECKING:
    from .engine import Engine

Rows = Coefficients | Chosen
Ready = Callable[[Node], Substitution]  # what is put in the place of a node


class Bounding(Visitor[Rows]):
    """`function` `[side, instance, m, *rows]` and `offset` `[side, instance, *rows]` of what has been passed so far."""

    def __init__(
        self, engine: Engine, start: Node, rows: Coefficients, *, shift: bool, ready: Ready, apart: bool = False
    ) -> None:
        self.engine, self.rows, self.shift, self.ready, self.apart = engine, rows.rows, shift, ready, apart
        self.tangent = ready == engine.tangent
        self.function: Tensor | None = None
        self.peak = 0  # the most entries held at once
        value = engine.nominal[start.index]
        self.offset = applied(None, rows, value, engine.slack(start, value.abs()))

    @property
    def result(self) -> tuple[Tensor, Tensor]:
        """Coefficients and offsets of both sides."""
        if self.function is not None:
            return self.function, self.offset
        ball = self.engine.ball
        return ball.centre.new_zeros((1, ball.centre.shape[0], ball.dimension, *self.rows)), self.offset

    def ends(self, node: Node) -> bool:
        return isinstance(node.op, Input) or node.index in self.engine.scheme.local

    def anchored(self, node: Node) -> bool:
        return node.index in self.engine.scheme.anchors

    def holding(self, parts: Iterable[list[Rows]]) -> None:
        entries = sum(a.tensor.numel() for each in parts for a in each if isinstance(a, Coefficients))
        self.peak = max(self.peak, entries)

    def still(self, node: Node, parts: list[Rows]) -> None:
        self._widen(parts, self.engine.slack(node, self.engine.nominal[node.index].abs()))

    def arrived(self, node: Node, parts: list[Rows]) -> None:
        local = self.engine.scheme.local.get(node.index)
        hot, axis = self.engine.marked(node)
        whole = [a for a in parts if isinstance(a, Coefficients)]
        chosen = [a for a in parts if isinstance(a, Chosen)]
        for a in (*(Chosen(part.select(hot, axis)) for part in whole), *chosen):
            moved = a.tensor if local is None else local.carried(a.tensor)
            moved = moved.reshape(*moved.shape[:2], -1, *self.rows)
            moved = moved.expand(-1, self.engine.ball.centre.shape[0], *moved.shape[2:])
            self.function = moved if self.function is None else self.function + moved
        if self.engine.rounding:
            self._widen(parts, self.engine.arrival_slack(node))

    def met(self, node: Node, parts: list[Rows]) -> None:
        form, whole = self.engine.form(node), _sum(parts)
        self.function = applied(self.function, whole, form.centre, form.gap, "X")
        gap = plus(form.offset_gap, self.engine.slack(node, form.size))
        self.offset = applied(self.offset, whole, form.offset, gap)

    def through(self, node: Node, parts: list[Rows]) -> Iterator[tuple[Node, Rows]]:
        """Replace a node by its op's planes in its inputs."""
        engine, parents = self.engine, self.engine.graph.parents(node)
        engine.deadline.check()  # a sweep of many rows takes long
        if not node.op.exact:
            parts = [self._shifted(node, part) for part in self._added(parts)]
        for part in parts:
            assert isinstance(part, Coefficients)
            sources = parents
            pulled: tuple[Rows, ...] | None = node.op.pull(part, tuple(p.shape for p in parents))
            if pulled is None:
                ready = self.ready(node)
                sources = ready.sources
                pulled = tuple(self._pulled(part, ready, k) for k in range(len(sources)))
            if not node.op.exact:
                self._add_offset(node, self.ready(node), part)
                if isinstance(node.op, MatMul):
                    pulled = self._together(node, part, pulled)
            elif isinstance(node.op, Expand):  # copies add up
                self._widen([part], engine.slack(node, engine.magnitude(node)) if engine.rounding else None)
            elif engine.rounding and not isinstance(node.op, Movement):
                self._widen([part], self.ready(node).slack)
            yield from zip(sources, pulled, strict=True)

    def _added(self, parts: list[Rows]) -> list[Coefficients]:
        """What has arrived at an op that is not exact: one sum, or parts that are as good."""
        whole = [part for part in parts if isinstance(part, Coefficients)]
        linked = [tuple(part.linked(axis) for axis in range(len(part.node))) for part in whole]
        return whole if self.apart and separate(linked) else [_sum(parts)]

    def _shifted(self, node: Node, part: Coefficients) -> Coefficients:
        """On a row of probabilities, which sum to 1, coefficients less a constant: the sum does not deviate."""
        part = part.opened(len(node.shape) - 1)
        simplex = self.shift and self.engine.scheme.style.simplex and node.op.simplex
        if not simplex or part.linked(len(node.shape) - 1) is not None:
            return part
        shifted, constant = part.shifted(self.engine.gap(node))
        ones = self.engine.ball.centre.new_ones((1, *constant.node))
        self._widen([constant], self.engine.slack(node, ones))
        return shifted

    def _together(self, node: Node, part: Coefficients, pulled: tuple[Rows, ...]) -> tuple[Rows, ...]:
        """Past a product: what is gained by bounding sums of entries of its right factor as such."""
        engine, left = self.engine, pulled[0]
        if self.tangent or part.linked(len(node.shape) - 1) is not None or not isinstance(left, Coefficients):
            return pulled
        joint = engine.products.joint(engine, node)
        if joint is None:
            return pulled
        room = room_of(engine.memory, engine.ball.centre) // TEMPORARIES
        found = Meeting(joint, part, engine.deadline).gain(
            engine.graph.parents(node)[0], engine.parameters.get(node.index), room
        )
        self.offset = with_sides(self.offset + found.offset, found.spread)
        left = left + found.coefficients
        if engine.rounding:
            self._widen([left], joint.size * gamma(joint.size, SLACK))
        return left, *pulled[1:]

    def _pulled(self, part: Coefficients, ready: Substitution, k: int) -> Rows:
        """Coefficients on the k-th source; only those at the positions that vary where no others matter."""
        source, split = ready.sources[k], ready.slopes[k]
        if not self.engine.rounding and self.ends(source):
            found = part.pull_at(ready.planes, k, split, *self.engine.marked(source))
            if found is not None:
                return found
        return part.pull(ready.planes, k, source.shape, split)

    def _add_offset(self, node: Node, ready: Substitution, part: Coefficients) -> None:
        """The offsets of a node's planes, entry by entry or, where it is less, as a vector."""
        remainder = ready.planes.remainder
        assert ready.offset is not None
        if remainder is None or ready.offset_gap is None or part.linked(len(node.shape) - 1) is not None:
            self.offset = applied(self.offset, part, ready.offset, plus(ready.offset_gap, ready.slack))
            if ready.planes.bend is not None and part.linked(len(node.shape) - 1) is None:
                self.offset = self.offset + bent(part, ready.planes.bend)
            return
        spread = torch.minimum(part.contract_abs(ready.offset_gap), part.contract_norm(remainder))
        self.offset = self.offset + with_sides(part.contract(ready.offset), spread)
        self._widen([part], ready.slack)

    def _widen(self, parts: list[Rows] | list[Coefficients], slack: Tensor | None) -> None:
        """Take `|A| slack` off the lower side and add it to the upper one."""
        for part in parts if slack is not None else ():
            if isinstance(part, Coefficients):
                assert slack is not None
                self.offset = with_sides(self.offset, part.contract_abs(slack))


SHARES = (0.8, 0.4)  # of `sum loss / (sqrt(sum room) length)`, where t is looked for


def bent(part: Coefficients, bend: Bend) -> Tensor:
    """What rows do not lose of what planes take off, since few entries are far from the middle at once, to be added to
    either side: `[side, instance, *rows]`.

    `sum_k min(|A_k| below_k, t near_k) - t length^2`, of each vector for itself (`ops/bend.py`). Any t >= 0 will do; a
    sum that is not a number says nothing.
    """
    names = LETTERS[: len(part.node)]

    def along(value: Tensor) -> Tensor:
        value = part.windowed(value, names, names)
        return value.reshape(value.shape[0], *(1,) * len(part.rows), *value.shape[1:])

    below, above, near, far = (along(x) for x in bend[:4])
    length = along(bend.length.unsqueeze(-1))
    unit = gamma(length, math.prod(part.node) + SLACK)

    def kept(a: Tensor, ends: tuple[Tensor, Tensor], rooms: tuple[Tensor, Tensor]) -> Tensor:
        """Of coefficients that take off the first of the two where they are positive."""
        loss, room = a.abs() * torch.where(a > 0, *ends), torch.where(a > 0, *rooms)
        with torch.no_grad():  # near the best t what is kept hardly depends on it
            t = loss.sum(dim=-1, keepdim=True) / (room.sum(dim=-1, keepdim=True).sqrt() * length)
            t = torch.nan_to_num(t, nan=0.0, posinf=0.0)
        most = torch.zeros_like(t)
        for share in SHARES:
            some = torch.minimum(loss, share * t * room).sum(dim=-1, keepdim=True)
            gain = some * (1 - unit) - share * t * length * length * (1 + unit)
            most = torch.maximum(most, torch.where(torch.isfinite(gain), gain, 0))
        return most

    lower = kept(part.tensor[0], (below, above), (near, far))
    upper = kept(part.tensor[-1], (above, below), (far, near))
    gains = replace(part, tensor=torch.stack([lower, -upper]), node=(*part.node[:-1], 1))
    return gains.contract(lower.new_ones(1, *gains.node))


def _sum(parts: list[Rows]) -> Coefficients:
    whole = merged(parts)
    assert isinstance(whole, Coefficients)
    return whole


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """A sum of gaps, either of which may be nothing."""
    return b if a is None else a if b is None else a + b


def applied(total: Tensor | None, a: Coefficients, centre: Tensor, gap: Tensor | None, lead: str = "") -> Tensor:
    """Add `A centre ∓ |A| gap` to the running total of either side."""
    moved = a.contract(centre, lead)
    if gap is not None:
        moved = with_sides(moved, a.contract_abs(gap, lead))
    return moved if total is None else total + moved

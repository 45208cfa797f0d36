"""Linear functions on a node, one for every entry of another: the tensors that a backward sweep carries.

A sweep starts at a node of shape `S` with one row for every entry of it, and holds coefficients on some earlier node
of shape `N`. Stored plainly that is a matrix `[S, N]`, at the start an identity. But most ops act on each position (or
head, or entry) alone, so that a row only ever meets the entries that share its coordinate. An axis of S is then
*linked* to an axis of N: the coordinate is stored once, on N's axis, and the zeros are never stored. Identities, the
diagonal blocks of a position-wise network and elementwise ops all come out of this one rule.

The tensor is `[side, instance, *S, *N]`: `side` has size 1 while the lower and the upper function coincide and 2 after;
`instance` has size 1 while nothing depended on the instance; a linked axis of S has size 1; a linked axis of N has the
size of the window of rows (or 1, when the coefficient is the same all along it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .ops.base import INSTANCE_NAME, LETTERS, Planes, Shape, Slope, broadcast, whole_axes
from .sets.ball import norm
from .speed.kernels import two_sided, with_sides

ROWS = "ABCDEFGHIJKL"  # the axes of the start node
SIDE, INSTANCE, AT = "Y", INSTANCE_NAME, "T"


class Link(NamedTuple):
    """Row coordinate r belongs to node coordinate r + offset on `axis`."""

    axis: int
    offset: int


@dataclass(frozen=True)
class Coefficients:
    """Rows of linear functions of a node of shape `node`; see the module's words."""

    tensor: Tensor
    rows: Shape
    node: Shape
    links: tuple[Link | None, ...]

    @staticmethod
    def identity(shape: Shape, like: Tensor, window: tuple[tuple[int, int], ...]) -> Coefficients:
        """One row for every entry of a node within `window` (start, length of every axis)."""
        rows = tuple(length for _, length in window)
        links = tuple(Link(a, window[a][0]) if size > 1 else None for a, size in enumerate(shape))
        return Coefficients(like.new_ones((1,) * (2 + 2 * len(shape))), rows, shape, links)

    @staticmethod
    def pairs(shape: Shape, like: Tensor, window: tuple[tuple[int, int], ...]) -> Coefficients:
        """Differences `x_k - x_j`, j < k, along the last axis, within a window of rows `[*shape[:-1], pairs]`."""
        first, count = window[-1]
        j, k = torch.triu_indices(shape[-1], shape[-1], 1, device=like.device)[:, first : first + count]
        eye = torch.eye(shape[-1], dtype=like.dtype, device=like.device)
        ones = (1,) * (len(shape) - 1)
        links = tuple(Link(a, window[a][0]) if size > 1 else None for a, size in enumerate(shape[:-1]))
        table = (eye[k] - eye[j]).reshape(1, 1, *ones, count, *ones, shape[-1])
        return Coefficients(table, tuple(length for _, length in window), shape, (*links, None))

    @staticmethod
    def matrix(tensor: Tensor, shape: Shape) -> Coefficients:
        """Given rows `[instances, rows, *shape]`, none of them linked."""
        return Coefficients(tensor[None], (int(tensor.shape[1]),), shape, (None,))

    # ---- names -------------------------------------------------------------------------------------------------

    def linked(self, axis: int) -> int | None:
        """The axis of S that is linked to this axis of N."""
        for a, link in enumerate(self.links):
            if link is not None and link.axis == axis:
                return a
        return None

    def _names(self, node: str) -> tuple[str, str]:
        """Letters of the stored tensor (linked row axes squeezed out) and of the rows."""
        stored, rows = "", ""
        for a, link in enumerate(self.links):
            if link is None:
                stored += ROWS[a]
                rows += ROWS[a]
            else:
                rows += node[link.axis]
        return stored, rows

    def squeezed(self) -> Tensor:
        """The tensor without the size-1 row axes of links: [side, instance, *unlinked S, *N]."""
        drop = [2 + a for a, link in enumerate(self.links) if link is not None]
        return self.tensor.squeeze(drop) if drop else self.tensor

    def windowed(self, operand: Tensor, axes: str, node: str) -> Tensor:
        """An operand `[instance, *axes]`, cut to the window of rows on every linked axis."""
        for a, link in enumerate(self.links):
            if link is None:
                continue
            letter = node[link.axis]
            if letter in axes:
                d = 1 + axes.index(letter)
                if operand.shape[d] != 1 and (link.offset or operand.shape[d] != self.rows[a]):
                    operand = operand.narrow(d, link.offset, self.rows[a])
        return operand

    # ---- the one contraction -----------------------------------------------------------------------------------

    def _einsum(self, a: Tensor, operand: Tensor, axes: str, node: str, lead: str, out: str) -> Tensor:
        """`sum a operand`, the axes by their letters; `lead` are letters before the operand's axes."""
        stored, _ = self._names(node)
        left, right = SIDE + INSTANCE + stored + node, INSTANCE + lead + axes
        if operand.shape[0] == 1:
            operand, right = operand[0], right[1:]
        elif a.shape[1] == 1:
            a, left = a.squeeze(1), SIDE + stored + node
        target = out
        if INSTANCE not in left + right:
            target = out.replace(INSTANCE, "")
        result: Tensor = torch.einsum(f"{left},{right}->{target}", a, operand)
        return result if target == out else result.unsqueeze(1)

    def pull(self, planes: Planes, k: int, shape: Shape, split: SplitSlope) -> Coefficients:
        """Through an op with these planes to its k-th input of the given shape.

        `lower: A c - |A| g`, `upper: A c + |A| g`, with c and g the centre and half the gap of the two slopes.
        """
        slope = planes.slopes[k]
        keep: list[Link | None] = []
        out = ""
        for a, link in enumerate(self.links):
            if link is None:
                keep.append(None)
                out += ROWS[a]
                continue
            letter = planes.outputs[link.axis]
            if letter in slope.inputs:
                keep.append(Link(slope.inputs.index(letter), link.offset))
            else:  # released: the coordinate becomes an axis of its own
                keep.append(None)
                out += letter
        out = SIDE + INSTANCE + out + slope.inputs
        centre = self.windowed(split.centre, slope.axes, planes.outputs)
        gap = None if split.gap is None else self.windowed(split.gap, slope.axes, planes.outputs)
        stored, missing = _supply(self.squeezed(), planes.outputs, slope)
        if gap is not None and slope.inputs == slope.axes == planes.outputs:  # entry by entry
            lead = (1, centre.shape[0], *(1,) * (stored.dim() - 1 - centre.dim()))
            result = two_sided(stored, centre.reshape(*lead, *centre.shape[1:]), gap.reshape(*lead, *gap.shape[1:]))
        else:
            result = self._einsum(stored, centre, slope.axes, planes.outputs + missing, "", out)
            if gap is not None:
                spread = self._einsum(stored.abs(), gap, slope.axes, planes.outputs + missing, "", out)
                result = with_sides(result, spread)
        for a_axis, link in enumerate(keep):
            if link is not None:
                result = result.unsqueeze(2 + a_axis)
        return Coefficients(result, self.rows, shape, tuple(keep))._filled()

    def pull_at(self, planes: Planes, k: int, split: SplitSlope, hot: Tensor | None, axis: int) -> Chosen | None:
        """As `pull`, but only to the marked positions of an axis of the input.

        None where all are, where rows are linked to it, or where it is one position that the op copies to several.
        """
        if hot is None:
            return None
        slope = planes.slopes[k]
        at = slope.inputs[axis]
        linked = {planes.outputs[link.axis] for link in self.links if link is not None}
        if any(letter in slope.inputs for letter in linked) or at not in planes.outputs + slope.axes:
            return None
        stored, rows = self._names(planes.outputs)
        a, missing = _supply(self.squeezed(), planes.outputs, slope)
        left = SIDE + INSTANCE + stored + planes.outputs + missing
        if at in planes.outputs:
            a = _at(a, left.index(at), hot)
            left = SIDE + INSTANCE + AT + left[2:].replace(at, "")
        out = SIDE + INSTANCE + AT + slope.inputs.replace(at, "") + rows

        def met(a: Tensor, operand: Tensor) -> Tensor:
            operand = self.windowed(operand, slope.axes, planes.outputs)
            right = INSTANCE + slope.axes
            if at in slope.axes:
                operand = torch.einsum(f"{right},{INSTANCE}{AT}{at}->{right.replace(at, AT)}", operand, hot)
                right = right.replace(at, AT)
            found: Tensor = torch.einsum(f"{left},{right}->{out}", a, operand)
            return found

        result = met(a, split.centre)
        if split.gap is not None:
            result = with_sides(result, met(a.abs(), split.gap))
        sizes = [self.rows[i] for i in range(len(self.rows))]
        return Chosen(result.expand(*result.shape[: result.dim() - len(sizes)], *sizes))

    def _filled(self) -> Coefficients:
        """Row axes that were released from a broadcast, or node axes of size 1, brought to their full size."""
        sizes = list(self.tensor.shape)
        for a, link in enumerate(self.links):
            if link is None:
                sizes[2 + a] = self.rows[a]
        lead = 2 + len(self.rows)
        for b, size in enumerate(self.node):
            if self.linked(b) is None:
                sizes[lead + b] = size
        return replace(self, tensor=self.tensor.expand(sizes))

    def contract(self, value: Tensor, lead: str = "") -> Tensor:
        """`A value` for a value `[instance, *lead, *N]`: `[side, instance, *lead, *S]`."""
        node = LETTERS[: len(self.node)]
        _, rows = self._names(node)
        value = self._windowed_behind(value, node, len(lead))
        out = self._einsum(self.squeezed(), value, node, node, lead, SIDE + INSTANCE + lead + rows)
        return out.expand(*out.shape[: 2 + len(lead)], *self.rows)

    def contract_abs(self, value: Tensor, lead: str = "") -> Tensor:
        return replace(self, tensor=self.tensor.abs()).contract(value, lead)

    def contract_norm(self, radius: Tensor) -> Tensor:
        """`sum |A|_2 radius`: what vectors no longer than `radius` [instance, *N[:-1]] along the last axis may add."""
        norms = norm(self.tensor, 2.0, dim=-1).unsqueeze(-1)
        return replace(self, tensor=norms, node=(*self.node[:-1], 1)).contract(radius.unsqueeze(-1))

    def _windowed_behind(self, value: Tensor, node: str, lead: int) -> Tensor:
        for a, link in enumerate(self.links):
            if link is not None:
                d = 1 + lead + link.axis
                if value.shape[d] != 1 and (link.offset or value.shape[d] != self.rows[a]):
                    value = value.narrow(d, link.offset, self.rows[a])
        return value

    def select(self, hot: Tensor | None, axis: int) -> Tensor:
        """At the input: coefficients of the perturbed blocks. `hot` [instance, t, n] says which position each is;
        without it every position is one.

        Returns `[side, instance, t, *(N without axis), *S]`, none of the remaining axes of N linked.
        """
        a = self
        for b in range(len(self.node)):
            if b != axis and a.linked(b) is not None:
                a = a.unlink(b)
        if hot is None:
            return a.unlink(axis)._by_position(axis)
        if a.linked(axis) is None:
            return a._taken(hot, axis)
        node = LETTERS[: len(a.node)]
        others = node[:axis] + node[axis + 1 :]
        _, rows = a._names(node)
        return a._einsum(
            a.squeezed(), a._hot(hot, axis), "t" + node[axis], node, "", SIDE + INSTANCE + "t" + others + rows
        )

    def _by_position(self, axis: int) -> Tensor:
        """All entries, none of the axes linked: `[side, instance, positions, *(N without axis), *S]`."""
        lead = 2 + len(self.rows)
        behind = [lead + axis, *(lead + b for b in range(len(self.node)) if b != axis)]
        return self.tensor.permute(0, 1, *behind, *range(2, lead))

    def _taken(self, hot: Tensor, axis: int) -> Tensor:
        """The entries at the marked positions of an axis; zeros for a block that marks none."""
        lead = len(self.rows)
        chosen = _at(self.tensor, 2 + lead + axis, hot)  # [side, instance, t, *S, *(N without axis)]
        order = [0, 1, 2, *range(3 + lead, chosen.dim()), *range(3, 3 + lead)]
        return chosen.permute(order)

    def _hot(self, hot: Tensor, axis: int) -> Tensor:
        a = self.linked(axis)
        link = None if a is None else self.links[a]
        return hot if a is None or link is None else hot.narrow(2, link.offset, self.rows[a])

    # ---- changes of shape --------------------------------------------------------------------------------------

    def unlink(self, axis: int) -> Coefficients:
        """The same rows with a linked axis of N stored in full."""
        a = self.linked(axis)
        if a is None:
            return self
        link = self.links[a]
        assert link is not None
        size, count = self.node[axis], self.rows[a]
        d = 2 + len(self.rows) + axis
        eye = torch.eye(count, dtype=self.tensor.dtype, device=self.tensor.device)
        # [.., S_a = 1, .., N_axis = count] -> [.., S_a = count, .., N_axis = count]
        moved = self.tensor.expand([count if i == d else s for i, s in enumerate(self.tensor.shape)])
        shape = [1] * self.tensor.dim()
        shape[2 + a], shape[d] = count, count
        full = moved * eye.reshape(shape)
        if size != count:
            full = _pad(full, d, link.offset, size)
        links = tuple(None if i == a else l for i, l in enumerate(self.links))
        return replace(self, tensor=full, links=links)

    def permute(self, order: tuple[int, ...]) -> Coefficients:
        lead = 2 + len(self.rows)
        tensor = self.tensor.permute(*range(lead), *(lead + i for i in order))
        links = tuple(None if l is None else Link(order.index(l.axis), l.offset) for l in self.links)
        return replace(self, tensor=tensor, node=tuple(self.node[i] for i in order), links=links)

    def reshape(self, old: Shape, new: Shape) -> Coefficients:
        """Coefficients on a tensor of shape `new`, of which the node of shape `old` is a reshape."""
        whole = dict(whole_axes(old, new))
        a = self
        for axis in range(len(old)):
            if a.linked(axis) is not None and axis not in whole:
                a = a.unlink(axis)
        lead = 2 + len(a.rows)
        sizes = list(new)
        for link in a.links:
            if link is not None:
                sizes[whole[link.axis]] = a.tensor.shape[lead + link.axis]
        links = tuple(None if l is None else Link(whole[l.axis], l.offset) for l in a.links)
        return replace(a, tensor=a.tensor.reshape(*a.tensor.shape[:lead], *sizes), node=new, links=links)

    def pad(self, axis: int, before: int, size: int) -> Coefficients:
        """Through a slice that started at `before` of an axis of `size`.

        Where it took one entry, rows with an axis of size 1 are linked to that entry: the zeros are not stored.
        """
        a = self.linked(axis)
        node = self.node[:axis] + (size,) + self.node[axis + 1 :]
        if a is not None:
            links = tuple(Link(axis, l.offset + before) if l and l.axis == axis else l for l in self.links)
            return replace(self, node=node, links=links)
        spare = self._spare() if self.node[axis] == 1 < size else None
        if spare is not None:
            links = tuple(Link(axis, before) if a == spare else l for a, l in enumerate(self.links))
            return replace(self, node=node, links=links)
        d = 2 + len(self.rows) + axis
        return replace(self, tensor=_pad(self.tensor, d, before, size), node=node)

    def _spare(self) -> int | None:
        """An axis of size 1 of the rows that is not linked."""
        pairs = enumerate(zip(self.rows, self.links, strict=True))
        return next((a for a, (size, link) in pairs if size == 1 and link is None), None)

    def opened(self, axis: int) -> Coefficients:
        """The same rows, an axis of N of which they hold one entry stored in full."""
        a = self.linked(axis)
        return self if a is None or self.rows[a] == self.node[axis] or self.rows[a] > 1 else self.unlink(axis)

    def narrow(self, axis: int, start: int, length: int) -> Coefficients:
        """The coefficients on part of an axis (of a concatenation)."""
        a = self.unlink(axis)
        node = a.node[:axis] + (length,) + a.node[axis + 1 :]
        return replace(a, tensor=a.tensor.narrow(2 + len(a.rows) + axis, start, length), node=node)

    def collapse(self, axis: int) -> Coefficients:
        """Through copies along an axis: the coefficients on the copies add up."""
        a, d = self.linked(axis), 2 + len(self.rows) + axis
        node = self.node[:axis] + (1,) + self.node[axis + 1 :]
        if a is None:
            return replace(self, tensor=self.tensor.sum(dim=d, keepdim=True), node=node)
        # each row meets one copy: its coordinate moves to the rows' own axis
        sizes = [self.rows[a] if i == d else s for i, s in enumerate(self.tensor.shape)]
        tensor = self.tensor.expand(sizes).transpose(2 + a, d)
        return replace(
            self, tensor=tensor, node=node, links=tuple(None if i == a else l for i, l in enumerate(self.links))
        )

    def scatter(self, axis: int, index: Tensor, node: Shape) -> Coefficients:
        """Through entries picked along an axis of a tensor of shape `node`, none of them twice."""
        a, varies = self, [b for b, size in enumerate(index.shape) if size != 1 or b == axis]
        for b in varies:
            a = a.unlink(b)
        lead = 2 + len(a.rows)
        sizes = list(a.tensor.shape)
        for b in varies:  # stored in full wherever the index varies
            sizes[lead + b] = index.shape[b]
        tensor = a.tensor.expand(sizes)
        sizes[lead + axis] = node[axis]
        moved = tensor.new_zeros(sizes).scatter_(lead + axis, index.expand(tensor.shape), tensor)
        return replace(a, tensor=moved, node=node)

    def shifted(self, weights: Tensor) -> tuple[Coefficients, Coefficients]:
        """On entries that sum to 1 along the last axis (not linked): coefficients less a constant, and that constant
        as coefficients on the sums.

        The constant is the weighted median of the coefficients, which makes `sum_j w_j |A_j - a|` least.
        """
        values, order = self.tensor.sort(dim=-1)
        # weights [instance, *N] -> [1, instance, 1.., *N], cut to the window of rows on linked axes
        names = LETTERS[: len(self.node)]
        w = self.windowed(weights, names, names)
        w = w.reshape(1, w.shape[0], *(1,) * len(self.rows), *w.shape[1:])
        w = w.expand(broadcast(tuple(w.shape), tuple(order.shape))).contiguous()
        order = order.expand(w.shape)
        n = order.shape[-1]
        reached = w.gather(-1, order) @ torch.ones(n, n, dtype=w.dtype, device=w.device).triu()  # running sums
        at = (reached < reached[..., -1:] / 2).sum(dim=-1, keepdim=True).clamp(max=order.shape[-1] - 1)
        median = values.expand(w.shape).gather(-1, at)
        return replace(self, tensor=self.tensor - median), replace(self, tensor=median, node=(*self.node[:-1], 1))

    def balanced(self, weights: Tensor | None) -> tuple[Coefficients, Coefficients]:
        """As `shifted`, by the mean of the coefficients with these weights `[instance, *N]`, none of them negative."""
        names = LETTERS[: len(self.node)]
        w = self.tensor.new_ones((1, *self.node)) if weights is None else weights
        w = self.windowed(w, names, names)
        w = w.reshape(1, w.shape[0], *(1,) * len(self.rows), *w.shape[1:])
        total = w.sum(dim=-1, keepdim=True)
        mean = (self.tensor * w).sum(dim=-1, keepdim=True) / torch.where(total > 0, total, 1)
        return replace(self, tensor=self.tensor - mean), replace(self, tensor=mean, node=(*self.node[:-1], 1))

    def scaled(self, factor: float) -> Coefficients:
        return replace(self, tensor=self.tensor * factor)

    def centered(self) -> Coefficients:
        """Through `x - mean(x)` on the last axis, which is not linked: the map is its own transpose."""
        return replace(self, tensor=self.tensor - self.tensor.mean(dim=-1, keepdim=True))

    def alike(self, other: object) -> bool:
        """Whether the links agree, so that a sum is entry by entry."""
        return isinstance(other, Coefficients) and self.links == other.links

    def __add__(self, other: Coefficients) -> Coefficients:
        """The sum of functions on the same node; links that only one of them has are stored in full."""
        links = tuple(x if x == y else None for x, y in zip(self.links, other.links, strict=True))
        if self.links == other.links:
            return replace(self, tensor=self.tensor + other.tensor)
        if other.links == links:
            self, other = other, self
        if torch.is_grad_enabled() or self.links != links:
            whole = self._with(links).tensor + other._with(links).tensor
            return replace(self, tensor=whole, links=links)
        lead = broadcast(tuple(self.tensor.shape[:2]), tuple(other.tensor.shape[:2]))
        whole = self.tensor.expand(*lead, *self.tensor.shape[2:]).clone(memory_format=torch.contiguous_format)
        other._add_into(whole, links)
        return replace(self, tensor=whole)

    def _with(self, links: tuple[Link | None, ...]) -> Coefficients:
        a = self
        for link, kept in zip(self.links, links, strict=True):
            if link is not None and link != kept:
                a = a.unlink(link.axis)
        return a

    def _add_into(self, whole: Tensor, links: tuple[Link | None, ...]) -> None:
        """Add to a tensor in which only `links` are linked: along the diagonals of the others."""
        mine, lead = self.tensor, 2 + len(self.rows)
        done: list[int] = []
        for a, (link, kept) in enumerate(zip(self.links, links, strict=True)):
            if link is None or link == kept:
                continue
            row, column = 2 + a, lead + link.axis
            gone = [d for d in done if d < row], [d for d in done if d < column]
            whole = whole.narrow(column - len(gone[1]), link.offset, self.rows[a])
            whole = whole.diagonal(dim1=row - len(gone[0]), dim2=column - len(gone[1]))
            mine = mine.squeeze(row - len(gone[0])).movedim(column - len(gone[1]) - 1, -1)
            done += [row, column]
        whole.add_(mine)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Coefficients at the positions that vary and no others: `[side, instance, t, *(N without positions), *S]`."""

    tensor: Tensor

    def alike(self, other: object) -> bool:
        """Never: they are added up where they arrive."""
        return False

    def __add__(self, other: Chosen) -> Chosen:
        return Chosen(self.tensor + other.tensor)


def _at(a: Tensor, dim: int, hot: Tensor) -> Tensor:
    """`[side, instance, ...]` at the marked positions of `dim`: `[side, instance, t, ...]`; 0 where none is marked."""
    marked, where = hot.max(dim=2)  # [instance, t]
    by_position = a.movedim(dim, 2)
    instance = torch.arange(hot.shape[0], device=hot.device)[:, None] if by_position.shape[1] > 1 else 0
    chosen = by_position[:, instance, where]
    return chosen * marked.reshape(1, *marked.shape, *(1,) * (chosen.dim() - 3))


class SplitSlope(NamedTuple):
    """A slope as centre and half gap; the gap is None where the op is exact."""

    centre: Tensor
    gap: Tensor | None

    @staticmethod
    def of(slope: Slope) -> SplitSlope:
        if slope.upper is slope.lower:
            return SplitSlope(slope.lower, None)
        return SplitSlope((slope.lower + slope.upper) / 2, (slope.upper - slope.lower) / 2)


def _supply(a: Tensor, outputs: str, slope: Slope) -> tuple[Tensor, str]:
    """Input letters that neither the coefficients nor the slope carry are axes of size 1: give the tensor those."""
    missing = "".join(l for l in slope.inputs if l not in outputs and l not in slope.axes)
    for _ in missing:
        a = a.unsqueeze(-1)
    return a, missing


def _pad(x: Tensor, dim: int, before: int, size: int) -> Tensor:
    out = x.new_zeros([size if i == dim else s for i, s in enumerate(x.shape)])
    out.narrow(dim, before, x.shape[dim]).copy_(x)
    return out

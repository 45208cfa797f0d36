"""Products of matrices, sums of entries of their right factor taken together.

A sweep that meets `x @ y` with coefficients `A_ij` needs `sum_k x_ik w_ik` with `w_ik = sum_j A_ij y_kj`. McCormick's
planes put there the least that `w_ik` would be if every `y_kj` were at its worst end, `e_ik`. What they lose is

    (x_ik - l_ik) (w_ik - e_ik),        l_ik <= x_ik,

and `w_ik`, one linear function of y, hardly ever is that small: by the linear functions below and above y, of which a
positive coefficient takes the one and a negative one the other, `w_ik - e_ik` is at least some `D_ik >= 0`. So
`sum_k D_ik (x_ik - l_ik)` is added to the lower function, and the like is taken off the upper one. For every D between
0 and what is proved the planes stay sound. Where they are mixed with those that touch at the upper end of x, it is the
share of the first that counts. `B gram B'` is linear in the products of two numbers of B: where those are fewer than
the numbers of `B gram` for all k, they are what is multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .coefficients import INSTANCE, ROWS, SIDE, Coefficients
from .deadline import Deadline
from .graph.graph import Graph, Node
from .ops.base import LETTERS, OWN, root_of
from .ops.movement import Movement
from .ops.product import MatMul
from .rounding import SLACK, gamma, tiny, too_many

if TYPE_CHECKING:
    from .engine import Engine
    from .form import Form

KEPT = 16  # the linear form of one instance that is kept takes one over this of the memory, at most
HELD = 3  # tensors of the size of the coefficients that are there at once
KEYS = 48  # positions: sums over more take matrices of so many numbers squared, and gain little
BLOCK = 4  # numbers whose products with all that follow are made together


class Sums(NamedTuple):
    """A node over a set, in deviations from its nominal value: for every row b of numbers along the last axis, `b y` is
    `b offset`, give or take `|b| gap + sum_blocks sqrt(b gram b')`.

    Where y is not one linear function, give or take the same everywhere, the last axis holds two for every entry, that
    below and the other one negated; b are then the positive and the negative parts of the row (`halved`), and the row
    times y is at least that.
    """

    offset: Tensor  # [instance, *shape], the last axis once or twice as long
    gap: Tensor  # as offset
    gram: Tensor  # [block, instance, *shape of offset, its last axis again]

    def take(self, row: int) -> Sums:
        """Those of one instance."""
        return Sums(self.offset[row : row + 1], self.gap[row : row + 1], self.gram[:, row : row + 1])

    @staticmethod
    def joined(parts: list[Sums], like: Tensor) -> Sums:
        """Those of several instances, in a precision; grams may be any numbers that are not too small."""
        up = 1 + 8 * float(torch.finfo(like.dtype).eps)
        offset, gap, gram = (torch.cat([p[k] for p in parts], dim=k // 2) for k in range(3))
        lost = (offset - offset.to(like).to(offset)).abs()
        return Sums(offset.to(like), ((gap + lost) * up).to(like), (gram * up).to(like))


def products(graph: Graph) -> dict[int, tuple[Node, tuple[Node, ...]]]:
    """Products of two matrices that vary: the node whose entries the right factor rearranges, and by what, in order."""
    found: dict[int, tuple[Node, tuple[Node, ...]]] = {}
    for node in graph.nodes:
        if isinstance(node.op, MatMul) and all(p.perturbed for p in graph.parents(node)):
            at, moves = graph.parents(node)[1], list[Node]()
            if len(at.shape) - 1 in graph.position_axes[at.index] and at.shape[-1] > KEYS:
                continue
            while isinstance(at.op, Movement) and len(at.inputs) == 1:
                moves.append(at)
                (at,) = graph.parents(at)
            found[node.index] = at, tuple(reversed(moves))
    return found


def sums_of(engine: Engine, node: Node, form: Form) -> Sums | None:
    """What a linear form of a node says of sums of its entries; None where the set has no such matrices."""
    function, offset, size = form.centre, form.offset, form.size
    gap = torch.zeros_like(offset) if form.offset_gap is None else form.offset_gap.abs()
    if form.gap is not None:
        function = torch.cat([function - form.gap, -function - form.gap], dim=-1)
        offset, gap = torch.cat([offset - gap, -offset - gap], dim=-1), torch.zeros_like(gap)
    found = engine.ball.grams(function)
    if found is None:
        return None
    middle, gram = found
    slack = engine.slack(node, size)
    if slack is not None and size is not None:  # of the form, and of its parts along the normals of a piece
        gap = gap + slack + size * gamma(size, 16 * (engine.ball.dimension + SLACK))
    if form.gap is not None:
        gap = torch.cat([gap, gap], dim=-1)
    return Sums(offset + middle, gap, gram)


def halved(a: Tensor, width: int) -> Tensor:
    """Rows `[.., j]` as sums of that many numbers take them: as they are, or their positive and negative parts."""
    return a if width == a.shape[-1] else torch.cat([a.clamp(min=0), (-a).clamp(min=0)], dim=-1)


class Joint(NamedTuple):
    """A product, ready for sweeps: D is `B turn + |B| gain - lost - sum_blocks sqrt(B gram B')`, for B the share of the
    coefficients below, of those above negated, as the sums take it (`halved`)."""

    turn: Tensor  # [instance, *batch, k, j], j as long as that of the sums
    gain: Tensor  # [instance, *batch, k, j]
    gram: Tensor  # [block, instance, *batch, k, j, j]
    sizes: Tensor  # [block, instance, *batch, k, j]: the roots of its diagonal
    start: Tensor  # of x: nominal value less lower end, [instance, *batch, i, k]
    size: Tensor  # of x: what the rounding of its coefficients meets
    terms: float  # that a square adds up; 0 where rounding does not count


def joint_of(engine: Engine, node: Node, sums: Sums) -> Joint | None:
    """How a product is met, over the boxes of its factors."""
    x, y = engine.graph.parents(node)
    box, nominal = engine.box(y), engine.nominal[y.index]
    width = sums.offset.shape[-1]
    if width == y.shape[-1]:  # around the middle of the box, from which either end is as far
        start, radius = nominal - box.centre, box.radius
        sizes = nominal.abs() + box.centre.abs() + radius
    else:  # from the end that would be the worst for itself
        start = torch.cat([nominal - box.lower, box.upper - nominal], dim=-1)
        radius = torch.zeros_like(start)
        sizes = torch.cat([nominal.abs() + box.lower.abs(), nominal.abs() + box.upper.abs()], dim=-1)
    gain, terms = radius - sums.gap, 0.0
    if engine.rounding:
        terms = 4 * (width + engine.ball.dimension + SLACK)
        sizes = sums.offset.abs() + sizes + sums.gap
        if too_many(sizes, 2 * terms):
            return None
        gain = gain - gamma(sizes, terms) * sizes - 4 * math.sqrt(terms * tiny(sizes))  # squares may vanish
    turn = sums.offset + start
    left, start = engine.box(x), engine.nominal[x.index]
    size = torch.maximum(left.lower.abs(), left.upper.abs()) + start.abs()
    roots = root_of(sums.gram.diagonal(dim1=-2, dim2=-1))
    return Joint(turn, gain, sums.gram, roots, start - left.lower, size, terms)


@dataclass(eq=False)
class Products:
    """What an engine knows of the right factors of its products, found when it is asked for."""

    forms: dict[int, Form] = field(default_factory=dict)  # of nodes that are no anchors
    sums: dict[int, Sums | None] = field(default_factory=dict)  # by product
    joints: dict[int, Joint | None] = field(default_factory=dict)  # by product

    def wants(self, engine: Engine, node: Node) -> bool:
        """Whether the linear form of a node is kept for a product: not where that of one instance takes much memory.

        Which instances are bounded together says nothing here: what is proved of one does not depend on others.
        """
        return node.index in engine.scheme.formed and self.small(engine, node)

    @staticmethod
    def small(engine: Engine, node: Node) -> bool:
        """Whether the linear form of a node takes little memory."""
        entries = 2 * engine.ball.dimension * math.prod(node.shape)
        return entries * engine.ball.centre.element_size() <= engine.memory // KEPT

    def joint(self, engine: Engine, node: Node) -> Joint | None:
        """What is known of sums of entries of the right factor of a product, if anything is."""
        if node.index not in self.joints:
            found = self.together(engine, node)
            self.joints[node.index] = None if found is None else joint_of(engine, node, found)
        return self.joints[node.index]

    def together(self, engine: Engine, node: Node) -> Sums | None:
        """The right factor of a product over the set, as sums of its entries see it."""
        if node.index not in self.sums:
            at, moves = engine.scheme.products.get(node.index, (node, ()))
            form = self.forms.get(at.index)
            for move in moves:
                form = None if form is None else form.map(move)
            self.sums[node.index] = None if form is None else sums_of(engine, engine.graph.parents(node)[1], form)
        return self.sums[node.index]


class Gain(NamedTuple):
    """What a sweep gains at a product: coefficients on x, and what they add to the offsets, give or take rounding."""

    coefficients: Coefficients
    offset: Tensor  # [side, instance, *rows]
    spread: Tensor  # [side, instance, *rows]


@dataclass(frozen=True, eq=False)
class Meeting:
    """Coefficients of a sweep at a product, with the letters of their axes."""

    joint: Joint
    part: Coefficients
    deadline: Deadline

    @property
    def rows(self) -> str:
        return "".join(ROWS[a] for a, link in enumerate(self.part.links) if link is None)

    @property
    def batch(self) -> str:
        return LETTERS[: len(self.part.node) - 2]

    @property
    def i(self) -> str:
        return LETTERS[len(self.part.node) - 2]

    @property
    def j(self) -> str:
        return LETTERS[len(self.part.node) - 1]

    def gain(self, x: Node, shares: tuple[Tensor, ...] | None, room: int) -> Gain:
        """What is gained; `shares` are those of the planes that touch at the upper end of x. In `room` for so many
        numbers."""
        part = self.part
        worth = self._each(room) if shares is None else self._by_shares(shares, room)
        worth = torch.nan_to_num(worth.clamp(min=0), nan=0.0, posinf=0.0)
        lead = 1 + len(self.batch)
        free = range(lead + 1, lead + 1 + len(self.rows))
        worth = worth.permute(lead, 0, *free, *range(1, lead), -2, -1)  # [side, instance, *rows, *batch, i, k]
        worth = (worth * _sides(worth)).contiguous()
        for axis, link in enumerate(part.links):
            if link is not None:
                worth = worth.unsqueeze(2 + axis)
        found = Coefficients(worth, part.rows, x.shape, part.links)
        start, size = self.joint.start, self.joint.size.expand_as(self.joint.start)
        slack = size * gamma(size, 4 * (math.prod(x.shape) + SLACK))
        met = found.contract(torch.stack([start, slack], dim=1), "X")  # both at once
        return Gain(found, met[:, :, 0], met[:, :, 1] * _sides(met[:, :, 1]))

    def _each(self, room: int) -> Tensor:
        """D, `[instance, *batch, side, *rows, i, k]`, for some of its rows at a time."""
        a = self.part.squeezed()
        lead, (total, n) = 2 + len(self.rows), self.joint.turn.shape[-2:]
        a = (a * _sides(a)).permute(1, *range(lead, a.dim() - 2), 0, *range(2, lead), -2, -1)
        rows = a.shape[1 + len(self.batch) : -1]  # behind the axes that operands have too: products take it as it lies
        table = a.contiguous().flatten(1 + len(self.batch), -2)  # [instance, *batch, rows of all kinds, j]
        count, some = table.shape[-2], _not_zero(table)
        table = table if some is None else table.index_select(-2, some)
        few = by_products(n, total)
        each = 2 * n + (products_of_two(n) + HELD * 2 * total if few else HELD * total * n)
        wide = max(table.shape[0], self.joint.turn.shape[0]) * math.prod(table.shape[1:-2])
        step = max(1, room // (wide * each))
        axes = self.batch + SIDE + self.j
        parts = [self._worth(part, axes, slice(None), few=few) for part in torch.split(table, step, dim=-2)]
        worth = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
        if some is not None:
            none = worth.new_zeros((*worth.shape[:-2], count, total))
            worth = none.index_copy(none.dim() - 2, some, worth)
        return worth.reshape(*worth.shape[: 1 + len(self.batch)], *rows, total)

    def _by_shares(self, shares: tuple[Tensor, ...], room: int) -> Tensor:
        """The same where planes are mixed, for some of the k at a time."""
        a, parts = self.part.squeezed(), list[Tensor]()
        a = a.expand(2, *a.shape[1:])
        total = self.joint.turn.shape[-2]
        wide = self.joint.turn.shape[-1] // a.shape[-1]
        step = max(1, min(total, room // (HELD * wide * a.numel() * max(1, self.joint.turn.shape[0] // a.shape[1]))))
        axes = SIDE + self.rows + self.batch + self.i + OWN[0] + self.j
        for first in range(0, total, step):
            here = slice(first, min(total, first + step))
            own = tuple(self._cut(s, self.batch + self.i + OWN[0] + self.j)[..., here, :] for s in shares)
            kept = _kept(a, own)
            parts.append(self._worth((kept * _sides(kept)).movedim(1, 0), axes, here))
        return torch.cat(parts, dim=-1)

    def _cut(self, operand: Tensor, axes: str) -> Tensor:
        """An operand within the window of rows."""
        return self.part.windowed(operand, axes, self.batch + self.i + self.j)

    def _worth(self, a: Tensor, axes: str, here: slice, *, few: bool = False) -> Tensor:
        """D of coefficients `[instance, *axes]`, those above negated. `few`: squares by products of two."""
        joint, k, l = self.joint, OWN[0], OWN[1]
        a = halved(a, joint.turn.shape[-1])
        left, right = INSTANCE + axes, INSTANCE + self.batch + k + self.j
        out = INSTANCE + self.batch + "".join(x for x in axes if x not in self.batch + k + self.j) + k
        count = 2 * joint.terms + (2 * products_of_two(a.shape[-1]) if few else 0)

        def met(a: Tensor, operand: Tensor) -> Tensor:
            value: Tensor = torch.einsum(f"{left},{right}->{out}", a, operand)
            return value

        self.deadline.check()
        size = a.abs()
        worth = met(a, self._cut(joint.turn, right[1:])[..., here, :])
        worth = worth + met(size, self._cut(joint.gain, right[1:])[..., here, :])
        products = _products(a) if few else None
        for gram, sizes in zip(joint.gram, joint.sizes, strict=True):
            gram, sizes = self._cut(gram, right[1:] + l)[..., here, :, :], self._cut(sizes, right[1:])[..., here, :]
            if products is not None:
                square = met(products, _weights(gram))
            else:
                image = torch.einsum(f"{left},{right}{l}->{out}{l}", a, gram)
                each = torch.einsum(f"{left}->{out.replace(k, k if k in axes else '')}{self.j}", a)
                square = (image * (each if k in axes else each.unsqueeze(-2))).sum(dim=-1)
            square = square.clamp(min=0)
            if joint.terms:  # rounding of the matrix and of the square, and what vanished below the normal numbers
                rest = met(size, sizes)
                square = torch.addcmul(square, rest, rest, value=gamma(square, count))
                lost = 4 * math.sqrt(count * tiny(square)) * (1 + sizes.sum(dim=-1))
                worth = worth - lost.reshape(*lost.shape[:-1], *(1,) * (worth.dim() - lost.dim()), lost.shape[-1])
            worth = torch.sub(worth, root_of(square), alpha=1 + (gamma(square, SLACK) if joint.terms else 0))
        return worth


def _not_zero(table: Tensor) -> Tensor | None:
    """The rows `[.., rows, j]` in which anything is not 0, or None for all: of a difference of two scores most belong
    to positions that it does not read, and gain nothing. On a GPU, which would have to wait, all are kept."""
    if table.is_cuda or table.is_meta:
        return None
    rows = (table != 0).any(dim=-1).reshape(-1, table.shape[-2]).any(dim=0)
    return None if bool(rows.all()) else rows.nonzero()[:, 0]


def products_of_two(n: int) -> int:
    """How many products of two of n numbers are looked at."""
    return sum(min(BLOCK, n - first) * (n - first) for first in range(0, n, BLOCK))


def by_products(n: int, total: int) -> bool:
    """Whether squares of rows of n numbers by so many matrices are found by the products of two of them."""
    return products_of_two(n) < total * n


def _products(a: Tensor) -> Tensor:
    """Products of two numbers along the last axis: of those in one block all, of others each pair once."""
    n = a.shape[-1]
    blocks = [a[..., first : first + BLOCK, None] * a[..., None, first:] for first in range(0, n, BLOCK)]
    return torch.cat([block.flatten(-2) for block in blocks], dim=-1)


def _weights(gram: Tensor) -> Tensor:
    """What products of two are multiplied by in `b G b'`."""
    n, parts = gram.shape[-1], list[Tensor]()
    for first in range(0, n, BLOCK):
        here, behind = slice(first, first + BLOCK), slice(first + BLOCK, n)
        twice = gram[..., here, behind] + gram[..., behind, here].mT
        parts.append(torch.cat([gram[..., here, here], twice], dim=-1).flatten(-2))
    return torch.cat(parts, dim=-1)


def _sides(like: Tensor) -> Tensor:
    """1 on the lower side, -1 on the upper one; nothing is copied to a GPU for it, which could not be recorded."""
    return torch.arange(1, -2, -2, dtype=like.dtype, device=like.device).reshape(2, *(1,) * (like.dim() - 1))


def _kept(a: Tensor, shares: tuple[Tensor, ...]) -> Tensor:
    """Coefficients `[side, instance, *rows, *batch, i, k, j]` on the planes that touch at the lower end of x: of a
    positive coefficient the lower function takes the lower plane, of a negative one the upper plane."""
    low, high = ((1 - s.clamp(0, 1)).reshape(1, s.shape[0], *(1,) * (a.dim() - s.dim()), *s.shape[1:]) for s in shares)
    a = a.unsqueeze(-2)
    return a * torch.where(a * _sides(a) >= 0, low, high)


__all__ = ["Gain", "Joint", "Meeting", "Products", "Sums", "products"]

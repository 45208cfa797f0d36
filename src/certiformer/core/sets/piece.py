"""Pieces of a ball: what lies between parallel hyperplanes, `low_i <= normal_i . delta <= high_i`.

A linear function is least over such a piece at no less than, for any numbers `t_i`,

    min over the ball of (A - sum_i t_i normal_i) . delta  +  sum_i (t_i low_i if t_i > 0 else t_i high_i),

so the `t_i` need not be exact. For one Euclidean ball and orthonormal normals the best have a closed form up to one
number, which is found by bisection; for other norms the same ones are tried, and multiples of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..ops.base import ulp
from .ball import Ball, grams_of, norm, spectral

HALVINGS = 14
MULTIPLES = (1.0, 0.6, 0.8, 1.25, 1.6)


NARROW = 0.5  # of a radius, that a piece may be wide across a normal that is told apart from the others


class Apart(NamedTuple):
    """Functions over a piece, for `grams_of`; bounds made of them are to be multiplied by `1 + error`, and `lost` times
    that over the whole ball is to be added."""

    middle: Tensor  # [instance, ...]
    along: Tensor  # [instance, k, 1, ...]: of every normal, times how far that goes
    rest: Tensor  # [instance, 1, m, ...]: times the radius that is left
    error: float
    lost: Tensor  # [instance]


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece(Ball):
    """A ball between hyperplanes: `normal` [instances, k, m], about orthonormal; `low` and `high` [instances, k].

    Both may be infinite. Pieces that share the number at which they are cut, and the normal, leave nothing out between
    them.
    """

    normal: Tensor
    low: Tensor
    high: Tensor
    symmetric: ClassVar[bool] = False

    def extremes(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The least value of the first side and the greatest of the last: `[1, instance, *rows]` each."""
        least, _ = self._least(_both(function))
        return least[:1], -least[1:]

    def multipliers(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers `t` that the extremes are found with, those of the greatest for the negated function.

        `[1, instance, k, *rows]` each; 0 where the ball alone says as much.
        """
        _, chosen = self._least(_both(function))
        return chosen[:1], chosen[1:]

    def _least(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """The least value, and the multipliers it is found with."""
        flat = function.reshape(*function.shape[:3], -1)
        extent = self.spread(self.normal.mT[None])[0]  # [instance, k]
        whole = self.spread(flat)
        best = -whole
        exact = self.p == 2 and self.width is None and (self.joint or self.hot.shape[1] == 1)
        with torch.no_grad():  # at the best ones the value does not depend on them
            multipliers = self._multipliers(flat, extent)
        chosen = torch.zeros_like(multipliers)
        error = 4 * (flat.shape[2] + 4 * extent.shape[1] + 16) * ulp(flat)
        for factor in MULTIPLES[: 1 if exact else None]:
            t = multipliers * factor
            cut = torch.where(t > 0, self.low[:, :, None], torch.where(t < 0, self.high[:, :, None], 0))
            left = flat - torch.einsum("szkr,zkm->szmr", t, self.normal)
            slack = error * (whole + (t.abs() * (extent[:, :, None] + cut.abs())).sum(dim=2))
            found = (t * cut).sum(dim=2) - self.spread(left) - slack
            better = found > best  # not where it is not a number
            best, chosen = torch.where(better, found, best), torch.where(better[:, :, None], t, chosen)
        lead, rows = function.shape[:2], function.shape[3:]
        return best.reshape(*lead, *rows), chosen.reshape(*lead, -1, *rows)

    def around(self, function: Tensor) -> tuple[Tensor, Tensor]:
        """Of functions A `[instance, m, *lead, rows]` the value at a point c of each piece, and a bound on
        `|A (delta - c)|_2`.

        In the words of `_apart`, it is `B x` with `B = [A N_i w_i / sqrt(s_i), A' d / sqrt(s')]`, any shares s that sum
        to 1, and `|x| <= 1`.
        """
        best = self.distance(function)  # [instance, *lead]
        middle, size = torch.zeros_like(function[:, 0]), norm(norm(function, 2.0, dim=1), 2.0, dim=-1)
        eps = self.radii[:, 0].reshape(-1, *(1,) * (size.dim() - 1))
        lost = torch.maximum(best, size * eps * (self.low.shape[1] ** 0.5 / 4))  # entries round one by one
        for apart in self._apart(function):
            along, rest = apart.along[:, :, 0], apart.rest[:, 0]
            sizes = torch.cat([norm(along, 2.0, dim=-1), spectral(rest.movedim(1, -2))[:, None]], dim=1)
            shares = (sizes / sizes.sum(dim=1, keepdim=True).clamp(min=torch.finfo(sizes.dtype).tiny)).clamp(min=1e-6)
            root = (shares / shares.sum(dim=1, keepdim=True)).sqrt()[..., None]  # [instance, k + 1, *lead, 1]
            parts = torch.cat([along / root[:, :-1], rest / root[:, -1:]], dim=1)
            found = torch.minimum(sizes.sum(dim=1), spectral(parts.movedim(1, -2))) * (1 + apart.error)
            found = found + lost * apart.lost.reshape(-1, *(1,) * (lost.dim() - 1))
            better = found < best  # as far as from the centre of the ball where the piece is most of it
            middle, best = torch.where(better[..., None], apart.middle, middle), torch.where(better, found, best)
        return middle, best

    def grams(self, function: Tensor) -> tuple[Tensor, Tensor] | None:
        """As of the ball, or of the moves along the normals and of the rest, whichever is less for most rows."""
        whole = self._grams(function)
        middle, best = torch.zeros_like(function[:, 0]), whole
        for apart in self._apart(function):
            lost = apart.lost.reshape(-1, *(1,) * (function.dim() - 1)) + apart.error
            # (x + l y)^2 <= (1 + l) x^2 + (l + l^2) y^2
            own = grams_of([apart.along, apart.rest]) * ((1 + lost) * (1 + apart.error) ** 2) + whole * (lost + lost**2)
            better = (own - best).diagonal(dim1=-2, dim2=-1).sum(dim=-1)[0] < 0  # [instance, *lead]
            middle = torch.where(better[..., None], apart.middle, middle)
            best = torch.where(better[..., None, None], own, best)
        return middle, best

    def _apart(self, function: Tensor) -> Iterator[Apart]:
        """How functions A `[instance, m, ...]` move over a piece: along its normals N, and by `A' = A (I - N N')`.

        `A (delta - c) = A N (a - c) + A' delta`, where a lies between the cuts, within w of their middle c, and what is
        left of delta has `|d|^2 <= eps^2 - |a|^2`. With all normals, and with those alone across which the piece is
        narrow: half a ball is hardly less wide than all of it. Nothing where the set is not cut out of one Euclidean
        ball.
        """
        if not (self.p == 2 and self.width is None and (self.joint or self.hot.shape[1] == 1)):
            return
        used = torch.isfinite(self.low) | torch.isfinite(self.high)
        yield self._across(function, used)
        eps = self.radii[:, :1]
        wide = torch.minimum(self.high, eps) - torch.maximum(self.low, -eps)
        yield self._across(function, used & (wide < NARROW * eps))

    def _across(self, function: Tensor, used: Tensor) -> Apart:
        """The same with some of the normals."""
        eps = self.radii[:, 0]
        normal, skew = self._skewed(used)
        extent = (1 + skew).sqrt()[:, None] * eps[:, None]
        low, high = (torch.minimum(torch.maximum(x, -extent), extent) for x in (self.low, self.high))
        middle, wide = (low + high) / 2 * used, ((high - low) / 2).clamp(min=0) * used
        nearest = (low.clamp(min=0) + high.clamp(max=0)) * used
        error = 8 * (function.shape[1] + 4 * wide.shape[1] + 16) * ulp(function)
        # the difference of two squares that are nearly the same may have no digit right
        left = ((1 + error) * eps**2 - (1 - skew) * nearest.square().sum(dim=1)).clamp(min=0).sqrt()
        along = torch.einsum("zm...,zkm->zk...", function, normal)  # A N
        rest = function - torch.einsum("zk...,zkm->zm...", along, normal)
        wide, left = (
            wide.reshape(*wide.shape, *(1,) * (function.dim() - 2)),
            left.reshape(-1, *(1,) * (function.dim() - 1)),
        )
        return Apart(
            middle=torch.einsum("zk...,zk->z...", along, middle),
            along=(along * wide).unsqueeze(2),
            rest=(rest * left).unsqueeze(1),
            error=error,
            lost=2 * skew * (1 + skew) + error,
        )

    def _skewed(self, used: Tensor) -> tuple[Tensor, Tensor]:
        """Some of the normals, zeros in the place of the others, and how far `N N'` is from the identity on them: a
        bound `[instance]` on the spectral norm, with its rounding."""
        normal = self.normal * used[:, :, None]
        off = (normal @ normal.mT - torch.diag_embed(used.to(normal))).abs().sum(dim=-1).amax(dim=-1)
        lost = 2 * normal.shape[1] * (normal.shape[2] + 4) * ulp(normal)
        return normal, off * (1 + lost) + lost

    @property
    def lengths(self) -> Tensor | None:
        """Of a piece of one position's ball, at least as far as its cuts are: `|d|^2 >= sum_i (n_i . d)^2 / |N N'|`."""
        whole = super().lengths
        if whole is None or self.hot.shape[1] != 1:
            return whole
        nearest = self.low.clamp(min=0) + self.high.clamp(max=0)  # of each range to 0
        used = nearest != 0
        _, skew = self._skewed(used)
        down = 1 - 4 * (used.shape[1] + 16) * ulp(nearest)
        size = torch.linalg.vector_norm(torch.where(used, nearest, 0), dim=-1) / (1 + skew).sqrt() * down
        return torch.stack([whole[..., 0], torch.einsum("z,zn->zn", size, self.hot[:, 0])[:, None]], dim=-1)

    def empty(self) -> Tensor:
        """Whether nothing is in a piece, `[instances]`, where that is sure.

        For any `t_i`, the points of a piece have `sum_i t_i normal_i . delta` between a number that the ends of the
        piece give and what the ball allows: if the first is above the second, there are none.
        """
        extent = self.spread(self.normal.mT[None])[0]  # [instance, k]
        nearest = self.low.clamp(min=0) + self.high.clamp(max=0)  # of each range to 0
        t = torch.where(extent > 0, nearest / torch.where(extent > 0, extent, 1) ** 2, 0)
        along = (t * torch.where(t > 0, self.low, torch.where(t < 0, self.high, 0))).sum(dim=1)
        allowed = self.spread(torch.einsum("zk,zkm->zm", t, self.normal)[None, :, :, None])[0, :, 0]
        error = 8 * (self.normal.shape[2] + 4 * extent.shape[1] + 16) * ulp(t)
        return along * (1 - error) > allowed + error * (t.abs() * (extent + nearest.abs())).sum(dim=1)

    def _multipliers(self, flat: Tensor, extent: Tensor) -> Tensor:
        """`t` [side, instance, k, rows], finite, and of a sign only where the cut on that side is finite.

        In units of the extent of each normal, the least is where `r_i = clip(-along_i u / across)` with
        `u^2 + sum r_i^2 = 1`, which grows with u.
        """
        used = torch.isfinite(self.low) | torch.isfinite(self.high)  # others need not be across these
        along = torch.einsum("szmr,zkm->szkr", flat, self.normal) * used[:, :, None]
        size = torch.linalg.vector_norm(flat, dim=2)
        tiny = torch.finfo(flat.dtype).tiny
        left = (size.square() - along.square().sum(dim=2)).clamp(min=0).sqrt()
        across = torch.maximum(left, 1e-6 * size).clamp(min=tiny**0.5)[:, :, None]
        unit = extent.clamp(min=tiny**0.5)
        low, high = (self.low / unit)[:, :, None], (self.high / unit)[:, :, None]
        slope = -along / across
        below, above = torch.zeros_like(across), torch.ones_like(across)
        for _ in range(HALVINGS):
            u = (below + above) / 2
            r = torch.clamp(slope * u, low, high)
            inside = u.square() + r.square().sum(dim=2, keepdim=True) < 1
            below, above = torch.where(inside, u, below), torch.where(inside, above, u)
        u = above
        r = torch.clamp(slope * u, low, high)
        t = torch.where(r == slope * u, 0, along + r * across / u)
        t = torch.where(torch.isfinite(self.low)[:, :, None], t, t.clamp(max=0))
        t = torch.where(torch.isfinite(self.high)[:, :, None], t, t.clamp(min=0))
        return torch.where(torch.isfinite(t), t, 0)


def _both(function: Tensor) -> Tensor:
    """The first side of linear functions and the last one negated, of which the greatest value is the least."""
    return torch.cat([function[:1], -function[-1:]])


@dataclass(frozen=True, eq=False)
class Cuts:
    """Pieces of balls of any radius: `low <= normal . delta <= high`, numbers that do not change with the radius.

    So what lies in a piece of a ball lies in the same piece of a larger one. `normal` [pieces, k, t, d] about
    orthonormal in every piece, zeros where a piece has fewer; `low` and `high` [pieces, k], infinite where there is no
    cut.
    """

    normal: Tensor
    low: Tensor
    high: Tensor

    @staticmethod
    def none(pieces: int, like: Tensor) -> Cuts:
        """Whole balls, `like` [..., t, d]: one normal of zeros for each."""
        end = like.new_full((pieces, 1), torch.inf)
        return Cuts(like.new_zeros(pieces, 1, *like.shape[-2:]), -end, end)

    def __len__(self) -> int:
        return self.low.shape[0]

    def take(self, chosen: list[int]) -> Cuts:
        """Those of some pieces."""
        return Cuts(self.normal[chosen], self.low[chosen], self.high[chosen])

    def to(self, dtype: torch.dtype) -> Cuts:
        return Cuts(*(x.to(dtype) for x in vars(self).values()))

    def padded(self, k: int) -> Cuts:
        """With k normals for every piece."""
        more = k - self.low.shape[1]
        if more <= 0:
            return self
        pad = torch.nn.functional.pad
        return Cuts(
            pad(self.normal, (0, 0, 0, 0, 0, more)),
            pad(self.low, (0, more), value=-torch.inf),
            pad(self.high, (0, more), value=torch.inf),
        )

    @staticmethod
    def joined(parts: Sequence[Cuts]) -> Cuts:
        """Those of several lists of pieces, one after the other."""
        most = max(part.low.shape[1] for part in parts)
        rows = zip(*(vars(part.padded(most)).values() for part in parts), strict=True)
        return Cuts(*(torch.cat(row) for row in rows))

    def unified(self) -> Cuts:
        """The same pieces, all with the same normals: those of all of them."""
        used = torch.isfinite(self.low) | torch.isfinite(self.high)
        every, which = torch.unique(self.normal[used].flatten(1), dim=0, return_inverse=True)
        if not every.shape[0]:
            return self
        low = self.low.new_full((len(self), every.shape[0]), -torch.inf)
        high = -low
        rows = used.nonzero()[:, 0]
        low[rows, which], high[rows, which] = self.low[used], self.high[used]
        return Cuts(every.unflatten(1, self.normal.shape[2:]).expand(len(self), -1, -1, -1), low, high)

    def halved(self, normal: Tensor, at: Tensor) -> tuple[Cuts, Cuts]:
        """Every piece cut in two where `normal . delta = at`, normals `[pieces, t, d]`: the lower halves, the upper.

        Both halves have the very same number there, so nothing is left out between them.
        """
        own = self.padded(self.low.shape[1] + 1)
        free = torch.isinf(own.low) & torch.isinf(own.high)
        same = (own.normal == normal[:, None]).flatten(2).all(dim=2) & ~free  # [pieces, k]
        fits = torch.where(same.any(dim=1, keepdim=True), same, free)
        slot = fits & (fits.long().cumsum(dim=1) == 1)  # the normal itself, or the first that is free
        normals = torch.where(slot[:, :, None, None], normal[:, None], own.normal)
        here = at[:, None]
        low, high = torch.where(slot, here, own.low), torch.where(slot, here, own.high)
        return Cuts(normals, own.low, high), Cuts(normals, low, own.high)

    def middle(self, normal: Tensor, ball: Ball) -> Tensor:
        """Half way between the ends of pieces of a ball across directions `[pieces, t, d]`: `[pieces]`."""
        own = (self.normal == normal[:, None]).flatten(2).all(dim=2)  # [pieces, k]
        low = torch.where(own, self.low, -torch.inf).amax(dim=1)
        high = torch.where(own, self.high, torch.inf).amin(dim=1)
        flat = torch.cat([normal[:, None], self.normal], dim=1)[:, :, : ball.hot.shape[1]].flatten(2)
        reach, *others = ball.spread(flat.mT[None])[0].unbind(dim=1)
        if ball.p == 2 and ball.width is None and ball.hot.shape[1] == 1:  # what the other cuts leave of the ball
            away = torch.where(own, 0, self.low.clamp(min=0) + self.high.clamp(max=0))
            share = away / torch.stack(others, dim=1).clamp(min=torch.finfo(away.dtype).tiny)
            reach = reach * (1 - share.square().sum(dim=1)).clamp(min=0).sqrt()
        return (torch.maximum(low, -reach) + torch.minimum(high, reach)) / 2

    def point(self, ball: Ball) -> Tensor:
        """A point in about the middle of each piece of a ball, as a move `[pieces, t, d]`."""
        total = self.normal.new_zeros(len(self), *self.normal.shape[2:])
        for k in range(self.low.shape[1]):
            total = total + self.middle(self.normal[:, k], ball)[:, None, None] * self.normal[:, k]
        return total[:, : ball.hot.shape[1]]

    def trimmed(self) -> Cuts:
        """Without normals that no piece is cut across, but for one."""
        used = (torch.isfinite(self.low) | torch.isfinite(self.high)).any(dim=0)
        used[0] |= not bool(used.any())
        return Cuts(self.normal[:, used], self.low[:, used], self.high[:, used])

    def of(self, ball: Ball) -> Piece:
        """The pieces of balls, one of each."""
        normal = self.normal[:, :, : ball.hot.shape[1]].flatten(2)
        own = {f.name: getattr(ball, f.name) for f in fields(Ball)}
        return Piece(**own, normal=normal, low=self.low, high=self.high)

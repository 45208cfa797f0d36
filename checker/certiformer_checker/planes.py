"""Linear functions below and above each nonlinear operation, on deviations `d = x - r` from a reference r of each node.

Slopes come from the certificate, or from formulas that need not be exact. Offsets are computed here, so that the planes
hold whatever the slopes are. `real` is the arithmetic for that: intervals (numbers.py) or balls (exact.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from certiformer_checker.graph import Node, middle, normalized, without_own
from certiformer_checker.numbers import PI, TINY, Array, Span, down, gamma, require, up


@dataclass(frozen=True)
class Planes:
    """`Σ lower·d + low <= d_out <= Σ upper·d + high`; with `gap`, up to that much more on either side.

    The gap is bounded as a vector, too: by `remainder` in the Euclidean norm at each place (infinite: not known).
    """

    kinds: tuple[str, ...]  # how the slopes on each parent act, see APPLY
    parents: tuple[int, ...]
    lower: tuple[Array, ...]
    upper: tuple[Array, ...]
    low: Array
    high: Array
    gap: Array | None = None
    remainder: Array | None = None
    room: Array | float = 0.0  # what of low and high is there for the rounding of sweeps

    def sizes(self) -> list[Array]:
        return [np.maximum(np.abs(a), np.abs(b)) for a, b in zip(self.lower, self.upper, strict=True)]

    def with_rounding(self, deviations: list[Array]) -> Planes:
        """The planes with room for the rounding of a sweep that puts them in, the sum of their offsets included."""
        room: Array | float = TINY
        for kind, slope, deviation in zip(self.kinds, self.sizes(), deviations, strict=True):
            k = sum(slope.shape[-3:]) + self.low.size // (1 if kind == "whole" else max(deviation.size, 1))
            room = room + APPLY[kind](slope, deviation) * gamma(2 * k + 8)
        room = up(room + np.maximum(np.abs(self.low), np.abs(self.high)) * gamma(2 * self.low.size))
        return replace(self, low=down(self.low - room), high=up(self.high + room), room=room)

    def halfway(self, spread: Callable[[str, int, Array], tuple[Array, Array]]) -> Planes:
        """The middle of the planes: one slope; `spread` gives the range of a slope times the deviations of a parent."""
        slopes, low, high = [], self.low, self.high
        for n, (kind, parent) in enumerate(zip(self.kinds, self.parents, strict=True)):
            slopes.append(self.lower[n] / 2 + self.upper[n] / 2)
            if self.lower[n] is not self.upper[n]:
                below = spread(kind, parent, self.lower[n] - slopes[n])[0]
                over = spread(kind, parent, self.upper[n] - slopes[n])[1]
                low, high = down(low + below), up(high + over)
        return replace(self, lower=tuple(slopes), upper=tuple(slopes), low=low, high=high)


def _places(a: Array, slope: Array) -> Array:
    """Rows in front of places and entries, times a matrix for each place."""
    return np.moveaxis(np.moveaxis(a, 0, -2) @ slope, -2, 0)


def _right(a: Array, slope: Array) -> Array:
    """Coefficients on `Σ_k x_ik y_kj`, to those on y: slopes [..., i, k, j]."""
    return np.moveaxis(
        np.ascontiguousarray(np.moveaxis(a, (0, -1), (-2, -3))) @ np.moveaxis(slope, -1, -3), (-2, -3), (0, -1)
    )


# coefficients [rows, *shape of the output] and slopes, to coefficients on a parent
PULL: dict[str, Callable[[Array, Array], Array]] = {
    "each": lambda a, slope: a * slope,
    "row": lambda a, slope: a[..., None] * slope,
    "places": _places,
    "whole": lambda a, slope: a.reshape(len(a), -1) @ slope.reshape(-1, slope.shape[-1]),
    "left": lambda a, slope: np.moveaxis(np.moveaxis(a, 0, -2) @ np.swapaxes(slope, -1, -2), -2, 0),
    "right": _right,
}
# slopes and numbers on a parent, [*shape], to their product on the output
APPLY: dict[str, Callable[[Array, Array], Array]] = {
    "each": lambda slope, x: slope * x,
    "row": lambda slope, x: (slope * x).sum(axis=-1),
    "places": lambda slope, x: (slope @ x[..., None])[..., 0],
    "whole": lambda slope, x: slope @ x.reshape(-1),
    "left": lambda slope, x: (slope * x[..., None]).sum(axis=-2),
    "right": lambda slope, x: (slope * x[..., None, :, :]).sum(axis=-2),
}

# where curvature changes sign, that of the first piece (1: convex), and curvature of the wrong sign near rounded bends
BENDS = {"tanh": ((0.0,), 1, 0.0), "sigmoid": ((0.0,), 1, 0.0), "gelu": ((-(2**0.5), 2**0.5), -1, 1e-14)}


def curve(op: str, x: Span) -> tuple[Span, Span]:
    """Value and slope."""
    if op == "tanh":
        t = x.tanh()
        return t, 1.0 - t.square()
    if op == "sigmoid":
        return x.sigmoid(), x.sigmoid() * (-x).sigmoid()
    phi = (x.square() * -0.5).exp() / (x.of(PI) * 2.0).sqrt()
    return x * x.normal(), x.normal() + x * phi


def least(real: type[Span], op: str, slope: Array, box: Span, touch: Array | None, sign: float) -> Array:
    """At most the least of `sign (f(x) - slope x)` over the box, entry by entry."""
    if touch is None:  # relu: linear on either side of 0
        points = [real(x) for x in (box.lo, box.hi, np.clip(0.0, box.lo, box.hi))]
        a, b, c = ((x.most(0.0) - x * slope) * sign for x in points)
        return a.least(b).least(c).lo
    bends, first, slack = BENDS[op]
    edges, result = (-np.inf, *bends, np.inf), np.full(box.lo.shape, np.inf)
    for piece in range(len(edges) - 1):
        here = (box.lo <= edges[piece + 1]) & (box.hi >= edges[piece])
        if not here.any():
            continue
        s, ends = slope[here], [np.clip(x[here], edges[piece], edges[piece + 1]) for x in (box.lo, box.hi)]
        a, b = map(real, ends)
        if sign * first * (-1) ** piece < 0:  # concave: least at an end
            values = [(curve(op, x)[0] - x * s) * sign for x in (a, b)]
            bound = values[0].least(values[1])
        else:  # convex: above the tangent at any point
            t = real(np.clip(touch[piece][here], *ends))
            value, steep = curve(op, t)
            steep = (steep - s) * sign
            bound = (value - t * s) * sign + (steep * (a - t)).least(steep * (b - t))
        result[here] = np.minimum(result[here], (bound - (b - a).square() * slack).lo)
    return result


def elementwise(real: type[Span], node: Node, box: Span, refs: list[Array], witness: dict[str, Array]) -> Planes:
    x, y = refs
    sides = []
    for name, sign in (("lower", 1.0), ("upper", -1.0)):
        offset = least(real, node.op, witness[name], box, witness.get("touch"), sign) * sign
        at = real(witness[name]) * x + offset - y
        sides.append(at.lo if sign > 0 else at.hi)
    return Planes(("each",), node.inputs, (witness["lower"],), (witness["upper"],), sides[0], sides[1])


def product(real: type[Span], node: Node, boxes: list[Span], refs: list[Array], shares: dict[str, Array]) -> Planes:
    """`x y` less slopes is extreme at a corner. For a matmul all arrays are [..., i, k, j], summed over k."""
    matmul = node.op == "matmul"
    where = ((..., None), (..., None, slice(None), slice(None))) if matmul else (..., ...)
    (lx, ux, rx), (ly, uy, ry) = ([end[where[n]] for end in (boxes[n].lo, boxes[n].hi, refs[n])] for n in (0, 1))
    alpha, beta = (shares.get(side, np.zeros(())) for side in ("lower", "upper"))
    full = np.broadcast_shapes(lx.shape, ly.shape)
    lower = [np.broadcast_to((1 - alpha) * a + alpha * b, full) for a, b in ((ly, uy), (lx, ux))]
    upper = [np.broadcast_to((1 - beta) * a + beta * b, full) for a, b in ((uy, ly), (lx, ux))]

    def corner(x: Array, y: Array, slopes: list[Array]) -> Span:
        a, b = real(x), real(y)
        return a * b - (a - rx) * slopes[0] - (b - ry) * slopes[1]

    def extreme(slopes: list[Array], sign: float) -> Span:
        values = [corner(x, y, slopes) * sign for x in (lx, ux) for y in (ly, uy)]
        best = values[0].least(values[1]).least(values[2].least(values[3])) * sign
        return (best.sum(axis=-2) if matmul else best) - refs[2]

    kinds = ("left", "right") if matmul else ("each", "each")
    low, high = extreme(lower, 1.0).lo, extreme(upper, -1.0).hi
    return Planes(kinds, node.inputs, tuple(lower), tuple(upper), low, high)


def softmax(real: type[Span], node: Node, box: Span, refs: list[Array], points: dict[str, Array]) -> Planes:
    """Below by the tangent of 1/x at a sum of chords, above by the chord of exp at a tangent plane of -logsumexp."""
    box, own = without_own(box), np.eye(box.lo.shape[-1], dtype=bool)
    a, c = box.lo, box.hi
    size, (z, p) = box.size(), refs
    ea, ec = real(a).exp(), real(c).exp()
    narrow = c - a < 1e-6
    chord = np.where(narrow, np.exp(a / 2 + c / 2), (ec.lo - ea.hi) / np.where(narrow, 1.0, c - a))
    chord = np.where(own, 0.0, chord)
    over = (ea - real(chord) * a).most(ec - real(chord) * c)  # exp(z) <= chord z + over
    m = np.where(own, 0.0, points["lower"])
    v = 1 / (chord * m + over.hi).sum(axis=-1) ** 2
    require((v > 0) & np.isfinite(v), "a tangent of softmax that is none")
    lower = -(v[..., None] * chord)
    error = real((real(chord) * v[..., None] + lower).size()) * size  # 1/s >= 2 sqrt(v) - v s for every s > 0
    low = real(v).sqrt() * 2.0 - over.sum() * v + (real(lower) * z - error).sum() - p

    t0, t1 = (-(ec.sum().log())).lo, (-(ea.sum().log())).hi
    narrow = t1 - t0 < 1e-6
    kappa = np.where(narrow, np.exp(t1), (np.exp(t1) - np.exp(t0)) / np.where(narrow, 1.0, t1 - t0))
    require(kappa >= 0, "a chord of exp that falls")
    rest = (real(t0).exp() - real(t0) * kappa).most(real(t1).exp() - real(t1) * kappa)
    m = np.where(own, 0.0, points["upper"])
    em = real(m).exp()
    share = em / real.of(em.sum())[..., None]
    upper = np.where(own, 0.0, -kappa[..., None] * share.hi)
    slope = share * kappa[..., None]
    error = real(np.where(own, 0.0, (slope + upper).size())) * size
    high = rest - em.sum().log() * kappa + (slope * m + real(upper) * z + error).sum() - p
    return Planes(("row",), node.inputs, (lower,), (upper,), low.lo, high.hi)


def _direction(t: Span, a: Span, bend: Array) -> Array:
    """`K(t, a)` of the specification, with `bend` for `t^2/4`: at least the length of the remainder of a direction."""
    s0, s1 = (np.arange(start, start + 256)[:, None] / 256.0 for start in (0, 1))
    t2 = t.square()
    c0, c1 = (t2 * s / ((1.0 - t2 * s).sqrt() + 1.0) for s in (s0, s1))
    w = t * (1.0 - t.of(s0)).sqrt()
    out = (c1 + w).least((a - c0) / (1.0 - c0)).most((w - c0).least((a + c1) / (1.0 - c1))).most(0.0)
    square = (c0 - bend).square().most((c1 - bend).square()) + t2 * s1 * out.square()
    never = ((1.0 - c0) * (1.0 - c0 + w)).hi < (1.0 - a).lo
    return np.asarray(up(np.sqrt(np.where(never, 0.0, square.hi).max(axis=0))))


def normalize(
    real: type[Span], node: Node, box: Span, refs: list[Array], tangent: Array, reach: tuple[Array, Array] | None
) -> Planes:
    """Taylor's first order around the middle of the box, with the remainder of a direction; or constants."""
    n, eps, root = node.shape[-1], node.rules["eps"], real(float(node.shape[-1])).sqrt()
    distance, radial = reach or (None, None)
    rho, _, constant = normalized(box, n, eps, distance)
    c, r = middle(box)
    solid = np.sum(c * c, axis=-1) + n * eps > 2.0**-400
    c = np.where(solid[..., None], c, 1.0)  # elsewhere there are constants only
    long = (real(c).square().sum() + real(float(n)) * eps).sqrt()  # S
    e, t = real(c) / long[..., None], real(rho) / long
    fits = solid & (t.hi < 0.99)
    require(fits[..., None] | ~tangent, "a tangent of normalize beyond its range")
    along = (real(e.size()) * r).sum().hi
    along = np.minimum(along if radial is None else np.minimum(along, radial), rho)
    a = (real(along) / long)[fits].least(t[fits])
    t, size = t[fits], real(e.size()[fits])
    t2 = t.square()
    bend = (t2 * 0.25).hi
    worst = (real(_direction(t, a, bend)) * root).hi
    k = 1.0 / ((1.0 - t2).sqrt() + 1.0)
    h = t.least((a + t2 * k) / (1.0 - t2 * k))
    entry = size * (t2 * k - bend).most(bend)[..., None]
    entry = entry + (h / (1.0 - h))[..., None] * (real(r[fits]) / long[fits][..., None] + size * a[..., None])
    # the slopes as written down here are this much off (N/S)(I - e e'), in the spectral norm times the distance
    wrong = (root * t).hi * gamma(8 * n + 64)
    gap, remainder, flat = np.full(c.shape, np.inf), np.full(c.shape[:-1], np.inf), np.zeros(c.shape[:-1])
    gap[fits] = up(np.minimum((entry * root).hi, worst[..., None]) + wrong[..., None])
    remainder[fits] = np.where(tangent[fits].all(axis=-1), up(worst + wrong), np.inf)
    flat[fits] = bend
    direction = e.lo / 2 + e.hi / 2
    slope = (root / long).hi[..., None, None] * (np.eye(n) - direction[..., :, None] * direction[..., None, :])
    slope = np.where(tangent[..., None], slope, 0.0)
    at = e * root * (1.0 - real(flat))[..., None] + (real(slope) * (real(refs[0]) - c)[..., None, :]).sum() - refs[1]
    fixed = constant.lo / 2 + constant.hi / 2
    still = real(fixed) - refs[1]
    low, high = np.where(tangent, at.lo, still.lo), np.where(tangent, at.hi, still.hi)
    gap = np.where(tangent, gap, np.maximum(up(constant.hi - fixed), up(fixed - constant.lo)))
    return Planes(("places",), node.inputs, (slope,), (slope,), low, high, gap, remainder)

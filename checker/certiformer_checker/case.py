"""One case of a certificate (a ball, a piece of it, a hull): every claim follows from those before it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from certiformer_checker import planes as plane
from certiformer_checker.graph import (
    ELEMENTWISE,
    NONLINEAR,
    Graph,
    affine,
    gathered,
    lost,
    middle,
    ranged,
    roundings,
    sums_to_one,
    transposed,
)
from certiformer_checker.numbers import MOST, TINY, Array, Span, above, down, gamma, length, require, up
from certiformer_checker.planes import APPLY, PULL, Planes
from certiformer_checker.sets import Region, spectral

CHUNK = 2**21  # numbers that a sweep keeps for one node at a time


def references(graph: Graph, x0: Array) -> list[Array]:
    """Values near those at x0. Sweeps speak of deviations from them, and they need not be exact."""
    values: list[Array] = []
    for i, node in enumerate(graph):
        xs = [values[j][None] for j in node.inputs]
        if i == 0 or node.op == "constant":
            values.append(x0[None] if i == 0 else node.constants["value"])
        elif node.op in NONLINEAR:
            box = ranged(node, [Span(x) for x in xs])
            values.append((box.lo / 2 + box.hi / 2)[0])
        else:
            values.append(affine(node, xs)[0])
        require(values[i].shape == node.shape, f"node {i} ({node.op}) has another shape")
        require(
            node.op not in ("shift", "scale") or xs[0].shape[1:] == node.shape,
            f"node {i} ({node.op}) has another shape",
        )
        require(np.abs(values[i]) <= MOST, f"node {i} ({node.op}) overflows at the input")
    return values


@dataclass
class Rows:
    """Rows `A·δ + b`, each at most a combination of deviations of a node; and what a sweep by the middle has met."""

    a: Array  # [rows, n, d]
    b: Array  # [rows]
    error: Array  # [rows], to be taken off
    met: list[tuple[Planes, Array]] = field(default_factory=list)


@dataclass
class Case:
    """What is known so far. `witness` has the choices of nonlinear nodes, `real` is the arithmetic of their planes."""

    graph: Graph
    region: Region
    refs: list[Array]
    witness: dict[int, dict[str, Array]]
    real: type[Span] = Span
    boxes: list[Span] = field(default_factory=list)  # as planes use them: as claimed, else the range
    far: list[Array] = field(default_factory=list)  # at least the size of each deviation
    lost: dict[int, Array] = field(default_factory=dict)  # what rounding may lose at an affine node
    planes: dict[int, Planes] = field(default_factory=dict)  # of nonlinear nodes
    forms: dict[int, Planes] = field(default_factory=dict)  # of anchors
    reach: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def open(self, i: int) -> None:
        """Planes, rounding and range of node i, by its inputs."""
        box = self._opened(i)
        self.boxes.append(box)
        self.far.append(up((box - self.refs[i]).size()))

    def _opened(self, i: int) -> Span:
        node = self.graph[i]
        refs, far = [self.refs[j] for j in node.inputs], [self.far[j] for j in node.inputs]
        shapes = [self.graph[j].shape for j in node.inputs]
        if i == 0 or node.op == "constant":
            return self.region.box()[None] if i == 0 else Span(node.constants["value"])
        if node.op not in NONLINEAR:
            k = roundings(node, shapes)
            if k:
                wrong = lost(node, [np.abs(x)[None] for x in refs], shapes)
                self.lost[i] = up(wrong + affine(node, [x[None] for x in far], sizes=True) * gamma(2 * k))[0]
        elif node.varies:
            self.planes[i] = self._planes(i).with_rounding(far)
        distance = self.reach[node.inputs[0]][0][None] if node.inputs[0] in self.reach else None
        return ranged(node, [self.boxes[j][None] for j in node.inputs], distance)[0]

    def _planes(self, i: int) -> Planes:
        node, choice = self.graph[i], self.witness[i]
        boxes, refs = [self.boxes[j] for j in node.inputs], [self.refs[j] for j in (*node.inputs, i)]
        if node.op in ELEMENTWISE:
            return plane.elementwise(self.real, node, boxes[0], refs, choice)
        if node.op == "softmax_of_differences":
            return plane.softmax(self.real, node, boxes[0], refs, choice)
        if node.op == "normalize":
            return plane.normalize(self.real, node, boxes[0], refs, choice["tangent"], self.reach.get(node.inputs[0]))
        return plane.product(self.real, node, boxes, refs, choice)

    def close(self, i: int, known: Span, claim: Span | None) -> None:
        """The claimed box must hold what is known; it stands for node i from here on."""
        if claim is not None:
            require((claim.lo <= known.lo) & (claim.hi >= known.hi), f"the box of node {i} does not follow")
        self.boxes[i] = known if claim is None else claim
        self.far[i] = up((known - self.refs[i]).size())

    def anchor(self, i: int, low: Rows, high: Rows) -> None:
        """From here on sweeps end at node i: it lies between linear functions of the input's deviation."""
        shape, moved = self.graph[i].shape, self.moved()
        slopes = [a.reshape(*shape, -1)[..., moved] for a in (low.a, -high.a)]
        ends = (Span(low.b) - low.error).lo.reshape(shape), (Span(-high.b) + high.error).hi.reshape(shape)
        self.forms[i] = Planes(("whole",), (0,), (slopes[0],), (slopes[1],), *ends).with_rounding(
            [self.far[0].reshape(-1)[moved]]
        )

    def moved(self) -> Array:
        """The entries of the input that vary."""
        box, x0 = self.boxes[0], self.refs[0]
        return np.flatnonzero((box.lo != x0) | (box.hi != x0))

    def spread_out(self, a: Array) -> Array:
        """Coefficients on the entries of the input that vary, as coefficients on all of them."""
        result = np.zeros((len(a), self.graph[0].size), dtype=a.dtype)
        result[:, self.moved()] = a
        return result.reshape(len(a), *self.graph[0].shape)

    # sweeps

    def least(self, rows: Rows, cuts: Array | None) -> Array:
        """At most the least value of each row over the set."""
        return (Span(self.region.least(rows.a, cuts)) + rows.b - rows.error).lo

    def margin(self, rows: Array, shift: bool, cuts: Array | None) -> Array:
        """At most the least value of these combinations of deviations of the output."""
        return self.least(self.sweep(len(self.graph) - 1, rows, shift), cuts)

    def identity(self, i: int, start: int, stop: int, sign: float) -> Array:
        rows = np.zeros((stop - start, self.graph[i].size))
        rows[np.arange(stop - start), np.arange(start, stop)] = sign
        return rows.reshape(-1, *self.graph[i].shape)

    def bounds(self, i: int, shift: bool) -> tuple[Rows, Rows]:
        """Rows below node i, and below minus node i; in chunks, so that memory stays bounded."""
        size = self.graph[i].size
        step = max(1, CHUNK // max(node.size for node in self.graph[: i + 1]))
        sides = []
        for sign in (1.0, -1.0):
            parts = [
                self.sweep(i, self.identity(i, start, min(start + step, size), sign), shift)
                for start in range(0, size, step)
            ]
            a, b, error = (np.concatenate([getattr(part, name) for part in parts]) for name in ("a", "b", "error"))
            sides.append(Rows(a, b, error))
        return sides[0], sides[1]

    def sweep(self, start: int, rows: Array, shift: bool, halfway: bool = False) -> Rows:
        """Substitutes backwards from node `start`. What rounding may have cost is kept in `error`, apart from b."""
        pending, met = {start: rows}, []
        b, error = np.zeros(len(rows)), np.full(len(rows), TINY)
        for i in range(start, 0, -1):
            if i not in pending:
                continue
            a, node = pending.pop(i), self.graph[i]
            require(np.abs(a) <= MOST, f"coefficients on node {i} overflow")
            if i in self.forms and i != start:
                rule = self.forms[i]
            elif i in self.planes:
                rule = self.planes[i]
                if shift and i != start and sums_to_one(self.graph, node):
                    a, error = self._shifted(i, a, error)
            else:
                wrong = self.lost.get(i) if node.varies else self.far[i]
                error = error if wrong is None else grown(error, a, wrong)
                parts = transposed(node, a, [self.graph[j].shape for j in node.inputs]) if node.varies else []
                for parent, part in zip(node.inputs, parts, strict=False):
                    error = self._arrive(pending, parent, part, error)
                continue
            if halfway:
                rule = rule.halfway(self._spread)
                met.append((rule, a))
                centre = rule.low / 2 + rule.high / 2
                gain = a.reshape(len(a), -1) @ centre.reshape(-1)
                error = grown(error, a, rule.room + gamma(2 * centre.size) * np.abs(centre))
            else:
                gain = self._offset(rule, a)
            b = b + gain
            error = up(error + np.abs(b) * 2.0**-52)
            for parent, part in self._pull(rule, a):
                error = self._arrive(pending, parent, part, error)
        a = pending.get(0, np.zeros((len(rows), *self.graph[0].shape)))
        return Rows(a[:, 0], b, error, met)

    def _arrive(self, pending: dict[int, Array], parent: int, part: Array, error: Array) -> Array:
        """Adds what has come on another path."""
        require(part.shape[1:] == self.graph[parent].shape, f"coefficients on node {parent} have another shape")
        if not self.graph[parent].varies:
            return grown(error, part, self.far[parent]) if np.any(self.far[parent]) else error
        if parent in pending:
            part = pending[parent] + part
            error = grown(error, part, self.far[parent] * 2.0**-52)
        pending[parent] = part
        return error

    def _pull(self, rule: Planes, a: Array) -> list[tuple[int, Array]]:
        parts, over, under = [], *self.signs(a)
        for kind, parent, lower, upper in zip(rule.kinds, rule.parents, rule.lower, rule.upper, strict=True):
            both = lower is not upper
            part = PULL[kind](over, lower) + PULL[kind](under, upper) if both else PULL[kind](a, lower)
            shape = self.graph[parent].shape
            parts.append((parent, self.spread_out(part) if kind == "whole" else gathered(part, shape)))
        return parts

    def _shifted(self, i: int, a: Array, error: Array) -> tuple[Array, Array]:
        """`Σ a_j p_j = m + Σ (a_j - m) p_j`, m the median of the `a_j` weighted by the gap between the planes."""
        rule, (z,), near = self.planes[i], self.graph[i].inputs, self.floats(a)
        at = middle(self.boxes[z])[0] - self.refs[z]
        gap = np.broadcast_to(APPLY["row"](rule.upper[0] - rule.lower[0], at) + rule.high - rule.low, a.shape)
        order = np.argsort(near, axis=-1)
        running = np.cumsum(np.take_along_axis(gap, order, axis=-1), axis=-1)
        first = np.argmax(running >= running[..., -1:] / 2, axis=-1)[..., None]
        m = np.take_along_axis(near, np.take_along_axis(order, first, axis=-1), axis=-1)
        defect = (1.0 - Span(self.refs[i]).sum()).size()  # deviations of a row sum to 1 less their references
        return a - m, grown(grown(error, m[..., 0], defect), a - m, self.far[i] * 2.0**-52)

    @staticmethod
    def signs(a: Array) -> tuple[Array, Array]:
        """The coefficients that are positive, and those that are negative."""
        return np.maximum(a, 0.0), np.minimum(a, 0.0)

    @staticmethod
    def floats(a: Array) -> Array:
        """Floating-point numbers near (or, of sizes, not below) these; balls are others, see exact.py."""
        return a

    def _offset(self, rule: Planes, a: Array) -> Array:
        """At most what the offsets of planes come to; low and high have room for the rounding of this sum."""
        over, under = (part.reshape(len(a), -1) for part in self.signs(a))
        value = over @ rule.low.reshape(-1) + under @ rule.high.reshape(-1)
        return value if rule.gap is None else down(value - gaps(rule, self.floats(np.abs(a))))

    def _spread(self, kind: str, parent: int, slope: Array) -> tuple[Array, Array]:
        """The range of a slope times the deviations of a parent."""
        if kind == "whole":
            rows = self.spread_out(slope.reshape(-1, slope.shape[-1]))[:, 0]
            shape = slope.shape[:-1]
            return self.region.least(rows).reshape(shape), -self.region.least(-rows).reshape(shape)
        centre, radius = middle(self.boxes[parent] - self.refs[parent])
        at, wide = APPLY[kind](slope, centre), APPLY[kind](np.abs(slope), radius)
        wide = up(wide + (APPLY[kind](np.abs(slope), np.abs(centre)) + wide) * gamma(4 * slope.shape[-1] + 64))
        return down(at - wide), up(at + wide)

    # reaches

    def claim_reach(self, i: int, low: Rows, high: Rows, distance: Array, radial: Array) -> None:
        """How far the last axis of node i gets from the middle of its box as a vector, and along that middle."""
        node, far = self.graph[i], self.far[0].reshape(-1)
        n, c = node.shape[-1], middle(self.boxes[i])[0].reshape(-1, node.shape[-1])
        away_from = (Span(self.refs[i].reshape(-1, n)) - c).reshape(-1)
        slope, spread = low.a / 2 - high.a / 2, -high.a / 2 - low.a / 2
        centre = (Span(low.b) - high.b) * 0.5 + away_from
        away = centre.size() + (Span(-high.b) - low.b).size() / 2 + up(low.error + high.error)
        sup = np.maximum(-self.region.least(spread), -self.region.least(-spread))
        wrong = above(np.abs(slope).reshape(len(slope), -1) + np.abs(spread).reshape(len(slope), -1), far) * gamma(4)
        away = up((away + np.maximum(sup, 0.0) + wrong) * (1 + gamma(8))).reshape(-1, n)
        slope = slope.reshape(-1, n, *slope.shape[1:])
        for place, (d, r) in enumerate(zip(distance.reshape(-1), radial.reshape(-1), strict=True)):
            half = self.sweep(i, self.identity(i, place * n, (place + 1) * n, 1.0), False, halfway=True)
            off = (Span(half.b) + away_from[place * n : (place + 1) * n]).size()
            rest = float(length(up(off + half.error))) + sum(self._length(rule, m) for rule, m in half.met)
            rest *= 1 + gamma(len(half.met) + 8)
            along = float(above(np.abs(unit(c[place])), away[place]))
            ways = [self._reach(slope[place], c[place], float(length(away[place])), along)]
            ways.append(self._reach(half.a, c[place], rest, rest))
            require(d >= min(w[0] for w in ways), f"the distance that is claimed of node {i} does not follow")
            require(r >= min(d, *(w[1] for w in ways)), f"the radial reach that is claimed of node {i} does not follow")
        self.reach[i] = distance, radial

    def _reach(self, rows: Array, c: Array, rest: float, along: float) -> tuple[float, float]:
        """`sup |B δ| + rest`, and `sup |ê·B δ|` with what is to be added along c; ê and the product are rounded."""
        distance = float(up(self.region.longest(rows) + rest))
        row = np.tensordot(unit(c), rows, axes=1)[None]
        sup = max(0.0, -float(self.region.least(row)[0]), -float(self.region.least(-row)[0]))
        wrong = distance + float(length(rows.reshape(-1)) * length(self.far[0].reshape(-1)))
        return distance, float(up((sup + along) * (1 + gamma(8)) + wrong * gamma(len(c) + 8)))

    def _length(self, rule: Planes, m: Array) -> float:
        """At least the length of `M r`, for the remainders r of planes."""
        flat, half = m.reshape(len(m), -1), up(rule.high - rule.low) / 2
        g = half if rule.gap is None else up(half + rule.gap)
        g = g.reshape(-1)
        root = up(np.sqrt(g))
        met = np.any(flat != 0, axis=0)
        total = float(up(np.sqrt(np.sum(g[met]) * (1 + gamma(g.size)))))
        ways = [float(length(above(np.abs(flat), g))), spectral(flat * root) * total * (1 + gamma(len(flat) + 8))]
        if rule.remainder is not None and np.isfinite(rule.remainder).all():
            ball = up(rule.remainder + length(half)).reshape(-1)
            blocks = m.reshape(len(m), len(ball), -1)
            parts = np.array([spectral(blocks[:, place]) for place in range(len(ball))])
            ways.append(float(above(parts, ball)))
        return float(up(min(ways)))


def unit(c: Array) -> Array:
    size = np.sqrt(np.sum(c * c))
    return c / size if size > 0 else np.zeros_like(c)


def grown(error: Array, a: Array, size: Array) -> Array:
    """An error for each row, with `|A| size` added."""
    return up(error + above(np.abs(a).reshape(len(a), -1), size.reshape(-1)))


def gaps(rule: Planes, sizes: Array) -> Array:
    """At least what gaps come to for coefficients of these sizes: at each place by entries, or as a vector."""
    gap, ball = np.asarray(rule.gap), np.asarray(rule.remainder).reshape(-1)
    n = gap.shape[-1]
    places = sizes.reshape(len(sizes), -1, n)
    entries = up((places * gap.reshape(-1, n)).sum(axis=-1) * (1 + gamma(n)) + TINY)
    known = np.isfinite(ball)
    least = np.minimum(entries, np.where(known, up(length(places) * np.where(known, ball, 0.0)), np.inf))
    return up(least.sum(axis=-1) * (1 + gamma(len(ball))))

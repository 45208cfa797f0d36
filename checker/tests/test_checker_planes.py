"""Planes enclose their operation whatever the slopes and points are, and lie close where these are good."""

from __future__ import annotations

import numpy as np
import pytest
from mutants import _rooted

from certiformer_checker import planes
from certiformer_checker.graph import Node, affine, lost, middle, ranged, transposed
from certiformer_checker.numbers import Span, Wrong
from certiformer_checker.planes import APPLY, Planes

RNG = np.random.default_rng
REALS = ["Span", "Ball"]


def arithmetic(name: str) -> type[Span]:
    if name == "Span":
        return Span
    return pytest.importorskip("certiformer_checker.exact", reason="python-flint is not installed").Ball


def node(op: str, *shapes: tuple[int, ...], shape: tuple[int, ...] | None = None, **rules: object) -> Node:
    return Node(op, tuple(range(1, len(shapes) + 1)), shape or shapes[0], rules, {}, True)


def box(rng: np.random.Generator, shape: tuple[int, ...], scale: float = 2.0) -> Span:
    centre, radius = (
        rng.normal(size=shape) * scale,
        np.abs(rng.normal(size=shape)) * rng.choice([1e-9, 1e-2, 1.0], shape),
    )
    return Span(centre - radius, centre + radius)


def points(rng: np.random.Generator, span: Span, count: int = 400) -> np.ndarray:
    """Random points and corners of a box."""
    t = rng.random((count, *span.lo.shape))
    t[: count // 2] = np.round(t[: count // 2])
    return np.where(t == 1.0, span.hi, span.lo + (span.hi - span.lo) * t)


def check(made: Planes, xs: list[np.ndarray], refs: list[np.ndarray], value: np.ndarray) -> tuple[float, float]:
    """That values lie between the planes; and how close they get to them, at most."""
    room = 1e-11 * (1 + np.abs(value).max())
    gap = 0.0 if made.gap is None else made.gap
    closest = [np.inf, np.inf]
    for s in range(len(value)):
        sides = []
        for slopes, end in ((made.lower, made.low - gap), (made.upper, made.high + gap)):
            parts = zip(made.kinds, slopes, xs, refs, strict=False)
            sides.append(end + sum(APPLY[kind](slope, x[s] - r) for kind, slope, x, r in parts))
        below, above = value[s] - refs[-1] - sides[0], sides[1] - (value[s] - refs[-1])
        assert (below >= -room).all()
        assert (above >= -room).all()
        closest = [np.minimum(closest[0], below), np.minimum(closest[1], above)]
    return float(np.max(closest[0])), float(np.max(closest[1]))


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("op", ["relu", "tanh", "sigmoid", "gelu"])
def test_elementwise(op: str, real: str) -> None:
    rng, shape = RNG(1), (1, 40 if real == "Ball" else 400)
    at = node(op, shape)
    span = box(rng, shape)
    x = points(rng, span)
    refs = [middle(span)[0], _rooted(op, {"shape": shape}, [middle(span)[0]], {}, 1)]
    ends = [_rooted(op, {"shape": shape}, [end], {}, 1) for end in (span.lo, span.hi)]
    chord = (ends[1] - ends[0]) / (span.hi - span.lo)
    kinks = {"relu": 0, "tanh": 2, "sigmoid": 2, "gelu": 3}[op]
    for slope in (chord, chord + 0.3, rng.normal(size=shape)):
        witness = {"lower": slope, "upper": slope}
        if kinks:
            witness["touch"] = rng.normal(size=(kinks, *shape)) * 2
        made = planes.elementwise(arithmetic(real), at, span, refs, witness)
        check(made, [x], refs, _rooted(op, {"shape": shape}, [x], {}, len(x)))


def test_good_slopes_and_points_make_tight_planes() -> None:
    span = Span(np.array([[0.5, -2.0, -1.0]]), np.array([[1.5, -1.0, 1.0]]))
    refs = [middle(span)[0], np.tanh(middle(span)[0])]
    chord = (np.tanh(span.hi) - np.tanh(span.lo)) / (span.hi - span.lo)
    touch = np.arctanh(np.sqrt(1 - chord))
    witness = {"lower": chord, "upper": chord, "touch": np.stack([-touch, touch])}
    made = planes.elementwise(Span, node("tanh", (1, 3)), span, refs, witness)
    x = np.linspace(span.lo, span.hi, 2001)
    assert max(check(made, [x], refs, np.tanh(x))) < 1e-6


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("op", ["matmul", "multiply"])
def test_products(op: str, real: str) -> None:
    rng = RNG(2)
    shapes = ((1, 2, 3, 4), (1, 2, 4, 5)) if op == "matmul" else ((1, 3, 4), (3, 1))
    shape = (1, 2, 3, 5) if op == "matmul" else (1, 3, 4)
    spans = [box(rng, s) for s in shapes]
    xs = [points(rng, span) for span in spans]
    values = xs[0] @ xs[1] if op == "matmul" else xs[0] * xs[1][:, None]
    refs = [middle(span)[0] + 0.1 for span in spans]
    refs.append(refs[0] @ refs[1] if op == "matmul" else refs[0] * refs[1])
    full = (1, 2, 3, 4, 5) if op == "matmul" else shape
    for shares in (
        {},
        {"lower": rng.random(full), "upper": rng.random(full)},
        {"lower": np.ones(()), "upper": np.ones(())},
    ):
        made = planes.product(arithmetic(real), node(op, *shapes, shape=shape), spans, refs, shares)
        check(made, xs, refs, values)


@pytest.mark.parametrize("real", REALS)
def test_softmax(real: str) -> None:
    rng, shape = RNG(3), (1, 3, 4, 4)
    span = box(rng, shape, 1.0)
    x = points(rng, span)
    run = lambda z: _rooted("softmax_of_differences", {"shape": shape[:-1]}, [z], {}, 1)  # noqa: E731
    refs = [middle(span)[0], run(middle(span)[0])]
    for at in ({"lower": middle(span)[0], "upper": middle(span)[0]}, {"lower": span.hi, "upper": span.lo}):
        made = planes.softmax(arithmetic(real), node("softmax_of_differences", shape, shape=shape[:-1]), span, refs, at)
        check(
            made,
            [np.where(np.eye(4, dtype=bool), 0.0, x)],
            [np.where(np.eye(4, dtype=bool), 0.0, refs[0]), refs[1]],
            run(x),
        )


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("width", [0.01, 0.1, 0.25])
def test_normalize(real: str, width: float) -> None:
    rng, shape = RNG(4), (1, 3, 6)
    centre = rng.normal(size=shape)
    span = Span(centre - width * rng.random(shape), centre + width * rng.random(shape))
    x = points(rng, span)
    at, rules = node("normalize", shape, eps=1e-5), {"shape": shape, "eps": 1e-5}
    refs = [middle(span)[0] + 0.01, _rooted("normalize", rules, [middle(span)[0] + 0.01], {}, 1)]
    value = _rooted("normalize", rules, [x], {}, 1)
    everywhere, nowhere = np.ones(shape, bool), np.zeros(shape, bool)
    for tangent in (everywhere, nowhere, rng.random(shape) < 0.5):
        made = planes.normalize(arithmetic(real), at, span, refs, tangent, None)
        check(made, [x], refs, value)
    # the remainder as a vector, for points of a ball that is smaller than the box
    c, _ = middle(span)
    distance = 0.7 * np.linalg.norm(span.hi - c, axis=-1)
    near = c + (x - c) * np.minimum(1, distance / np.maximum(np.linalg.norm(x - c, axis=-1), 1e-300))[..., None]
    radial = np.abs(((near - c) * c).sum(-1) / np.linalg.norm(c, axis=-1)).max(axis=0)
    made = planes.normalize(arithmetic(real), at, span, refs, everywhere, (distance, radial))
    value = _rooted("normalize", rules, [near], {}, 1)
    check(made, [near], refs, value)
    plane = (made.low + made.high) / 2 + np.stack([APPLY["places"](made.lower[0], z - refs[0]) for z in near]) + refs[1]
    off = np.linalg.norm(value - plane, axis=-1).max(axis=0)
    assert (off <= made.remainder + 1e-12).all()
    assert (made.remainder < 40 * off + 1e-9).all()


def test_a_tangent_of_normalize_too_far_from_the_middle_is_refused() -> None:
    span = Span(np.full((1, 4), -1.0), np.full((1, 4), 1.5))
    refs = [np.full((1, 4), 0.25), np.ones((1, 4))]
    with pytest.raises(Wrong, match="range"):
        planes.normalize(Span, node("normalize", (1, 4), eps=1e-3), span, refs, np.ones((1, 4), bool), None)


AFFINE = [
    ("linear", ((2, 4),), (2, 3), {}, {"weight": (3, 4), "bias": (3,)}),
    ("add", ((2, 1, 4), (3, 1)), (2, 3, 4), {"sign": -1}, {}),
    ("shift", ((2, 4),), (2, 4), {}, {"value": (4,)}),
    ("scale", ((2, 4),), (2, 4), {}, {"value": (2, 1)}),
    ("sum", ((2, 3, 4),), (2, 1, 1), {"axes": [1, 2], "mean": True}, {}),
    ("sum", ((2, 3, 4),), (2, 3, 1), {"axes": [2], "mean": False}, {}),
    ("center", ((2, 4),), (2, 4), {}, {}),
    ("permute", ((2, 3, 4),), (4, 2, 3), {"order": [2, 0, 1]}, {}),
    ("reshape", ((2, 6),), (3, 4), {}, {}),
    ("slice", ((2, 6),), (2, 3), {"axis": 1, "start": 2, "length": 3}, {}),
    ("concat", ((2, 3), (2, 1)), (2, 4), {"axis": 1}, {}),
    ("expand", ((2, 1, 4),), (2, 3, 4), {}, {}),
]


@pytest.mark.parametrize(("op", "shapes", "shape", "rules", "constants"), AFFINE)
def test_affine_operations_forwards_transposed_and_over_boxes(op, shapes, shape, rules, constants) -> None:  # type: ignore[no-untyped-def]
    rng = RNG(5)
    held = {name: rng.normal(size=size) for name, size in constants.items()}
    at = Node(op, (0, 1)[: len(shapes)], shape, rules, held, True)
    xs = [rng.normal(size=(7, *s)) for s in shapes]
    lifted = [x.reshape(7, *(1,) * (len(shape) - x.ndim + 1), *x.shape[1:]) if op == "add" else x for x in xs]
    one = [
        np.stack([_rooted(op, {**rules, "shape": (shape[0], *shape[1:])}, [x[s] for x in lifted], held, shape[0])])
        for s in range(7)
    ]
    assert np.allclose(affine(at, xs), np.concatenate(one), atol=1e-12)
    zero = affine(at, [np.zeros((1, *s)) for s in shapes])
    rows = rng.normal(size=(5, *shape))
    parts = transposed(at, rows, list(shapes))
    for s in range(7):
        straight = (rows * (affine(at, [x[s : s + 1] for x in xs]) - zero)).reshape(5, -1).sum(-1)
        assert np.allclose(straight, sum((p * x[s]).reshape(5, -1).sum(-1) for p, x in zip(parts, xs, strict=True)))
    boxes = [Span(x.min(axis=0)[None], x.max(axis=0)[None]) for x in xs]
    made = ranged(at, boxes)
    corners = affine(at, [points(rng, Span(b.lo[0], b.hi[0]), 2000) for b in boxes])
    assert (made.lo[0] <= corners + 1e-15).all()
    assert (corners <= made.hi[0] + 1e-15).all()
    assert np.all(np.asarray(lost(at, [np.abs(x) for x in xs], list(shapes))) < 1e-12)


@pytest.mark.parametrize("op", ["relu", "tanh", "sigmoid", "gelu", "normalize", "softmax_of_differences"])
def test_ranges(op: str) -> None:
    rng, shape = RNG(6), (1, 50, 3, 3)
    span = box(rng, shape)
    at = Node(op, (0,), shape[:-1] if op.startswith("soft") else shape, {"eps": 1e-3}, {}, True)
    made = ranged(at, [span])
    value = _rooted(op, {"shape": shape, "eps": 1e-3}, [points(rng, span)], {}, 1)
    assert (made.lo <= value + 1e-14).all()
    assert (value <= made.hi + 1e-14).all()

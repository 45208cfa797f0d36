"""The contract of an op, run over every row of the registry: tolerance 0 in float64."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certiformer.core.ops import REGISTRY, Box, Op
from certiformer.core.ops.base import MeasuredBox, Planes, Reach, Shape
from certiformer.core.ops.movement import Movement
from certiformer.core.ops.normalize import curved
from contracts import BOXES, CASES, INSTANCES, boxes_of, evaluate, forward, make_box, points


def noisy(setting: Tensor, generator: torch.Generator) -> Tensor:
    """Settings anywhere, also outside [0, 1]."""
    return 1.6 * torch.rand(setting.shape, generator=generator, dtype=torch.float64) - 0.3


def terms(shapes: tuple[Shape, ...]) -> int:
    return max(s[-1] for s in shapes) + max(s[0] for s in shapes)


@pytest.mark.parametrize(("name", "k", "op", "shapes"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
@pytest.mark.parametrize("kind", BOXES)
def test_contract(name: str, k: int, op: Op, shapes: tuple[Shape, ...], kind: str) -> None:
    generator = torch.Generator().manual_seed(sum(map(ord, name + kind)) + k)
    for _ in range(4):
        boxes = boxes_of(kind, op, shapes, generator)
        interval = op.interval(*boxes)
        planes = None if isinstance(op, Movement) else op.planes(*boxes)
        settings = () if planes is None else op.parameters(*boxes)
        if settings and torch.rand((), generator=generator) < 0.7:  # any other choice of planes is as sound
            planes = op.tuned(tuple(noisy(s, generator) for s in settings), *boxes)
        assert not torch.isnan(interval.lower).any()
        assert not torch.isnan(interval.upper).any()
        x = points(boxes, generator)
        y = forward(op, x)
        assert (y >= interval.lower).all(), f"{name} leaves its interval below"
        assert (y <= interval.upper).all(), f"{name} leaves its interval above"
        if planes is not None:
            lower, upper, size = evaluate(planes, x, tuple(y.shape[2:]))
            assert torch.isfinite(lower).all()
            assert torch.isfinite(upper).all()
            # exact ops have no offset to carry the rounding of this very evaluation
            slack = size * terms(shapes) * 2.0**-52 if op.exact else torch.zeros_like(size)
            assert (lower <= y + slack).all(), f"{name}: the lower plane passes above by {(lower - y).max()}"
            assert (upper >= y - slack).all(), f"{name}: the upper plane passes below by {(y - upper).max()}"
            if planes.remainder is not None:
                off = torch.linalg.vector_norm(y - (lower + upper) / 2, dim=-1)
                assert (off <= planes.remainder).all(), f"{name}: further from its middle plane than it says"


KNOWN = [c for c in CASES if c[0] != "height"]  # whose range is that over the whole ball, whatever the box is


@pytest.mark.parametrize(("name", "k", "op", "shapes"), KNOWN, ids=[f"{c[0]}-{c[1]}" for c in KNOWN])
def test_zero_width_gives_the_value(name: str, k: int, op: Op, shapes: tuple[Shape, ...]) -> None:
    generator = torch.Generator().manual_seed(3 + k)
    boxes = boxes_of("zero width", op, shapes, generator)
    x = [b.lower for b in boxes]
    y = op.forward(*x)
    interval = op.interval(*boxes)
    torch.testing.assert_close(interval.lower, y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(interval.upper, y, rtol=1e-12, atol=1e-12)
    if not isinstance(op, Movement):
        lower, upper, _ = evaluate(op.planes(*boxes), x, tuple(y.shape[1:]))
        torch.testing.assert_close(lower, y, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(upper, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [n for n, c in REGISTRY.items() if not c.exact and not c.constants])
def test_planes_touch_the_function(name: str) -> None:
    """Somewhere in the box each plane comes close to the function: planes are not just wide."""
    op, shapes = next(REGISTRY[name].examples())
    generator = torch.Generator().manual_seed(5)
    boxes = [make_box("ordinary", s, op.domain(), generator) for s in shapes]
    x = points(boxes, generator)
    y = forward(op, x)
    lower, upper, _ = evaluate(op.planes(*boxes), x, tuple(y.shape[2:]))
    gaps, width = (float((y - lower).min()), float((upper - y).min())), float((upper - lower).max())
    two_steps = name.startswith("softmax") or name in ("normalize", "logsumexp")
    near = 0.05 if two_steps else 1e-3
    assert gaps[0] <= near * width
    assert gaps[1] <= near * width


@pytest.mark.parametrize("name", [n for n, c in REGISTRY.items() if c.domain()[0] == 0.0])
@pytest.mark.parametrize("low", [-1.0, -1e-300, 0.0])
def test_outside_the_domain_is_not_valid(name: str, low: float) -> None:
    op, _ = next(REGISTRY[name].examples())
    lower = torch.ones(2, 3, 4, dtype=torch.float64)
    lower[1, 0, 2] = low
    box = Box(lower, lower + 1)
    planes, valid = op.planes(box), op.valid(box)
    assert valid is not None
    assert valid.tolist() == [True, False]
    for t in (planes.lower, planes.upper, planes.slopes[0].lower, planes.slopes[0].upper):
        assert t is not None
        assert torch.isfinite(t).all()


def test_square_tangent_is_never_negative_on_the_box() -> None:
    """The erratum: the tangent point is min((l+u)/2, 2l) for l >= 0, not max."""
    l = torch.tensor([[[0.1, 0.5, -3.0, -0.2]]], dtype=torch.float64)
    u = torch.tensor([[[3.0, 0.6, -0.1, 5.0]]], dtype=torch.float64)
    op, _ = next(REGISTRY["square"].examples())
    planes = op.planes(Box(l, u))
    for x in (l, u):
        lower, _, _ = evaluate_one(planes, x)
        assert (lower > -1e-12).all()


def evaluate_one(planes: Planes, x: Tensor) -> tuple[Tensor, Tensor, None]:
    s = planes.slopes[0]
    assert planes.lower is not None
    assert planes.upper is not None
    return s.lower * x + planes.lower, s.upper * x + planes.upper, None


@pytest.mark.parametrize("name", ["relu", "tanh", "exp", "square", "reciprocal", "sqrt"])
def test_planes_on_a_fine_grid(name: str) -> None:
    """Many points of each box, so that a tangent from the wrong side of a bisection would show."""
    op, _ = next(REGISTRY[name].examples())
    generator = torch.Generator().manual_seed(11)
    boxes = [make_box(kind, (50,), op.domain(), generator) for kind in BOXES]
    lower, upper = torch.cat([b.lower for b in boxes]), torch.cat([b.upper for b in boxes])
    planes = op.planes(Box(lower, upper))
    for t in torch.linspace(0, 1, 400, dtype=torch.float64):
        x = torch.minimum(torch.lerp(lower, upper, t), upper)
        y = op.forward(x)
        low, high, _ = evaluate_one(planes, x)
        assert (low <= y).all()
        assert (high >= y).all()


@pytest.mark.parametrize("rho", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("towards", [0.0, 0.1, 0.7, 1.0])
def test_normalize_uses_how_far_its_input_gets(rho: float, towards: float) -> None:
    """Points of a ball around the middle of a larger box stay within planes made for the ball, also where they move
    along the middle by a part of its radius only."""
    op, _ = next(REGISTRY["normalize"].examples())
    generator = torch.Generator().manual_seed(17)
    z0 = torch.randn(INSTANCES, 3, 16, generator=generator, dtype=torch.float64)
    far = torch.full((INSTANCES, 3), rho, dtype=torch.float64)
    box = MeasuredBox(z0 - rho, z0 + rho, Reach(far, far * towards))
    planes, plain = op.planes(box), op.planes(Box(z0 - rho, z0 + rho))
    interval = op.interval(box)
    assert planes.remainder is not None
    assert plain.remainder is not None
    assert (planes.remainder <= plain.remainder).all()
    e = z0 / torch.linalg.vector_norm(z0, dim=-1, keepdim=True)
    for k in range(300):
        h = torch.randn(z0.shape, generator=generator, dtype=torch.float64)
        h = h - (h * e).sum(dim=-1, keepdim=True) * e
        part = towards * (1 - k % 3)  # all the way out, nothing, all the way in
        h = part * e + math.sqrt(1 - part * part) * h / torch.linalg.vector_norm(h, dim=-1, keepdim=True)
        z = z0 + rho * (1 - 1e-12) * h
        y = op.forward(z)
        lower, upper, _ = evaluate(planes, [z], (3, 16))
        assert (y >= interval.lower).all()
        assert (y <= interval.upper).all()
        assert (y >= lower).all()
        assert (y <= upper).all()
        assert (torch.linalg.vector_norm(y - (lower + upper) / 2, dim=-1) <= planes.remainder).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("aside", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("known", [(False, False, False), (True, True, True), (False, True, False)])
def test_products_around_middles_of_their_own(known: tuple[bool, ...], aside: float, dtype: torch.dtype) -> None:
    """Of boxes that are measured around other points than half way between their ends, outside of them too."""
    generator, op = torch.Generator().manual_seed(23), REGISTRY["matmul"]()
    for share in (1.0, 0.05):  # of the boxes, in which the points are that lengths are known of
        boxes, clouds = [], []
        for shape in ((2, 3, 4), (2, 4, 5)):
            centre, radius, away = (
                torch.randn((INSTANCES, *shape), generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)
            )
            lower, upper = centre - radius.abs(), centre + radius.abs()
            lower[:, :, 0], upper[:, :, 0] = centre[:, :, 0], centre[:, :, 0]  # some do not move
            middle = torch.where(lower < upper, centre + aside * radius * away.sign(), centre)
            nothing = torch.full(middle.shape[:-1], math.inf, dtype=dtype)
            boxes.append(MeasuredBox(lower, upper, Reach(nothing, nothing, middle)))
            part = share * torch.rand((200, *middle.shape), generator=generator, dtype=torch.float64).round(decimals=0)
            clouds.append(torch.lerp(lower.double(), upper.double(), part if share == 1 else part + 0.3))
        away = [cloud - box.centre.double() for cloud, box in zip(clouds, boxes, strict=True)]
        lengths = []
        for is_known, (k, axis) in zip(known, op.measures, strict=True):
            far = torch.linalg.vector_norm(away[k], dim=axis).amax(dim=0) * (1 + 1e-6)
            lengths.append((far if is_known else torch.full_like(far, math.inf)).to(dtype))
        planes = op.tangent(tuple(boxes), tuple(lengths))
        assert planes is not None
        assert planes.remainder is not None
        assert torch.isfinite(planes.remainder).all()
        exact = planes._replace(
            slopes=tuple(s._replace(lower=s.lower.double(), upper=s.upper.double()) for s in planes.slopes)
        )
        (x, y), (lower, upper, _) = clouds, evaluate(exact, clouds, (2, 3, 5))
        assert (x @ y >= lower - 1e-12).all()
        assert (x @ y <= upper + 1e-12).all()
        off = torch.linalg.vector_norm(x @ y - (lower + upper) / 2, dim=-1)
        assert (off <= planes.remainder + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("eps", [1e-5, 1e-300, 0.0])
def test_normalize_of_the_largest_and_the_smallest_numbers(dtype: torch.dtype, eps: float) -> None:
    """Squares that overflow or vanish say nothing of a direction."""
    op = REGISTRY["normalize"](eps)  # type: ignore[call-arg]
    numbers = torch.finfo(dtype)
    for size in (numbers.max / 8, numbers.max**0.5 * 2, numbers.tiny**0.5 / 4, numbers.tiny**0.5 * 2, numbers.tiny * 4):
        z = torch.tensor([[[1.0, -0.4, 0.3]]], dtype=torch.float64) * size
        z = z.to(dtype).double()
        unit = z / z.abs().max()
        root = torch.sqrt((unit * unit).mean() + (eps / float(z.abs().max())) / float(z.abs().max()))
        y = unit / root
        box = Box(z.to(dtype), z.to(dtype))
        found, planes = op.interval(box), op.planes(box)
        lower, upper, _ = evaluate(planes, [z.to(dtype)], (1, 3))
        for low, high in ((found.lower, found.upper), (lower, upper)):
            assert not (low.double() > y + 1e-15).any()  # NaN says that nothing is known
            assert not (high.double() < y - 1e-15).any()


def test_probabilities_of_differences_far_from_zero() -> None:
    """`exp` multiplies the rounding of its argument: exactly known differences, against longer numbers."""
    op = REGISTRY["softmax of differences"]()
    scores = torch.zeros(600, 3, dtype=torch.float64)
    scores[:, 1], scores[:, 2] = 0.3, -(torch.arange(100, 700, dtype=torch.float64) + 0.123456789)
    scores = (scores * 2**20).round() / 2**20
    z = scores[:, None, :] - scores[:, :, None]
    box = op.interval(Box(z, z))
    with decimal.localcontext() as context:
        context.prec = 60
        for i, row in enumerate(scores.tolist()):
            weights = [decimal.Decimal(x).exp() for x in row]
            for k, weight in enumerate(weights):
                p = weight / sum(weights)
                assert decimal.Decimal(float(box.lower[i, k])) <= p <= decimal.Decimal(float(box.upper[i, k]))


def test_softmax_lies_under_a_line_in_its_log_odds() -> None:
    """Over wide boxes much lower than `exp` under its chord in log p, which is what certificates know."""
    op = REGISTRY["softmax of differences"]()
    wide = torch.tensor([[[0.0, 4.0], [4.0, 0.0]], [[0.0, 9.0], [9.0, 0.0]]], dtype=torch.float64)
    box = Box(-wide, wide)
    known = op.tuned(op.parameters(box)[: op.checked], box)
    found = op.planes(box)
    assert found.upper is not None
    assert known.upper is not None
    assert bool((found.upper < known.upper - 0.1).all())  # at z = 0, where p is a half
    assert bool((found.upper > 0.5).all())
    assert torch.equal(found.slopes[0].lower, known.slopes[0].lower)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7, 1e30, 1e300])
def test_log_odds_that_are_far_away(far: float) -> None:
    """Planes are numbers, and hold at both ends, also where probabilities are 0 and 1 to the last bit."""
    op = REGISTRY["softmax of differences"]()
    for low, high in ((-far, far), (far / 2, far), (-far, -far / 2), (-1.0, far), (-far, 1.0)):
        z = torch.tensor([[[0.0, low], [-high, 0.0]], [[0.0, high], [-low, 0.0]]], dtype=torch.float64)
        box = Box(z.amin(dim=0)[None], z.amax(dim=0)[None])
        ones = torch.ones(1, 2, 2, dtype=torch.float64)
        for planes in (op.planes(box), op.tuned((ones / 2, ones / 2, ones[..., 0]), box)):
            (slope,), upper = planes.slopes, planes.upper
            assert upper is not None
            assert bool(torch.isfinite(upper).all())
            for at in z:
                above = upper[0] + (slope.upper[0] * at).sum(dim=-1)
                assert bool((above >= op.forward(at)).all())


@pytest.mark.parametrize("divisor", [49.0, math.sqrt(768)])
def test_a_quotient_counts_both_of_its_roundings(divisor: float) -> None:
    x = torch.rand(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1
    box = REGISTRY["scale"](1 / torch.tensor(divisor, dtype=torch.float64)).interval(Box(x[None], x[None]))  # type: ignore[call-arg]
    for value, low, high in zip(x.tolist(), box.lower[0].tolist(), box.upper[0].tolist(), strict=True):
        assert Fraction(low) <= Fraction(value) / Fraction(divisor) <= Fraction(high)


@pytest.mark.parametrize("t", [1e-9, 1e-3, 0.1, 0.3, 0.7, 0.95, 0.99])
@pytest.mark.parametrize("part", [0.0, 1e-3, 0.2, 0.6, 1.0])
def test_the_curvature_of_directions_is_bounded_closely(t: float, part: float) -> None:
    """Against a fine grid of the plane of e and v."""
    a = part * t
    out = torch.linspace(-a, a, 401, dtype=torch.float64)[:, None]
    most = torch.sqrt((t * t - out * out).clamp(min=0))
    across = most * torch.linspace(0, 1, 401, dtype=torch.float64)
    q = torch.sqrt((1 + out) ** 2 + across**2)
    # (1 + out) / q - 1 and 1 / q - 1 without cancellation
    along = -(across**2) / (q * (q + 1 + out))
    longer = (2 * out + out * out + across**2) / (1 + q)
    far = torch.sqrt((along + t * t / 4) ** 2 + (across * longer / q) ** 2).max()
    found = curved(torch.tensor([t], dtype=torch.float64), torch.tensor([a], dtype=torch.float64))
    assert far * (1 - 1e-9) <= found
    assert found <= 1.1 * far


@pytest.mark.parametrize("name", ["reciprocal", "rsqrt"])
@pytest.mark.parametrize(("low", "high"), [(1e150, 1e155), (1e160, 3e160), (1e220, 3e220)])
def test_tangents_that_underflow_stay_below(name: str, low: float, high: float) -> None:
    op, _ = next(REGISTRY[name].examples())
    l = torch.full((1, 1, 1), low, dtype=torch.float64)
    planes = op.planes(Box(l, l * (high / low)))
    for t in torch.linspace(0, 1, 50, dtype=torch.float64):
        x = l * (1 + t * (high / low - 1))
        below, above, _ = evaluate_one(planes, x)
        assert (below <= op.forward(x)).all()
        assert (above >= op.forward(x)).all()


def test_intervals_count_the_bias_and_the_cancellation() -> None:
    third = torch.tensor([[[1 / 3]]], dtype=torch.float64)
    big = torch.tensor([1e10], dtype=torch.float64)
    op = REGISTRY["linear"](torch.ones(1, 1, dtype=torch.float64), big)  # type: ignore[call-arg]
    box = op.interval(Box(third, third))
    exact = Fraction(1e10) + Fraction(1 / 3)
    assert Fraction(float(box.lower)) <= exact <= Fraction(float(box.upper))

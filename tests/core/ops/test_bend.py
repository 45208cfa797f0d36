"""What planes of functions of one variable leave out next to the middle of a box, and what rows get back of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from certiformer.core import bounding
from certiformer.core.bounding import bent
from certiformer.core.coefficients import Coefficients, Link
from certiformer.core.ops import REGISTRY, Box
from certiformer.core.ops.base import Bend, Planes
from certiformer.core.ops.bend import SLACK, Bending
from contracts import BOXES, evaluate, make_box

NAMES = [name for name, cls in REGISTRY.items() if cls.bends]
DTYPES = [torch.float64, torch.float32]
Patch = pytest.MonkeyPatch


def test_every_function_that_bends_says_so() -> None:
    assert [name for name, cls in REGISTRY.items() if issubclass(cls, Bending)] == NAMES
    assert set(NAMES) == {"tanh", "gelu", "gelu_tanh", "silu", "sigmoid", "erf"}


def planes_of(name: str, box: Box) -> Planes:
    op, _ = next(REGISTRY[name].examples())
    planes = op.tangent((box,), (torch.full_like(box.lower[..., 0], 1e-9),))
    assert planes is not None
    return planes


def left_at(u: Tensor, gap: Tensor, room: Tensor) -> Tensor:
    return torch.where(room > 0, gap * (1 - u * u / room), 0).clamp(min=0)


def checked(name: str, kind: str, dtype: torch.dtype) -> tuple[float, float]:
    """That no point of such boxes is outside of what is claimed; returns the largest gap and how much less it is in
    the middle."""
    op, _ = next(REGISTRY[name].examples())
    generator = torch.Generator().manual_seed(sum(map(ord, name + kind)))
    box = Box(*(end.to(dtype) for end in make_box(kind, (20, 30), (-math.inf, math.inf), generator)))
    planes = planes_of(name, box)
    assert planes.bend is not None
    below, above, near, far = (x.double() for x in planes.bend[:4])
    for part in (below, above, near, far):
        assert torch.isfinite(part).all()
        assert (part >= 0).all()
    for gap, room in ((below, near), (above, far)):
        assert ((gap > 0) == (room > 0)).all(), f"{name}: room for nothing, or none for what is left in the middle"
    slope = planes.slopes[0]
    assert slope.upper is slope.lower
    whole = planes._replace(slopes=(slope._replace(lower=slope.lower.double(), upper=slope.lower.double()),))
    for t in torch.linspace(0, 1, 65, dtype=torch.float64):
        x = torch.minimum(torch.maximum(torch.lerp(*(e.double() for e in box), t), box.lower), box.upper).double()
        y, u = op.forward(x), x - box.centre.double()
        lower, upper, _ = evaluate(whole, [x], (20, 30))
        bend = [left_at(u, gap, room) for gap, room in ((below, near), (above, far))]
        assert (lower + bend[0] <= y).all(), (
            f"{name}: above what is left in the middle by {(lower + bend[0] - y).max()}"
        )
        assert (upper - bend[1] >= y).all(), (
            f"{name}: below what is left in the middle by {(y - upper + bend[1]).max()}"
        )
    assert planes.lower is not None
    assert planes.upper is not None
    return float((planes.upper - planes.lower).max()), float(torch.maximum(below, above).max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_is_left_out_that_is_there(name: str, kind: str, dtype: torch.dtype) -> None:
    gap, less = checked(name, kind, dtype)
    assert less <= gap
    if kind in ("ordinary", "one-sided", "negative", "mixed"):
        assert less > 0.3 * gap


EXACT: dict[str, Callable[[Any], Any]] = {
    "tanh": mpmath.tanh,
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2,
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "erf": mpmath.erf,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_derivatives_are_as_good_as_is_counted_on(name: str, dtype: torch.dtype) -> None:
    """Against fifty digits."""
    op: Any = next(REGISTRY[name].examples())[0]
    x = torch.cat([torch.linspace(-9, 9, 181), 10.0 ** torch.arange(-30.0, 0), torch.tensor([*op.turns])]).to(dtype)
    with mpmath.workdps(50):
        exact = [[float(mpmath.diff(EXACT[name], mpmath.mpf(v), k)) for v in x.tolist()] for k in (1, 2)]
    unit = float(torch.finfo(dtype).eps) / 2
    for found, true in zip((op.derivative(x), op.second(x)), exact, strict=True):
        assert ((found.double() - torch.tensor(true, dtype=torch.float64)).abs() < SLACK / 2 * unit).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_second_derivative_turns_nowhere_else(name: str) -> None:
    op: Any = next(REGISTRY[name].examples())[0]
    x = torch.linspace(-30, 30, 600001, dtype=torch.float64)
    values = op.second(x)
    rising = values[1:] > values[:-1]
    flat = (values[1:] - values[:-1]).abs() <= 1e-15
    turned = (rising[1:] != rising[:-1]) & ~flat[1:] & ~flat[:-1]
    assert all(min(abs(float(at) - c) for c in op.turns) < 1e-3 for at in x[1:-1][turned])
    least, most = op.curvature(Box(x[:1] - 1, x[-1:] + 1))
    assert values.min() >= least
    assert values.max() <= most
    assert float(most - least) <= float(values.max() - values.min()) + 1e-7


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_numbers_leave_numbers(name: str, dtype: torch.dtype) -> None:
    for size in (1e6, 1e30, float(torch.finfo(dtype).max) / 8):
        end = torch.tensor([[[-1.0, 0.5, -1.0, 1.0]]], dtype=dtype) * size
        planes = planes_of(name, Box(end, torch.maximum(end, torch.tensor(0.3, dtype=dtype)) + 0.5))
        assert planes.bend is not None
        assert all(torch.isfinite(x).all() for x in planes.bend)
        assert all((x >= 0).all() for x in planes.bend)


# ---- what rows are given back --------------------------------------------------------------------------------------


def least(part: Coefficients, bend: Bend, side: int) -> Tensor:
    """What rows, stored in full, lose less at the worst points: entries whose loss is cheapest to have go first."""
    a = part.tensor[side]
    shape = (bend.below.shape[0], *(1,) * len(part.rows), *part.node)
    low, high, near, far = (x.reshape(shape) for x in bend[:4])
    first = a > 0 if side == 0 else a < 0
    loss, room = a.abs() * torch.where(first, low, high), torch.where(first, near, far)
    loss, room = torch.broadcast_tensors(loss, room)
    rate = torch.where(room > 0, loss / torch.where(room > 0, room, 1), -1)
    order = rate.argsort(dim=-1, descending=True)
    loss, room = loss.gather(-1, order), room.gather(-1, order)
    left = (bend.length.reshape(shape[:-1])[..., None] ** 2 - (room.cumsum(dim=-1) - room)).clamp(min=0)
    kept = torch.where(room > 0, loss * (1 - left / torch.where(room > 0, room, 1)).clamp(min=0), 0)
    return kept.sum(dim=tuple(range(1 + len(part.rows), kept.dim())))


def random_bend(generator: torch.Generator, shape: tuple[int, ...], length: float) -> Bend:
    def rand() -> Tensor:
        return torch.rand((2, *shape), generator=generator, dtype=torch.float64)

    none = [rand() < 0.2 for _ in range(2)]
    gaps = [torch.where(no, 0, rand() ** 4) for no in none]
    rooms = [torch.where(no, 0, rand() ** 2) for no in none]
    return Bend(*gaps, *rooms, length * (0.5 + rand()[..., 0]))


def random_part(generator: torch.Generator, kind: str) -> tuple[Coefficients, tuple[int, ...]]:
    """Rows on a node [3, 5, 40]; some linked to its axes, within a window."""
    node, sides = (3, 5, 40), 2 if "two" in kind else 1
    rows, links, stored = (4,), (None,), (4, 3, 5, 40)
    if "window" in kind:
        rows, links, stored = (3, 2, 7), (Link(0, 0), Link(1, 2), None), (1, 1, 7, 3, 2, 40)
    tensor = torch.randn((sides, 2, *stored), generator=generator, dtype=torch.float64)
    return Coefficients(tensor, rows, node, links), node


@pytest.mark.parametrize("kind", ["one side", "two sides", "window", "window, two sides"])
@pytest.mark.parametrize("length", [1e-160, 1e-3, 0.5, 1.5, 3.0, 100.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_given_back_what_they_cannot_lose(kind: str, length: float, dtype: torch.dtype) -> None:
    """Tolerance 0, in double precision, of what is found in either."""
    generator = torch.Generator().manual_seed(int(length * 1000) + len(kind))
    part, node = random_part(generator, kind)
    bend = Bend(*(x.to(dtype) for x in random_bend(generator, node, length)))
    part = replace(part, tensor=part.tensor.to(dtype))
    found = bent(part, bend).double()
    part, bend = replace(part, tensor=part.tensor.double()), Bend(*(x.double() for x in bend))
    assert found.shape == (2, 2, *part.rows)
    assert not torch.isnan(found).any()
    full = part
    for axis in (0, 1):
        full = full.unlink(axis)
    for side, sign in ((0, 1), (-1, -1)):
        gain, true = sign * found[side], least(full, bend, side)
        assert (gain >= 0).all()
        assert (gain <= true).all()
        assert gain.sum() >= 0.75 * true.sum() - 1e-12 or not bend.length.all()  # lengths that vanish are not known


@pytest.mark.parametrize("length", [math.inf, math.nan])
def test_nothing_is_given_back_where_nothing_is_known(length: float) -> None:
    generator = torch.Generator().manual_seed(3)
    part, node = random_part(generator, "two sides")
    bend = random_bend(generator, node, 1.0)
    assert (bent(part, bend._replace(length=bend.length * length)) == 0).all()
    assert (bent(replace(part, tensor=part.tensor * math.inf), bend) == 0).all()
    nothing = Bend(*(torch.zeros_like(x) for x in bend[:4]), bend.length)
    assert (bent(part, nothing) == 0).all()


def test_gradients_are_numbers() -> None:
    """Of rows that nothing is given back to, too."""
    generator = torch.Generator().manual_seed(4)
    part, node = random_part(generator, "window, two sides")
    bend = random_bend(generator, node, 0.2)
    leaves = [x.clone().requires_grad_(True) for x in bend]
    with torch.enable_grad():
        tensor = part.tensor.clone()
        tensor[:, :, ..., 0, :, :] = 0
        found = bent(replace(part, tensor=tensor.requires_grad_(True)), Bend(*leaves))
        slopes = torch.autograd.grad(found[0].sum(), [tensor, *leaves])
    assert all(torch.isfinite(s).all() for s in slopes)
    assert all((s != 0).any() for s in slopes)


# ---- bugs on purpose -----------------------------------------------------------------------------------------------


def wrong_sign(patch: Patch) -> None:
    true = Bending.curvature
    patch.setattr(Bending, "curvature", lambda self, box: tuple(-x for x in reversed(true(self, box))))


def half_of_it(patch: Patch) -> None:
    true = Bending.curvature
    patch.setattr(Bending, "curvature", lambda self, box: tuple(x / 2 for x in true(self, box)))


def ends_alone(patch: Patch) -> None:
    for name in NAMES:
        patch.setattr(REGISTRY[name], "turns", ())


def swapped(patch: Patch) -> None:
    true = Bending.near

    def wrong(self: Any, *given: Any) -> Planes:
        planes = true(self, *given)
        bend = planes.bend
        assert bend is not None
        return planes._replace(bend=bend._replace(near=bend.far, far=bend.near))

    patch.setattr(Bending, "near", wrong)


@pytest.mark.parametrize("bug", [wrong_sign, half_of_it, ends_alone, swapped], ids=lambda bug: bug.__name__)
def test_a_wrong_curvature_is_noticed(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    noticed = 0
    for name in NAMES:
        try:
            for kind in ("ordinary", "one-sided", "negative", "huge"):
                checked(name, kind, torch.float64)
        except AssertionError as error:
            noticed += "what is left in the middle" in str(error)
    assert noticed == len(NAMES)


@pytest.mark.parametrize(
    "bug", ["no length", "half the length", "length without its square", "rooms", "sides", "signs"]
)
def test_too_much_given_back_is_noticed(bug: str, monkeypatch: Patch) -> None:
    true = bounding.bent

    def wrong(part: Coefficients, bend: Bend) -> Tensor:
        below, above, near, far, length = bend
        if bug == "sides":
            return true(replace(part, tensor=part.tensor.flip(0)), bend)
        if bug == "signs":
            return true(replace(part, tensor=-part.tensor), bend)
        if bug == "rooms":
            return true(part, Bend(below, above, far, near, length))
        short = {"no length": 1e-9 * length, "half the length": length / 2, "length without its square": length.sqrt()}
        return true(part, Bend(below, above, near, far, short[bug]))

    monkeypatch.setitem(globals(), "bent", wrong)
    with pytest.raises(AssertionError):
        test_rows_are_given_back_what_they_cannot_lose("two sides", 1.5, torch.float64)

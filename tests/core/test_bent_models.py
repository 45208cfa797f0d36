"""Whole models whose smooth functions are bounded next to their tangents: with the engine that users get."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import cycle

import pytest
import torch
from torch import Tensor, nn

from certiformer.core import bounding, engine
from certiformer.core.branch import divide
from certiformer.core.form import Form
from certiformer.core.graph.graph import Node
from certiformer.core.ops import bend
from certiformer.core.ops.base import Reach
from certiformer.core.problem import Problem
from certiformer.core.split import Split
from certiformer.models import Model
from certiformer.questions.inputs import prepare, problem_of
from enclosure import enclosed

Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, Function] = {
    "gelu": nn.functional.gelu,
    "gelu_tanh": partial(nn.functional.gelu, approximate="tanh"),
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "tanh of gelu": lambda x: torch.tanh(nn.functional.gelu(x)),
}
RADII = {1.0: 0.2, 2.0: 0.1, math.inf: 0.03, 1.5: 0.15}


class Stack(nn.Module):
    """Layers with standard LayerNorm and a wide hidden layer, read as a mean behind one more function: [1, n, 8]."""

    def __init__(self, function: Function, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 40, activation=function, dropout=0.0, batch_first=True)
        self.stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.function, self.pool, self.head = function, nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.function(self.pool(self.stack(x).mean(dim=1))))
        return out


def problem_for(
    name: str,
    p: float = 2.0,
    layers: int = 1,
    dtype: torch.dtype = torch.float64,
    arithmetic: str = "real",
    aligned: bool = False,
) -> tuple[Problem, Tensor]:
    """`aligned`: what is read last are functions of the same number, steep enough that little else counts."""
    torch.manual_seed(layers)
    module = Stack(FUNCTIONS[name], layers).eval().requires_grad_(False)
    x = torch.randn(4, 8)
    if aligned:
        module.pool.weight.copy_(30 * module.pool.weight[:1].expand(16, 8))
        module.pool.bias.copy_(-module.pool(module.stack(x[None]).mean(dim=1))[0] + module.pool.bias)
        module.head.weight.copy_(torch.tensor([-1.0, 1.0, 0.0])[:, None].expand(3, 16))
    if arithmetic == "float32":
        module = module.float()
    prepared = prepare(Model(module), x, dtype=dtype, arithmetic=arithmetic)  # type: ignore[arg-type]
    problem = problem_of([(prepared, s) for s in ((1,), (2, 3))], p=p, method="backward", relaxation="tight")
    return problem, torch.tensor([1, 0.4], dtype=dtype) * RADII[p]


def uses(problem: Problem, eps: Tensor) -> bool:
    """Whether anything that bends is known as a vector there."""
    made = problem.engine(problem.ball(eps, [0, 1]), problem.parameters, rounding=True)
    with torch.no_grad():
        made.margins(problem.rows([0, 1]))
    return bool(made.lengths) and any(ready.planes.bend is not None for ready in made.tangents.values())


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes that touch in the middle, and what is given back of them, also where that hardly pays."""
    monkeypatch.setattr(bend, "PAYS", 0.0)


WAYS = ((2.0, 1), (math.inf, 1), (1.0, 2), (1.5, 1), (2.0, 2))


MODELS = [("gelu", 2.0, 2), ("gelu", math.inf, 1)] + [(f, *way) for f, way in zip(FUNCTIONS, cycle(WAYS), strict=False)]


@pytest.mark.parametrize(
    ("name", "p", "layers"), [pytest.param(*m, marks=() if m[2] == 1 else pytest.mark.slow) for m in MODELS]
)
@pytest.mark.usefixtures("everywhere")
def test_no_point_leaves_the_bounds_of_any_node(name: str, p: float, layers: int) -> None:
    problem, eps = problem_for(name, p, layers)
    eps = eps / layers**2
    assert uses(problem, eps)
    assert enclosed(problem, eps, samples=60) > 60


@pytest.mark.parametrize("extra", ["float32", "arithmetic", "splits", "steps"])
def test_nor_with_other_precisions_pieces_and_planes(extra: str) -> None:
    dtype = torch.float32 if extra == "float32" else torch.float64
    problem, eps = problem_for("gelu", dtype=dtype, arithmetic="float32" if extra == "arithmetic" else "real")
    if extra == "splits":
        pieces = (divide(problem, 2**k * eps, 4) for k in range(8))
        k, problem = next((k, p) for k, p in enumerate(pieces) if isinstance(p, Split) and len(p.owners) > len(p))
        eps = 2**k * eps
    if extra == "steps":
        problem = problem.tuned(eps, steps=2)
        assert problem.parameters
    assert isinstance(problem, Split) or uses(problem, eps)
    assert enclosed(problem, eps, samples=60) > 60


def test_lengths_are_those_around_the_middle_of_the_box_that_planes_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a box was cut to the range of the op before, too."""
    problem, eps = problem_for("tanh of gelu")
    middles, by_form = dict[int, Tensor](), engine.by_form

    def noted(at: engine.Engine, node: Node, middle: Tensor, form: Form) -> Reach:
        middles[node.index] = middle
        return by_form(at, node, middle, form)

    monkeypatch.setattr(engine, "by_form", noted)
    made = problem.engine(problem.ball(5 * eps, [0, 1]), {}, rounding=True)
    cut = 0
    with torch.no_grad():
        made.margins(problem.rows([0, 1]))
        for index in made.lengths:
            box, node = made.box(problem.compiled.graph.nodes[index]), problem.compiled.graph.nodes[index]
            assert torch.equal(middles[index], box.centre)
            cut += bool(not node.op.exact and (box.upper == made._interval(node).upper).any())
    assert cut


@pytest.mark.usefixtures("everywhere")
def test_more_is_proved_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FUNCTIONS:
        problem, eps = problem_for(name)
        found = problem.margins(eps / 2)
        with monkeypatch.context() as patch:
            patch.setattr(bounding, "bent", lambda part, b: part.contract(torch.zeros_like(b.below)) * 0)
            without = problem.margins(eps / 2)
        assert (found.lower >= without.lower - 1e-12).all()
        assert (found.lower > without.lower + 1e-9).any(), name


@pytest.mark.parametrize("bug", ["lengths", "halved", "forgotten"])
@pytest.mark.usefixtures("everywhere")
def test_what_is_wrong_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that are too short, by themselves and where they come off."""
    problem, eps = problem_for("gelu", aligned=True)
    assert enclosed(problem, eps, samples=60) > 60
    if bug == "lengths":
        by_form = engine.by_form

        def shorter(*given: object) -> Reach:
            return by_form(*given).times(0.5)  # type: ignore[arg-type]

        monkeypatch.setattr(engine, "by_form", shorter)
    else:
        honest, times = bounding.bent, 0.5 if bug == "halved" else 1e-3
        monkeypatch.setattr(bounding, "bent", lambda part, b: honest(part, b._replace(length=times * b.length)))
    with pytest.raises(AssertionError, match="its bound"):
        enclosed(problem, eps, samples=60)

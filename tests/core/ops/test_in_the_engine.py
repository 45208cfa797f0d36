"""Every op in the engine that answers questions: a small network around it, and nothing leaves its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certiformer.core.captured import Captured
from certiformer.core.graph import Graph
from certiformer.core.graph.build import Builder
from certiformer.core.graph.graph import Rest
from certiformer.core.lowering import Ref
from certiformer.core.names import METHODS, BoundOptions
from certiformer.core.ops import REGISTRY, Op
from certiformer.core.ops.base import Shape
from certiformer.core.ops.elementwise import Square, Tanh
from certiformer.core.ops.linear import Add, Linear, Shift
from certiformer.core.ops.movement import Reshape, Slice
from certiformer.core.problem import Instance, Problem
from enclosure import enclosed

CASES = [(name, k, op, shapes) for name, cls in REGISTRY.items() for k, (op, shapes) in enumerate(cls.examples())]
N, D = 4, 5
RADII = ((1.0, 0.5), (2.0, 0.3), (math.inf, 0.1))


class Given(Captured):
    """A graph that no module was captured for."""

    def __init__(self, made: Graph) -> None:
        super().__init__(nn.Identity())
        self.made = made

    def graph(self, examples: Sequence[Tensor], relaxation: Any, arithmetic: Any) -> Graph:
        return self.made

    def placed(self, x: Tensor) -> Tensor:
        return x


def differences(build: Builder, scores: Ref) -> Ref:
    """`s_k - s_j`, `[..., j, k]`."""
    shape = build.shape(scores)
    rows, columns = Reshape((*shape[:-1], 1, shape[-1])), Reshape((*shape, 1))
    return build.add(Add(-1.0), build.add(rows, scores), build.add(columns, scores))


def around(op: Op, shapes: tuple[Shape, ...], example: Tensor) -> Graph:
    """Input -> a layer -> a tanh -> the op, on pieces of it -> three logits."""
    generator = torch.Generator().manual_seed(0)
    build = Builder(example[None])
    if op.simplex:  # it is given scores, of which it takes the differences
        shapes = tuple(s[:-1] for s in shapes)
    total = sum(math.prod(s) for s in shapes)
    mix = torch.randn(total, N * D, generator=generator, dtype=torch.float64) / D
    x = build.add(Tanh(), build.add(Linear(mix), build.add(Reshape((1, N * D)), Ref(0))))
    inputs, start = [], 0
    for shape in shapes:
        piece = build.add(Reshape(shape), build.add(Slice(1, start, math.prod(shape)), x))
        if op.domain()[0] == 0:
            piece = build.add(Shift(torch.tensor(0.2, dtype=torch.float64)), build.add(Square(), piece))
        piece = build.add(Rest(), piece) if len(inputs) >= len(shapes) - op.constants else piece
        inputs.append(differences(build, piece) if op.simplex else piece)
        start += math.prod(shape)
    y = build.add(op, *inputs)
    entries = math.prod(build.shape(y))
    last = torch.randn(3, entries, generator=generator, dtype=torch.float64)
    return build.graph(build.add(Linear(last), build.add(Reshape((1, entries)), y)))


@pytest.mark.parametrize("norms", ["one", pytest.param("every", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "k", "op", "shapes"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_nothing_leaves_its_bounds(name: str, k: int, op: Op, shapes: tuple[Shape, ...], norms: str) -> None:
    """Every op meets every method and every norm, and in `make slow` all pairs of them."""
    turn = k + sum(map(ord, name))
    x = torch.randn(1, N, D, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    given = Given(around(op, shapes, x))
    label = int(given.made.values(x[None])[-1].argmax())
    instances = [Instance(x, positions, label) for positions in ((0,), (2,), (1, 3))]
    for place, method in enumerate(METHODS):
        options = BoundOptions(method=method)
        for p, eps in RADII if norms == "every" else RADII[(place + turn) % 3 :][:1]:
            problem = Problem.of(given, instances, examples=[x], p=p, options=options)
            radii = torch.tensor([eps, eps / 20, eps / 2], dtype=torch.float64)
            assert enclosed(problem, radii, samples=30) > 0, f"{method} has no bounds at all"

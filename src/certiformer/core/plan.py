"""What "auto" means: the tightest way of bounding that a budget of time allows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, get_args

from ..errors import InputError
from .engine import PAPER, TIGHT, Style
from .graph.graph import Graph
from .names import METHODS, RELAXATIONS, AutoMethod, Budget, Method, Relaxation

STYLES: dict[Relaxation, Style] = {"paper": PAPER, "tight": TIGHT}
# multiplications that one evaluation of all instances may take, on a CPU core or two; a GPU does far more in the time
LIMITS: dict[Budget, float] = {"fast": 3e9, "balanced": 2e10, "tight": 4e12}
GPU = 200.0


class Plan(NamedTuple):
    """How an input is bounded."""

    method: Method
    style: Style


def check(method: AutoMethod, relaxation: Relaxation, budget: Budget) -> None:
    """Each option is one of those there are."""
    for name, value, known in (
        ("method", method, ("auto", *METHODS)),
        ("relaxation", relaxation, RELAXATIONS),
        ("budget", budget, get_args(Budget)),
    ):
        if value not in known:
            raise InputError(f"{name}={value!r}: expected one of {', '.join(known)}")


def choose(
    graph: Graph, *, method: AutoMethod, relaxation: Relaxation, budget: Budget, instances: int, cuda: bool
) -> Plan:
    """A method where none was named, and whether differences of scores are bounded one by one."""
    style = STYLES[relaxation]
    if relaxation == "paper":
        return Plan("backward-forward" if method == "auto" else method, style)
    limit = LIMITS[budget] * (GPU if cuda else 1) / instances
    if method in ("auto", "backward"):
        for differences in (True, False):
            if cost(graph, differences=differences) <= limit:
                both = style.both or budget == "tight"
                return Plan("backward", replace(style, sweep_differences=differences, both=both))
    if method == "backward":
        return Plan("backward", replace(style, sweep_differences=False))
    return Plan("backward-forward" if method == "auto" else method, replace(style, sweep_differences=False))


def cost(graph: Graph, *, differences: bool) -> float:
    """Multiplications of a fully backward evaluation of one instance, roughly.

    Every row of every node that is bounded meets every entry before it, each with a contraction over the width.
    """
    width = graph.nodes[0].shape[-1]
    of_scores = {n.inputs[0] for n in graph.nodes if n.op.simplex}
    total, before, seen = 0.0, 0, set[int]()
    for node in graph.nodes:
        if not node.perturbed:
            continue
        before += math.prod(node.shape)
        if node.op.exact:
            continue
        for i in node.inputs:
            parent = graph.nodes[i]
            if parent.perturbed and i not in seen and not parent.op.simplex:
                seen.add(i)
                shape = parent.shape[:-1] if i in of_scores and not differences else parent.shape
                total += math.prod(shape) * before
    return total * width

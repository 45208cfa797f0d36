"""`python -m certiformer.core.ops` prints docs/supported-ops.md from the registry."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from .base import REGISTRY, Op

HEAD = """\
# Supported operations

Made from the registry of ops by `python -m certiformer.core.ops > docs/supported-ops.md`.

A model is captured with `torch.export`. Every ATen operator that depends on the embeddings must be in one of the two
tables; anything that does not is computed once and becomes a constant. What is missing is reported all at once, with
the place in the model and the shapes. How the bounds are used is told in [method.md](method.md).
"""
PRIMITIVES = """
## Operations with bounds of their own

An *exact* operation is affine or moves entries around: nothing is lost there. For the others the table gives the linear
functions below and above, for an input in `[l, u]`. An input that is not proved to lie in the domain makes the instance
unknown.
"""
COMPOSED = """
## Operations rewritten to others
"""


def page() -> str:
    """The whole file."""
    from ..graph.build import lowerings

    targets: dict[Any, list[str]] = {}  # what lowers an operator -> the operators
    for target, lowering in lowerings().items():
        targets.setdefault(lowering, []).append(target)
    ops = sorted(REGISTRY.values(), key=lambda op: (op.exact, op.name))
    others = sorted((x for x in targets if x not in ops), key=lambda x: str(x.__name__))
    table = _table(
        ("operation", "ATen operators", "linear bounds", "domain"),
        [(f"`{op.name}`", _operators(targets.get(op, [])), _bounds(op), _domain(*op.domain())) for op in ops],
    )
    composed = _table(
        ("operation", "ATen operators", "becomes"),
        [(x.__name__, _operators(targets[x]), getattr(x, "summary", "") or _first(x)) for x in others],
    )
    return f"{HEAD}{PRIMITIVES}\n{table}{COMPOSED}\n{composed}"


def _bounds(op: type[Op]) -> str:
    if not op.exact:
        return op.summary
    return op.summary if op.summary.startswith("exact") else "; ".join(x for x in ("exact", op.summary) if x)


def _first(x: Any) -> str:
    """The first paragraph of what a class says of itself."""
    return (inspect.getdoc(x) or "").split("\n\n")[0]


def _operators(targets: Sequence[str]) -> str:
    return ", ".join(f"`{target.removeprefix('aten.')}`" for target in targets) or "made by rewrites"


def _domain(low: float, high: float) -> str:
    if low == -math.inf and high == math.inf:
        return "all numbers"
    return f"x > {low:g}" if high == math.inf else f"x < {high:g}" if low == -math.inf else f"{low:g} < x < {high:g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in line) + " |\n" for line in lines
    )


if __name__ == "__main__":
    print(page(), end="")

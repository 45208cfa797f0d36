"""`python -m certiformer.core.lowering` prints docs/supported-ops.md from the table and the registry of ops."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from ..ops import REGISTRY, Op
from . import TABLE, Row

HEAD = """\
# Supported operations

Made by `python -m certiformer.core.lowering > docs/supported-ops.md`.

A model is captured with `torch.export`. Every ATen operator that depends on the embeddings must be in the second table;
anything that does not is computed once and becomes a constant. What is missing is reported all at once, with the place
in the model and the shapes. An argument of an operator that is not read must have its default value. How the bounds
are used is told in [method.md](method.md).
"""
OPERATIONS = """
## Operations with bounds of their own

An *exact* operation is affine or moves entries around: nothing is lost there. For the others the table gives the linear
functions below and above, for an input in `[l, u]`. An input that is not proved to lie in the domain makes the instance
unknown.
"""
OPERATORS = """
## ATen operators, and what they become
"""


def page() -> str:
    """The whole file."""
    ops = sorted(REGISTRY.values(), key=lambda op: (op.exact, op.name))
    operations = _table(
        ("operation", "linear bounds", "domain"), [(f"`{op.name}`", _bounds(op), _domain(*op.domain())) for op in ops]
    )
    rows: dict[Any, list[Row]] = {}  # what lowers operators -> their rows
    for row in TABLE.values():
        rows.setdefault(row.function, []).append(row)
    lines = sorted((", ".join(sorted(_name(r) for r in group)), _first(f)) for f, group in rows.items())
    operators = _table(("ATen operators", "become"), lines)
    return f"{HEAD}{OPERATIONS}\n{operations}{OPERATORS}\n{operators}"


def _name(row: Row) -> str:
    return f"`{str(row.operator).removeprefix('aten.').removesuffix('.default')}`"


def _bounds(op: type[Op]) -> str:
    if not op.exact:
        return op.summary
    return op.summary if op.summary.startswith("exact") else "; ".join(x for x in ("exact", op.summary) if x)


def _first(x: Any) -> str:
    """The first paragraph of what a function says of itself."""
    return (inspect.getdoc(x) or "").split("\n\n")[0]


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

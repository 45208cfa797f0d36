"""`python -m certiformer.ops` prints docs/supported-ops.md from the registry."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

from .base import REGISTRY, Op

HEAD = """\
# Supported operations

Made from the registry of ops by `python -m certiformer.ops > docs/supported-ops.md`.

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
    rows = [_row(REGISTRY[name]) for name in sorted(REGISTRY, key=lambda n: (REGISTRY[n].exact, n))]
    table = _table(("operation", "ATen operators", "linear bounds", "domain"), rows)
    composed = _table(("operation", "ATen operators", "becomes"), list(_composites()))
    return f"{HEAD}{PRIMITIVES}\n{table}{COMPOSED}\n{composed}"


def _row(op: type[Op]) -> tuple[str, ...]:
    summary = op.summary or "exact"
    if op.exact and not summary.startswith("exact"):
        summary = f"exact; {summary}"
    return f"`{op.name}`", _targets(op.targets), summary, _domain(*op.domain())


def _composites() -> Iterator[tuple[str, ...]]:
    from .norm import COMPOSITES

    for composite in sorted(COMPOSITES, key=lambda c: c.__name__):
        yield composite.__name__, _targets(composite.targets), (inspect.getdoc(composite) or "").split("\n\n")[0]


def _targets(targets: Sequence[str]) -> str:
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

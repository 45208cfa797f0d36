"""Margins and radii of a fixed set of cases: what a change of the engine's shape must not change.

`python tests/fixed.py write FILE` stores them, `python tests/fixed.py compare FILE` says which differ and by how much.
On one machine, with one thread, they must be the same bit for bit.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import certiformer as cf
from conftest import IDS, random_model
from kinds import Encoder

SHORT, LONG = "a great film", "the plot is thin but the cast is wonderful"
Case = Callable[[], list[float]]


def _bounds(model: Any, inputs: Any, **options: Any) -> list[float]:
    found = cf.bounds(model, inputs, **options)
    return [*found.lower.flatten().tolist(), *found.upper.flatten().tolist()]


def cases() -> Iterator[tuple[str, Case]]:
    """Name and computation of every case."""
    methods = ("ibp", "forward", "backward", "backward-forward")
    for layers in (1, 2, 3):
        model = cf.load(f"sst-{layers}")
        for method in methods:
            for relaxation in ("paper", "tight"):
                for norm in (1, 2, math.inf):
                    options: dict[str, Any] = {"method": method, "relaxation": relaxation, "norm": norm}
                    yield (
                        f"bounds sst-{layers} {method} {relaxation} l{norm}",
                        lambda m=model, o=options: _bounds(m, SHORT, eps=0.002, **o),
                    )
        yield f"radius sst-{layers}", lambda m=model: list(cf.radius(m, SHORT).radii)
        yield f"radius sst-{layers} splits", lambda m=model: list(cf.radius(m, SHORT, positions=[[2]], splits=4).radii)
        yield (
            f"radius sst-{layers} words=2 linf",
            lambda m=model: list(cf.radius(m, SHORT, words=2, norm="inf", method="backward-forward").radii),
        )
    model = cf.load("sst-1")
    yield "radius sst-1 steps", lambda: list(cf.radius(model, SHORT, positions=[[2]], steps=4).radii)
    yield "radius sst-1 long", lambda: list(cf.radius(model, LONG, method="backward-forward").radii)
    yield "radius sst-1 float32", lambda: list(cf.radius(model, SHORT, dtype=torch.float32).radii)
    yield "radius sst-1 paper", lambda: list(cf.radius(model, SHORT, relaxation="paper").radii)
    yield "radius sst-1 tight budget", lambda: list(cf.radius(model, SHORT, budget="tight").radii)
    yield "certify sst-1 splits", lambda: list(cf.certify(model, SHORT, eps=0.4, splits=4, attack=False).margins)
    yield (
        "certify sst-1 words",
        lambda: [cf.certify(model, SHORT, substitutions={"great": ["good", "fine"], "film": ["movie"]}).margin],
    )
    for norm in ("no_var", "standard", "none"):
        for layers in (1, 2):
            small = random_model(layers=layers, layer_norm=norm, scale=0.3, seed=layers)
            for method in methods:
                for relaxation in ("paper", "tight"):
                    options = {"method": method, "relaxation": relaxation}
                    yield (
                        f"bounds random {norm} {layers} {method} {relaxation}",
                        lambda m=small, o=options: _bounds(m, IDS, eps=0.01, positions=[[1], [1, 3]], **o),
                    )
            yield f"radius random {norm} {layers}", lambda m=small: list(cf.radius(m, IDS).radii)
    for first in (True, False):
        torch.manual_seed(3)
        module = Encoder(layers=2, norm_first=first, read=1).eval()
        point = torch.randn(4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        yield f"radius encoder {first}", lambda m=module, x=point: list(cf.radius(cf.Model(module=m), x).radii)


def main(action: str, file: str) -> int:
    """Write or compare; the number of cases that differ."""
    torch.set_num_threads(1)
    found = {name: [float(v).hex() for v in case()] for name, case in cases()}
    if action == "write":
        Path(file).write_text(json.dumps(found, indent=0) + "\n")
        print(f"{len(found)} cases written")
        return 0
    known = json.loads(Path(file).read_text())
    wrong = [name for name in known if found.get(name) != known[name]]
    for name in wrong:
        pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(known[name], found.get(name, ()), strict=False)]
        print(f"{name}: {[(a, b) for a, b in pairs if a != b][:3]}")
    print(f"{len(known) - len(wrong)} of {len(known)} cases agree bit for bit")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))

"""One cell of work: a method on some positions of one sentence. What it is keyed by, and how it is computed."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from certiformer.api import attack, radii
from certiformer.attack import versions
from certiformer.data import Example
from certiformer.models import Model
from certiformer.norms import norm_name
from certiformer.questions.importance import gradients
from certiformer.questions.inputs import prepare
from certiformer.training import evaluate

from .store import Record

FORMAT = 1  # part of every key: raise it when what a cell means changes
TOLERANCE = 1e-3
Kind = Literal["lower", "upper", "slope", "accuracy"]


@dataclass(frozen=True)
class Way:
    """A method of a table. `options` go to the function that does it."""

    name: str
    title: str
    kind: Kind
    options: dict[str, Any] = field(default_factory=dict)
    effort: float = 1.0  # a guess at its time in units of the paper's method, for the first estimate

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def cut(self) -> bool:
        """Whether a long sentence is too much for one cell."""
        return self.kind == "lower" and self.effort >= 1


ACCURACY = Way("accuracy", "accuracy", "accuracy")


def ways(budget: str = "balanced") -> dict[str, Way]:
    """Every method by its name; `budget` is that of ours."""
    ours = {"method": "backward", "relaxation": "tight", "budget": budget, "tolerance": TOLERANCE}
    paper = {"relaxation": "paper", "tolerance": TOLERANCE}
    every = (
        Way("upper", "upper (words)", "upper", {"attack_method": "enumeration"}),
        Way("gradient", "upper (gradient)", "upper", {"method": "gradient", "steps": 50, "restarts": 3, "seed": 0}),
        Way("grad", "gradient norm", "slope", effort=0.01),
        Way("ibp", "IBP", "lower", {"method": "ibp", **paper}, effort=0.3),
        Way("forward", "fully forward", "lower", {"method": "forward", **paper}),
        Way("backward", "fully backward", "lower", {"method": "backward", **paper}, effort=3.0),
        Way("paper", "the paper's method", "lower", {"method": "backward-forward", **paper}),
        Way("ours-quick", "ours, quick", "lower", {**ours, "method": "backward-forward"}),
        Way("ours", "ours", "lower", ours, effort=3.0),
        Way("ours-steps", "ours, 30 steps", "lower", {**ours, "steps": 30}, effort=50.0),
    )
    return {way.name: way for way in every}


@dataclass(frozen=True)
class Cell:
    """A method on some sets of positions of a sentence, or (without ids) a model's accuracy on its test part."""

    model: str
    weights: str  # fingerprint of the model's files; of the test part too where it is all used
    way: Way
    norm: float = 2.0
    ids: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    positions: tuple[tuple[int, ...], ...] = ()
    dtype: Literal["float64", "float32"] = "float64"
    timed: bool = False  # warmed up first, so that the seconds can be compared

    @property
    def key(self) -> str:
        """A hash of everything that the result depends on."""
        matters = [
            FORMAT, self.weights, self.way.name, self.way.options, norm_name(self.norm), self.ids, self.positions,
            self.dtype, self.timed,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:24]

    @property
    def weight(self) -> float:
        """How long it may take, in no unit: only ratios are used, and what is known of its model and method first."""
        return (len(self.positions) * len(self.ids) ** 2 or 1e3) * self.way.effort

    @property
    def companions(self) -> Hashable:
        """Cells that agree in this can be done together."""
        together = self.way.kind == "lower" and not self.timed
        alike = (self.model, self.way.name, self.norm, self.dtype, len(self.ids), self.positions)
        return alike if together else self.key

    @property
    def title(self) -> str:
        """What a line of progress says."""
        if self.way.kind == "accuracy":
            return f"{self.model}, accuracy"
        what = f"{len(self.positions)} sets of {len(self.words)} words"
        return f"{self.model}, {norm_name(self.norm)}, {self.way.name}, {what}"


def compute(cells: Sequence[Cell], model: Model, test: Sequence[Example], device: str) -> list[Record]:
    """Do the work of some cells that go together. A radius that was not found is None."""
    first = cells[0]
    common: Record = {
        "model": first.model,
        "way": first.way.name,
        "options": first.way.options,
        "dtype": first.dtype,
        "machine": machine(device),
        "versions": versions(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }
    if first.way.kind == "accuracy":
        began = time.perf_counter()
        right = evaluate(model, test, device=device)
        return [{**common, "accuracy": right, "examples": len(test), "seconds": time.perf_counter() - began}]
    common |= {"norm": norm_name(first.norm), "positions": first.positions}
    found = _lower(cells, model, device) if first.way.kind == "lower" else [_other(c, model, device) for c in cells]
    return [{**common, **_facts(c, model, device), **own} for c, own in zip(cells, found, strict=True)]


def _facts(cell: Cell, model: Model, device: str) -> Record:
    """What the sentence is like, whatever the method."""
    prepared = prepare(model, cell.ids, device=device)
    lengths = torch.linalg.vector_norm(prepared.embeddings[0], ord=cell.norm, dim=-1).tolist()
    return {
        "words": cell.words,
        "label": prepared.label,
        "margin": prepared.margin,
        "lengths": [min(lengths[i] for i in where) for where in cell.positions],
    }


def _lower(cells: Sequence[Cell], model: Model, device: str) -> list[Record]:
    first, inputs = cells[0], [cell.ids for cell in cells]
    options: dict[str, Any] = {"norm": first.norm, "positions": first.positions, "device": device, **first.way.options}
    options["dtype"] = getattr(torch, first.dtype)
    if first.timed:
        radii(model, inputs, **{**options, "positions": first.positions[:1], "tolerance": 0.5, "steps": 0})
    began = _now(device)
    found = radii(model, inputs, **options)
    seconds = (_now(device) - began) / len(cells)
    return [{"radii": f.radii, "chosen": f.chosen, "calls": f.calls, "seconds": seconds} for f in found]


def _other(cell: Cell, model: Model, device: str) -> Record:
    began = _now(device)
    if cell.way.kind == "slope":
        slopes = gradients(prepare(model, cell.ids, device=device))
        own: Record = {"slopes": [slopes[i] for (i,) in cell.positions]}
    else:
        tried = attack(model, cell.ids, norm=cell.norm, positions=cell.positions, device=device, **cell.way.options)
        own = {"radii": [_finite(r) for r in tried.radii], "replacements": tried.words}
    return {**own, "seconds": _now(device) - began}


def _finite(radius: float) -> float | None:
    return radius if math.isfinite(radius) else None


def _now(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


@cache
def machine(device: str) -> str:
    """What the work is done on, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    name, threads = platform.processor() or platform.machine(), torch.get_num_threads()
    return f"CPU {name}, {threads} thread{'' if threads == 1 else 's'}"


def fingerprint(folder: Path) -> str:
    """A hash of the files that make up a model."""
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:24]


def fingerprint_of(test: Sequence[Example]) -> str:
    """A hash of the test part."""
    written = json.dumps([(e.label, e.words) for e in test], ensure_ascii=False)
    return hashlib.sha256(written.encode()).hexdigest()[:24]

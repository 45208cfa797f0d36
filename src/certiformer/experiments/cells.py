"""One cell of work: a method on some positions of one sentence. What it is keyed by, and how it is computed."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from ..attack import attack, versions
from ..data import Example
from ..explain import gradients
from ..inputs import norm_name, prepare
from ..models import Model
from ..search import radii
from ..training import evaluate
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

    def __hash__(self) -> int:
        return hash(self.name)


ACCURACY = Way("accuracy", "accuracy", "accuracy")


def ways(budget: str = "balanced") -> dict[str, Way]:
    """Every method by its name; `budget` is that of ours."""
    ours = {"method": "backward", "relaxation": "tight", "budget": budget, "tolerance": TOLERANCE}
    paper = {"relaxation": "paper", "tolerance": TOLERANCE}
    every = (
        Way("upper", "upper (words)", "upper", {"method": "enumeration"}),
        Way("gradient", "upper (gradient)", "upper", {"method": "gradient", "steps": 50, "restarts": 3, "seed": 0}),
        Way("grad", "gradient norm", "slope"),
        Way("ibp", "IBP", "lower", {"method": "ibp", **paper}),
        Way("forward", "fully forward", "lower", {"method": "forward", **paper}),
        Way("backward", "fully backward", "lower", {"method": "backward", **paper}),
        Way("paper", "the paper's method", "lower", {"method": "backward-forward", **paper}),
        Way("ours-quick", "ours, quick", "lower", {**ours, "method": "backward-forward"}),
        Way("ours", "ours", "lower", ours),
        Way("ours-steps", "ours, 30 steps", "lower", {**ours, "steps": 30}),
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
        """How long it may take, in no unit: only ratios between cells of one method and one model are used."""
        return len(self.positions) * len(self.ids) ** 2 or 1e4

    @property
    def title(self) -> str:
        """What a line of progress says."""
        if self.way.kind == "accuracy":
            return f"{self.model}, accuracy"
        what = f"{len(self.positions)} sets of {len(self.words)} words"
        return f"{self.model}, {norm_name(self.norm)}, {self.way.name}, {what}"


def compute(cell: Cell, model: Model, test: Sequence[Example], device: str) -> Record:
    """Do the work of a cell. A radius that was not found is None."""
    done: Record = {
        "model": cell.model,
        "way": cell.way.name,
        "options": cell.way.options,
        "dtype": cell.dtype,
        "machine": machine(device),
        "versions": versions(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    }
    if cell.way.kind == "accuracy":
        began = time.perf_counter()
        done |= {"accuracy": evaluate(model, test, device=device), "examples": len(test)}
        return {**done, "seconds": time.perf_counter() - began}
    prepared = prepare(model, cell.ids, device=device)
    lengths = torch.linalg.vector_norm(prepared.embeddings[0], ord=cell.norm, dim=-1).tolist()
    done |= {
        "norm": norm_name(cell.norm),
        "words": cell.words,
        "label": prepared.label,
        "margin": prepared.margin,
        "positions": cell.positions,
        "lengths": [min(lengths[i] for i in where) for where in cell.positions],
    }
    options: dict[str, Any] = {"norm": cell.norm, "positions": cell.positions, "device": device, **cell.way.options}
    if cell.way.kind == "lower":
        options["dtype"] = getattr(torch, cell.dtype)
        if cell.timed:
            first = {"positions": cell.positions[:1], "tolerance": 0.5, "steps": 0}
            radii(model, [cell.ids], **{**options, **first})
    began = _now(device)
    if cell.way.kind == "lower":
        (found,) = radii(model, [cell.ids], **options)
        done |= {"radii": found.radii, "chosen": found.chosen, "calls": found.calls}
    elif cell.way.kind == "upper":
        tried = attack(model, cell.ids, **options)
        done |= {"radii": [_finite(r) for r in tried.radii], "replacements": tried.words}
    else:
        slopes = gradients(prepared)
        done |= {"slopes": [slopes[i] for (i,) in cell.positions]}
    return {**done, "seconds": _now(device) - began}


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

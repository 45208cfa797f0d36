"""How far the methods certify, against an attack: models x methods x norms.

certiformer reproduce tightness MODEL [MODEL ...] --out FILE.json --device cuda

Each MODEL is a bundled name or a folder. Prints a Markdown table and writes JSON with settings, machine and versions.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import certiformer as cf
from certiformer.errors import InputError
from certiformer.norms import norm_name
from certiformer.training import pick_device

from ..bench import machine
from ..bench.machine import synchronized

Row = dict[str, Any]
SENTENCES = ("lame , haphazard teen comedy .", "excellent acting and direction .")
WAYS: dict[str, dict[str, Any]] = {
    "ibp": {"method": "ibp", "relaxation": "paper"},
    "forward": {"method": "forward", "relaxation": "paper"},
    "backward-forward": {"method": "backward-forward", "relaxation": "paper"},
    "backward": {"method": "backward", "relaxation": "paper"},
    "backward-forward, tight": {"method": "backward-forward", "relaxation": "tight"},
    "backward, tight, fast": {"method": "backward", "relaxation": "tight", "budget": "fast"},
    "backward, tight": {"method": "backward", "relaxation": "tight", "budget": "tight"},
}
USUAL = tuple(WAYS)
WAYS |= {
    f"backward, tight, {name}": {"method": "backward", "relaxation": "tight", **more}
    for name, more in (("4 pieces", {"splits": 4}), ("8 pieces", {"splits": 8}), ("30 steps", {"steps": 30}))
}


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    models: tuple[str, ...]
    out: Path
    device: str = "cpu"
    norms: tuple[float, ...] = (2.0,)
    ways: tuple[str, ...] = USUAL
    texts: tuple[str, ...] | None = None
    time_limit: float = 1e9

    def __post_init__(self) -> None:
        unknown = [way for way in self.ways if way not in WAYS]
        if unknown:
            raise InputError(f"--ways {unknown[0]!r}: expected some of {'; '.join(WAYS)}")


def measure(model: cf.Model, way: str, norm: float, sentences: Sequence[str], device: str) -> Row:
    """Mean radius over all words of the sentences, its ratio to the attack's, seconds and peak memory."""
    certified: list[float] = []
    attacked: list[float] = []
    chosen: set[str] = set()
    seconds = calls = 0.0
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    for text in sentences:
        cf.radius(model, text, norm=norm, positions=[1], tolerance=0.5, device=device, **WAYS[way])  # capture, warm up
        start = synchronized(device)
        found = cf.radius(model, text, norm=norm, device=device, **WAYS[way])
        seconds += synchronized(device) - start
        calls += found.calls / len(sentences)
        chosen.add(found.chosen)
        certified += found.radii
        attacked += cf.attack(model, text, norm=norm, device=device).radii
    wrong = [i for i, (c, a) in enumerate(zip(certified, attacked, strict=True)) if c > a]
    mean = sum(certified) / len(certified)
    return {
        "model": model.name,
        "way": way,
        "norm": norm_name(norm),
        "radius": mean,
        "attack": sum(attacked) / len(attacked),
        "ratio": mean / (sum(attacked) / len(attacked)),
        "smallest": min(certified),
        "words": len(certified),
        "calls": calls,
        "seconds": seconds,
        "memory": torch.cuda.max_memory_allocated() if device.startswith("cuda") else None,
        "chosen": sorted(chosen),
        "violations": len(wrong),
    }


def study(settings: Settings, say: Callable[[str], None] = print) -> list[Row]:
    """Measure, saying a line of the table for each row; the file is written after every one."""
    begun = time.perf_counter()
    rows: list[Row] = []
    device = str(pick_device(settings.device))
    sentences = settings.texts or SENTENCES
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    say("| model | norm | method | mean radius | of the attack's | evaluations | seconds | peak GiB |")
    say("|---|---|---|---|---|---|---|---|")
    for name in settings.models:
        model = cf.load(name)
        for norm, way in itertools.product(settings.norms, settings.ways):
            if time.perf_counter() - begun > settings.time_limit:
                return rows
            rows.append(measure(model, way, norm, sentences, device))
            say(line(rows[-1]))
            settings.out.write_text(json.dumps(document(rows, sentences, device), indent=1) + "\n", encoding="utf-8")
    return rows


def line(row: Row) -> str:
    """A line of the table."""
    memory = "" if row["memory"] is None else f"{row['memory'] / 2**30:.2f}"
    told = (
        f"| {row['model']} | {row['norm']} | {row['way']} | {row['radius']:.4g} | {row['ratio']:.3f} | "
        f"{row['calls']:.1f} | {row['seconds']:.2f} | {memory} |"
    )
    return told + (f" {row['violations']} VIOLATIONS" if row["violations"] else "")


def document(rows: list[Row], sentences: Sequence[str], device: str) -> Row:
    """All rows with what they were measured on."""
    return {
        "machine": machine.name(device),
        "threads": torch.get_num_threads(),
        "versions": {"certiformer": cf.__version__, "torch": torch.__version__},
        "sentences": list(sentences),
        "dtype": "float64",
        "rows": rows,
    }

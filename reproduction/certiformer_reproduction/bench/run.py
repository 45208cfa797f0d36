"""A benchmark from start to end: the cases of a suite, a table as they finish, and JSON after every one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from certiformer.errors import CertiformerError, InputError

from . import machine
from .cases import SUITES, Case, suite
from .measure import Measured, measure
from .tables import compared, head, line

SCHEMA = 1


@dataclass(frozen=True)
class Settings:
    """What to measure and how."""

    suite: str
    device: str = "cpu"
    dtype: str = "float64"
    repeats: int = 3
    tolerance: float = 1e-3
    only: str | None = None  # part of a case's key
    models: Path | None = None
    file: Path | None = None  # sentences for `throughput`, a line each
    out: Path | None = None
    compare: Path | None = None
    time_limit: float = 1e9  # no case starts later than this
    patience: float = 60.0  # a case is repeated no longer than this
    max_memory: int | None = None


def run(settings: Settings, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Measure, printing a line for each case; the document that `settings.out` holds at the end."""
    cases = _cases(settings)
    texts: list[str] | None = None
    if settings.file is not None:
        texts = _lines(settings.file)
        name = f"{len(texts)} sentences of {settings.file.name}"
        cases = [replace(c, name=name, sentences=len(texts)) if c.suite == "throughput" else c for c in cases]
    before = None if settings.compare is None else read(settings.compare)
    if settings.out is not None:
        settings.out.parent.mkdir(parents=True, exist_ok=True)
    document = _document(settings)
    rows: list[dict[str, Any]] = document["rows"]
    about = document["machine"]
    rates = machine.Rates(**document["rates"])
    say(f"{about['device']}, torch {about['torch']}, {about['threads']} threads, {settings.dtype}")
    say(f"peak: {rates.flops / 1e12:.3g} TFLOP/s, {rates.bytes / 1e9:.4g} GB/s ({rates.source})")
    say(head())
    began = time.perf_counter()
    for case in cases:
        if time.perf_counter() - began > settings.time_limit:
            document["left_out"].append(case.key)
            continue
        try:
            row = _one(case, settings, rates, texts).to_json()
        except (CertiformerError, torch.OutOfMemoryError, MemoryError) as error:
            document["failed"].append({"key": case.key, "why": str(error).splitlines()[0]})
            say(f"{case.key}: {document['failed'][-1]['why']}")
            if machine.is_cuda(settings.device):
                torch.cuda.empty_cache()
            continue
        rows.append(row)
        say(line(row))
        _write(document, settings.out)
    _write(document, settings.out)
    if document["left_out"]:
        say(f"left out after {settings.time_limit:g} s: {len(document['left_out'])} cases")
    if before is not None:
        say("")
        say(compared(before, document))
    return document


def _write(document: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _one(case: Case, settings: Settings, rates: machine.Rates, texts: list[str] | None) -> Measured:
    return measure(
        case,
        device=settings.device,
        rates=rates,
        dtype=getattr(torch, settings.dtype),
        repeats=settings.repeats,
        patience=settings.patience,
        tolerance=settings.tolerance,
        max_memory=settings.max_memory,
        folder=settings.models,
        texts=texts if case.suite == "throughput" else None,
    )


def _cases(settings: Settings) -> list[Case]:
    if settings.suite not in (*SUITES, "all"):
        raise InputError(f"{settings.suite!r}: expected one of {', '.join((*SUITES, 'all'))}")
    if settings.dtype not in ("float64", "float32"):
        raise InputError(f"dtype {settings.dtype!r}: expected float64 or float32")
    if settings.models is not None and not settings.models.is_dir():
        raise InputError(f"no folder {settings.models}")
    if machine.is_cuda(settings.device) and not torch.cuda.is_available():
        raise InputError(f"device {settings.device!r}: there is no CUDA device here")
    cases = [c for c in suite(settings.suite) if settings.only is None or settings.only in c.key]
    if not cases:
        keys = "\n  ".join(c.key for c in suite(settings.suite))
        raise InputError(f"no case with {settings.only!r} in its name; there are\n  {keys}")
    return cases


def _lines(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    if not lines:
        raise InputError(f"{file} holds no sentence")
    return lines


def _document(settings: Settings) -> dict[str, Any]:
    dtype = getattr(torch, settings.dtype)
    reached = machine.measured_rates(settings.device, dtype)
    found = machine.stated_rates(settings.device, dtype) or reached
    return {
        "schema": SCHEMA,
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine.describe(settings.device),
        "rates": {"flops": found.flops, "bytes": found.bytes, "source": found.source},
        "reached": {"flops": reached.flops, "bytes": reached.bytes, "source": reached.source},
        "settings": {
            "suite": settings.suite,
            "device": settings.device,
            "dtype": settings.dtype,
            "repeats": settings.repeats,
            "tolerance": settings.tolerance,
            "norm": "l2",
            "models": "random weights or bundled" if settings.models is None else settings.models.name,
            "max_memory": settings.max_memory,
        },
        "rows": [],
        "left_out": [],
        "failed": [],
    }


def read(file: Path) -> dict[str, Any]:
    """A document that an earlier run wrote."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{file}: expected what `certiformer bench SUITE --out` writes")
    return document

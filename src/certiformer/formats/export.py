"""A question of ours as files that other tools read: the model as ONNX, what is asked as VNN-LIB 1.0."""

from __future__ import annotations

import itertools
import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..api import Certifier
from ..core.goal import Goal
from ..errors import InputError, ModelError, title
from ..models.faithful import first_line, numbers
from ..models.folder import write_bytes
from ..models.onnx import Runtime, read_file
from ..models.onnx.file import packages
from ..numbers import at_least
from ..options import Question
from ..properties import AnyProperty, Robust
from ..questions.inputs import Inputs, Prepared, prepare
from ..questions.positions import position_sets
from ..sets import Ball, Box, Union, members

MODEL, INSTANCES = "model.onnx", "instances.csv"
SECONDS = 100  # what a verifier is given for an instance, in instances.csv
POINTS = 4
CLOSE = 1e-4  # difference of outputs, relative to the largest


@dataclass(frozen=True)
class Region:
    """Bounds of the inputs, exactly, and what they are, in words."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    told: str


def export(
    certifier: Certifier,
    inputs: Inputs,
    folder: str | os.PathLike[str],
    *,
    within: Union,
    property: AnyProperty | None = None,
    label: int | None = None,
) -> tuple[Path, ...]:
    """Write a question to a folder: model.onnx, a property for each set of inputs, and instances.csv.

    Numbers are written out in full, so the files ask the same question. Boxes and balls of the norm inf have linear
    bounds; other sets are refused.
    """
    target = Path(folder)
    packages(target)
    prepared = prepare(certifier.workspace, inputs, label=label)
    regions = [region for one in members(within) for region in _regions(prepared, one)]
    wanted = (Robust(prepared.label) if property is None else property).of(prepared.logits.shape[1], prepared.label)
    target.mkdir(parents=True, exist_ok=True)
    write_model(prepared.model.module, prepared.embeddings, target / MODEL)
    names = [f"property_{k}.vnnlib" for k in range(len(regions))]
    for name, region in zip(names, regions, strict=True):
        write_bytes(target / name, property_text(region, wanted.goal).encode())
    rows = "".join(f"{MODEL},{name},{SECONDS}\n" for name in names)
    write_bytes(target / INSTANCES, rows.encode())
    return (target / MODEL, *(target / name for name in names), target / INSTANCES)


def _regions(prepared: Prepared, given: Any) -> Iterator[Region]:
    middle = prepared.embeddings.double()
    if isinstance(given, Box):
        low, high = (bound.expand(middle.shape[1:]).flatten().tolist() for bound in (given.lower, given.upper))
        yield Region(tuple(map(Fraction, low)), tuple(map(Fraction, high)), "a box")
        return
    if not isinstance(given, Ball) or not math.isinf(given.p) or given.where is not None:
        raise InputError(f"within={given!r}: expected a Box, or a Ball with norm=inf: VNN-LIB has linear bounds alone")
    entries = [Fraction(v) for v in middle.flatten().tolist()]
    eps, width = Fraction(at_least(given.eps)), middle.shape[-1]
    for where in position_sets(prepared, Question(positions=given.positions)):
        moves = {i * width + k for i in where for k in range(width)}
        lower = tuple(v - eps if i in moves else v for i, v in enumerate(entries))
        upper = tuple(v + eps if i in moves else v for i, v in enumerate(entries))
        words = " ".join(prepared.tokens[i] for i in where)
        yield Region(lower, upper, f"positions {list(where)} ({words}) within {given.eps!r}, norm inf")


def property_text(region: Region, goal: Goal) -> str:
    """VNN-LIB 1.0: the bounds of the inputs, and the outputs that must not be reached."""
    outputs = goal.rows.shape[1]
    told = region.told.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    lines = [f"; {told}", "; unsat: no input within the bounds gives an output as described at the end"]
    lines += [f"(declare-const X_{k} Real)" for k in range(len(region.lower))]
    lines += [f"(declare-const Y_{k} Real)" for k in range(outputs)]
    for k, (low, high) in enumerate(zip(region.lower, region.upper, strict=True)):
        lines += [f"(assert (>= X_{k} {decimal(low)}))", f"(assert (<= X_{k} {decimal(high)}))"]
    spaces = [_half_space(row, limit) for row, limit in zip(goal.rows.tolist(), goal.limits.tolist(), strict=True)]
    cases = [
        f"(and {' '.join(spaces[h] for h in chosen)})"
        for clause in goal.clauses
        for chosen in itertools.combinations(clause.halfspaces, clause.count)
    ]
    lines.append(f"(assert (or {' '.join(cases)}))")
    return "\n".join(lines) + "\n"


def _half_space(row: Sequence[float], limit: float) -> str:
    """`A y <= b`; a difference of two outputs is written as their comparison, which every tool reads."""
    terms = [(a, f"Y_{k}") for k, a in enumerate(row) if a]
    if limit == 0 and sorted(a for a, _ in terms) == [-1, 1]:
        (less,), (more,) = ([name for a, name in terms if a == sign] for sign in (1, -1))
        return f"(<= {less} {more})"
    if len(terms) == 1 and abs(terms[0][0]) == 1:
        sign, name = terms[0]
        return f"({'<=' if sign > 0 else '>='} {name} {decimal(Fraction(limit) * int(sign))})"
    added = " ".join(f"(* {decimal(Fraction(a))} {name})" for a, name in terms) or "0"
    return f"(<= (+ {added}) {decimal(Fraction(limit))})"


def decimal(value: Fraction) -> str:
    """A number in full: those of floating point have an end."""
    with localcontext() as context:
        context.prec = 2200
        written = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    if Fraction(written) != value:
        raise InputError(f"{float(value)!r} has no end when it is written out")
    return written if "." not in written else written.rstrip("0").rstrip(".") or "0"


def write_model(module: nn.Module, example: Tensor, path: Path) -> None:
    """The module as ONNX, by the exporter of PyTorch; onnxruntime must agree with it at and around the example.

    In float32 where its weights are such numbers, else in float64.
    """
    kept = [*module.parameters(), *module.buffers()]
    single = all(torch.equal(t, t.float().to(t)) for t in kept if t.is_floating_point())
    kind = torch.float32 if single else torch.float64
    exact = example.to(kind)
    with _quiet():
        try:
            torch.onnx.export(
                module.to(kind), (exact,), str(path), dynamo=True, external_data=False, verbose=False, input_names=["x"]
            )
        except Exception as error:  # what the exporter may raise has no list
            raise ModelError(f"{title(module)} cannot be written as ONNX: {first_line(error)}") from None
        finally:
            module.to(example.dtype)
    runtime = Runtime(read_file(path))
    generator = torch.Generator().manual_seed(0)
    for k in range(POINTS):
        point = exact + k * float(exact.std()) * torch.randn(exact.shape, generator=generator, dtype=kind)
        with torch.no_grad():
            expected = module(point.to(example))[0].double()
        found = torch.as_tensor(runtime(point.numpy())).double()
        if found.shape != expected.shape or not float((found - expected).abs().max()) <= CLOSE * float(
            expected.abs().max()
        ):
            raise ModelError(f"{path}: onnxruntime gives {numbers(found)}, the model itself {numbers(expected)}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes to itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

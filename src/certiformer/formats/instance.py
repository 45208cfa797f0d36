"""A model file and a property file: is there a counterexample, or a proof that there is none?"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from ..api import Certifier
from ..models import Model
from ..models.onnx import Network, Runtime, as_model, check_agreement, read_file
from ..options import Options
from ..properties import Property
from ..results import VerifyResult
from ..sets import Box
from .query import Query
from .result import FileAnswer, Verdict, Witness
from .rounding import box, half_spaces
from .vnnlib import read_vnnlib
from .witness import Judge

COMPARED = 4  # boxes of a property whose points are compared with onnxruntime
TOGETHER = 64  # boxes that are asked about at once
UNCONFIRMED = "a counterexample in float64 is none for onnxruntime"


@dataclass(frozen=True, eq=False)
class Group:
    """Boxes of inputs about which the same is asked: one polyhedron of outputs for each of the cases of a box."""

    boxes: tuple[Box, ...]
    cases: tuple[tuple[int, ...], ...]  # of each box, in the order of the polyhedra
    property: Property
    rows: tuple[int, ...]  # half-spaces of each polyhedron


class Instance:
    """A question of two files, opened and checked: the model agrees with onnxruntime before anything is proved."""

    def __init__(self, model: str | os.PathLike[str], property: str | os.PathLike[str]) -> None:
        self.query: Query = read_vnnlib(property)
        self.file = read_file(model)
        self.network = Network(self.file).eval()
        self.query.check_sizes(math.prod(self.file.shape), self.network.outputs, f"property {property}")
        self.runtime = Runtime(self.file)
        boxes = [box(case) for case in self.query.cases[:COMPARED]]
        self.difference = check_agreement(self.runtime, self.network, boxes)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The cases: those with the same bounds of the inputs are one box, boxes with the same conditions one group."""
        by_box: dict[Any, list[int]] = {}
        for k, case in enumerate(self.query.cases):
            by_box.setdefault((case.lower, case.upper), []).append(k)
        by_property: dict[Any, list[tuple[int, ...]]] = {}
        spaces: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for cases in by_box.values():
            unsafe = [half_spaces(self.query.cases[k].rows, self.network.outputs) for k in cases]
            key = tuple((a.numpy().tobytes(), b.numpy().tobytes()) for a, b in unsafe)
            spaces[key] = unsafe
            by_property.setdefault(key, []).append(tuple(cases))
        return tuple(
            self._group(cases[k : k + TOGETHER], spaces[key])
            for key, cases in by_property.items()
            for k in range(0, len(cases), TOGETHER)
        )

    def _group(self, cases: list[tuple[int, ...]], unsafe: list[tuple[Tensor, Tensor]]) -> Group:
        sides = [box(self.query.cases[numbers[0]]) for numbers in cases]
        shape = self.network.shape
        boxes = tuple(Box(lower.reshape(shape), upper.reshape(shape)) for lower, upper in sides)
        return Group(boxes, tuple(cases), Property(unsafe), tuple(len(b) for _, b in unsafe))

    def answer(self, options: Options, *, attack: bool = True, seed: int = 0) -> FileAnswer:
        """The answer, within `options.timeout` seconds: the attack first, then proofs, group after group."""
        began = time.perf_counter()
        model = as_model(self.network, self.file.path.name)
        certifier = Certifier(model, options)
        margins: dict[int, float | None] = {}
        open_: list[str] = []
        witness: Witness | None = None
        methods: set[str] = set()
        for group in self.groups:
            left = None if options.timeout is None else options.timeout - (time.perf_counter() - began)
            if left is not None and left <= 0:
                open_.append("out of time")
                break
            asked = copy.copy(certifier)  # the same copy of the model, with the time that is left
            asked.options = replace(certifier.options, timeout=left)
            found = asked.verify(None, within=list(group.boxes), property=group.property, attack=attack, seed=seed)
            margins.update(_margins(group, found))
            methods.add(str(found.method))
            if found.status == "refuted":
                witness = self._witness(model, group, found)
            if witness is not None:
                break
            if found.status != "certified":
                open_.append(UNCONFIRMED if found.status == "refuted" else found.reason or "the bounds are too wide")
        seconds = time.perf_counter() - began
        late = options.timeout is not None and seconds >= options.timeout
        verdict: Verdict = "sat" if witness else "unsat" if not open_ else "timeout" if late else "unknown"
        return FileAnswer(
            verdict=verdict,
            witness=witness,
            cases=len(self.query.cases),
            margins=tuple(margins.get(k) for k in range(len(self.query.cases))),
            reason=None if witness is not None or not open_ else open_[0],
            method=", ".join(sorted(methods)) or None,
            arithmetic=options.arithmetic,
            difference=self.difference,
            seconds=seconds,
        )

    def _witness(self, model: Model, group: Group, found: VerifyResult) -> Witness | None:
        """What the attack found, as onnxruntime sees it."""
        example = found.counterexample
        assert example is not None
        number = group.cases[example.member][example.clause]
        judge = Judge(self.runtime, self.network, self.query.cases[number], number)
        cut = getattr(model.module, "cut", None)  # where positions are patches
        return judge.deepened(example.point if cut is None else cut.picture(example.point))


def _margins(group: Group, found: VerifyResult) -> Iterator[tuple[int, float | None]]:
    """Of each case, the best that was proved of one of its conditions."""
    for cases, values in zip(group.cases, found.margins, strict=True):
        start = 0
        for case, count in zip(cases, group.rows, strict=True):
            best = max(values[start : start + count])
            yield case, best if math.isfinite(best) else None
            start += count

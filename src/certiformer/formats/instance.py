"""A model file and a property file: is there a counterexample, or a proof that there is none?"""

from __future__ import annotations

import copy
import math
import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from ..api import Certifier
from ..core.deadline import OUT_OF_TIME, Deadline
from ..errors import InputError
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
        try:
            boxes, _ = [box(case) for case in self.query.cases[:COMPARED]], self.groups
        except InputError as error:  # of numbers that are no floats
            raise InputError(f"property {property}: {error}") from None
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
        """The answer: the attack first, then one pass of bounds, then, where there is a timeout, what takes longer."""
        began, clock = time.perf_counter(), Deadline.before(options.timeout)
        search = Search(self, Certifier(as_model(self.network, self.file.path.name), options), clock, seed)
        for k, stage in enumerate(stages(options, len(self.groups))):
            search.run(stage, attack=attack and k == 0)
            if search.witness is not None or search.lost or not search.open:
                break
        verdict: Verdict = "sat" if search.witness is not None else "unsat" if not search.open else "unknown"
        return FileAnswer(
            verdict="timeout" if verdict == "unknown" and (clock.passed or search.reason == OUT_OF_TIME) else verdict,
            witness=search.witness,
            cases=len(self.query.cases),
            margins=tuple(search.margins.get(k) for k in range(len(self.query.cases))),
            reason=search.reason if verdict == "unknown" else None,
            method=", ".join(sorted(search.methods)) or None,
            arithmetic=options.arithmetic,
            difference=self.difference,
            seconds=time.perf_counter() - began,
        )


def stages(options: Options, groups: int) -> tuple[Options, ...]:
    """What is tried one after the other: of several groups one pass each, so that none takes the time of all others."""
    alone = groups == 1 or options.timeout is None or options.method == "ibp"
    return (options,) if alone or options.steps or options.splits is not None else (replace(options, splits=0), options)


class Search:
    """What has been found so far about an instance."""

    def __init__(self, instance: Instance, certifier: Certifier, deadline: Deadline, seed: int) -> None:
        self.instance, self.certifier, self.deadline, self.seed = instance, certifier, deadline, seed
        self.open = {(g, k) for g, group in enumerate(instance.groups) for k in range(len(group.boxes))}
        self.lost: set[tuple[int, int]] = set()  # boxes with a counterexample that onnxruntime does not confirm
        self.margins: dict[int, float] = {}
        self.methods: set[str] = set()
        self.witness: Witness | None = None
        self.reason: str | None = None

    def run(self, options: Options, *, attack: bool) -> None:
        """Try to close what is open; a counterexample ends it."""
        for g, group in enumerate(self.instance.groups):
            left = [k for k in range(len(group.boxes)) if (g, k) in self.open]
            while left and self.witness is None:
                if self.deadline.passed:
                    self.reason = OUT_OF_TIME
                    return
                found = self._ask(group, left, options, attack)
                self._note(g, left, found)
                if found.counterexample is None:
                    break
                self.witness = self._witness(group, left, found)
                if self.witness is None:
                    self.reason = UNCONFIRMED
                    self.lost.add((g, left.pop(found.counterexample.member)))

    def _ask(self, group: Group, members: list[int], options: Options, attack: bool) -> VerifyResult:
        """About some boxes of a group, in the time that is left."""
        asked = copy.copy(self.certifier)  # the same copy of the model
        asked.options = replace(options, timeout=self.deadline.left if self.deadline.limited else None)
        boxes = [group.boxes[k] for k in members]
        found = asked.verify(None, within=boxes, property=group.property, attack=attack, seed=self.seed)
        self.methods.add(str(found.method))
        return found

    def _note(self, g: int, members: list[int], found: VerifyResult) -> None:
        """Which boxes are proved, and of each case the best that was proved of one of its conditions."""
        group = self.instance.groups[g]
        for k, status, values in zip(members, found.statuses, found.margins, strict=True):
            if status == "certified":
                self.open.discard((g, k))
            start = 0
            for case, count in zip(group.cases[k], group.rows, strict=True):
                best = max(values[start : start + count])
                if math.isfinite(best):
                    self.margins[case] = max(best, self.margins.get(case, -math.inf))
                start += count
        if found.status not in ("certified", "refuted"):
            self.reason = found.reason or "the bounds are too wide"

    def _witness(self, group: Group, members: list[int], found: VerifyResult) -> Witness | None:
        """What the attack found, as onnxruntime sees it."""
        example, instance = found.counterexample, self.instance
        assert example is not None
        number = group.cases[members[example.member]][example.clause]
        judge = Judge(instance.runtime, instance.network, instance.query.cases[number], number)
        cut = getattr(self.certifier.model.module, "cut", None)  # where positions are patches
        return judge.deepened(example.point if cut is None else cut.picture(example.point))

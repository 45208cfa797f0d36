"""A worker: one copy of a model, and rows for the sentences it is given, whatever happens to any of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..core.names import Arithmetic
from ..errors import out_of_memory
from ..models.model import Model
from ..questions.inputs import Prepared, label_name, prepare
from ..questions.threads import plain, threads
from ..questions.verdict import CONTRADICTION
from ..questions.workspace import Workspace
from .decide import Asked, Decided, decide
from .runner import Pairs, told
from .store import Record

SMALLER = "out of memory together: bounded in smaller batches"
ON_CPU = "out of GPU memory: bounded on the CPU"
NO_MEMORY = "out of memory"


@dataclass(frozen=True)
class Item:
    """A sentence with its label and the key of its row."""

    key: str
    number: int
    text: str
    label: int


@dataclass(frozen=True)
class Batch:
    """Sentences of one length that are bounded together: what else is done, and in which order, changes no bit."""

    case: int
    items: tuple[Item, ...]
    length: int
    cost: float


@dataclass(frozen=True)
class Case:
    """A model, by its place among those of the sweep, and what is asked of it."""

    model: int
    asked: Asked


@dataclass(frozen=True, eq=False)
class Job:
    """All that a worker needs to begin."""

    models: tuple[Model, ...]
    cases: tuple[Case, ...]


class Worker:
    """Holds one copy of one model at a time; called with some batches, it gives their rows."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._held: tuple[int, Workspace] | None = None

    def __call__(self, batches: Sequence[Batch]) -> Pairs:
        return [pair for batch in batches for pair in self._batch(batch)]

    def _batch(self, batch: Batch) -> Pairs:
        case = self.job.cases[batch.case]
        if self._held is None or self._held[0] != case.model:
            self._held = None  # the other copy goes first
            self._held = (case.model, Workspace(self.job.models[case.model]))
        workspace = self._held[1]
        began = time.perf_counter()
        with plain(), threads(workspace.model, case.asked.options.threads):
            workspace.forget()
            rows = _Answers(workspace, case.asked).of(batch.items)
        each = (time.perf_counter() - began) / len(batch.items)
        cost = {"seconds": round(each, 4), "at": round(time.time(), 2)}
        return [(item.key, {"case": batch.case, **rows[item.key], **cost}) for item in batch.items]


@dataclass
class _Answers:
    """Rows of sentences; a failure is a row too, and what was done about it a note."""

    workspace: Workspace
    asked: Asked

    def of(self, items: Sequence[Item], note: str | None = None) -> dict[str, Record]:
        """A row for every sentence, those that are right and can be read together."""
        rows: dict[str, Record] = {}
        right: list[tuple[Item, Prepared]] = []
        for item in items:
            row: Record = {"sentence": item.number, "text": item.text, "label": item.label}
            try:
                q = prepare(
                    self.workspace,
                    item.text,
                    device=self.asked.options.device,
                    arithmetic=self._arithmetic,
                )
            except Exception as error:
                rows[item.key] = failed(item, told(error))
                continue
            row |= {"predicted": q.label, "margin": q.margin, "length": len(q.movable), "note": note or q.note}
            row["said"] = label_name(q.model, q.label)
            rows[item.key] = {**row, "status": "wrong"}
            if q.label == item.label:
                right.append((item, q))
        if right:
            rows |= self._decided(right, rows)
        return rows

    @property
    def _arithmetic(self) -> Arithmetic:
        return self.asked.options.arithmetic

    def _decided(self, right: list[tuple[Item, Prepared]], rows: dict[str, Record]) -> dict[str, Record]:
        items = [item for item, _ in right]
        try:
            found = decide(self.workspace, [q for _, q in right], [item.text for item in items], self.asked)
        except Exception as error:
            return self._apart(items, error)
        return {item.key: {**rows[item.key], **_row(one)} for item, one in zip(items, found, strict=True)}

    def _apart(self, items: Sequence[Item], error: Exception) -> dict[str, Record]:
        """What is left to do where sentences failed together: in halves, on the CPU, or not at all."""
        full = out_of_memory(error)
        if full:
            _give_back()
        if len(items) > 1:
            note, half = (SMALLER if full else None), -(-len(items) // 2)
            return self.of(items[:half], note) | self.of(items[half:], note)
        options = self.asked.options
        if full and str(options.device or "cpu") != "cpu":
            return _Answers(self.workspace, replace(self.asked, options=replace(options, device="cpu"))).of(
                items, ON_CPU
            )
        return {items[0].key: failed(items[0], NO_MEMORY if full else told(error))}


def failed(item: Item, reason: str) -> Record:
    """The row of a sentence about which nothing was found out."""
    return {
        "sentence": item.number,
        "text": item.text,
        "label": item.label,
        "length": len(item.text.split()),
        "status": "error",
        "reason": reason,
    }


def _row(one: Decided) -> Record:
    if one.contradicted:
        return {"status": "error", "reason": CONTRADICTION}
    certified, attacked, where, _ = one.weakest()
    return {
        "status": "decided",
        "certified": certified,
        "attacked": attacked,
        "sets": len(one.sets),
        "at_positions": list(where),
        "weakest": [one.prepared.tokens[i] for i in where],
    }


def _give_back() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

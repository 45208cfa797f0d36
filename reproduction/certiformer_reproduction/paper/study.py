"""A table with real sentences: its cells in order, and the run through those that are not finished."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import torch

from certiformer.core.names import Budget
from certiformer.data import Dataset, load_data
from certiformer.errors import CertiformerError, InputError
from certiformer.models import Model, load
from certiformer.norms import norm_name
from certiformer.sweep.runner import Here, Lost, Pairs, Progress, Run, Unit
from certiformer.training import pick_device

from .cells import ACCURACY, Cell, Way, compute, fingerprint, fingerprint_of, ways
from .protocol import PIECE, Sentence, choose, pieces
from .store import Record, Store
from .tables import Subject, Table

YELP_SENTENCES = 10  # the paper lists words of ten Yelp sentences


@dataclass(frozen=True)
class Settings:
    """What a user may choose. None leaves a table's own choice, which is the paper's."""

    models: Path
    data_dir: Path | None = None
    out: Path = Path("results")
    device: str = "auto"
    dtype: Literal["float64", "float32"] = "float64"
    sentences: int | None = None
    max_length: int | None = None
    norms: tuple[float, ...] | None = None
    datasets: tuple[str, ...] | None = None
    only: tuple[str, ...] | None = None  # models
    methods: tuple[str, ...] | None = None
    budget: Budget = "balanced"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("sentences", self.sentences), ("max_length", self.max_length)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value}: expected a whole number from 1 on")
        if self.budget not in get_args(Budget):
            raise InputError(f"budget={self.budget!r}: expected {', '.join(get_args(Budget))}")


@dataclass(frozen=True)
class Group:
    """A row of a table: a model in a norm, with its sentences."""

    subject: Subject
    norm: float
    sentences: tuple[Sentence, ...]
    accuracy: Cell
    cells: dict[str, tuple[tuple[Cell, ...], ...]]  # method -> sentence -> pieces

    def __iter__(self) -> Iterator[Cell]:
        yield self.accuracy
        for per_sentence in self.cells.values():
            for some in per_sentence:
                yield from some


@dataclass
class Bench:
    """Models and data, each opened once."""

    settings: Settings
    models: dict[str, Model] = field(default_factory=dict)
    prints: dict[str, str] = field(default_factory=dict)
    data: dict[str, Dataset] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = str(pick_device(self.settings.device))

    def require(self, folders: Sequence[str]) -> None:
        """All of the models are there; or an error that says how to make the missing ones."""
        missing = [f for f in dict.fromkeys(folders) if not (self.settings.models / f / "config.json").is_file()]
        if missing:
            raise InputError(
                f"--models {self.settings.models} lacks {', '.join(missing)}. Train what is missing with: "
                f"certiformer reproduce zoo --data-dir DATA --out {self.settings.models} "
                f"--only {','.join(missing)}"
            )

    def model(self, folder: str) -> Model:
        if folder not in self.models:
            self.models[folder] = load(self.settings.models / folder)
            self.prints[folder] = fingerprint(self.settings.models / folder)
        return self.models[folder]

    def dataset(self, name: str) -> Dataset:
        if name not in self.data:
            self.data[name] = load_data(name, data_dir=self.settings.data_dir)
            if not self.data[name].test:
                raise InputError(f"data {name!r} has no test part")
        return self.data[name]


@dataclass(frozen=True)
class Study:
    """A table with the sentences that were chosen for it."""

    table: Table
    ways: tuple[Way, ...]
    groups: tuple[Group, ...]
    settings: Settings

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of the work; cells that rows share come once."""
        return tuple({cell.key: cell for group in self.groups for cell in group}.values())


def plan(table: Table, bench: Bench) -> Study:
    """Choose sentences and lay out the cells."""
    settings = bench.settings
    known = ways(settings.budget)
    unknown = [name for name in settings.methods or () if name not in known]
    if unknown:
        raise InputError(f"--methods {unknown[0]}: expected some of {', '.join(known)}")
    named = settings.methods or [name for name in table.ways if name not in table.extra]
    chosen = tuple(known[name] for name in table.ways if name in named)
    norms = tuple(p for p in table.norms if settings.norms is None or p in settings.norms)
    subjects = [
        s
        for s in table.subjects
        if (settings.datasets is None or s.data in settings.datasets)
        and (settings.only is None or s.folder in settings.only)
    ]
    bench.require([s.folder for s in subjects])
    groups: list[Group] = []
    for subject in subjects:
        model, test = bench.model(subject.folder), bench.dataset(subject.data).test
        count = table.sentences if settings.sentences is None else settings.sentences
        sentences = choose(
            model,
            test,
            count=min(count, YELP_SENTENCES) if table.name == "words" and subject.data == "yelp" else count,
            longest=min(table.longest, settings.max_length or table.longest),
            shortest=table.words,
            device=bench.device,
        )
        weights = bench.prints[subject.folder]
        for norm in norms:
            cells = {
                way.name: tuple(
                    tuple(
                        Cell(
                            subject.folder,
                            weights,
                            way,
                            norm,
                            s.ids,
                            s.words,
                            positions,
                            dtype=settings.dtype,
                            timed=table.timed,
                        )
                        for positions in pieces(
                            s, table.words, size=math.inf if table.timed or not way.cut else PIECE / subject.layers
                        )
                    )
                    for s in sentences
                )
                for way in chosen
            }
            accuracy = Cell(subject.folder, weights + fingerprint_of(test), ACCURACY)
            groups.append(Group(subject, norm, sentences, accuracy, cells))
    return Study(table, chosen, tuple(groups), settings)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: cells done now, cells not done for lack of time, and what failed."""

    computed: int
    unfinished: int
    failures: tuple[str, ...]


def run(
    cells: Sequence[Cell],
    bench: Bench,
    store: Store,
    *,
    data: dict[str, str],
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Compute the cells that are not in the store. With a time limit, none is started that seems to end after it."""
    pending = [cell for cell in cells if cell.key not in store]
    failures: list[str] = []

    def work(batch: list[Cell]) -> Pairs:
        first = batch[0].model
        records = compute(batch, bench.model(first), bench.dataset(data[first]).test, bench.device)
        return [(cell.key, record) for cell, record in zip(batch, records, strict=True)]

    def lost(unit: Unit, why: Lost) -> Pairs:
        failures.extend(f"{cell.title}: {why.why}" for cell in unit.content)
        return []

    with store:
        going = Run(
            store,
            Here(expected=(CertiformerError, torch.OutOfMemoryError)),
            lambda: work,
            lost,
            begun=progress,
            limit=bench.settings.time_limit,
        )
        units = [_unit(batch) for batch in batches(pending)]
        computed = going(units, total=len(cells), done=len(cells) - len(pending))
    left_over = sum(cell.key not in store for cell in pending) - len(failures)
    return Outcome(computed, left_over, tuple(failures))


def _unit(batch: list[Cell]) -> Unit:
    """Cells that are done together; how long they take is known by model and method, else by method, else at all."""
    first = batch[0]
    kinds = ((first.model, first.way.name), ("", first.way.name), ("", ""))
    return Unit(batch, tuple(cell.key for cell in batch), sum(cell.weight for cell in batch), kinds, first.title)


def batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells in their order, those that can be done together side by side as far as a piece of work allows."""
    groups: dict[tuple[Hashable, int], list[Cell]] = {}
    seen: dict[Hashable, int] = {}
    for cell in cells:
        alike = cell.companions
        number = seen.get(alike, 0)
        seen[alike] = number + 1
        together = max(1, PIECE // max(1, len(cell.positions) * len(cell.ids)))
        groups.setdefault((alike, number // together), []).append(cell)
    return list(groups.values())


def joined(cells: Sequence[Cell], store: Store) -> Record | None:
    """The pieces of one sentence as one record; None while one is missing."""
    records = [store.get(cell.key) for cell in cells]
    found = [r for r in records if r is not None]
    if len(found) < len(records):
        return None
    whole = dict(found[0])
    whole.pop("key", None)
    for name in ("positions", "lengths", "radii", "slopes", "replacements"):
        if name in whole:
            whole[name] = [value for r in found for value in r[name]]
    whole["seconds"] = sum(r["seconds"] for r in found)
    whole["machine"] = " and ".join(sorted({r["machine"] for r in found}))
    whole["norm"] = norm_name(cells[0].norm)
    whole["chosen"] = sorted({r["chosen"] for r in found if "chosen" in r})
    return whole

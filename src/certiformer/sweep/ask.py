"""`cf.sweep`: from models and a data set to a result, by way of a plan, workers and a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._version import __version__
from ..data import Dataset, Example, Tables, load_data
from ..errors import InputError, short
from ..models import Model, load, split_words
from ..models.device import pick_device
from ..norms import norm_name
from ..options import AttackOptions, Options, keywords, only
from . import plan
from .decide import Asked
from .executors import Sized, executor_of
from .options import Selection, SweepCall, SweepQuestion
from .progress import Tally
from .result import SweepResult, read_result
from .runner import Lost, Pairs, Progress, Run, Unit
from .store import Record, Store, agree, settle
from .worker import Batch, Case, Job, Worker, failed

AnyModel = Model | nn.Module | str | os.PathLike[str]
AnyData = str | os.PathLike[str] | Dataset | Sequence[Example] | Sequence[tuple[str, int]]
FORMAT = 1  # of the rows: raise it when what a row means changes
MEMORY = 1 << 28  # bytes that bounds may take on a CPU: fixed, since what is done at a time shows in the last bits
SAID = ("method", "relaxation", "arithmetic", "dtype")  # of the options, also where they are the default ones
GPU_SHARE = 0.4  # of a GPU's memory


@keywords(SweepCall)
def sweep(model: AnyModel | Sequence[AnyModel], data: AnyData, call: SweepCall) -> SweepResult:
    """Certified accuracy of one or several models on labelled sentences, at given radii or over all.

    `data` is a name or path as for the command line, a `Dataset`, or labelled sentences. With `out`, finished sentences
    are kept there, and the same call goes on after a kill; without, in a folder that is removed.
    """
    if call.out is None:
        with tempfile.TemporaryDirectory(prefix="certiformer-sweep-") as folder:
            return sweep(model, data, **{**vars(call), "out": folder})
    prepared = prepare(model, data, call)
    return prepared.run()


@dataclass(frozen=True)
class Prepared:
    """A sweep that is ready to begin."""

    call: SweepCall
    job: Job
    manifest: Record
    mine: list[Batch]  # of this shard
    total: int  # rows of all shards

    def unfinished(self, result: SweepResult) -> int:
        """How many sentences of this shard have no row."""
        found = {(row["case"], row["sentence"]) for row in result.table}
        return sum((batch.case, item.number) not in found for batch in self.mine for item in batch.items)

    def run(self) -> SweepResult:
        """Do what is not done, and read all that there is. Where there is nothing to do it with, nothing is left."""
        folder = Path(self.call.out or "")
        k, n = self.call.part
        store = Store(folder, part="" if n == 1 else f"-{k}of{n}")
        pending = [b for b in self.mine if any(item.key not in store for item in b.items)]
        executor = executor_of(self.call) if pending else None
        settle(folder, self.manifest)
        if executor is not None:
            with store:
                self._missing(store, pending, executor)
        return read_result(folder)

    def _missing(self, store: Store, pending: list[Batch], executor: Sized) -> None:
        keys = [item.key for batch in self.mine for item in batch.items]
        tally = Tally.of(self.manifest, store, keys)
        told = self.call.progress
        run = Run(
            store,
            executor,
            partial(Worker, self.job),
            lost,
            finished=partial(_tell, told, tally) if told else None,
            limit=self.call.timeout,
            at_once=executor.workers,
        )
        units = plan.units(pending, self.job, executor.workers)
        run(units, total=len(keys), done=sum(key in store for key in keys))


def _tell(told: Callable[[str], None], tally: Tally, progress: Progress) -> None:
    tally.take(record for _, record in progress.found)
    if tally.due():
        told(tally.line(progress.left))


def lost(unit: Unit, why: Lost) -> Pairs:
    """Rows for the sentences of a unit whose worker died again and again."""
    return [(item.key, {"case": b.case, **failed(item, why.why)}) for b in unit.content for item in b.items]


def prepare(model: AnyModel | Sequence[AnyModel], data: AnyData, call: SweepCall) -> Prepared:
    """Open models and data, see that the folder is for them, and plan."""
    given = list(model) if isinstance(model, (list, tuple)) else [model]
    if not given:
        raise InputError("model=[]: expected a model, or several")
    models = named([load(one) for one in given])
    _check_labels(models)
    dataset = _dataset(data, call, models[0])
    examples: Sequence[Example] = getattr(dataset, call.split)
    if not examples:
        raise InputError(f"data {dataset.name!r} has no {call.split} part")
    chosen = plan.select(examples, only(Selection, call))
    device = "cuda" if call.num_gpus else str(pick_device("cpu" if call.on == "ray" else call.device or "auto"))
    options = replace(only(Options, call), device=device, threads=call.threads or 1, timeout=None)
    options = replace(options, max_memory=options.max_memory or _memory(device, call.num_gpus))
    question = only(SweepQuestion, call)
    cases = tuple(
        Case(k, Asked(p, words, question, options))
        for k in range(len(models))
        for p in question.norms
        for words in question.counts
    )
    job = Job(tuple(models), cases)
    together = call.batch or (plan.TOGETHER if device.startswith("cuda") else None)
    about = _manifest(job, dataset, call.split, chosen, together)
    agree(Path(call.out or ""), about)
    found = plan.batches(job, chosen, together)
    return Prepared(call, job, about, plan.shard(found, call.part), len(cases) * len(chosen))


def _memory(device: str, share: float) -> int:
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return MEMORY
    whole: int = torch.cuda.get_device_properties(device).total_memory
    return int(GPU_SHARE * min(1.0, share or 1.0) * whole)


def _dataset(data: AnyData, call: SweepCall, model: Model) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, os.PathLike)):
        return load_data(data, tables=Tables(names=model.labels))
    examples = [_example(one) for one in data]
    train, dev, test = (tuple(examples) if call.split == name else () for name in ("train", "dev", "test"))
    return Dataset("sentences", train, dev, test, labels=model.labels)


def _example(one: Example | tuple[str, int]) -> Example:
    if isinstance(one, Example):
        return one
    try:
        text, label = one
        words = tuple(word.text for word in split_words(text))
    except (TypeError, ValueError, AttributeError):
        raise InputError(f"data: expected examples, or pairs of a text and a label, found {short(one)}") from None
    return Example(int(label), words, text=text)


def named(models: Sequence[Model]) -> list[Model]:
    """Models with names that differ."""
    seen: dict[str, int] = {}
    found = []
    for model in models:
        seen[model.name] = seen.get(model.name, 0) + 1
        again = seen[model.name]
        found.append(model if again == 1 else replace(model, name=f"{model.name} ({again})"))
    return found


def _check_labels(models: Sequence[Model]) -> None:
    different = next((m for m in models if m.labels != models[0].labels), None)
    if different is not None:
        raise InputError(
            f"models {models[0].name!r} and {different.name!r} have other labels, {short(models[0].labels)} and "
            f"{short(different.labels)}: one data set cannot be theirs"
        )


def _manifest(
    job: Job, data: Dataset, split: str, chosen: Sequence[tuple[int, Example]], together: int | None
) -> Record:
    """What a sweep is about: all that its rows depend on, and nothing of where or in which parts it is done."""
    asked = job.cases[0].asked
    question, options = asked.question, asked.options
    attack: Mapping[str, Any] = {f.name: getattr(question, f.name) for f in fields(AttackOptions)}
    chosen_options = {f.name: getattr(options, f.name) for f in fields(Options)}
    unsaid = {f.name: f.default for f in fields(Options) if f.name not in SAID}
    return {
        "format": FORMAT,
        "certiformer": __version__,
        "models": [{"name": m.name, "labels": list(m.labels), **m.hashes()} for m in job.models],
        "data": {"name": data.name, "split": split, "sentences": len(chosen), "sha256": plan.data_hash(chosen)},
        "norms": [norm_name(p) for p in question.norms],
        "words": list(question.counts),
        "eps": list(question.radii),
        "quick": question.quick,
        "attack": dict(attack) if question.attack else None,
        "bounds": {name: value for name, value in chosen_options.items() if value != unsaid.get(name)},
        "batch": together,
    }

"""The plan of a sweep: which sentences, in which batches, in which parts. It depends on the call alone.

A *batch* is bounded together and fixes every bit of its rows; a *unit* is what a worker is given at a time, batches of
about equal cost in all. Shards and units may be cut in any way without changing a number.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Sequence
from itertools import pairwise

from ..data import Example
from ..errors import CertiformerError, InputError
from ..questions.workspace import Workspace
from .decide import cost
from .options import Selection
from .runner import Unit
from .worker import Batch, Case, Item, Job

TOGETHER = 256  # sets of words that are bounded together on a GPU
UNITS = 24  # that each worker gets in all, about
MOST = 64  # batches in a unit
LOOKED = 4  # lengths at which costs are counted; those between are interpolated


def select(examples: Sequence[Example], asked: Selection) -> list[tuple[int, Example]]:
    """The sentences that were asked for, each with its number in its part of the data."""
    known = [(i, e) for i, e in enumerate(examples) if asked.max_length is None or len(e.words) <= asked.max_length]
    if not known:
        raise InputError(f"max_length={asked.max_length}: no sentence of the {len(examples):,} is as short as that")
    if asked.sentences is None or asked.sentences >= len(known):
        return known
    return sorted(random.Random(asked.draw).sample(known, asked.sentences), key=lambda pair: pair[0])


def data_hash(chosen: Sequence[tuple[int, Example]]) -> str:
    """SHA-256 of the sentences with their numbers and labels."""
    written = json.dumps([(i, e.label, e.written) for i, e in chosen], ensure_ascii=False)
    return hashlib.sha256(written.encode()).hexdigest()


def batches(job: Job, chosen: Sequence[tuple[int, Example]], together: int | None) -> list[Batch]:
    """Every sentence for every case: those of one length, in their order, as many as have `together` sets of words."""
    found: list[Batch] = []
    workspaces = {k: Workspace(model) for k, model in enumerate(job.models)}
    for number, case in enumerate(job.cases):
        by_length: dict[int, list[Item]] = {}
        for i, example in chosen:
            item = Item(f"{number}:{i}", i, example.written, example.label)
            by_length.setdefault(_length(workspaces[case.model], item.text), []).append(item)
        costs = _costs(workspaces[case.model], case, by_length)
        for length, items in sorted(by_length.items()):
            sets = max(1, math.comb(max(1, length), case.asked.words))
            size = 1 if together is None else max(1, together // sets)
            for start in range(0, len(items), size):
                some = tuple(items[start : start + size])
                found.append(Batch(number, some, length, costs[length] * len(some)))
    return found


def _length(workspace: Workspace, text: str) -> int:
    """How many tokens a sentence has; words where it cannot be read, which its row will say."""
    try:
        tokenizer = workspace.model.tokenizer
        return len(text.split()) if tokenizer is None else len(tokenizer.encode(text).ids)
    except CertiformerError:
        return len(text.split())


def _costs(workspace: Workspace, case: Case, by_length: dict[int, list[Item]]) -> dict[int, float]:
    """The cost of a sentence of each length, counted at a few lengths and interpolated between them."""
    lengths = sorted(by_length)
    steps = max(1, min(LOOKED, len(lengths)) - 1)
    known: dict[int, float] = {}
    for length in sorted({lengths[(len(lengths) - 1) * k // steps] for k in range(steps + 1)}):
        try:
            known[length] = cost(workspace, by_length[length][0].text, case.asked)
        except CertiformerError:  # its row will say why
            continue
    return {length: _between(known, length) for length in lengths}


def _between(known: dict[int, float], length: int) -> float:
    """On a straight line between the two next lengths, in logarithms; as the cube where nothing is known."""
    points = sorted(known.items())
    if not points:
        return float(max(1, length) ** 3)
    if len(points) == 1:
        return points[0][1] * (max(1, length) / points[0][0]) ** 3
    (a, x), (b, y) = next(((p, q) for p, q in pairwise(points) if length <= q[0]), (points[-2], points[-1]))
    slope = math.log(y / x) / math.log(b / a)
    return x * math.exp(slope * math.log(max(1, length) / a))


def shard(found: Sequence[Batch], part: tuple[int, int]) -> list[Batch]:
    """Part k of n, each of about the same cost: the longest sentences are dealt out first, to and fro.

    Whole numbers alone decide, so that machines which round differently agree on who does what.
    """
    k, n = part
    order = sorted(found, key=lambda b: (b.case, -b.length, b.items[0].number))
    mine = [b for i, b in enumerate(order) if (i % n if i // n % 2 == 0 else n - 1 - i % n) == k - 1]
    return sorted(mine, key=lambda b: (b.case, b.length, b.items[0].number))


def units(pending: Sequence[Batch], job: Job, workers: int) -> list[Unit]:
    """What workers get at a time: neighbours in length, of about equal cost; model after model, else in no order.

    No order: what is done so far is a fair sample, and so the time left is known early.
    """
    target = sum(b.cost for b in pending) / (UNITS * workers)
    found: list[list[Batch]] = []
    total = 0.0
    for batch in sorted(pending, key=lambda b: (job.cases[b.case].model, b.case, b.length, b.items[0].number)):
        last = found[-1] if found else []
        if not last or workers == 1 or last[0].case != batch.case or total + batch.cost > target or len(last) >= MOST:
            found.append([])
            total = 0.0
        found[-1].append(batch)
        total += batch.cost
    random.Random(len(found)).shuffle(found)
    found.sort(key=lambda some: job.cases[some[0].case].model)
    return [_unit(some) for some in found]


def _unit(some: list[Batch]) -> Unit:
    keys = tuple(item.key for batch in some for item in batch.items)
    return Unit(tuple(some), keys, sum(b.cost for b in some), ((some[0].case,), ()))

"""One evaluation, or its gradient, is thousands of small kernels, the same ones at every radius: on a GPU, record them
once and replay.

The numbers are those of a plain evaluation, since the kernels are the same. What cannot be recorded, or is so large
that launching it costs nothing, runs plainly.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ..ops.base import Box, Parameters
from ..sets import Perturbation
from .memory import TEMPORARIES

SHARE = 1 / 5  # of a GPU's memory: an evaluation that needs more keeps it busy by itself
KEPT, TOGETHER = 24, 1 / 3  # recordings of one owner, and the share of memory that they may hold
OFTEN = 2  # a batch that a larger recording serves as well gets its own after so many times


class Asked(NamedTuple):
    """All that an evaluation is given: a set for each instance, rows of outputs, parameters of planes, and what the
    rows are compared with, where that counts."""

    ball: Perturbation
    rows: Tensor
    parameters: Parameters
    limits: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """Those that it is made of, always in the same order."""
        own = [p for own in self.parameters.values() for p in own]
        return [*_tensors(self.ball).values(), self.rows, *own, *([] if self.limits is None else [self.limits])]

    @property
    def kind(self) -> Hashable:
        """All else: a recording is of one kind."""
        ball: Any = self.ball
        known = tuple((f.name, x) for f in fields(ball) if not isinstance(x := getattr(ball, f.name), Tensor))
        return type(ball), known, tuple(self.parameters), self.limits is None

    def copied(self) -> Asked:
        """The same with tensors of its own."""
        given: Any = self.ball
        ball = replace(given, **{name: x.clone() for name, x in _tensors(given).items()})
        parameters = {i: tuple(p.clone() for p in own) for i, own in self.parameters.items()}
        return Asked(ball, self.rows.clone(), parameters, None if self.limits is None else self.limits.clone())


class Result(Protocol):
    """What can be recorded: tensors that the next replay overwrites, unless they are copied."""

    @property
    def bytes(self) -> int:
        """What it took at its widest, with the temporaries that come on top."""
        ...

    def copied(self) -> Any: ...


class Evaluation(NamedTuple):
    """Bounds, and which instances passed each check `[checks, instances]`, with what a failure of each means."""

    box: Box
    good: Tensor
    whys: list[str]
    entries: int  # numbers held at once, at most

    @property
    def bytes(self) -> int:
        """What it took at its widest, with the temporaries that come on top."""
        return TEMPORARIES * self.entries * self.box.lower.element_size()

    def copied(self) -> Evaluation:
        """With tensors of its own."""
        box, good, whys, entries = self
        return Evaluation(Box(box.lower.clone(), box.upper.clone()), good.clone(), whys, entries)


R = TypeVar("R", bound=Result)
Evaluate = Callable[[Asked], R]


@dataclass(eq=False)
class Recording:
    """A recorded evaluation and the tensors it reads."""

    asked: Asked
    graph: torch.cuda.CUDAGraph
    result: Any

    @staticmethod
    def of(evaluate: Evaluate[R], asked: Asked, pool: Any) -> Recording:
        own = asked.copied()
        graph = torch.cuda.CUDAGraph()
        with uncollected(), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = evaluate(own)
        return Recording(own, graph, result)

    def __call__(self, asked: Asked) -> Any:
        if self.asked.kind != asked.kind:
            raise ValueError(f"recorded of {self.asked.kind}, asked of {asked.kind}")
        mine, theirs = self.asked.tensors, asked.tensors
        for own, given in zip(mine, theirs, strict=True):
            if own.shape != given.shape:  # a copy would spread it
                raise ValueError(f"recorded with {list(own.shape)}, asked with {list(given.shape)}")
        torch._foreach_copy_(mine, theirs)
        self.graph.replay()
        return self.result.copied()


@contextmanager
def uncollected() -> Iterator[None]:
    """Garbage waits: it may hold another recording, and to let that go spoils the one that is made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Store:
    """All recordings of one owner, whatever the lengths they are of: the oldest are let go when there are too many.

    Threads may share it. Recordings are made and replayed one at a time, since each has its tensors in one place.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.recent: deque[tuple[Replays, Hashable]] = deque()

    def entered(self, replays: Replays, key: Hashable, memory: int) -> None:
        """One more recording, on a device of so much memory."""
        self.recent.append((replays, key))
        while len(self.recent) > KEPT or (len(self.recent) > 1 and self._held() > TOGETHER * memory):
            self.recent.popleft()[0].forget()

    def _held(self) -> int:
        """Bytes of all recordings: those of one length share theirs."""
        most: dict[int, int] = {}
        for replays, key in self.recent:
            most[id(replays)] = max(most.get(id(replays), 0), replays.bytes.get(key, 0))
        return sum(most.values())

    def forget_all(self) -> None:
        """Give the memory of all recordings back."""
        with self.lock:
            while self.recent:
                self.recent.popleft()[0].forget()
        torch.cuda.empty_cache()


@dataclass(eq=False)
class Replays:
    """The recordings of one graph and method: an evaluation is recorded when it is asked for the second time."""

    store: Store
    seen: set[Hashable] = field(default_factory=set)
    recorded: dict[Hashable, Recording] = field(default_factory=dict)
    refused: set[Hashable] = field(default_factory=set)
    bytes: dict[Hashable, int] = field(default_factory=dict)
    pool: list[Any] = field(default_factory=list)  # the memory they share: what one leaves there is copied at once
    asked: dict[Hashable, int] = field(default_factory=dict)

    def fitting(self, keys: Sequence[Hashable]) -> int:
        """Which of these to use for a batch, given those of all sizes that hold it, the smallest first; the largest
        where none is recorded."""
        with self.store.lock:
            known = next((i for i, key in enumerate(keys) if key in self.recorded), None)
            if known is None:
                return len(keys) - 1
            small, larger = keys[0], keys[known]
            self.asked[small] = self.asked.get(small, 0) + 1
            if known == 0 or small in self.refused or self.asked[small] <= OFTEN:
                return known
            self.seen.add(small)
            self.bytes[small] = self.bytes[larger]  # it takes less
            return 0

    def __call__(self, key: Hashable, evaluate: Evaluate[R], asked: Asked) -> R:
        """An evaluation, replayed where that is possible."""
        with self.store.lock:
            new = key not in self.recorded and key not in self.seen
            if not new and key not in self.refused:
                replayed = self._replayed(key, evaluate, asked)
                if replayed is not None:
                    return replayed
        result = evaluate(asked)
        if new:
            with self.store.lock:
                self.seen.add(key)
                self.bytes[key] = result.bytes
                if result.bytes > SHARE * _memory(asked.ball):
                    self.refused.add(key)
        return result

    def _replayed(self, key: Hashable, evaluate: Evaluate[R], asked: Asked) -> R | None:
        """From the recording, which is made first where there is none; None where it cannot be."""
        if key not in self.recorded:
            self.pool = self.pool or [torch.cuda.graph_pool_handle()]
            try:
                self.recorded[key] = Recording.of(evaluate, asked, self.pool[0])
            except (RuntimeError, NotImplementedError):  # something in it waits for the GPU
                torch.cuda.synchronize()
                self.refused.add(key)
                return None
            self.store.entered(self, key, _memory(asked.ball))
        found: R = self.recorded[key](asked)
        return found

    def forget(self) -> None:
        """Drop the oldest recording, and the memory with the last one."""
        if self.recorded:
            self.recorded.pop(next(iter(self.recorded)))
        if not self.recorded:
            self.pool = []


def _tensors(ball: Any) -> dict[str, Tensor]:
    return {f.name: x for f in fields(ball) if isinstance(x := getattr(ball, f.name), Tensor)}


def _memory(ball: Perturbation) -> int:
    return int(torch.cuda.get_device_properties(ball.centre.device).total_memory)

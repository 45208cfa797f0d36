"""The one runner: units of work that are not in a store yet go to an executor, and what comes back into the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import CertiformerError
from .store import Record, Store

Pairs = list[tuple[str, Record]]
Work = Callable[[Any], Pairs]  # what a worker does with the content of a unit


@dataclass(frozen=True)
class Unit:
    """Some work that is done in one go. `kinds` say what its time is like, the most special first."""

    content: Any
    keys: tuple[str, ...]
    cost: float
    kinds: tuple[Hashable, ...] = ((),)
    title: str = ""


@dataclass(frozen=True)
class Lost:
    """A unit that brought nothing, and why."""

    why: str
    error: BaseException | None = None


def told(error: BaseException) -> str:
    """What went wrong, in a line."""
    line = " ".join(str(error).split())[:300]
    return line if isinstance(error, CertiformerError) and line else f"unexpected {type(error).__name__}: {line}"


Done = tuple[Unit, "Pairs | Lost"]


class Executor(Protocol):
    """Does units, each once, in any order. It takes the next when it has room for it, so none waits in memory."""

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        """What became of each unit. `make` makes the worker, where it works."""


class Here:
    """In this process, one after the other."""

    def __init__(self, expected: tuple[type[BaseException], ...] = ()) -> None:
        self.expected = expected  # errors that lose a unit and no more

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        work = make()
        for unit in units:
            try:
                yield unit, work(unit.content)
            except self.expected as error:
                yield unit, Lost(str(error).splitlines()[0] if str(error) else type(error).__name__, error)


@dataclass
class Clock:
    """How long units take, from those that are done: by the most special kind that is known."""

    began: float = field(default_factory=time.perf_counter)
    seen: dict[Hashable, tuple[float, float]] = field(default_factory=dict)  # seconds and cost

    def take(self, unit: Unit, seconds: float) -> None:
        for kind in unit.kinds:
            spent, cost = self.seen.get(kind, (0.0, 0.0))
            self.seen[kind] = (spent + seconds, cost + unit.cost)

    def expect(self, units: Sequence[Unit]) -> float | None:
        """The seconds that some units will take one after the other; None while nothing is known."""
        if not self.seen:
            return None
        total = 0.0
        for unit in units:
            spent, cost = next((self.seen[kind] for kind in unit.kinds if kind in self.seen), (0.0, 1.0))
            total += spent / cost * unit.cost
        return total

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began


@dataclass(frozen=True)
class Progress:
    """Where a run stands: pieces of work done and in all, what is next, and the expected rest in seconds."""

    done: int
    total: int
    title: str
    left: float | None
    found: Pairs = field(default_factory=list)


@dataclass
class Run:
    """Units that are not finished, on an executor, into a store that is open.

    `lost` makes rows of a unit that brought nothing: none where it is to be tried again the next time. `told` hears of
    a unit before it is begun, or with what it brought.
    """

    store: Store
    executor: Executor
    make: Callable[[], Work]
    lost: Callable[[Unit, Lost], Pairs]
    begun: Callable[[Progress], None] | None = None
    finished: Callable[[Progress], None] | None = None
    limit: float | None = None
    at_once: int = 1
    clock: Clock = field(default_factory=Clock)

    def __call__(self, units: Sequence[Unit], *, total: int, done: int) -> int:
        """Do the units; how many pieces of work there are now that were not there before.

        `total` counts all pieces, `done` those that were finished before. With a limit of seconds, no unit is begun
        that seems to end after it.
        """
        waiting = list(reversed(units))
        left_out: list[Unit] = []
        handled, before = done, len(self.store.keys)

        def rest(more: Sequence[Unit] = ()) -> float | None:
            left = self.clock.expect([*waiting, *more])
            return None if left is None else left / self.at_once

        def next_units() -> Iterator[Unit]:
            while waiting:
                unit = waiting.pop()
                if self.limit is not None and self.clock.spent + (self.clock.expect([unit]) or 0.0) >= self.limit:
                    left_out.extend([unit, *waiting])
                    return
                if self.begun is not None:
                    self.begun(Progress(handled, total, unit.title, rest([unit])))
                started[id(unit)] = time.perf_counter()
                yield unit

        started: dict[int, float] = {}
        for unit, outcome in self.executor.results(next_units(), self.make):
            pairs = self.lost(unit, outcome) if isinstance(outcome, Lost) else outcome
            self.store.add(pairs)
            handled += len(unit.keys)
            self.clock.take(unit, time.perf_counter() - started.pop(id(unit)))
            if self.finished is not None:
                self.finished(Progress(handled, total, unit.title, rest(), pairs))
        return len(self.store.keys) - before

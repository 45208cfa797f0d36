"""Several processes of this machine, each with a worker. One that dies is replaced, and its unit is tried again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..errors import InputError
from .runner import Done, Lost, Unit, Work, told

DIED = "the process that worked on it died {times} times, such as for lack of memory"


@dataclass(eq=False)
class _Process:
    """A process, the pipe to it, and the unit that it works on."""

    process: BaseProcess
    pipe: Connection
    unit: Unit | None = None

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class Processes:
    """As many processes as asked for. Each has one unit at a time, so it is known which one a process died of."""

    def __init__(self, workers: int, *, retries: int = 3) -> None:
        self.workers, self.retries = workers, retries
        self.context = multiprocessing.get_context("spawn")  # a copy of this process would share its lock and threads

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        try:
            made = pickle.dumps(make)
        except Exception as error:
            raise InputError(f"workers={self.workers}: the model cannot be sent to a process: {told(error)}") from None
        again: list[Unit] = []
        deaths: dict[int, int] = {}
        running = []
        try:
            running = [self._started(made) for _ in range(self.workers)]
            while True:
                for one in running:
                    if one.unit is None:
                        _give(one, again.pop() if again else next(units, None))
                busy = [one for one in running if one.unit is not None]
                if not busy:
                    return
                for one in _ready(busy):
                    unit, answer = one.unit, _answer(one)
                    assert unit is not None
                    if answer is None:  # it died
                        one.stop()
                        running[running.index(one)] = self._started(made)
                        deaths[id(unit)] = times = deaths.get(id(unit), 0) + 1
                        if times <= self.retries:
                            again.append(unit)
                        else:
                            yield unit, Lost(DIED.format(times=times))
                    else:
                        one.unit = None
                        yield unit, answer
        finally:
            for one in running:
                one.stop()

    def _started(self, made: bytes) -> _Process:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, made), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return _Process(process, ours)


def _give(one: _Process, unit: Unit | None) -> None:
    one.unit = unit
    if unit is not None:
        try:
            one.pipe.send(unit.content)
        except OSError:  # it died while it waited: its answer will be that there is none
            return


def _ready(busy: list[_Process]) -> list[_Process]:
    found = wait([one.pipe for one in busy])
    return [one for one in busy if one.pipe in found]


def _answer(one: _Process) -> Any:
    """The rows of a unit; None where the process died over it."""
    try:
        return one.pipe.recv()
    except (EOFError, OSError, pickle.UnpicklingError):
        return None


def _serve(pipe: Connection, made: bytes) -> None:
    """What a process does: units come in, rows go out, until the other side is gone."""
    work: Work = pickle.loads(made)()
    try:
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)  # nobody is left to tell

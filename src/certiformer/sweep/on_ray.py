"""Workers on Ray: the cluster that RAY_ADDRESS names, or one that is started on this machine and ends with the run.

Each worker is an actor with one copy of the model and one unit at a time: nothing queues up behind a slow one, and the
driver holds no more units than there are workers. For an actor that died there is another, which must answer before the
unit is tried again: so a unit is lost only if it kills its actors, and never because Ray itself ends.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError
from .processes import DIED
from .runner import Done, Lost, Unit, Work, told

ADDRESS = "RAY_ADDRESS"
PATIENCE = 120.0  # seconds that a new actor may take to answer


class _Actor:
    """A worker on Ray. It begins with its first unit."""

    def __init__(self) -> None:
        self.work: Work | None = None

    def ready(self) -> bool:
        """Whether it is there."""
        return True

    def do(self, made: list[Any], content: Any) -> Any:
        """Rows of a unit; `made` refers to what makes the worker, which is fetched once."""
        if self.work is None:
            import ray

            self.work = ray.get(made[0])()
        return self.work(content)


class OnRay:
    """Actors, as many as were asked for, else as many as the cluster has CPUs (or GPUs to share) for."""

    def __init__(self, workers: int | None, *, num_gpus: float = 0.0, retries: int = 3) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("on='ray': Ray is not installed: pip install 'certiformer[ray]'") from None
        self.ray: Any = ray
        self.num_gpus, self.retries = num_gpus, retries
        started = self._start(workers)
        try:
            self.workers = workers if workers and not started else min(workers or sys.maxsize, self._room())
        except InputError:
            self._end()
            raise

    def _start(self, workers: int | None) -> bool:
        """Whether it was started on this machine: then what there is is all that there will be."""
        if self.ray.is_initialized():
            return False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not os.environ.get(ADDRESS):
            settings |= {"address": "local", "include_dashboard": False, "num_cpus": workers}
        try:
            self.ray.init(**settings)
        except Exception as error:
            where = os.environ.get(ADDRESS)
            raise InputError(
                f"on='ray': {f'no cluster at {ADDRESS}={where}' if where else 'Ray could not be started here'}: "
                f"{told(error)}"
            ) from None
        return "address" in settings

    def _room(self) -> int:
        has = self.ray.cluster_resources()
        room = has.get("GPU", 0.0) / self.num_gpus if self.num_gpus else has.get("CPU", 1.0)
        if room < 1:
            raise InputError(f"num_gpus={self.num_gpus:g}: there are {has.get('GPU', 0.0):g} GPUs")
        return int(room)

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        ray = self.ray
        kind = ray.remote(num_cpus=1, num_gpus=self.num_gpus)(_Actor)
        made = ray.put(make)  # once, however many workers there are
        running: dict[Any, tuple[Unit, Any]] = {}
        again: list[Unit] = []
        deaths: dict[int, int] = {}
        try:
            idle = [kind.remote() for _ in range(self.workers)]
            while True:
                while idle and (unit := again.pop() if again else next(units, None)) is not None:
                    actor = idle.pop()
                    running[actor.do.remote([made], unit.content)] = (unit, actor)
                if not running:
                    return
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    unit, actor = running.pop(reference)
                    answer = self._answer(reference)
                    idle.append(actor if answer is not None else self._another(kind))
                    if answer is not None:
                        yield unit, answer
                        continue
                    deaths[id(unit)] = times = deaths.get(id(unit), 0) + 1
                    if times <= self.retries:
                        again.append(unit)
                    else:
                        yield unit, Lost(DIED.format(times=times))
        finally:
            self._end()

    def _answer(self, reference: Any) -> Any:
        """The rows of a unit; None where its actor died over it."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            return Lost(told(error))
        except self.ray.exceptions.RayError:
            return None

    def _another(self, kind: Any) -> Any:
        """An actor in the place of one that died. It answers, or it is not the unit but Ray that is at fault."""
        try:
            actor = kind.remote()
            self.ray.get(actor.ready.remote(), timeout=PATIENCE)
        except Exception:
            raise ConnectionError("Ray is gone; finished sentences are kept, the same command goes on") from None
        return actor

    def _end(self) -> None:
        """A Ray that was started for this run ends with it; so do the actors on one that was there."""
        self.ray.shutdown()

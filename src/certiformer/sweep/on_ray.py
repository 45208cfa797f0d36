"""Workers on Ray: the cluster that RAY_ADDRESS names, or one that is started on this machine and ends with the run.

Each worker is an actor with one copy of the model and one unit at a time: nothing queues up behind a slow one, and the
driver holds no more units than there are workers. Ray restarts an actor that died and gives it its unit again; after
that, the unit is lost, which its rows say.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import InputError
from .processes import DIED
from .runner import Done, Lost, Unit, Work, told

ADDRESS = "RAY_ADDRESS"


class _Actor:
    """A worker on Ray. It begins with its first unit, also after it was restarted."""

    def __init__(self) -> None:
        self.work: Work | None = None

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
        self._start(workers)
        self.workers = workers or self._room()

    def _start(self, workers: int | None) -> None:
        if self.ray.is_initialized():
            return
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

    def _room(self) -> int:
        has = self.ray.cluster_resources()
        room = has.get("GPU", 0.0) / self.num_gpus if self.num_gpus else has.get("CPU", 1.0)
        if room < 1:
            raise InputError(f"num_gpus={self.num_gpus:g}: the cluster has {has.get('GPU', 0.0):g} GPUs")
        return int(room)

    def results(self, units: Iterator[Unit], make: Callable[[], Work]) -> Iterator[Done]:
        ray = self.ray
        kind = ray.remote(num_cpus=1, num_gpus=self.num_gpus, max_restarts=-1, max_task_retries=self.retries)(_Actor)
        made = ray.put(make)  # once, however many workers there are
        idle = [kind.remote() for _ in range(self.workers)]
        running: dict[Any, tuple[Unit, Any]] = {}
        try:
            while True:
                while idle and (unit := next(units, None)) is not None:
                    actor = idle.pop()
                    running[actor.do.remote([made], unit.content)] = (unit, actor)
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    unit, actor = running.pop(reference)
                    idle.append(actor)
                    yield unit, self._answer(reference)
        finally:
            self._end()

    def _answer(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayActorError:
            return Lost(DIED.format(times=self.retries + 1))
        except self.ray.exceptions.RayError as error:
            return Lost(told(error))

    def _end(self) -> None:
        """A Ray that was started for this run ends with it; so do the actors on one that was there."""
        self.ray.shutdown()
